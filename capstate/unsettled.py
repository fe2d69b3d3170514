"""Which operations of a ledger are not over, and what recovery would do about each. It reads, and writes nothing.

The tool's side is not asked here, and whether a tool is idempotent is what the last epoch's archived facts say of it.
The decision is :mod:`capstate.effects`; acting on it is :meth:`capstate.Session.recover`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from capstate.codec import facts_from_archive
from capstate.effects import step
from capstate.errors import InvalidInputError, MalformedError
from capstate.examine import receipts
from capstate.ledger import read_blob
from capstate.runtime.live import Folds

if TYPE_CHECKING:
    from capstate.capabilities import Catalog
    from capstate.effects import Operation
    from capstate.ledger import Ledger


def unsettled(ledger: Ledger, session: str | None = None, key: bytes | None = None) -> list[dict[str, Any]]:
    """Return a row for each operation whose end is not recorded, chain by chain, in the order in which they began.

    Args:
        session: only its own; None: those of every chain.

    Raises:
        InvalidInputError: the ledger has no such session.
        LedgerFormatError, LedgerUnavailableError: as for every reader.
    """
    known = sorted(ledger.chains())
    if session is not None and session not in known:
        raise InvalidInputError("session", "one of the ledger", session)
    rows = []
    for chain in known if session is None else [session]:
        state = Folds(ledger, key).get(chain)
        left = list(state.open.values()) if state is not None else []
        catalog = _catalog(ledger, chain, key) if left else None
        rows += [_row(operation, idempotent=_idempotent(operation, catalog)) for operation in left]
    return rows


def _row(operation: Operation, *, idempotent: bool | None) -> dict[str, Any]:
    made = step(operation, idempotent=bool(idempotent))
    return {
        "session": operation.session,
        "operation": operation.id,
        "call": operation.call,
        "occurrence": operation.occurrence,
        "tool": operation.tool,
        "state": str(operation.state),
        "outcome": operation.outcome,
        "evidence": operation.evidence,
        "doubted": operation.doubted,
        "idempotent": idempotent,
        "step": str(made.action),
        "why": made.why,
    }


def _catalog(ledger: Ledger, chain: str, key: bytes | None) -> Catalog | None:
    """Return what existed at the chain's last epoch; None if it had none, or its facts cannot be read."""
    try:
        kept = receipts(ledger, chain, key)
        return facts_from_archive(kept[-1].receipt.body, partial(read_blob, ledger)).catalog if kept else None
    except (InvalidInputError, MalformedError):
        return None


def _idempotent(operation: Operation, catalog: Catalog | None) -> bool | None:
    definition = catalog.find(operation.tool) if catalog is not None else None
    return None if definition is None else definition.tool.idempotent and definition.tool.reaches is None
