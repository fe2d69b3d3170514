"""Operations before they start and after a crash: prepared, asked after, recorded, left to a named person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capstate.effects import UNKNOWN, Action, Ask, OperationState, Step, plan
from capstate.errors import InvalidInputError, Reason, StaleWriterError
from capstate.ledger import Record
from capstate.runtime.arguments import a_call, a_person, an_id, an_id_or_none
from capstate.runtime.gated import Gated
from capstate.runtime.owned import TRIES
from capstate.runtime.verdict import refusal
from capstate.trace import Call, Outcome, OutcomeName

if TYPE_CHECKING:
    from capstate.capabilities import Definition
    from capstate.effects import Operation


class Recovering(Gated):
    """The operations of a session."""

    def reconcile(
        self, operation: str, *, outcome: OutcomeName | Outcome, by: str, evidence: str | None = None
    ) -> None:
        """Settle an unsettled operation by what the tool's side says now; what its own call says later still counts.

        Args:
            outcome: a value of :class:`~capstate.trace.Outcome`; ``outcome_unknown`` leaves it waiting.

        Raises:
            InvalidInputError: no such unsettled operation of this session, or one that cannot have ended so.
        """
        if outcome not in Outcome.__members__.values():
            raise InvalidInputError("outcome", f"one of {', '.join(Outcome)}", outcome)
        an_id(operation, "operation")
        an_id_or_none(evidence, "evidence")
        a_person(by)
        self._cited(f"operation {operation!r}", [evidence])
        with self._open():
            self._live.folds.refresh()
            known = self._live.state.open.get(operation)
            if known is None:
                raise InvalidInputError("operation", "an unsettled operation of this session", operation)
            known.moved(OperationState.COMMITTED, outcome=str(Outcome(outcome)))
            body = {"by": by, "evidence": evidence, "id": operation, "outcome": str(Outcome(outcome))}
            self._append(Record("reconciled", body))

    def prepare(self, call: Call) -> str:
        """Record that a call with an outside effect is intended, before it starts; return the operation's id.

        Nothing is done yet, and nothing reserved. The guard starts the call under that id; no other call may do the
        same act meanwhile. Durable on return. A second preparation returns the same id.

        Raises:
            Refused: it could not start now. One that waits for approval can be prepared.
            InvalidInputError: the call has no outside effect.
        """
        a_call(call)
        with self._open():
            for attempt in range(TRIES):
                verdict = self._judge(call)
                if verdict.row is None or verdict.reason not in (None, Reason.NEEDS_APPROVAL):
                    self._count(verdict)
                    raise refusal(call, verdict)
                if not verdict.external:
                    raise InvalidInputError(f"call {call.id!r}", "a call with an outside effect", "one that reads")
                if verdict.repeats is not None:
                    return verdict.repeats.id
                body = self._intent(call, verdict, verdict.row.definition.qualified)
                try:
                    self._append(Record("prepared", body), derived=True)
                except StaleWriterError as error:
                    self._after(error, attempt)
                    continue
                return str(body["id"])
            raise StaleWriterError(self.id, None, None, owner=True)

    def recover(self, ask: Ask | None = None, *, by: str) -> tuple[Step, ...]:
        """Decide about every operation of this session whose end is not recorded and that does not run here.

        What is known to have ended is recorded. The host then puts the calls of steps ``start`` and ``retry`` through
        the guard again, with their ids and arguments; what must ``wait`` is refused there until it is reconciled.

        Args:
            ask: asks the tool's side about one operation; None where it cannot be asked. No lock is held meanwhile.
            by: who recovers; stands in the ledger beside what is recorded.
        """
        a_person(by)
        if ask is not None and not callable(ask):
            raise InvalidInputError("ask", "a function of an operation, or None", ask)
        with self._open():
            self._live.folds.refresh()
            running = {permit.operation for permit in self._permits}
            left = [op for op in self._live.state.open.values() if op.id not in running]
            catalog = self._live.sources.read_catalog()
        steps = plan(left, lambda op: _idempotent(catalog.find(op.tool)), ask)
        with self._open():
            self._live.folds.refresh()
            for each in steps:
                if self._live.state.open.get(each.operation.id) == each.operation:
                    self._record(each, by)
        return steps

    def _record(self, step: Step, by: str) -> None:
        """Write what recovery found out: an end that was observed, or what the tool's side says."""
        operation, answer = step.operation, step.answer
        if step.action is Action.COMMIT and answer is None:
            body = {"evidence": operation.evidence, "id": operation.id, "outcome": operation.outcome}
            self._append(Record("settled", body))
        elif answer is not None and answer.outcome != UNKNOWN:
            ended = {"by": by, "evidence": answer.evidence, "id": operation.id, "outcome": answer.outcome}
            self._append(Record("reconciled", ended))

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Every operation that this session's chain knows, and those of what it was forked from, under their owner."""
        with self._open():
            self._live.folds.refresh()
            origins = self._origins()
            return (*self._live.state.operations.values(), *(op for o in origins for op in o.operations.values()))


def _idempotent(definition: Definition | None) -> bool:
    """Whether the tool, as it is now, does no harm if it runs again; of a bridge nobody can tell."""
    return definition is not None and definition.tool.idempotent and definition.tool.reaches is None
