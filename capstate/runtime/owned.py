"""One chain that this process owns: appending to it, and what is remembered between boundaries.

The lock is held to derive and to append, never while a tool runs. What meets only posts derives again; any other
change of the head is a stale writer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from capstate.epochs import NO_PROFILE, Cause, Epoch
from capstate.errors import PoolConflictError, SessionClosedError, StaleWriterError
from capstate.ledger import PoolChange, Record, Writer, chain_entries

if TYPE_CHECKING:
    from capstate.projection import Profile
    from capstate.receipts import Receipt
    from capstate.runtime import Runtime
    from capstate.runtime.guard import Permit
    from capstate.runtime.live import Live

TRIES = 64
"""How often an append that met only posts, or another session's use of the limits, derives again."""


class Owned:
    """The base of :class:`~capstate.runtime.session.Session`: its chain, its lock, its last epoch."""

    def __init__(self, runtime: Runtime, live: Live, writer: Writer, *, fresh: Cause, damage: tuple[str, ...]) -> None:
        self.id = live.chain
        self._runtime, self._live, self._writer = runtime, live, writer
        self._fresh: Cause | None = fresh
        self._damage = damage
        self._lock = threading.RLock()
        self._epoch: Epoch | None = None
        self._previous: Receipt | None = None
        self._audit = ""
        self._profile: Profile = NO_PROFILE
        self._path: tuple[str, ...] | None = None
        self._retained: tuple[int, ...] = ()
        self._opaque: tuple[tuple[str, str], ...] = ()
        self._permits: list[Permit] = []
        self._refused: dict[tuple[str, str], int] = {}
        self._seen: set[tuple[str, str, str]] = set()
        self._closed = False

    @property
    def holder(self) -> str:
        """The principal that the session acts for."""
        opening = self._live.state.opening
        return opening.holder if opening is not None else self.id

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise SessionClosedError(f"session {self.id!r} is closed")
            yield

    def _line(self, path: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the entries of ``path`` that a load names: what the surface can depend on."""
        if path is None:
            return None
        named = {load.at for load in self._live.state.loads if load.at is not None}
        return tuple(entry for entry in path if entry in named)

    def _append(
        self,
        *records: Record,
        blobs: Mapping[str, bytes] | None = None,
        pool: PoolChange | None = None,
        derived: bool = False,
    ) -> None:
        """Append after the head that was folded last. What was ``derived`` is for the caller to derive again."""
        folds = self._live.folds
        for _ in range(TRIES):
            head = folds.head(self.id)
            entries = chain_entries(
                self.id, head, records, at=self._live.now(), token=self._writer.token, key=self._runtime.key
            )
            try:
                self._runtime.ledger.append(self.id, entries, expect=head, writer=self._writer, blobs=blobs, pool=pool)
            except StaleWriterError as error:
                if derived:
                    raise
                self._after(error)
                continue
            folds.refresh()
            return
        raise StaleWriterError(self.id, None, None, owner=True)

    def _after(self, error: StaleWriterError | PoolConflictError) -> None:
        """Take in what moved the head; posts alone are no reason to give up."""
        if isinstance(error, StaleWriterError) and not error.owner:
            raise error
        self._live.folds.refresh()
