"""The limits of one tree of sessions: a pool that is reserved from before a call starts and settled after.

The pool is one row beside the chain of the root session, changed in the transaction that appends the reserving
entry. Calls and spent cost only grow; entries carry both as well, and the larger counts. Pure: bytes in, bytes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from attrs import field, frozen

from capstate.digest import canonical
from capstate.errors import MalformedError

if TYPE_CHECKING:
    from capstate.authority import Limits


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
        version: of the row that this was read from; 0 if there was none.
    """

    calls: int = 0
    spent: int = 0
    running: Mapping[str, Running] = field(factory=dict)
    version: int = 0

    @classmethod
    def of(cls, value: bytes | None, version: int, *totals: Mapping[str, int]) -> Usage:
        """Read a pool row; never below any of ``totals``.

        Raises:
            MalformedError: the bytes are no pool row.
        """
        row: Any = {"calls": 0, "running": {}, "spent": 0}
        try:
            if value is not None:
                row = orjson.loads(value)
            running = {str(c): Running(*map(int, r)) for c, r in row["running"].items()}
            calls = max(int(row["calls"]), *(t.get("calls", 0) for t in totals), 0)
            spent = max(int(row["spent"]), *(t.get("spent", 0) for t in totals), 0)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedError("limits pool", "calls, running and spent", str(error)) from error
        return cls(calls, spent, running, version)

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
        freed = self if self.running.get(chain, (token,))[0] == token else self.freed(chain)
        was = freed.running.get(chain, Running(token, 0, 0))
        now = Running(token, was.calls + 1, was.cost + cost)
        return Usage(freed.calls + 1, freed.spent, {**freed.running, chain: now}, freed.version)

    def settle(self, chain: str, token: int, *, reserved: int, cost: int) -> Usage:
        """Return the pool with one call of ``chain`` ended, at its real ``cost``."""
        was = self.running.get(chain)
        if was is None or was.token != token:
            return self
        running = {c: r for c, r in self.running.items() if c != chain}
        if was.calls > 1:
            running[chain] = Running(token, was.calls - 1, max(0, was.cost - reserved))
        return Usage(self.calls, self.spent + cost, running, self.version)

    def freed(self, chain: str) -> Usage:
        """Return the pool without what a dead owner of ``chain`` left running: spent, and its slots free."""
        was = self.running.get(chain)
        if was is None:
            return self
        running = {c: r for c, r in self.running.items() if c != chain}
        return Usage(self.calls, self.spent + was.cost, running, self.version)

    def encode(self) -> bytes:
        """Return the row to store."""
        return canonical({**self.totals(), "running": {c: list(r) for c, r in self.running.items()}})

    def totals(self) -> dict[str, int]:
        """Return what only grows, as entries carry it."""
        return {"calls": self.calls, "spent": self.spent}
