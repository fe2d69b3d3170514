"""What may be called now: loaded, authorised, up, covered, and with a wire name of its own.

``derive`` tests every tool of the catalog in the order of :class:`~capstate.errors.Reason` and keeps, group by
group, one row a tool. A group whose inputs did not change keeps its rows, so the work grows with what changed.
The rules are ``docs/spec/surface.md`` sections 2 and 4.

Not here: where the model sees a tool (:mod:`capstate.projection`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from attrs import evolve, field, frozen

from capstate.authority import Authority, Decision, Effect, GroupAuthority
from capstate.capabilities import Catalog, Definition, Group, NameRule
from capstate.digest import Domain, encode, fingerprint
from capstate.errors import Reason
from capstate.loads import Event, Load, LoadKind, by_group, counting, fold

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


@frozen(eq=False)
class Row:
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


@frozen(eq=False)
class View:
    """The rows of one group, and the inputs that they follow from."""

    inputs: Inputs = field(repr=False)
    rows: Mapping[str, Row] = field(repr=False)
    """By tool name, in order."""
    fingerprint: str
    """Covers the callable definitions of the group; empty if there are none."""
    held: tuple[tuple[str, str, str], ...] = field(repr=False)
    """(target, reason, decided by) of what is loaded and withheld."""

    def claims(self) -> Iterator[tuple[str, Row]]:
        """Return each callable row with its wire name."""
        return ((row.wire, row) for row in self.rows.values() if row.reason is None and row.wire is not None)

    @property
    def marks(self) -> tuple[int, ...]:
        """Sequence numbers of the loads that may mark a tool of the group, in order."""
        return tuple(event.load.sequence for event in self.inputs.events if event.load.definitions)


@frozen(eq=False)
class Surface:
    """The exact definitions callable now, and every other tool of the catalog with its reason.

    Two surfaces are equal when the callable definitions are.
    """

    views: Mapping[str, View] = field(repr=False)
    wires: Mapping[str, Row] = field(repr=False)
    """Callable row by wire name."""
    fingerprint: str
    _alone: Mapping[str, View] = field(repr=False)
    """The views before wire names were compared: what the next derivation starts from."""
    _wish: tuple[tuple[Load, ...], tuple[str, ...] | None] = field(repr=False)
    """The loads and the path behind them."""

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
    before = previous._alone if previous is not None else {}  # noqa: SLF001 - its own kind
    wish = (loads, path)
    known = before if previous is not None and previous._wish == wish else {}  # noqa: SLF001 - its own kind
    events = by_group(loads, path, [id_ for id_ in catalog.groups if id_ not in known])
    alone: dict[str, View] = {}
    for id_, group in catalog.groups.items():
        old = before.get(id_)
        inputs = Inputs(
            group,
            authority.over(id_),
            known[id_].inputs.events if id_ in known else events[id_],
            names,
            {needed: needed in catalog.groups and catalog.groups[needed].up for needed in group.needs},
        )
        alone[id_] = old if old is not None and old.inputs == inputs else _view(inputs, old)
    if previous is not None and len(before) == len(alone) and all(before.get(i) is view for i, view in alone.items()):
        return evolve(previous, wish=wish)
    wires = _exchanged(previous, alone) if previous is not None else None
    views = alone
    if wires is None:
        wires, clashing = _claims(alone)
        if clashing:
            views = {id_: _without(view, clashing) for id_, view in alone.items()}
    prints = [(id_, view.fingerprint) for id_, view in views.items() if view.fingerprint]
    return Surface(views, wires, fingerprint(Domain.SURFACE, encode(prints)), alone, wish)


def _view(inputs: Inputs, old: View | None) -> View:
    group = inputs.group
    kept = _still_true(inputs, old)
    rows = {name: kept.get(name) or _row(d, inputs) for name, d in group.definitions.items()}
    return View(inputs, rows, _callable_print(rows), _held(group.id, rows))


def _still_true(inputs: Inputs, old: View | None) -> dict[str, Row]:
    """Return the rows of a former view that hold for ``inputs`` too: only members of the group differ."""
    if old is None or old.inputs[1:4] != inputs[1:4] or old.inputs.group.up != inputs.group.up:
        return {}
    conflicts, up, was_up = inputs.group.conflicts | old.inputs.group.conflicts, inputs.up, old.inputs.up
    return {
        name: row
        for name, row in old.rows.items()
        if inputs.group.definitions.get(name) == row.definition
        and name not in conflicts
        and all(up[needed] == was_up[needed] for needed in row.definition.tool.needs)
    }


def _row(definition: Definition, inputs: Inputs) -> Row:
    tool = definition.tool
    loaded, mark = fold(inputs.events, tool.name, definition.qualified)
    wire = inputs.names.name(definition)
    decision = inputs.over.decide(definition)
    reason, decided_by = _withheld(definition, inputs, wire, decision, loaded=loaded)
    if reason is not None:
        known = reason not in (Reason.NAME_CONFLICT, Reason.NAME_UNREPRESENTABLE)
        return Row(definition, reason, decision.effect if known else None, decided_by, wire, loaded)
    return Row(definition, None, decision.effect, decision.decided_by, wire, loaded, mark)


def _withheld(
    definition: Definition, inputs: Inputs, wire: str | None, decision: Decision, *, loaded: bool
) -> tuple[Reason | None, str]:
    """Return the first reason against a tool of its own (spec section 4, points 1 to 6), and what decided."""
    group, changed = inputs.group, decision.reason is Reason.SCHEMA_CHANGED
    if definition.tool.name in group.conflicts:
        return Reason.NAME_CONFLICT, ""
    if wire is None:
        return Reason.NAME_UNREPRESENTABLE, ""
    if decision.reason is not None and not changed:
        return decision.reason, decision.decided_by
    down = group.id if not group.up else next((n for n in definition.tool.needs if not inputs.up[n]), None)
    if down is not None:
        return Reason.RESOURCE_UNAVAILABLE, f"group {down}"
    if changed:
        return Reason.SCHEMA_CHANGED, decision.decided_by
    return (None, "") if loaded else (Reason.NOT_LOADED, "")


def _held(group: str, rows: Mapping[str, Row]) -> tuple[tuple[str, str, str], ...]:
    """Return (target, reason, decided by) of what is loaded and withheld; ``group/*`` if that is all of the group."""
    held = [row for row in rows.values() if row.reason is not None and row.loaded]
    if held and len(held) == len(rows) and len({(row.reason, row.decided_by) for row in held}) == 1:
        return ((f"{group}/*", str(held[0].reason), held[0].decided_by),)
    return tuple((row.definition.qualified, str(row.reason), row.decided_by) for row in held)


def _callable_print(rows: Mapping[str, Row]) -> str:
    prints = [row.definition.fingerprint for row in rows.values() if row.reason is None]
    return fingerprint(Domain.SURFACE, encode(prints)) if prints else ""


def _claims(views: Mapping[str, View]) -> tuple[dict[str, Row], set[str]]:
    """Return the wire names that one row alone claims, and those that several claim."""
    wires: dict[str, Row] = {}
    clashing: set[str] = set()
    for view in views.values():
        for wire, row in view.claims():
            if wires.setdefault(wire, row) is not row:
                clashing.add(wire)
    for wire in clashing:
        del wires[wire]
    return wires, clashing


def _exchanged(previous: Surface, alone: Mapping[str, View]) -> dict[str, Row] | None:
    """Return the previous wire names with the changed groups exchanged; None if names have to be compared anew."""
    before = previous._alone  # noqa: SLF001 - its own kind
    if previous.views is not before:
        return None
    wires = dict(previous.wires)
    for id_, view in before.items():
        if alone.get(id_) is not view:
            for wire, _ in view.claims():
                del wires[wire]
    for id_, view in alone.items():
        if before.get(id_) is not view and any(wires.setdefault(wire, row) is not row for wire, row in view.claims()):
            return None
    return wires


def _without(view: View, clashing: set[str]) -> View:
    if not any(wire in clashing for wire, _ in view.claims()):
        return view
    rows = {
        name: evolve(row, reason=Reason.NAME_CONFLICT, decided_by="", mark=None)
        if row.reason is None and row.wire in clashing
        else row
        for name, row in view.rows.items()
    }
    return evolve(view, rows=rows, fingerprint=_callable_print(rows), held=_held(view.inputs.group.id, rows))
