"""Who may: grants, the pool they form, ceilings that only cut, and the decision for one tool.

Grant sources add; in their pool any deny wins, then ask, then allow. Ceilings only cut; the decision is the
least of the pool and every ceiling, and for a child of its parent's decision now. A source that is missing,
stale or raised is nothing: a grant source may have held a deny, so while one fails the whole pool is none.

Everything here is a value read *now*; who reads it again, and when, is :mod:`capstate.runtime`. The rules
are ``docs/spec/surface.md`` section 3.

>>> pool = Pool((Source("config", (allow("git/*"), ask("git/push")),),))
>>> Authority(pool).decide(Group("git", [Tool("push")]).definitions["push"]).effect
<Effect.ASK: 'ask'>
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from attrs import field, frozen

from capstate.capabilities import Definition, Group, Tool  # noqa: F401 - Group and Tool serve the example above
from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import InvalidInputError, Reason


class Effect(StrEnum):
    """What a rule says of the tools that it covers."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Lifetime(StrEnum):
    """How long a grant given by a person or a job lives."""

    PERSISTENT = "persistent"
    """Until it is revoked; read by forks as well."""
    SESSION = "session"
    """With this session; not in its forks or children."""
    UNTIL = "until"
    """With a named job, the process or the close of the session, whichever is first."""


FIRST_SIGHT: Literal["first-sight"] = "first-sight"
"""A pin that is taken once, when the grant is first seen, and recorded."""

Pin = frozenset[tuple[str, str]]
"""(qualified id, fingerprint) pairs: exactly these definitions."""


def check_selector(selector: object, place: str) -> str:
    """Return ``selector`` if it is ``*``, ``group/*`` or ``group/name``.

    Raises:
        InvalidInputError: it is not.
    """
    if isinstance(selector, str):
        group, slash, name = selector.partition("/")
        if selector == "*" or (slash and group and name and group != "*"):
            return selector
    raise InvalidInputError(place, "'group/name', 'group/*' or '*'", selector)


@frozen
class Grant:
    """One rule: what a source says of the tools that its selector names.

    Attributes:
        on: ``group/name``, ``group/*`` or ``*``.
        pin: the definitions that an allow is for; None for whatever bears the name, now and later.
        id: by default a digest of the other fields.
        giver: the person or job that gave it.
        until: of a grant that ends with a job, its name.
        expires: milliseconds since the epoch, by the runtime's clock.
        token: of a grant until a job ends, the fencing token of the writer under which it lives.
    """

    on: str
    effect: Effect
    pin: Pin | Literal["first-sight"] | None = None
    id: str = ""
    giver: str = ""
    lifetime: Lifetime = Lifetime.PERSISTENT
    until: str | None = None
    expires: int | None = None
    token: int | None = None

    def __attrs_post_init__(self) -> None:
        check_selector(self.on, "grant selector")
        if self.pin is not None and self.effect is not Effect.ALLOW:
            raise InvalidInputError(f"grant on {self.on!r}", "a pin with allow only", str(self.effect))
        if not self.id:
            body = canonical({**self.to_json(), "id": ""})
            object.__setattr__(self, "id", "r" + fingerprint(Domain.RULE, body)[3:19])

    def to_json(self) -> dict[str, Any]:
        """Return the grant as JSON; fields at their default are left out."""
        out: dict[str, Any] = {"effect": str(self.effect), "id": self.id, "on": self.on}
        if self.pin is not None:
            out["pin"] = self.pin if isinstance(self.pin, str) else sorted(map(list, self.pin))
        if self.lifetime is not Lifetime.PERSISTENT:
            out["lifetime"] = str(self.lifetime)
        for name in ("giver", "until", "expires", "token"):
            value = getattr(self, name)
            if value is not None and value != "":
                out[name] = value
        return out


