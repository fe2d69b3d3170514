from __future__ import annotations

import json
from pathlib import Path

import pytest

from capstate.audit import audit_paths
from capstate.conformance import recorded
from capstate.conformance.scenarios import SCENARIOS
from capstate.errors import InvalidInputError

ROOT = Path(__file__).parents[2] / "experiments" / "recorded" / "pi"


def test_the_bundled_counts_are_those_of_a_fresh_audit() -> None:
    """What the wheel brings equals what the audit says of the recordings now, to the byte."""
    made = recorded.main([str(ROOT)]) + "\n"

    assert made == (Path(recorded.__file__).parent / "recorded.json").read_text(encoding="utf-8")
    assert recorded.bundled() == recorded.count(ROOT)


def test_every_recording_belongs_to_a_scenario_or_is_left_out_on_purpose() -> None:
    """All folders but the proof over stdio, which has no authority list, stand in the matrix; none twice as a whole."""
    folders = {path.parent.name for path in ROOT.glob("*/notes.md")}
    named = [(folder, turns) for s in SCENARIOS.values() for folder, turns in s.recorded.items()]
    whole = [folder for folder, turns in named if turns is None]

    assert folders - {folder for folder, _ in named} == {"x01-python-authority-over-stdio"}
    assert len(whole) == len(set(whole))
    assert {folder for folder, turns in named if turns is not None} & set(whole) == set()


@pytest.mark.parametrize("folder", ["s07-provider-switch", "s09c-child-process"])
def test_a_recording_that_shows_several_scenarios_is_cut_by_turns(folder: str) -> None:
    """The turns given to each row are requests of the recording, and no turn counts twice."""
    given = [turn for s in SCENARIOS.values() for turn in s.recorded.get(folder) or ()]
    lines = audit_paths([ROOT / folder])
    turns = {line["turn"] for line in lines if line.get("kind") == "turn"}

    assert len(given) == len(set(given))
    assert set(given) <= turns


def test_known_counts_stand_in_their_rows() -> None:
    """Counted by hand from the notes: the reopen of s05a loses twice; s08b and s08d ran four without permission."""
    rows = recorded.bundled()

    assert rows["8b"].ran == 4
    assert rows["8a"].lost == rows["8a"].widened == rows["8a"].ran == 0
    assert rows["5"].shown[0].startswith("lost in s05a turn 9: git_blame, git_log, web_fetch, web_search")


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    """Counting an empty folder is an error that names what is not there."""
    with pytest.raises(InvalidInputError):
        recorded.count(tmp_path)


def test_the_bundle_is_plain_json() -> None:
    """One row for each scenario, in their order."""
    text = (Path(recorded.__file__).parent / "recorded.json").read_text(encoding="utf-8")

    assert list(json.loads(text)["rows"]) == list(SCENARIOS)
