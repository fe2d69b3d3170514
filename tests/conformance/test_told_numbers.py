"""Pictures and numbers that the README and the pages tell are those of a run: of the demo, and of a fresh audit."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from capstate.audit import audit_paths
from capstate.demo.story import stories
from capstate.policy import read_policy
from capstate.terminal import console, show_demo
from tests.docs.snippets import blocks

ROOT = Path(__file__).parents[2]
PI = ROOT / "experiments" / "recorded" / "pi"
README = ROOT / "README.md"
TOLD = re.compile(
    r"(?:Of (?P<of>\d+) requests )?(?P<wide>\d+) (?:of (?P<requests>\d+) requests )?carried tools outside the list, "
    r"in (?P<wide_in>\d+) of (?P<stories>\d+) stories; (?P<ran>\d+) such calls ran, in (?P<ran_in>\d+) stories"
)


def test_the_picture_in_the_readme_is_the_demos() -> None:
    """Each strip of a tool is the beginning of that tool's strip as the demo draws it, recorded and under capstate."""
    out = io.StringIO()
    show_demo(console(out), list(stories()))
    second = out.getvalue().partition("2. The revocation")[2]
    recorded, _, under = second.partition("under capstate")
    picture = next(block.text for block in blocks(README) if "one real agent" in block.text)
    first, _, below = picture.partition("under capstate")

    for told, drawn in ((first, recorded), (below, under)):
        for tool in ("git_blame", "deploy_prod"):
            assert strip(drawn, tool).startswith(strip(told, tool))
            assert len(strip(told, tool).split()) == len(head(told).split())
        assert head(drawn).startswith(head(told))


def strip(text: str, tool: str) -> str:
    """The cells of a tool's line: what follows its name and its remark."""
    found = re.search(rf"^ *{tool}\b[^\n·●]*([·●].*)$", text, re.MULTILINE)
    assert found is not None, f"no strip of {tool}"
    return " ".join(found[1].split())


def head(text: str) -> str:
    """The columns."""
    found = re.search(r" (1  2  3 .*)$", text, re.MULTILINE)
    assert found is not None, "no columns"
    return " ".join(found[1].split())


@pytest.fixture(scope="session")
def audited() -> dict[str, dict[str, Any]]:
    """The summary of a fresh audit of each recording."""
    folders = sorted(path.parent for path in PI.glob("*/requests.jsonl"))
    return {f.name: list(audit_paths([f], read_policy(f / "policy.toml")))[-1]["summary"] for f in folders}


@pytest.mark.parametrize("name", ["README.md", "docs/why.md"])
def test_the_measured_figures_are_those_of_a_fresh_audit(name: str, audited: dict[str, dict[str, Any]]) -> None:
    """Requests outside the list, calls that ran, and in how many stories, wherever a page tells them."""
    found = TOLD.search((ROOT / name).read_text(encoding="utf-8"))
    wide = [s["not_authorised_turns"] for s in audited.values()]
    ran = [s["ran_unauthorised"] for s in audited.values()]

    assert found is not None, f"{name} does not tell the figures in the words that this test reads"
    told = {key: int(value) for key, value in found.groupdict().items() if value is not None}
    requests = told.pop("of", None) or told.pop("requests")
    assert requests == sum(s["requests"] for s in audited.values())
    assert told == {
        "wide": sum(wide),
        "wide_in": sum(map(bool, wide)),
        "stories": len(audited),
        "ran": sum(ran),
        "ran_in": sum(map(bool, ran)),
    }


def test_losses_are_told_where_they_were_seen(audited: dict[str, dict[str, Any]]) -> None:
    """Recordings of a reopen, a fork and a clone have turns with lost tools, as the pages say."""
    losing = {name.partition("-")[0] for name, summary in audited.items() if summary["lost_turns"]}

    assert {"s05a", "s09a"} <= losing
