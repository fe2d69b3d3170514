"""What may be called now: loaded, authorised, up, covered, and with a wire name of its own.

``derive`` tests every tool of the catalog in the order of :class:`~capstate.errors.Reason` and keeps, group by
group, one row a tool. A group whose inputs did not change keeps its rows, so the work grows with what changed.
The rules are ``docs/spec/surface.md`` sections 2 and 4.

Not here: where the model sees a tool (:mod:`capstate.projection`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from attrs import evolve, field, frozen

from capstate.authority import Authority, Effect, GroupAuthority
from capstate.capabilities import Catalog, Definition, Group, NameRule
from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import Reason


class LoadKind(StrEnum):
    """What a load event does to the tools that it covers."""

    LOAD = "load"
    UNLOAD = "unload"
    REMOVAL = "removal"
    """An agent took tools out of its transcript by itself: ends their marks, changes no wish."""


@frozen
class Load:
    """One load event of the ledger (or of a transcript under analysis).

    Attributes:
        sequence: place in the ledger; names the event in marks.
        on: selectors of the tools that it covers.
        at: id of its transcript entry.
        call: id of the call whose result is that entry.
        definitions: of a load, fingerprint by qualified id of what it found.
    """

    sequence: int
    do: LoadKind
    on: tuple[str, ...]
    at: str | None = None
    call: str | None = None
    definitions: Mapping[str, str] = field(factory=dict, hash=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the event as JSON."""
        return {
            "at": self.at,
            "call": self.call,
            "definitions": dict(self.definitions),
            "do": str(self.do),
            "on": list(self.on),
            "sequence": self.sequence,
        }


class Event(NamedTuple):
    """A load event as one group sees it; ``names`` is None for every tool of the group."""

    load: Load
    names: frozenset[str] | None


def counting(loads: Iterable[Load], path: tuple[str, ...] | None) -> list[Load]:
    """Return the events that count on ``path``, in the order in which they apply (spec 2.3, 2.4)."""
    if path is None:
        return list(loads)
    index: dict[str, int] = {}
    for n, entry in enumerate(path):
        index.setdefault(entry, n)
    placed: list[tuple[int, int, Load]] = []
    last = -1
    for n, load in enumerate(loads):
        if load.at is None:
            placed.append((last, n, load))
        elif load.at in index:
            last = max(last, index[load.at])
            placed.append((index[load.at], n, load))
    placed.sort(key=lambda p: p[:2])
    return [load for _, _, load in placed]


def by_group(
    loads: Iterable[Load], path: tuple[str, ...] | None, groups: Iterable[str]
) -> dict[str, tuple[Event, ...]]:
    """Return for each group the events that can cover a tool of it, without those that a whole unload ends."""
    found: dict[str, list[Event]] = {group: [] for group in groups}
    for load in counting(loads, path):
        whole: set[str] = set()
        names: dict[str, set[str]] = {}
        for selector in load.on:
            group, _, name = selector.partition("/")
            if group == "*":
                whole.update(found)
            elif name == "*":
                whole.add(group)
            else:
                names.setdefault(group, set()).add(name)
        for group in whole:
            if group in found:
                if load.do is LoadKind.UNLOAD:
                    found[group].clear()
                else:
                    found[group].append(Event(load, None))
        for group in names.keys() - whole:
            if group in found:
                found[group].append(Event(load, frozenset(names[group])))
    return {group: tuple(events) for group, events in found.items()}


def fold(events: Iterable[Event], name: str, qualified: str) -> tuple[bool, Load | None]:
    """Return whether the tool is loaded after ``events``, and the load that is its mark (spec 2.5, 2.6)."""
    loaded = removed = False
    mark: Load | None = None
    for load, names in events:
        if names is not None and name not in names:
            continue
        if load.do is LoadKind.LOAD:
            if not loaded or removed:
                marks = (load.at is not None or load.call is not None) and qualified in load.definitions
                loaded, removed, mark = True, False, load if marks else None
        elif load.do is LoadKind.UNLOAD:
            loaded, removed, mark = False, False, None
        elif loaded:
            removed, mark = True, None
    return loaded, mark


