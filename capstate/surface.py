"""What may be called now: loaded, authorised, up, covered, and with a wire name of its own.

``derive`` tests every tool of the catalog in the order of :class:`~capstate.errors.Reason` and keeps, group by
group, one row a tool. A group whose inputs did not change keeps its rows, so the work grows with what changed.
The rules are ``docs/spec/surface.md`` sections 2 and 4.

Not here: where the model sees a tool (:mod:`capstate.projection`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from attrs import evolve, field, frozen

from capstate.digest import Domain, encode, fingerprint
from capstate.errors import Reason
from capstate.loads import Event, Load, LoadKind, by_group, counting, fold

if TYPE_CHECKING:
    from capstate.authority import Authority, Effect, GroupAuthority
    from capstate.capabilities import Catalog, Definition, Group, NameRule

__all__ = [
    "Event",
    "Inputs",
    "Load",
    "LoadKind",
    "Row",
    "Surface",
    "View",
    "Withheld",
    "by_group",
    "counting",
    "derive",
    "fold",
]


class Row(NamedTuple):
    """One tool of the catalog: callable, or withheld for ``reason``.

    Attributes:
        effect: what authority says of it, also while something else is in the way; None if it is not authorised, or
            if there is no one definition with a name to ask about.
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


class Inputs(NamedTuple):
    """All that the rows of one group follow from, but for wire names of others."""

    group: Group
    over: GroupAuthority
    events: tuple[Event, ...]
    names: NameRule
    up: Mapping[str, bool]
    """By needed group."""


class Basis(NamedTuple):
    """The facts that concern every group."""

    loads: tuple[Load, ...]
    path: tuple[str, ...] | None
    authority: Authority
    names: NameRule


@frozen(eq=False)
class View:
    """The rows of one group, and the inputs that they follow from.

    Attributes:
        inputs: what the rows follow from.
    """

    inputs: Inputs = field(repr=False)
    rows: Mapping[str, Row] = field(repr=False)
    """By tool name, in order."""
    wires: Mapping[str, Row] = field(repr=False)
    """Callable row by wire name; of several with one name the last."""
    callables: int
    """Number of callable rows."""
    fingerprint: str
    """Covers the callable definitions of the group; empty if there are none."""
    held: tuple[tuple[str, str, str], ...] = field(repr=False)
    """(target, reason, decided by) of what is loaded and withheld."""
    marks: tuple[int, ...]
    """Sequence numbers of the loads that may mark a tool of the group, in order."""

    @classmethod
    def of(cls, inputs: Inputs, rows: Mapping[str, Row]) -> View:
        """Return the view of these rows."""
        able = [row for row in rows.values() if row.reason is None]
        wires = {row.wire: row for row in able if row.wire is not None}
        prints = [row.definition.fingerprint for row in able]
        print_ = fingerprint(Domain.SURFACE, encode(prints)) if prints else ""
        held = () if len(able) == len(rows) else _held(inputs.group.id, rows)
        marks = tuple(event.load.sequence for event in inputs.events if event.load.definitions)
        return cls(inputs, rows, wires, len(able), print_, held, marks)


