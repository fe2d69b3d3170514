"""What the entries of one chain say, folded in order. Pure: entries in, state out.

Each kind of entry is one method. What adds (grants, approvals, pins, loads, a launch, a retired source) counts only
from an entry of the chain's writer that is sealed where a key is given and stands before any hole; what takes away
always counts (design: trusting the ledger file, damage). An entry that may not add never replaces one that takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attrs import define, evolve, field

from capstate.authority import Effect, Grant, Lifetime, Limits, check_selector
from capstate.errors import InvalidInputError
from capstate.ledger import OPENED, Entry
from capstate.runtime.facts import (
    Approval,
    Opening,
    Operation,
    approval_from,
    chain_id,
    covers,
    grant_from,
    least,
    maybe,
    opening_from,
    operation_from,
    text,
    whole,
)
from capstate.surface import Load, LoadKind
from capstate.trace import Outcome

__all__ = ["Approval", "Opening", "Operation", "State", "covers"]

OWN = frozenset({"ceiling ended", "ceiling restrictions"})
"""Ceilings that the runtime makes itself: they are in receipts, and no host can lack them."""


@define
class State:
    """The folded state of one chain."""

    chain: str
    opening: Opening | None = None
    loads: tuple[Load, ...] = ()
    written: bool = False
    """Whether any entry is no post: a chain of posts alone holds only what takes away."""
    grants: dict[str | int, Grant] = field(factory=dict)
    """By id; a deny that may not add by its sequence, which no id can be, so that it replaces nothing."""
    restrictions: tuple[Grant, ...] = ()
    """Asks from entries that may not add: they only cut."""
    denied: list[tuple[int, str]] = field(factory=list)
    """(sequence, selector) of every deny ever given: what ended approvals of other chains."""
    pins: dict[tuple[str, str], frozenset[tuple[str, str]]] = field(factory=dict)
    """By (source, grant id)."""
    lost: set[tuple[str, str]] = field(factory=set)
    """Pins that were taken and do not count: they cover nothing, and are not taken anew."""
    approvals: list[Approval] = field(factory=list)
    rejected: dict[tuple[Any, ...], Approval] = field(factory=dict)
    operations: dict[str, Operation] = field(factory=dict)
    open: dict[str, Operation] = field(factory=dict)
    """Operations that may be running or may have happened."""
    reserving: int = 0
    """The token of the writer whose calls hold something of the limits."""
    reserved: dict[str, list[int]] = field(factory=dict)
    """By operation, the cost that each of its running calls reserved; no entry that may not add frees any."""
    sources: dict[str, int | None] = field(factory=dict)
    """Every source and ceiling that a receipt named, with the highest revision seen."""
    retired: set[str] = field(factory=set)
    limits: Limits | None = None
    used: dict[str, int] = field(factory=lambda: {"calls": 0, "serial": 0, "spent": 0})
    """What the tree had used, by the largest totals in any entry; ``serial`` counts the changes of its pool."""
    receipt: tuple[int, dict[str, Any]] | None = None
    """Sequence and body of the last receipt."""
    children: list[str] = field(factory=list)
    """Children and forks that were started from here."""
    ended: bool = False
    holes: list[int] = field(factory=list)
    """Sequence numbers at which damage was found."""
    accepted: int = -1
    """Sequence of the entry that accepted the damage before it."""
    at: int = 0
    """The latest time in an entry that counts, in milliseconds since the epoch."""
    token: int = 0
    """The highest fencing token in an entry that counts."""
    notes: list[dict[str, Any]] = field(factory=list)
    version: int = 0
    """Grows with each change of what authority depends on here."""

    @property
    def read_only(self) -> bool:
        """Whether external calls wait for somebody to accept damage."""
        return any(hole > self.accepted for hole in self.holes)

    @property
    def unsettled(self) -> list[Operation]:
        """Operations that may be running or may have happened."""
        return list(self.open.values())

    def apply(self, entry: Entry) -> None:
        """Take one more entry. One of an unknown kind changes nothing; one that does not read is a hole."""
        if entry.unsealed and not entry.posted:
            self.damaged(entry.sequence)  # writers seal: somebody else wrote it, or wrote it anew
        doubted = any(self.accepted < hole <= entry.sequence for hole in self.holes)
        if not entry.unsealed:
            self.at = max(self.at, entry.at)
            self.token = max(self.token, entry.token)
        self.written = self.written or not entry.posted
        try:
            self.take(entry, adds=_written(entry) and not doubted)
        except UNREADABLE:
            self.damaged(entry.sequence)

    def take(self, entry: Entry, *, adds: bool) -> None:
        """Take in what an entry says. Raises one of ``UNREADABLE`` if its body does not read."""
        handler = _HANDLERS.get(entry.kind)
        if handler is not None:
            handler(self, entry, entry.body, adds)

    def damaged(self, sequence: int) -> None:
        """Take in that the chain is damaged at ``sequence``."""
        self.holes.append(sequence)
        self.accepted = min(self.accepted, sequence - 1)
        self.version += 1

    def _opened(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001 - one shape for all handlers
        # A chain is opened once: by its first entry, or, where that only made a holder's chain, by its first session.
        given = opening_from(self.chain, body, adds=adds)
        sources = {text(name): None if high is None else whole(high) for name, high in body.get("sources") or []}
        retired = {text(name) for name in body.get("retired") or []}
        Limits(**(body.get("limits") or {}))
        known = self.opening
        if known is None and entry.sequence == 0:
            self.opening = given
        elif known is not None and known.kind == "holder" and adds:
            self.opening = evolve(given, log=known.log)
        else:
            return
        # A source that a fork's origin had seen is nothing in the fork as well, while it is missing or older.
        self.sources.update(sources)
        self.retired |= retired if adds else set()
        self._limits(entry, body, adds)
        self.version += 1

    def _load(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        do = LoadKind(entry.kind)
        on = tuple(check_selector(one, entry.kind) for one in _listed(body["on"]))
        found = {text(q): text(f) for q, f in dict(body.get("definitions") or {}).items()}
        load = Load(len(self.loads), do, on, maybe(body.get("at")), maybe(body.get("call")), found)
        if adds or do is not LoadKind.LOAD:
            self.loads = (*self.loads, load)

    def _grant(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        grant = grant_from(body)
        self.version += 1
        if grant.effect is Effect.DENY:
            self.denied.append((entry.sequence, grant.on))
            self.approvals = [a for a in self.approvals if not any(covers(grant.on, tool) for tool in a.tools)]
            self.grants[grant.id if adds else entry.sequence] = grant
        elif adds:
            self.grants[grant.id] = grant
        elif grant.effect is Effect.ASK:
            self.restrictions = (*self.restrictions, grant)

    def _revoke(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        # Taking back a deny, or an ask that cuts an allow, adds; anybody may take back an allow.
        revoked = text(body["id"])
        self.grants = {
            key: g for key, g in self.grants.items() if g.id != revoked or not (adds or g.effect is Effect.ALLOW)
        }
        if adds:
            self.restrictions = tuple(g for g in self.restrictions if g.id != revoked)
        self.version += 1

    def _pin(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        key = (text(body["source"]), text(body["id"]))
        pin = frozenset((text(q), text(f)) for q, f in body["pin"])
        if key in self.pins or key in self.lost:
            return  # the first counts, for good
        if adds:
            self.pins[key] = pin
        else:
            self.lost.add(key)
        self.version += 1

    def _approved(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        given = approval_from(body)
        if adds:
            self.approvals = [*(a for a in self.approvals if a.key != given.key), given]

    def _rejected(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        rejection = approval_from(body)
        self.approvals = [a for a in self.approvals if a.key != rejection.key]
        self.rejected[(*rejection.key, rejection.definition, rejection.reached)] = rejection

    def _lapsed(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        ended = set(_listed(body["tools"]))
        self.approvals = [a for a in self.approvals if ended.isdisjoint(a.tools)]

    def _started(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        real = _written(entry)  # also behind a hole: nobody else could seal it
        operation = operation_from(self.chain, body, entry.token if real else 0)
        used = body.get("approval")
        if used is not None:
            self.approvals = [a for a in self.approvals if list(a.key) != used]
        self._totals(entry, body)
        if real and operation.cost is not None:
            self._reserve(entry.token, operation.id, operation.cost)
        same = self.operations.get(operation.id)
        if same is not None and same.what != operation.what:
            # Neither may hide the other; the id is that of the one that a writer started.
            if real and not same.token:
                self._put(evolve(same, id=f"{same.id}@{entry.sequence}"))
            else:
                operation = evolve(operation, id=f"{operation.id}@{entry.sequence}")
        elif same is not None and not real:
            if same.id in self.open or same.effect == "read":
                return
            operation = evolve(same, doubted=True)
        self._put(operation)

    def _put(self, operation: Operation) -> None:
        self.operations[operation.id] = operation
        self.open.pop(operation.id, None)
        if not operation.settled:
            self.open[operation.id] = operation

    def _reserve(self, token: int, operation: str, cost: int) -> None:
        if token != self.reserving:
            self.reserving, self.reserved = token, {}  # the reservation itself freed what an earlier writer left
        self.reserved.setdefault(operation, []).append(cost)

    def _free(self, token: int, operation: str) -> None:
        costs = self.reserved.get(operation)
        if costs and token == self.reserving:
            costs.remove(min(costs))

    def _settled(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        self._totals(entry, body)
        id_, outcome, evidence = text(body["id"]), Outcome(body["outcome"]), maybe(body.get("evidence"))
        if adds and entry.kind == "settled":
            self._free(entry.token, id_)
        known = self.operations.get(id_)
        if known is None or (known.settled and outcome is Outcome.OUTCOME_UNKNOWN):
            return  # what is known stays known: a body left unsettled says nothing against a reconciliation before
        doubted = not adds and known.effect != "read"
        if not adds and known.state == "committed":
            ended = evolve(known, doubted=doubted)
        else:
            ended = evolve(known, state="committed", outcome=outcome.value, evidence=evidence, doubted=doubted)
        self._put(ended)

    def _reconciled(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        # What a named person found out counts after a hole as well: that is what waiting for it means.
        self._settled(entry, body, _written(entry))

    def _totals(self, entry: Entry, body: dict[str, Any]) -> None:
        used = body.get("used") or {}
        for name in self.used if _written(entry) else ("calls", "spent"):
            self.used[name] = max(self.used[name], whole(used.get(name, 0)))

    def _epoch(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        receipt = body.get("receipt")
        if adds:
            self.receipt = (entry.sequence, receipt if isinstance(receipt, dict) else {})
        self.version += 1
        try:
            named = [
                (text(name), None if high is None else whole(high)) for name, _, high, _ in body["receipt"]["sources"]
            ]
        except (KeyError, TypeError, ValueError):
            return  # a bad receipt is for the audit to say, and bricks nothing
        for name, now in named:
            if not name.startswith("parent: ") and name not in OWN:
                known = self.sources.get(name)
                self.sources[name] = now if known is None else max(known, now or 0)

    def _limits(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        given = body.get("limits")
        if given is not None:
            limits = Limits(**given)
            self.limits = limits if adds or self.limits is None else least(self.limits, limits)

    def _retired(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        name = text(body["name"])
        if adds:
            self.retired.add(name)
            self.version += 1

    def _job_ended(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        job = text(body["job"])
        self._end_until(lambda grant: grant.until == job)

    def _closed(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self._end_until(lambda grant: True)  # noqa: ARG005

    def _end_until(self, over: Callable[[Grant], bool]) -> None:
        self.grants = {
            key: g
            for key, g in self.grants.items()
            if g.lifetime is not Lifetime.UNTIL or g.effect is not Effect.ALLOW or not over(g)
        }
        self.version += 1

    def _spawned(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        child = chain_id(body["child"])
        for place in ("at", "call"):
            maybe(body.get(place))
        if child not in self.children:
            self.children.append(child)

    def _ended(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self.ended = True
        self.version += 1

    def _accepted(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        lost = {(text(source), text(id_)) for source, id_ in body.get("lost", ())}
        if _written(entry):
            self.lost |= lost - self.pins.keys()
            self.accepted = entry.sequence
            self.version += 1

    def _repaired(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        # What a writer saw with its own eyes, and nobody can see any more: entries that were there, and are not.
        if "rollback" in _listed(body["damage"]):
            self.damaged(entry.sequence)

    def _note(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self.notes.append(body)


UNREADABLE = (InvalidInputError, KeyError, TypeError, ValueError, AttributeError, IndexError)
"""What a handler raises for a body that does not read."""


def check_entries(entries: Sequence[Entry]) -> None:
    """Refuse to write what every reader would take for damage: by the reader's own hand, on nothing.

    Raises:
        InvalidInputError: a body does not read.
    """
    for entry in entries:
        try:
            State(entry.chain).take(entry, adds=not entry.posted)
        except InvalidInputError as error:
            raise InvalidInputError(f"record {entry.kind!r}: {error.place}", error.expected, error.got) from error
        except UNREADABLE as error:
            got = f"{type(error).__name__}: {error}"
            raise InvalidInputError(f"record {entry.kind!r}", "a body that reads back", got) from error


def _written(entry: Entry) -> bool:
    """Whether a writer of the chain wrote it, wherever it stands."""
    return not (entry.unsealed or entry.posted)


def _listed(value: object) -> Iterable[str]:
    if not isinstance(value, list):
        raise TypeError(type(value).__name__)
    return [text(one) for one in value]


_HANDLERS: dict[str, Callable[[State, Entry, dict[str, Any], bool], None]] = {
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
    "reconciled": State._reconciled,
    "epoch": State._epoch,
    "limits": State._limits,
    "retired": State._retired,
    "job-ended": State._job_ended,
    "closed": State._closed,
    "spawned": State._spawned,
    "forked": State._spawned,
    "ended": State._ended,
    "accepted": State._accepted,
    "repaired": State._repaired,
    "note": State._note,
}
