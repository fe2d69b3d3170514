"""A ledger in one SQLite file: durable when a call returns, shared by threads and processes of one machine.

Rules:

* Write-ahead log, ``synchronous=FULL``, one ``BEGIN IMMEDIATE`` for each change: all of it or nothing.
* Two connections, each behind a lock: one writes, one reads and watches, so that :meth:`SQLiteLedger.revision` and
  reads do not wait for another thread's disk. Any thread may use the object.
* The right to write a chain is ``flock`` on a file of its own in the folder ``<database>-locks`` (named by the SHA-256
  of the chain id), held as long as the writer is open and the process lives, stopped or not. Lock files are never
  deleted. If somebody else deletes one, its writer is none any more; and the fencing token in the database, increased
  by each lock, refuses all but the last.
* Every change looks at the schema first: a trigger that somebody added would run inside it.
* After ``fork`` the child must open the ledger anew; its copy of this object refuses, and holds no locks.
* If the file at the path is no longer the one that was opened, everything refuses, instead of going on in a file that
  nobody else sees.
* Files are created for their owner alone. Network file systems (no shared memory, doubtful locks) and Windows (no
  ``flock``) are out of scope.

Errors: :class:`~capstate.errors.LedgerUnavailableError` for whatever SQLite or the disk refuses,
:class:`~capstate.errors.MalformedError` for a file that is no ledger, :class:`~capstate.errors.LedgerFormatError` for
one of a newer version.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from capstate.errors import (
    InvalidInputError,
    LedgerUnavailableError,
    MalformedError,
    PoolConflictError,
    SessionLockedError,
)
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
from capstate.ledgers import lock_files, sqlite_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_PAGE = 500  # rows read at once: no read holds the connection for long
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_ALL_CHAINS = """
WITH RECURSIVE c(x) AS (SELECT min(chain) FROM entries
    UNION ALL SELECT (SELECT min(chain) FROM entries WHERE chain > x) FROM c WHERE x IS NOT NULL)
