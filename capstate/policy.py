r"""The policy file: what a person writes down about an agent's tools, in TOML.

Names are wire names. A selector is a name, ``group/name`` or ``group/*``; without a ``[groups]`` entry a group is
the wire prefix ``group__``. Reading a policy grants nothing in a runtime by itself: a host passes it as a source.

>>> parse('allow = ["git/*"]\ndeny = ["push"]\n[groups]\ngit = ["log", "push"]').effect("log")
'allow'
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from capstate.errors import InvalidInputError
from capstate.grants import Limits, is_name, is_selector

_SELECTORS = ("resident", "allow", "ask", "deny")
_TOOLS = ("loaders", "unloaders")
_END = 2**53
_DEFERS = ("", "tool_reference", "tool_search", "additional_tools", "system_tools")


@frozen
class Provider:
    """What the wire is like, as far as the file says; None where it does not.

    Attributes:
        provider: who answers; where no ``api`` is given, the name by which ``project`` finds it.
        api: restricts what the table says to this API.
        model: restricts what the table says to this model.
        account: for a host that makes an issuer of this; no file of an agent names one.
        defers: how the API defers tools; empty for not at all.
        needs_immediate: whether the API refuses a request whose every tool is deferred.
    """

    provider: str | None = None
    api: str | None = None
    model: str | None = None
    account: str | None = None
    defers: str | None = None
    needs_immediate: bool | None = None


@frozen
class Policy:
    """A policy file, read.

    Attributes:
        resident: selectors of what configuration loads; None if the file does not say.
        loaders: tools whose results load the group that their arguments name.
        unloaders: tools whose results unload the tools that their arguments name.
        allow: None where the file does not say; the file has authority in it if one of the three is given.
        ask: selectors of what a person must approve; None where the file does not say.
        deny: selectors of what may not be called; None where the file does not say.
        groups: names of each group, in the order of the file.
        down: groups that cannot be used now.
        limits: what a host passes on to a session; an audit counts nothing against it.
        provider: what the wire is like.
    """

    resident: tuple[str, ...] | None = None
    loaders: frozenset[str] = frozenset()
    unloaders: frozenset[str] = frozenset()
    allow: tuple[str, ...] | None = None
    ask: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    groups: Mapping[str, tuple[str, ...]] = field(factory=dict)
    down: frozenset[str] = frozenset()
    limits: Limits = field(factory=Limits)
    provider: Provider = Provider()
    _by_name: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        by_name: dict[str, tuple[str, ...]] = {}
        for group, names in self.groups.items():
            for name in names:
                by_name[name] = (*by_name.get(name, ()), group)
        object.__setattr__(self, "_by_name", by_name)

    @property
    def authoritative(self) -> bool:
        """Whether the file says who may call what."""
        return not (self.allow is None and self.ask is None and self.deny is None)

    def groups_of(self, name: str) -> tuple[str, ...]:
        """Return the groups that list the wire name ``name``."""
        return self._by_name.get(name, ())

    def effect(self, name: str) -> str | None:
        """Return ``"deny"``, ``"ask"`` or ``"allow"`` for a wire name; None if nothing covers it."""
        for effect, selectors in (("deny", self.deny), ("ask", self.ask), ("allow", self.allow)):
            if any(self.covers(selector, name) for selector in selectors or ()):
                return effect
        return None

    def covers(self, selector: str, name: str) -> bool:
        """Whether ``selector`` means the wire name ``name``."""
        group, slash, tool = selector.partition("/")
        if not slash:
            return selector == name
        if tool == "*":
            return name in self.groups.get(group, ()) or name.startswith(f"{group}__")
        return name == f"{group}__{tool}" or (name == tool and tool in self.groups.get(group, ())) or selector == name

    def expand(self, selectors: Iterable[str]) -> tuple[str, ...]:
        """Return the wire names that ``selectors`` mean, each once, in order."""
        found: dict[str, None] = {}
        for selector in selectors:
            group, _, tool = selector.partition("/")
            found.update(dict.fromkeys(self.groups.get(group, ()) if tool == "*" else (self.wire(selector),)))
        return tuple(found)

    def wire(self, selector: str) -> str:
        """Return the wire name of a name or of ``group/name``."""
        group, slash, tool = selector.partition("/")
        if not slash:
            return selector
        return tool if tool in self.groups.get(group, ()) else f"{group}__{tool}"

    def is_down(self, name: str) -> bool:
        """Whether a group of the wire name ``name`` is down."""
        prefix = name.partition("__")[0] if "__" in name else None
        return prefix in self.down or any(group in self.down for group in self.groups_of(name))


def read_policy(path: Path | str) -> Policy:
    """Read the policy file at ``path``.

    Raises:
        InvalidInputError: it cannot be read, is no TOML, or has a key or value that is not known; all faults of
            the file stand in one error.
    """
    given: object = path
    if not isinstance(given, (str, os.PathLike)) or not os.fspath(given):
        raise InvalidInputError("policy", "the path of a policy file", path)
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(str(path), "UTF-8", str(error)) from error
    except (OSError, ValueError) as error:
        got = "a folder" if isinstance(error, IsADirectoryError) else getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(str(path), "a policy file that can be read", got) from error
    return parse(text, place=str(path))


def parse(text: str, *, place: str = "policy") -> Policy:
    """Read the text of a policy file; raises as :func:`read_policy`."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInputError(place, "TOML", str(error)) from error
    reader = _Reader(document)
    policy = reader.policy()
    if reader.faults:
        where, expected, got = reader.faults[0]
        if len(reader.faults) == 1:
            raise InvalidInputError(f"{place}: {where}", expected, got)
        told = "; ".join(f"{w}: expected {e}, got {g!r}" for w, e, g in reader.faults)
        raise InvalidInputError(place, f"a policy without {len(reader.faults)} faults", told)
    return policy


