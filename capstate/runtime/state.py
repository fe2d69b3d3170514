"""What the entries of one chain say, folded in order. Pure: entries in, state out.

Each kind of entry is one method. What adds (grants, approvals, pins, loads, a launch, a retired source) counts only
from an entry of the chain's writer that is sealed where a key is given and stands before any hole; what takes away
always counts (design: trusting the ledger file, damage). An entry that may not add never replaces one that takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from attrs import define, evolve, field

from capstate.authority import Effect, Grant, Lifetime, Limits, check_selector
from capstate.children import ChildRecord
from capstate.decisions import Decision, Graph, Observation
from capstate.effects import Operation
from capstate.errors import InvalidInputError
from capstate.ledger import OPENED, Entry
from capstate.runtime.acts import Acts, written
from capstate.runtime.facts import (
    Approval,
    Opening,
    approval_from,
    chain_id,
    covers,
    grant_from,
    least,
    maybe,
    opening_from,
    text,
    whole,
)
from capstate.surface import Load, LoadKind

__all__ = ["Approval", "Opening", "Operation", "State", "covers"]

OWN = frozenset({"ceiling ended", "ceiling restrictions"})
"""Ceilings that the runtime makes itself: they are in receipts, and no host can lack them."""


@define
class State(Acts):
    """The folded state of one chain.

    Attributes:
        opening: what the first entry says; None while there is none.
        loads: what was wished for, in order.
        approvals: those that were given and not used up.
        rejected: calls that a person refused for good.
        retired: sources that were let go.
        limits: of the tree, where this is its root.
        ended: whether the session may do nothing any more.
        notes: records of the host's own.
    """

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
    """By call: whatever becomes of the definitions, this call with these arguments was refused."""
    sources: dict[str, int | None] = field(factory=dict)
    """Every source and ceiling that a receipt or a ``revisions`` entry named, with the highest revision seen."""
    retired: set[str] = field(factory=set)
    limits: Limits | None = None
    receipt: tuple[int, dict[str, Any]] | None = None
    """Sequence and body of the last receipt."""
    children: list[str] = field(factory=list)
    """Children and forks that were started from here."""
    decisions: Graph = field(factory=Graph)
    """What was concluded, and what needs another look."""
    results: dict[str, ChildRecord] = field(factory=dict)
    """By child, what was kept of its last result."""
    ended: bool = False
    holes: set[tuple[int, int]] = field(factory=set)
    """First and last sequence of each damaged span."""
    accepted: set[tuple[int, int]] = field(factory=set)
    """The spans that a named person accepted: exactly these, whatever is damaged later, or further."""
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
        return not self.holes <= self.accepted

    def apply(self, entry: Entry) -> None:
        """Take one more entry. One of an unknown kind changes nothing; one that does not read is a hole."""
        if entry.unsealed and not entry.posted:
            self.damaged(entry.sequence)  # writers seal: somebody else wrote it, or wrote it anew
        doubted = any(first <= entry.sequence for first, _ in self.holes - self.accepted)
        if not entry.unsealed:
            self.at = max(self.at, entry.at)
            self.token = max(self.token, entry.token)
        self.written = self.written or not entry.posted
        try:
            self.take(entry, adds=written(entry) and not doubted)
        except UNREADABLE:
            self.damaged(entry.sequence)

    def take(self, entry: Entry, *, adds: bool) -> None:
        """Take in what an entry says. Raises one of ``UNREADABLE`` if its body does not read."""
        handler = _HANDLERS.get(entry.kind)
        if handler is not None:
            handler(self, entry, entry.body, adds)

    def damaged(self, first: int, last: int | None = None) -> None:
        """Take in that the chain is damaged from ``first`` to ``last``, or at ``first`` alone."""
        self.holes.add((first, first if last is None else last))
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
        if not adds:
            # A place would move it behind or before what others did there; without one it follows the ledger.
            load = evolve(load, at=None, call=None)
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
        self.rejected[rejection.key] = rejection

    def _lapsed(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        ended = set(_listed(body["tools"]))
        self.approvals = [a for a in self.approvals if ended.isdisjoint(a.tools)]

    def _started(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        super()._started(entry, body, adds)
        used = body.get("approval")
        if used is not None:
            self.approvals = [a for a in self.approvals if list(a.key) != used]

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
        self._seen(*((name, now) for name, now in named if not name.startswith("parent: ") and name not in OWN))

    def _revisions(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self._seen(*[(text(name), whole(now)) for name, now in body["sources"]])
        self.version += 1

    def _seen(self, *named: tuple[str, int | None]) -> None:
        for name, now in named:
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

    def _child_result(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        child, made = chain_id(body["child"]), ChildRecord.from_json(body["record"])
        if adds:
            self.results[child] = made

    def _decision(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        made = Decision.from_json(body["decision"])
        if adds:
            with suppress(InvalidInputError):  # what it rests on was lost: so is it
                known = made.id in self.decisions.decisions
                self.decisions = self.decisions.review(made) if known else self.decisions.add(made)

    def _decisions(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001
        given = Graph.from_json(body["graph"])
        if adds:
            self.decisions = given

    def _observation(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self.decisions = self.decisions.observe(Observation.from_json(body["observation"]))

    def _expired(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self.decisions = self.decisions.expire(_listed(body["evidence"]))

    def _ended(self, _: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        self.ended = True
        self.version += 1

    def _accepted(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        lost = {(text(source), text(id_)) for source, id_ in body.get("lost", ())}
        spans = {(_place(first), _place(last)) for first, last in body["damage"]}
        if written(entry):
            self.lost |= lost - self.pins.keys()
            self.accepted |= spans
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


def _place(value: object) -> int:
    """Return ``value`` if it is an integer; a row that was moved may stand before the first."""
    if type(value) is not int:
        raise TypeError(type(value).__name__)
    return value


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
    "prepared": State._prepared,
    "started": State._started,
    "observed": State._settled,
    "settled": State._settled,
    "reconciled": State._reconciled,
    "epoch": State._epoch,
    "limits": State._limits,
    "revisions": State._revisions,
    "retired": State._retired,
    "job-ended": State._job_ended,
    "closed": State._closed,
    "spawned": State._spawned,
    "forked": State._spawned,
    "child-result": State._child_result,
    "decision": State._decision,
    "decisions": State._decisions,
    "observation": State._observation,
    "expired": State._expired,
    "ended": State._ended,
    "accepted": State._accepted,
    "repaired": State._repaired,
    "note": State._note,
}
