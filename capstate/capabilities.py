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
from collections.abc import Iterable, Mapping, Sequence, Set
from enum import StrEnum
from types import NoneType
from typing import Any

import orjson
from attrs import field, frozen

from capstate.digest import Domain, canonical, encode, fingerprint, fingerprints
from capstate.errors import InvalidInputError


class ToolEffect(StrEnum):
    """What running a tool may change."""

    READ = "read"
    EXTERNAL = "external"
    """Anything else; what nobody declared is external."""


def _text(place: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(place, "text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(place, "text without lone surrogates", ascii(value)) from None
    return value


def _name(place: str, value: object, *, slash: bool = True) -> str:
    if not isinstance(value, str) or not value or value == "*" or (not slash and "/" in value):
        raise InvalidInputError(place, "a non-empty name other than '*'" + ("" if slash else ", without '/'"), value)
    return _text(place, value)


@frozen(init=False, eq=False, slots=False)
class Tool:
    """One tool as its source defines it. Equal when the canonical definition is.

    Args:
        name: unique in its group; may hold ``/`` (the group may not).
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
    _prints: dict[tuple[str, str | None], str] = field(factory=dict, init=False, repr=False)
    """Its fingerprint by group and server."""

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        schema: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        effect: str = "external",
        idempotent: bool = False,
        needs: Sequence[str] | Set[str] = (),
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
        if not isinstance(name, str) or name in _NO_NAMES:
            _name(f"tool {name!r}", name)
        for key, kinds, expected in _FIELDS:
            if not isinstance(body[key], kinds):
                raise InvalidInputError(f"tool {name!r}.{key}", expected, body[key])
        if effect not in _EFFECTS:
            raise InvalidInputError(f"tool {name!r}.effect", "'read' or 'external'", effect)
        if needs != ():
            body["needs"] = sorted({_name(f"tool {name!r}.needs", needed, slash=False) for needed in needs})
        for key in ("annotations", "schema"):
            if type(body[key]) is not dict:
                body[key] = dict(body[key])
        known = _EFFECTS[effect]
        body["effect"] = known.value
        self.__attrs_init__(
            name, known, idempotent, tuple(body["needs"]), reaches, loads, wire_name, _encoded(body, name)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tool) and self.encoded == other.encoded

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


@frozen(eq=False, slots=False)
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


_EFFECTS = {str(effect): effect for effect in ToolEffect}
_NO_ARGUMENTS: dict[str, Any] = {"properties": {}, "type": "object"}
_NO_NAMES = ("", "*")
_OBJECT = (dict, Mapping)  # the first is found faster
_TEXT_OR_NONE = (str, NoneType)
_FIELDS: tuple[tuple[str, Any, str], ...] = (
    ("annotations", _OBJECT, "an object"),
    ("description", str, "text"),
    ("effect", str, "'read' or 'external'"),
    ("idempotent", bool, "True or False"),
    ("loads", bool, "True or False"),
    ("needs", (tuple, list, Set), "a list of group ids"),
    ("reaches", _TEXT_OR_NONE, "text or None"),
    ("schema", _OBJECT, "an object"),
    ("wire_name", _TEXT_OR_NONE, "text or None"),
)


def _encoded(body: dict[str, Any], name: str) -> bytes:
    try:
        return canonical(body)
    except InvalidInputError as error:
        raise InvalidInputError(f"tool {name!a}", error.expected, error.got) from error


def _definitions(group: str, server: str | None, tools: Iterable[Tool]) -> list[Definition]:
    prefix = b"" if server is None else b"\x00" + server.encode()
    print_of = fingerprints(Domain.TOOL, group.encode(), prefix)
    made: list[Definition] = []
    for tool in tools:
        if not isinstance(tool, Tool):
            raise InvalidInputError(f"group {group!r}.tools[{len(made)}]", "a tool", tool)
        print_ = tool._prints.get((group, server))  # noqa: SLF001 - its own memo
        if print_ is None:
            print_ = tool._prints[group, server] = print_of(tool.encoded)  # noqa: SLF001 - as above
        made.append(Definition(group, server, tool, print_))
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
            _text(f"{place}.server", server)
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

    def _fill(self, id: str, server: str | None, up: bool, made: list[Definition]) -> None:  # noqa: A002, FBT001 - private
        made.sort(key=lambda d: (d.tool.name, d.fingerprint))
        definitions = {d.tool.name: d for d in reversed(made)}
        rivals: dict[str, Definition] = {}
        if len(definitions) == len(made):
            definitions = {d.tool.name: d for d in made}
        else:
            definitions = dict(sorted(definitions.items()))
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
    """All groups that exist now, by id. Groups of one id are one group, up only if each of them is."""

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


_CLEAN = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*\Z")
_SET = re.compile(r"(?!\^)(?!.*(?:--|&&|\|\||~~))(?:[^\[\]\\]|\\[^\n])+")
_ALPHABET = "_abcdefghijklmnopqrstuvwxyz234567"
"""What the end of a made name may consist of; all of it must be legal, so that no name hangs on luck."""
_TAIL = 19  # three underscores and sixteen characters


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
    _pattern: re.Pattern[str] = field(init=False, eq=False, repr=False)
    _has_digests: bool = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        try:
            # Nothing that ends the set: what follows it could be a pattern that never comes to an end.
            pattern = re.compile(f"[{self.chars}]+") if _SET.fullmatch(self.chars) else None
        except re.error:
            pattern = None
        if pattern is None:
            raise InvalidInputError("name rule.chars", "the inside of a regular-expression character set", self.chars)
        object.__setattr__(self, "_pattern", pattern)
        fits = self.limit >= _TAIL and pattern.fullmatch(_ALPHABET) is not None
        object.__setattr__(self, "_has_digests", fits)

    def legal(self, name: str) -> bool:
        """Whether a provider with this rule takes ``name``."""
        return len(name) <= self.limit and self._pattern.fullmatch(name) is not None

    def name(self, definition: Definition) -> str | None:
        """Return the wire name of ``definition``, or None if it has no legal one."""
        tool = definition.tool
        if tool.wire_name is not None:
            return tool.wire_name if self.legal(tool.wire_name) else None
        group, name = definition.group, tool.name
        if _CLEAN.match(group) and _CLEAN.match(name):
            joined = f"{group}__{name}"
            if self.legal(joined):
                return joined
        if not self._has_digests:
            return None
        digest = bytes.fromhex(fingerprint(Domain.NAME, group.encode(), name.encode())[3:])
        head = re.sub(f"[^{self.chars}]", "_", f"{group}_{name}")[: self.limit - _TAIL]
        return f"{head}___{base64.b32encode(digest[:10]).decode().lower()}"
