from __future__ import annotations

from itertools import product

import pytest

from capstate.errors import InvalidInputError
from capstate.trace import FaultKind, check, first_kept
from tests.trace.test_trace_check import trace


@pytest.mark.parametrize(
    ("text", "keep", "first"),
    [
        ("u a:x x u", 0, 4),
        ("u a:x x u", 1, 3),
        ("u a:x x u", 2, 1),
        ("u a:x x u", 3, 1),
        ("u a:x x u", 4, 0),
        ("u a:x x u", 9, 0),
        ("u a:x,y x y u", 2, 1),
        ("u a:x x a:y y", 1, 3),
        ("u a:x,y x", 0, 1),
        ("u a:x,y x", 1, 1),
        ("u a:x u u", 1, 1),
        ("u a:x u x u", 2, 1),
        ("a:x u a:y x y", 1, 0),
    ],
)
def test_a_cut_moves_back_to_a_border(text: str, keep: int, first: int) -> None:
    """A unit stays whole, results that stand apart from it included; an open one is never cut away."""
    assert first_kept(trace(text), keep_last=keep) == first


def test_a_unit_that_only_lacks_results_may_go_when_its_call_does_not_run() -> None:
    """The caller knows which calls run; without that word every call without a result counts as running."""
    broken = trace("u a:x u u")

    assert first_kept(broken, keep_last=1, running=()) == 3
    assert first_kept(broken, keep_last=1, running={"x"}) == 1


def test_a_cut_can_be_wished_by_the_first_kept_message() -> None:
    """The same rule holds from an id."""
    history = trace("u a:x x u")

    assert first_kept(history, keep_from="m3") == 3
    assert first_kept(history, keep_from="m2") == 1


@pytest.mark.parametrize("wish", [{}, {"keep_last": 1, "keep_from": "m0"}, {"keep_last": -1}, {"keep_from": "gone"}])
def test_a_wish_that_means_nothing_is_refused(wish: dict) -> None:
    """Neither, both, less than nothing, or a message that is not there."""
    with pytest.raises(InvalidInputError):
        first_kept(trace("u u"), **wish)


def test_no_cut_of_any_small_trace_splits_a_unit() -> None:
    """Over every trace of six words: what is kept has no orphan that the whole did not have, and every open call."""
    for words in product(["u", "a:x", "a:y,z", "x", "y", "z"], repeat=5):
        history = trace(" ".join(words))
        orphans = {f.index for f in check(history) if f.kind is FaultKind.ORPHAN}
        missing = [f.call for f in check(history) if f.kind is FaultKind.MISSING_RESULT]
        for keep in range(len(history) + 1):
            at = first_kept(history, keep_last=keep)
            kept = check(history[at:])
            assert at <= len(history) - keep
            assert {f.index + at for f in kept if f.kind is FaultKind.ORPHAN} <= orphans
            assert [f.call for f in kept if f.kind is FaultKind.MISSING_RESULT] == missing
