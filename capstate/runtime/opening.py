"""Opening chains: a session new or resumed, a child, a fork; and writing to chains that no session here owns."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from capstate.decisions import Graph
from capstate.digest import canonical
from capstate.epochs import Cause
from capstate.errors import InvalidInputError, MalformedError, SessionClosedError, StaleWriterError
from capstate.ledger import OPENED, Head, Outcome, Record, Stored, Writer, chain_entries, load, read_blob, verify
from capstate.receipts import Receipt
from capstate.runtime.arguments import a_chain, records_of
from capstate.runtime.live import Folds, Live
from capstate.runtime.owned import TRIES
from capstate.runtime.session import Session
from capstate.runtime.sources import Revisions, Sources
from capstate.runtime.state import State, check_entries

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from capstate.authority import Limits
    from capstate.ledger import Ledger
    from capstate.runtime import Runtime
    from capstate.surface import Load

_FIRST = {"session": Cause.OPEN, "child": Cause.CHILD, "fork": Cause.FORK, "holder": Cause.OPEN}
"""Why the first epoch of a chain is made."""


class Opener:
    """The base of :class:`~capstate.runtime.Runtime`: its ledger, and the sessions that it has open."""

    ledger: Ledger
    key: bytes | None
    _evidence: Callable[[str], bool] | None
    _sources: tuple[Any, Mapping[str, Any], Mapping[str, Any], Revisions]
    _clock: Callable[[], int]
    _lock: threading.Lock
    _sessions: dict[str, Session]
    _latest: int = 0

    def state(self, chain: str) -> State | None:
        """Return what a chain's entries say now; None if there is no such chain. For looking only."""
        a_chain(chain, "chain")
        return Folds(self.ledger, self.key).get(chain)

    def append_to(self, chain: str, *records: Record) -> None:
        """Append to a chain, such as a holder's, as its owner.

        A session of this runtime that owns it keeps it, and derives again at its next append.

        Raises:
            SessionLockedError: another live writer has it.
            InvalidInputError: the chain is no id of one, or there is no record.
        """
        a_chain(chain, "chain")
        records_of(records)
        with self._lock:
            owner = self._sessions.get(chain)
        if owner is not None:
            self._append_as(owner._writer, chain, records)
            return
        with self._locked(chain) as (writer, _), writer:
            self._append_as(writer, chain, records)

    def _append_as(self, writer: Writer, chain: str, records: Sequence[Record]) -> None:
        folds = Folds(self.ledger, self.key)
        for _ in range(TRIES):
            folds.refresh()
            state, head = folds.get(chain), folds.head(chain)
            at = self._now(state.at if state is not None else 0)
            given = _with_opening(chain, head, records)
            entries = chain_entries(chain, head, given, at=at, token=writer.token, key=self.key)
            check_entries(entries)
            try:
                self.ledger.append(chain, entries, expect=head, writer=writer)
            except StaleWriterError as error:
                if not error.owner:
                    raise
                continue
            return
        raise StaleWriterError(chain, None, None, owner=True)

    def _post(self, chain: str, record: Record) -> None:
        a_chain(chain, "chain")
        folds = Folds(self.ledger, self.key)
        folds.get(chain)  # most of it is read before the storage's transaction

        def make(head: Head | None) -> tuple[Stored, ...]:
            folds.refresh()
            state = folds.get(chain)
            at = self._now(state.at if state is not None else 0)
            entries = chain_entries(chain, head, _with_opening(chain, head, [record]), at=at, key=self.key, posted=True)
            check_entries(entries)
            return entries

        self.ledger.post(chain, make)

    def _now(self, latest: int) -> int:
        """Return the time, never before ``latest``, the latest in a ledger, nor before one that was returned."""
        with self._lock:
            self._latest = max(self._latest, self._clock(), latest)
            return self._latest

    def _open_session(self, id: str, holder: str | None, limits: Limits | None) -> Session:  # noqa: A002
        opening = {
            "holder": holder if holder is not None else id,
            "kind": "session",
            "limits": limits.to_json() if limits is not None else None,
            "root": id,
        }
        with self._locked(id) as (writer, known):
            if known is not None and known.opening is not None and known.opening.kind != "holder":
                if holder is not None and known.opening.holder != holder:
                    raise InvalidInputError(f"session {id!r}", f"holder {known.opening.holder!r}", holder)
                if limits is not None and known.opening.root != id:
                    raise InvalidInputError(f"session {id!r}", f"limits at its root {known.opening.root!r}", limits)
            session = self._resume(id, opening, writer)
        try:
            if limits is not None and limits != session._live.state.limits:
                session._append(Record("limits", {"limits": limits.to_json()}))
        except BaseException:
            session.close()
            raise
        return session

    def _open_child(self, parent: Session, id: str, want: list[str] | None, writer: Writer) -> Session:  # noqa: A002
        known = self.state(id)
        if known is not None and known.opening is not None and known.opening.kind != "holder":
            above = known.opening.parent
            if above != parent.id:
                raise InvalidInputError(f"session {id!r}", f"a child of {parent.id!r}", f"one of {above!r}")
        opening = {"holder": id, "kind": "child", "parent": parent.id, "root": parent._root(), "want": want}
        first: dict[str, Any] = {"at": None, "by": "launch", "call": None, "definitions": {}, "on": want}
        return self._resume(id, opening, writer, [Record("load", first)] if want else [])

    def _open_fork(
        self,
        origin: Session,
        id: str,  # noqa: A002
        at: str | None,
        taken: list[Load],
        writer: Writer,
    ) -> Session:
        state, head = origin._live.state, origin._live.folds.head(origin.id)
        if head is None or state.opening is None:
            raise InvalidInputError(f"session {origin.id!r}", "a session with a readable opening", "none")
        launch = state.opening.launch
        opening = {
            "holder": state.opening.holder,
            "kind": "fork",
            "origin": [origin.id, at, head.sequence, head.digest],
            "parent": state.opening.parent,
            "retired": sorted(state.retired),
            "root": state.opening.root,
            "sources": sorted(([name, high] for name, high in state.sources.items()), key=lambda pair: str(pair[0])),
            "want": list(launch) if launch is not None else None,
        }
        loads = [
            Record(
                str(e.do),
                {"at": e.at, "by": "fork", "call": e.call, "definitions": dict(e.definitions), "on": list(e.on)},
            )
            for e in taken
        ]
        graph = [Record("decisions", {"graph": state.decisions.to_json()})] if state.decisions != Graph() else []
        return self._resume(id, opening, writer, [*loads, *graph], previous=origin.receipt)

    @contextmanager
    def _locked(self, id: str) -> Iterator[tuple[Writer, State | None]]:  # noqa: A002
        """Give the right to write a chain, to be kept by a session that is opened within; and its state.

        It is given back if anything fails. What is found out about an id holds only while nobody else can begin
        under it.
        """
        writer = self.ledger.lock(id)
        try:
            known = self.state(id)
            if known is not None and known.token >= writer.token:  # somebody set back what the storage remembers
                writer.close()
                writer = self.ledger.lock(id, above=known.token)
                known = self.state(id)
            yield writer, known
        except BaseException:
            writer.close()
            raise

    @contextmanager
    def _unused(self, id: str, place: str, session: Session) -> Iterator[Writer]:  # noqa: A002
        """Give the right to write a chain that is nobody's yet. Raises InvalidInputError if it is somebody's."""
        _check_unused(self.state(id), id, place, session)  # of two errors this one says more
        with self._locked(id) as (writer, known):
            _check_unused(known, id, place, session)
            yield writer

    def _resume(
        self,
        id: str,  # noqa: A002
        opening: Mapping[str, Any],
        writer: Writer,
        first: Iterable[Record] = (),
        *,
        previous: Receipt | None = None,
    ) -> Session:
        repaired = self.ledger.repair(id, writer=writer)
        verdict = verify(self.ledger, id, self.key)
        folds = Folds(self.ledger, self.key)
        state = folds.get(id)
        _check_alive(id, state)
        _check_own(id, state, opening)
        if state is None or (state.opening is not None and state.opening.kind == "holder"):
            self._check_holder(id, opening)
            opened = {**opening, "log": secrets.token_hex(16)}
            self._append_as(writer, id, [Record(OPENED, opened), *first])
            folds.refresh()
            state = folds.get(id)
        kind = state.opening.kind if state is not None and state.opening is not None else "session"
        fresh = _FIRST[kind] if state is None or state.receipt is None else Cause.REOPEN
        damage = ("tail",) * (repaired is not None) + ("hole",) * (state is not None and state.read_only)
        live = Live(id, folds, Sources(*self._sources), self._now, self._jobs)
        session = Session(cast("Runtime", self), live, writer, fresh=fresh, damage=damage)
        session._audit = verdict.outcome.value
        session._previous = self._last(state, session) or previous or self._origin(state, session)
        with self._lock:
            self._sessions[id] = session
        return session

    def _check_holder(self, id: str, opening: Mapping[str, Any]) -> None:  # noqa: A002
        """Refuse a session for a holder of which another session's chain bears the name."""
        holder = opening["holder"]
        known = self.state(holder) if opening["kind"] == "session" and holder != id else None
        if known is None or known.opening is None:
            return
        if known.opening.holder != holder or known.opening.parent is not None:
            raise InvalidInputError(
                f"holder of session {id!r}", "one whose name no other session's chain bears", holder
            )

    def _last(self, state: State | None, session: Session) -> Receipt | None:
        """Return the last receipt; a bad one lowers the audit outcome and never bricks the session."""
        if state is None or state.receipt is None:
            return None
        try:
            return Receipt.from_bytes(canonical(state.receipt[1]), lambda digest: read_blob(self.ledger, digest))
        except (MalformedError, InvalidInputError) as error:
            session._audit = f"{Outcome.BROKEN.value}: {error}"
            return None

    def _origin(self, state: State | None, session: Session) -> Receipt | None:
        """Return what a fork's first receipt compares with, if that was not written yet: the origin's at the fork."""
        seen = {session.id}
        while state is not None and state.opening is not None and state.opening.origin is not None:
            chain, _, sequence, _ = state.opening.origin
            if chain in seen:
                return None
            seen.add(chain)
            state = State(chain)
            for entry in load(self.ledger, chain, self.key).entries:
                if entry.sequence <= sequence:
                    state.apply(entry)
            if state.receipt is not None:
                return self._last(state, session)
        return None

    def _jobs(self, chain: str) -> tuple[int, frozenset[str]] | None:
        with self._lock:
            session = self._sessions.get(chain)
        if session is None or session._writer.closed:
            return None
        return session._writer.token, frozenset().union(*tuple(session._jobs.values()))

    def _forget(self, session: Session) -> None:
        with self._lock:
            if self._sessions.get(session.id) is session:
                del self._sessions[session.id]


