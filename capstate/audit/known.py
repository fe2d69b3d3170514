"""What a recording knows, in the library's terms: tools and groups behind wire names, and who may.

A wire name is one tool. Its group is the policy's, else its prefix ``group__``, else the one of all others; further
groups that list it are ones that it needs. Its definition is its name and the fingerprint of what the wire showed.
A tool that was not registered needs a group that does not exist: it is known, and cannot be used now.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from capstate.authority import Authority, Effect, Grant, Pool, Source, allow
from capstate.capabilities import Catalog, Definition, Group, Tool
from capstate.grants import is_name

if TYPE_CHECKING:
    from capstate.policy import Policy

_ODD = re.compile(r"[^\w.-]")


class Names:
    """Wire names as tools. What was made once is kept, so that equal catalogs are one value."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._others, self._registry = _free("__others", policy), _free("__registry", policy)
        self._homes: dict[str, tuple[str, ...]] = {}
        self._tools: dict[tuple[str, str, bool], Tool] = {}
        self._last: tuple[object, Catalog] | None = None

    def qualified(self, name: str) -> str:
        """Return the qualified id of a wire name."""
        return f"{self._homes_of(name)[0]}/{_inner(name)}"

    def definition(self, name: str, shown: str = "") -> Definition:
        """Return the definition of a wire name that can be used; ``shown`` is what the wire showed of it."""
        tool = self._tool(name, shown, there=True)
        return Group(self._homes_of(name)[0], [tool]).definitions[tool.name]

    def catalog(
        self, names: AbstractSet[str], shown: Mapping[str, str], registered: AbstractSet[str] | None
    ) -> Catalog:
        """Return the catalog of ``names``; of those not ``registered`` (None: nobody knows) none can be used."""
        known = {n: (shown.get(n, ""), registered is None or n in registered) for n in names}
        if self._last is None or self._last[0] != known:
            self._last = known, self._catalog(known)
        return self._last[1]

    def _catalog(self, known: Mapping[str, tuple[str, bool]]) -> Catalog:
        groups: dict[str, list[Tool]] = {}
        for name, (shown, there) in known.items():
            home, *others = self._homes_of(name)
            groups.setdefault(home, []).append(self._tool(name, shown, there=there))
            for other in others:
                groups.setdefault(other, [])
        return Catalog.of(Group(id_, tools, up=id_ not in self.policy.down) for id_, tools in groups.items())

    def _tool(self, name: str, shown: str, *, there: bool) -> Tool:
        tool = self._tools.get((name, shown, there))
        if tool is None:
            needs = self._homes_of(name)[1:] if there else (*self._homes_of(name)[1:], self._registry)
            tool = self._tools[name, shown, there] = Tool(_inner(name), description=shown, needs=needs, wire_name=name)
        return tool

    def _homes_of(self, name: str) -> tuple[str, ...]:
        homes = self._homes.get(name)
        if homes is None:
            listed, prefix = self.policy.groups_of(name), _prefix(name)
            if prefix is not None and (not listed or prefix in self.policy.down):
                listed = (*listed, prefix)
            homes = self._homes[name] = tuple(dict.fromkeys(listed)) or (self._others,)
        return homes


def _prefix(name: str) -> str | None:
    """Return the group that a wire name names by itself."""
    prefix, between, _ = name.partition("__")
    return prefix if between and is_name(prefix) and "/" not in prefix else None


def _inner(name: str) -> str:
    """Return ``name`` as a name that a rule can mean: what one cannot hold is written as its code."""
    return name if is_name(name) and "%" not in name else _ODD.sub(lambda found: f"%{ord(found[0]):x}.", name)


def _free(id_: str, policy: Policy) -> str:
    """Return an id like ``id_`` that no policy and, with ``__`` in it, no prefix has."""
    while id_ in policy.groups or id_ in policy.down:
        id_ += "_"
    return id_


class Who:
    """Who may: as the policy says, else as was recorded, else nobody knows and everything counts as allowed."""

    def __init__(self, names: Names, listed: frozenset[str] | None) -> None:
        self._names, self._listed = names, listed
        self._rules: dict[str, tuple[Grant, ...]] = {}
        self._effects: dict[str, Effect | None] = {}
        self._last: tuple[AbstractSet[str], Authority] | None = None

    @property
    def known(self) -> bool:
        """Whether anybody said who may."""
        return self._names.policy.authoritative or self._listed is not None

    def may(self, name: str) -> bool:
        """Whether a wire name is authorised."""
        return self.effect(name) is not None

    def effect(self, name: str) -> Effect | None:
        """Return what the library decides for a wire name; None if it is not authorised."""
        if name not in self._effects:
            self._effects[name] = self._authority({name}).decide(self._names.definition(name)).effect
        return self._effects[name]

    def over(self, names: AbstractSet[str]) -> Authority:
        """Return the authority over ``names``."""
        if self._last is None or self._last[0] != names:
            self._last = names, self._authority(names)
        return self._last[1]

    def _authority(self, names: Iterable[str]) -> Authority:
        if not self.known:
            return Authority(Pool((Source("unknown", (allow("*"),)),)))
        source = "policy" if self._names.policy.authoritative else "recorded"
        return Authority(Pool((Source(source, tuple(rule for name in names for rule in self._of(name))),)))

    def _of(self, name: str) -> tuple[Grant, ...]:
        """Return the rules that speak of one wire name."""
        found = self._rules.get(name)
        if found is None:
            policy, on = self._names.policy, self._names.qualified(name)
            stated = ((Effect.DENY, policy.deny), (Effect.ASK, policy.ask), (Effect.ALLOW, policy.allow))
            if policy.authoritative:
                rules = [Grant(on, e, id=s) for e, listed in stated for s in listed or () if policy.covers(s, name)]
            else:
                rules = [Grant(on, Effect.ALLOW, id=name)] if name in (self._listed or ()) else []
            found = self._rules[name] = tuple(rules)
        return found
