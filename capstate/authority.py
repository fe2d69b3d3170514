"""Who may: the pool that grants form, ceilings that only cut, and the decision for one tool.

Grant sources add; in their pool any deny wins, then ask, then allow. Ceilings only cut; the decision is the
least of the pool and every ceiling, and for a child of its parent's decision now. A source that is missing,
stale or raised is nothing: a grant source may have held a deny, so while one fails the whole pool is none.

Everything here is a value read *now*; who reads it again, and when, is :mod:`capstate.runtime`. The rules
are ``docs/spec/surface.md`` section 3. Grants themselves are :mod:`capstate.grants`.

>>> from capstate.capabilities import Group, Tool
>>> pool = Pool((Source("config", (allow("git/*"), ask("git/push"))),))
>>> Authority(pool).decide(Group("git", [Tool("push")]).definitions["push"]).effect
<Effect.ASK: 'ask'>
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from attrs import field, frozen

from capstate.errors import Reason
from capstate.grants import (
    FIRST_SIGHT,
    Ceiling,
    Effect,
    Grant,
    Lifetime,
    Limits,
    Pin,
    Pool,
    Source,
    SourceState,
    allow,
    ask,
    ceilings_by_name,
    check_selector,
    deny,
    rules_of,
)

if TYPE_CHECKING:
    from capstate.capabilities import Definition

__all__ = [
    "FIRST_SIGHT",
    "Authority",
    "Ceiling",
    "Decision",
    "Effect",
    "Grant",
    "GroupAuthority",
    "Lifetime",
    "Limits",
    "Pin",
    "Pool",
    "Source",
    "SourceState",
    "allow",
    "ask",
    "check_selector",
    "deny",
    "rules_of",
]


@frozen
class Decision:
    """The least of the pool and every ceiling for one tool.

    Attributes:
        effect: None if the tool is not authorised.
        reason: why it is not; None if it is.
        decided_by: the rule and source that decided (``docs/spec/surface.md`` 3.9).
    """

    effect: Effect | None
    reason: Reason | None
    decided_by: str


_NONE, _CHANGED, _ASK, _ALLOW = range(4)
_RANKS = {Effect.DENY: _NONE, Effect.ASK: _ASK, Effect.ALLOW: _ALLOW}
_EFFECTS = {_ASK: Effect.ASK, _ALLOW: Effect.ALLOW}


class _Result(NamedTuple):
    rank: int
    decided_by: str
    reason: Reason = Reason.NOT_AUTHORISED


class _Rule(NamedTuple):
    """A grant cut down to one group; ``name`` None: every tool of it; ``pin``: fingerprints by name."""

    source: str
    id: str
    effect: Effect
    name: str | None
    pin: Mapping[str, frozenset[str]] | None

    def verdict(self, name: str, print_: str) -> int | None:
        """0 deny, 1 ask, 2 allow, 3 outdated; None if the rule does not speak of the tool."""
        if self.name is not None and self.name != name:
            return None
        if self.effect is Effect.DENY:
            return 0
        if self.effect is Effect.ASK:
            return 1
        if self.pin is None:
            return 2
        listed = self.pin.get(name)
        if listed is None:
            return None
        return 2 if print_ in listed else 3


_BY_VERDICT = (_NONE, _ASK, _ALLOW, _CHANGED)
_ANYTHING = _Rule("", "", Effect.ALLOW, None, None)


class _Part(NamedTuple):
    """One component of the decision, cut down to one group: a fixed result, or rules."""

    fixed: _Result | None
    rules: tuple[_Rule, ...]
    prefix: str
    none: str

    def result(self, name: str, print_: str) -> _Result:
        if self.fixed is not None:
            return self.fixed
        best: tuple[int, str, str] | None = None
        for rule in self.rules:
            verdict = rule.verdict(name, print_)
            if verdict is not None and (best is None or (verdict, rule.source, rule.id) < best):
                best = (verdict, rule.source, rule.id)
        if best is None:
            return _Result(_NONE, self.none)
        rank = _BY_VERDICT[best[0]]
        reason = Reason.SCHEMA_CHANGED if rank == _CHANGED else Reason.NOT_AUTHORISED
        return _Result(rank, f"{self.prefix}{best[1]}#{best[2]}", reason)


@frozen
class GroupAuthority:
    """Authority cut down to one group. Equal slices give equal decisions.

    Attributes:
        group: id of the group.
        parts: the pool and each ceiling, cut down to the group.
        parent: the same of the parent; where there should be one and is none, the verdict that follows; else None.
    """

    group: str
    parts: tuple[_Part, ...] = field(hash=False)
    parent: GroupAuthority | _Result | None

    @cached_property
    def uniform(self) -> bool:
        """Whether every tool of the group gets the same decision."""
        return all(
            part.fixed is not None or all(rule.name is None and rule.pin is None for rule in part.rules)
            for part in self.parts
        ) and (not isinstance(self.parent, GroupAuthority) or self.parent.uniform)

    @cached_property
    def _of_all(self) -> Decision:
        return self._decide("", "")

    def decide(self, definition: Definition) -> Decision:
        """Return the decision for one tool of this group."""
        return self._of_all if self.uniform else self._decide(definition.tool.name, definition.fingerprint)

    def _decide(self, name: str, print_: str) -> Decision:
        least = self._least(name, print_)
        effect = _EFFECTS.get(least.rank)
        return Decision(effect, None if effect else least.reason, least.decided_by)

    def _least(self, name: str, print_: str) -> _Result:
        least = min((part.result(name, print_) for part in self.parts), key=lambda result: result.rank)
        above = self.parent
        if isinstance(above, GroupAuthority):
            rank, text, reason = above._least(name, print_)  # noqa: SLF001 - itself, one level up
            # That the parent lacks its want is no lack of the child's.
            kept = reason if reason is Reason.SCHEMA_CHANGED else Reason.NOT_AUTHORISED
            above = _Result(rank, f"parent: {text}", kept)
        return above if above is not None and above.rank < least.rank else least


_Index = dict[str, list[tuple[str, Grant, Mapping[str, Mapping[str, frozenset[str]]] | None]]]
"""By group of the selector: source, grant, and its pin by group and name."""


def _index(rules: Iterable[tuple[str, Grant]]) -> _Index:
    index: _Index = {}
    for source, rule in rules:
        index.setdefault(rule.on.partition("/")[0], []).append((source, rule, _pins(rule)))
    return index


def _pins(rule: Grant) -> Mapping[str, Mapping[str, frozenset[str]]] | None:
    if rule.pin is None:
        return None
    found: dict[str, dict[str, set[str]]] = {}
    # A first-sight pin that nobody resolved is lost, and a lost pin covers nothing.
    for qualified, print_ in () if isinstance(rule.pin, str) else rule.pin:
        group, _, name = qualified.partition("/")
        found.setdefault(group, {}).setdefault(name, set()).add(print_)
    return {group: {name: frozenset(prints) for name, prints in names.items()} for group, names in found.items()}


def _rules_for(group: str, index: _Index) -> tuple[_Rule, ...]:
    found = []
    for source, rule, pins in (*index.get(group, ()), *index.get("*", ())):
        name = rule.on.partition("/")[2]
        pin = None if pins is None else pins.get(group, {})
        found.append(_Rule(source, rule.id, rule.effect, None if name in ("*", "") else name, pin))
    return tuple(found)


@frozen
class Authority:
    """All authority over one session, read now: the pool, the ceilings, and for a child its parent's.

    Attributes:
        pool: what grants add up to.
        ceilings: what cuts them, in order of name.
        parent: ``"missing"`` or ``"ended"`` where a parent should be and there is none to ask. None is for a session
            of its own; for a child it is as good as missing.

    Raises:
        InvalidInputError: two ceilings bear one name.
    """

    pool: Pool
    ceilings: tuple[Ceiling, ...] = field(default=(), converter=ceilings_by_name)
    parent: Authority | Literal["missing", "ended"] | None = None
    _slices: dict[str, GroupAuthority] = field(factory=dict, init=False, eq=False, repr=False)

    def decide(self, definition: Definition) -> Decision:
        """Return the decision for one definition, in the catalog or not."""
        return self.over(definition.group).decide(definition)

    def over(self, group: str) -> GroupAuthority:
        """Return this authority cut down to ``group``."""
        found = self._slices.get(group)
        if found is None:
            found = self._slices[group] = self._cut(group)
        return found

    @cached_property
    def _indexes(self) -> list[_Index]:
        ceilings = [_index(("", rule) for rule in c.rules) for c in self.ceilings]
        return [_index(self._pool_rules()), _index(self._childs_asks()), *ceilings]

    def _cut(self, group: str) -> GroupAuthority:
        rules = [_rules_for(group, index) for index in self._indexes]
        parts = [_Part(self._pool_fixed(), rules[0], "", "pool")]
        if rules[1]:
            parts.append(_Part(None, (_ANYTHING, *rules[1]), "", ""))
        for ceiling, own in zip(self.ceilings, rules[2:], strict=True):
            name = f"ceiling {ceiling.name}"
            fixed = None
            if ceiling.state is not SourceState.OK:
                fixed = _Result(_NONE, f"{name}!{ceiling.state}")
            elif ceiling.effect is not None:
                fixed = _Result(_RANKS[ceiling.effect], name)
            parts.append(_Part(fixed, own, name, name))
        return GroupAuthority(group, tuple(parts), self._above(group))

    def _above(self, group: str) -> GroupAuthority | _Result | None:
        if isinstance(self.parent, Authority):
            return self.parent.over(group)
        if self.parent is None and self.pool.want is None and self.pool.launch:
            return None
        # A child whose parent nobody named has none to ask.
        return _Result(_NONE, f"parent!{self.parent or 'missing'}")

    def _pool_fixed(self) -> _Result | None:
        if not self.pool.launch:
            return _Result(_NONE, "launch!missing", Reason.POLICY_MISSING)
        for source in self.pool.sources:
            if source.state is not SourceState.OK:
                return _Result(_NONE, f"{source.name}!{source.state}")
        return None

    def _pool_rules(self) -> Iterable[tuple[str, Grant]]:
        if self.pool.want is None:
            return self._given()
        wanted = [("want", Grant(selector, Effect.ALLOW, id=selector)) for selector in self.pool.want]
        return wanted + [(source, rule) for source, rule in self._given() if rule.effect is Effect.DENY]

    def _childs_asks(self) -> Iterable[tuple[str, Grant]]:
        """Return the asks of a child: beside the pool, because there they would add what it does not want."""
        if self.pool.want is None:
            return ()
        return [(source, rule) for source, rule in self._given() if rule.effect is Effect.ASK]

    def _given(self) -> list[tuple[str, Grant]]:
        rules = [(s.name, rule) for s in self.pool.sources for rule in s.rules]
        return rules + [("granted", rule) for rule in self.pool.granted]

    def to_json(self) -> dict[str, Any]:
        """Return everything that a decision can depend on, as JSON."""
        pool = self.pool
        return {
            "ceilings": [
                {"effect": None if c.effect is None else str(c.effect), **_source_json(c)} for c in self.ceilings
            ],
            "granted": [rule.to_json() for rule in pool.granted],
            "launch": pool.launch,
            "parent": self.parent.to_json() if isinstance(self.parent, Authority) else self.parent,
            "sources": [_source_json(s) for s in pool.sources],
            "want": list(pool.want) if pool.want is not None else None,
        }


def _source_json(source: Source | Ceiling) -> dict[str, Any]:
    # The revision is part of it: a ledger that has seen a revision refuses every lower one.
    return {
        "name": source.name,
        "revision": source.revision,
        "rules": [rule.to_json() for rule in source.rules],
        "state": str(source.state),
    }
