"""Whether a candidate may replace a history: the ten rules of table R-2, each violation with its place (CP-16).

A candidate may come from anywhere: this compares it with the history, the event log and what the host knows.
Nothing is mended: a refused candidate is not used, and the history stays.

Not here: making one (:mod:`capstate.trace.compact`).

>>> from capstate.trace import Message, Role
>>> history = [Message("u1", Role.USER, "find the leak in the payment service"), Message("u2", Role.USER, "go")]
>>> short = Message("s1", Role.SUMMARY, "Looking for a leak.", covers=("u1",))
>>> candidate = Candidate((short, history[1]), "s1", ("u1",), version=7, slots=None)
>>> sorted({one.rule for one in violations(candidate, Known(history, version=8, outcomes={}))})
[2, 9]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from attrs import field, frozen

from capstate.errors import InvalidInputError
from capstate.trace.check import FaultKind, Unit, check, units
from capstate.trace.compact import Compaction, Count, characters, sources_of
from capstate.trace.contents import holds_schema, permissions
from capstate.trace.messages import Call, Key, Message, Role
from capstate.trace.outcomes import Outcome, Row
from capstate.trace.summaries import SLOTS, Slots, written_text


def _messages(value: Iterable[Message]) -> tuple[Message, ...]:
    return tuple(value)


def _ids(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


class Refers(StrEnum):
    """What a citation refers to."""

    EVIDENCE = "evidence"
    DECISION = "decision"
    TRACE = "trace"


@frozen
class Cite:
    """A reference in a candidate, and the digest of what it refers to, where the candidate has one.

    Attributes:
        kind: what is referred to.
        id: its id.
        digest: what the candidate says of it; None if nothing.
    """

    kind: Refers = field(converter=Refers)
    id: str
    digest: str | None = None


@frozen
class Candidate:
    """A history that may replace another.

    Attributes:
        messages: all of it.
        summary: id of the new summary in it.
        sources: ids of the messages that the summary stands for.
        version: of the event log that it was built from.
        slots: what the summary says; a mapping, if they come from elsewhere.
        cites: what it refers to. The evidence of its rows need not be repeated.
        decisions: status of each decision that it holds, by id.
    """

    messages: tuple[Message, ...] = field(converter=_messages)
    summary: str
    sources: tuple[str, ...] = field(converter=_ids)
    version: int
    slots: Slots | Mapping[str, object] | None
    cites: tuple[Cite, ...] = ()
    decisions: Mapping[str, str] = field(factory=dict)

    @classmethod
    def of(
        cls,
        compaction: Compaction,
        *,
        version: int,
        cites: Iterable[Cite] = (),
        decisions: Mapping[str, str] | None = None,
    ) -> Candidate:
        """Return the candidate that a compaction is."""
        summary = compaction.summary.id if compaction.summary is not None else ""
        return cls(
            compaction.messages,
            summary,
            compaction.sources,
            version,
            compaction.slots,
            tuple(cites),
            dict(decisions or {}),
        )


@frozen
class Known:
    """What a candidate is compared with.

    Attributes:
        messages: the history that it would replace.
        version: of the event log now.
        outcomes: how each call ended by the event log; what it does not know counts as the history has it.
        running: calls that run, and so have no result.
        references: what resolves, by kind and id, and its digest.
        decisions: status of each decision that is active or under review, by id.
        pinned: ids of messages that must stay as they are.
        identifiers: texts (hashes, addresses, names, numbers) that must stay byte for byte.
        schemas: of the catalog.
        tools: names of the catalog's tools.
        refuses: what the target's adapter says against messages; nothing, if it takes them.
        count: what one message counts.
    """

    messages: tuple[Message, ...] = field(converter=_messages)
    version: int
    outcomes: Mapping[Key, Outcome | None]
    running: Collection[Key] = frozenset()
    references: Mapping[tuple[Refers, str], str] = field(factory=dict)
    decisions: Mapping[str, str] = field(factory=dict)
    pinned: Collection[str] = frozenset()
    identifiers: Collection[str] = frozenset()
    schemas: Collection[Mapping[str, object]] = ()
    tools: Collection[str] = ()
    refuses: Callable[[Sequence[Message]], Iterable[str]] | None = None
    count: Count = characters


FAILED = 0
"""In place of a rule: there is no candidate, since making it failed."""


@frozen
class Violation:
    """One rule of R-2 that a candidate violates, where, and how.

    Attributes:
        rule: number of the rule.
        place: where in the candidate.
        expected: what had to be there.
        got: what is there.
    """

    rule: int
    place: str
    expected: str
    got: str


def violations(candidate: Candidate, known: Known) -> tuple[Violation, ...]:
    """Return everything that speaks against a candidate, by rule; nothing, if it may replace the history."""
    summary = next((m for m in candidate.messages if m.id == candidate.summary and m.role is Role.SUMMARY), None)
    found: list[Violation] = []
    for number, rule in enumerate(RULES, 1):
        found += [Violation(number, *told) for told in rule(candidate, known, summary)]
    return tuple(found)


@frozen
class Choice:
    """What may replace a history.

    Attributes:
        candidate: the first that no rule speaks against; None: none may, and the task waits with its history.
        refused: what speaks against each one before it, in their order.
    """

    candidate: Candidate | None
    refused: tuple[tuple[Violation, ...], ...] = ()


def choose(makers: Iterable[Callable[[], Candidate]], known: Known) -> Choice:
    """Return the first candidate that may replace a history; a later one is made only if all before it are refused.

    A maker that raises InvalidInputError, as :func:`capstate.trace.compact` does for a summariser that failed, is
    refused as well: its violation has the rule 0, and place, expected and got of the error.

    Raises:
        InvalidInputError: a maker returns no candidate.
    """
    refused: list[tuple[Violation, ...]] = []
    for n, maker in enumerate(makers):
        try:
            candidate = maker()
        except InvalidInputError as error:
            refused.append((Violation(FAILED, error.place, error.expected, str(error.got)),))
            continue
        if not isinstance(candidate, Candidate):
            raise InvalidInputError(f"makers[{n}]", "a function that gives a Candidate", type(candidate).__name__)
        found = violations(candidate, known)
        if not found:
            return Choice(candidate, tuple(refused))
        refused.append(found)
    return Choice(None, tuple(refused))


Told = Iterator[tuple[str, str, str]]


def _legal(candidate: Candidate, known: Known, _: Message | None) -> Told:
    running = {(unit.start, call.id) for unit in units(candidate.messages)[0] for call in _runs(unit, known)}
    for fault in check(candidate.messages):
        if fault.kind is not FaultKind.MISSING_RESULT or (fault.index, fault.call) not in running:
            yield f"messages[{fault.index}]", "a legal trace", f"{fault.kind.value} of call {fault.call!r}"
    for said in known.refuses(candidate.messages) if known.refuses is not None else ():
        yield "messages", "what the target takes", said


def _runs(unit: Unit, known: Known) -> Iterator[Call]:
    return (call for n, call in enumerate(unit.calls) if n not in unit.results and call.key in known.running)


def _slots(candidate: Candidate, _: Known, summary: Message | None) -> Told:
    slots = candidate.slots
    for name in SLOTS:
        if slots is None or (isinstance(slots, Mapping) and name not in slots):
            yield f"slots.{name}", "a slot, if only an empty one", "none"
    pending = slots.pending if isinstance(slots, Slots) else slots.get("pending", True) if slots is not None else True
    unknown = [row for row in summary.rows if row.outcome is Outcome.OUTCOME_UNKNOWN] if summary is not None else []
    if unknown and not pending:
        yield "slots.pending", f"call {unknown[0].call!r}, whose outcome is unknown", "nothing"


def _outcomes(candidate: Candidate, known: Known, summary: Message | None) -> Told:
    went = _went(candidate, known)
    rows = summary.rows if summary is not None else ()
    there = Counter((row.key, row.source) for row in rows)
    for (key, source), outcome in went.items():
        if not there[key, source]:
            yield "rows", f"a row of call {key!r}: {_word(outcome)}", "none"
    for n, row in enumerate(rows):
        if (row.key, row.source) not in went or there[row.key, row.source] > 1:
            yield f"rows[{n}]", "one row of each call that went", f"call {row.key!r}"
        else:
            outcome = known.outcomes.get(row.key, went[row.key, row.source])
            if row.outcome is not outcome:
                yield f"rows[{n}]", f"call {row.key!r}: {_word(outcome)}", _word(row.outcome)
    for unit in units(candidate.messages)[0]:
        for at, index in unit.results.items():
            key, message = unit.calls[at].key, candidate.messages[index]
            if message.outcome is not known.outcomes.get(key, message.outcome):
                yield f"messages[{index}]", f"call {key!r}: {_word(known.outcomes[key])}", _word(message.outcome)


def _word(outcome: Outcome | None) -> str:
    return outcome.value if outcome is not None else "no outcome"


def _went(candidate: Candidate, known: Known) -> dict[tuple[Key, str], Outcome | None]:
    """Return the outcome of each call that went, now or before, by its key and the message with its result."""
    stay = {message.id for message in candidate.messages if message.id != candidate.summary}
    found: dict[tuple[Key, str], Outcome | None] = {}
    for message in known.messages:
        if message.id not in stay:
            found.update({(row.key, row.source): row.outcome for row in message.rows})
    for unit in units(known.messages)[0]:
        for at, index in unit.results.items():
            result = known.messages[index]
            if result.id not in stay:
                found[unit.calls[at].key, result.id] = result.outcome
    return found


def _cited(candidate: Candidate, known: Known, summary: Message | None) -> Told:
    rows: tuple[Row, ...] = summary.rows if summary is not None else ()
    evidence = [Cite(Refers.EVIDENCE, row.evidence) for row in rows if row.evidence is not None]
    for place, cites in (("cites", candidate.cites), ("evidence of row", evidence)):
        for n, cite in enumerate(cites):
            digest = known.references.get((cite.kind, cite.id))
            if digest is None:
                yield f"{place} {n}", f"{cite.kind.value} that resolves", cite.id
            elif cite.digest is not None and cite.digest != digest:
                yield f"{place} {n}", f"{cite.kind.value} {cite.id!r} with digest {digest}", cite.digest


def _sources(candidate: Candidate, known: Known, summary: Message | None) -> Told:
    if summary is None:
        yield "summary", f"a summary {candidate.summary!r} among the messages", "none"
    elif summary.covers != candidate.sources:
        yield "summary.covers", f"the sources {candidate.sources}", str(summary.covers)
    if any(message.id == candidate.summary for message in known.messages):
        yield "summary", "an id that no message of the history has", candidate.summary
    stays = [message for message in candidate.messages if message is not summary]
    left = iter(known.messages)
    for message in stays:
        if not any(message == one for one in left):
            yield f"message {message.id!r}", "what the history has, in its order", "something else"
            break
    ids = {message.id for message in stays}
    wanted = sources_of([message for message in known.messages if message.id not in ids])
    missing = sorted(set(wanted) - set(candidate.sources))
    surplus = sorted((Counter(candidate.sources) - Counter(wanted)).keys())
    if missing:
        yield "sources", "every message that went", f"not {', '.join(missing)}"
    if surplus:
        yield "sources", "only messages that went, once", ", ".join(surplus)


def _decisions(candidate: Candidate, known: Known, _: Message | None) -> Told:
    for id_, status in sorted(known.decisions.items()):
        got = candidate.decisions.get(id_)
        if got != status:
            yield f"decisions.{id_}", status, got if got is not None else "none"


def _pinned(candidate: Candidate, known: Known, _: Message | None) -> Told:
    now = {message.id: message for message in candidate.messages}
    for message in known.messages:
        if message.id in known.pinned and now.get(message.id) != message:
            yield f"message {message.id!r}", "as it was", "altered" if message.id in now else "gone"
    before, after = _text(known.messages), _text(candidate.messages)
    for identifier in sorted(known.identifiers):
        exact = re.compile(rf"(?<!\w){re.escape(identifier)}(?!\w)")
        if exact.search(before) and not exact.search(after):
            yield "messages", f"the identifier {identifier!r}", "none that is the same"


def _text(messages: Sequence[Message]) -> str:
    calls = (f"{call.id} {call.tool} {dict(call.arguments)}" for message in messages for call in message.calls)
    return "\n".join([*(f"{message.id}\n{message.text}\n{message.evidence or ''}" for message in messages), *calls])


def _claims(_: Candidate, known: Known, summary: Message | None) -> Told:
    if summary is not None:
        if holds_schema(summary.text, known.schemas):
            yield "summary.text", "no full tool schema", "one of the catalog"
        for said in permissions(written_text(summary), known.tools):
            yield "summary.text", "no permission", said


def _version(candidate: Candidate, known: Known, _: Message | None) -> Told:
    if candidate.version != known.version:
        yield "version", str(known.version), str(candidate.version)


def _size(candidate: Candidate, known: Known, _: Message | None) -> Told:
    now, before = (sum(map(known.count, messages)) for messages in (candidate.messages, known.messages))
    if now >= before:
        yield "messages", f"less than {before}", str(now)


RULES = (_legal, _slots, _outcomes, _cited, _sources, _decisions, _pinned, _claims, _version, _size)
"""In the order of the table: the first is rule 1."""
