"""The stateful side: a :class:`Runtime` holds the ledger and the host's sources, a :class:`Session` one agent's state.

Nothing here is a second agent runtime: no scheduler, no HTTP, no prompt. The host calls ``reproject`` at every
boundary and puts each call through ``guard``. In the order in which they build on each other:

``facts``, ``acts``, ``state`` (what entries say) · ``sources`` (what the host says) · ``live`` (both, read now) ·
``pool``, ``verdict``, ``guard`` (one call) · ``wire`` (one body) · ``owned``, ``deciding``, ``wishes``,
``gated``, ``recovering``, ``returning``, ``given``, ``session`` · ``opening``.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from capstate.authority import Effect, Grant, Limits, deny
from capstate.effects import Operation
from capstate.errors import InvalidInputError
from capstate.ledger import Ledger, Record, check_key
from capstate.runtime.arguments import a_chain, a_function, a_ledger, a_person, an_id, functions
from capstate.runtime.guard import Gate, Permit
from capstate.runtime.opening import Opener
from capstate.runtime.session import Session
from capstate.runtime.sources import CatalogSource, CeilingSource, GrantSource, Revisions, Rules
from capstate.runtime.state import State

__all__ = ["Gate", "Operation", "Permit", "Rules", "Runtime", "Session", "State", "open_ledger"]

_SOURCE_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_OURS = frozenset({"granted", "want", "pool", "launch", "ended", "restrictions", "parent", "ceiling"})
"""Names that receipts and refusals use for something else than a source."""


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


class Runtime(Opener):
    """The ledger, what exists, and who may: read anew at every epoch and at every call.

    Args:
        ledger: path of a SQLite file, or any :class:`~capstate.ledger.Ledger`.
        catalog: returns the groups that exist now.
        grants: sources by name; each returns what it grants to a holder.
        ceilings: sources by name that only cut.
        evidence: whether an artefact can be looked up now, by its id. With it, whatever cites evidence (an outcome, a
            decision, an observation, a reconciliation) must cite what is there, and children's claims are checked by
            it.
        key: 32 bytes; seals every entry, and entries without a valid seal count only where they take away.
        clock: milliseconds since the epoch.

    Raises:
        LedgerUnavailableError: the ledger cannot be opened.
        InvalidInputError: an argument is of another kind, a source is asynchronous, or the key is not 32 bytes.
    """

    def __init__(
        self,
        ledger: str | os.PathLike[str] | Ledger,
        *,
        catalog: CatalogSource,
        grants: Mapping[str, GrantSource] | None = None,
        ceilings: Mapping[str, CeilingSource] | None = None,
        evidence: Callable[[str], bool] | None = None,
        key: bytes | None = None,
        clock: Callable[[], int] = _milliseconds,
    ) -> None:
        check_key(key)
        a_function(catalog, "catalog")
        a_function(clock, "clock")
        if evidence is not None:
            a_function(evidence, "evidence")
        adding, cutting = functions(grants, "grants"), functions(ceilings, "ceilings")
        for place, named in (("grants", adding), ("ceilings", cutting)):
            for name in named:
                _check_name(place, name)
        self._opened = isinstance(ledger, (str, os.PathLike))
        self.ledger = open_ledger(ledger)
        self.key = key
        self._evidence = evidence
        self._sources = (catalog, adding, cutting, Revisions())
        self._clock = _checked(clock)
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def session(self, id: str, *, holder: str | None = None, limits: Limits | None = None) -> Session:  # noqa: A002 - the word of the design
        """Open a session, new or resumed, as its sole writer.

        Args:
            holder: the principal that it acts for; by default itself. A resumed session keeps its own.
            limits: of the whole tree; used ones are kept when they change.

        Raises:
            SessionLockedError: another live writer has it.
            SessionClosedError: it was ended.
            InvalidInputError: it was opened for another holder, is a child or fork with limits of its own, or an
                argument is of another kind.
        """
        a_chain(id, "session id")
        if holder is not None:
            a_chain(holder, "holder")
        if limits is not None and not isinstance(limits, Limits):
            raise InvalidInputError("limits", "Limits, or None", limits)
        return self._open_session(id, holder, limits)

    def deny(self, chain: str, on: str, *, by: str) -> Grant:
        """Deny tools to a session or a holder, whoever owns it; its owner sees it at the next call.

        Its owner can take it back: :meth:`Session.revoke`. The chain need not exist: a deny may come first.

        Raises:
            InvalidInputError: an argument is of another kind.
        """
        a_chain(chain, "chain")
        grant = Grant(on, deny(on).effect, giver=a_person(by))
        self._post(chain, Record("grant", grant.to_json()))
        return grant

    def revoke(self, chain: str, id: str, *, by: str) -> None:  # noqa: A002 - the word of the design
        """Take back an allow from a session or a holder, whoever owns it.

        Raises:
            InvalidInputError: the chain has no allow of that id. A deny or ask only its owner can take back.
        """
        a_person(by)
        state = self.state(chain)
        if state is None or not any(g.id == id and g.effect is Effect.ALLOW for g in state.grants.values()):
            raise InvalidInputError("grant id", f"an allow that {chain!r} holds", id)
        self._post(chain, Record("revoke", {"by": by, "id": an_id(id, "grant id")}))

    def end(self, session: str, *, by: str) -> None:
        """End a session, whoever owns it: it, and its children, may do nothing any more.

        Raises:
            InvalidInputError: there is no session of that id.
        """
        a_person(by)
        state = self.state(a_chain(session, "session id"))
        if state is None or (state.opening is not None and state.opening.kind == "holder"):
            raise InvalidInputError("session id", "a session of this ledger", session)
        self._post(session, Record("ended", {"by": by}))

    def close(self) -> None:
        """Let go of a ledger that was opened by its path; one that was given stays open. Close sessions first."""
        if self._opened:
            self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_name(place: str, name: object) -> None:
    if not isinstance(name, str) or name in _OURS or not _SOURCE_NAME.fullmatch(name):
        raise InvalidInputError(place, "names of letters, digits, '_', '.' and '-', none of ours", name)


def _checked(clock: Callable[[], int]) -> Callable[[], int]:
    """Return ``clock``, refused where it returns something else: its time would stand in an entry."""

    def now() -> int:
        time = clock()
        if type(time) is not int or not 0 <= time < 2**53:
            raise InvalidInputError("clock", "a whole number of milliseconds since the epoch", time)
        return time

    return now


def _encodes(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def open_ledger(ledger: str | os.PathLike[str] | Ledger, *, read_only: bool = False) -> Ledger:
    """Return the ledger that a path or URL names, or ``ledger`` itself.

    Raises:
        InvalidInputError: neither, or a URL of a storage that this version does not have.
        LedgerUnavailableError: it cannot be opened.
    """
    if not isinstance(ledger, (str, os.PathLike)):
        return a_ledger(ledger)
    text: object = os.fspath(ledger)
    if not isinstance(text, str) or not text or "\0" in text or not _encodes(text):
        raise InvalidInputError("ledger", "a path of a SQLite file, or a Ledger", ascii(text))
    if "://" in text:
        raise InvalidInputError("ledger", "a path of a SQLite file, or a Ledger", text.partition("://")[0] + "://...")
    from capstate.ledgers.sqlite import SQLiteLedger  # noqa: PLC0415 - who uses another ledger loads no sqlite3

    return SQLiteLedger(Path(text), read_only=read_only)
