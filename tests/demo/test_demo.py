"""The bundled recordings hold no text; the pictures say what the audit says; under capstate the story ends well."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from capstate.audit import audit_paths
from capstate.demo import bundle
from capstate.demo.story import Story, stories
from capstate.demo.strip import Cell, Mark, Strip, strip
from capstate.policy import read_policy
from capstate.terminal import console, show_demo

ROOT = Path(__file__).parents[2] / "experiments" / "recorded" / "pi"
BUNDLED = Path(str(files("capstate.demo") / "recordings"))
FILES = ("session.jsonl", "requests.jsonl", "observations.jsonl")


@pytest.fixture(scope="module")
def told() -> list[Story]:
    return list(stories())


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a JSON value, with the key that it stands under."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, key)
    elif isinstance(value, str):
        yield key, value


def records(root: Path, folder: str) -> Iterator[Any]:
    for name in FILES:
        for line in (root / folder / name).read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


# ---- the bundle


@pytest.mark.parametrize("folder", bundle.FOLDERS)
def test_no_text_of_the_conversation_is_in_the_bundle(folder: str) -> None:
    """Prompts, replies, results, summaries, system prompts: no sentence of the whole recording stands in the bundle.

    A prompt of one word, such as the name of a group, cannot be told from that name; the test below covers it.
    """
    said = {
        text
        for record in records(ROOT, folder)
        for key, text in texts(record)
        if key in ("text", "content", "summary", "thinking", "cwd", "description") and len(text.split()) > 1
    }
    bundled = "\n".join((BUNDLED / folder / name).read_text(encoding="utf-8") for name in FILES)

    assert len(said) > 20
    assert [text for text in said if text in bundled or json.dumps(text) in bundled] == []


@pytest.mark.parametrize("folder", bundle.FOLDERS)
def test_what_text_is_left_is_a_name_an_id_or_a_kind(folder: str) -> None:
    """Each text that is not empty stands under a listed key, is one word, and is short."""
    left = [(key, text) for record in records(BUNDLED, folder) for key, text in texts(record) if text]

    assert {key for key, _ in left} <= bundle.KEPT - {"text", "content", "summary", "thinking"}
    assert [text for _, text in left if " " in text or len(text) > 64] == []


@pytest.mark.parametrize("folder", bundle.FOLDERS)
def test_the_stripped_recording_is_judged_like_the_whole_one(folder: str) -> None:
    """The audit's lines are equal, all of them: nothing that matters was stripped."""
    whole, stripped = (
        list(audit_paths([root / folder], read_policy(root / folder / "policy.toml"))) for root in (ROOT, BUNDLED)
    )

    assert stripped == whole


def test_the_bundle_is_what_its_command_makes(tmp_path: Path) -> None:
    """Made anew from the recordings, every file is the same to the byte."""
    bundle.make(ROOT, tmp_path)
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    assert made == {path.relative_to(BUNDLED): path.read_bytes() for path in BUNDLED.rglob("*") if path.is_file()}


# ---- the pictures


def drawn(picture: Strip, tool: str) -> dict[int, Mark]:
    return {column.turn: column.of(tool).mark for column in picture.columns if column.turn}


def test_the_reopen_that_loses(told: list[Story]) -> None:
    """Recorded: git_log could be called until turn 8, and is lost in 9 and 11. Under capstate it never is."""
    recorded, under = strip(told[0].recorded), strip(told[0].under)

    assert {turn for turn, mark in drawn(recorded, "git_log").items() if mark is Mark.LOST} == {9, 11}
    assert {turn for turn, mark in drawn(recorded, "git_log").items() if mark is Mark.COULD} == {4, 5, 6, 7, 8}
    assert {turn for turn, mark in drawn(under, "git_log").items() if mark is Mark.COULD} == {4, 5, 6, 7, 8, 9, 11}


def test_the_revocation_that_comes_back(told: list[Story]) -> None:
    """Recorded: git_blame came back in 9 to 12 and ran, deploy_prod, never granted, ran. Here both are refused."""
    recorded, under = strip(told[1].recorded), strip(told[1].under)
    columns = {column.turn: column for column in recorded.columns}

    assert {turn for turn, mark in drawn(recorded, "git_blame").items() if mark is Mark.BACK} == {9, 10, 11, 12}
    assert columns[9].of("git_blame") == Cell(Mark.BACK, ran=True)
    assert columns[11].of("deploy_prod") == Cell(Mark.NEVER, ran=True)
    assert {turn for turn, mark in drawn(under, "git_blame").items() if mark is not Mark.NONE} == {4, 5, 9}
    assert drawn(under, "git_blame")[9] is drawn(under, "deploy_prod")[11] is Mark.REFUSED


def test_under_capstate_nothing_is_lost_and_nothing_runs_without_permission(told: list[Story]) -> None:
    """In every request of both stories the wire is what is loaded and permitted, and the removal has a receipt."""
    lines = [line for story in told for line in story.under if line["kind"] == "turn"]
    removed = [change[:3] for _, _, changes in told[1].receipts for change in changes if change[0] == "removed"]

    assert len(lines) == 23
    assert [line for line in lines if line["lost"] or line["not_authorised"] or line["never_loaded"]] == []
    assert removed == [("removed", "git/git_blame", "authority")]


def test_boundaries_stand_between_the_requests(told: list[Story]) -> None:
    """Compactions, reopens and the revocation are columns of their own, in their order."""
    marks = [column.boundary or column.turn for column in strip(told[1].recorded).columns]

    assert marks == [
        *(1, 2, 3, 4, 5, "compaction", "revoked", 7, 8, "reopened", 9, 10, "reopened", 11, 12, "reopened", 13, 14)
    ]


def test_tools_that_fare_alike_share_a_row(told: list[Story]) -> None:
    """Every tool stands in exactly one row, and the columns of a row's tools are equal."""
    picture = strip(told[1].recorded)
    tools = [tool for names in picture.rows for tool in names]

    assert len(tools) == len(set(tools)) == 12
    for names in picture.rows:
        assert len({tuple(column.of(tool) for column in picture.columns) for tool in names}) == 1


def test_an_empty_recording_draws_an_empty_picture() -> None:
    """No lines, no columns, no rows, no error."""
    assert strip([]) == Strip((), ())


# ---- the page


def page(told: list[Story], encoding: str) -> list[str]:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    show_demo(console(file), told)
    file.flush()
    return raw.getvalue().decode(encoding).splitlines()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_page_is_eighty_columns_wide(told: list[Story], encoding: str) -> None:
    """Not one line is longer, and none of the picture is cut, also where the output takes only ASCII."""
    lines = page(told, encoding)

    assert max(map(len, lines)) <= 80
    assert any(line.endswith(" 9 10  N 11 12  N 13 14") for line in map(str.rstrip, lines))
    assert not any("…" in line for line in lines)


def test_marks_differ_by_shape_alone(told: list[Story]) -> None:
    """Without colour, six marks are six characters, in Unicode and in ASCII."""
    for encoding, marks in (("utf-8", "·●○▲■\u00d7!"), ("ascii", ".o?^#x!")):
        text = "\n".join(page(told, encoding))
        assert len(set(marks)) == 7
        assert all(mark in text for mark in marks)
        assert "\x1b" not in text