@frozen(eq=False)
class Row:
    """One tool of the catalog: callable with ``effect``, or withheld for ``reason``.

    Attributes:
        wire: its wire name; None if it has none.
        loaded: somebody wished for it on this path and nobody took that back.
        mark: the load that marks it, if it is callable and marked.
    """

    definition: Definition
    reason: Reason | None
    effect: Effect | None
    decided_by: str
    wire: str | None
    loaded: bool
    mark: Load | None = None


Withheld = Row
"""A row with a reason."""


@frozen(eq=False)
class View:
    """The rows of one group, and the inputs that they follow from."""

    group: Group
    inputs: tuple[Any, ...] = field(repr=False)
    rows: Mapping[str, Row] = field(repr=False)
    """By tool name, in order."""
    fingerprint: str
    """Covers the callable definitions of the group; empty if there are none."""
    held: tuple[tuple[str, str, str], ...] = field(repr=False)
    """(target, reason, decided by) of what is loaded and withheld."""

    @property
    def marks(self) -> tuple[int, ...]:
        """Sequence numbers of the loads that may mark a tool of the group, in order."""
        events: tuple[Event, ...] = self.inputs[2]
        return tuple(event.load.sequence for event in events if event.load.definitions)


@frozen(eq=False)
class Surface:
    """The exact definitions callable now, and every other tool of the catalog with its reason.

    Two surfaces are equal when the callable definitions are.
    """

    views: Mapping[str, View] = field(repr=False)
    wires: Mapping[str, Row] = field(repr=False)
    """Callable row by wire name."""
    fingerprint: str
    _plain: Mapping[str, View] = field(repr=False)
    """The views before wire names were compared: what the next derivation starts from."""

    def row(self, qualified: str) -> Row | None:
        """Return the row of ``group/name``; None if the catalog has no such tool."""
        group, _, name = qualified.partition("/")
        view = self.views.get(group)
        return view.rows.get(name) if view is not None else None

    def rows(self) -> Iterator[Row]:
        """Return every row, in order."""
        for view in self.views.values():
            yield from view.rows.values()

    @property
    def callable(self) -> dict[str, Row]:
        """The callable rows by qualified id."""
        return {row.definition.qualified: row for row in self.rows() if row.reason is None}

    @property
    def withheld(self) -> dict[str, Withheld]:
        """The withheld rows by qualified id."""
        return {row.definition.qualified: row for row in self.rows() if row.reason is not None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Surface) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def derive(
    catalog: Catalog,
    loads: tuple[Load, ...],
    path: tuple[str, ...] | None,
    authority: Authority,
    names: NameRule,
    previous: Surface | None = None,
) -> Surface:
    """Return the surface that follows from these facts; ``previous`` saves work and changes nothing."""
    events = by_group(loads, path, catalog.groups)
    before = previous._plain if previous is not None else {}  # noqa: SLF001 - its own kind
    plain: dict[str, View] = {}
    changed: list[tuple[View | None, View]] = []
    for id_, group in catalog.groups.items():
        up = {needed: needed in catalog.groups and catalog.groups[needed].up for needed in group.needs}
        inputs = (group, authority.over(id_), events[id_], names, up)
        old = before.get(id_)
        if old is not None and old.inputs == inputs:
            plain[id_] = old
        else:
            plain[id_] = _view(*inputs)
            changed.append((old, plain[id_]))
    gone = [view for id_, view in before.items() if id_ not in plain]
    wires = _moved(previous, gone, changed) if previous is not None else None
    views = plain
    if wires is None:
        wires, clashing = _claims(plain)
        if clashing:
            views = {id_: _without(view, clashing) for id_, view in plain.items()}
    prints = [[id_, view.fingerprint] for id_, view in views.items() if view.fingerprint]
    return Surface(views, wires, fingerprint(Domain.SURFACE, canonical(prints)), plain)


