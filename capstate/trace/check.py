"""Whether a trace is legal: every call has exactly one result, and each stands where it belongs.

One pass over neutral messages. All faults are reported, by index, each with the index of its message and the call.
A result answers the call of that id in the last message that makes one, in order: foreign histories repeat ids.

:func:`check` is the least that every provider needs, and no promise that one accepts the trace (TT-08);
:func:`check_accepted` asks for one provider by name.

Not here: mending a trace (:mod:`capstate.trace.repair`), or moving a cut (:mod:`capstate.trace.cut`).

>>> from capstate.trace import Accepts, Call, Message, Role, check_accepted
>>> waiting = [Message("a", Role.ASSISTANT, calls=(Call("c1", "git/log"),))]
>>> check(waiting)
(Fault(kind=<FaultKind.MISSING_RESULT: 'missing_result'>, index=0, call='c1'),)
>>> check_accepted(waiting, Accepts("patient", open_tail=True))
()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from attrs import define, field, frozen

from capstate.errors import InvalidInputError
from capstate.trace.messages import Call, Message, Role


class FaultKind(StrEnum):
    """What is wrong at one place of a trace."""

    ORPHAN = "orphan"
    """A result without a call before it."""
    DUPLICATE_RESULT = "duplicate_result"
    """A second result of a call."""
    MISSING_RESULT = "missing_result"
    """A call without a result; whether it still runs, the trace cannot say."""
    DUPLICATE_CALL = "duplicate_call"
    """A second call with the same id and occurrence; or with the same id, in one message or before the first ended."""
    ORDER = "order"
    """A result that another message separates from its call's message and the results there."""
    PARALLEL_CALLS = "parallel_calls"
    """Only of a provider that takes one call a message: a further call."""
    REPEATED_ID = "repeated_id"
    """Only of a provider that takes an id once: a later occurrence."""


@frozen
class Fault:
    """One fault: the index of the message at fault (of a missing result: of its call), and the call's id.

    Attributes:
        kind: what is wrong.
        index: place of the message in the trace.
        call: id of the call.
    """

    kind: FaultKind
    index: int
    call: str


@frozen
class Accepts:
    """What one provider takes beyond a legal trace, or less.

    Attributes:
        name: of the provider, for people.
        open_tail: the last unit may lack results, if nothing but results follows its calls.
        parallel_calls: one message may make several calls.
        repeated_ids: an id may occur again, as another occurrence.
    """

    name: str
    open_tail: bool = False
    parallel_calls: bool = True
    repeated_ids: bool = True


@define
class Unit:
    """A message with calls and the results they have.

    Attributes:
        start: index of the message with the calls.
        end: index of the last result so far.
        calls: its calls, in order.
        results: index of the result of each call that has one, by the call's place in ``calls``.
    """

    start: int
    end: int
    calls: tuple[Call, ...]
    results: dict[int, int] = field(factory=dict)
    _waiting: dict[str, list[int]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for n in range(len(self.calls) - 1, -1, -1):  # the next to be answered stands last
            self._waiting.setdefault(self.calls[n].id, []).append(n)

    @property
    def open(self) -> list[str]:
        """Ids of the calls without a result, in order; an id twice, if two of its calls have none."""
        if len(self.results) == len(self.calls):
            return []
        return [call.id for n, call in enumerate(self.calls) if n not in self.results]

    @property
    def members(self) -> list[int]:
        """Indices of its messages, in order."""
        return [self.start, *sorted(self.results.values())]

    def waits(self, call: str) -> bool:
        """Whether a call of that id has no result yet."""
        return bool(self._waiting.get(call))

    def answer(self, call: str, index: int) -> bool:
        """Take the message at ``index`` as the result of the next call of that id; False if none waits for one."""
        waiting = self._waiting.get(call)
        if not waiting:
            return False
        self.results[waiting.pop()] = index
        return True


def units(messages: Iterable[Message]) -> tuple[list[Unit], list[Fault]]:
    """Return the units of a trace in order, and every fault but missing results.

    Raises:
        InvalidInputError: something is no message.
    """
    made: list[Unit] = []
    faults: list[Fault] = []
    latest: dict[str, Unit] = {}
    seen: set[tuple[str, int]] = set()
    current: Unit | None = None
    for n, message in enumerate(messages):
        if not isinstance(message, Message):
            raise InvalidInputError(f"messages[{n}]", "a Message", type(message).__name__)
        if message.role is Role.TOOL:
            answered = message.result_for or ""
            unit = latest.get(answered)
            if unit is None:
                faults.append(Fault(FaultKind.ORPHAN, n, answered))
                continue
            if not unit.answer(answered, n):
                faults.append(Fault(FaultKind.DUPLICATE_RESULT, n, answered))
            if unit is not current:
                faults.append(Fault(FaultKind.ORDER, n, answered))
            unit.end = n
            continue
        current = None
        if message.calls:
            current = Unit(n, n, message.calls)
            made.append(current)
            for call in message.calls:
                earlier = latest.get(call.id)
                if call.key in seen or (earlier is not None and (earlier is current or earlier.waits(call.id))):
                    faults.append(Fault(FaultKind.DUPLICATE_CALL, n, call.id))
                seen.add(call.key)
                latest[call.id] = current
    return made, faults


def check(messages: Sequence[Message]) -> tuple[Fault, ...]:
    """Return every fault of a trace, by index; none for a legal one.

    Raises:
        InvalidInputError: something is no message.
    """
    made, faults = units(messages)
    return _ordered([*faults, *_missing(made)])


def check_accepted(messages: Sequence[Message], accepts: Accepts) -> tuple[Fault, ...]:
    """Return every fault of a trace under what one provider accepts, by index.

    Raises:
        InvalidInputError: something is no message.
    """
    made, faults = units(messages)
    tail = made[-1] if accepts.open_tail and made and _is_tail(made[-1], messages) else None
    missing = _missing(unit for unit in made if unit is not tail)
    return _ordered([*faults, *missing, *_refused(made, accepts)])


def _is_tail(unit: Unit, messages: Sequence[Message]) -> bool:
    return all(message.role is Role.TOOL for message in messages[unit.start + 1 :])


def _ordered(faults: list[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.index))


def _missing(made: Iterable[Unit]) -> Iterator[Fault]:
    for unit in made:
        for call in unit.open:
            yield Fault(FaultKind.MISSING_RESULT, unit.start, call)


def _refused(made: Iterable[Unit], accepts: Accepts) -> Iterator[Fault]:
    ids: set[str] = set()
    for unit in made:
        for n, call in enumerate(unit.calls):
            if n and not accepts.parallel_calls:
                yield Fault(FaultKind.PARALLEL_CALLS, unit.start, call.id)
            if call.id in ids and not accepts.repeated_ids:
                yield Fault(FaultKind.REPEATED_ID, unit.start, call.id)
            ids.add(call.id)
