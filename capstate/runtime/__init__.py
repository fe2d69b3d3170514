"""The stateful side: a :class:`Runtime` holds the ledger and the host's sources, a :class:`Session` one agent's state.

Nothing here is a second agent runtime: no scheduler, no HTTP, no prompt. The host calls ``reproject`` at every
boundary and puts each call through ``guard``.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from capstate.authority import Grant, Limits, deny
from capstate.digest import canonical
from capstate.epochs import Cause
from capstate.errors import InvalidInputError, MalformedError, SessionClosedError
from capstate.ledger import (
    OPENED,
    DamageKind,
    Head,
    Ledger,
    Outcome,
    Record,
    Stored,
    Writer,
    chain_entries,
    check_key,
    load,
    read_blob,
    verify,
)
from capstate.receipts import Receipt
from capstate.runtime.guard import Gate, Permit
from capstate.runtime.live import Folds, Live
from capstate.runtime.session import Session
from capstate.runtime.sources import CatalogSource, CeilingSource, GrantSource, Rules, Sources
from capstate.runtime.state import Operation, State
from capstate.surface import counting

__all__ = ["Gate", "Operation", "Permit", "Rules", "Runtime", "Session"]


_SOURCE_NAME = re.compile(r"[A-Za-z0-9_.-]*")


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


class Runtime:
    """The ledger, what exists, and who may: read anew at every epoch and at every call.

    Args:
        ledger: path of a SQLite file, or any :class:`~capstate.ledger.Ledger`.
        catalog: returns the groups that exist now.
        grants: sources by name; each returns what it grants to a holder.
        ceilings: sources by name that only cut.
        key: 32 bytes; seals every entry, and entries without a valid seal count only where they take away.
        clock: milliseconds since the epoch.

    Raises:
        LedgerUnavailableError: the ledger cannot be opened.
        InvalidInputError: a source is no function, or the key is not 32 bytes.
    """

    def __init__(
        self,
        ledger: str | os.PathLike[str] | Ledger,
        *,
        catalog: CatalogSource,
        grants: Mapping[str, GrantSource] | None = None,
        ceilings: Mapping[str, CeilingSource] | None = None,
        key: bytes | None = None,
        clock: Callable[[], int] = _milliseconds,
    ) -> None:
        check_key(key)
        for place, functions in (("catalog", {"": catalog}), ("grants", grants or {}), ("ceilings", ceilings or {})):
            for name, function in functions.items():
                if not callable(function):
                    raise InvalidInputError(f"{place} {name}".strip(), "a function", function)
                if name in ("granted", "want", "pool", "launch") or not _SOURCE_NAME.fullmatch(name):
                    raise InvalidInputError(place, "names of letters, digits, '_', '.' and '-', none of ours", name)
        self.ledger = open_ledger(ledger)
        self.key = key
        self._sources = (catalog, dict(grants or {}), dict(ceilings or {}))
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, int] = {}

    def session(self, id: str, *, holder: str | None = None, limits: Limits | None = None) -> Session:  # noqa: A002 - the word of the design
        """Open a session, new or resumed, as its sole writer.

        Args:
            holder: the principal that it acts for; by default itself. A resumed session keeps its own.
            limits: of the whole tree; used ones are kept when they change.

        Raises:
            SessionLockedError: another live writer has it.
            SessionClosedError: it was ended.
            InvalidInputError: it was opened for another holder, or is a child or fork with limits of its own.
        """
        opening = {
            "holder": holder or id,
            "kind": "session",
            "limits": limits.to_json() if limits is not None else None,
        }
        session = self._resume(id, opening)
        opened = session._live.state.opening
        try:
            if holder is not None and session.holder != holder:
                raise InvalidInputError(f"session {id!r}", f"holder {session.holder!r}", holder)
            if limits is not None and limits != session._live.state.limits:
                if opened is not None and opened.root != id:
                    raise InvalidInputError(
                        f"session {id!r}", f"limits at its root {opened.root!r}", "limits of its own"
                    )
                session._append(Record("limits", {"limits": limits.to_json()}))
        except BaseException:
            session.close()
            raise
        return session

    def deny(self, chain: str, on: str, *, by: str) -> Grant:
        """Deny tools to a session or a holder, whoever owns it; its owner sees it at the next call."""
        rule = deny(on)
        grant = Grant(on, rule.effect, giver=by)
        self._post(chain, Record("grant", grant.to_json()))
        return grant

    def revoke(self, chain: str, id: str, *, by: str) -> None:  # noqa: A002 - the word of the design
        """Take back an allow from a session or a holder, whoever owns it."""
        self._post(chain, Record("revoke", {"by": by, "id": id}))

    def end(self, session: str, *, by: str) -> None:
        """End a session, whoever owns it: it, and its children, may do nothing any more."""
        self._post(session, Record("ended", {"by": by}))

    def state(self, chain: str) -> State | None:
        """Return what a chain's entries say now; None if there is no such chain. For looking only."""
        return Folds(self.ledger, self.key).get(chain)

    def append_to(self, chain: str, *records: Record) -> None:
        """Append to a chain that no session of this process owns, such as a holder's.

        Raises:
            SessionLockedError: another live writer has it.
        """
        with self.ledger.lock(chain) as writer:
            read = load(self.ledger, chain, self.key)
            first = [] if read.head is not None else [Record(OPENED, _opened(chain, {"kind": "holder"}))]
            entries = chain_entries(
                chain, read.head, [*first, *records], at=self._clock(), token=writer.token, key=self.key
            )
            self.ledger.append(chain, entries, expect=read.head, writer=writer)

    def _post(self, chain: str, record: Record) -> None:
        def make(head: Head | None) -> tuple[Stored, ...]:
            first = [] if head is not None else [Record(OPENED, _opened(chain, {"kind": "holder"}))]
            return chain_entries(chain, head, [*first, record], at=self._clock(), key=self.key, posted=True)

        self.ledger.post(chain, make)

    def _open_child(self, parent: Session, id: str, want: list[str] | None) -> Session:  # noqa: A002
        state = parent._live.state
        root = state.opening.root if state.opening is not None else parent.id
        opening = {"holder": id, "kind": "child", "parent": parent.id, "root": root, "want": want}
        first = (
            [Record("load", {"at": None, "by": "launch", "call": None, "definitions": {}, "on": want})] if want else []
        )
        child = self._resume(id, opening, first, fresh=Cause.CHILD)
        opened = child._live.state.opening
        if opened is not None and opened.parent != parent.id:
            child.close()
            raise InvalidInputError(f"session {id!r}", f"a child of {parent.id!r}", f"one of {opened.parent!r}")
        return child

    def _open_fork(self, origin: Session, id: str, at: str | None, line: list[str] | None) -> Session:  # noqa: A002
        if self.ledger.head(id) is not None:
            raise InvalidInputError("fork id", "an unused session id", id)
        state, head = origin._live.state, origin._live.folds.head(origin.id)
        if head is None or state.opening is None:
            raise InvalidInputError(f"session {origin.id!r}", "a session with a readable opening", "none")
        opened = state.opening
        opening = {
            "holder": opened.holder,
            "kind": "fork",
            "origin": [origin.id, at, head.sequence, head.digest],
            "parent": opened.parent,
            "root": opened.root,
            "want": list(opened.launch) if opened.launch is not None else None,
        }
        loads = [
            Record(
                str(e.do),
                {"at": e.at, "by": "fork", "call": e.call, "definitions": dict(e.definitions), "on": list(e.on)},
            )
            for e in counting(state.loads, tuple(line) if line is not None else None)
        ]
        return self._resume(id, opening, loads, fresh=Cause.FORK, previous=origin.receipt)

    def _resume(
        self,
        id: str,  # noqa: A002
        opening: Mapping[str, Any],
        first: list[Record] | None = None,
        *,
        fresh: Cause = Cause.OPEN,
        previous: Receipt | None = None,
    ) -> Session:
        writer = self.ledger.lock(id)
        try:
            repaired = self.ledger.repair(id, writer=writer)
            verdict = verify(self.ledger, id, self.key)
            folds = Folds(self.ledger, self.key)
            state = folds.get(id)
            if state is None:
                records = [Record(OPENED, _opened(id, opening)), *(first or [])]
                entries = chain_entries(id, None, records, at=self._clock(), token=writer.token, key=self.key)
                self.ledger.append(id, entries, expect=None, writer=writer)
            elif state.ended:
                raise SessionClosedError(f"session {id!r} was ended")
            elif state.opening is not None and state.opening.kind != "holder":
                fresh = Cause.REOPEN
            damage = ("tail",) * (repaired is not None) + ("hole",) * (state is not None and state.read_only)
            live = Live(id, folds, Sources(*self._sources), self._clock, self._token)
            folds.refresh()
            session = Session(self, live, writer, fresh=fresh, damage=damage)
            session._audit = verdict.outcome.value
            session._previous = previous if previous is not None else self._last(folds.get(id), session)
        except BaseException:
            writer.close()
            raise
        with self._lock:
            self._sessions[id] = writer.token
        return session

    def _last(self, state: State | None, session: Session) -> Receipt | None:
        """Return the last receipt; a bad one lowers the audit outcome and never bricks the session."""
        if state is None or state.receipt is None:
            return None
        try:
            return Receipt.from_bytes(canonical(state.receipt[1]), lambda digest: read_blob(self.ledger, digest))
        except (MalformedError, InvalidInputError) as error:
            session._audit = f"{Outcome.BROKEN.value}: {error}"
            return None

    def _token(self, chain: str) -> int | None:
        with self._lock:
            return self._sessions.get(chain)

    def _forget(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session.id, None)

    def close(self) -> None:
        """Let the ledger go. Sessions should be closed first."""
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _opened(chain: str, opening: Mapping[str, Any]) -> dict[str, Any]:
    return {"root": chain, **opening, "log": secrets.token_hex(16)}


def open_ledger(ledger: str | os.PathLike[str] | Ledger, *, read_only: bool = False) -> Ledger:
    """Return the ledger that a path or URL names, or ``ledger`` itself.

    Raises:
        InvalidInputError: a URL of a storage that this version does not have.
        LedgerUnavailableError: it cannot be opened.
    """
    if not isinstance(ledger, (str, os.PathLike)):
        return ledger
    text = os.fspath(ledger)
    if "://" in text:
        raise InvalidInputError("ledger", "a path of a SQLite file, or a Ledger", text.partition("://")[0] + "://...")
    from capstate.ledgers.sqlite import SQLiteLedger

    return SQLiteLedger(Path(text), read_only=read_only)
