"""What the entries of one chain say of operations, and of the limits that they use. Pure; the base of ``State``.

An operation goes through its states (``docs/spec/effects.md``) as far as entries that count say so. What may not add
never settles one and frees nothing; it can say that one may have happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from capstate.effects import Operation, OperationState
from capstate.runtime.facts import maybe, operation_from, text, whole
from capstate.trace import Outcome

if TYPE_CHECKING:
    from capstate.ledger import Entry


@define
class Acts:
    """The operations of one chain, and what it reserved and used."""

    chain: str
    operations: dict[str, Operation] = field(factory=dict)
    open: dict[str, Operation] = field(factory=dict)
    """Operations whose end is not recorded: prepared, perhaps running, perhaps happened, or observed."""
    reserving: int = 0
    """The token of the writer whose calls hold something of the limits."""
    reserved: dict[str, list[int]] = field(factory=dict)
    """By operation, the cost that each of its running calls reserved; no entry that may not add frees any."""
    used: dict[str, int] = field(factory=lambda: {"calls": 0, "serial": 0, "spent": 0})
    """What the tree had used, by the largest totals in any entry; ``serial`` counts the changes of its pool."""

    @property
    def unsettled(self) -> list[Operation]:
        """Operations that may be running or may have happened."""
        return list(self.open.values())

    def _prepared(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        token = entry.token if written(entry) else 0
        operation = operation_from(self.chain, body, token, OperationState.PREPARED)
        known = self.operations.get(operation.id)
        if known is None or (token and not known.open and known.what == operation.what):
            self._put(operation)

    def _started(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        real = written(entry)  # also behind a hole: nobody else could seal it
        operation = operation_from(self.chain, body, entry.token if real else 0, OperationState.EXECUTING)
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
            prepared = same.state is OperationState.PREPARED
            if (same.open and not prepared) or same.effect == "read":
                return
            operation = evolve(same, doubted=True)
        self._put(operation)

    def _put(self, operation: Operation) -> None:
        self.operations[operation.id] = operation
        self.open.pop(operation.id, None)
        if operation.open:
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
        if not adds and known.state is not OperationState.EXECUTING:
            ended = evolve(known, doubted=doubted)
        else:
            state = OperationState.OBSERVED if entry.kind == "observed" else OperationState.COMMITTED
            if outcome is Outcome.OUTCOME_UNKNOWN:
                state = OperationState.EXECUTING
            cited = evidence or known.evidence
            ended = evolve(known, state=state, outcome=outcome.value, evidence=cited, doubted=doubted)
        self._put(ended)

    def _reconciled(self, entry: Entry, body: dict[str, Any], adds: bool) -> None:  # noqa: FBT001, ARG002
        # What a named person found out counts after a hole as well: that is what waiting for it means.
        self._settled(entry, body, written(entry))

    def _totals(self, entry: Entry, body: dict[str, Any]) -> None:
        used = body.get("used") or {}
        for name in self.used if written(entry) else ("calls", "spent"):
            self.used[name] = max(self.used[name], whole(used.get(name, 0)))


def written(entry: Entry) -> bool:
    """Whether a writer of the chain wrote it, wherever it stands."""
    return not (entry.unsealed or entry.posted)
