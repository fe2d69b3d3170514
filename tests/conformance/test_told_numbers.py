"""Numbers that the README and the pages tell are those of a run: of the matrix, the demo, and a fresh audit."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from capstate.audit import audit_paths
from capstate.conformance import matrix
from capstate.conformance.designs import DESIGNS
from capstate.conformance.recorded import bundled, count
from capstate.demo.story import stories
from capstate.policy import read_policy
from capstate.terminal import show_demo, show_matrix
from tests.docs.snippets import blocks

ROOT = Path(__file__).parents[2]
PI = ROOT / "experiments" / "recorded" / "pi"
README = ROOT / "README.md"
TOLD = re.compile(
    r"(?:Of (?P<of>\d+) requests )?(?P<wide>\d+) (?:of (?P<requests>\d+) requests )?carried tools outside the list, "
    r"in (?P<wide_in>\d+) of (?P<stories>\d+) stories; (?P<ran>\d+) such calls ran, in (?P<ran_in>\d+) stories"
)


def page() -> tuple[Console, io.StringIO]:
    """A console as wide as a pipe gets it, and what it printed."""
    out = io.StringIO()
    return Console(file=out, width=80, highlight=False, emoji=False, markup=False), out


@pytest.fixture(scope="session")
def played() -> matrix.Result:
    """The whole matrix, played once."""
    return matrix.run()


@pytest.mark.slow
def test_the_matrix_in_the_readme_is_the_one_that_is_printed(played: matrix.Result) -> None:
    """Line by line, from the head of the table to the last row; and nothing is lost, widened or unexplained in B+C."""
    console, out = page()
    show_matrix(console, played, bundled(), list(DESIGNS))
    printed = [line.rstrip() for line in out.getvalue().splitlines()]
    (told,) = [block.text for block in blocks(README) if block.text.startswith("$ capstate matrix")]
    table = told.splitlines()[1 : 1 + 1 + len(played.rows)]

    assert len(played.rows) == 16
    assert table == printed[: len(table)]
    assert printed[-1] == "B+C: 0 in every cell, in every profile"
    assert played.holds


def test_the_recorded_column_is_a_fresh_count() -> None:
    """What the package brings for the first column equals what an audit of the recordings counts now."""
    assert bundled() == count(PI)


def test_the_picture_in_the_readme_is_the_demos() -> None:
    """Each strip of a tool is the beginning of that tool's strip as the demo draws it, recorded and under capstate."""
    console, out = page()
    show_demo(console, list(stories()))
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
    line = next(line for line in text.splitlines() if re.match(rf" *{tool}\b", line))
    return re.sub(r"\s+", " ", re.sub(r"(?<=[▲■])!", "", line[re.search(r"[·●▲■×]", line).start() :])).strip()  # type: ignore[union-attr]


def head(text: str) -> str:
    """The columns."""
    line = next(line for line in text.splitlines() if re.search(r" 1  2  3 ", line))
    return re.sub(r"\s+", " ", line[line.index(" 1  2  3 ") :]).strip()


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
