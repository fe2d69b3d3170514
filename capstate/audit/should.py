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
    """The load events of one path; grows with it.

    Events that change nothing, and those of which an unload has ended all that they did, are left out: a derivation
    looks at every event that is here.
    """

    def __init__(self, names: Names, resident: Iterable[str], shown: Shown | None = None) -> None:
        self.names, self.resident = names, frozenset(resident)
        self.shown = Shown() if shown is None else shown
        self.named: set[str] = set()
        """Names that an event showed to exist; that somebody asked to unload one shows nothing."""
        self._read = self._made = 0
        self._loads: dict[int, Load] = {}
        self._live: dict[int, int] = {}
        """By sequence number, of how many names an event may still matter."""
        self._of: dict[str, list[int]] = {}
        """By name, the events since its last unload."""
        self._loaded: set[str] = set()
        self._removed: set[str] = set()
        self._guessed: dict[str, tuple[str, list[int]]] = {}
        """By name: the definition for which marks are taken, and the load events that are; no request showed it yet."""
        self._last: tuple[Surface, Projection] | None = None
        self._load(sorted(self.resident))

    def follow(self, events: Sequence[Event]) -> None:
        """Take the events of the path; what was taken before is not looked at again."""
        for event in events[self._read :]:
            if event.kind is EventKind.UNLOAD:
                self._unload([n for n in event.names if n in self._loaded], event)
                continue
            self.named.update(event.names)
            if event.kind is EventKind.REMOVAL:
                self._remove([n for n in event.names if n in self._loaded and n not in self._removed], event)
            elif event.marks:
                self._load([n for n in event.names if n not in self._loaded or n in self._removed], event)
            else:
                new = [n for n in event.names if n not in self._loaded]
                self._load(new, event)
                self._remove(new, event)
        self._read = len(events)

    def show(self, definitions: Mapping[str, str]) -> None:
        """Take the fingerprints of what a request showed, by name."""
        self.shown.last.update(definitions)
        for name in self._guessed.keys() & definitions.keys():
            for load in self._marks(self._guessed.pop(name)[1]):
                first = self.shown.marked.setdefault((load.at or "", name), definitions[name])
                self._define(load, name, first)

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
        loads = tuple(self._loads.values())
        kept = tuple(load.sequence for load in loads if load.definitions and load.at in retained)
        surface, projection = self._last if self._last is not None else (None, None)
        surface = derive(
            self.names.catalog(names, self.shown.last, registered),
            loads,
            tuple(dict.fromkeys(load.at for load in loads if load.at is not None)),
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
                for load in self._marks(marks):
                    self._define(load, name, self.shown.marked.get((load.at or "", name), last))

    def _marks(self, sequence: Iterable[int]) -> list[Load]:
        return [self._loads[n] for n in sequence if n in self._loads]

    def _define(self, load: Load, name: str, shown: str) -> None:
        found = {self.names.qualified(name): self.names.definition(name, shown).fingerprint}
        self._loads[load.sequence] = evolve(load, definitions={**load.definitions, **found})

    def _load(self, names: list[str], event: Event | None = None) -> None:
        self._loaded.update(names)
        self._removed.difference_update(names)
        found = {}
        for name in names if event is not None and event.marks else ():
            first = self.shown.marked.get((event.entry, name)) if event is not None else None
            last = self.shown.last.get(name, "")
            if first is None:
                self._guessed.setdefault(name, (last, []))[1].append(self._made)
            shown = last if first is None else first
            found[self.names.qualified(name)] = self.names.definition(name, shown).fingerprint
        self._add(LoadKind.LOAD, names, event, found)

    def _remove(self, names: list[str], event: Event) -> None:
        self._removed.update(names)
        self._add(LoadKind.REMOVAL, names, event)

    def _unload(self, names: list[str], event: Event) -> None:
        self._loaded.difference_update(names)
        self._removed.difference_update(names)
        for name in names:
            for n in self._of.pop(name, ()):
                self._live[n] -= 1
                if not self._live[n]:
                    del self._loads[n]
        self._add(LoadKind.UNLOAD, names, event)

    def _add(self, do: LoadKind, names: list[str], event: Event | None, found: Mapping[str, str] | None = None) -> None:
        if not names:
            return
        at, call = (None, None) if event is None else (event.entry, event.call)
        on = tuple(map(self.names.qualified, names))
        self._loads[self._made] = Load(self._made, do, on, at, call, found or {})
        self._live[self._made] = len(names)
        for name in names:
            self._of.setdefault(name, []).append(self._made)
        self._made += 1
