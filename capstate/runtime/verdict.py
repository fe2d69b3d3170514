"""What the guard says of one call, given a surface and the state of a chain. Pure.

Limits are judged by the session, between these reasons (see :class:`~capstate.errors.Reason` for the order).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import frozen

from capstate.authority import Effect
from capstate.capabilities import ToolEffect
from capstate.digest import Domain, canonical, fingerprint
from capstate.effects import Operation, OperationState
from capstate.errors import NeedsApproval, Reason, Refused
from capstate.runtime.facts import Approval, covers
from capstate.surface import Row, Surface
from capstate.trace import Call, Message, Outcome, Role

if TYPE_CHECKING:
    from capstate.runtime.state import State

_UNAUTHORISED = frozenset({Reason.NOT_AUTHORISED, Reason.POLICY_MISSING})
_DENIED = _UNAUTHORISED | {Reason.SCHEMA_CHANGED}


@frozen
class Names:
    """The tools of one surface by the names that a call may use: exact wire name or qualified id."""

    surface: Surface
    _withheld: list[dict[str, Row]]

    @classmethod
    def of(cls, surface: Surface) -> Names:
        """Return the names of ``surface``."""
        return cls(surface, [])

    def find(self, name: object) -> Row | None:
        """Return the row that a call names; None if there is none.

        A wire name that spells another tool's qualified id is a conflict: it reaches neither.
        """
        if not isinstance(name, str):
            return None
        wired = self.surface.wires.get(name)
        known = self.surface.row(name) if "/" in name else None
        if wired is None:
            return known if known is not None else self._by_wire().get(name)
        if known is None or known is wired:
            return wired
        return Row(known.definition, Reason.NAME_CONFLICT, None, "", name, known.loaded)

    def group(self, name: str) -> list[Row]:
        """Return the rows of the group that ``name`` names, as ``group`` or ``group/*``."""
        view = self.surface.views.get(name.removesuffix("/*"))
        return list(view.rows.values()) if view is not None else []

    def _by_wire(self) -> dict[str, Row]:
        if not self._withheld:
            found: dict[str, Row] = {}
            for row in self.surface.rows():
                if row.wire is not None and row.reason is not None:
                    found.setdefault(row.wire, row)
            self._withheld.append(found)
        return self._withheld[0]


class Verdict(NamedTuple):
    """What the guard would say of a call now; ``reason`` is None if it may start.

    ``row`` is the tool that the call names, if the catalog has it; ``reached`` are the further tools that it would
    reach; ``approval`` is the one that it would use up; ``repeats`` is an equal unsettled operation that this call
    would repeat, idempotently.
    """

    reason: Reason | None
    decided_by: str
    row: Row | None = None
    reached: tuple[Row, ...] = ()
    approval: Approval | None = None
    repeats: Operation | None = None

    @property
    def runs(self) -> tuple[Row, ...]:
        """Every tool whose body the call may run; a loader runs nothing but itself."""
        if self.row is None:
            return ()
        return (self.row,) if self.row.definition.tool.loads else (self.row, *self.reached)

    @property
    def external(self) -> bool:
        """Whether the call may have an outside effect."""
        if not self.reached and self.row is not None:
            return self.row.definition.tool.effect is ToolEffect.EXTERNAL
        return any(row.definition.tool.effect is ToolEffect.EXTERNAL for row in self.runs)


def judge(
    names: Names, call: Call, state: State, damaged: Callable[[], str], origins: Callable[[], list[State]]
) -> Verdict:
    """Return the verdict on ``call``, limits aside.

    Args:
        damaged: names the first damaged chain that authority rests on; empty if there is none.
        origins: the states of what the session was forked from: their unsettled operations must not be repeated, and
            what a person rejected there is rejected.
    """
    row = names.find(call.tool)
    if row is None or row.reason is not None:
        return Verdict(Reason.UNKNOWN_TOOL, "") if row is None else Verdict(row.reason, row.decided_by, row)
    reached = _reached(names, row, call.arguments) if row.definition.tool.reaches is not None else ()
    if reached is None:
        return Verdict(Reason.UNKNOWN_TOOL, "", row)
    for inner in reached:
        if inner.reason is not None and not (inner.reason is Reason.NOT_LOADED and row.definition.tool.loads):
            return Verdict(inner.reason, inner.decided_by, row, reached)
    verdict, forked = Verdict(None, row.decided_by, row, reached), origins()
    if verdict.external:
        verdict = _external(verdict, call, state, damaged(), forked)
    return verdict if verdict.reason is not None else _asked(verdict, call, state, forked)


def _external(verdict: Verdict, call: Call, state: State, hole: str, origins: list[State]) -> Verdict:
    if hole:
        return verdict._replace(reason=Reason.SESSION_READ_ONLY, decided_by=f"damage of {hole}")
    elsewhere = (op for origin in origins for op in origin.open.values())
    repeats = _equal([*state.open.values(), *elsewhere], verdict.runs[0].definition.qualified, call)
    if repeats is None:
        return verdict
    own = (repeats.session, repeats.call, repeats.occurrence) == (state.chain, call.id, call.occurrence)
    if own and repeats.state is OperationState.PREPARED and not repeats.doubted:
        return verdict._replace(repeats=repeats)
    idempotent = all(row.definition.tool.idempotent for row in verdict.runs if row.definition.tool.effect != "read")
    if not idempotent or repeats.session != state.chain:
        return verdict._replace(reason=Reason.OUTCOME_UNKNOWN, decided_by=f"operation {repeats.id}")
    return verdict._replace(repeats=repeats)


def _asked(verdict: Verdict, call: Call, state: State, origins: list[State]) -> Verdict:
    for each in (state, *origins):
        rejection = each.rejected.get(_key(verdict, call)) if each.rejected else None
        if rejection is not None:
            return verdict._replace(reason=Reason.NOT_AUTHORISED, decided_by=f"rejected by {rejection.by}")
    asks = next((row for row in verdict.runs if row.effect is Effect.ASK), None)
    if asks is None:
        return verdict
    approval = next((a for a in state.approvals if _matches(a, verdict, call)), None)
    reason = Reason.NEEDS_APPROVAL if approval is None else None
    return verdict._replace(reason=reason, decided_by=asks.decided_by, approval=approval)


def approval_of(call: Call, verdict: Verdict, by: str, seen: tuple[tuple[str, int], ...] = ()) -> Approval | None:
    """Return the approval of exactly this call; None if it names no tool."""
    if verdict.row is None:
        return None
    definition = verdict.row.definition
    reached = tuple((r.definition.qualified, r.definition.fingerprint) for r in verdict.runs[1:])
    return Approval(
        call.id, call.occurrence, definition.qualified, definition.fingerprint, call.digest, by, reached, seen
    )


def outlived(approval: Approval, others: Iterable[State]) -> bool:
    """Whether a deny in another chain that authority rests on came after ``approval``, and ended it.

    A chain that was not seen when it was given came after it, with all that it holds.
    """
    seen = dict(approval.seen)
    return any(
        sequence > seen.get(other.chain, -1) and any(covers(on, tool) for tool in approval.tools)
        for other in others
        for sequence, on in other.denied
    )


def lapsed(approvals: Iterable[Approval], surface: Surface) -> list[str]:
    """Return the tools of ``approvals`` that ``surface`` shows as not authorised: their approvals end, for good."""
    rows = ((tool, surface.row(tool)) for approval in approvals for tool in approval.tools)
    return sorted({tool for tool, row in rows if row is not None and row.reason in _UNAUTHORISED})


def refusal(call: Call, verdict: Verdict) -> Refused | NeedsApproval:
    """Return the exception for a verdict with a reason."""
    reason = verdict.reason or Reason.UNKNOWN_TOOL
    if reason is Reason.NEEDS_APPROVAL:
        return NeedsApproval(call, verdict.decided_by)
    outcome = Outcome.DENIED if reason in _DENIED else Outcome.NOT_RUN
    text = f"This call was not started: {reason.value.replace('_', ' ')}."
    result = Message("", Role.TOOL, text, result_for=call.id, outcome=outcome)
    return Refused(call, reason, verdict.decided_by, outcome.value, result)


def operation_id(session: str, call: str, occurrence: int, tool: str, arguments: str) -> str:
    """Return the id of the operation that a call begins; the same after a restart.

    Args:
        arguments: digest of the canonical ones.
    """
    parts = canonical([session, call, occurrence, tool])
    return "op-" + fingerprint(Domain.ARGUMENTS, parts, arguments.encode())[3:19]


def _matches(approval: Approval, verdict: Verdict, call: Call) -> bool:
    made = approval_of(call, verdict, approval.by, approval.seen) if approval.call == call.id else None
    return made == approval


def _key(verdict: Verdict, call: Call) -> tuple[str, int, str, str]:
    tool = verdict.row.definition.qualified if verdict.row is not None else ""
    return call.id, call.occurrence, tool, call.digest


def _equal(operations: list[Operation], tool: str, call: Call) -> Operation | None:
    unsettled = [op for op in operations if op.tool == tool and op.effect != ToolEffect.READ]
    if not unsettled:
        return None
    digest = call.digest
    equal = [op for op in unsettled if op.arguments == digest]
    return max(equal, key=lambda op: op.state is not OperationState.PREPARED, default=None)


def _reached(names: Names, row: Row, arguments: Mapping[str, Any]) -> tuple[Row, ...] | None:
    """Return the tools that a call of a bridge or loader would reach; None if that cannot be told.

    A bridge that names nothing may reach what it likes, and where the arguments of a bridge behind it stand is known
    to nobody here: both cannot be told.
    """
    tool = row.definition.tool
    found: dict[str, Row] = {}
    for name in _named(arguments.get(tool.reaches or "", ())):
        inner = names.find(name)
        if inner is None and tool.loads and isinstance(name, str):
            inner = _first_of(names.group(name))
        if inner is None or (inner.definition.tool.reaches is not None and not tool.loads):
            return None
        found[inner.definition.qualified] = inner
    return tuple(found[key] for key in sorted(found)) if found or tool.loads else None


def _first_of(rows: list[Row]) -> Row | None:
    """Return the tool of a group that stands for it: one that a load would make callable, if there is one."""
    good = (row for row in rows if row.reason is None or row.reason is Reason.NOT_LOADED)
    return next(good, rows[0] if rows else None)


def _named(value: object) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield from value
    else:
        yield value
