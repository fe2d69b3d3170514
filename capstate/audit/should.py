"""The right projection at one place of a recording, from the loads that its file names.

This is the whole of the audit's own derivation, one function, so that the core can take its place. It knows wire
names and no definitions: a definition that is not the one that was marked comes in as ``changed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from attrs import evolve, field, frozen

from capstate.agents.pi.events import Event, EventKind
from capstate.errors import Reason


@frozen
class Should:
    """Where each callable tool belongs, and why each other one is withheld.

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


@frozen
class _Wish:
    loaded: bool
    mark: str | None = None
    place: int = 0
    open: bool = False
    """A marking load may still give it a mark: it has none, or the agent's removal ended it."""


def derive(
    events: Sequence[Event],
    retained: AbstractSet[str],
    *,
    resident: Iterable[str],
    names: Iterable[str],
    exists: Callable[[str], bool],
    available: Callable[[str], bool],
    authorised: Callable[[str], bool] | None,
    defers: bool,
    needs_immediate: bool = False,
    changed: AbstractSet[str] = frozenset(),
) -> Should:
    """Derive the projection.

    Args:
        events: loads, unloads and removals on the path, in order.
        retained: ids of the entries that the model still sees.
        resident: what configuration loads, everywhere.
        names: further names to account for (registered, on the wire, of a group).
        exists: whether the catalog has the tool.
        available: whether its group is up and it is registered.
        authorised: None if nobody knows who may; then nothing is withheld for that.
        defers: whether the provider can place a definition at its mark.
        needs_immediate: whether the provider refuses a request whose every tool is deferred.
        changed: names whose definition is not the one that was marked.
    """
    wishes = _wishes(events, resident)
    loaded = frozenset(n for n, w in wishes.items() if w.loaded)
    withheld: dict[str, Reason] = {}
    immediate: list[str] = []
    deferred: list[tuple[int, str, str]] = []
    for name in sorted({*names, *wishes}):
        if not exists(name):
            withheld[name] = Reason.UNKNOWN_TOOL
        elif authorised is not None and not authorised(name):
            withheld[name] = Reason.NOT_AUTHORISED
        elif not available(name):
            withheld[name] = Reason.RESOURCE_UNAVAILABLE
        elif name not in loaded:
            withheld[name] = Reason.NOT_LOADED
        else:
            wish = wishes[name]
            if defers and wish.mark is not None and wish.mark in retained and name not in changed:
                deferred.append((wish.place, name, wish.mark))
            else:
                immediate.append(name)
    if needs_immediate and not immediate:
        immediate, deferred = sorted(name for _, name, _ in deferred), []
    return Should(tuple(immediate), {n: mark for _, n, mark in sorted(deferred)}, withheld, loaded)


def _wishes(events: Sequence[Event], resident: Iterable[str]) -> dict[str, _Wish]:
    wishes = {name: _Wish(loaded=True) for name in resident}
    for place, event in enumerate(events):
        for name in event.names:
            before = wishes.get(name, _Wish(loaded=False))
            if event.kind is EventKind.UNLOAD:
                wishes[name] = _Wish(loaded=False)
            elif event.kind is EventKind.REMOVAL:
                if before.loaded:
                    wishes[name] = evolve(before, mark=None, open=True)
            elif not before.loaded or (event.marks and before.open):
                mark = event.entry if event.marks else None
                wishes[name] = _Wish(loaded=True, mark=mark, place=place, open=not event.marks)
    return wishes