SELECT x FROM c WHERE x IS NOT NULL"""  # one index step a chain; DISTINCT would walk all entries


class SQLiteLedger:
    """A :class:`~capstate.ledger.Ledger` in the file at ``path``, created if it is missing.

    Args:
        path: a file; its folder must exist.
        read_only: for auditors. The file is neither created nor changed (SQLite may put its ``-shm`` and ``-wal`` files
            beside it where it is allowed to); whatever would write raises.
        wait: seconds to wait for another process's transaction.

    Raises:
        LedgerUnavailableError: the file cannot be opened or created.
        MalformedError: it is no capstate ledger.
        LedgerFormatError: it has a newer schema.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False, wait: float = 10.0) -> None:
        self._path = sqlite_file.checked(path)
        self._name = str(self._path)
        self._folder = Path(f"{self._path}-locks")
        self._pid = os.getpid()
        self._closed = False
        self._making = False
        self._write_lock, self._read_lock = threading.RLock(), threading.Lock()
        self._locks: dict[lock_files.LockFile, list[Writer]] = {}  # empty until the token is known
        self._writing: sqlite3.Connection | None = None
        if not read_only:
            self._writing = sqlite_file.open_writer(self._path, wait)
        try:
            self._reading, self._frozen = sqlite_file.open_reader(self._path, wait)
        except BaseException:
            if self._writing is not None:
                self._writing.close()
            raise
        self._watching = self._reading.cursor()
        with sqlite_file.translated(self._path):
            self._identity = sqlite_file.identity(self._name)
        _OPEN.add(self)

    def head(self, chain: str) -> Head | None:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        with self._read() as db:
            row = _last(db, chain)
        return None if row is None else row.head

    def read(self, chain: str, start: int = 0) -> Iterator[Stored]:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        return self._pages(chain, start)

    def _pages(self, chain: str, start: int) -> Iterator[Stored]:
        query = (
            "SELECT sequence, stored, digest, seal FROM entries"
            " WHERE chain = ? AND sequence >= ? ORDER BY sequence LIMIT ?"
        )
        start = min(start, _HIGHEST) if start > 0 else _LOWEST  # a row moved below 0 must not be out of sight
        while True:
            with self._read() as db:
                page = db.execute(query, (chain, start, _PAGE)).fetchall()
            yield from map(_row, page)
            if len(page) < _PAGE or type(page[-1][0]) is not int:  # a sequence that is no number: a forger's, and last
                return
            start = page[-1][0] + 1

    def chains(self) -> tuple[str, ...]:
        """See :class:`~capstate.ledger.Ledger`."""
        with self._read() as db:
            return tuple(str(chain) for (chain,) in db.execute(_ALL_CHAINS).fetchall())

    def revision(self) -> int:
        """See :class:`~capstate.ledger.Ledger`. The reading connection sees each commit of any other one."""
        try:  # written out: a guard asks twice for each call of a tool, and each step of it counts
            status = os.stat(self._name)  # noqa: PTH116 - as above
            if self._closed or (status.st_dev, status.st_ino) != self._identity or os.getpid() != self._pid:
                self._live()
            with self._read_lock:
                version: int = self._watching.execute("PRAGMA data_version").fetchall()[0][0]
        except (sqlite3.Error, OSError) as error:
            self._live()
            raise sqlite_file.unavailable(self._path, error) from error
        return version if not self._frozen else sqlite_file.stamp(self._path)

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
        with self._change() as db, sqlite_file.translated(self._path):
            last = _last(db, chain)
            check_writer(chain, writer, _token(db, chain), expect=expect, head=None if last is None else last.head)
            head = _add(db, chain, rows)
            # the upsert mends a blob that was spoilt: its key is the digest of its bytes
            db.executemany(
                "INSERT INTO blobs (digest, value) VALUES (?, ?)"
                " ON CONFLICT (digest) DO UPDATE SET value = excluded.value WHERE value IS NOT excluded.value",
                (blobs or {}).items(),
            )
            if pool is not None:
                _set_pool(db, pool)
        return head

    def post(self, chain: str, make: Callable[[Head | None], Sequence[Stored]]) -> Head:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        with self._change() as db:
            with sqlite_file.translated(self._path):
                last = _last(db, chain)
            head = None if last is None else last.head
            self._making = True
            try:
                rows = make(head)
            finally:
                self._making = False
            check_rows(head, rows)
            with sqlite_file.translated(self._path):
                return _add(db, chain, rows)

    def lock(self, chain: str, *, above: int = 0) -> Writer:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        self._live()
        if self._writing is None:
            raise LedgerUnavailableError(f"{self._path} was opened read-only")
        with sqlite_file.translated(self._path):
            held = lock_files.take(self._folder, chain)
        if held is None:
            raise SessionLockedError(f"chain {chain!r} has another live writer")
        self._locks[held] = []
        try:
            with self._change() as db, sqlite_file.translated(self._path):
                token = max(_token(db, chain), above) + 1
                db.execute(
                    "INSERT INTO writers (chain, token) VALUES (?, ?)"
                    " ON CONFLICT (chain) DO UPDATE SET token = excluded.token",
                    (chain, token),
                )
                writer = Writer(chain, token, lambda: self._unlock(held), lambda: held.lost)
                self._locks[held].append(writer)
        except BaseException:
            self._unlock(held)
            raise
        return writer

    def owned(self, chain: str) -> bool:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        self._live()
        with sqlite_file.translated(self._path):
            return lock_files.is_held(self._folder, chain)

    def repair(self, chain: str, *, writer: Writer) -> Stored | None:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(chain)
        with self._change() as db, sqlite_file.translated(self._path):
            check_writer(chain, writer, _token(db, chain), expect=None, head=None)
            last = _last(db, chain)
            if last is None or not torn(last):
                return None
            db.execute("DELETE FROM entries WHERE chain = ? AND sequence = ?", (chain, last.sequence))
            return last

    def blob(self, digest: str) -> bytes | None:
        """See :class:`~capstate.ledger.Ledger`."""
        with self._read() as db:
            found = db.execute("SELECT value FROM blobs WHERE digest = ?", (digest,)).fetchall()
        return _bytes(found[0][0]) if found else None

    def pool(self, root: str) -> Pool | None:
        """See :class:`~capstate.ledger.Ledger`."""
        check_chain(root)
        with self._read() as db:
            return _pool(db, root)

    def close(self) -> None:
        """See :class:`~capstate.ledger.Ledger`."""
        if self._closed or os.getpid() != self._pid:
            return
        with self._write_lock, self._read_lock, sqlite_file.translated(self._path):
            self._closed = True
            for held, writers in tuple(self._locks.items()):
                for writer in writers:
                    writer.close()
                self._unlock(held)
            self._reading.close()
            if self._writing is not None:
                self._writing.close()

    def _live(self) -> None:
        if self._closed:
            raise LedgerUnavailableError(f"{self._path} was closed")
        if os.getpid() != self._pid:
            raise LedgerUnavailableError(f"{self._path} was opened before a fork; open it again in the child")
        try:
            same = sqlite_file.identity(self._name) == self._identity
        except OSError as error:
            raise sqlite_file.unavailable(self._path, error) from error
        if not same:
            raise LedgerUnavailableError(f"{self._path} was replaced by another file; open it again")

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        self._live()  # before the lock: after a fork somebody who no longer exists may hold it
        with self._read_lock, sqlite_file.translated(self._path):
            yield self._reading

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        self._live()
        db = self._writing
        if db is None:
            raise LedgerUnavailableError(f"{self._path} was opened read-only")
        with self._write_lock:
            if self._making:
                raise InvalidInputError("make", "a function that only builds rows", "one that writes to the ledger")
            with sqlite_file.translated(self._path):
                db.execute("BEGIN IMMEDIATE")
            try:
                with sqlite_file.translated(self._path):
                    sqlite_file.check_schema(db, self._path)
                yield db
                with sqlite_file.translated(self._path):
                    db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # an error that the disk answered with has rolled back already
                    db.execute("ROLLBACK")
                raise

    def _unlock(self, held: lock_files.LockFile) -> None:
        if self._locks.pop(held, None) is not None:
            held.close()

    def _forget(self) -> None:
        """Drop a forked child's share of the locks, else they would outlive the parent."""
        while self._locks:
            self._locks.popitem()[0].close()


