"""Any trace made legal: real results stay and move to their call, missing ones are told as what is known of them.

Nothing is guessed: of a call without a result it is said that it did not run only if the caller lists the calls that
started, and else that it may have happened. Every change is a row.

>>> from capstate.trace import Call, Message, Role
>>> broken = [
...     Message("a1", Role.ASSISTANT, calls=(Call("c1", "bank/pay"),)),
...     Message("u1", Role.USER, "go on"),
...     Message("t9", Role.TOOL, "done", result_for="c9"),
... ]
>>> mended = repair(broken, started=None)
>>> [(m.id, m.outcome and m.outcome.value) for m in mended.messages]
[('a1', None), ('a1:c1', 'outcome_unknown'), ('u1', None)]
>>> [(row.what.value, row.call, row.message) for row in mended.rows]
[('synthesised', 'c1', 'a1:c1'), ('orphan_dropped', 'c9', 't9')]
>>> repair(mended.messages, started=None).rows
()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum

from attrs import evolve, frozen

from capstate.errors import InvalidInputError
from capstate.trace.check import FaultKind, Unit, units
from capstate.trace.messages import Call, Key, Message, Role, is_key
from capstate.trace.outcomes import Outcome

MAY_HAVE_HAPPENED = "No result of this call was recorded. It may have happened."
DID_NOT_RUN = "This call did not run."


class Repair(StrEnum):
    """What was done at one place."""

    MOVED = "moved"
    """A result stands behind its call now."""
    SYNTHESISED = "synthesised"
    """A call that had no result has one that says what is known."""
    ORPHAN_DROPPED = "orphan_dropped"
    """A result without a call is gone."""
    DUPLICATE_DROPPED = "duplicate_dropped"
    """A further result of a call is gone; the first stays."""
    RENUMBERED = "renumbered"
    """A call has another occurrence: its key was there before."""
    RENAMED = "renamed"
    """A call has another id, and its result too: the id did not tell it apart from another open call."""


@frozen
class RepairRow:
    """One thing that was done.

    Attributes:
        what: the kind.
        index: of the message in the trace as it was; of a synthesised result, of its call's message.
        message: id of the message.
        call: id of the call, as it was.
        occurrence: of the call, as it was; 0 for an orphan.
        outcome: of the result that was moved, made or dropped.
        now: key of the call afterwards, if that changed.
    """

    what: Repair
    index: int
    message: str
    call: str
    occurrence: int = 0
    outcome: Outcome | None = None
    now: Key | None = None


@frozen
class Repaired:
    """A trace after repair.

    Attributes:
        messages: the trace now.
        rows: every change, by its place in the trace as it was.
        running: keys of the calls that run, as they are now.
    """

    messages: tuple[Message, ...]
    rows: tuple[RepairRow, ...]
    running: frozenset[Key] = frozenset()


def repair(messages: Sequence[Message], *, started: Collection[Key] | None, running: Collection[Key] = ()) -> Repaired:
    """Return a trace that is legal but for missing results of ``running`` calls. The input is not changed.

    Args:
        messages: any trace.
        started: keys of all calls that are known to have started, by the ledger. None: nobody knows, so each may have.
        running: keys of the calls that run now, and get no result.

    Raises:
        InvalidInputError: something is no message, or a key is none.
    """
    for name, keys in (("started", started), ("running", running)):
        for key in keys or ():
            if not is_key(key):
                raise InvalidInputError(name, "keys (call id, occurrence)", key)
    work = _Work(messages, None if started is None else frozenset(started), frozenset(running))
    made = tuple(work.messages())
    return Repaired(made, tuple(sorted(work.rows, key=lambda row: row.index)), frozenset(work.still.values()))


class _Work:
    """One repair: the results of every call, then the calls, then the trace put together."""

    def __init__(self, messages: Sequence[Message], started: frozenset[Key] | None, running: frozenset[Key]) -> None:
        self.before, self.started, self.running = messages, started, running
        self.rows: list[RepairRow] = []
        self.still: dict[str, Key] = {}
        self.units, faults = units(messages)
        self.ids = {message.id for message in messages}
        self.call_ids = {call.id for unit in self.units for call in unit.calls}
        self._adopt([fault.index for fault in faults if fault.kind is FaultKind.ORPHAN])
        answers = [index for unit in self.units for index in unit.results.values()]
        self.results = frozenset(answers)
        self.orphans = {fault.index for fault in faults if fault.kind is FaultKind.ORPHAN} - self.results
        self.misplaced = set(self._misplaced())

    def _adopt(self, orphans: list[int]) -> None:
        """Give results that stand before the only call of their id to that call, if it has no other."""
        made = Counter(call.id for unit in self.units for call in unit.calls)
        homes = {
            call.id: unit
            for unit in self.units
            for call in unit.calls
            if made[call.id] == 1 and call.occurrence == 0 and unit.waits(call.id)
        }
        for index in orphans:
            answered = self.before[index].result_for or ""
            unit = homes.pop(answered, None)
            if unit is not None:
                unit.answer(answered, index)

    def _misplaced(self) -> Iterator[int]:
        """Give the results that another message separates from their unit, those dropped not counted."""
        for unit in self.units:
            at = unit.start + 1
            for index in sorted(unit.results.values()):
                while at < index and self.before[at].role is Role.TOOL:
                    at += 1
                if index == at:
                    at += 1
                else:
                    yield index

    def messages(self) -> Iterator[Message]:
        """Give the trace as it is now."""
        homes = {unit.start: unit for unit in self.units}
        seen: set[Key] = set()
        for n, message in enumerate(self.before):
            if n in homes:
                yield from self._unit(homes[n], seen)
            elif message.role is not Role.TOOL:
                yield message
            elif n not in self.results:
                self._drop(n, message)

    def _drop(self, n: int, message: Message) -> None:
        what = Repair.ORPHAN_DROPPED if n in self.orphans else Repair.DUPLICATE_DROPPED
        self.rows.append(RepairRow(what, n, message.id, message.result_for or "", outcome=message.outcome))

    def _unit(self, unit: Unit, seen: set[Key]) -> Iterator[Message]:
        message = self.before[unit.start]
        calls = self._calls(unit, seen)
        yield message if calls == message.calls else evolve(message, calls=calls, native=None, api=None)
        for n, index in sorted(unit.results.items(), key=lambda one: (one[1] in self.misplaced, one[1])):
            yield self._result(index, unit.calls[n], calls[n])
        for n, (was, call) in enumerate(zip(unit.calls, calls, strict=True)):
            if n not in unit.results:
                if was.key in self.running:
                    self.still[call.id] = call.key
                else:
                    yield self._made(unit.start, was, call)

    def _calls(self, unit: Unit, seen: set[Key]) -> tuple[Call, ...]:
        """Return the calls of a unit, each with a key of its own."""
        here: set[str] = set()
        calls = []
        for was in unit.calls:
            call = was
            if was.id in here or was.id in self.still:
                call = evolve(was, id=self._fresh(was.id, self.call_ids), occurrence=0)
            elif was.key in seen:
                occurrence = was.occurrence
                while (was.id, occurrence) in seen:
                    occurrence += 1
                call = evolve(was, occurrence=occurrence)
            if call is not was:
                what = Repair.RENUMBERED if call.id == was.id else Repair.RENAMED
                id_ = self.before[unit.start].id
                self.rows.append(RepairRow(what, unit.start, id_, was.id, was.occurrence, now=call.key))
            here.add(call.id)
            seen.add(call.key)
            calls.append(call)
        return tuple(calls)

    def _result(self, index: int, was: Call, call: Call) -> Message:
        message = self.before[index]
        if index in self.misplaced:
            row = RepairRow(Repair.MOVED, index, message.id, was.id, was.occurrence, message.outcome)
            self.rows.append(row)
        return message if was.id == call.id else evolve(message, result_for=call.id, native=None, api=None)

    def _made(self, start: int, was: Call, call: Call) -> Message:
        ran = self.started is None or was.key in self.started
        outcome = Outcome.OUTCOME_UNKNOWN if ran else Outcome.NOT_RUN
        made = self._fresh(f"{self.before[start].id}:{call.id}", self.ids) if self.before[start].id else ""
        self.rows.append(RepairRow(Repair.SYNTHESISED, start, made, was.id, was.occurrence, outcome))
        text = MAY_HAVE_HAPPENED if ran else DID_NOT_RUN
        return Message(made, Role.TOOL, text, result_for=call.id, tool=call.tool, outcome=outcome)

    def _fresh(self, wish: str, taken: set[str]) -> str:
        made, n = wish, 1
        while made in taken:
            n += 1
            made = f"{wish}~{n}"
        taken.add(made)
        return made
