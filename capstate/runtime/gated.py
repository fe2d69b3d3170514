"""Starting and settling calls: the session's side of the guard, and the limits of its tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from capstate.authority import Limits
from capstate.errors import InvalidInputError, PoolConflictError, Reason, SessionLockedError, StaleWriterError
from capstate.ledger import PoolChange, Record
from capstate.runtime.guard import Gate, Permit, Verdict, judge, operation_id, refusal
from capstate.runtime.owned import TRIES, Owned
from capstate.runtime.pool import Usage
from capstate.trace import Outcome

if TYPE_CHECKING:
    from capstate.runtime.state import Operation
    from capstate.trace import Call


class Gated(Owned):
    """The calls of a session."""

    def guard(self, call: Call, *, cost: int = 0) -> Gate:
        """Return the gate for one call: ``with`` or ``async with`` it, and run the tool inside.

        Args:
            cost: micro-units to reserve; settled by the permit.

        Entering raises Refused (with the call's one result), NeedsApproval, or LedgerUnavailableError.
        """
        if type(cost) is not int or cost < 0:
            raise InvalidInputError("cost", "whole micro-units from 0", cost)
        return Gate(self, call, cost)

    def reconcile(self, operation: str, *, outcome: str, by: str, evidence: str | None = None) -> None:
        """Settle an operation of unknown outcome by what the tool's side says now.

        Raises:
            InvalidInputError: no such unsettled operation of this session.
        """
        with self._open():
            self._live.folds.refresh()
            known = self._live.state.operations.get(operation)
            if known is None or known.settled:
                raise InvalidInputError("operation", "an unsettled operation of this session", operation)
            body: dict[str, Any] = {"by": by, "evidence": evidence, "id": operation, "outcome": Outcome(outcome).value, "used": {}}
            self._append(Record("settled", body))

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Every operation that this session's chain knows, and the unsettled ones of what it was forked from."""
        with self._open():
            self._live.folds.refresh()
            return (*self._live.state.operations.values(), *self._inherited())

    @property
    def used(self) -> dict[str, int]:
        """Calls started and cost used in the whole tree so far; empty without limits."""
        with self._lock:
            if self._limits() is None:
                return {}
            usage = self._usage()
            return {"calls": usage.calls, "cost": usage.cost}

    def _judge(self, call: Call) -> Verdict:
        _, _, surface = self._live.look(self._profile.names, self._line(self._path))
        return judge(surface, self._live.state, self._inherited(), call)

    def _start(self, call: Call, cost: int) -> Permit:
        with self._open():
            for _ in range(TRIES):
                verdict = self._judge(call)
                limits = self._limits()
                usage: Usage | None = None
                if verdict.reason in (None, Reason.NEEDS_APPROVAL) and limits is not None:
                    usage = self._usage()
                    name = usage.exceeded(limits, cost)
                    if name == "concurrency":
                        usage = self._freed(usage)
                        name = usage.exceeded(limits, cost)
                    if name is not None:
                        verdict = evolve(verdict, reason=Reason.LIMIT_EXCEEDED, decided_by=f"limit {name}")
                if verdict.reason is not None or verdict.row is None:
                    self._count(verdict)
                    raise refusal(call, verdict)
                definition = verdict.row.definition
                inner = verdict.inner.definition if verdict.inner is not None else None
                permit = Permit(call, definition, None, inner, verdict.external, cost, self)
                if usage is None and verdict.approval is None and not verdict.external:
                    return permit
                try:
                    permit.operation = self._record_start(permit, verdict, usage)
                except (StaleWriterError, PoolConflictError) as error:
                    self._after(error)
                    continue
                self._permits.append(permit)
                return permit
            raise StaleWriterError(self.id, None, None, owner=True)

    def _record_start(self, permit: Permit, verdict: Verdict, usage: Usage | None) -> str:
        call, tool = permit.call, permit.definition.qualified
        operation = verdict.repeats.id if verdict.repeats is not None else operation_id(self.id, call, tool)
        reserved = usage.reserve(self.id, self._writer.token, permit.cost) if usage is not None else None
        approval = verdict.approval
        body = {
            "approval": [approval.call, approval.occurrence, approval.tool, approval.arguments] if approval else None,
            "arguments": call.digest,
            "call": call.id,
            "definition": permit.definition.fingerprint,
            "effect": "external" if permit.external else "read",
            "id": operation,
            "occurrence": call.occurrence,
            "tool": tool,
            "used": reserved.totals() if reserved is not None else {},
        }
        self._append(Record("started", body), pool=self._change(reserved), derived=True)
        return operation

    def _settle(self, permit: Permit, outcome: Outcome, evidence: str | None, cost: int) -> None:
        if permit.operation is None:
            return
        with self._lock:
            for _ in range(TRIES):
                usage = self._usage() if self._limits() is not None else None
                if usage is not None:
                    usage = usage.settle(self.id, self._writer.token, reserved=permit.cost, cost=cost)
                body = {
                    "evidence": evidence,
                    "id": permit.operation,
                    "outcome": outcome.value,
                    "used": usage.totals() if usage is not None else {},
                }
                try:
                    self._append(Record("settled", body), pool=self._change(usage), derived=True)
                except (StaleWriterError, PoolConflictError) as error:
                    self._after(error)
                    continue
                self._permits = [p for p in self._permits if p is not permit]
                return
            raise StaleWriterError(self.id, None, None, owner=True)

    def _inherited(self) -> list[Operation]:
        """Unsettled operations of the sessions that this one was forked from: visible, and not to be repeated."""
        found: list[Operation] = []
        state = self._live.state
        seen = {self.id}
        while state.opening is not None and state.opening.origin is not None and state.opening.origin[0] not in seen:
            origin = self._live.folds.get(state.opening.origin[0])
            if origin is None:
                break
            seen.add(origin.chain)
            found += origin.unsettled
            state = origin
        return found

    def _limits(self) -> Limits | None:
        root = self._live.folds.get(self._root())
        limits = root.limits if root is not None else None
        return limits if limits is not None and limits != Limits() else None

    def _root(self) -> str:
        opening = self._live.state.opening
        return opening.root if opening is not None else self.id

    def _usage(self) -> Usage:
        root = self._root()
        pool = self._runtime.ledger.pool(root)
        state = self._live.folds.get(root)
        above = state.used if state is not None else {}
        value, version = (pool.value, pool.version) if pool is not None else (None, 0)
        return Usage.of(value, version, self._live.state.used, above)

    def _freed(self, usage: Usage) -> Usage:
        """Free the slots of chains whose owner is dead: its lock can be had."""
        for chain, running in usage.running.items():
            if chain == self.id:
                dead = running.token != self._writer.token
            else:
                try:
                    self._runtime.ledger.lock(chain).close()
                    dead = True
                except SessionLockedError:
                    dead = False
            if dead:
                usage = usage.freed(chain)
        return usage

    def _change(self, usage: Usage | None) -> PoolChange | None:
        return PoolChange(self._root(), usage.version, usage.encode()) if usage is not None else None

    def _count(self, verdict: Verdict) -> None:
        """Count a refusal by tool and reason; the first of each kind in an epoch is written at once."""
        if verdict.reason is None or verdict.reason is Reason.NEEDS_APPROVAL:
            return
        tool = verdict.row.definition.qualified if verdict.row is not None else ""
        key = (tool, verdict.reason.value)
        self._refused[key] = self._refused.get(key, 0) + 1
        seen = (self._epoch.receipt.digest if self._epoch is not None else "", *key)
        if seen not in self._seen:
            self._seen.add(seen)
            self._append(self._counted())
            self._refused.clear()

    def _counted(self) -> Record:
        epoch = self._epoch.receipt.epoch if self._epoch is not None else None
        counts = [[tool, reason, count] for (tool, reason), count in sorted(self._refused.items())]
        return Record("refused", {"counts": counts, "epoch": epoch})
