"""Nine scenarios, five designs: the library holds everywhere, the naive designs fail where they must."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from capstate import authority
from capstate.conformance import matrix
from capstate.conformance.designs import DESIGNS
from capstate.conformance.matrix import Cell, Result, Turn
from capstate.conformance.play import Job, play
from capstate.conformance.recorded import bundled
from capstate.conformance.scenarios import SCENARIOS, segments
from capstate.conformance.world import PROFILES
from capstate.errors import InvalidInputError
from capstate.runtime import gated, verdict
from capstate.terminal import console, show_matrix
from tests.docs.snippets import blocks

pytestmark = pytest.mark.slow

README = Path(__file__).parents[2] / "README.md"

FAILS: dict[str, dict[str, str]] = {
    "A": {"3": "LU", "5": "LU", "6b": "U", "8a": "WU", "8b": "WU", "8c": "W", "9b": "W", "9c": "W"},
    "B-blind": {"5": "W", "6b": "W", "8a": "W", "8b": "WU", "8c": "W", "9b": "W", "9c": "W"},
    "B": {"8b": "WU", "8c": "LW", "9b": "W", "9c": "W"},
    "C": {"5": "U", "6b": "U", "8a": "U", "8b": "U", "8c": "U", "9b": "U", "9c": "U"},
    "B+C": {},
}
"""What each design shows in each row under every profile: lost, widened, unexplained. In rows not here: nothing."""


@pytest.fixture(scope="module")
def result() -> Result:
    return matrix.run()


def kinds(cell: Cell) -> str:
    return "L" * bool(cell.lost) + "W" * bool(cell.widened) + "U" * bool(cell.unexplained)


def cells(result: Result) -> Iterator[tuple[str, str, Cell]]:
    for row in result.rows:
        for design, found in row.cells.items():
            for cell in found:
                yield row.scenario.id, design, cell


def test_the_library_loses_nothing_and_widens_nothing_in_any_cell(result: Result) -> None:
    """B+C: 0 lost, 0 widened, 0 unexplained, in each row under each profile that the row applies to."""
    own = {(row, cell.profile): cell.faults for row, design, cell in cells(result) if design == "B+C"}

    assert len(own) >= 16 * 7 - 2 * 3 - 4  # 7a and 7b are for the four that defer, 7c for the three that do not
    assert set(own.values()) == {0}
    assert result.holds


def test_every_design_fails_where_it_must_and_nowhere_else(result: Result) -> None:
    """Under every profile alike, each design shows exactly the faults that are written down."""
    seen = {(row, design, cell.profile): kinds(cell) for row, design, cell in cells(result)}

    assert seen == {key: FAILS[key[1]].get(key[0], "") for key in seen}


def test_the_table_in_the_readme_is_the_one_that_is_printed(result: Result) -> None:
    """Line by line, from the head of the table to the last row."""
    out = io.StringIO()
    show_matrix(console(out), result, bundled(), list(DESIGNS))
    printed = [line.rstrip() for line in out.getvalue().splitlines()]
    (told,) = [block.text for block in blocks(README) if block.text.startswith("$ capstate matrix\n")]
    table = told.splitlines()[1 : 1 + 1 + len(result.rows)]

    assert table == printed[: len(table)]
    assert len(result.rows) == len(SCENARIOS)
    assert printed[-1] == "B+C: 0 in every cell, in every profile"


def test_every_row_is_played_under_every_profile_it_applies_to(result: Result) -> None:
    """Seven profiles; the switches from a deferring provider need one that defers, those from a plain one need one."""
    deferring = {id_ for id_, profile in PROFILES.items() if profile.defers}

    for row in result.rows:
        applies = {"7a": deferring, "7b": deferring, "7c": PROFILES.keys() - deferring}
        due = applies.get(row.scenario.id, PROFILES.keys())
        assert {design: {cell.profile for cell in found} for design, found in row.cells.items()} == {
            design: set(due) for design in DESIGNS
        }


def test_a_restart_is_another_process(result: Result) -> None:
    """Each part of a script was played by one process, and no process played two parts of one script."""
    for (scenario, _, profile, script), turns in result.turns.items():
        parts = len(segments(SCENARIOS[scenario].scripts(profile)[script]))
        played = {(turn.seen.process, turn.seen.pid) for turn in turns}
        assert len(played) == len({pid for _, pid in played}) == parts

    assert {key[0] for key, turns in result.turns.items() if turns[-1].seen.process} == {"3", "5"}


# ---- the cells are what they say


def judged(design: str, tmp_path: Path, scenario: str = "8a") -> tuple[Job, list[Any], list[Turn]]:
    job = Job(scenario, 0, design, "anthropic", str(tmp_path))
    seen = play(job, 0)
    return job, seen, matrix.judge(job, seen)


def test_a_tool_taken_from_a_body_is_lost(tmp_path: Path) -> None:
    """The count follows the body alone: without one definition, the same run has lost that tool in that turn."""
    job, seen, before = judged("B+C", tmp_path)
    body = {**seen[4].body, "tools": [t for t in seen[4].body["tools"] if t["name"] != "read"]}
    after = matrix.judge(job, [*seen[:4], evolve(seen[4], body=body), *seen[5:]])

    assert [turn.lost for turn in before] == [frozenset()] * 5
    assert [turn.lost for turn in after] == [frozenset()] * 4 + [{"read"}]


def test_a_tool_added_to_a_body_is_widened_and_unexplained(tmp_path: Path) -> None:
    """One definition more in a body, and that turn is widened, and nothing that was written explains it."""
    job, seen, _ = judged("B+C", tmp_path)
    extra = {"name": "deploy_prod", "input_schema": {}}
    changed = evolve(seen[4], body={**seen[4].body, "tools": [*seen[4].body["tools"], extra]})
    after = matrix.judge(job, [*seen[:4], changed])

    assert [turn.widened for turn in after] == [frozenset()] * 4 + [{"deploy_prod"}]
    assert [turn.unexplained for turn in after] == [frozenset()] * 4 + [{"deploy_prod"}]


def test_a_tool_that_ran_without_authority_is_widened(tmp_path: Path) -> None:
    """If the spy of a refused tool had noted a run, the turn would count; a callable tool that is refused is lost."""
    job, seen, before = judged("B+C", tmp_path)
    calls = dict(seen[3].calls)
    flipped = evolve(seen[3], calls=tuple((tool, not ran) for tool, ran in seen[3].calls))
    after = matrix.judge(job, [*seen[:3], flipped, seen[4]])

    assert calls == {"git_blame": False, "web_search": False, "git_log": True}
    assert not before[3].ran
    assert after[3].ran == {"git_blame", "web_search"}
    assert after[3].lost == {"git_log"}


def test_without_its_receipts_the_library_explains_nothing(tmp_path: Path) -> None:
    """Receipts alone make the difference between B+C and C: hide them, and the same turns are unexplained."""
    job, seen, _ = judged("B+C", tmp_path)
    hidden = matrix.judge(job, [evolve(one, evidence=()) for one in seen])

    assert [turn.unexplained for turn in hidden] == [frozenset()] * 3 + [{"git_blame", "web_search"}, frozenset()]


def test_a_row_is_shown_by_the_turn_that_has_the_fault(result: Result) -> None:
    """Every count comes with the first turn that shows it, by name of the tools."""
    reopened = next(row for row in result.rows if row.scenario.id == "5").worst("B-blind")

    assert reopened is not None
    assert reopened.shown == ("turn 5: widened web_search (ran: web_search)",)


# ---- wrong libraries


def wrong(*rows: str) -> dict[str, str]:
    found = matrix.run(rows, ["anthropic", "chat"], ["B+C"], processes=False)
    return {row: kinds(cell) for row, _, cell in cells(found)}


def test_with_union_for_meet_the_library_turns_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """If any component's permission were enough, what a ceiling or a parent takes away would stay and run."""

    def union(self: authority.GroupAuthority, name: str, print_: str) -> Any:
        results = [part.result(name, print_) for part in self.parts]
        if isinstance(self.parent, authority.GroupAuthority):
            results.append(self.parent._least(name, print_))
        return max(results, key=lambda result: result.rank)

    monkeypatch.setattr(authority.GroupAuthority, "_least", union)

    assert wrong("2", "5", "8a", "8b", "9b", "9c") == {"2": "", "5": "W", "8a": "W", "8b": "W", "9b": "W", "9c": "W"}


