"""The limits of one tree of sessions: a pool that is reserved from before a call starts and settled after.

The pool is one row beside the chain of the root session, changed in the transaction that appends the reserving entry.
The row is a cache: entries carry the totals too, and the larger count. One that is lost, does not read, is older than
an entry, or is not sealed where a key is given, is made again from the entries of the whole tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from attrs import evolve, field, frozen

from capstate.digest import canonical, seal
from capstate.runtime.facts import whole
from capstate.runtime.live import Folds

if TYPE_CHECKING:
    from capstate.authority import Limits
    from capstate.ledger import Ledger


class Running(NamedTuple):
    """Calls of one chain that run: under which fencing token, how many, and the cost reserved for them."""

    token: int
    calls: int
    cost: int


@frozen
class Usage:
    """What a tree has used.

    Attributes:
        calls: started calls.
        spent: micro-units of the calls that ended.
        running: by chain, what runs.
        serial: number of changes so far.
        version: of the row that this was read from; 0 if there was none.
    """

    calls: int = 0
    spent: int = 0
    running: Mapping[str, Running] = field(factory=dict)
    serial: int = 0
    version: int = 0

    @classmethod
    def read(cls, value: bytes, version: int, root: str, key: bytes | None) -> Usage | None:
        """Read a pool row; None if it is none, or not sealed by ``key``."""
        try:
            row: Any = orjson.loads(value)
            mark = row.pop("seal")
            if key is not None and not compare_digest(_seal(key, root, row).encode(), str(mark).encode()):
                return None
            running = {str(c): Running(*map(whole, r)) for c, r in row["running"].items()}
            return cls(whole(row["calls"]), whole(row["spent"]), running, whole(row["serial"]), version)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    @property
    def slots(self) -> int:
        """Calls that run now."""
        return sum(r.calls for r in self.running.values())

    @property
    def cost(self) -> int:
        """Micro-units spent, and reserved for what runs."""
        return self.spent + sum(r.cost for r in self.running.values())

    def exceeded(self, limits: Limits, cost: int) -> str | None:
        """Return the name of the limit that one more call of ``cost`` would exceed; None if it fits."""
        for name, used in (("calls", self.calls + 1), ("cost", self.cost + cost), ("concurrency", self.slots + 1)):
            most = getattr(limits, name)
            if most is not None and used > most:
                return name
        return None

    def reserve(self, chain: str, token: int, cost: int) -> Usage:
        """Return the pool with one more call of ``chain`` running."""
        known = self.running.get(chain)
        freed = self if known is None or known.token == token else self.freed(chain)
        was = freed.running.get(chain, Running(token, 0, 0))
        now = Running(token, was.calls + 1, was.cost + cost)
        return evolve(freed, calls=self.calls + 1, running={**freed.running, chain: now}, serial=self.serial + 1)

    def settle(self, chain: str, token: int, *, reserved: int, cost: int) -> Usage:
        """Return the pool with one call of ``chain`` ended, at its real ``cost``."""
        was = self.running.get(chain)
        if was is None or was.token != token:
            return self
        running = {c: r for c, r in self.running.items() if c != chain}
        if was.calls > 1:
            running[chain] = Running(token, was.calls - 1, max(0, was.cost - reserved))
        return evolve(self, spent=self.spent + cost, running=running, serial=self.serial + 1)

    def freed(self, chain: str) -> Usage:
        """Return the pool without what a dead owner of ``chain`` left running: spent, and its slots free."""
        was = self.running.get(chain)
        if was is None:
            return self
        running = {c: r for c, r in self.running.items() if c != chain}
        return evolve(self, spent=self.spent + was.cost, running=running)

    def encode(self, root: str, key: bytes | None) -> bytes:
        """Return the row to store."""
        row = {**self.totals(), "running": {c: list(r) for c, r in self.running.items()}}
        return canonical({**row, "seal": _seal(key, root, row) if key is not None else ""})

    def totals(self) -> dict[str, int]:
        """Return what only grows, as entries carry it."""
        return {"calls": self.calls, "serial": self.serial, "spent": self.spent}


def _seal(key: bytes, root: str, row: Mapping[str, Any]) -> str:
    return seal(key, b"pool", root.encode(), canonical(dict(row)))


def recovered(ledger: Ledger, root: str, key: bytes | None, version: int) -> Usage:
    """Return what the entries of the whole tree say was used, and what may be running."""
    folds = Folds(ledger, key)
    calls = spent = serial = 0
    running: dict[str, Running] = {}
    seen: set[str] = set()
    chains = [root]
    while chains:
        chain = chains.pop()
        state = folds.get(chain) if chain not in seen else None
        seen.add(chain)
        if state is None:
            continue
        chains += state.children
        calls, spent = max(calls, state.used["calls"]), max(spent, state.used["spent"])
        serial = max(serial, state.used["serial"])
        started = [op for op in state.open.values() if op.state == "executing" and op.cost is not None]
        if started:
            token = max(op.token for op in started)
            kept = [op for op in started if op.token == token]
            running[chain] = Running(token, len(kept), sum(op.cost or 0 for op in kept))
    return Usage(calls, spent, running, serial, version)