class Wires(Mapping[str, Row]):
    """Callable rows by wire name. What few groups changed is laid over the rest, which stays where it is."""

    def __init__(self, base: dict[str, Row], over: dict[str, Row | None] | None = None) -> None:
        self._base, self._over = base, over or {}

    def __getitem__(self, wire: str) -> Row:
        row = self._over[wire] if wire in self._over else self._base[wire]
        if row is None:
            raise KeyError(wire)
        return row

    def __iter__(self) -> Iterator[str]:
        yield from (wire for wire in self._base if wire not in self._over)
        yield from (wire for wire, row in self._over.items() if row is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def exchanged(self, gone: list[View], come: list[View]) -> Wires | None:
        """Return the names with some groups exchanged; None if two rows claim one, or too many names changed."""
        base, over = self._base, self._over.copy()
        for view in gone:
            over.update(dict.fromkeys(view.wires))
        for view in come:
            if len(view.wires) < view.callables or any((over[w] if w in over else base.get(w)) for w in view.wires):
                return None
            over.update(view.wires)
        return Wires(base, over) if 4 * len(over) <= len(base) else None


@frozen(eq=False)
class Surface:
    """The exact definitions callable now, and every other tool of the catalog with its reason.

    Two surfaces are equal when the callable definitions are.

    Attributes:
        views: by group.
        fingerprint: covers the callable definitions, and nothing else.
    """

    views: Mapping[str, View] = field(repr=False)
    wires: Wires = field(repr=False)
    """Callable row by wire name."""
    fingerprint: str
    _alone: Mapping[str, View] = field(repr=False)
    """The views before wire names were compared: what the next derivation starts from."""
    _basis: Basis = field(repr=False)
    """What all groups have in common."""

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


def derive(  # noqa: PLR0917 - the facts, each of another kind
    catalog: Catalog,
    loads: tuple[Load, ...],
    path: tuple[str, ...] | None,
    authority: Authority,
    names: NameRule,
    previous: Surface | None = None,
) -> Surface:
    """Return the surface that follows from these facts; ``previous`` saves work and changes nothing."""
    basis = Basis(tuple(loads), path, authority, names)
    before = previous._alone if previous is not None else {}  # noqa: SLF001 - its own kind
    was = previous._basis if previous is not None else None  # noqa: SLF001 - its own kind
    same = was == basis
    known = before if was is not None and was[:2] == basis[:2] else {}
    events = by_group(loads, path, [id_ for id_ in catalog.groups if id_ not in known])
    alone: dict[str, View] = {}
    changed = len(before) != len(catalog.groups)
    for id_, group in catalog.groups.items():
        old = before.get(id_)
        if same and old is not None and old.inputs.group is group and not group.needs:
            alone[id_] = old
            continue
        inputs = Inputs(
            group,
            authority.over(id_),
            known[id_].inputs.events if id_ in known else events[id_],
            names,
            {needed: needed in catalog.groups and catalog.groups[needed].up for needed in group.needs},
        )
        if old is not None and old.inputs == inputs:
            alone[id_] = old
        else:
            alone[id_], changed = _view(inputs, old), True
    if previous is not None and not changed:
        return evolve(previous, basis=basis)
    wires = _exchanged(previous, alone) if previous is not None else None
    views = alone
    if wires is None:
        wires, clashing = _claims(alone)
        if clashing:
            views = {id_: _without(view, clashing) for id_, view in alone.items()}
    prints = [(id_, view.fingerprint) for id_, view in views.items() if view.fingerprint]
    return Surface(views, wires, fingerprint(Domain.SURFACE, encode(prints)), alone, basis)


def _view(inputs: Inputs, old: View | None) -> View:
    group, events = inputs.group, inputs.events
    kept = _still_true(inputs, old)
    # Loads of the whole group that carry no definition say the same of each tool.
    same = all(event.names is None and not event.load.definitions for event in events)
    wish = fold(events, "", "") if same else None
    rows = {name: kept.get(name) or _row(d, inputs, wish) for name, d in group.definitions.items()}
    return View.of(inputs, rows)


def _still_true(inputs: Inputs, old: View | None) -> dict[str, Row]:
    """Return the rows of a former view that hold for ``inputs`` too: only members of the group differ."""
    if old is None or old.inputs[1:4] != inputs[1:4] or old.inputs.group.up != inputs.group.up:
        return {}
    now, up, was_up = inputs.group, inputs.up, old.inputs.up
    conflicts = now.conflicts | old.inputs.group.conflicts
    return {
        name: row
        for name, row in old.rows.items()
        if ((definition := now.definitions.get(name)) is row.definition or definition == row.definition)
        and name not in conflicts
        and (not up or all(up[needed] == was_up[needed] for needed in row.definition.tool.needs))
    }


def _row(definition: Definition, inputs: Inputs, wish: tuple[bool, Load | None] | None) -> Row:  # noqa: PLR0911 - one return a reason, in the order of the specification
    """Return the row of one tool by itself (spec section 4, points 1 to 6)."""
    group, tool = inputs.group, definition.tool
    loaded, mark = wish or fold(inputs.events, tool.name, definition.qualified)
    wire = inputs.names.name(definition)
    if group.conflicts and tool.name in group.conflicts:
        return Row(definition, Reason.NAME_CONFLICT, None, "", wire, loaded)
    if wire is None:
        return Row(definition, Reason.NAME_UNREPRESENTABLE, None, "", wire, loaded)
    decision = inputs.over.decide(definition)
    effect, reason, decided_by = decision.effect, decision.reason, decision.decided_by
    if reason is not None and reason is not Reason.SCHEMA_CHANGED:
        return Row(definition, reason, None, decided_by, wire, loaded)
    if not group.up or (tool.needs and not all(inputs.up[needed] for needed in tool.needs)):
        down = next((needed for needed in tool.needs if not inputs.up[needed]), None) if group.up else group.id
        return Row(definition, Reason.RESOURCE_UNAVAILABLE, effect, f"group {down}", wire, loaded)
    if reason is not None:
        return Row(definition, reason, None, decided_by, wire, loaded)
    if not loaded:
        return Row(definition, Reason.NOT_LOADED, effect, "", wire, loaded)
    return Row(definition, None, effect, decided_by, wire, loaded, mark)


def _held(group: str, rows: Mapping[str, Row]) -> tuple[tuple[str, str, str], ...]:
    """Return (target, reason, decided by) of what is loaded and withheld; ``group/*`` if that is all of the group."""
    held = [row for row in rows.values() if row.reason is not None and row.loaded]
    if held and len(held) == len(rows) and len({(row.reason, row.decided_by) for row in held}) == 1:
        return ((f"{group}/*", str(held[0].reason), held[0].decided_by),)
    return tuple((row.definition.qualified, str(row.reason), row.decided_by) for row in held)


def _claims(views: Mapping[str, View]) -> tuple[Wires, set[str]]:
    """Return the wire names that one row alone claims, and those that several claim."""
    wires: dict[str, Row] = {}
    for view in views.values():
        wires.update(view.wires)
    if len(wires) == sum(view.callables for view in views.values()):
        return Wires(wires), set()
    counted = Counter(row.wire for view in views.values() for row in view.rows.values() if row.reason is None)
    clashing = {wire for wire, count in counted.items() if count > 1 and wire is not None}
    return Wires({wire: row for wire, row in wires.items() if wire not in clashing}), clashing


def _exchanged(previous: Surface, alone: Mapping[str, View]) -> Wires | None:
    """Return the previous wire names with few changed groups exchanged; None if names are better compared anew."""
    before = previous._alone  # noqa: SLF001 - its own kind
    if previous.views is not before:
        return None
    come = [view for id_, view in alone.items() if before.get(id_) is not view]
    gone = [view for id_, view in before.items() if alone.get(id_) is not view]
    return previous.wires.exchanged(gone, come)


def _without(view: View, clashing: set[str]) -> View:
    if clashing.isdisjoint(view.wires):
        return view
    rows = {
        name: row._replace(reason=Reason.NAME_CONFLICT, decided_by="", mark=None)
        if row.reason is None and row.wire in clashing
        else row
        for name, row in view.rows.items()
    }
    return View.of(view.inputs, rows)
