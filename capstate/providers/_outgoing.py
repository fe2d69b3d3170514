"""A history on its way out: what goes as it is, what is said anew, and what the projection puts into it.

Rules, the same for every API:

- a native item of this API goes as it is, unless it names another issuer; then its neutral form is sent;
- an opaque item goes to its own issuer alone. Else, or if it cannot go for another reason, what it covers is sent in
  readable form: the covered messages that the history does not hold anyway, or its own readable text. When the
  item goes, nothing of that is sent; so the text is sent exactly once, and never lost;
- a load point in a native item stays where it is while its tool is callable by the definition that it carries
  and the projection does not place the tool elsewhere; any other is taken out, under every API without deferral all;
- a deferred tool whose mark this history cannot carry becomes immediate: it is never lost on the way;
- results stand directly behind their call. Native items are never moved; neutral ones are.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from capstate.projection import Placed, Profile, is_sent
from capstate.providers._calls import CallIds, past_name
from capstate.providers._shape import mapping
from capstate.trace import Message, Outcome, Role

if TYPE_CHECKING:
    from capstate.projection import Mark, Projection

Spot = tuple[int, int]
"""A place in the entries: the entry, and which of its results; -1 is the end of the entry."""

END = -1


@frozen
class Entry:
    """One piece of the history: its neutral reading, and its native form if that is what goes."""

    read: tuple[Message, ...]
    native: tuple[Mapping[str, Any], ...] = ()
    id: str = ""
    part: bool = False
    """The native form is what a neutral message was read from, perhaps one part of a provider's message."""

    @property
    def results(self) -> tuple[Message, ...]:
        """Its tool results."""
        return tuple(m for m in self.read if m.role is Role.TOOL)


def entries(
    history: Sequence[Any],
    *,
    apis: frozenset[str],
    issuer: str,
    read: Callable[[Sequence[Any]], list[Message]],
    passes: Callable[[Mapping[str, Any]], bool],
) -> list[Entry]:
    """Return ``history`` piece by piece, neutral results behind their calls.

    Args:
        history: messages, native or neutral.
        apis: names of the API.
        issuer: id of the issuer that it goes to.
        read: the API's reader.
        passes: whether an opaque native item may go as it is.
    """
    held = {m.id for m in history if isinstance(m, Message) and m.id}
    made: list[Entry] = []
    for n, item in enumerate(history):
        if isinstance(item, Message):
            made.extend(_entry(item, apis, issuer, held, passes))
        else:
            native = mapping(item, f"history[{n}]")
            made.append(Entry(tuple(read([native])), (native,)))
    return _paired(made)


def _entry(
    message: Message, apis: frozenset[str], issuer: str, held: set[str], passes: Callable[[Mapping[str, Any]], bool]
) -> list[Entry]:
    native = message.native if isinstance(message.native, list | tuple) else (message.native,)
    ours = message.native is not None and message.api in apis
    if message.role is not Role.OPAQUE:
        goes = ours and message.issuer in (None, issuer)
        return [Entry((message,), tuple(native) if goes else (), message.id, goes)]
    if ours and message.issuer == issuer and all(passes(mapping(n, "opaque item")) for n in native):
        return [Entry((message,), tuple(native), message.id)]
    covered = [e for m in message.covered if m.id not in held for e in _entry(m, apis, issuer, held, passes)]
    if not message.covered and message.text:
        covered = [Entry((Message(message.id, Role.SUMMARY, message.text),), (), message.id)]
    return covered


def _paired(found: list[Entry]) -> list[Entry]:
    ordered: list[Entry] = []
    wanted: set[str] = set()
    at = 0  # where the next result of the open neutral calls belongs
    for entry in found:
        message = entry.read[0] if entry.read and not entry.native else None
        if message is not None and message.role is Role.TOOL and message.result_for in wanted:
            ordered.insert(at, entry)
            at += 1
            continue
        ordered.append(entry)
        if message is None or message.role is Role.ASSISTANT:
            calls = () if message is None else message.calls
            wanted, at = {c.id for c in calls}, len(ordered)
    return ordered


