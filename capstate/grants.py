"""What was granted: rules, what each source and ceiling returned, the pool of a holder, the limits of a session tree.

``allow``, ``ask`` and ``deny`` are how hosts write rules. A *pin* is for exact definitions; deny and ask are never
pinned. These are values without a verdict: :mod:`capstate.authority` decides, and is where they are imported from.
Order means nothing in any of them, so each keeps its parts in an order of its own.

>>> str(allow("git/*").effect), deny("web/*").on
('allow', 'web/*')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, TypeVar

from attrs import field, frozen

from capstate.digest import Domain, canonical, check_text, fingerprint
from capstate.errors import InvalidInputError

_Member = TypeVar("_Member", bound=StrEnum)


def member(kind: type[_Member], value: Any, place: str) -> _Member:  # noqa: ANN401 - that is the question
    """Return the member of ``kind`` that ``value`` is or names.

    Raises:
        InvalidInputError: there is none.
    """
    try:
        return kind(value)
    except ValueError:
        raise InvalidInputError(place, "one of " + ", ".join(map(str, kind)), value) from None


class Effect(StrEnum):
    """What a rule says of the tools that it covers."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


EffectName = Literal["allow", "ask", "deny"]


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


_IN_NO_NAME = re.compile(r"[*\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_name(value: object) -> bool:
    """Whether a rule can mean a tool or a group by ``value``, here and in the policy file.

    A wildcard, a blank at an end, an empty part between slashes or a control character is a slip of whoever wrote
    the rule; a tool that really bears such a name is meant by its group alone.
    """
    if not isinstance(value, str) or value.strip() != value or _IN_NO_NAME.search(value):
        return False
    return all(value.split("/"))


def is_selector(value: object) -> bool:
    """Whether ``value`` is ``*``, ``group/*`` or ``group/name``."""
    if value == "*":
        return True
    group, slash, name = value.partition("/") if isinstance(value, str) else ("", "", "")
    return bool(slash) and is_name(group) and (name == "*" or is_name(name))


def check_selector(selector: object, place: str) -> str:
    """Return ``selector`` if it is ``*``, ``group/*`` or ``group/name`` (:func:`is_name`).

    Raises:
        InvalidInputError: it is not.
    """
    if isinstance(selector, str) and is_selector(selector):
        return selector
    raise InvalidInputError(place, "'group/name', 'group/*' or '*'", selector)


@frozen
class Grant:
    """One rule: what a source says of the tools that its selector names.

    Attributes:
        on: ``group/name``, ``group/*`` or ``*``.
        effect: ``allow``, ``ask`` or ``deny``.
        pin: the definitions that an allow is for; None for whatever bears the name, now and later.
        id: by default a digest of the other fields.
        giver: the person or job that gave it.
        lifetime: how long it lives.
        until: of a grant that ends with a job, its name.
        expires: milliseconds since the epoch, by the runtime's clock.
        token: of a grant until a job ends, the fencing token of the writer under which it lives.

    Raises:
        InvalidInputError: a field is of another kind, or a pin stands beside deny or ask.
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
        place = f"grant on {self.on!r}"
        check_selector(self.on, "grant selector")
        self._check_fields(place)
        # A plain "deny" is equal to the member and not the same object, and rules are told apart by identity.
        object.__setattr__(self, "effect", member(Effect, self.effect, f"{place}.effect"))
        object.__setattr__(self, "lifetime", member(Lifetime, self.lifetime, f"{place}.lifetime"))
        if self.pin is not None:
            if self.effect is not Effect.ALLOW:
                raise InvalidInputError(place, "a pin with allow only", str(self.effect))
            if self.pin != FIRST_SIGHT:
                object.__setattr__(self, "pin", _pin(self.pin, f"{place}.pin"))
        if not self.id:
            body = canonical({**self.to_json(), "id": ""}, place=place)
            object.__setattr__(self, "id", "r" + fingerprint(Domain.RULE, body)[3:19])

    def _check_fields(self, place: str) -> None:
        check_text(self.id, f"{place}.id")
        check_text(self.giver, f"{place}.giver")
        if self.until is not None:
            check_text(self.until, f"{place}.until", "the name of a job, or None")
        for name in ("expires", "token"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 0 <= value < 2**53):
                raise InvalidInputError(f"{place}.{name}", "a whole number from 0 to 2**53 - 1, or None", value)

    @cached_property
    def order(self) -> tuple[str, bytes]:
        """Its place in a set of rules."""
        return self.id, canonical(self.to_json(), place=f"grant on {self.on!r}")

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


def _pin(pairs: Any, place: str) -> Pin:  # noqa: ANN401 - refused unless it is pairs
    if isinstance(pairs, Iterable) and not isinstance(pairs, (str, bytes, Mapping)):
        listed = [tuple(pair) if isinstance(pair, (list, tuple)) else () for pair in pairs]
        if all(len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in listed):  # noqa: PLR2004 - a pair
            return frozenset((pair[0], pair[1]) for pair in listed)
    raise InvalidInputError(place, "(qualified id, fingerprint) pairs", pairs)


def allow(on: str, *, pin: bool | Iterable[tuple[str, str]] | None = None, id: str = "") -> Grant:  # noqa: A002 - the word of the design
    """Allow the tools that ``on`` names; with ``pin`` only the definitions listed, or first seen (True)."""
    if isinstance(pin, bool):
        return Grant(on, Effect.ALLOW, FIRST_SIGHT if pin else None, id)
    return Grant(on, Effect.ALLOW, pin, id)  # type: ignore[arg-type]  # frozen there


def ask(on: str, *, id: str = "") -> Grant:  # noqa: A002 - the word of the design
    """Have a person approve each call of the tools that ``on`` names."""
    return Grant(on, Effect.ASK, None, id)


def deny(on: str, *, id: str = "") -> Grant:  # noqa: A002 - the word of the design
    """Deny the tools that ``on`` names, whoever else allows them."""
    return Grant(on, Effect.DENY, None, id)


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


class SourceState(StrEnum):
    """How reading a source ended. Anything but ``ok`` is nothing."""

    OK = "ok"
    MISSING = "missing"
    STALE = "stale"
    ERROR = "error"


def _state(value: object) -> SourceState:
    return member(SourceState, value, "state of a source")


def _effect(value: object) -> Effect | None:
    return None if value is None else member(Effect, value, "effect of a ceiling")


def _rules(rules: Iterable[Grant]) -> tuple[Grant, ...]:
    return tuple(sorted(rules, key=lambda rule: rule.order))


def _digest(rules: tuple[Grant, ...], effect: Effect | None = None) -> str:
    stated = None if effect is None else str(effect)
    return fingerprint(Domain.RULES, canonical([stated, *(rule.to_json() for rule in rules)]))


@frozen
class Source:
    """What one grant source returned for one holder, now.

    Attributes:
        name: as the runtime was given it.
        rules: what it returned, in an order of its own.
        state: how reading it ended; anything but ``ok`` is nothing.
        revision: the number that it gave, or None.
    """

    name: str
    rules: tuple[Grant, ...] = field(default=(), converter=_rules)
    state: SourceState = field(default=SourceState.OK, converter=_state)
    revision: int | None = None

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the rules as returned."""
        return _digest(self.rules)


@frozen
class Ceiling:
    """What one ceiling returned: rules, or one effect for every tool (None with ``rules`` empty: nothing).

    Attributes:
        name: as the runtime was given it.
        rules: what it returned, in an order of its own.
        effect: one effect for every tool, or None.
        state: how reading it ended; anything but ``ok`` is nothing.
        revision: the number that it gave, or None.
    """

    name: str
    rules: tuple[Grant, ...] = field(default=(), converter=_rules)
    effect: Effect | None = field(default=None, converter=_effect)
    state: SourceState = field(default=SourceState.OK, converter=_state)
    revision: int | None = None

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the rules or the effect as returned."""
        return _digest(self.rules, self.effect)


def _sources(sources: Iterable[Source]) -> tuple[Source, ...]:
    found = tuple(sorted(sources, key=lambda source: source.name))
    _once([source.name for source in found], "grant sources")
    return found


def ceilings_by_name(ceilings: Iterable[Ceiling]) -> tuple[Ceiling, ...]:
    """Return ``ceilings`` in order. Raises InvalidInputError if two bear one name."""
    found = tuple(sorted(ceilings, key=lambda ceiling: ceiling.name))
    _once([ceiling.name for ceiling in found], "ceilings")
    return found


def _once(names: list[str], place: str) -> None:
    if len(set(names)) != len(names):
        raise InvalidInputError(place, "one of each name", names)


def _want(want: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if want is None else tuple(sorted({check_selector(on, "want") for on in want}))


@frozen
class Pool:
    """The grants for one holder.

    Attributes:
        sources: what each grant source returned, in order of name.
        granted: what persons and jobs gave.
        want: of a child, its launch restriction; it is the pool's only allow. None for a session of its own.
        launch: False for a child whose launch restriction is missing: the pool is none.

    Raises:
        InvalidInputError: two sources bear one name, or the want holds no selectors.
    """

    sources: tuple[Source, ...] = field(default=(), converter=_sources)
    granted: tuple[Grant, ...] = field(default=(), converter=_rules)
    want: tuple[str, ...] | None = field(default=None, converter=_want)
    launch: bool = True


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
