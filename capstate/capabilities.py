"""What exists: tools, capability groups, the catalog.

A tool is an exact definition, never a name: its fingerprint covers everything that authority or the model
depends on. Values are immutable and carry their fingerprint, so comparing two of them is cheap.

Not here: whether anybody may call a tool (:mod:`capstate.authority`) or loaded it (:mod:`capstate.surface`).

>>> git = Group("git", [Tool("log", effect="read"), Tool("push")])
>>> [d.qualified for d in git.definitions.values()]
['git/log', 'git/push']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from operator import attrgetter
from types import NoneType
from typing import Any, Literal

import orjson
from attrs import field, frozen

from capstate.digest import Domain, canonical, check_text, encode, fingerprint, fingerprints
from capstate.errors import InvalidInputError
from capstate.names import NameRule

__all__ = ["Catalog", "Definition", "Group", "NameRule", "Tool", "ToolEffect"]


ToolEffectName = Literal["read", "external"]


class ToolEffect(StrEnum):
    """What running a tool may change."""

    READ = "read"
    EXTERNAL = "external"
    """Anything else; what nobody declared is external."""


def _name(place: str, value: object, *, slash: bool = True) -> str:
    if not isinstance(value, str) or not value or value == "*" or (not slash and "/" in value):
        raise InvalidInputError(place, "a non-empty name other than '*'" + ("" if slash else ", without '/'"), value)
    return check_text(value, place)


@frozen(init=False, eq=False, slots=False)
class Tool:
    """One tool as its source defines it. Equal when the canonical definition is.

    Args:
        name: the bare name, unique in its group: ``log`` of the group ``git``, which rules call ``git/log``. It may
            hold ``/`` as some sources' names do (the group may not): ``git/log`` in ``git`` would be ``git/git/log``.
        schema: JSON Schema of the arguments.
        needs: ids of further groups that must be up for the tool to work; a set, its order means nothing.
        effect: ``external`` unless declared ``read``.
        idempotent: a repeat under the same operation id changes nothing more.
        reaches: name of the argument that names an inner tool which the call would reach.
        loads: the tool is a loader: what it reaches need not be loaded.
        wire_name: the name the model must see; by default a function of qualified id and provider.

    Raises:
        InvalidInputError: a name is empty, or a field is of another type or not I-JSON.
    """

    name: str
    effect: ToolEffect
    idempotent: bool
    needs: tuple[str, ...]
    """In order of code points."""
    reaches: str | None
    loads: bool
    wire_name: str | None
    encoded: bytes = field(repr=False)
    """The canonical definition: the bytes that the fingerprint covers."""
    _bound: dict[tuple[str, str | None], Definition] = field(factory=dict, init=False, repr=False)
    """Its definition by group and server, made once."""

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        schema: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        effect: ToolEffectName | ToolEffect = "external",
        idempotent: bool = False,
        needs: Sequence[str] | AbstractSet[str] = (),
        reaches: str | None = None,
        loads: bool = False,
        wire_name: str | None = None,
    ) -> None:
        body: dict[str, Any] = {
            "annotations": {} if annotations is None else annotations,
            "description": description,
            "effect": effect,
            "idempotent": idempotent,
            "loads": loads,
            "name": name,
            "needs": needs,
            "reaches": reaches,
            "schema": _NO_ARGUMENTS if schema is None else schema,
            "wire_name": wire_name,
        }
        if [*map(type, body.values())] != _PLAIN or needs or effect not in _EFFECTS or name in _NO_NAMES:
            _settle(body)
        known = _EFFECTS[body["effect"]]
        encoded = _encoded(body, name)
        self.__attrs_init__(name, known, idempotent, tuple(body["needs"]), reaches, loads, wire_name, encoded)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tool) and self.encoded == other.encoded

    def evolve(self, **changes: Any) -> Tool:  # noqa: ANN401 - each argument has its own kind
        """Return this tool with some of the constructor's arguments changed; ``attrs.evolve`` cannot.

        >>> Tool("log", effect="read").evolve(name="blame").effect.value
        'read'

        Raises:
            InvalidInputError: as the constructor.
        """
        return Tool(**{**orjson.loads(self.encoded), **changes})

    __replace__ = evolve

    def __hash__(self) -> int:
        return hash(self.encoded)

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


@frozen(eq=False, slots=False, repr=False)
class Definition:
    """A tool in its group: what a grant may pin and a surface is a set of. Equal when the fingerprint is.

    >>> Group("git", [Tool("log", effect="read")]).definitions["log"]
    <Definition git/log read b3:08752709>

    Attributes:
        group: id of the group.
        server: the source that lists it, if that has an identity of its own.
        tool: the tool itself.
        fingerprint: covers group, server and all of the tool.
    """

    group: str
    server: str | None
    tool: Tool
    fingerprint: str

    def __repr__(self) -> str:
        server = "" if self.server is None else f" server={self.server!r}"
        return f"<Definition {self.qualified} {self.tool.effect}{server} {self.fingerprint[:_SHORT]}>"

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


_SHORT = len("b3:") + 8
"""Enough of a fingerprint to tell two definitions apart by eye."""
_EFFECTS = {str(effect): effect for effect in ToolEffect}
_NO_ARGUMENTS: dict[str, Any] = {"properties": {}, "type": "object"}
_NO_NAMES = ("", "*")
_OBJECT = (dict, Mapping)  # the first is found faster
_TEXT_OR_NONE = (str, NoneType)
_PLAIN = [dict, str, str, bool, bool, str, tuple, NoneType, dict, NoneType]
"""Types of the fields of a definition that needs no second look, in their order."""
_FIELDS: tuple[tuple[str, Any, str], ...] = (
    ("annotations", _OBJECT, "an object"),
    ("description", str, "text"),
    ("effect", str, "'read' or 'external'"),
    ("idempotent", bool, "True or False"),
    ("loads", bool, "True or False"),
    ("needs", (tuple, list, AbstractSet), "a list of group ids"),
    ("reaches", _TEXT_OR_NONE, "text or None"),
    ("schema", _OBJECT, "an object"),
    ("wire_name", _TEXT_OR_NONE, "text or None"),
)


def _settle(body: dict[str, Any]) -> None:
    """Check what is not plainly right, and bring what is right into the one form of the definition."""
    place = f"tool {body['name']!r}"
    _name(place, body["name"])
    for key, kinds, expected in _FIELDS:
        if not isinstance(body[key], kinds):
            raise InvalidInputError(f"{place}.{key}", expected, body[key])
    if body["effect"] not in _EFFECTS:
        raise InvalidInputError(f"{place}.effect", "'read' or 'external'", body["effect"])
    body["effect"] = str(body["effect"])
    body["needs"] = sorted({_name(f"{place}.needs", needed, slash=False) for needed in body["needs"]})
    for key in ("annotations", "schema"):
        body[key] = dict(body[key])


def _encoded(body: dict[str, Any], name: str) -> bytes:
    try:
        return canonical(body, nulls=(body["reaches"] is None) + (body["wire_name"] is None))
    except InvalidInputError as error:
        raise InvalidInputError(f"tool {name!a}", error.expected, error.got) from error


def _definitions(group: str, server: str | None, tools: Iterable[Tool]) -> list[Definition]:
    prefix = b"" if server is None else b"\x00" + server.encode()
    print_of = fingerprints(Domain.TOOL, group.encode(), prefix)
    key = (group, server)
    made: list[Definition] = []
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise InvalidInputError(f"group {group!r}.tools", "a list of tools", tools)
    for tool in tools:
        if not isinstance(tool, Tool):
            raise InvalidInputError(f"group {group!r}.tools[{len(made)}]", "a tool", tool)
        bound = tool._bound  # noqa: SLF001 - its own memo
        definition = bound.get(key)
        if definition is None:
            definition = bound[key] = Definition(group, server, tool, print_of(tool.encoded))
        made.append(definition)
    return made


@frozen(init=False, eq=False)
class Group:
    """A named set of tools that is loaded, granted or lost together.

    Args:
        id: without ``/``.
        tools: in any order. Two different tools of one name are a conflict: both are withheld.
        server: the source that lists them, if it has an identity of its own.
        up: False for a group that is known but cannot be used now.

    Raises:
        InvalidInputError: the id is empty or holds ``/``, or something else than a tool was given.
    """

    id: str
    server: str | None
    """None also for a group that several servers list."""
    up: bool
    definitions: Mapping[str, Definition] = field(repr=False)
    """By name, sorted; of a conflicting name the definition with the least fingerprint."""
    rivals: tuple[Definition, ...] = field(repr=False)
    """The other definitions of conflicting names, in order of name, then fingerprint."""
    conflicts: frozenset[str] = field(repr=False)
    """Names that more than one definition claims."""
    needs: tuple[str, ...] = field(repr=False)
    """Every further group that some tool of this one needs."""
    fingerprint: str
    """Covers every definition, in any order of arrival; not ``up``."""

    def __init__(self, id: str, tools: Iterable[Tool] = (), *, server: str | None = None, up: bool = True) -> None:  # noqa: A002 - the word of the design
        place = f"group {id!r}"
        _name(place, id, slash=False)
        if server is not None:
            check_text(server, f"{place}.server")
        if not isinstance(up, bool):
            raise InvalidInputError(f"{place}.up", "True or False", up)
        self._fill(id, server, up, _definitions(id, server, tools))

    @classmethod
    def united(cls, groups: Iterable[Group]) -> Group:
        """Return the one group that ``groups``, all of one id, stand for: up only if each of them is."""
        parts = list(groups)
        made = [definition for part in parts for definition in (*part.definitions.values(), *part.rivals)]
        servers = {part.server for part in parts}
        group = cls.__new__(cls)
        server = servers.pop() if len(servers) == 1 else None
        group._fill(parts[0].id, server, all(part.up for part in parts), made)  # noqa: SLF001 - its own kind
        return group

    def evolve(self, **changes: Any) -> Group:  # noqa: ANN401 - each argument has its own kind
        """Return this group with some of the constructor's arguments changed; ``attrs.evolve`` cannot.

        >>> Group("git", [Tool("log")]).evolve(up=False).definitions.keys()
        dict_keys(['log'])

        Raises:
            InvalidInputError: as the constructor.
        """
        tools = [definition.tool for definition in (*self.definitions.values(), *self.rivals)]
        return Group(**{"id": self.id, "tools": tools, "server": self.server, "up": self.up, **changes})

    __replace__ = evolve

    def _fill(self, id: str, server: str | None, up: bool, made: list[Definition]) -> None:  # noqa: A002, FBT001 - private
        made.sort(key=attrgetter("tool.name"))
        definitions = {d.tool.name: d for d in made}
        rivals: dict[str, Definition] = {}
        if len(definitions) < len(made):
            made.sort(key=lambda d: (d.tool.name, d.fingerprint))
            definitions = {d.tool.name: d for d in reversed(made)}
            definitions = dict(reversed(definitions.items()))
            rivals = {d.fingerprint: d for d in made if d.fingerprint != definitions[d.tool.name].fingerprint}
        covered = [d.fingerprint for d in definitions.values()]
        self.__attrs_init__(
            id,
            server,
            up,
            definitions,
            tuple(rivals.values()),
            frozenset(d.tool.name for d in rivals.values()),
            tuple(sorted({needed for d in made if d.tool.needs for needed in d.tool.needs})),
            fingerprint(Domain.GROUP, id.encode(), encode([*covered, *rivals])),
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Group) and (self.fingerprint, self.up) == (other.fingerprint, other.up)
        )

    def __hash__(self) -> int:
        return hash((self.fingerprint, self.up))


@frozen(eq=False)
class Catalog:
    """All groups that exist now, by id. Groups of one id are one group, up only if each of them is.

    Attributes:
        groups: by id, in order.
    """

    groups: Mapping[str, Group]

    @classmethod
    def of(cls, groups: Iterable[Group]) -> Catalog:
        """Collect ``groups``, in any order.

        Raises:
            InvalidInputError: something else than a :class:`Group` was given.
        """
        found: dict[str, list[Group]] = {}
        for group in groups:
            if not isinstance(group, Group):
                raise InvalidInputError("catalog", "capability groups", group)
            found.setdefault(group.id, []).append(group)
        return cls({id_: found[id_][0] if len(found[id_]) == 1 else Group.united(found[id_]) for id_ in sorted(found)})

    def find(self, qualified: str) -> Definition | None:
        """Return the definition of ``group/name``, or None; conflicting names included."""
        group, _, name = qualified.partition("/")
        return self.groups[group].definitions.get(name) if group in self.groups else None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Catalog) and self.groups == other.groups)

    def __hash__(self) -> int:
        return hash(tuple(self.groups.values()))