def _rule(effect: Effect, on: str, pin: object, id: str) -> Grant:  # noqa: A002 - the word of the design
    pinned: Any = pin
    if pin is True:
        pinned = FIRST_SIGHT
    elif pin is not None and pin is not False:
        try:
            pinned = frozenset((str(q), str(f)) for q, f in pin)  # type: ignore[attr-defined]  # refused below if not pairs
        except (TypeError, ValueError):
            raise InvalidInputError(f"pin of {on!r}", "True or (qualified id, fingerprint) pairs", pin) from None
    return Grant(on, effect, pinned or (frozenset() if isinstance(pinned, frozenset) else None), id)


def allow(on: str, *, pin: bool | Iterable[tuple[str, str]] | None = None, id: str = "") -> Grant:  # noqa: A002 - the word of the design
    """Allow the tools that ``on`` names; with ``pin`` only the definitions listed, or first seen (True)."""
    return _rule(Effect.ALLOW, on, pin, id)


def ask(on: str, *, id: str = "") -> Grant:  # noqa: A002 - the word of the design
    """Have a person approve each call of the tools that ``on`` names."""
    return _rule(Effect.ASK, on, None, id)


def deny(on: str, *, id: str = "") -> Grant:  # noqa: A002 - the word of the design
    """Deny the tools that ``on`` names, whoever else allows them."""
    return _rule(Effect.DENY, on, None, id)


class SourceState(StrEnum):
    """How reading a source ended. Anything but ``ok`` is nothing."""

    OK = "ok"
    MISSING = "missing"
    STALE = "stale"
    ERROR = "error"


@frozen
class Source:
    """What one grant source returned for one holder, now."""

    name: str
    rules: tuple[Grant, ...] = ()
    state: SourceState = SourceState.OK
    revision: int | None = None

    @property
    def digest(self) -> str:
        """Fingerprint of the rules as returned."""
        return _digest(self.rules)


@frozen
class Ceiling:
    """What one ceiling returned: rules, or one effect for every tool (None with ``rules`` empty: nothing)."""

    name: str
    rules: tuple[Grant, ...] = ()
    effect: Effect | None = None
    state: SourceState = SourceState.OK
    revision: int | None = None

    @property
    def digest(self) -> str:
        """Fingerprint of the rules or the effect as returned."""
        return _digest(self.rules, self.effect)


def _digest(rules: tuple[Grant, ...], effect: Effect | None = None) -> str:
    return fingerprint(Domain.RULES, canonical([effect, *(r.to_json() for r in rules)]))


def _by_name(sources: Iterable[Source]) -> tuple[Source, ...]:
    return tuple(sorted(sources, key=lambda source: source.name))


def _ceilings(ceilings: Iterable[Ceiling]) -> tuple[Ceiling, ...]:
    return tuple(sorted(ceilings, key=lambda ceiling: ceiling.name))


@frozen
class Pool:
    """The grants for one holder.

    Attributes:
        want: of a child, its launch restriction; it is the pool's only allow. None for a session of its own.
        launch: False for a child whose launch restriction is missing: the pool is none.
    """

    sources: tuple[Source, ...] = field(default=(), converter=_by_name)
    granted: tuple[Grant, ...] = ()
    want: tuple[str, ...] | None = None
    launch: bool = True


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


class _Result(NamedTuple):
    rank: int
    decided_by: str
    reason: Reason = Reason.NOT_AUTHORISED


_NONE, _CHANGED, _ASK, _ALLOW = range(4)
_RANKS = {Effect.DENY: _NONE, Effect.ASK: _ASK, Effect.ALLOW: _ALLOW}


class _Rule(NamedTuple):
    source: str
    id: str
    effect: Effect
    name: str | None  # None: every tool of the group
    pin: Pin | None

    def verdict(self, name: str, qualified: str, print_: str) -> int | None:
        """0 deny, 1 ask, 2 allow, 3 outdated; None if the rule does not speak of the tool."""
        if self.name is not None and self.name != name:
            return None
        if self.effect is Effect.DENY:
            return 0
        if self.effect is Effect.ASK:
            return 1
        if self.pin is None or (qualified, print_) in self.pin:
            return 2
        return 3 if any(q == qualified for q, _ in self.pin) else None


