"""A ledger in memory, for tests and for hosts that keep nothing: the same rules as on disk, gone with the process.

``MemoryLedger(other)`` is another handle on the same storage, as a second process would have on a file. A forked child
has a copy of its own, which no longer shares anything with its parent.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from capstate.errors import InvalidInputError, LedgerUnavailableError, PoolConflictError, SessionLockedError
from capstate.ledger import (
    Head,
    Pool,
    PoolChange,
    Stored,
    Writer,
    check_blobs,
    check_chain,
    check_pool,
    check_rows,
    check_writer,
    torn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


class _Storage:
    """What several handles share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.making = False
        self.changes = 0
        self.rows: dict[str, list[Stored]] = {}
        self.tokens: dict[str, int] = {}
        self.owners: dict[str, Writer] = {}
        self.blobs: dict[str, bytes] = {}
        self.pools: dict[str, Pool] = {}


class MemoryLedger:
    """A :class:`~capstate.ledger.Ledger` in memory."""

    def __init__(self, shared: MemoryLedger | None = None) -> None:
        self._storage: _Storage = _Storage() if shared is None else shared._storage  # noqa: SLF001 - another handle of this class
        self._writers: set[Writer] = set()
        self._closed = False

    def head(self, chain: str) -> Head | None:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        with self._open() as storage:
            return _head(storage, chain)

    def read(self, chain: str, start: int = 0) -> list[Stored]:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        with self._open() as storage:
            return storage.rows.get(chain, [])[max(start, 0) :]

    def chains(self) -> tuple[str, ...]:
        """See :class:`~capstate.ledger.Ledger`."""
        with self._open() as storage:
            return tuple(sorted(chain for chain, rows in storage.rows.items() if rows))

    def revision(self) -> int:
        """See :class:`~capstate.ledger.Ledger`."""
        if self._closed:
            raise LedgerUnavailableError("the ledger was closed")
        return self._storage.changes

    def append(
        self,
        chain: str,
        rows: Sequence[Stored],
        *,
        expect: Head | None,
        writer: Writer,
        blobs: Mapping[str, bytes] | None = None,
        pool: PoolChange | None = None,
    ) -> Head:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        check_rows(expect, rows)
        check_blobs(blobs or {})
        if pool is not None:
            check_pool(pool)
        with self._change() as storage:
            check_writer(chain, writer, storage.tokens.get(chain, 0), expect=expect, head=_head(storage, chain))
            if pool is not None:
                old = storage.pools.get(pool.root)
                version = 0 if old is None else old.version
                if version != pool.expect:
                    raise PoolConflictError(pool.root, pool.expect, version)
                storage.pools[pool.root] = Pool(version + 1, pool.value)
            storage.blobs.update(blobs or {})
            return _add(storage, chain, rows)

    def post(self, chain: str, make: Callable[[Head | None], Sequence[Stored]]) -> Head:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        with self._change() as storage:
            head = _head(storage, chain)
            storage.making = True
            try:
                rows = make(head)
            finally:
                storage.making = False
            check_rows(head, rows)
            return _add(storage, chain, rows)

    def lock(self, chain: str, *, above: int = 0) -> Writer:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        with self._change() as storage:
            if chain in storage.owners:
                raise SessionLockedError(f"chain {chain!r} has another live writer")
            token = storage.tokens[chain] = max(storage.tokens.get(chain, 0), above) + 1
            writer = Writer(chain, token, lambda: self._release(writer))
            storage.owners[chain] = writer
            self._writers.add(writer)
            return writer

    def owned(self, chain: str) -> bool:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        with self._open() as storage:
            return chain in storage.owners

    def repair(self, chain: str, *, writer: Writer) -> Stored | None:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        with self._change() as storage:
            check_writer(chain, writer, storage.tokens.get(chain, 0), expect=None, head=None)
            rows = storage.rows.get(chain, [])
            return rows.pop() if rows and torn(rows[-1]) else None

    def blob(self, digest: str) -> bytes | None:
        """See :class:`~capstate.ledger.Ledger`."""
        with self._open() as storage:
            return storage.blobs.get(digest)

    def pool(self, root: str) -> Pool | None:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(root)
        with self._open() as storage:
            return storage.pools.get(root)

    def close(self) -> None:
        """See :class:`~capstate.ledger.Ledger`."""
        self._closed = True
        for writer in tuple(self._writers):
            writer.close()

    def _release(self, writer: Writer) -> None:
        with self._storage.lock:
            self._storage.owners.pop(writer.chain, None)
            self._writers.discard(writer)

    @contextmanager
    def _open(self) -> Iterator[_Storage]:
        if self._closed:
            raise LedgerUnavailableError("the ledger was closed")
        with self._storage.lock:
            yield self._storage

    @contextmanager
    def _change(self) -> Iterator[_Storage]:
        with self._open() as storage:
            if storage.making:
                raise InvalidInputError("make", "a function that only builds rows", "one that writes to the ledger")
            storage.changes += 1
            yield storage


def _head(storage: _Storage, chain: str) -> Head | None:
    rows = storage.rows.get(chain)
    return rows[-1].head if rows else None


def _add(storage: _Storage, chain: str, rows: Sequence[Stored]) -> Head:
    kept = [Stored(row.sequence, bytes(row.stored), row.digest, row.seal) for row in rows]
    storage.rows.setdefault(chain, []).extend(kept)
    return kept[-1].head
