"""What a request body makes callable: its definitions, additions and removals, replayed in their order.

The rules, the same for every API:

- a definition in the top-level list is *immediate*, unless it is marked as deferred;
- a deferred definition, or one that stands in the conversation, is *deferred* at the first place that loads it;
- a deferred definition that nothing loads is *unloaded*, and counts as callable: a search may load it;
- a typed removal takes the name away, also from the immediate ones; a later addition brings it back at its place;
- a removal that the provider ignores takes nothing away, and an addition that it ignores still counts;
- all definitions of a name count, wherever they stand and whether or not the name was removed;
- prose takes nothing away: while the definition is on the wire the name is *withdrawn* and still callable;
- masks and choices (``tool_choice``) take nothing away: a provider may treat them as a hint;
- where a form can be read in two ways, the one that makes more callable is taken.

A placeholder is a deferred definition that some agents send so that a provider accepts a request whose other
tools all come later. Nothing refers to it, it does nothing, and so it is no tool. The exception is only for
the exact name of a plain function *and* only while the definition is deferred and nothing loads it, or could by a
search of the provider's; else it would be a hiding place.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import frozen

from capstate.projection import OnWire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SERVERS = frozenset({"mcp_toolset", "mcp_server"})
"""Types of the definitions that stand for a connected server."""
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
        self._others: dict[str, list[Mapping[str, Any]]] = {}
        self._removed: dict[str, Callable[[], object]] = {}
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
        self._removed.pop(name, None)
        if name not in self._definitions:
            self._referenced[name] = None
        elif name not in self._immediate:
            self._waiting.pop(name, None)
            self._deferred.setdefault(name, place)

    def remove(self, name: str, *, server: bool = False) -> None:
        """Take a typed removal of one tool that the request defines, or of a whole server that lists its own."""
        if (self._definitions.get(name, {}).get("type") in SERVERS) is not server:
            return
        if name in self._immediate:
            del self._immediate[name]
            self._removed[name] = partial(self._immediate.setdefault, name)
        elif name in self._deferred:
            self._removed[name] = partial(self._deferred.setdefault, name, self._deferred.pop(name))
        elif name in self._waiting:
            del self._waiting[name]
            self._removed[name] = partial(self._waiting.setdefault, name)

    def restore(self) -> None:
        """Take back all removals: the provider ignores the messages in which they stand."""
        for bring_back in self._removed.values():
            bring_back()
        self._removed.clear()

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
        searched = any(str(d.get("type")).startswith("tool_search") for d in self._definitions.values())
        unloaded = tuple(n for n in self._waiting if searched or n not in PLACEHOLDERS or not self._is_plain(n))
        callable_now = {*self._immediate, *self._deferred, *unloaded}
        return OnWire(
            immediate=tuple(self._immediate),
            deferred=dict(self._deferred),
            definitions=dict(self._definitions),
            others={name: tuple(found) for name, found in self._others.items()},
            referenced=tuple(n for n in self._referenced if n not in self._definitions),
            unloaded=unloaded,
            withdrawn=tuple(n for n in self._withdrawn if n in callable_now),
            unknown=dict(sorted(self.unknown.items())),
        )

    def _is_plain(self, name: str) -> bool:
        """Whether every definition of ``name`` is a plain function: one that the provider runs is no placeholder."""
        found = (self._definitions[name], *self._others.get(name, ()))
        return all("type" not in definition and "keys" not in definition for definition in found)

    def _define(self, name: str, definition: Mapping[str, Any]) -> None:
        callable_now = name in self._immediate or name in self._deferred or name in self._waiting
        if callable_now and not _same(self._definitions[name], definition):
            self.unknown[f"second definition of {name}"] += 1
        if name in self._definitions:
            self._others.setdefault(name, []).append(self._definitions[name])
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


def further(seen: Replay, tool: Mapping[str, Any], known: frozenset[str]) -> list[str] | None:
    """Return the keys of a definition that may change what is callable or by whom; unknown ones are counted.

    Args:
        seen: counts them.
        tool: the definition as sent; null is the same as absent.
        known: keys that are read elsewhere, or change neither.
    """
    found = []
    for key, value in tool.items():
        if value is None or key in known or (key == "allowed_callers" and value == ["direct"]):
            continue
        if key != "allowed_callers":
            seen.unknown[f"tool key {key}"[:80]] += 1
        found.append(str(key))
    return sorted(found) or None
