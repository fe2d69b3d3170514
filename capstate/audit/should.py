"""The right projection at one place of a recording, as the library derives it from what the recording knows.

Nothing is decided here: a path's events become load events, and :func:`capstate.surface.derive` and
:func:`capstate.projection.project` say the rest. Two things only a recording has:

- a load of which the agent's own record shows nothing (a loader's result without names) is a load followed by a
  removal: what it loads has no mark, and the next load that shows the names marks them;
- a definition is known when a request shows it. Until then a mark is taken for one of the definition known last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from capstate.agents.pi.events import Event, EventKind
from capstate.errors import Reason
from capstate.projection import Profile, Projection, project
from capstate.surface import Load, LoadKind, Surface, derive

if TYPE_CHECKING:
    from capstate.audit.known import Names, Who


@frozen
class Should:
    """Where each callable tool belongs, and why each other one is withheld. All are wire names.

    Attributes:
        deferred: mark entry by name, in order of the marks.
        loaded: what was loaded and not unloaded, callable or not.
    """

    immediate: tuple[str, ...] = ()
    deferred: Mapping[str, str] = field(factory=dict)
    withheld: Mapping[str, Reason] = field(factory=dict)
    loaded: frozenset[str] = frozenset()

    @property
    def callable(self) -> frozenset[str]:
        """All names that the model should be able to call."""
        return frozenset(self.immediate) | frozenset(self.deferred)


class Shown:
    """What one API showed of each definition: last, and first under each mark. Entries have one id in all copies."""

    def __init__(self) -> None:
        self.last: dict[str, str] = {}
        self.marked: dict[tuple[str, str], str] = {}


class Loads:
    """The load events of one path; grows with it."""

    def __init__(self, names: Names, resident: Iterable[str], shown: Shown | None = None) -> None:
        self.names, self.resident = names, frozenset(resident)
        self.shown = Shown() if shown is None else shown
        self.named: set[str] = set()
        """Names that an event showed to exist; that somebody asked to unload one shows nothing."""
        self._loads: list[Load] = []
        self._path: dict[str, None] = {}
        self._read = 0
        self._loaded = set(self.resident)
        self._guessed: dict[str, tuple[str, list[int]]] = {}
        """By name: the definition for which marks are taken, and the load events that are; no request showed it yet."""
        self._last: tuple[Surface, Projection] | None = None
        if self.resident:
            self._add(LoadKind.LOAD, sorted(self.resident))

    def follow(self, events: Sequence[Event]) -> None:
        """Take the events of the path; what was taken before is not looked at again."""
        for event in events[self._read :]:
            self._path[event.entry] = None
            if event.kind is EventKind.UNLOAD:
                self._loaded.difference_update(event.names)
                self._add(LoadKind.UNLOAD, event.names, event)
                continue
            self.named.update(event.names)
            if event.kind is EventKind.REMOVAL:
                self._add(LoadKind.REMOVAL, event.names, event)
            elif event.marks:
                self._loaded.update(event.names)
                self._mark(event)
            elif new := [n for n in event.names if n not in self._loaded]:
                self._loaded.update(new)
                self._add(LoadKind.LOAD, new, event)
                self._add(LoadKind.REMOVAL, new, event)
        self._read = len(events)

    def show(self, definitions: Mapping[str, str]) -> None:
        """Take the fingerprints of what a request showed, by name."""
        self.shown.last.update(definitions)
        for name in self._guessed.keys() & definitions.keys():
            for i in self._guessed.pop(name)[1]:
                at = self._loads[i].at or ""
                self._define(i, name, self.shown.marked.setdefault((at, name), definitions[name]))

    def should(
        self,
        exists: AbstractSet[str],
        who: Who,
        *,
        registered: AbstractSet[str] | None = None,
        retained: AbstractSet[str] = frozenset(),
        profile: Profile,
    ) -> Should:
        """Return what belongs on the wire after these events.

        Args:
            exists: names that something showed to exist.
            who: who may.
            registered: what the agent had registered; None if nobody knows.
            retained: ids of the entries that the model still sees.
            profile: what the provider can do.
        """
        self._guess()
        names = exists | self.named
        kept = tuple(load.sequence for load in self._loads if load.definitions and load.at in retained)
        surface, projection = self._last if self._last is not None else (None, None)
        surface = derive(
            self.names.catalog(names, self.shown.last, registered),
            tuple(self._loads),
            tuple(self._path),
            who.over(names),
            profile.names,
            previous=surface,
        )
        projection = project(surface, kept, profile, previous=projection)
        self._last = surface, projection
        rows = [(row.wire or "", row) for row in surface.rows()]
        missing = self.resident - names
        withheld = dict.fromkeys(missing, Reason.UNKNOWN_TOOL)
        withheld |= {wire: row.reason for wire, row in rows if row.reason is not None}
        return Should(
            tuple(sorted(p.wire for p in projection.immediate)),
            {p.wire: p.mark.at or "" for p in projection.deferred if p.mark is not None},
            dict(sorted(withheld.items())),
            frozenset(wire for wire, row in rows if row.loaded) | (missing & self._loaded),
        )

    def _guess(self) -> None:
        """Follow what another path showed of the definitions that no request on this one did."""
        for name, (guess, marks) in self._guessed.items():
            last = self.shown.last.get(name, "")
            if last != guess:
                self._guessed[name] = last, marks
                for i in marks:
                    self._define(i, name, self.shown.marked.get((self._loads[i].at or "", name), last))

    def _define(self, i: int, name: str, shown: str) -> None:
        load = self._loads[i]
        found = {self.names.qualified(name): self.names.definition(name, shown).fingerprint}
        self._loads[i] = evolve(load, definitions={**load.definitions, **found})

    def _mark(self, event: Event) -> None:
        found = {}
        for name in event.names:
            first, last = self.shown.marked.get((event.entry, name)), self.shown.last.get(name, "")
            if first is None:
                self._guessed.setdefault(name, (last, []))[1].append(len(self._loads))
            shown = last if first is None else first
            found[self.names.qualified(name)] = self.names.definition(name, shown).fingerprint
        self._add(LoadKind.LOAD, event.names, event, found)

    def _add(
        self, do: LoadKind, names: Iterable[str], event: Event | None = None, found: Mapping[str, str] | None = None
    ) -> None:
        at, call = (None, None) if event is None else (event.entry, event.call)
        on = tuple(self.names.qualified(name) for name in names)
        self._loads.append(Load(len(self._loads), do, on, at, call, found or {}))