@frozen(eq=False)
class Plan:
    """What one request will hold."""

    profile: Profile
    entries: list[Entry]
    immediate: list[Placed]
    deferred: list[Placed]
    inserts: Mapping[Spot, list[Placed]]
    """What must be put in, by place."""
    calls: Mapping[int, list[str]]
    """Ids of the calls of each neutral entry."""
    answers: Mapping[Spot, str]
    """Id of the call that each result answers; an orphan has none."""
    _placed: Mapping[str, Placed] = field(repr=False)
    _homes: Mapping[str, Spot] = field(repr=False)
    _wires: Mapping[str, str] = field(repr=False)

    def keeps(self, wire: str, spot: Spot | None, definition: Mapping[str, Any] | None = None) -> bool:
        """Whether a native load point at ``spot`` may name ``wire`` (by this ``definition``, if it carries one)."""
        return self.profile.defers != "" and _kept(self._placed, self._homes, wire, spot, definition)

    def callable(self, wire: str) -> bool:
        """Whether the projection holds ``wire``."""
        return wire in self._placed

    def wire(self, tool: str) -> str:
        """Return the name that a call of ``tool`` (wire name or qualified id) has in this request."""
        return self._wires.get(tool) or past_name(self.profile, tool)


def plan(
    profile: Profile,
    projection: Projection,
    found: list[Entry],
    *,
    points: Iterable[tuple[str, Mapping[str, Any] | None, Spot]],
    place: Callable[[Spot], Spot | None] = lambda spot: spot,
    spots: Container[Spot] | None = None,
) -> Plan:
    """Decide where every tool stands.

    Args:
        profile: the provider.
        projection: the tools.
        found: the history.
        points: names that native load points give, with the definition where they carry one, and their place.
        place: where the API puts a load point that belongs to a place; None where it cannot have one.
        spots: the places at which the API's writer puts one in; None: at all. A tool that has none of these becomes
            immediate.
    """
    placed = {p.wire: p for p in (*projection.immediate, *projection.deferred)}
    wires = {p.wire: p.wire for p in placed.values()} | {p.definition.qualified: p.wire for p in placed.values()}
    calls, answers = _answered(profile, found)
    defers = profile.defers != ""
    homes: dict[str, Spot] = {}
    loaded = list(points)
    there = {(wire, spot) for wire, _, spot in loaded}
    for p in projection.deferred if defers else ():
        meant = [] if p.mark is None else [place(s) for s in _homes(p.mark, found, answers)]
        possible = [s for s in meant if s is not None and (spots is None or s in spots)]
        if possible:
            homes[p.wire] = next((s for s in possible if (p.wire, s) in there), possible[0])
    native = {wire for wire, definition, spot in loaded if defers and _kept(placed, homes, wire, spot, definition)}
    immediate, deferred = list(projection.immediate), []
    inserts: dict[Spot, list[Placed]] = {}
    for p in projection.deferred:
        if p.wire in native:
            deferred.append(p)
        elif p.wire in homes:
            deferred.append(p)
            inserts.setdefault(homes[p.wire], []).append(p)
        else:
            immediate.append(p)
    return Plan(profile, found, immediate, deferred, inserts, calls, answers, placed, homes, wires)


def _answered(profile: Profile, found: list[Entry]) -> tuple[dict[int, list[str]], dict[Spot, str]]:
    ids = CallIds(profile)
    calls: dict[int, list[str]] = {}
    answers: dict[Spot, str] = {}
    for i, entry in enumerate(found):
        k = 0
        for message in entry.read:
            if message.role is Role.TOOL:
                answered = ids.close(message.result_for)
                if answered is not None:
                    answers[i, k] = answered
                k += 1
            elif message.calls and entry.native:
                ids.keep(message.calls)
            elif message.calls:
                calls[i] = ids.open(message.calls)
    return calls, answers


