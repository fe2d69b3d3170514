"""What happened to tools on a path: loads, unloads, and removals that the agent made by itself.

A load is what a tool did: a result that carries names (``addedToolNames``), a system message that carries them
right after results (``toolsAdded``), or a result of a declared loader, whose arguments name a group. The start
set, a reload, a late registration and tools that a path never mentioned are the agent's own doing and no load.

The entry that carries the names is the mark. A loader's result without names loads, and marks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from attrs import frozen

from capstate.agents.lines import decode
from capstate.agents.pi.entries import Entry, Said
from capstate.agents.pi.session import boundary

if TYPE_CHECKING:
    from capstate.policy import Policy

_SEPARATORS = re.compile(r"[,;\n]")


class EventKind(StrEnum):
    """What an event does."""

    LOAD = "load"
    UNLOAD = "unload"
    REMOVAL = "removal"
    """The agent took the tools out by itself: the mark ends, the wish stays."""


@frozen
class Event:
    """One event on a path.

    Attributes:
        entry: id of the transcript entry.
        marks: the entry carries the names, so that a provider can show them there.
        call: id of the call whose result the entry is; None for any other entry.
    """

    kind: EventKind
    entry: str
    names: tuple[str, ...]
    marks: bool = False
    call: str | None = None


@frozen
class _Result:
    said: Said
    words: tuple[str, ...]


def events(path: Sequence[Entry], policy: Policy) -> list[Event]:
    """Return the events of ``path``, in order. Raises nothing."""
    return list(EventReader(policy).follow(path))


def recorded(path: Sequence[Entry]) -> frozenset[str] | None:
    """Return the active set that the agent itself recorded at the end of ``path``; None if it records none."""
    active: frozenset[str] | None = None
    for e in path:
        active = record_after(active, e)
    return active


def record_after(active: frozenset[str] | None, e: Entry) -> frozenset[str] | None:
    """Return the recorded active set after one more entry."""
    if e.active is not None:
        active = frozenset(e.active)
    for said in (e.checkpoint, e.said):
        if said is not None and said.role == "system" and (said.added or said.removed):
            before = frozenset() if active is None or said is e.checkpoint else active
            active = before - frozenset(said.removed) | frozenset(said.added)
    return active


class EventReader:
    """Reads events along one path; goes on where it stopped when the path grew."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.calls: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.results: list[_Result] = []
        self.running = False
        self.active: set[str] | None = None
        self.loaded: set[str] = set()

    def follow(self, path: Sequence[Entry], start: int = 0) -> Iterator[Event]:
        """Yield the events of ``path`` from ``start`` on; what stands before was followed already."""
        for i in range(start, len(path)):
            e = path[i]
            if e.tail:
                for said in boundary(path[: i + 1]).strays:
                    yield from self._message(e.id, said)
            if e.active is not None:
                yield from self._active(e)
            if e.said is not None and e.type == "message":
                yield from self._message(e.id, e.said)

    def _message(self, at: str, said: Said) -> Iterator[Event]:
        if said.role == "assistant":
            self.results, self.running = [], bool(said.calls)
            self.calls.update((c.id, (c.tool, c.words)) for c in said.calls)
        elif said.role == "toolResult":
            yield from self._result(at, said)
        elif said.role == "system":
            yield from self._system(at, said)
        else:
            self.results, self.running = [], False

    def _result(self, at: str, said: Said) -> Iterator[Event]:
        tool, words = self.calls.get(said.call, (said.tool, ()))
        tool = said.tool or tool
        self.results.append(_Result(said, words))
        if not said.is_error and tool in self.policy.unloaders:
            yield Event(EventKind.UNLOAD, at, self._unloaded(words), call=said.call)
        if not said.is_error and tool in self.policy.loaders:
            yield from self._load(at, self._members(words), said.call, marks=False)
        if said.added:
            yield from self._load(at, said.added, said.call, marks=True)

    def _system(self, at: str, said: Said) -> Iterator[Event]:
        if said.removed:
            yield Event(EventKind.REMOVAL, at, said.removed)
        yield from self._load(at, self._by_tools(said.added), None, marks=True)
        if said.added or said.removed:
            self.active = ((self.active or set()) - set(said.removed)) | set(said.added)

    def _active(self, e: Entry) -> Iterator[Event]:
        now = set(e.active or ())
        before = self.active
        gone = ((before or set()) | self.loaded) - now
        if gone:
            yield Event(EventKind.REMOVAL, e.id, tuple(sorted(gone)))
        if before is not None and (self.results or self.running):
            added = tuple(n for n in e.active or () if n not in before)
            yield from self._load(e.id, self._by_tools(added), None, marks=False)
        self.active = now

    def _load(self, at: str, names: Sequence[str], call: str | None, *, marks: bool) -> Iterator[Event]:
        if names:
            self.loaded.update(names)
            yield Event(EventKind.LOAD, at, tuple(names), marks=marks, call=call)

    def _by_tools(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of ``names`` that the results just before account for; the rest the agent added by itself."""
        if not self.results and not self.running:
            return ()
        if not self.policy.loaders:
            return names
        ran = [r for r in self.results if not r.said.is_error and r.said.tool in self.policy.loaders]
        if not ran:
            return ()
        members = {n for r in ran for n in self._members(r.words)}
        return tuple(n for n in names if n in members) if members else names

    def _members(self, words: Sequence[str]) -> tuple[str, ...]:
        groups = self.policy.groups
        tokens = (t.removesuffix("/*") for t in _tokens(words))
        return tuple(dict.fromkeys(n for t in tokens if t in groups for n in groups[t]))

    def _unloaded(self, words: Sequence[str]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for token in _tokens(words):
            found.update(dict.fromkeys(self._members([token])))
            found[self.policy.wire(token)] = None
        return tuple(found)


def _tokens(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        listed = decode(word.encode("utf-8", "replace")) if word.lstrip().startswith("[") else None
        if isinstance(listed, list):
            yield from (t for t in listed if isinstance(t, str))
        else:
            yield from filter(None, (part.strip() for part in _SEPARATORS.split(word)))