def test_with_a_guard_that_checks_names_the_library_turns_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a call passed because its name is known, revoked tools would run; the requests would still be right."""
    judge: Any = verdict.judge

    def by_name(*arguments: Any) -> Any:
        said = judge(*arguments)
        return said if said.row is None else said._replace(reason=None)

    monkeypatch.setattr(gated, "judge", by_name)
    found = matrix.run(["2", "8a", "8b", "8c", "9b"], ["responses"], ["B+C"], processes=False)
    ran = {key[0]: [turn.seen.turn for turn in turns if turn.ran] for key, turns in found.turns.items()}

    assert {row: kinds(cell) for row, _, cell in cells(found)} == {"2": "", "8a": "W", "8b": "W", "8c": "W", "9b": "W"}
    assert ran == {"2": [], "8a": [4], "8b": [3, 4, 5], "8c": [4, 6, 7], "9b": [4, 6]}
    assert not any(turn.widened for turns in found.turns.values() for turn in turns)


# ---- names


@pytest.mark.parametrize(
    ("arguments", "place"),
    [({"scenarios": ["10"]}, "scenario"), ({"profiles": ["x"]}, "provider"), ({"designs": ["b+c"]}, "design")],
    ids=["scenario", "provider", "design"],
)
def test_unknown_names_are_refused(arguments: dict[str, Any], place: str) -> None:
    """A row, profile or design that does not exist is said, with those that do."""
    with pytest.raises(InvalidInputError) as refused:
        matrix.run(**arguments)

    assert refused.value.place == place


def test_a_process_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends badly ends the run with one error, and no cell is made up."""
    monkeypatch.setattr(matrix, "jobs_json", lambda *_: "no JSON")

    with pytest.raises(matrix.ProcessFailedError):
        matrix.run(["1"], ["chat"], ["A"])