def _kept(
    placed: Mapping[str, Placed],
    homes: Mapping[str, Spot],
    wire: str,
    spot: Spot | None,
    definition: Mapping[str, Any] | None,
) -> bool:
    p = placed.get(wire)
    if p is None or (wire in homes and homes[wire] != spot):
        return False
    return definition is None or is_sent(p.definition, definition)


def _homes(mark: Mark, found: list[Entry], answers: Mapping[Spot, str]) -> list[Spot]:
    """Return the places that ``mark`` can mean; more than one where a foreign history repeats ids."""
    by_entry: list[Spot] = []
    by_call: list[Spot] = []
    for i, entry in enumerate(found):
        for k, result in enumerate(entry.results):
            if (i, k) not in answers:
                continue  # an orphan carries nothing
            if mark.at and mark.at in (result.id, entry.id):
                by_entry.append((i, k))
            if mark.call is not None and result.result_for == mark.call:
                by_call.append((i, k))
    both = [s for s in by_entry if s in by_call]
    end = next(([(i, END)] for i, e in enumerate(found) if mark.at and e.id == mark.at), [])
    return both or by_entry or by_call or end


def said(message: Message) -> str:
    """Return a result's text where the API has no way, or too coarse a one, to say how the call ended."""
    if message.outcome in (None, Outcome.OK):
        return message.text
    return f"[outcome: {message.outcome}]\n{message.text}" if message.text else f"[outcome: {message.outcome}]"


def orphan(message: Message) -> str:
    """Return the text of a result whose call is not in the history, so that it is not lost."""
    return f"[result of a call that is not in this history]\n{said(message)}"


def after_round(found: Sequence[Entry]) -> Callable[[Spot], Spot]:
    """Return the function that moves a place behind all results of the calls that it stands among."""

    def place(spot: Spot) -> Spot:
        i, k = spot
        if k == END and not found[i].results and not any(m.calls for m in found[i].read):
            return spot
        while i + 1 < len(found) and found[i + 1].results and len(found[i + 1].results) == len(found[i + 1].read):
            i += 1
        return i, len(found[i].results) - 1

    return place


def native_points(
    found: Sequence[Entry],
    loads: Callable[[Mapping[str, Any]], Iterable[tuple[str, Mapping[str, Any]]] | None],
    results: Callable[[Mapping[str, Any]], bool],
) -> Iterator[tuple[str, Mapping[str, Any], Spot]]:
    """Yield what native load points give, each at the place that it follows.

    Args:
        found: the history.
        loads: what an item loads; None if it is no load point.
        results: whether an item is a tool result.
    """
    for _, item, spot in walked(found, loads, results):
        for wire, definition in (loads(item) if item is not None else None) or ():
            yield wire, definition, spot


def walked(
    found: Sequence[Entry],
    loads: Callable[[Mapping[str, Any]], Iterable[tuple[str, Mapping[str, Any]]] | None],
    results: Callable[[Mapping[str, Any]], bool],
) -> Iterator[tuple[int, Mapping[str, Any] | None, Spot]]:
    """Yield every native item, or None for a neutral entry, with its place: a load point's is what it follows."""
    spot: Spot = (-1, END)
    for i, entry in enumerate(found):
        k = 0
        for item in entry.native:
            if results(item):
                spot, k = (i, k), k + 1
            elif loads(item) is None:
                spot = (i, END)
            yield i, item, spot
        if not entry.native:
            spot = (i, 0 if entry.results else END)
            yield i, None, spot


def last_steps(
    steps: Sequence[tuple[int, Mapping[str, Any] | None, Spot]],
    loads: Callable[[Mapping[str, Any]], Iterable[tuple[str, Mapping[str, Any]]] | None],
) -> dict[Spot, int]:
    """Return, by place of :func:`walked`, its last step that is no load point: what is put in stands behind it."""
    return {spot: n for n, (_, item, spot) in enumerate(steps) if item is None or loads(item) is None}
