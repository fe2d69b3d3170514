"""Operations with an outside effect: their states, and what may be done about one after a crash. Pure.

``prepared`` → ``executing`` → ``observed`` → ``committed``, under one id. What may have happened is never repeated
blindly: recovery reads the ledger, asks the tool's side, and only then decides. The rules are ``docs/spec/effects.md``.

Not here: running a tool, asking its side, or writing to a ledger (:mod:`capstate.runtime`).

>>> op = Operation("op-1", "s", "c1", 0, "git/push", "b3:00", "external")
>>> step(op, idempotent=False).action, step(op, idempotent=True).action, step(op, Answer("ok"), idempotent=False).action
(<Action.WAIT: 'wait'>, <Action.RETRY: 'retry'>, <Action.COMMIT: 'commit'>)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from attrs import evolve, field, frozen

from capstate.errors import InvalidInputError

UNKNOWN = "outcome_unknown"
NOT_DONE = frozenset({"not_run", "denied", "cancelled"})
"""Outcomes that say that nothing happened outside."""
OUTCOMES = NOT_DONE | {"ok", "error", UNKNOWN}


class OperationState(StrEnum):
    """How far an operation is known to have come."""

    PREPARED = "prepared"
    """Intended; nothing was done."""
    EXECUTING = "executing"
    """It may have happened."""
    OBSERVED = "observed"
    """How it ended is known, and not yet part of the history."""
    COMMITTED = "committed"
    """How it ended is recorded."""


_NEXT = {
    None: {OperationState.PREPARED, OperationState.EXECUTING},
    OperationState.PREPARED: {OperationState.EXECUTING, OperationState.COMMITTED},
    OperationState.EXECUTING: {OperationState.EXECUTING, OperationState.OBSERVED, OperationState.COMMITTED},
    OperationState.OBSERVED: {OperationState.COMMITTED},
    OperationState.COMMITTED: set(),
}


@frozen
class Operation:
    """One intended act that the ledger knows.

    Attributes:
        id: the same for every retry.
        session: who owns it.
        call: id of the call that began it.
        occurrence: which call of that id it was.
        tool: qualified id of the tool.
        arguments: digest of the canonical arguments.
        effect: ``read`` or ``external``.
        token: of the writer that started it last; 0 if what says so may not add.
        state: how far it got.
        outcome: a value of :class:`~capstate.trace.Outcome`; ``outcome_unknown`` of one that was left unsettled.
        evidence: id of what shows the outcome, where there is something.
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
    token: int = 0
    state: OperationState = field(default=OperationState.EXECUTING, converter=OperationState)
    outcome: str | None = None
    evidence: str | None = None
    doubted: bool = False
    cost: int | None = None

    @property
    def what(self) -> tuple[str, str, str]:
        """What it does: tool, arguments, effect."""
        return self.tool, self.arguments, self.effect

    @property
    def open(self) -> bool:
        """Whether it stands in the way of an equal one: how it ended is not recorded yet."""
        return self.state is not OperationState.COMMITTED or self.doubted

    @property
    def settled(self) -> bool:
        """Whether it is known how it ended."""
        return self.state in (OperationState.OBSERVED, OperationState.COMMITTED) and not self.doubted

    def moved(self, state: OperationState, *, outcome: str | None = None, evidence: str | None = None) -> Operation:
        """Return the operation in its next state (effects.md 2). ``outcome_unknown`` leaves it executing.

        A doubted one may have ended in any way.

        Raises:
            InvalidInputError: that state, or that outcome, cannot follow.
        """
        here = OperationState.EXECUTING if self.doubted else self.state
        if state not in _NEXT[here]:
            raise self._illegal(f"one of {', '.join(sorted(_NEXT[here])) or 'none'}", state)
        if outcome == UNKNOWN:
            state = OperationState.EXECUTING
        elif state in (OperationState.OBSERVED, OperationState.COMMITTED) and outcome is None:
            raise self._illegal("an outcome", outcome)
        if here is OperationState.PREPARED and state is OperationState.COMMITTED and outcome not in NOT_DONE:
            raise self._illegal("an outcome of what was never begun", outcome)
        if here is OperationState.OBSERVED and outcome != self.outcome:
            raise self._illegal(f"the outcome that was observed, {self.outcome}", outcome)
        return evolve(self, state=state, outcome=outcome, evidence=evidence or self.evidence, doubted=False)

    def _illegal(self, expected: str, got: object) -> InvalidInputError:
        return InvalidInputError(f"operation {self.id!r}, {self.state}", expected, got)


