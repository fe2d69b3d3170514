"""What a request body makes callable: its definitions, additions and removals, replayed in their order.

The rules, the same for every API:

- a definition in the top-level list is *immediate*, unless it is marked as deferred;
- a deferred definition, or one that stands in the conversation, is *deferred* at the first place that loads it;
- a deferred definition that nothing loads is *unloaded*, and counts as callable: a search may load it;
- a typed removal takes the name away, also from the immediate ones; a later addition brings it back at its place;
- prose takes nothing away: while the definition is on the wire the name is *withdrawn* and still callable;
- masks and choices (``tool_choice``) take nothing away: a provider may treat them as a hint;
- where a form can be read in two ways, the one that makes more callable is taken.

A placeholder is a deferred definition that some agents send so that a provider accepts a request whose other
tools all come later. Nothing refers to it, it does nothing, and so it is no tool. The exception is only for
the exact name *and* only while the definition is deferred and nothing loads it; else it would be a hiding place.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from attrs import frozen

from capstate.projection import OnWire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PLACEHOLDERS = frozenset({"__pi_deferred_placeholder__"})


@frozen
class LoadPoint:
    """One place of a native history at which tools become callable.

    Attributes:
        index: position in the history of the message or item that carries it.
        item: its form: ``tool_reference``, ``tool_addition``, ``tool_search_output``, ``additional_tools``,
            ``system_tools``.
        names: wire names, in order.
        call: id of the call in whose result it stands, or whose result it directly follows; None if neither.
        place: as in :attr:`capstate.projection.OnWire.deferred`.
    """

    index: int
    item: str
    names: tuple[str, ...]
    call: str | None
    place: str


class Replay:
    """Collects one body. Not shared, not kept: made for one reading."""

    def __init__(self) -> None:
        self.points: list[LoadPoint] = []
        self.unknown: Counter[str] = Counter()
        self._immediate: dict[str, None] = {}
        self._deferred: dict[str, str] = {}
        self._waiting: dict[str, None] = {}
        self._definitions: dict[str, Mapping[str, Any]] = {}
        self._referenced: dict[str, None] = {}
        self._withdrawn: dict[str, None] = {}

    def offer(self, name: str, definition: Mapping[str, Any], *, deferred: bool) -> None:
        """Take a definition of the top-level list."""
        self._define(name, definition)
        if deferred and name not in self._immediate:
            self._waiting[name] = None
        else:
            self._waiting.pop(name, None)
            self._immediate[name] = None

    def add(self, name: str, definition: Mapping[str, Any], place: str) -> None:
        """Take a definition that stands in the conversation."""
        self._define(name, definition)
        self.load(name, place)

    def load(self, name: str, place: str) -> None:
        """Take a reference to a definition."""
        self._withdrawn.pop(name, None)
        if name not in self._definitions:
            self._referenced[name] = None
        elif name not in self._immediate:
            self._waiting.pop(name, None)
            self._deferred.setdefault(name, place)

    def remove(self, name: str) -> None:
        """Take a typed removal."""
        for known in (self._immediate, self._deferred, self._waiting):
            known.pop(name, None)

    def keys(self, body: Mapping[str, Any], known: frozenset[str]) -> None:
        """Count the keys of a body that may carry tools for all that this version knows."""
        for key, value in body.items():
            if key not in known and value is not None:
                self.unknown[key] += 1

    def hear(self, text: str) -> None:
        """Take text from a system or developer, which may withdraw tools line by line."""
        listing = False
        for line in text.split("\n"):
            if listing and line.startswith("- "):
                self._withdrawn[line[2:].strip()] = None
            else:
                listing = "no longer available" in line

    def point(self, index: int, item: str, names: Iterable[str], call: str | None, place: str) -> None:
        """Note a load point, if it names anything."""
        if found := tuple(names):
            self.points.append(LoadPoint(index, item, found, call, place))

    def result(self) -> OnWire:
        """Return what was collected."""
        unloaded = tuple(n for n in self._waiting if n not in PLACEHOLDERS)
        callable_now = {*self._immediate, *self._deferred, *unloaded}
        return OnWire(
            immediate=tuple(self._immediate),
            deferred=dict(self._deferred),
            definitions=dict(self._definitions),
            referenced=tuple(n for n in self._referenced if n not in self._definitions),
            unloaded=unloaded,
            withdrawn=tuple(n for n in self._withdrawn if n in callable_now),
            unknown=dict(sorted(self.unknown.items())),
        )

    def _define(self, name: str, definition: Mapping[str, Any]) -> None:
        callable_now = name in self._immediate or name in self._deferred or name in self._waiting
        if callable_now and not _same(self._definitions[name], definition):
            self.unknown[f"second definition of {name}"] += 1
        self._definitions[name] = definition


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    try:
        return a == b
    except RecursionError:
        return False


def described(description: object, schema: object, **more: object) -> dict[str, Any]:
    """Return a definition as :attr:`capstate.projection.OnWire.definitions` holds it: only what was sent."""
    parts = {"description": description, "schema": schema, **more}
    return {key: value for key, value in parts.items() if value is not None}


def others(tool: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return what else a definition says: who may call it, examples, and whatever this version does not know."""
    plain = {"allowed_callers": ["direct"]}  # the default, spelt out
    return {
        f"key {key}": value for key, value in tool.items() if key not in known and (key, value) not in plain.items()
    }