def _view(group: Group, over: GroupAuthority, events: tuple[Event, ...], names: NameRule, up: dict[str, bool]) -> View:
    rows = {n: _row(group, d, over, events, names, up) for n, d in group.definitions.items()}
    return View(group, (group, over, events, names, up), rows, _callable_print(rows), _held(group.id, rows))


def _row(
    group: Group,
    definition: Definition,
    over: GroupAuthority,
    events: tuple[Event, ...],
    names: NameRule,
    up: dict[str, bool],
) -> Row:
    tool = definition.tool
    loaded, mark = fold(events, tool.name, definition.qualified)
    wire = names.name(definition)
    if tool.name in group.conflicts:
        return Row(definition, Reason.NAME_CONFLICT, None, "", wire, loaded)
    if wire is None:
        return Row(definition, Reason.NAME_UNREPRESENTABLE, None, "", wire, loaded)
    decision = over.decide(definition)
    if decision.reason is not None and decision.reason is not Reason.SCHEMA_CHANGED:
        return Row(definition, decision.reason, None, decision.decided_by, wire, loaded)
    for needed in (group.id, *tool.needs):
        if not (group.up if needed == group.id else up[needed]):
            return Row(definition, Reason.RESOURCE_UNAVAILABLE, decision.effect, f"group {needed}", wire, loaded)
    if decision.reason is not None:
        return Row(definition, decision.reason, None, decision.decided_by, wire, loaded)
    if not loaded:
        return Row(definition, Reason.NOT_LOADED, decision.effect, "", wire, loaded)
    return Row(definition, None, decision.effect, decision.decided_by, wire, loaded, mark)


def _held(group: str, rows: Mapping[str, Row]) -> tuple[tuple[str, str, str], ...]:
    """Return (target, reason, decided by) of what is loaded and withheld; ``group/*`` where that is all of the group."""
    held = [row for row in rows.values() if row.reason is not None and row.loaded]
    if held and len(held) == len(rows) and len({(row.reason, row.decided_by) for row in held}) == 1:
        return ((f"{group}/*", str(held[0].reason), held[0].decided_by),)
    return tuple((row.definition.qualified, str(row.reason), row.decided_by) for row in held)


def _callable_print(rows: Mapping[str, Row]) -> str:
    prints = [row.definition.fingerprint for row in rows.values() if row.reason is None]
    return fingerprint(Domain.SURFACE, canonical(prints)) if prints else ""


def _claims(views: Mapping[str, View]) -> tuple[dict[str, Row], set[str]]:
    """Return the wire names that one row alone claims, and those that several claim."""
    wires: dict[str, Row] = {}
    clashing: set[str] = set()
    for view in views.values():
        for row in view.rows.values():
            if row.reason is None and row.wire is not None and wires.setdefault(row.wire, row) is not row:
                clashing.add(row.wire)
    for wire in clashing:
        del wires[wire]
    return wires, clashing


def _moved(previous: Surface, gone: list[View], changed: list[tuple[View | None, View]]) -> dict[str, Row] | None:
    """Return the previous wire names with the changed groups exchanged; None if names have to be compared anew."""
    if previous.views is not previous._plain:  # noqa: SLF001 - its own kind
        return None
    wires = dict(previous.wires)
    for view in (*gone, *(old for old, _ in changed if old is not None)):
        for row in view.rows.values():
            if row.reason is None and row.wire is not None:
                del wires[row.wire]
    for _, view in changed:
        for row in view.rows.values():
            if row.reason is None and row.wire is not None and wires.setdefault(row.wire, row) is not row:
                return None
    return wires


def _without(view: View, clashing: set[str]) -> View:
    if not any(row.reason is None and row.wire in clashing for row in view.rows.values()):
        return view
    rows = {
        name: Row(row.definition, Reason.NAME_CONFLICT, row.effect, "", row.wire, row.loaded)
        if row.reason is None and row.wire in clashing
        else row
        for name, row in view.rows.items()
    }
    return evolve(view, rows=rows, fingerprint=_callable_print(rows), held=_held(view.group.id, rows))
