"""The ledger: hash-chained entries, the small storage port under them, and the rules that hold over any storage.

A *chain* is one sequence of entries that grow by appending; to the ledger its id is just text (a session has one, a
holder may). Each entry names the digest of the one before, so a change in the middle shows. A chain alone does not show
that its tail was cut or that all of it was rewritten: that takes a head kept elsewhere (:func:`verify`) or a key.

Who does what:

* *Entries are built and read* by the port's caller, with :func:`chain_entries`, :func:`decode`, :func:`load` and
  :func:`verify`. An :class:`Entry` is a :class:`Stored` row that was verified, so what :func:`chain_entries` returns is
  what :meth:`Ledger.append` takes. (Their code is in ``entries.py`` and ``chains.py``; the names are those of here.)
* *A storage* (:class:`Ledger`) *keeps rows*: bytes in, bytes out. It never decodes, with one exception:
  :meth:`Ledger.repair` asks :func:`torn` about a last row. What it decides is order: one writer a chain, one head, all
  or nothing. :func:`check_rows`, :func:`check_writer` and :func:`check_blobs` are those rules, for all storages.
* *What an entry means* is the runtime's business, also whether an entry without a valid seal, or after a hole, counts.

An append names the head it follows and the writer that owns the chain. A post (for what takes away) needs no writer:
its entry is made inside the storage's transaction, from the head as it is then. ``capstate.conformance.ledgers`` tests
a storage against this contract.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol, Self

from attrs import frozen

from capstate.chains import Chain, Damage, DamageKind, Outcome, Verdict, load, verify
from capstate.digest import Domain, fingerprint
from capstate.entries import (
    FORMAT,
    OPENED,
    Entry,
    Head,
    Record,
    Stored,
    blob_key,
    chain_entries,
    check_chain,
    check_key,
    decode,
    torn,
)
from capstate.errors import InvalidInputError, MalformedError, StaleWriterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MAX_BYTES = 32 * 1024 * 1024
"""The most that one entry or one blob may hold."""

__all__ = [
    "FORMAT", "MAX_BYTES", "OPENED", "Chain", "Damage", "DamageKind", "Entry", "Head", "Ledger", "Outcome", "Pool",
    "PoolChange", "Record", "Stored", "Verdict", "Writer", "blob_key", "chain_entries", "check_blobs", "check_chain",
    "check_key", "check_pool", "check_rows", "check_writer", "decode", "load", "read_blob", "torn", "verify",
]  # fmt: skip


@frozen
class Pool:
    """The limits row of a root session: opaque bytes and a version that grows by one with each change.

    Attributes:
        version: grows by one with each change, from 1.
        value: bytes that the storage does not read.
    """

    version: int
    value: bytes


@frozen
class PoolChange:
    """Set the pool of ``root`` to ``value`` if its version is still ``expect`` (0: there is none yet).

    The row is a cache and not protected by any digest: callers write the totals in entries as well, and compare.

    Attributes:
        root: id of the root session.
        expect: the version that the row must still have; 0 for none.
        value: the new bytes.
    """

    root: str
    expect: int
    value: bytes


class Writer:
    """The right to append to one chain, until closed or until the process ends. Made by :meth:`Ledger.lock` alone."""

    def __init__(
        self, chain: str, token: int, release: Callable[[], None], lost: Callable[[], bool] = lambda: False
    ) -> None:
        self.chain, self.token = chain, token
        self._release: Callable[[], None] | None = release
        self._lost = lost
        self._once = threading.Lock()

    @property
    def closed(self) -> bool:
        """Whether the lock was given back, or the storage says that it is lost: another may have it."""
        return self._release is None or self._lost()

    def close(self) -> None:
        """Give the lock back; a second call does nothing."""
        with self._once:
            release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Ledger(Protocol):
    """The storage port. Safe to use from many threads.

    Every method raises :class:`~capstate.errors.LedgerUnavailableError` when the storage fails or the ledger is closed,
    and :class:`~capstate.errors.InvalidInputError` for a chain id that is no text of 1 to 1024 characters.
    """

    def head(self, chain: str) -> Head | None:
        """Return the head of ``chain``; None if there is no such chain."""

    def read(self, chain: str, start: int = 0) -> Iterable[Stored]:
        """Give the rows of ``chain`` from ``start`` on, in order, nothing verified; from 0: whatever their number."""

    def chains(self) -> tuple[str, ...]:
        """Return the ids of all chains that have an entry, sorted."""

    def revision(self) -> int:
        """Return a cheap token: while it stays equal for this object, nobody changed anything in the ledger."""

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
        """Append ``rows`` after ``expect``, put ``blobs`` and change ``pool``: all or nothing, durable on return.

        Raises:
            StaleWriterError: ``writer`` no longer owns the chain, or the head is not ``expect``.
            PoolConflictError: the pool has another version.
            InvalidInputError: the rows do not follow ``expect``, or a digest is not that of its bytes.
        """

    def post(self, chain: str, make: Callable[[Head | None], Sequence[Stored]]) -> Head:
        """Append what ``make`` returns for the head as it is inside the transaction; no writer is needed.

        ``make`` must be quick and may be called again. What it raises goes through, and nothing was written.

        Raises:
            InvalidInputError: the rows do not follow the head, or ``make`` wrote to this ledger.
        """

    def lock(self, chain: str, *, above: int = 0) -> Writer:
        """Become the one writer of ``chain``, with a fencing token above all before; never waits for an owner.

        Args:
            above: a token that the chain's entries name: what the storage remembers may have been set back.

        Raises:
            SessionLockedError: another live owner, in this process or another, has it. A stopped process is alive.
        """

    def owned(self, chain: str) -> bool:
        """Return whether ``chain`` has a live writer, in this process or another. Takes nothing from anybody."""

    def repair(self, chain: str, *, writer: Writer) -> Stored | None:
        """Cut off the last row if it is :func:`torn`, and return it; None if there was nothing to cut.

        Raises:
            StaleWriterError: ``writer`` no longer owns the chain.
        """

    def blob(self, digest: str) -> bytes | None:
        """Return the bytes under ``digest``, not verified (:func:`read_blob` verifies); None if there are none."""

    def pool(self, root: str) -> Pool | None:
        """Return the limits row of ``root``; None before the first change."""

    def close(self) -> None:
        """Give back all locks of this object and let the storage go; a second call does nothing."""


def read_blob(ledger: Ledger, digest: str) -> bytes | None:
    """Return the blob under ``digest``, verified; None if there is none.

    Raises:
        MalformedError: the stored bytes have another digest.
        LedgerUnavailableError: the storage failed.
    """
    value = ledger.blob(digest)
    if value is not None and blob_key(value) != digest:
        raise MalformedError(f"blob {digest}", "bytes with that digest", "other bytes")
    return value


def check_rows(head: Head | None, rows: Sequence[Stored]) -> None:
    """Refuse rows that do not follow ``head`` or whose digests are not those of their bytes.

    Raises:
        InvalidInputError: as said, or ``rows`` is empty, or a row is too large.
    """
    if not rows:
        raise InvalidInputError("rows", "at least one", "none")
    for number, row in enumerate(rows, start=0 if head is None else head.sequence + 1):
        if row.sequence != number:
            raise InvalidInputError("rows", f"sequence {number} next", row.sequence)
        if type(row.stored) is not bytes or len(row.stored) > MAX_BYTES:
            raise InvalidInputError(f"row {number}", f"at most {MAX_BYTES} bytes", type(row.stored).__name__)
        if row.digest != fingerprint(Domain.ENTRY, row.stored):
            raise InvalidInputError(f"row {number}", "the digest of its bytes", row.digest)


def check_pool(pool: PoolChange) -> None:
    """Refuse a change of a limits pool that no storage could hold.

    Raises:
        InvalidInputError: the root is no chain id, the version no integer from 0, or the value no bytes or too large.
    """
    check_chain(pool.root)
    if type(pool.expect) is not int or pool.expect < 0:
        raise InvalidInputError("pool.expect", "an integer from 0", pool.expect)
    if type(pool.value) is not bytes or len(pool.value) > MAX_BYTES:
        raise InvalidInputError("pool.value", f"at most {MAX_BYTES} bytes", type(pool.value).__name__)


def check_writer(chain: str, writer: Writer, token: int, *, expect: Head | None, head: Head | None) -> None:
    """Refuse a writer that does not own ``chain``, whose current token is ``token``, or that did not see ``head``.

    Raises:
        StaleWriterError: as said.
        InvalidInputError: the writer is that of another chain.
    """
    if writer.chain != chain:
        raise InvalidInputError("writer", f"the writer of {chain!r}", f"that of {writer.chain!r}")
    owner = not writer.closed and writer.token == token
    if not owner or expect != head:
        raise StaleWriterError(chain, expect, head, owner=owner)


def check_blobs(blobs: Mapping[str, bytes]) -> None:
    """Refuse blobs under a key that is not theirs.

    Raises:
        InvalidInputError: as said, or a blob is too large.
    """
    for digest, value in blobs.items():
        if type(value) is not bytes or len(value) > MAX_BYTES:
            raise InvalidInputError(f"blob {digest}", f"at most {MAX_BYTES} bytes", type(value).__name__)
        if blob_key(value) != digest:
            raise InvalidInputError(f"blob {digest}", "the key of its bytes", blob_key(value))
