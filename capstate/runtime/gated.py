"""Starting and settling calls: the session's side of the guard, and the limits of its tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from capstate.authority import Limits
from capstate.errors import CapstateError, PoolConflictError, Reason, StaleWriterError
from capstate.ledger import PoolChange, Record
from capstate.runtime.arguments import a_call
from capstate.runtime.deciding import Deciding
from capstate.runtime.guard import Gate, Permit, check_cost
from capstate.runtime.live import Folds
from capstate.runtime.owned import TRIES
from capstate.runtime.pool import Tree, Usage
from capstate.runtime.verdict import Names, Verdict, judge, lapsed, operation_id, outlived, refusal
from capstate.trace import Outcome

if TYPE_CHECKING:
    from capstate.runtime.state import State
    from capstate.surface import Surface
    from capstate.trace import Call


class Gated(Deciding):
    """The calls of a session."""

    _names: Names | None = None
    _tree: Tree | None = None

    def guard(self, call: Call, *, cost: int = 0) -> Gate:
        """Return the gate for one call: ``with`` or ``async with`` it, and run the tool inside.

        Args:
            cost: micro-units to reserve; settled by the permit.

        Entering raises Refused (with the call's one result), NeedsApproval, or LedgerUnavailableError.

        Raises:
            InvalidInputError: an argument is of another kind.
        """
        return Gate(self, a_call(call), check_cost(cost))

    @property
    def used(self) -> dict[str, int]:
        """Calls started and cost used in the whole tree so far; empty without limits."""
        with self._lock:
            if self._limits() is None:
                return {}
            usage = self._usage()
            return {"calls": usage.calls, "cost": usage.cost}

    def _judge(self, call: Call) -> Verdict:
        live = self._live
        _, _, surface = live.look(self._profile.names, self._line(self._path))
        state = live.state
        if state.token > self._token:
            raise StaleWriterError(self.id, None, live.folds.head(self.id), owner=False)
        self._tell()
        if state.approvals and (ended := lapsed(state.approvals, surface)):
            # Whatever denied them now may be gone at the next look, and leave no trace.
            self._append(Record("lapsed", {"tools": ended}))
            _, _, surface = live.look(self._profile.names, self._line(self._path))
        verdict = judge(self._by_name(surface), call, state, self._damaged, self._origins)
        if verdict.approval is not None and outlived(verdict.approval, self._others()):
            return verdict._replace(reason=Reason.NEEDS_APPROVAL, approval=None)
        return verdict

    def _others(self) -> Iterator[State]:
        """Give the states that authority rests on, without the session's own."""
        return (state for state in self._live.line() if state.chain != self.id)

    def _elsewhere_seen(self) -> tuple[tuple[str, int], ...]:
        """Return (chain, sequence of the last entry read) of each of these."""
        heads = ((state.chain, self._live.folds.head(state.chain)) for state in self._others())
        return tuple((chain, head.sequence) for chain, head in heads if head is not None)

    def _start(self, call: Call, cost: int) -> Permit:
        with self._lock:
            self._check_open()
            for attempt in range(TRIES):
                verdict = self._judge(call)
                limits = self._limits()
                usage: Usage | None = None
                if limits is not None and verdict.reason in (None, Reason.NEEDS_APPROVAL):
                    usage, name = self._fits(limits, cost)
                    if name is not None:
                        verdict = verdict._replace(reason=Reason.LIMIT_EXCEEDED, decided_by=f"limit {name}")
                if verdict.reason is not None or verdict.row is None:
                    self._count(verdict)
                    raise refusal(call, verdict)
                reached = tuple([row.definition for row in verdict.reached])
                reserved = cost if usage is not None else None
                permit = Permit(call, verdict.row.definition, None, reached, verdict.external, reserved, self)
                if usage is None and verdict.approval is None and not permit.external:
                    return permit
                try:
                    permit.operation = self._record_start(permit, verdict, usage)
                except (StaleWriterError, PoolConflictError) as error:
                    self._after(error, attempt)
                    continue
                self._permits.append(permit)
                try:
                    late = self._late(verdict)
                except CapstateError:
                    self._settle(permit, Outcome.DENIED, None, 0)
                    raise
                if late:
                    self._settle(permit, Outcome.DENIED, None, 0)
                    continue
                return permit
            raise StaleWriterError(self.id, None, None, owner=True)

    def _late(self, verdict: Verdict) -> bool:
        """Whether what was durable before the start forbids it: another chain changed between look and append.

        An append is refused if its own chain grew, and only then.
        """
        if not self._live.folds.changed():
            return False
        _, _, surface = self._live.look(self._profile.names, self._line(self._path))
        rows = [(row, surface.row(row.definition.qualified)) for row in verdict.runs]
        changed = any(now is None or (now.reason, now.effect) != (row.reason, row.effect) for row, now in rows)
        return changed or (verdict.external and self._damaged() != "")

    def _record_start(self, permit: Permit, verdict: Verdict, usage: Usage | None) -> str:
        reserved = usage.reserve(self.id, self._writer.token, permit.cost or 0) if usage is not None else None
        body = self._intent(permit.call, verdict, permit.definition.qualified) | {
            "approval": list(verdict.approval.key) if verdict.approval is not None else None,
            "cost": permit.cost,
            "used": reserved.totals() if reserved is not None else {},
        }
        self._append_with(Record("started", body), reserved)
        return str(body["id"])

    def _intent(self, call: Call, verdict: Verdict, tool: str) -> dict[str, Any]:
        digest = call.digest
        own = operation_id(self.id, call.id, call.occurrence, tool, digest)
        return {
            "arguments": digest,
            "call": call.id,
            "definition": verdict.row.definition.fingerprint if verdict.row is not None else "",
            "effect": "external" if verdict.external else "read",
            "id": verdict.repeats.id if verdict.repeats is not None else own,
            "occurrence": call.occurrence,
            "tool": tool,
        }

    def _append_with(self, record: Record, usage: Usage | None) -> None:
        """Append what was derived, and the pool with it."""
        if usage is None:
            self._append(record, derived=True)
            return
        root = self._root()
        with self._shared().own_change():
            change = PoolChange(root, usage.version, usage.encode(root, self._runtime.key))
            self._append(record, pool=change, derived=True)

    def _settle(self, permit: Permit, outcome: Outcome, evidence: str | None, cost: int) -> None:
        with self._lock:
            for attempt in range(TRIES):
                usage = None
                if permit.cost is not None:
                    before = self._usage()
                    usage = before.settle(self.id, self._writer.token, reserved=permit.cost, cost=cost)
                    usage = None if usage is before else usage
                body: dict[str, Any] = {"evidence": evidence, "id": permit.operation, "outcome": outcome.value}
                if usage is not None:
                    body["used"] = usage.totals()
                try:
                    self._append_with(Record("settled", body), usage)
                except (StaleWriterError, PoolConflictError) as error:
                    self._after(error, attempt)
                    continue
                self._permits = [p for p in self._permits if p is not permit]
                return
            raise StaleWriterError(self.id, None, None, owner=True)

    def _observe(self, permit: Permit, outcome: Outcome, evidence: str | None) -> None:
        with self._lock:
            self._append(Record("observed", {"evidence": evidence, "id": permit.operation, "outcome": outcome.value}))

    def _damaged(self) -> str:
        return next((state.chain for state in self._live.line() if state.read_only), "")

    def _origins(self) -> list[State]:
        """Return the states of the sessions that this one was forked from, nearest first."""
        return list(self._live.origins(self._live.state))

    # -- limits

    def _root(self) -> str:
        opening = self._live.state.opening
        return opening.root if opening is not None else self.id

    def _limits(self) -> Limits | None:
        """Return the limits of the tree; none at all may be used where its root cannot be read."""
        state = self._live.state
        if state.opening is not None and state.opening.root != self.id:
            root = self._live.folds.get(state.opening.root)
            if root is None or root.opening is None or root.opening.kind != "session":
                return _NO_ROOT
            state = root
        limits = state.limits
        return limits if limits is not None and limits != _UNLIMITED else None

    def _usage(self) -> Usage:
        return self._shared().usage(self._live.state)

    def _shared(self) -> Tree:
        root, key, ledger = self._root(), self._runtime.key, self._runtime.ledger
        if self._tree is None or self._tree.root != root:
            self._tree = Tree(root, ledger, key, Folds(ledger, key))
        return self._tree

    def _fits(self, limits: Limits, cost: int) -> tuple[Usage, str | None]:
        usage = self._usage()
        name = usage.exceeded(limits, cost)
        if name == "concurrency":
            usage = self._freed(usage)
            name = usage.exceeded(limits, cost)
        return usage, name

    def _freed(self, usage: Usage) -> Usage:
        """Free the slots of chains whose owner is dead: another one wrote since, or nobody has its lock."""
        for chain, running in usage.running.items():
            if chain == self.id:
                dead = running.token != self._writer.token
            else:
                state = self._shared().folds.get(chain)
                dead = (state is not None and running.token < state.token) or not self._runtime.ledger.owned(chain)
            if dead:
                usage = usage.freed(chain)
        return usage

    # -- refusals

    def _count(self, verdict: Verdict) -> None:
        """Count a refusal by tool and reason; the first of each kind in an epoch is written at once."""
        if verdict.reason is None or verdict.reason is Reason.NEEDS_APPROVAL:
            return
        key = (verdict.row.definition.qualified if verdict.row is not None else "", verdict.reason.value)
        self._refused[key] = self._refused.get(key, 0) + 1
        if key not in self._seen:
            self._append()
            self._seen.add(key)

    def _by_name(self, surface: Surface) -> Names:
        if self._names is None or self._names.surface is not surface:
            self._names = Names.of(surface)
        return self._names


_UNLIMITED = Limits()
_NO_ROOT = Limits(calls=0)
