"""One chain that this process owns: appending to it, and what is remembered between boundaries.

The lock is held to derive and to append, never while a tool runs. What meets only posts derives again; any other
change of the head is a stale writer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from capstate.epochs import NO_PROFILE, Cause, Epoch
from capstate.errors import PoolConflictError, SessionClosedError, StaleWriterError
from capstate.ledger import PoolChange, Record, Writer, chain_entries
from capstate.runtime.state import check_entries

if TYPE_CHECKING:
    from capstate.projection import Profile
    from capstate.receipts import Receipt
    from capstate.runtime import Runtime
    from capstate.runtime.guard import Permit
    from capstate.runtime.live import Live
    from capstate.surface import Load

TRIES = 200
"""How often an append that met only posts, or another session's use of the limits, derives again."""
_AT_ONCE = 8


class Owned:
    """The base of :class:`~capstate.runtime.session.Session`: its chain, its lock, its last epoch."""

    def __init__(self, runtime: Runtime, live: Live, writer: Writer, *, fresh: Cause, damage: tuple[str, ...]) -> None:
        self.id = live.chain
        self._runtime, self._live, self._writer = runtime, live, writer
        self._token = max(writer.token, live.state.token)
        self._fresh: Cause | None = fresh
        self._damage = damage
        self._lock = threading.RLock()
        self._epoch: Epoch | None = None
        self._previous: Receipt | None = None
        self._audit = ""
        self._profile: Profile = NO_PROFILE
        self._path: tuple[str, ...] | None = None
        self._lines: tuple[tuple[Load, ...], tuple[str, ...] | None, tuple[str, ...] | None] = ((), None, None)
        self._retained: tuple[int, ...] = ()
        self._opaque: tuple[tuple[str, str], ...] = ()
        self._entries: tuple[str, ...] = ()
        """Ids of the last history, in order."""
        self._permits: list[Permit] = []
        self._jobs: dict[str, frozenset[str]] = {}
        """The grants of the jobs that run here now. Nothing durable: they live in this object or nowhere."""
        self._refused: dict[tuple[str, str], int] = {}
        self._seen: set[tuple[str, str]] = set()
        self._told = 0
        """Up to which of the sources' changes of revision the chains were told."""
        self._closed = False

    @property
    def holder(self) -> str:
        """The principal that the session acts for."""
        opening = self._live.state.opening
        return opening.holder if opening is not None else self.id

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            self._check_open()
            yield

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosedError(f"session {self.id!r} is closed")

    def _line(self, path: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the entries of ``path`` that a load names: what the surface can depend on."""
        if path is None:
            return None
        loads = self._live.state.loads
        if self._lines[0] is loads and self._lines[1] is path:
            return self._lines[2]
        named = {load.at for load in loads if load.at is not None}
        line = tuple(entry for entry in path if entry in named)
        self._lines = (loads, path, line)
        return line

    def _append(
        self,
        *records: Record,
        blobs: Mapping[str, bytes] | None = None,
        pool: PoolChange | None = None,
        derived: bool = False,
    ) -> None:
        """Append after the head that was folded last. What was ``derived`` is for the caller to derive again."""
        folds = self._live.folds
        counted = [self._counted()] if self._refused else []
        for attempt in range(TRIES):
            head = folds.head(self.id)
            entries = chain_entries(
                self.id,
                head,
                [*records, *counted],
                at=self._live.now(),
                token=self._writer.token,
                key=self._runtime.key,
            )
            check_entries(entries)
            try:
                self._runtime.ledger.append(self.id, entries, expect=head, writer=self._writer, blobs=blobs, pool=pool)
            except StaleWriterError as error:
                if derived:
                    raise
                self._after(error, attempt)
                continue
            folds.take(self.id, entries)
            self._refused.clear()
            return
        raise StaleWriterError(self.id, None, None, owner=True)

    def _tell(self) -> None:
        """Write what this session saw and a chain does not show: that entries are gone, how new a source was.

        Another session, or this one after a restart, would see less and believe it. Chains of others get a post.
        """
        folds = self._live.folds
        if folds.rolled:
            lost = Record("repaired", {"damage": ["rollback"]})
            if self.id in folds.rolled:
                self._append(lost)
                folds.rolled.discard(self.id)
                self._damage = (*self._damage, *(() if "hole" in self._damage else ("hole",)))
            for chain in sorted(folds.rolled):
                now = self._runtime.state(chain)
                if now is not None and not now.holes:
                    self._runtime._post(chain, lost)
                folds.rolled.discard(chain)
        changes = self._live.sources.changes
        if changes != self._told:
            for state in list(self._live.line()):
                opening = state.opening
                if opening is None or opening.kind == "holder":
                    continue
                higher = self._live.sources.unknown(opening.holder, state.sources)
                if higher and state.chain == self.id:
                    self._append(Record("revisions", {"sources": higher}))
                elif higher:
                    self._runtime._post(state.chain, Record("revisions", {"sources": higher}))
            self._told = changes

    def _after(self, error: StaleWriterError | PoolConflictError, attempt: int) -> None:
        """Take in what moved the head; posts alone are no reason to give up."""
        if isinstance(error, StaleWriterError) and not error.owner:
            raise error
        if attempt > _AT_ONCE:
            time.sleep(0.0005 * (attempt % 16))
        self._live.folds.refresh()

    def _counted(self) -> Record:
        """Return the refusals that no entry holds yet, by tool and reason."""
        epoch = self._epoch.receipt.epoch if self._epoch is not None else None
        counts = [[tool, reason, count] for (tool, reason), count in sorted(self._refused.items())]
        return Record("refused", {"counts": counts, "epoch": epoch})
