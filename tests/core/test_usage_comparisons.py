from __future__ import annotations

import pytest

from capstate.usage import Comparison, Kind, Prefix, Reading, Usage, compare, prefix


def test_only_reported_reads_say_anything() -> None:
    """Inside a span: a reported read is one, a reported zero is none, and what is absent is unknown, never zero."""
    before = Reading(0)

    assert compare(before, Reading(0, Usage(read=10))) is Comparison.READ
    assert compare(before, Reading(0, Usage(read=0))) is Comparison.NOTHING_READ
    assert compare(before, Reading(0, Usage(write=5, uncached=7))) is Comparison.UNKNOWN


@pytest.mark.parametrize("figures", [Usage(), Usage(read=0), Usage(read=4096)], ids=["none", "zero", "many"])
def test_nothing_is_compared_across_a_boundary(figures: Usage) -> None:
    """After a boundary no figure is evidence that the cache before went on, and none that it was cold."""
    assert compare(Reading(0, figures), Reading(1, figures)) is Comparison.NOT_COMPARABLE
    assert compare(None, Reading(0, figures)) is Comparison.NOT_COMPARABLE


@pytest.mark.parametrize("kinds", [(Kind.COMPACTION, Kind.TURN), (Kind.TURN, Kind.COMPACTION)], ids=["after", "before"])
def test_a_compaction_compares_with_nothing(kinds: tuple[Kind, Kind]) -> None:
    """A compaction's own request is never evidence about the turns around it, whatever it reports."""
    one, other = (Reading(0, Usage(read=9), kind=kind) for kind in kinds)

    assert compare(one, other) is Comparison.NOT_COMPARABLE


def test_each_cause_of_a_changed_prefix_is_told_apart() -> None:
    """Tools alone, history alone, both (confounded), neither; without fingerprints it is unknown."""
    before = Reading(0, tools="t", head="h")

    assert prefix(before, Reading(0, tools="t", head="h")) is Prefix.SAME
    assert prefix(before, Reading(0, tools="T", head="h")) is Prefix.TOOLS
    assert prefix(before, Reading(0, tools="t", head="H")) is Prefix.HISTORY
    assert prefix(before, Reading(0, tools="T", head="H")) is Prefix.CONFOUNDED
    assert prefix(before, Reading(0, tools="t")) is Prefix.UNKNOWN
    assert prefix(None, before) is Prefix.UNKNOWN
