"""The one gate: whether a call may start now, and how it ended.

Authority is read at the start of the call. What is refused starts nothing and says so in one result; what starts
with an outside effect, an approval or a limit is durable in the ledger before the permit is handed out.

``with session.guard(call) as permit:`` and ``async with`` do the same; the asynchronous form does its ledger work
in a worker thread, settling included, so the event loop is never held. Left unsettled, a read is ``error`` and an
external call ``outcome_unknown``, exceptions and cancellation included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, overload

from attrs import define

from capstate.capabilities import Definition
from capstate.errors import InvalidInputError
from capstate.runtime.arguments import an_id_or_none
from capstate.trace import Call, Outcome, OutcomeName

if TYPE_CHECKING:
    from types import TracebackType

    from capstate.runtime.gated import Gated  # noqa: TC004 - it imports this module


_Result = TypeVar("_Result")


@define(eq=False)
class Permit:
    """The right to run one call, once.

    Attributes:
        call: the call that it is for.
        definition: the tool to run: never look it up by the name in the call.
        operation: its id in the ledger; None for a call that leaves no entry.
        reached: the further definitions that the call may reach: of a bridge or a loader, what its argument names.
        external: it may have an outside effect.
        cost: what was reserved for it; None if nothing was.
        outcome: how it ended; None until it is settled.
        observed: how it ended, as far as it was said before it is settled.
    """

    call: Call
    definition: Definition
    operation: str | None
    reached: tuple[Definition, ...]
    external: bool
    cost: int | None
    _session: Gated
    outcome: Outcome | None = None
    observed: Outcome | None = None
    _later: bool = False
    _told: tuple[Outcome, str | None, int] | None = None

    @property
    def inner(self) -> Definition | None:
        """The definition that the call may reach, if it names one."""
        return self.reached[0] if self.reached else None

    @overload
    def settle(
        self,
        result: None = None,
        *,
        outcome: OutcomeName | Outcome = "ok",
        evidence: str | None = None,
        cost: int | None = None,
    ) -> None: ...

    @overload
    def settle(
        self,
        result: _Result,
        *,
        outcome: OutcomeName | Outcome = "ok",
        evidence: str | None = None,
        cost: int | None = None,
    ) -> _Result: ...

    def settle(
        self,
        result: object = None,
        *,
        outcome: OutcomeName | Outcome = "ok",
        evidence: str | None = None,
        cost: int | None = None,
    ) -> object:
        """Say how the call ended; returns ``result`` as it is.

        Inside ``with`` it is durable when this returns, inside ``async with`` when the block is left.

        Args:
            outcome: a value of :class:`~capstate.trace.Outcome`.
            evidence: id of the artefact that shows it.
            cost: what it really cost, in micro-units; by default what was reserved.

        Raises:
            InvalidInputError: the call was settled before, the evidence cannot be looked up (where the runtime can
                tell), or an argument is none.
            LedgerUnavailableError: the outcome could not be made durable; the operation stays unsettled.
        """
        if outcome not in Outcome.__members__.values():
            raise InvalidInputError("outcome", f"one of {', '.join(Outcome)}", outcome)
        an_id_or_none(evidence, "evidence")
        self._session._cited(f"call {self.call.id!r}", [evidence])
        self._tell(Outcome(outcome), evidence, (self.cost or 0) if cost is None else check_cost(cost))
        return result

    def observe(self, *, outcome: OutcomeName | Outcome = "ok", evidence: str | None = None) -> None:
        """Say how the call ended before its result is part of the history; durable when this returns.

        After a crash it is then recorded, and not run again. Settling comes later, with the same outcome; leaving the
        block settles it so. It writes to the ledger: within ``async with`` call it in a worker thread.

        Raises:
            InvalidInputError: the call was settled or observed before, leaves no entry, or an argument is none.
        """
        if outcome not in Outcome.__members__.values() or outcome == Outcome.OUTCOME_UNKNOWN:
            known = [one for one in Outcome if one is not Outcome.OUTCOME_UNKNOWN]
            raise InvalidInputError("outcome", f"one of {', '.join(known)}", outcome)
        an_id_or_none(evidence, "evidence")
        self._session._cited(f"call {self.call.id!r}", [evidence])
        with self._session._lock:
            self._once()
            if self.operation is None or self.observed is not None:
                raise InvalidInputError(f"call {self.call.id!r}", "an operation that is observed once", "another")
            self._session._observe(self, Outcome(outcome), evidence)
            self.observed = Outcome(outcome)

    def not_sent(self) -> None:
        """Say that nothing was sent before the body failed or was cancelled: no cost. Raises as :meth:`settle`."""
        self._tell(Outcome.CANCELLED, None, 0)

    def _tell(self, ended: Outcome, evidence: str | None, cost: int) -> None:
        if self.observed not in (None, ended):
            raise InvalidInputError(f"call {self.call.id!r}", f"the outcome that was observed, {self.observed}", ended)
        if self.outcome is None and (self.operation is None or self._later):
            self.outcome, self._told = ended, (ended, evidence, cost)
            return
        with self._session._lock:
            self._once()
            self._session._settle(self, ended, evidence, cost)
            self.outcome = ended

    def _once(self) -> None:
        if self.outcome is not None:
            raise InvalidInputError(
                f"call {self.call.id!r}", "one settlement", f"a second after {self.outcome.value!r}"
            )

    def _leave(self) -> None:
        """Settle what the body left unsettled, and write what it said if that was put off."""
        with self._session._lock:
            self._later = False
            told, self._told = self._told, None
            if told is not None and self.operation is not None:
                self._session._settle(self, *told)
            elif self.outcome is None:
                untold = Outcome.OUTCOME_UNKNOWN if self.external else Outcome.ERROR
                self._tell(self.observed or untold, None, self.cost or 0)


class Gate:
    """``session.guard(call)``: a context manager and an asynchronous one, for one use."""

    def __init__(self, session: Gated, call: Call, cost: int) -> None:
        self._session, self._call, self._cost = session, call, cost
        self._used = False
        self._permit: Permit | None = None

    def __enter__(self) -> Permit:
        """Start the call, or raise Refused or NeedsApproval."""
        self._permit = self._start()
        return self._permit

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Settle what the body left unsettled."""
        if self._permit is not None and self._permit.outcome is None:
            self._permit._leave()

    async def __aenter__(self) -> Permit:
        """Start the call in a worker thread; cancelled meanwhile, it settles as never sent."""
        from capstate.runtime import waiting  # noqa: PLC0415 - who has no event loop need not load one

        permit: Permit = await waiting.begun(self._start, undo=Permit.not_sent)
        permit._later = permit.operation is not None
        self._permit = permit
        return permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Settle in a worker thread; a cancellation waits for it."""
        permit = self._permit
        if permit is None or permit.operation is None:
            self.__exit__(kind, error, tb)
            return
        from capstate.runtime import waiting  # noqa: PLC0415 - as above

        await waiting.ended(permit._leave)

    def _start(self) -> Permit:
        if self._used:
            raise InvalidInputError(f"guard of call {self._call.id!r}", "one use", "a second")
        self._used = True
        return self._session._start(self._call, self._cost)

    def __repr__(self) -> str:
        return f"<guard of call {self._call.id!r}>"


def check_cost(cost: object) -> int:
    """Return ``cost`` if it is whole micro-units.

    Raises:
        InvalidInputError: it is not.
    """
    if type(cost) is not int or not 0 <= cost < 2**53:
        raise InvalidInputError("cost", "whole micro-units from 0", cost)
    return cost
