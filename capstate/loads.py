"""What was loaded: the load events of a ledger, which of them count on a path, and what they leave of one tool.

Loading is not granting: a load is a lasting wish, and whether a tool may be called is decided elsewhere. The rules
are ``docs/spec/surface.md`` section 2. The public names are imported from :mod:`capstate.surface`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from attrs import field, frozen

from capstate.grants import check_selector, member


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
        do: load, unload or removal.
        on: selectors of the tools that it covers.
        at: id of its transcript entry.
        call: id of the call whose result is that entry.
        definitions: of a load, fingerprint by qualified id of what it found.

    Raises:
        InvalidInputError: the kind or a selector is none.
    """

    sequence: int
    do: LoadKind
    on: tuple[str, ...]
    at: str | None = None
    call: str | None = None
    definitions: Mapping[str, str] = field(factory=dict, hash=False, repr=False)

    def __attrs_post_init__(self) -> None:
        place = f"load event {self.sequence!r}"
        object.__setattr__(self, "do", member(LoadKind, self.do, f"{place}.do"))
        object.__setattr__(self, "on", tuple(check_selector(on, f"{place}.on") for on in self.on))

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
            loaded, mark = False, None
        elif loaded:
            removed, mark = True, None
    return loaded, mark