def _check_alive(id_: str, state: State | None) -> None:
    if state is not None and state.ended:
        raise SessionClosedError(f"session {id_!r} was ended")


def _check_unused(state: State | None, id_: str, place: str, session: Session) -> None:
    if state is not None and (not _only_posts(state) or state.ended):
        raise InvalidInputError(place, "an unused id", id_)
    if any(other.opening is not None and other.opening.holder == id_ for other in session._live.line()):
        raise InvalidInputError(place, "an unused id, not that of a holder", id_)


def _only_posts(state: State) -> bool:
    """Whether a chain is no session's yet, and holds only what takes away."""
    return state.opening is not None and state.opening.kind == "holder" and not state.written


def _check_own(id_: str, state: State | None, opening: Mapping[str, Any]) -> None:
    """Refuse to open as a child, a fork, or for another holder what is a holder's chain already.

    Posts alone make no holder: a child may be denied before it begins.
    """
    if state is None or state.opening is None or state.opening.kind != "holder" or _only_posts(state):
        return
    if opening["kind"] != "session" or opening["holder"] != id_:
        raise InvalidInputError(f"session {id_!r}", "an unused id", "that of a holder")


def _with_opening(chain: str, head: Head | None, records: Sequence[Record]) -> list[Record]:
    """Return ``records``, behind the opening of a holder's chain if there is none and they do not open one."""
    if head is not None or records[0].kind == OPENED:
        return list(records)
    opening = {"holder": chain, "kind": "holder", "log": secrets.token_hex(16), "root": chain}
    return [Record(OPENED, opening), *records]
