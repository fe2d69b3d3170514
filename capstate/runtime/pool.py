"""The limits of one tree of sessions: a pool that is reserved from before a call starts and settled after.

The pool is one row beside the chain of the root session, changed in the transaction that appends the reserving entry.
The row is a cache: entries carry the totals too, and the larger count. One that is lost, does not read, is older than
an entry, or is not sealed where a key is given, is made again from the entries of the whole tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from attrs import define, evolve, field, frozen

from capstate.digest import canonical, seal
from capstate.ledger import Ledger
from capstate.runtime.facts import whole
from capstate.runtime.live import Folds
from capstate.runtime.state import State

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


@define
class Tree:
    """The chains that share the pool of ``root``, as one session of them sees them.

    What is compared with the row is every entry of every chain. They are read again as far as they grew, and only if
    anybody changed anything in the ledger since the last look.
    """

    root: str
    ledger: Ledger
    key: bytes | None
    folds: Folds
    """Of the chains that are not the session's own."""
    last: Usage = field(factory=Usage)
    """What was believed last: no row and no chain that lost its end gives back less."""
    _looked: tuple[int | None, list[State]] | None = None

    def usage(self, own: State) -> Usage:
        """Return what the row says, or, where it is not to be believed, what all entries say."""
        self.folds.refresh()
        if self._looked is None or self._looked[0] != self.folds.revision:
            self._looked = self.folds.revision, list(self._walk(own))
        row = self.ledger.pool(self.root)  # after the entries: an honest row is never behind them
        version = row.version if row is not None else 0
        usage = Usage.read(row.value, version, self.root, self.key) if row is not None else None
        states = self._looked[1]
        if usage is None or usage.serial < max(self.last.serial, own.used["serial"], *_serials(states)):
            usage = recovered((own, *states), self.last, version)
        self.last = usage
        return usage

    @contextmanager
    def own_change(self) -> Iterator[None]:
        """Within it the session itself changes the ledger: that alone is no reason to look at the whole tree again."""
        looked, seen = self._looked, self.ledger.revision()
        yield
        if looked is not None and looked[0] == seen:
            self.folds.revision = self.ledger.revision()
            self._looked = self.folds.revision, looked[1]

    def _walk(self, own: State) -> Iterator[State]:
        chains, seen, damaged = [self.root, own.chain], set[str](), False
        while chains:
            chain = chains.pop()
            state = None if chain in seen else own if chain == own.chain else self.folds.get(chain)
            seen.add(chain)
            if state is None or (state.opening is not None and state.opening.root != self.root):
                continue
            chains += state.children
            if state.holes and not damaged:  # what was lost may have named a child: it says itself whose it is
                damaged = True
                chains += self.ledger.chains()
            if state is not own:
                yield state


def _serials(states: list[State]) -> list[int]:
    return [state.used["serial"] for state in states]


def recovered(states: tuple[State, ...], last: Usage, version: int) -> Usage:
    """Return what the entries of the whole tree say was used, and what may be running."""
    calls, spent, serial = (max(last.totals()[n], *(s.used[n] for s in states)) for n in ("calls", "spent", "serial"))
    running = {
        state.chain: Running(state.reserving, len(costs), sum(costs))
        for state in states
        if (costs := [cost for each in state.reserved.values() for cost in each])
    }
    return Usage(calls, spent, running, serial, version)
