"""Compaction by whole units: one summary in place of what may go, and a row for each call that went.

Who knows that a call runs, waits for a person or has its evidence stored is the caller, who says so in
:class:`Facts`. A result with an effect is never given to a summariser to retell; it gets a fixed line.

Not here: checking a finished candidate (:mod:`capstate.trace.snapshot`), when to compact
(:mod:`capstate.trace.trigger`), or anything that permits: a summary is navigation.

>>> from capstate.trace import Call, Facts, Message, Outcome, Risk, Role, extract
>>> history = [
...     Message("s", Role.SYSTEM, "Answer briefly."),
...     Message("u1", Role.USER, "What happened to payments?"),
...     Message("a1", Role.ASSISTANT, calls=(Call("c1", "search_incident", {"query": "payment"}),)),
...     Message("t1", Role.TOOL, "INC-42: timeouts", result_for="c1", outcome=Outcome.OK, evidence="INC-42"),
...     Message("a2", Role.ASSISTANT, "INC-42 shows timeouts."),
...     Message("u2", Role.USER, "And now?"),
... ]
>>> facts = Facts(stored={("c1", 0)}, risks={("c1", 0): Risk.READ})
>>> made = compact(history, facts=facts, summarise=extract, keep_last=2)
>>> made.strategy.value, made.sources
('tool-trace-summary', ('u1', 'a1', 't1'))
>>> [(message.role.value, message.id) for message in made.messages if message is not made.summary]
[('system', 's'), ('assistant', 'a2'), ('user', 'u2')]
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any

from attrs import evolve, frozen

from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import InvalidInputError
from capstate.trace.check import FaultKind, Unit, units
from capstate.trace.contents import holds_schema
from capstate.trace.cut import first_kept
from capstate.trace.eligible import Facts, Kept, holding
from capstate.trace.messages import Call, Key, Message, Role
from capstate.trace.outcomes import Outcome, Row
from capstate.trace.summaries import ROWS, Slots, Summarise, summary_text, written_text

Count = Callable[[Message], int]

TRIES = 16
"""How often a summariser is asked under a budget; the last time all that may go goes."""


class Strategy(StrEnum):
    """What a compaction did."""

    NONE = "none"
    """Nothing could go, or nothing had to."""
    MESSAGES = "message-summary"
    """Only messages without calls went."""
    TOOL_TRACE = "tool-trace-summary"
    """Units went, now or in a summary that went."""


@frozen
class Compaction:
    """A history after a compaction, or the same history.

    Attributes:
        strategy: what was done.
        messages: the history now.
        summary: the message that stands for what went.
        removed: ids of the messages that went now, in order.
        sources: ids of the messages that the summary stands for: those, and what summaries among them stood for.
        kept: why units before the suffix stayed.
        slots: what the summariser said, if it said it in slots.
        over: by how much the budget is exceeded, since more could not go.
    """

    strategy: Strategy
    messages: tuple[Message, ...]
    summary: Message | None = None
    removed: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    slots: Slots | None = None
    over: int = 0

    @property
    def rows(self) -> tuple[Row, ...]:
        """What is kept of each call that the summary stands for."""
        return self.summary.rows if self.summary is not None else ()


def characters(message: Message) -> int:
    """Return how many characters of text, tool names and arguments a message has.

    Raises:
        InvalidInputError: arguments nest too deeply to be written.
    """
    return len(message.text) + sum(len(call.tool) + _length(call) for call in message.calls)


def compact(
    messages: Sequence[Message],
    *,
    facts: Facts,
    summarise: Summarise,
    keep_last: int | None = None,
    keep_from: str | None = None,
    budget: int | None = None,
    count: Count = characters,
    schemas: Collection[Mapping[str, Any]] = (),
    id: str | None = None,  # noqa: A002 - the message's id
) -> Compaction:
    """Return the history with one summary in place of what may go. The input is not changed.

    Args:
        messages: the history.
        facts: what the caller knows of its calls.
        summarise: makes text or slots of the messages that go, as it may see them.
        keep_last: how many messages to keep at least.
        keep_from: id of the first message to keep, in place of ``keep_last``.
        budget: how much the result may count, in place of both; the latest user message stays.
        count: what one message counts; characters, if none is given.
        schemas: of the catalog; the summary must hold none of them.
        id: of the summary; else one made from the sources.

    Raises:
        InvalidInputError: the wish means nothing; the trace must be repaired first; a message that goes has no id of
            its own; the summariser raised, or returned what is no summary. Nothing was changed.
    """
    if sum(wish is not None for wish in (keep_last, keep_from, budget)) != 1:
        given = [
            n for n, w in (("keep_last", keep_last), ("keep_from", keep_from), ("budget", budget)) if w is not None
        ]
        raise InvalidInputError("compaction", "one of keep_last, keep_from and budget", ", ".join(given) or "none")
    for name, number in (("keep_last", keep_last), ("budget", budget)):
        if number is not None and (type(number) is not int or number < 0):
            raise InvalidInputError(name, "a whole number from 0", number)
    history = _History(tuple(messages), facts, latest_stays=budget is not None)
    work = _Work(history, summarise, schemas, id)
    if budget is not None:
        return _within(budget, work, [_counted(count, message) for message in history.messages], count)
    return work.at(first_kept(history.messages, keep_last=keep_last, keep_from=keep_from, running=()))


class _History:
    """The messages, and which of them may go if they stand before the suffix."""

    def __init__(self, messages: tuple[Message, ...], facts: Facts, *, latest_stays: bool) -> None:
        self.messages, self.facts = messages, facts
        self.units = _sound(messages)
        self.kept = {unit.start: tuple(holding(unit, messages, facts)) for unit in self.units}
        self.may_go = [m.role not in (Role.SYSTEM, Role.OPAQUE) and m.id not in facts.pinned for m in messages]
        if latest_stays:
            latest = [n for n, message in enumerate(messages) if message.role is Role.USER][-1:]
            for n in latest:
                self.may_go[n] = False
        self.borders = [True] * (len(messages) + 1)
        for unit in self.units:
            if self.kept[unit.start]:
                for n in unit.members:
                    self.may_go[n] = False
        inside = 0
        ends = sorted(unit.end for unit in self.units)
        starts = {unit.start for unit in self.units}
        ended = 0
        for n in range(len(messages) + 1):
            while ended < len(ends) and ends[ended] < n:
                ended += 1
                inside -= 1
            self.borders[n] = inside == 0
            inside += n in starts

    def gone(self, at: int) -> list[int]:
        """Return the indices that go if the suffix begins at ``at``; none for a lone summary."""
        found = [n for n in range(at) if self.may_go[n]]
        return [] if len(found) == 1 and self.messages[found[0]].role is Role.SUMMARY else found

    def place(self, first: int) -> int:
        """Return where a summary belongs in place of the message at ``first``: inside no unit that stays."""
        for unit in reversed(self.units):
            if self.kept[unit.start] and unit.start < first <= unit.end:
                first = unit.start
        return first


def _sound(messages: tuple[Message, ...]) -> list[Unit]:
    made, faults = units(messages)
    for fault in faults:
        if fault.kind is not FaultKind.ORDER:
            raise InvalidInputError(
                f"messages[{fault.index}]", "a trace that was repaired", f"{fault.kind}: {fault.call!r}"
            )
    ids: set[str] = set()
    for n, message in enumerate(messages):
        if message.id and message.id in ids:
            raise InvalidInputError(f"messages[{n}].id", "an id of its own", message.id)
        ids.add(message.id)
    return made


@frozen
class _Work:
    """One compaction, wherever its suffix begins."""

    history: _History
    summarise: Summarise
    schemas: Collection[Mapping[str, Any]]
    id: str | None

    def unchanged(self, at: int, over: int = 0) -> Compaction:
        """Return the history as it is."""
        return Compaction(Strategy.NONE, self.history.messages, kept=self._kept(at), over=over)

    def at(self, at: int) -> Compaction:
        """Return the history with a summary of what may go before ``at``."""
        messages = self.history.messages
        gone = self.history.gone(at)
        if not gone:
            return self.unchanged(at)
        for n in gone:
            if not messages[n].id:
                raise InvalidInputError(f"messages[{n}].id", "an id, since a summary names its sources", "")
        sources = sources_of([messages[n] for n in gone])
        going = set(gone)
        staying = {m.id for n, m in enumerate(messages) if n not in going}
        twice = [id_ for id_ in sources if id_ in staying]
        if twice:
            raise InvalidInputError("covers of a summary", "ids of messages that are gone", twice[0])
        id_ = f"summary-{fingerprint(Domain.BLOB, canonical(list(sources)))[3:19]}" if self.id is None else self.id
        if not id_ or id_ in staying or id_ in sources:
            raise InvalidInputError("id", "an id that no message has", id_)
        view, rows, unknown = self._told(gone)
        slots, written = _written(self.summarise, view)
        text = summary_text(written, rows)
        if holds_schema(text, self.schemas):
            raise InvalidInputError("summary", "text without a full tool schema", "one of a tool of the catalog")
        summary = Message(id_, Role.SUMMARY, text, covers=sources, covered=unknown, rows=rows)
        place = self.history.place(gone[0])
        stays = [m if n not in going else None for n, m in enumerate(messages)]
        made = (*filter(None, stays[:place]), summary, *filter(None, stays[place:]))
        strategy = Strategy.TOOL_TRACE if rows else Strategy.MESSAGES
        removed = tuple(messages[n].id for n in gone)
        return Compaction(strategy, made, summary, removed, sources, self._kept(at), slots)

    def _kept(self, at: int) -> tuple[Kept, ...]:
        return tuple(one for unit in self.history.units if unit.start < at for one in self.history.kept[unit.start])

    def _told(self, gone: list[int]) -> tuple[tuple[Message, ...], tuple[Row, ...], tuple[Message, ...]]:
        """Return what the summariser sees, the rows, and the calls that nobody knows the end of, with results."""
        messages = self.history.messages
        going = set(gone)
        made = {u.start: self._rows(u) for u in self.history.units if u.start in going}
        answers = {row[1]: row[0] for rows in made.values() for row in rows}
        view: list[Message] = []
        told: list[Row] = []
        unknown: list[Message] = []
        for n in gone:
            message = messages[n]
            told += [row for row, _ in made.get(n, [])] + list(message.rows)
            unknown += message.covered
            if n in answers:
                view.append(_result(message, answers[n]))
            else:
                view.append(_shown(message, {row.key for row, _ in made.get(n, []) if row.free}))
            asked = [(row, at) for row, at in made.get(n, []) if row.outcome is Outcome.OUTCOME_UNKNOWN]
            if asked:
                keys = {row.key for row, _ in asked}
                calls = tuple(call for call in message.calls if call.key in keys)
                unknown.append(Message(message.id, Role.ASSISTANT, calls=calls))
                unknown += [_bare(messages[at]) for _, at in sorted(asked, key=lambda one: one[1])]
        return tuple(view), tuple(told), tuple(unknown)

    def _rows(self, unit: Unit) -> list[tuple[Row, int]]:
        messages, row = self.history.messages, self.history.facts.row
        results = sorted(unit.results.items())
        return [(row(unit.calls[n], messages[unit.start], messages[at]), at) for n, at in results]


def _within(budget: int, work: _Work, sizes: list[int], count: Count) -> Compaction:
    history, total = work.history, sum(sizes)
    if total <= budget:
        return work.unchanged(0)
    freed = [0]
    for may, size in zip(history.may_go, sizes, strict=True):
        freed.append(freed[-1] + (size if may else 0))
    borders = [n for n, border in enumerate(history.borders) if border]
    need, now, left, at = total - budget, total, TRIES, -1
    found = unchanged = work.unchanged(len(sizes), total - budget)
    while at < len(sizes):
        left -= 1
        n = bisect_left(borders, need, key=freed.__getitem__) if left else len(borders)
        at = borders[min(n, len(borders) - 1)]
        found = work.at(at)
        if found.summary is None:  # a summary alone would go, and it stays
            now, need = total, freed[at] + 1
            continue
        now = total - freed[at] + _counted(count, found.summary)
        need = freed[at] + now - budget
        if now <= budget:
            return found
    # Nothing fits. All that may go has gone, so that another compaction finds nothing more to do.
    return evolve(found, over=now - budget) if now < total else unchanged


def _counted(count: Count, message: Message) -> int:
    size = count(message)
    if type(size) is not int or size < 0:
        raise InvalidInputError("count", "a function that gives a whole number from 0", size)
    return size


def sources_of(gone: Sequence[Message]) -> tuple[str, ...]:
    """Return the ids that messages stand for: their own, of a summary those that it covers."""
    found = (m.covers if m.role is Role.SUMMARY and m.covers else (m.id,) for m in gone)
    return tuple(dict.fromkeys(id_ for ids in found for id_ in ids))


def _written(summarise: Summarise, view: tuple[Message, ...]) -> tuple[Slots | None, str]:
    try:
        found = summarise(view)
    except Exception as error:  # whatever a caller's function raises
        raise InvalidInputError("summarise", "text or slots", f"{type(error).__name__}: {error}") from error
    text = found.text if isinstance(found, Slots) else found
    if not isinstance(text, str):
        raise InvalidInputError("summarise", "text or slots", type(text).__name__)
    if not text.strip() or any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidInputError("summarise", "text that says something, in Unicode", text)
    if any(line.strip() == ROWS for line in text.splitlines()):
        raise InvalidInputError("summarise", "text without the line that rows stand under", ROWS)
    return (found if isinstance(found, Slots) else None), text


def _shown(message: Message, free: Collection[Key]) -> Message:
    """Return a message as a summariser sees it: no native form, and arguments of free calls only."""
    calls = (Call(c.id, c.tool, _arguments(c) if c.key in free else {}, c.occurrence) for c in message.calls)
    text = written_text(message) if message.role is Role.SUMMARY else message.text
    rows = tuple(row for row in message.rows if row.outcome is Outcome.OUTCOME_UNKNOWN)
    return Message(message.id, message.role, text, tuple(calls), covers=message.covers, rows=rows)


def _result(message: Message, row: Row) -> Message:
    return _bare(message, text=message.text if row.free else row.line, evidence=message.evidence)


def _bare(message: Message, text: str = "", evidence: str | None = None) -> Message:
    return Message(
        message.id,
        Role.TOOL,
        text,
        result_for=message.result_for,
        tool=message.tool,
        outcome=message.outcome,
        evidence=evidence,
    )


def _length(call: Call) -> int:
    try:
        return len(json.dumps(_arguments(call), ensure_ascii=False, default=repr))
    except RecursionError:
        raise _too_deep(call) from None


def _arguments(call: Call) -> dict[str, Any]:
    """Return a copy of a call's arguments that nobody else holds."""
    try:
        return {name: _copy(value) for name, value in call.arguments.items()}
    except RecursionError:
        raise _too_deep(call) from None


def _too_deep(call: Call) -> InvalidInputError:
    return InvalidInputError(f"call {call.id!r} arguments", "values of fewer levels", "too many to walk through")


def _copy(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _copy(one) for key, one in value.items()}
    return [_copy(one) for one in value] if isinstance(value, list | tuple) else value