class _Reader:
    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.faults: list[tuple[str, str, object]] = []

    def policy(self) -> Policy:
        self._unknown("", self.document, (*_SELECTORS, *_TOOLS, "groups", "resources", "limits", "provider"))
        selectors = {k: self._names(k, self.document.get(k), selector=True) for k in _SELECTORS}
        tools = {k: self._names(k, self.document.get(k)) or () for k in _TOOLS}
        groups = {
            group: self._names(f"groups.{group}", names) or ()
            for group, names in self._table("groups").items()
            if self._group(f"groups.{group}", group)
        }
        resources = self._table("resources")
        for group, state in resources.items():
            self._check(f"resources.{group}", state, "'up' or 'down'", lambda v: v in ("up", "down"))
        return Policy(
            resident=selectors["resident"],
            loaders=frozenset(tools["loaders"]),
            unloaders=frozenset(tools["unloaders"]),
            allow=selectors["allow"],
            ask=selectors["ask"],
            deny=selectors["deny"],
            groups=groups,
            down=frozenset(group for group, state in resources.items() if state == "down"),
            limits=Limits(**self._limits()),
            provider=Provider(**self._provider()),
        )

    def _limits(self) -> dict[str, int]:
        table = self._known("limits", ("calls", "cost", "concurrency"))
        expected = "a whole number, 0 or more"
        return {k: v for k, v in table.items() if self._check(f"limits.{k}", v, expected, _is_amount)}

    def _provider(self) -> dict[str, Any]:
        table = self._known("provider", ("provider", "api", "model", "account", "defers", "needs_immediate"))
        found = {}
        for key, value in table.items():
            expected, test = "a text", _is_text
            if key == "needs_immediate":
                expected, test = "true or false", _is_bool
            elif key == "defers":
                expected, test = "one of " + ", ".join(map(repr, _DEFERS)), _is_defers
            if self._check(f"provider.{key}", value, expected, test):
                found[key] = value
        return found

    def _known(self, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
        table = self._table(name)
        self._unknown(f"{name}.", table, keys)
        return {k: v for k, v in table.items() if k in keys}

    def _table(self, name: str) -> dict[str, Any]:
        value = self.document.get(name, {})
        return value if self._check(name, value, "a table", lambda v: isinstance(v, dict)) else {}

    def _unknown(self, prefix: str, table: Mapping[str, object], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                self.faults.append((f"{prefix}{key}", "one of the keys " + ", ".join(known), "an unknown key"))

    def _names(self, place: str, value: object, *, selector: bool = False) -> tuple[str, ...] | None:
        if value is None or not self._check(place, value, "a list of names", lambda v: isinstance(v, list)):
            return None
        found: dict[str, None] = {}
        for i, name in enumerate(value if isinstance(value, list) else ()):
            expected = "a name, group/name or group/*" if selector else "a name"
            if self._check(f"{place}[{i}]", name, expected, _is_selector if selector else is_name):
                found[name] = None
        return tuple(found)

    def _group(self, place: str, group: str) -> bool:
        return self._check(place, group, "a group name without '/'", lambda v: is_name(v) and "/" not in v)

    def _check(self, place: str, value: object, expected: str, test: Callable[[Any], bool]) -> bool:
        if test(value):
            return True
        self.faults.append((place, expected, value))
        return False


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_amount(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _END


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_defers(value: object) -> bool:
    return isinstance(value, str) and value in _DEFERS


def _is_selector(value: object) -> bool:
    return value != "*" and (is_selector(value) or (is_name(value) and "/" not in str(value)))
