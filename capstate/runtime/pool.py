"""The limits of one tree of sessions: a pool that is reserved from before a call starts and settled after.

The pool is one row beside the chain of the root session, changed in the transaction that appends the reserving
entry; entries carry the totals as well, and the larger of the two counts. Pure: bytes in, bytes out.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from attrs import evolve, field, frozen

from capstate.authority import Limits
from capstate.digest import canonical
from capstate.errors import MalformedError


@frozen
class Usage:
    """What a tree has used.

    Attributes:
        calls: started calls.
        cost: micro-units, reserved ones included.
        running: by chain, the fencing token of its writer and how many of its calls run.
    """

    calls: int = 0
    cost: int = 0
    running: Mapping[str, tuple[int, int]] = field(factory=dict)

    @classmethod
    def of(cls, value: bytes | None, *totals: Mapping[str, int]) -> Usage:
        """Read a pool row; never below any of ``totals``.

        Raises:
            MalformedError: the bytes are no pool row.
        """
        row: object = {"calls": 0, "cost": 0, "running": {}}
        try:
            row = orjson.loads(value) if value is not None else row
            read = cls(
                max(int(row["calls"]), *(t.get("calls", 0) for t in totals), 0),  # type: ignore[index]  # refused below
                max(int(row["cost"]), *(t.get("cost", 0) for t in totals), 0),  # type: ignore[index]  # refused below
                {str(c): (int(t), int(n)) for c, (t, n) in row["running"].items()},  # type: ignore[index]  # refused below
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedError("limits pool", "calls, cost and running", str(error)) from error
        return read

    @property
    def slots(self) -> int:
        """Calls that run now."""
        return sum(count for _, count in self.running.values())

    def exceeded(self, limits: Limits, cost: int) -> str | None:
        """Return the name of the limit that one more call of ``cost`` would exceed; None if it fits."""
        for name, used in (("calls", self.calls + 1), ("cost", self.cost + cost), ("concurrency", self.slots + 1)):
            most = getattr(limits, name)
            if most is not None and used > most:
                return name
        return None

    def reserve(self, chain: str, token: int, cost: int) -> Usage:
        """Return the pool with one more call of ``chain`` running."""
        owner, count = self.running.get(chain, (token, 0))
        # What an earlier writer of the chain left running is dead: spent, and its slots are free.
        now = count + 1 if owner == token else 1
        return Usage(self.calls + 1, self.cost + cost, {**self.running, chain: (token, now)})

    def settle(self, chain: str, token: int, *, reserved: int, spent: int) -> Usage:
        """Return the pool with one call of ``chain`` ended."""
        running = dict(self.running)
        owner, count = running.get(chain, (token, 0))
        if owner == token:
            if count > 1:
                running[chain] = (token, count - 1)
            else:
                running.pop(chain, None)
        return Usage(self.calls, max(0, self.cost - reserved + spent), running)

    def without(self, chain: str) -> Usage:
        """Return the pool with the slots of ``chain`` freed."""
        return evolve(self, running={c: r for c, r in self.running.items() if c != chain})

    def encode(self) -> bytes:
        """Return the row to store."""
        return canonical({**self.totals(), "running": {c: list(r) for c, r in self.running.items()}})

    def totals(self) -> dict[str, int]:
        """Return what entries and receipts carry."""
        return {"calls": self.calls, "cost": self.cost}