_BY_VERDICT = (_NONE, _ASK, _ALLOW, _CHANGED)


class _Part(NamedTuple):
    """One component of the decision, cut down to one group: a fixed result, or rules."""

    fixed: _Result | None
    rules: tuple[_Rule, ...]
    prefix: str
    none: str

    def result(self, name: str, qualified: str, print_: str) -> _Result:
        if self.fixed is not None:
            return self.fixed
        best: tuple[int, str, str] | None = None
        for rule in self.rules:
            verdict = rule.verdict(name, qualified, print_)
            if verdict is not None and (best is None or (verdict, rule.source, rule.id) < best):
                best = (verdict, rule.source, rule.id)
        if best is None:
            return _Result(_NONE, self.none)
        rank = _BY_VERDICT[best[0]]
        reason = Reason.SCHEMA_CHANGED if rank == _CHANGED else Reason.NOT_AUTHORISED
        return _Result(rank, f"{self.prefix}{best[1]}#{best[2]}", reason)


@frozen(eq=False)
class GroupAuthority:
    """Authority cut down to one group. Equal slices give equal decisions."""

    group: str
    parts: tuple[_Part, ...]
    parent: GroupAuthority | _Result | None
    uniform: bool
    """Every tool of the group gets the same decision."""
    _whole: list[Decision] = field(factory=list, repr=False)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, GroupAuthority)
            and (self.group, self.parts, self.parent) == (other.group, other.parts, other.parent)
        )

    def __hash__(self) -> int:
        return hash((self.group, self.parts))

    def decide(self, definition: Definition) -> Decision:
        """Return the decision for one tool of this group."""
        if self.uniform and self._whole:
            return self._whole[0]
        least = self._least(definition.tool.name, definition.qualified, definition.fingerprint)
        effect = {_ASK: Effect.ASK, _ALLOW: Effect.ALLOW}.get(least.rank)
        decision = Decision(effect, None if effect else least.reason, least.decided_by)
        if self.uniform:
            self._whole.append(decision)
        return decision

    def _least(self, name: str, qualified: str, print_: str) -> _Result:
        least: _Result | None = None
        for part in self.parts:
            result = part.result(name, qualified, print_)
            if least is None or result.rank < least.rank:
                least = result
        if self.parent is not None:
            above = self.parent if isinstance(self.parent, _Result) else self.parent._least(name, qualified, print_)  # noqa: SLF001 - itself, one level up
            if least is None or above.rank < least.rank:
                kept = above.reason if above.reason is Reason.SCHEMA_CHANGED else Reason.NOT_AUTHORISED
                text = above.decided_by if isinstance(self.parent, _Result) else f"parent: {above.decided_by}"
                least = _Result(above.rank, text, kept)
        return least or _Result(_NONE, "pool")


def _index(rules: Iterable[tuple[str, Grant]]) -> dict[str, list[_Rule]]:
    index: dict[str, list[_Rule]] = {}
    for source, rule in rules:
        group, _, name = rule.on.partition("/")
        # A first-sight pin that nobody resolved is lost, and a lost pin covers nothing.
        pin = frozenset() if rule.pin == FIRST_SIGHT else rule.pin
        exact = None if name in ("*", "") else name
        index.setdefault(group, []).append(_Rule(source, rule.id, rule.effect, exact, pin))
    return index


