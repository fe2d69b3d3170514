"""When to compact: near a mark, between units, and never again before enough is new (CP-17).

Every compaction makes the provider's cache begin anew, so few large ones are better than many small ones.

>>> policy = Policy(high=1000, low=600, batch=4)
>>> trigger(policy, State(size=1200, new=9)).value
'compact'
>>> trigger(policy, State(size=1200, new=3, before=1)).value
'too_little_new'
"""

from __future__ import annotations

from enum import StrEnum

from attrs import fields, frozen

from capstate.errors import InvalidInputError


class Verdict(StrEnum):
    """Whether to compact now, and why not."""

    COMPACT = "compact"
    BELOW = "below_mark"
    INSIDE_UNIT = "inside_unit"
    TOO_LITTLE_NEW = "too_little_new"


@frozen
class Policy:
    """When compaction is worth it; sizes in any one measure.

    Attributes:
        high: compact from this size on.
        low: what a compaction should get below.
        batch: how many messages must be new since the last one, or since the beginning.

    Raises:
        InvalidInputError: a number is none from 1, or the low mark is not below the high one.
    """

    high: int
    low: int
    batch: int = 1

    def __attrs_post_init__(self) -> None:
        for name in ("high", "low", "batch"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InvalidInputError(f"policy.{name}", "a whole number from 1", getattr(self, name))
        if self.low >= self.high:
            raise InvalidInputError("policy.low", f"less than the high mark, {self.high}", self.low)


@frozen
class State:
    """A history as the trigger sees it.

    Attributes:
        size: of the whole.
        new: how many messages came since the last compaction, or in all.
        open: how many units have a call without a result.
        before: how many compactions in a row ended at or above the low mark: 0 after one that got below it.

    Raises:
        InvalidInputError: a number is none from 0.
    """

    size: int
    new: int
    open: int = 0
    before: int = 0

    def __attrs_post_init__(self) -> None:
        for name in (one.name for one in fields(State)):
            if type(getattr(self, name)) is not int or getattr(self, name) < 0:
                raise InvalidInputError(f"state.{name}", "a whole number from 0", getattr(self, name))


def trigger(policy: Policy, state: State) -> Verdict:
    """Return whether to compact now. After each compaction in a row that did not help, twice as much must be new."""
    if state.size < policy.high:
        return Verdict.BELOW
    if state.open:
        return Verdict.INSIDE_UNIT
    if state.new < policy.batch * 2**state.before:
        return Verdict.TOO_LITTLE_NEW
    return Verdict.COMPACT
