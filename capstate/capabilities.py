"""What exists: tools, capability groups, the catalog, and the wire name each tool has.

A tool is an exact definition, never a name: its fingerprint covers everything that authority or the model
depends on. Values are immutable and carry their fingerprint, so comparing two of them is cheap.

Not here: whether anybody may call a tool (:mod:`capstate.authority`) or loaded it (:mod:`capstate.surface`).

>>> git = Group("git", [Tool("log", effect="read"), Tool("push")])
>>> [d.qualified for d in git.definitions.values()]
['git/log', 'git/push']
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import orjson
from attrs import field, frozen

from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import InvalidInputError


class ToolEffect(StrEnum):
    """What running a tool may change."""

    READ = "read"
    EXTERNAL = "external"
    """Anything else; what nobody declared is external."""


def _name(place: str, value: object, *, slash: bool) -> str:
    if not isinstance(value, str) or not value or value == "*" or (not slash and "/" in value):
        raise InvalidInputError(place, "a non-empty name other than '*'" + ("" if slash else ", without '/'"), value)
    return value


@frozen(init=False)
class Tool:
    """One tool as its source defines it.

    Args:
        name: unique in its group; may hold ``/`` (the group may not).
        schema: JSON Schema of the arguments.
        needs: ids of further groups that must be up for the tool to work.
        effect: ``external`` unless declared ``read``.
        idempotent: a repeat under the same operation id changes nothing more.
        reaches: name of the argument that names an inner tool which the call would reach.
        loads: the tool is a loader: what it reaches need not be loaded.
        wire_name: the name the model must see; by default a function of qualified id and provider.

    Raises:
        InvalidInputError: a name is empty, or a field is not I-JSON.
    """

    name: str
    effect: ToolEffect
    idempotent: bool
    needs: tuple[str, ...]
    reaches: str | None
    loads: bool
    wire_name: str | None
    encoded: bytes = field(repr=False)
    """The canonical definition: the bytes that the fingerprint covers."""

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        schema: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        effect: str = "external",
        idempotent: bool = False,
        needs: Iterable[str] = (),
        reaches: str | None = None,
        loads: bool = False,
        wire_name: str | None = None,
    ) -> None:
        place = f"tool {name!r}"
        _name(place, name, slash=True)
        if effect not in ToolEffect.__members__.values():
            raise InvalidInputError(f"{place}.effect", "'read' or 'external'", effect)
        needed = tuple(sorted(needs))
        body = {
            "annotations": dict(annotations or {}),
            "description": description,
            "effect": str(effect),
            "idempotent": idempotent,
            "loads": loads,
            "name": name,
            "needs": list(needed),
            "reaches": reaches,
            "schema": dict(schema) if schema is not None else {"properties": {}, "type": "object"},
            "wire_name": wire_name,
        }
        self.__attrs_init__(
            name, ToolEffect(effect), idempotent, needed, reaches, loads, wire_name, canonical(body, place=place)
        )

    @property
    def description(self) -> str:
        """The text that the model reads."""
        text: str = orjson.loads(self.encoded)["description"]
        return text

    @property
    def schema(self) -> dict[str, Any]:
        """A fresh copy of the argument schema."""
        schema: dict[str, Any] = orjson.loads(self.encoded)["schema"]
        return schema

    @property
    def annotations(self) -> dict[str, Any]:
        """A fresh copy of the source's own hints; never a source of permission (MCP: untrusted)."""
        hints: dict[str, Any] = orjson.loads(self.encoded)["annotations"]
        return hints


@frozen(eq=False)
class Definition:
    """A tool in its group: what a grant may pin and a surface is a set of. Equal when the fingerprint is."""

    group: str
    server: str | None
    tool: Tool = field(repr=False)
    fingerprint: str

    @property
    def name(self) -> str:
        """The tool's name in its group."""
        return self.tool.name

    @property
    def qualified(self) -> str:
        """``group/name``."""
        return f"{self.group}/{self.tool.name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definition) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


