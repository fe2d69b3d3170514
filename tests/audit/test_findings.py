from __future__ import annotations

import pytest

from capstate.errors import InvalidInputError
from capstate.findings import RULES, Finding, Grade, rule

STABLE = {
    "CS101": "Gone after compaction",
    "CS102": "Gone after reopen",
    "CS103": "Gone after fork or branch move",
    "CS104": "Gone without a boundary",
    "CS110": "Came back after removal",
    "CS120": "Ran though not in the request",
    "CS121": "Never loaded on this path",
    "CS201": "Could call without authority",
    "CS202": "Ran without authority",
    "CS203": "Ask skipped",
    "CS401": "Definition changed under one name",
    "CS501": "Broken trace",
    "CS601": "Damaged file",
}


def test_ids_and_titles_are_stable() -> None:
    """The ids and what they are called are as published."""
    assert {r.id: r.title for r in RULES.values()} == STABLE


def test_each_rule_explains_itself_in_one_paragraph() -> None:
    """The text is one paragraph of some sentences; those of the 200s need a list."""
    for found in RULES.values():
        assert "\n" not in found.text
        assert found.text.count(". ") >= 1
        assert found.text.endswith(".")
        assert found.needs_policy == found.id.startswith("CS2")


def test_an_unknown_id_is_refused() -> None:
    """Asking for a rule that is none names those that are."""
    with pytest.raises(InvalidInputError, match="CS101"):
        rule("CS999")


def test_grades_stand_best_first() -> None:
    """observed, recorded, inferred, unknown."""
    assert list(Grade) == ["observed", "recorded", "inferred", "unknown"]


def test_a_finding_is_one_row() -> None:
    """A row has the rule's title and the place."""
    row = Finding("CS102", Grade.OBSERVED, ("a",), turn=9, file="f", line=3, entry="e").to_json()
    assert row == {
        "finding": "CS102", "title": "Gone after reopen", "grade": "observed", "names": ["a"], "turn": 9, "file": "f",
        "line": 3, "entry": "e", "detail": "",
    }  # fmt: skip
