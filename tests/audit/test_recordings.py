from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from capstate.audit import audit_paths
from capstate.policy import read_policy
from tests.audit.recordings import (
    EXPECTED,
    FOLDERS,
    baseline,
    callable_by_notes,
    names,
    ran_not_authorised,
    said,
    table,
)

Rows = list[dict[str, Any]]
each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
WEB = {"web_fetch": "87b91469", "web_search": "87b91469"}
BY_TURN = ("lost", "never_loaded", "unexplained")


def judged(folder: Path) -> tuple[Rows, Rows, dict[str, Any]]:
    """Lines a request, findings, and the summary."""
    lines = list(audit_paths([folder], read_policy(folder / "policy.toml")))
    requests = [line for line in lines if "callable" in line]
    return requests, [line for line in lines if "finding" in line], lines[-1]["summary"]


def copied(folder: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a recording with each request changed."""
    copy = target / folder.name
    shutil.copytree(folder, copy)
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    for row in rows:
        change(row)
    (copy / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return copy


def stripped(row: dict[str, Any]) -> None:
    for key in ("wire", "check", "simulated_cache", "label", "reply", "path"):
        row.pop(key, None)
    if row["runtime"] is not None:
        row["runtime"].pop("active", None)


def without_leaf(row: dict[str, Any]) -> None:
    stripped(row)
    if row["runtime"] is not None:
        row["runtime"]["leafId"] = None


def tools_of(body: dict[str, Any]) -> Iterator[tuple[list[dict[str, Any]], int, str]]:
    """Every top-level definition of a body: its list, place and name."""
    tools = body.get("tools") or []
    for i, tool in enumerate(tools):
        yield tools, i, tool.get("name") or tool["function"]["name"]


@each_folder
def test_callable_and_not_authorised_are_those_of_the_notes(folder: Path) -> None:
    """Turn by turn, what could be called and what of it was not on the list equal the table in notes.md."""
    rows, _, summary = judged(folder)
    told = table(folder / "notes.md", "turn")
    assert [r["turn"] for r in rows] == [int(row["turn"]) for row in told]
    for row, note in zip(rows, told, strict=True):
        assert set(row["callable"]) == callable_by_notes(note), note["turn"]
        assert set(row["not_authorised"] or ()) == names(note["effective but not authorised"]), note["turn"]
    assert summary["ran_unauthorised"] == ran_not_authorised(folder)
    assert summary["requests"] == sum(row["kind"] == "turn" for row in told)


@each_folder
def test_lost_never_loaded_and_unexplained_are_those_expected(folder: Path) -> None:
    """Turn by turn, losses, widenings and unexplained changes equal what was written down by hand."""
    rows, _, summary = judged(folder)
    expected = EXPECTED.get(folder.name, {})
    for field in BY_TURN:
        found = {str(r["turn"]): r[field] for r in rows if r[field]}
        assert found == expected.get(field, {}), field
    assert summary["ran_never_loaded"] == expected.get("ran_never_loaded", 0)
    assert [d["kind"] for d in summary["damage"]] == expected.get("damage", [])
    assert summary["unknown"] == {}
    assert summary["loads_from"] == "transcript"


@each_folder
def test_the_summary_says_what_the_baseline_says(folder: Path) -> None:
    """Loses, widens and runs equal the baseline in README.md, but for the one cell that stands in the wrong column."""
    _, _, summary = judged(folder)
    row = baseline()[folder.name]
    loses, widens = summary["lost_turns"] > 0, summary["never_loaded_turns"] + summary["not_authorised_turns"] > 0
    if folder.name.startswith("s08e"):
        assert (said(row["loses"]), said(row["widens"])) == (False, True), "the table was mended"
        assert (loses, widens) == (True, False)
    else:
        assert said(row["loses"]) in (None, loses)
        assert said(row["widens"]) in (None, widens)
    ran = row["runs unauthorised"]
    if ran.startswith("yes, "):
        assert summary["ran_unauthorised"] == int(ran.removeprefix("yes, "))
    else:
        assert summary["ran_unauthorised"] == 0


def test_the_numbers_that_are_told_everywhere() -> None:
    """25 of 273 requests in 8 of 30 recordings carried tools outside the list; 9 such calls ran, in 7."""
    found = [judged(folder)[2] for folder in FOLDERS]
    wide = [s["not_authorised_turns"] for s in found]
    ran = [s["ran_unauthorised"] for s in found]
    assert (sum(wide), sum(s["requests"] for s in found), sum(map(bool, wide)), len(found)) == (25, 273, 8, 30)
    assert (sum(ran), sum(map(bool, ran))) == (9, 7)


@each_folder
def test_the_recorders_own_results_are_not_read(folder: Path, tmp_path: Path) -> None:
    """A copy without wire, check, active, cache, labels and replies gets the same answer, line by line."""
    copy = copied(folder, tmp_path, stripped)
    policy = read_policy(folder / "policy.toml")
    assert list(audit_paths([copy], policy)) == list(audit_paths([folder], policy))


@each_folder
def test_a_place_is_found_by_the_body_alone(folder: Path, tmp_path: Path) -> None:
    """Without leaves in the record every verdict, and every leaf, is the same."""
    copy = copied(folder, tmp_path, without_leaf)
    assert judged(copy) == judged(folder)


@each_folder
def test_one_definition_more_is_seen(folder: Path, tmp_path: Path) -> None:
    """A definition put into the last body is callable there, and never loaded; no other turn changes."""
    rows, _, before = judged(folder)
    last = max(r["turn"] for r in rows)

    def plant(row: dict[str, Any]) -> None:
        stripped(row)
        if row["turn"] == last:
            plain = {"name": "planted", "description": "d"}
            forms: dict[str, dict[str, Any]] = {
                "anthropic-messages": {**plain, "input_schema": {"type": "object"}},
                "openai-responses": {**plain, "type": "function", "parameters": {"type": "object"}},
                "openai-completions": {"type": "function", "function": {**plain, "parameters": {"type": "object"}}},
            }
            row["body"].setdefault("tools", []).append(forms[row["api"]])

    changed, findings, after = judged(copied(folder, tmp_path, plant))
    assert "planted" in changed[-1]["callable"]
    assert "planted" in changed[-1]["never_loaded"]
    assert changed[:-1] == rows[:-1]
    assert any(f["finding"] == "CS121" and "planted" in f["names"] for f in findings)
    assert after["never_loaded_turns"] == before["never_loaded_turns"] + (not rows[-1]["never_loaded"])


@each_folder
def test_one_definition_less_is_seen(folder: Path, tmp_path: Path) -> None:
    """A tool that belongs into a body and is taken out of it is lost there."""
    bodies = {r["turn"]: r for r in map(json.loads, (folder / "requests.jsonl").read_text().splitlines())}
    rows, _, _ = judged(folder)
    places = [
        (r["turn"], name)
        for r in rows
        for _, _, name in tools_of(bodies[r["turn"]]["body"])
        if name in r["should"]["immediate"]
    ]
    if folder.name.startswith("s01d"):
        assert places == [], "only a summary request was recorded"
        return
    turn, taken = places[-1]

    def take(row: dict[str, Any]) -> None:
        stripped(row)
        if row["turn"] == turn:
            for tools, i, name in list(tools_of(row["body"])):
                if name == taken:
                    del tools[i]
                    break

    changed, findings, _ = judged(copied(folder, tmp_path, take))
    row = next(r for r in changed if r["turn"] == turn)
    assert taken in row["lost"]
    assert any(taken in f["names"] and f["finding"] in ("CS101", "CS102", "CS103", "CS104") for f in findings)


@pytest.mark.parametrize(
    ("folder", "turn", "deferred"),
    [
        ("s01-load-point-retained", 7, {"git_log": "d9d006a4", "git_blame": "d9d006a4"}),
        ("s01c-retained-tail-harness-0.83", 7, {"git_log": "e003cd9d", "git_blame": "e003cd9d"}),
        ("s02-load-point-compacted", 8, {}),
        ("s02b-one-point-compacted-one-kept", 11, {"web_fetch": "6f51ca45", "web_search": "6f51ca45"}),
        ("s05a-reopen-start-policy-narrow", 9, {"git_log": "2b1cd687", "git_blame": "2b1cd687", **WEB}),
        ("s07-provider-switch", 5, {}),
        ("s07-provider-switch", 8, {"git_log": "f4000df3", "git_blame": "f4000df3"}),
        ("s07-provider-switch", 9, {}),
        ("s07-provider-switch", 14, {"git_log": "f4000df3", "git_blame": "f4000df3"}),
        ("s08a-revoke-before-compaction", 9, {"git_log": "a240944b"}),
        ("s09b-tree-branch-same-process", 9, {"deploy_prod": "a6642db9"}),
        ("s09d-clone-loses-kept-range-at-label", 7, {}),
        ("s10a-pi-1.6.0-load-compact-reopen", 4, {"git_log": "0533c759", "git_blame": "0533c759"}),
        ("s10a-pi-1.6.0-load-compact-reopen", 7, {}),
        ("s10c-pi-1.6.0-tree-navigation", 8, {"git_log": "93f09073"}),
    ],
)  # fmt: skip
def test_marks_stand_where_the_notes_put_them(folder: str, turn: int, deferred: dict[str, str]) -> None:
    """The right projection defers exactly the tools whose mark the notes call kept, at the entry that carries them."""
    rows, _, _ = judged(next(f for f in FOLDERS if f.name == folder))
    row = next(r for r in rows if r["turn"] == turn)
    assert row["should"]["deferred"] == deferred


@each_folder
def test_where_nothing_is_wrong_the_wire_is_as_it_should_be(folder: Path) -> None:
    """In a turn without a loss or widening the right projection is what the notes show, deferred tools included."""
    rows, _, _ = judged(folder)
    notes = table(folder / "notes.md", "turn")
    for row, note in zip(rows, notes, strict=True):
        if row["kind"] == "turn" and not (row["lost"] or row["never_loaded"] or row["not_authorised"]):
            should = row["should"]
            assert {*should["immediate"], *should["deferred"]} == set(row["callable"]), note["turn"]
            late = callable_by_notes(note) - (names(note["immediate"]) - names(note["deferred"]))
            if "tool_removal" not in note["load points"]:
                assert set(should["deferred"]) == late, note["turn"]


def test_findings_have_their_place_and_grade() -> None:
    """The reopen that loses is CS102, observed, at its request; a return after revocation is CS110; a copy is CS103."""
    found = {f.name[:4].rstrip("-"): judged(f)[1] for f in FOLDERS}
    lost = next(f for f in found["s05a"] if f["finding"] == "CS102")
    assert (lost["turn"], lost["line"], lost["entry"], lost["grade"]) == (9, 9, "0cffe646", "observed")
    assert {(f["turn"], *f["names"]) for f in found["s08b"] if f["finding"] == "CS110"} == {(9, "git_blame")}
    assert [f["turn"] for f in found["s09a"] if f["finding"] == "CS103"] == [7, 8]
    assert {f["grade"] for f in found["s09a"]} == {"inferred"}
    assert [f["detail"] for f in found["s09d"] if f["finding"] == "CS601"] == ["broken_boundary"]
    assert {f["turn"] for f in found["s08d"] if f["finding"] == "CS202"} == {5, 11}


def test_a_missing_tool_of_a_gone_group_is_unavailable() -> None:
    """A group that is known and no longer registered is withheld for its resource, and is not lost."""
    rows, _, _ = judged(next(f for f in FOLDERS if f.name.startswith("s08c")))
    assert rows[-1]["should"]["withheld"]["git_log"] == "resource_unavailable"
    assert rows[-1]["lost"] == []


def test_without_authority_nothing_is_said_about_it() -> None:
    """Where no list was recorded, not_authorised is null and the grade says inferred."""
    rows, _, summary = judged(next(f for f in FOLDERS if f.name.startswith("s09b")))
    assert {r["not_authorised"] for r in rows} == {None}
    assert {r["grade"] for r in rows if r["kind"] == "turn"} == {"inferred"}
    assert summary["not_authorised_turns"] == 0
