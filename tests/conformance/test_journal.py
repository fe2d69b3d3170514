from __future__ import annotations

import json
from typing import Any

import pytest

from capstate.conformance import journal, matrix
from capstate.errors import InvalidInputError

FIELDS = {
    "loaded", "active", "immediate", "deferred", "surface", "added", "boundary", "cache", "authority", "receipts",
}  # fmt: skip


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    result = matrix.run(["2", "5", "9b"], ["anthropic", "chat"], ["A", "B+C"], processes=False)
    return [json.loads(line) for line in journal.text(result)]


def own(lines: list[dict[str, Any]], scenario: str, profile: str = "anthropic") -> list[dict[str, Any]]:
    return [one for one in lines[1:] if (one["scenario"], one["design"], one["profile"]) == (scenario, "B+C", profile)]


def turns(lines: list[dict[str, Any]], scenario: str, profile: str = "anthropic") -> list[dict[str, Any]]:
    return [one for one in own(lines, scenario, profile) if one["kind"] == "turn"]


def test_the_first_line_says_what_was_fixed(lines: list[dict[str, Any]]) -> None:
    """Versions, profiles with model and deferral, cache key, tool groups with fingerprints."""
    fixed = lines[0]["manifest"]

    assert set(fixed["profiles"]) == {"anthropic", "chat"}
    assert fixed["profiles"]["anthropic"]["model"] == "claude-native"
    assert fixed["groups"]["git"]["tools"] == ["git_blame", "git_log"]
    assert fixed["versions"]["python"]
    assert fixed["cache_key"] is None
    assert fixed["replies"] == "scripted"


def test_every_turn_has_every_field(lines: list[dict[str, Any]]) -> None:
    """No field of the per-turn record is ever left out, also not for designs without receipts."""
    assert [one for one in lines[1:] if one["kind"] == "turn" and not one.keys() >= FIELDS] == []
    assert {one["kind"] for one in lines[1:]} == {"turn", "compaction"}


def test_immediate_and_deferred_are_the_active_tools(lines: list[dict[str, Any]]) -> None:
    """The two sets have nothing in common, and together are what the body makes callable."""
    for one in turns(lines, "5") + turns(lines, "2", "chat"):
        assert not set(one["immediate"]) & one["deferred"].keys()
        assert set(one["immediate"]) | one["deferred"].keys() == set(one["active"])


def test_figures_that_nobody_reported_are_unknown(lines: list[dict[str, Any]]) -> None:
    """Scripted replies report no tokens: every figure is unknown, and none is zero."""
    figures = {one["cache"][name] for one in lines[1:] for name in ("read", "write", "uncached")}

    assert figures == {"unknown"}


def test_across_a_boundary_nothing_is_compared(lines: list[dict[str, Any]]) -> None:
    """Behind a compaction, a reopen, or the start of a child the comparison is refused; inside a span it is unknown."""
    for one in turns(lines, "5") + turns(lines, "2"):
        first = one["turn"] == 1 or one["boundary"] is not None
        assert one["cache"]["comparison"] == ("not comparable" if first else "unknown")


def test_the_compaction_has_a_line_of_its_own(lines: list[dict[str, Any]]) -> None:
    """Its tokens are recorded apart from those of the turn behind it, and compare with nothing."""
    apart = [one for one in own(lines, "2") if one["kind"] == "compaction"]

    assert [one["before_turn"] for one in apart] == [5]
    assert apart[0]["cache"]["comparison"] == "not comparable"


def test_a_changed_prefix_is_laid_to_what_changed(lines: list[dict[str, Any]]) -> None:
    """When git becomes immediate because its load point was cut, tools and history change at once: confounded."""
    by_turn = {one["turn"]: one["cache"]["prefix"] for one in turns(lines, "2")}

    assert by_turn == {1: "unknown", 2: "same", 3: "tools", 4: "same", 5: "confounded", 6: "same"}


def test_a_restore_shows_authority_before_and_after(lines: list[dict[str, Any]]) -> None:
    """On restart the revoked tool stands in what was loaded and authorised before, and not after; else it is null."""
    by_turn = {one["turn"]: one["authority"] for one in turns(lines, "5")}
    before, after = set(by_turn[5]["before"]), set(by_turn[5]["after"])

    assert before - after == {"web_search"}
    assert after < before
    assert [turn for turn, value in by_turn.items() if value is not None] == [5, 7]


def test_receipts_stand_at_the_turn_that_they_were_written_for(lines: list[dict[str, Any]]) -> None:
    """Each is linked by its digest, once; the one at the restart names the tool that went and why."""
    found = turns(lines, "5")
    digests = [receipt["digest"] for one in found for receipt in one["receipts"]]
    restart = next(one for one in found if one["turn"] == 5)["receipts"]

    assert len(digests) == len(set(digests))
    assert [receipt["cause"] for receipt in restart] == ["reopen"]
    assert [change[:3] for change in restart[0]["changes"]] == [["removed", "web/web_search", "authority"]]


def test_runs_that_fixed_other_things_are_not_compared() -> None:
    """Two manifests that differ in anything are refused, and the error names where."""
    one = {"versions": {"python": "3.11.7"}, "profiles": {}}
    journal.comparable(one, dict(one))

    with pytest.raises(InvalidInputError, match="versions"):
        journal.comparable(one, {**one, "versions": {"python": "3.12.0"}})
