"""What the fold of a chain is made of: how it was opened, approvals, operations; and reading them from bodies.

Bodies come from a file that others may edit, so each field is checked for its kind here; what is wrong raises
ValueError, TypeError or KeyError, and the fold takes that as damage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from capstate.authority import Effect, Grant, Lifetime, Limits
from capstate.ledger import check_chain


@frozen
class Approval:
    """Exactly this call may start, once: occurrence, definitions and canonical arguments.

    Attributes:
        reached: (qualified id, fingerprint) of each further tool that the call would reach.
        seen: (chain, sequence of its last entry) of every other chain that authority rested on when it was given: a
            deny behind that ends it, also one that was taken back since.
    """

    call: str
    occurrence: int
    tool: str
    definition: str
    arguments: str
    by: str
    reached: tuple[tuple[str, str], ...] = ()
    seen: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> tuple[str, int, str, str]:
        """What an entry that uses it up names."""
        return self.call, self.occurrence, self.tool, self.arguments

    @property
    def tools(self) -> tuple[str, ...]:
        """Qualified ids of every tool that it lets run."""
        return (self.tool, *(tool for tool, _ in self.reached))

    def to_json(self) -> dict[str, Any]:
        """Return the body of its entry."""
        return {
            "arguments": self.arguments,
            "by": self.by,
            "call": self.call,
            "definition": self.definition,
            "occurrence": self.occurrence,
            "reached": [list(pair) for pair in self.reached],
            "seen": [list(pair) for pair in self.seen],
            "tool": self.tool,
        }


@frozen
class Operation:
    """One started call that the ledger knows.

    Attributes:
        id: the same for every retry.
        state: ``executing`` until it is settled, then ``committed``.
        outcome: of a settled one; ``outcome_unknown`` is settled for the trace, and unsettled for a repeat.
        session: who owns it.
        token: of the writer that started it; 0 if what says so may not add.
        doubted: what settled it, or started it again, does not count: it waits for reconciliation.
        cost: what it reserved in the limits of its tree; None if it reserved nothing.
    """

    id: str
    session: str
    call: str
    occurrence: int
    tool: str
    arguments: str
    effect: str
    token: int
    state: str = "executing"
    outcome: str | None = None
    evidence: str | None = None
    doubted: bool = False
    cost: int | None = None

    @property
    def what(self) -> tuple[str, str, str]:
        """What it does: tool, arguments, effect."""
        return self.tool, self.arguments, self.effect

    @property
    def settled(self) -> bool:
        """Whether it is known how it ended."""
        return self.state == "committed" and self.outcome != "outcome_unknown" and not self.doubted


@frozen
class Opening:
    """How a chain began.

    Attributes:
        kind: ``session``, ``child``, ``fork`` or ``holder``.
        launch: of a child, what it asked for; None if that was not stored.
        origin: of a fork, (session, entry, head sequence, head digest).
    """

    kind: str
    log: str = ""
    holder: str = ""
    root: str = ""
    parent: str | None = None
    launch: tuple[str, ...] | None = None
    origin: tuple[str, str | None, int, str] | None = None


def opening_from(chain: str, body: Mapping[str, Any], *, adds: bool) -> Opening:
    """Return what the first entry says. One that may not add opens a child that may do nothing, of nobody."""
    kind, origin, want = text(body["kind"]), body.get("origin"), body.get("want")
    parent = body.get("parent")
    if kind not in ("session", "child", "fork", "holder"):
        raise ValueError(kind)
    if not adds:  # whose it is and what it is part of would add as well
        own = chain_id(chain)
        return Opening("holder" if kind == "holder" else "child", text(body.get("log", "")), own, own)
    return Opening(
        kind,
        text(body.get("log", "")),
        chain_id(body.get("holder", chain)),
        chain_id(body.get("root", chain)),
        chain_id(parent) if parent is not None else None,
        tuple(map(text, want)) if want is not None else None,
        (chain_id(origin[0]), maybe(origin[1]), whole(origin[2]), text(origin[3])) if origin is not None else None,
    )


def approval_from(body: Mapping[str, Any]) -> Approval:
    """Return the approval or rejection that an entry holds."""
    seen = body.get("seen")
    return Approval(
        text(body["call"]),
        whole(body["occurrence"]),
        text(body["tool"]),
        text(body["definition"]),
        text(body["arguments"]),
        text(body["by"]),
        tuple((text(tool), text(print_)) for tool, print_ in body.get("reached", ())),
        tuple((text(chain), whole(sequence)) for chain, sequence in seen) if isinstance(seen, list) else (),
    )


def operation_from(chain: str, body: Mapping[str, Any], token: int) -> Operation:
    """Return the operation that an entry starts."""
    return Operation(
        text(body["id"]),
        chain,
        text(body["call"]),
        whole(body["occurrence"]),
        text(body["tool"]),
        text(body["arguments"]),
        "read" if body["effect"] == "read" else "external",
        token,
        cost=whole(body["cost"]) if body.get("cost") is not None else None,
    )


def grant_from(body: Mapping[str, Any]) -> Grant:
    """Return the grant that an entry holds. Raises InvalidInputError, KeyError, TypeError or ValueError."""
    pin, expires, token = body.get("pin"), body.get("expires"), body.get("token")
    return Grant(
        text(body["on"]),
        Effect(body["effect"]),
        frozenset((text(q), text(f)) for q, f in pin) if pin is not None else None,
        text(body["id"]),
        text(body.get("giver", "")),
        Lifetime(body.get("lifetime", "persistent")),
        maybe(body.get("until")),
        whole(expires) if expires is not None else None,
        whole(token) if token is not None else None,
    )


def least(a: Limits, b: Limits) -> Limits:
    """Return the stricter of two limits, kind by kind."""
    pairs = {name: (getattr(a, name), getattr(b, name)) for name in ("calls", "cost", "concurrency")}
    return Limits(**{n: min((v for v in pair if v is not None), default=None) for n, pair in pairs.items()})


def covers(selector: str, qualified: str) -> bool:
    """Whether ``selector`` names the tool."""
    return selector in ("*", qualified) or selector == qualified.partition("/")[0] + "/*"


def text(value: object) -> str:
    """Return ``value`` if it is text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(type(value).__name__)
    return value


def chain_id(value: object) -> str:
    """Return ``value`` if a ledger can hold a chain of that id. Raises InvalidInputError."""
    check_chain(value)
    return text(value)


def maybe(value: object) -> str | None:
    """Return ``value`` if it is text or None. Raises TypeError."""
    return None if value is None else text(value)


def whole(value: object) -> int:
    """Return ``value`` if it is an integer from 0. Raises TypeError."""
    if type(value) is not int or value < 0:
        raise TypeError(type(value).__name__)
    return value
