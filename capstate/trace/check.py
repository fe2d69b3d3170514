"""Whether a trace is legal: every call has exactly one result, and each stands where it belongs.

One pass over neutral messages. All faults are reported, in order, each with the index of its message and the call.
A result answers the call of that id in the last message that makes one, in order: foreign histories repeat ids.

Not here: mending a trace, or moving a cut (:mod:`capstate.trace.cut`).

>>> from capstate.trace import Call, Message, Role
>>> check([Message("a", Role.ASSISTANT, calls=(Call("c1", "git/log"),))])
(Fault(kind=<FaultKind.MISSING_RESULT: 'missing_result'>, index=0, call='c1'),)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from attrs import define, field, frozen

from capstate.trace.messages import Message, Role


class FaultKind(StrEnum):
    """What is wrong at one place of a trace."""

    ORPHAN = "orphan"
    """A result without a call before it."""
    DUPLICATE_RESULT = "duplicate_result"
    """A second result of a call."""
    MISSING_RESULT = "missing_result"
    """A call without a result; whether it still runs, the trace cannot say."""
    DUPLICATE_CALL = "duplicate_call"
    """A second call with the same id and occurrence."""
    ORDER = "order"
    """A result that another message separates from its call's message and the results there."""


@frozen
class Fault:
    """One fault: the index of the message at fault (of a missing result: of its call), and the call's id."""

    kind: FaultKind
    index: int
    call: str


@define
class Unit:
    """A message with calls and the results they have: indices, the last one included.

    Attributes:
        start: index of the message with the calls.
        end: index of the last result so far.
        open: ids of the calls that have no result, in order; an id twice, if two of its calls have none.
        answered: ids of those that have.
    """

    start: int
    end: int
    open: list[str]
    answered: list[str] = field(factory=list)


def units(messages: Iterable[Message]) -> tuple[list[Unit], list[Fault]]:
    """Return the units of a trace in order, and every fault but missing results."""
    made: list[Unit] = []
    faults: list[Fault] = []
    latest: dict[str, Unit] = {}
    calls: set[tuple[str, int]] = set()
    current: Unit | None = None
    for n, message in enumerate(messages):
        if message.role is Role.TOOL:
            answered = message.result_for or ""
            unit = latest.get(answered)
            if unit is None:
                faults.append(Fault(FaultKind.ORPHAN, n, answered))
                continue
            if answered in unit.open:
                unit.open.remove(answered)
                unit.answered.append(answered)
            else:
                faults.append(Fault(FaultKind.DUPLICATE_RESULT, n, answered))
            if unit is not current:
                faults.append(Fault(FaultKind.ORDER, n, answered))
            unit.end = n
            continue
        current = None
        if message.calls:
            current = Unit(n, n, [call.id for call in message.calls])
            made.append(current)
            for call in message.calls:
                if (call.id, call.occurrence) in calls:
                    faults.append(Fault(FaultKind.DUPLICATE_CALL, n, call.id))
                calls.add((call.id, call.occurrence))
                latest[call.id] = current
    return made, faults


def check(messages: Sequence[Message]) -> tuple[Fault, ...]:
    """Return every fault of a trace, by index; none for a legal one."""
    made, faults = units(messages)
    return tuple(sorted([*faults, *_missing(made)], key=lambda fault: fault.index))


def _missing(made: Iterable[Unit]) -> Iterator[Fault]:
    for unit in made:
        for call in unit.open:
            yield Fault(FaultKind.MISSING_RESULT, unit.start, call)
