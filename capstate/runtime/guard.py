"""The one gate: whether a call may start now, and how it ended.

Authority is read at the start of the call. What is refused starts nothing and says so in one result; what starts
with an outside effect, an approval or a limit is durable in the ledger before the permit is handed out. The
session's lock is held to derive and append, never while a tool runs.

``with session.guard(call) as permit:`` and ``async with`` do the same; the asynchronous form does its ledger work
in a worker thread, so the event loop is never held. Left unsettled, a read is ``error`` and an external call
``outcome_unknown``, exceptions and cancellation included.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from attrs import define, frozen

from capstate.authority import Effect
from capstate.capabilities import Definition, ToolEffect
from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import InvalidInputError, NeedsApproval, Reason, Refused
from capstate.runtime.state import Approval, Operation
from capstate.surface import Row
from capstate.trace import Call, Message, Outcome, Role

if TYPE_CHECKING:
    from capstate.runtime.gated import Gated  # noqa: TC004 - it imports this module
    from types import TracebackType

    from capstate.runtime.state import State
    from capstate.surface import Surface

_DENIED = frozenset({Reason.NOT_AUTHORISED, Reason.POLICY_MISSING, Reason.SCHEMA_CHANGED})


@frozen
class Verdict:
    """What the guard would say of a call now; ``reason`` is None if it may start.

    Attributes:
        row: the tool that the call names, if the catalog has it.
        inner: the tool that the call would reach through its ``reaches`` argument.
    """

    reason: Reason | None
    decided_by: str
    row: Row | None = None
    inner: Row | None = None
    approval: Approval | None = None
    repeats: Operation | None = None
    """An equal unsettled operation that this call would repeat, idempotently."""

    @property
    def external(self) -> bool:
        """Whether the call may have an outside effect: by the tool, or by what it reaches (a loader runs nothing)."""
        rows = [row for row in (self.row, None if self._loads else self.inner) if row is not None]
        return any(row.definition.tool.effect is ToolEffect.EXTERNAL for row in rows)

    @property
    def _loads(self) -> bool:
        return self.row is not None and self.row.definition.tool.loads


def find(surface: Surface, name: str) -> Row | None:
    """Return the row that a call names, by exact wire name or qualified id; None if there is none or two differ."""
    wired, known = surface.wires.get(name), surface.row(name)
    if wired is None:
        return known or next((row for row in surface.rows() if row.wire == name), None)
    # A wire name that spells another tool's qualified id reaches neither.
    return wired if known is None or known.definition == wired.definition else None


def judge(surface: Surface, state: State, open_elsewhere: list[Operation], call: Call) -> Verdict:
    """Return the verdict on ``call``, limits aside. Reasons in the order of :class:`~capstate.errors.Reason`."""
    row = find(surface, call.tool)
    if row is None:
        return Verdict(Reason.UNKNOWN_TOOL, "")
    tool = row.definition.tool
    inner = None
    if tool.reaches is not None and tool.reaches in call.arguments:
        inner = find(surface, str(call.arguments[tool.reaches]))
        if inner is None:
            return Verdict(row.reason or Reason.UNKNOWN_TOOL, row.decided_by, row)
    if row.reason is not None:
        return Verdict(row.reason, row.decided_by, row, inner)
    if inner is not None and inner.reason is not None and not (tool.loads and inner.reason is Reason.NOT_LOADED):
        return Verdict(inner.reason, inner.decided_by, row, inner)
    verdict = Verdict(None, row.decided_by, row, inner)
    repeats: Operation | None = None
    if verdict.external:
        if state.read_only:
            return Verdict(Reason.SESSION_READ_ONLY, "damage", row, inner)
        repeats = next(
            (
                op
                for op in (*state.unsettled, *open_elsewhere)
                if op.tool == row.definition.qualified and op.effect != ToolEffect.READ and op.arguments == call.digest
            ),
            None,
        )
        if repeats is not None and not (tool.idempotent and repeats.session == state.chain):
            return Verdict(Reason.OUTCOME_UNKNOWN, f"operation {repeats.id}", row, inner)
    asks = [r for r in (row, None if tool.loads else inner) if r is not None and r.effect is Effect.ASK]
    approval = None
    if asks:
        rejection = _matching(state.rejected, row.definition, call)
        if rejection is not None:
            return Verdict(Reason.NOT_AUTHORISED, f"rejected by {rejection.by}", row, inner)
        approval = _matching(state.approvals, row.definition, call)
        if approval is None:
            return Verdict(Reason.NEEDS_APPROVAL, asks[0].decided_by, row, inner, repeats=repeats)
    return Verdict(None, row.decided_by, row, inner, approval, repeats)


def _matching(approvals: list[Approval], definition: Definition, call: Call) -> Approval | None:
    return next(
        (
            a
            for a in approvals
            if (a.call, a.occurrence) == (call.id, call.occurrence)
            and a.definition == definition.fingerprint
            and a.arguments == call.digest
        ),
        None,
    )


def refusal(call: Call, verdict: Verdict) -> Refused | NeedsApproval:
    """Return the exception for a verdict with a reason."""
    reason = verdict.reason or Reason.UNKNOWN_TOOL
    if reason is Reason.NEEDS_APPROVAL:
        return NeedsApproval(call, verdict.decided_by)
    outcome = Outcome.DENIED if reason in _DENIED else Outcome.NOT_RUN
    text = f"This call was not started: {reason.value.replace('_', ' ')}."
    result = Message("", Role.TOOL, text, result_for=call.id, outcome=outcome)
    return Refused(call, reason, verdict.decided_by, outcome.value, result)


def operation_id(session: str, call: Call, tool: str) -> str:
    """Return the id of the operation that ``call`` begins; the same after a restart."""
    parts = canonical([session, call.id, call.occurrence, tool])
    return "op-" + fingerprint(Domain.ARGUMENTS, parts, call.digest.encode())[3:19]


@define(eq=False)
class Permit:
    """The right to run one call, once.

    Attributes:
        definition: the tool to run: never look it up by the name in the call.
        operation: its id in the ledger; None for a call that leaves no entry.
        inner: the definition that the call may reach, if it names one.
    """

    call: Call
    definition: Definition
    operation: str | None
    inner: Definition | None
    external: bool
    cost: int
    _session: Gated
    outcome: Outcome | None = None

    def settle(
        self, result: object = None, *, outcome: str = "ok", evidence: str | None = None, cost: int | None = None
    ) -> Any:
        """Say how the call ended; returns ``result`` as it is.

        Args:
            outcome: a value of :class:`~capstate.trace.Outcome`.
            evidence: id of the artefact that shows it.
            cost: what it really cost, in micro-units; by default what was reserved.

        Raises:
            InvalidInputError: the call was settled before, or ``outcome`` is no outcome.
            LedgerUnavailableError: the outcome could not be made durable; the operation stays unsettled.
        """
        try:
            ended = Outcome(outcome)
        except ValueError:
            raise InvalidInputError("outcome", f"one of {', '.join(Outcome)}", outcome) from None
        if self.outcome is not None:
            raise InvalidInputError(
                f"call {self.call.id!r}", "one settlement", f"a second after {self.outcome.value!r}"
            )
        self._session._settle(self, ended, evidence, self.cost if cost is None else cost)
        self.outcome = ended
        return result

    def not_sent(self) -> None:
        """Say that the body sent nothing before it failed or was cancelled. Raises as :meth:`settle`."""
        self.settle(outcome=Outcome.CANCELLED)

    def _leave(self) -> None:
        if self.outcome is None:
            self.settle(outcome=Outcome.OUTCOME_UNKNOWN if self.external else Outcome.ERROR)


class Gate:
    """``session.guard(call)``: a context manager and an asynchronous one."""

    def __init__(self, session: Gated, call: Call, cost: int) -> None:
        self._session, self._call, self._cost = session, call, cost
        self._permit: Permit | None = None

    def __enter__(self) -> Permit:
        """Start the call, or raise Refused or NeedsApproval."""
        self._permit = self._session._start(self._call, self._cost)
        return self._permit

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Settle what the body left unsettled."""
        if self._permit is not None:
            self._permit._leave()

    async def __aenter__(self) -> Permit:
        """Start the call in a worker thread; cancelled meanwhile, it settles as never sent."""
        start = asyncio.ensure_future(asyncio.to_thread(self._session._start, self._call, self._cost))
        try:
            self._permit = await asyncio.shield(start)
        except asyncio.CancelledError:
            await _finish(start)
            if not start.cancelled() and start.exception() is None:
                await _finish(asyncio.ensure_future(asyncio.to_thread(start.result().not_sent)))
            raise
        return self._permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Settle in a worker thread; a cancellation waits for it."""
        if self._permit is not None and self._permit.outcome is None:
            leave = asyncio.ensure_future(asyncio.to_thread(self._permit._leave))
            cancelled = await _finish(leave)
            leave.result()
            if cancelled:
                raise asyncio.CancelledError

    def __repr__(self) -> str:
        return f"<guard of call {self._call.id!r}>"


async def _finish(task: asyncio.Future[Any]) -> bool:
    """Wait until ``task`` is done, whatever cancels the waiting; return whether something did."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