_OPEN: weakref.WeakSet[SQLiteLedger] = weakref.WeakSet()


def _after_fork() -> None:
    for ledger in list(_OPEN):
        ledger._forget()  # noqa: SLF001 - same module


os.register_at_fork(after_in_child=_after_fork)


def _add(db: sqlite3.Connection, chain: str, rows: Sequence[Stored]) -> Head:
    db.executemany(
        "INSERT INTO entries (chain, sequence, stored, digest, seal) VALUES (?, ?, ?, ?, ?)",
        [(chain, row.sequence, row.stored, row.digest, row.seal) for row in rows],
    )
    return rows[-1].head


def _last(db: sqlite3.Connection, chain: str) -> Stored | None:
    query = "SELECT sequence, stored, digest, seal FROM entries WHERE chain = ? ORDER BY sequence DESC LIMIT 1"
    found = db.execute(query, (chain,)).fetchall()
    return _row(found[0]) if found else None


def _token(db: sqlite3.Connection, chain: str) -> int:
    found = db.execute("SELECT token FROM writers WHERE chain = ?", (chain,)).fetchall()
    token = found[0][0] if found else 0
    if type(token) is not int:
        raise MalformedError(f"fencing token of {chain!r}", "an integer", token)
    return token


def _pool(db: sqlite3.Connection, root: str) -> Pool | None:
    found = db.execute("SELECT version, value FROM pools WHERE root = ?", (root,)).fetchall()
    if not found:
        return None
    if type(found[0][0]) is not int:
        raise MalformedError(f"pool of {root!r}", "an integer version", found[0][0])
    return Pool(found[0][0], _bytes(found[0][1]))


def _set_pool(db: sqlite3.Connection, change: PoolChange) -> None:
    old = _pool(db, change.root)
    version = 0 if old is None else old.version
    if version != change.expect:
        raise PoolConflictError(change.root, change.expect, version)
    db.execute(
        "INSERT INTO pools (root, version, value) VALUES (?, ?, ?)"
        " ON CONFLICT (root) DO UPDATE SET version = excluded.version, value = excluded.value",
        (change.root, version + 1, change.value),
    )


def _row(row: tuple[object, ...]) -> Stored:
    """Whatever types a forger left in the columns, the result is a row; if it is wrong, it does not verify."""
    sequence, stored, digest, seal = row
    return Stored(
        sequence if type(sequence) is int else -1,
        _bytes(stored),
        digest if isinstance(digest, str) else "",
        seal if isinstance(seal, str) or seal is None else "",
    )


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
