"""What the entries of one chain say, folded in order. Pure: entries in, state out.

Each kind of entry is one branch of :meth:`State.apply`. What adds (grants, approvals, pins, loads, a launch)
counts only from an entry that is sealed where a key is given and stands before any hole; what takes away always
counts (design: trusting the ledger file, damage).
"""

from __future__ import annotations

from typing import Any

from attrs import define, evolve, field, frozen

from capstate.authority import Effect, Grant, Lifetime, Limits
from capstate.errors import InvalidInputError
from capstate.ledger import OPENED, Entry
from capstate.surface import Load, LoadKind


@frozen
class Approval:
    """Exactly this call may start, once: occurrence, definition and canonical arguments."""

    call: str
    occurrence: int
    tool: str
    definition: str
    arguments: str
    by: str


@frozen
class Operation:
    """One started call that the ledger knows.

    Attributes:
        id: the same for every retry.
        state: ``executing`` until it is settled, then ``committed``.
        outcome: of a settled one; ``outcome_unknown`` is settled for the trace, and unsettled for a repeat.
        session: who owns it.
        doubted: it was settled by an entry after a hole: that waits for reconciliation.
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


@define
class State:
    """The folded state of one chain."""

    chain: str
    opening: Opening | None = None
    loads: tuple[Load, ...] = ()
    grants: dict[str, Grant] = field(factory=dict)
    restrictions: list[Grant] = field(factory=list)
    """Asks from entries that may not add: they only cut."""
    pins: dict[tuple[str, str], frozenset[tuple[str, str]]] = field(factory=dict)
    """By (source, grant id)."""
    approvals: list[Approval] = field(factory=list)
    rejected: list[Approval] = field(factory=list)
    operations: dict[str, Operation] = field(factory=dict)
    sources: dict[str, int | None] = field(factory=dict)
    """Every source and ceiling that a receipt named, with the highest revision seen."""
    retired: set[str] = field(factory=set)
    limits: Limits | None = None
    used: dict[str, int] = field(factory=lambda: {"calls": 0, "spent": 0})
    """What the tree had used, by the largest totals in any entry."""
    receipt: tuple[int, dict[str, Any]] | None = None
    """Sequence and body of the last receipt."""
    children: list[str] = field(factory=list)
    ended: bool = False
    holes: list[int] = field(factory=list)
    """Sequence numbers at which damage was found and not yet accepted."""
    accepted: int = -1
    """Sequence of the entry that accepted the damage before it."""
    at: int = 0
    """The latest time in any entry, in milliseconds since the epoch."""
    token: int = 0
    """The highest fencing token seen."""
    notes: list[dict[str, Any]] = field(factory=list)

    @property
    def read_only(self) -> bool:
        """Whether external calls wait for somebody to accept damage."""
        return any(hole > self.accepted for hole in self.holes)

    @property
    def unsettled(self) -> list[Operation]:
        """Operations that may be running or may have happened."""
        return [op for op in self.operations.values() if not op.settled]

    def apply(self, entry: Entry) -> None:
        """Take one more entry. One of an unknown kind changes nothing; one that does not read is a hole."""
        doubted = any(self.accepted < hole <= entry.sequence for hole in self.holes)
        self.at = max(self.at, entry.at)
        self.token = max(self.token, entry.token)
        handler = _HANDLERS.get(entry.kind)
        try:
            if handler is not None:
                handler(self, entry, entry.body, not (entry.unsealed or doubted))
        except (InvalidInputError, KeyError, TypeError, ValueError, AttributeError):
            self.holes.append(entry.sequence)

    def _opened(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001 - one shape for all handlers
        if self.opening is not None or entry.sequence:
            return  # a chain is opened once, by its first entry
        origin, want = body.get("origin"), body.get("want")
        kind = str(body.get("kind", "session")) if adds or body.get("kind") == "child" else "child"
        self.opening = Opening(
            kind,
            str(body.get("log", "")),
            str(body.get("holder") or self.chain),
            str(body.get("root") or self.chain),
            body.get("parent"),
            tuple(map(str, want)) if adds and isinstance(want, list) else None,
            (str(origin[0]), origin[1], int(origin[2]), str(origin[3])) if isinstance(origin, list) else None,
        )
        self._limits(entry, body, adds)

    def _load(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        do = LoadKind(entry.kind)
        if do is LoadKind.LOAD and not adds:
            return
        on, found = tuple(map(str, body["on"])), dict(body.get("definitions") or {})
        self.loads = (*self.loads, Load(len(self.loads), do, on, body.get("at"), body.get("call"), found))

    def _grant(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        grant = grant_from(body)
        if grant.effect is Effect.DENY:
            self.approvals = [a for a in self.approvals if not covers(grant.on, a.tool)]
        elif not adds:
            if grant.effect is Effect.ASK:
                self.restrictions.append(grant)
            return
        self.grants[grant.id] = grant

    def _revoke(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        # Taking back a deny adds; anybody may take back an allow or an ask that was given.
        grant = self.grants.get(body["id"])
        if grant is not None and (adds or grant.effect is Effect.ALLOW):
            del self.grants[grant.id]

    def _pin(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        if adds:
            self.pins.setdefault((body["source"], body["id"]), frozenset((q, f) for q, f in body["pin"]))

    def _approved(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        if adds:
            self.approvals.append(Approval(**body))

    def _rejected(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        approval = Approval(**body)
        self.approvals = [a for a in self.approvals if evolve(a, by="") != evolve(approval, by="")]
        self.rejected.append(approval)

    def _lapsed(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self.approvals = [a for a in self.approvals if a.tool not in body["tools"]]

    def _started(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        used = body.get("approval")
        if used is not None:
            self.approvals = [a for a in self.approvals if [a.call, a.occurrence, a.tool, a.arguments] != used]
        self.used = {name: max(value, int(body["used"].get(name, 0))) for name, value in self.used.items()}
        self.operations[body["id"]] = Operation(
            body["id"],
            self.chain,
            body["call"],
            body["occurrence"],
            body["tool"],
            body["arguments"],
            body["effect"],
            entry.token,
        )

    def _settled(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        self.used = {name: max(value, int(body["used"].get(name, 0))) for name, value in self.used.items()}
        operation = self.operations.get(body["id"])
        if operation is not None:
            self.operations[operation.id] = evolve(
                operation,
                state="committed",
                outcome=body["outcome"],
                evidence=body.get("evidence"),
                doubted=not adds and operation.effect != "read",
            )

    def _epoch(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        receipt = body["receipt"]
        for name, _, revision, _ in receipt["sources"]:
            if not str(name).startswith("parent: "):
                seen = self.sources.get(name)
                self.sources[name] = revision if seen is None or (revision or 0) > seen else seen
        if adds:
            self.receipt = (entry.sequence, receipt)

    def _limits(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        given = body.get("limits")
        if given is None:
            return
        limits = Limits(**given)
        self.limits = limits if adds or self.limits is None else _least(self.limits, limits)

    def _retired(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        if adds:
            self.retired.add(body["name"])

    def _job_ended(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self.grants = {i: g for i, g in self.grants.items() if g.until != body["job"] or g.effect is Effect.DENY}

    def _closed(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self.grants = {i: g for i, g in self.grants.items() if g.lifetime is not Lifetime.UNTIL}

    def _spawned(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        if body["child"] not in self.children:
            self.children.append(body["child"])

    def _ended(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self.ended = True

    def _accepted(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        if not entry.unsealed:
            self.accepted = entry.sequence

    def _note(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self.notes.append(body)


_HANDLERS = {
    OPENED: State._opened,
    "load": State._load,
    "unload": State._load,
    "removal": State._load,
    "grant": State._grant,
    "revoke": State._revoke,
    "pin": State._pin,
    "approved": State._approved,
    "rejected": State._rejected,
    "lapsed": State._lapsed,
    "started": State._started,
    "settled": State._settled,
    "epoch": State._epoch,
    "limits": State._limits,
    "retired": State._retired,
    "job-ended": State._job_ended,
    "closed": State._closed,
    "spawned": State._spawned,
    "ended": State._ended,
    "accepted": State._accepted,
    "note": State._note,
}


def covers(selector: str, qualified: str) -> bool:
    """Whether ``selector`` names the tool."""
    return selector in ("*", qualified) or selector == qualified.partition("/")[0] + "/*"


def grant_from(body: dict[str, Any]) -> Grant:
    """Return the grant that an entry holds. Raises InvalidInputError, KeyError, TypeError or ValueError."""
    pin = body.get("pin")
    return Grant(
        body["on"],
        Effect(body["effect"]),
        frozenset((q, f) for q, f in pin) if pin is not None else None,
        body["id"],
        body.get("giver", ""),
        Lifetime(body.get("lifetime", "persistent")),
        body.get("until"),
        body.get("expires"),
        body.get("token"),
    )


def _least(a: Limits, b: Limits) -> Limits:
    pairs = {name: (getattr(a, name), getattr(b, name)) for name in ("calls", "cost", "concurrency")}
    return Limits(**{n: min((v for v in pair if v is not None), default=None) for n, pair in pairs.items()})