class Action(StrEnum):
    """What recovery does about one operation."""

    NONE = "none"
    START = "start"
    """It was never begun: its own call may start it, once."""
    COMMIT = "commit"
    """Record how it ended; run nothing."""
    RETRY = "retry"
    """Run it again under the same id."""
    WAIT = "wait"
    """Nobody can tell: a named person reconciles it."""


@frozen
class Answer:
    """What the tool's side says of an operation, if it knows: its outcome, and what shows it.

    An outcome of :data:`NOT_DONE` says that it did not happen, ``outcome_unknown`` that the tool's side cannot tell.

    Attributes:
        outcome: a value of :class:`~capstate.trace.Outcome`, or :data:`NOT_DONE`.
        evidence: id of what shows it, or None.

    Raises:
        InvalidInputError: the outcome is none, or the evidence no id.
    """

    outcome: str
    evidence: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise InvalidInputError("answer outcome", f"one of {', '.join(sorted(OUTCOMES))}", self.outcome)
        if self.evidence is not None and (type(self.evidence) is not str or not self.evidence):
            raise InvalidInputError("answer evidence", "an id, or None", self.evidence)


Ask = Callable[[Operation], "Answer | None"]
"""Asks the tool's side; None where it cannot be asked."""


@frozen
class Step:
    """What to do about one operation, and why.

    Attributes:
        operation: what the step is about.
        action: what to do.
        why: the same for people.
        answer: what the tool's side said; None if it was not asked or did not know.
    """

    operation: Operation
    action: Action
    why: str
    answer: Answer | None = None


_CERTAIN = {
    OperationState.PREPARED: (Action.START, "it was never begun"),
    OperationState.OBSERVED: (Action.COMMIT, "how it ended is known"),
    OperationState.COMMITTED: (Action.NONE, "how it ended is recorded"),
}


def step(operation: Operation, answer: Answer | None = None, *, idempotent: bool) -> Step:
    """Return what recovery does about ``operation`` (effects.md 4), given what the tool's side says."""
    if operation.state is not OperationState.EXECUTING and not operation.doubted:
        return Step(operation, *_CERTAIN[operation.state])
    if answer is not None and answer.outcome in NOT_DONE:
        return Step(operation, Action.RETRY, "the tool's side says that it did not happen", answer)
    if answer is not None and answer.outcome != UNKNOWN:
        return Step(operation, Action.COMMIT, "the tool's side says how it ended", answer)
    if idempotent:
        return Step(operation, Action.RETRY, "nobody can tell, and a repeat does no harm", answer)
    return Step(operation, Action.WAIT, "nobody can tell whether it happened", answer)


def plan(
    operations: Iterable[Operation], idempotent: Callable[[Operation], bool], ask: Ask | None = None
) -> tuple[Step, ...]:
    """Return a step for each operation that is not over, in order; the tool's side is asked only where it counts.

    An error while asking is no answer, and stands in the step's reason.

    Raises:
        InvalidInputError: the tool's side gave something else than an Answer or None.
    """
    steps = []
    for operation in operations:
        answer, failed = None, ""
        if ask is not None and (operation.doubted or operation.state is OperationState.EXECUTING):
            try:
                answer = ask(operation)
            except Exception as error:  # noqa: BLE001 - whatever the tool's side raises, it does not know
                failed = f" ({type(error).__name__}: {error})"
            if answer is not None and not isinstance(answer, Answer):
                raise InvalidInputError(f"what was said of operation {operation.id!r}", "an Answer, or None", answer)
        made = step(operation, answer, idempotent=idempotent(operation))
        if made.action is not Action.NONE:
            steps.append(evolve(made, why=made.why + failed))
    return tuple(steps)
