"""When to compact: a pure function with hysteresis (CP-17)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capstate.errors import InvalidInputError
from capstate.trace import Policy, State, Verdict, trigger

POLICY = Policy(high=1000, low=600, batch=4)


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (State(size=999, new=99), Verdict.BELOW),
        (State(size=1000, new=4), Verdict.COMPACT),
        (State(size=1000, new=3), Verdict.TOO_LITTLE_NEW),
        (State(size=5000, new=99, open=1), Verdict.INSIDE_UNIT),
        (State(size=5000, new=7, before=1), Verdict.TOO_LITTLE_NEW),
        (State(size=5000, new=8, before=1), Verdict.COMPACT),
        (State(size=5000, new=31, before=3), Verdict.TOO_LITTLE_NEW),
        (State(size=5000, new=32, before=3), Verdict.COMPACT),
        (State(size=5000, new=0), Verdict.TOO_LITTLE_NEW),
    ],
    ids=str,
)
def test_each_condition_alone_says_no(state: State, verdict: Verdict) -> None:
    """Below the mark, inside a unit, with too little new; else yes."""
    assert trigger(POLICY, state) is verdict


@given(st.lists(st.integers(1, 400), max_size=200), st.integers(0, 900))
def test_a_window_that_cannot_shrink_is_not_compacted_again_and_again(sizes: list[int], stays: int) -> None:
    """Between two compactions there is always something new, and twice as much after each that did not help."""
    size = new = before = 0
    gaps: list[int] = []
    for added in sizes:
        size, new = size + added, new + 1
        if trigger(POLICY, State(size, new, before=before)) is Verdict.COMPACT:
            gaps.append(new)
            assert new >= POLICY.batch * 2**before
            size = min(size, stays)
            new, before = 0, before + 1 if size >= POLICY.low else 0
        assert size < POLICY.high or new < POLICY.batch * 2**before
    assert len(gaps) <= len(sizes) // POLICY.batch


@pytest.mark.parametrize(
    "wrong",
    [{"high": 0}, {"low": 0}, {"batch": 0}, {"high": 1.5}, {"batch": True}, {"low": 1000}, {"low": 1001}],
    ids=str,
)
def test_marks_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    """Whole numbers from 1, the low mark below the high one."""
    with pytest.raises(InvalidInputError, match="policy"):
        Policy(**{"high": 1000, "low": 600, **wrong})


@pytest.mark.parametrize("wrong", [{"size": -1}, {"new": True}, {"open": "1"}, {"before": 0.5}], ids=str)
def test_states_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    """Whole numbers from 0."""
    with pytest.raises(InvalidInputError, match="state"):
        State(**{"size": 1, "new": 1, **wrong})