@frozen(eq=False)
class Authority:
    """All authority over one session, read now: the pool, the ceilings, and for a child its parent's.

    Attributes:
        parent: ``"missing"`` or ``"ended"`` where a parent should be and there is none to ask.
    """

    pool: Pool
    ceilings: tuple[Ceiling, ...] = field(default=(), converter=_ceilings)
    parent: Authority | Literal["missing", "ended"] | None = None
    _indexes: list[dict[str, list[_Rule]]] = field(factory=list, repr=False)
    _slices: dict[str, GroupAuthority] = field(factory=dict, repr=False)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Authority)
            and (self.pool, self.ceilings, self.parent) == (other.pool, other.ceilings, other.parent)
        )

    def __hash__(self) -> int:
        return hash((self.pool, self.ceilings))

    def decide(self, definition: Definition) -> Decision:
        """Return the decision for one definition, in the catalog or not."""
        return self.over(definition.group).decide(definition)

    def over(self, group: str) -> GroupAuthority:
        """Return this authority cut down to ``group``."""
        found = self._slices.get(group)
        if found is None:
            found = self._slices[group] = self._cut(group)
        return found

    def _cut(self, group: str) -> GroupAuthority:
        if not self._indexes:
            self._indexes.append(_index(self._pool_rules()))
            self._indexes.extend(_index(("", rule) for rule in c.rules) for c in self.ceilings)
        rules = [tuple((*index.get(group, ()), *index.get("*", ()))) for index in self._indexes]
        parts = [_Part(self._pool_fixed(), rules[0], "", "pool")]
        for ceiling, own in zip(self.ceilings, rules[1:], strict=True):
            name = f"ceiling {ceiling.name}"
            fixed = None
            if ceiling.state is not SourceState.OK:
                fixed = _Result(_NONE, f"{name}!{ceiling.state}")
            elif ceiling.effect is not None:
                fixed = _Result(_RANKS[ceiling.effect], name)
            parts.append(_Part(fixed, own, name, name))
        parent: GroupAuthority | _Result | None = None
        if isinstance(self.parent, Authority):
            parent = self.parent.over(group)
        elif self.parent is not None:
            parent = _Result(_NONE, f"parent!{self.parent}")
        uniform = all(p.fixed or all(r.name is None and r.pin is None for r in p.rules) for p in parts)
        return GroupAuthority(
            group, tuple(parts), parent, uniform and (not isinstance(parent, GroupAuthority) or parent.uniform)
        )

    def _pool_fixed(self) -> _Result | None:
        if not self.pool.launch:
            return _Result(_NONE, "launch!missing", Reason.POLICY_MISSING)
        failed = sorted(s.name for s in self.pool.sources if s.state is not SourceState.OK)
        if failed:
            state = next(s.state for s in self.pool.sources if s.name == failed[0])
            return _Result(_NONE, f"{failed[0]}!{state}")
        return None

    def _pool_rules(self) -> Iterable[tuple[str, Grant]]:
        rules = [(s.name, rule) for s in self.pool.sources for rule in s.rules]
        rules += [("granted", rule) for rule in self.pool.granted]
        if self.pool.want is None:
            return rules
        wanted = [("want", Grant(selector, Effect.ALLOW, id=selector)) for selector in self.pool.want]
        return wanted + [(source, rule) for source, rule in rules if rule.effect is not Effect.ALLOW]

    def to_json(self) -> dict[str, Any]:
        """Return everything that a decision can depend on, as JSON."""
        pool = self.pool
        return {
            "ceilings": [{"effect": c.effect, **_source_json(c)} for c in self.ceilings],
            "granted": sorted((r.to_json() for r in pool.granted), key=lambda r: (r["id"], r["on"])),
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


@frozen
class Limits:
    """What a session and everything below it may use together (AU-14). None: no limit of that kind.

    Attributes:
        calls: started calls.
        cost: integer micro-units of a currency that the host chooses.
        concurrency: calls running at once.
    """

    calls: int | None = None
    cost: int | None = None
    concurrency: int | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("calls", "cost", "concurrency"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 0 <= value < 2**53):
                raise InvalidInputError(f"limits.{name}", "a whole number from 0 to 2**53 - 1, or None", value)

    def to_json(self) -> dict[str, int | None]:
        """Return the limits as JSON."""
        return {"calls": self.calls, "concurrency": self.concurrency, "cost": self.cost}


def rules_of(value: object, place: str) -> tuple[Grant, ...]:
    """Return what a source returned as grants: grants, or strings that allow.

    Raises:
        InvalidInputError: something else was returned.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InvalidInputError(place, "a list of grants", value)
    return tuple(
        rule if isinstance(rule, Grant) else allow(check_selector(rule, f"{place}[{n}]"))
        for n, rule in enumerate(value)
    )
