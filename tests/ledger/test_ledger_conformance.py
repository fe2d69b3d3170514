"""Both ledgers keep the contract, and the suite that says so finds ledgers that do not."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from capstate.conformance.ledgers import CHECKS, check, run
from capstate.errors import PoolConflictError
from capstate.ledger import Head, Ledger, Pool, Stored, Writer
from capstate.ledgers.memory import MemoryLedger
from capstate.ledgers.sqlite import SQLiteLedger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Callable[[], Ledger]]:
    """Make new storages of one kind."""

    def memory(kind: type[MemoryLedger] = MemoryLedger) -> Callable[[], Ledger]:
        shared = kind()
        return lambda: kind(shared)

    def sqlite() -> Callable[[], Ledger]:
        path = tmp_path / uuid.uuid4().hex
        return lambda: SQLiteLedger(path)

    return memory if request.param == "memory" else sqlite


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_ledger_keeps_each_promise(name: str, fresh: Callable[[], Callable[[], Ledger]]) -> None:
    """The fault of each check is none."""
    assert run(name, fresh).fault is None


def test_the_report_says_what_is_kept(fresh: Callable[[], Callable[[], Ledger]]) -> None:
    """One call gives a report with every check in it, and its text counts them."""
    report = check(fresh)

    assert report.ok
    assert list(CHECKS) == [result.name for result in report.results]
    assert str(report).endswith(f"{len(CHECKS)} of {len(CHECKS)} promises kept")


class _Wrong(MemoryLedger):
    """The base of ledgers that break one promise each."""


class _IgnoresExpect(_Wrong):
    def append(self, chain: str, rows: Any, *, expect: Any, writer: Writer, **more: Any) -> Head:  # noqa: ARG002 - that is the fault
        return super().append(chain, rows, expect=self.head(chain), writer=writer, **more)


class _IgnoresTokens(_Wrong):
    def append(self, chain: str, rows: Any, *, expect: Any, writer: Writer, **more: Any) -> Head:
        current = Writer(writer.chain, self._storage.tokens[writer.chain], lambda: None)
        return super().append(chain, rows, expect=expect, writer=current, **more)


class _TwoWriters(_Wrong):
    def lock(self, chain: str, *, above: int = 0) -> Writer:
        self._storage.owners.pop(chain, None)
        return super().lock(chain, above=above)


class _IgnoresAbove(_Wrong):
    def lock(self, chain: str, *, above: int = 0) -> Writer:  # noqa: ARG002 - that is what is wrong
        return super().lock(chain)


class _AsksByTaking(_Wrong):
    def owned(self, chain: str) -> bool:
        self._storage.owners.pop(chain, None)
        self.lock(chain)
        return False


class _OwnsItsOwn(_Wrong):
    def owned(self, chain: str) -> bool:
        return any(writer.chain == chain for writer in self._writers)


class _ForgetsSeals(_Wrong):
    def read(self, chain: str, start: int = 0) -> list[Stored]:
        return [evolve(row, seal=None) for row in super().read(chain, start)]


class _WritesBeforeThePool(_Wrong):
    def append(self, chain: str, rows: Any, *, expect: Any, writer: Writer, **more: Any) -> Head:
        pool = more.pop("pool", None)
        head = super().append(chain, rows, expect=expect, writer=writer, **more)
        if pool is not None:
            old = self.pool(pool.root) or Pool(0, b"")
            if old.version != pool.expect:
                raise PoolConflictError(pool.root, pool.expect, old.version)
            self._storage.pools[pool.root] = Pool(old.version + 1, pool.value)
        return head


class _LastPoolWins(_Wrong):
    def append(self, chain: str, rows: Any, *, expect: Any, writer: Writer, **more: Any) -> Head:
        pool = more.pop("pool", None)
        head = super().append(chain, rows, expect=expect, writer=writer, **more)
        if pool is not None:
            self._storage.pools[pool.root] = Pool(pool.expect + 1, pool.value)
        return head


class _LastPoolWinsAfterAPause(_LastPoolWins):
    def pool(self, root: str) -> Pool | None:
        pool = super().pool(root)
        time.sleep(0.02)
        return pool


class _RevisionOfOwnWrites(_Wrong):
    def __init__(self, shared: MemoryLedger | None = None) -> None:
        super().__init__(shared)
        self.mine = 0

    def append(self, *arguments: Any, **more: Any) -> Head:
        self.mine += 1
        return super().append(*arguments, **more)

    def revision(self) -> int:
        super().revision()
        return self.mine


class _RepairCutsAnything(_Wrong):
    def repair(self, chain: str, *, writer: Writer) -> Stored | None:
        super().repair(chain, writer=writer)
        rows = self._storage.rows.get(chain)
        return rows.pop() if rows else None


class _PostOutsideTheTransaction(_Wrong):
    def post(self, chain: str, make: Any) -> Head:
        rows = make(self.head(chain))
        return super().post(chain, lambda _: rows)


class _FoldsCase(_Wrong):
    def head(self, chain: str) -> Head | None:
        return super().head(chain.lower() if type(chain) is str else chain)


class _CloseKeepsLocks(_Wrong):
    def close(self) -> None:
        self._closed = True


class _ChecksNoBlobs(_Wrong):
    def append(self, *arguments: Any, blobs: Any = None, **more: Any) -> Head:
        self._storage.blobs.update(blobs or {})
        return super().append(*arguments, **more)


@pytest.mark.parametrize(
    ("kind", "found_by"),
    [
        (_IgnoresExpect, "wrong_head"), (_IgnoresTokens, "old_writers"), (_TwoWriters, "one_writer"),
        (_TwoWriters, "one_of_many"), (_IgnoresAbove, "tokens_above"), (_AsksByTaking, "owners"),
        (_OwnsItsOwn, "owners"), (_ForgetsSeals, "bytes_come_back"), (_WritesBeforeThePool, "all_or_nothing"),
        (_LastPoolWinsAfterAPause, "never_over"), (_LastPoolWins, "all_or_nothing"),
        (_RevisionOfOwnWrites, "revisions"),
        (_RepairCutsAnything, "repairs"), (_PostOutsideTheTransaction, "failing_posts"), (_FoldsCase, "chain_ids"),
        (_CloseKeepsLocks, "closing"), (_ChecksNoBlobs, "all_or_nothing"),
    ],
)  # fmt: skip
def test_the_suite_finds_a_ledger_that_breaks_a_promise(kind: type[MemoryLedger], found_by: str) -> None:
    """Each wrong ledger is found by the check named here, as a fault in the report and not as a crash of the run."""

    def fresh() -> Callable[[], Ledger]:
        shared = kind()
        return lambda: kind(shared)

    assert run(found_by, fresh).fault