@frozen(init=False, eq=False)
class Group:
    """A named set of tools that is loaded, granted or lost together.

    Args:
        id: without ``/``.
        tools: in any order. Two different tools of one name are a conflict: both are withheld.
        server: the source that lists them, if it has an identity of its own.
        up: False for a group that is known but cannot be used now.

    Raises:
        InvalidInputError: the id is empty or holds ``/``.
    """

    id: str
    server: str | None
    up: bool
    definitions: Mapping[str, Definition] = field(repr=False)
    """By name, sorted; of a conflicting name the definition with the least fingerprint."""
    conflicts: frozenset[str] = field(repr=False)
    """Names that more than one definition claims."""
    needs: tuple[str, ...] = field(repr=False)
    """Every further group that some tool of this one needs."""
    fingerprint: str
    """Covers every definition, in any order of arrival; not ``up``."""

    def __init__(self, id: str, tools: Iterable[Tool] = (), *, server: str | None = None, up: bool = True) -> None:  # noqa: A002 - the word of the design
        _name(f"group {id!r}", id, slash=False)
        prefix = (id.encode(), b"" if server is None else b"\x00" + server.encode())
        made = [Definition(id, server, t, fingerprint(Domain.TOOL, *prefix, t.encoded)) for t in tools]
        self._fill(id, server, up, made)

    def _fill(self, id: str, server: str | None, up: bool, made: list[Definition]) -> None:  # noqa: A002, FBT001 - private
        made.sort(key=lambda d: (d.tool.name, d.fingerprint))
        definitions: dict[str, Definition] = {}
        conflicts = set()
        for d in made:
            kept = definitions.setdefault(d.tool.name, d)
            if kept.fingerprint != d.fingerprint:
                conflicts.add(d.tool.name)
        covered = sorted({d.fingerprint for d in made}) if conflicts else [d.fingerprint for d in definitions.values()]
        needs = tuple(sorted({needed for d in made for needed in d.tool.needs}))
        print_ = fingerprint(Domain.GROUP, id.encode(), orjson.dumps(covered))
        self.__attrs_init__(id, server, up, definitions, frozenset(conflicts), needs, print_)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Group) and (self.fingerprint, self.up) == (other.fingerprint, other.up)
        )

    def __hash__(self) -> int:
        return hash((self.fingerprint, self.up))


@frozen(eq=False)
class Catalog:
    """All groups that exist now, by id. Groups of one id are one group, up only if each of them is."""

    groups: Mapping[str, Group]

    @classmethod
    def of(cls, groups: Iterable[Group]) -> Catalog:
        """Collect ``groups``, in any order.

        Raises:
            InvalidInputError: something else than a :class:`Group` was given.
        """
        found: dict[str, Group] = {}
        for group in groups:
            if not isinstance(group, Group):
                raise InvalidInputError("catalog", "capability groups", group)
            same = found.get(group.id)
            found[group.id] = group if same is None else _merged(same, group)
        return cls(dict(sorted(found.items())))

    def find(self, qualified: str) -> Definition | None:
        """Return the definition of ``group/name``, or None; conflicting names included."""
        group, _, name = qualified.partition("/")
        return self.groups[group].definitions.get(name) if group in self.groups else None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Catalog) and self.groups == other.groups)

    def __hash__(self) -> int:
        return hash(tuple(self.groups.values()))


def _merged(a: Group, b: Group) -> Group:
    merged = Group.__new__(Group)
    merged._fill(a.id, a.server, a.up and b.up, [*a.definitions.values(), *b.definitions.values()])
    lost = (a.conflicts | b.conflicts) - merged.conflicts
    object.__setattr__(merged, "conflicts", merged.conflicts | lost)
    return merged


_CLEAN = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*\Z")


@frozen
class NameRule:
    """The legal tool names of one provider, and the one-to-one name of each qualified id under it.

    ``git/log`` is ``git__log`` where both parts are clean (letters, digits, ``-``, single inner ``_``) and the
    name is legal. Any other id gets its legal characters, ``___`` and sixteen characters of its digest. A clean
    name never holds ``___``, so the two forms cannot meet.

    Args:
        limit: longest name, in characters.
        chars: a regular-expression character set, without brackets.
    """

    limit: int = 64
    chars: str = "A-Za-z0-9_-"

    def legal(self, name: str) -> bool:
        """Whether a provider with this rule takes ``name``."""
        return 0 < len(name) <= self.limit and re.fullmatch(f"[{self.chars}]+", name) is not None

    def name(self, definition: Definition) -> str | None:
        """Return the wire name of ``definition``, or None if it has no legal one."""
        own = definition.tool.wire_name
        if own is not None:
            return own if self.legal(own) else None
        group, tool = definition.group, definition.tool.name
        if _CLEAN.match(group) and _CLEAN.match(tool):
            joined = f"{group}__{tool}"
            if self.legal(joined):
                return joined
        digest = bytes.fromhex(fingerprint(Domain.NAME, group.encode(), tool.encode())[3:])
        tail = "___" + base64.b32encode(digest[:10]).decode().lower()
        head = re.sub(f"[^{self.chars}]", "_", f"{group}_{tool}")[: max(0, self.limit - len(tail))]
        made = head + tail
        return made if self.legal(made) else None
