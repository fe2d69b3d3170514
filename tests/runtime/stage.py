"""A runtime whose world the test changes under it: what exists, who may, what time it is, and what the file holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from capstate.authority import Grant, Limits
from capstate.capabilities import Group, Tool
from capstate.errors import NeedsApproval, Reason, Refused
from capstate.ledger import Entry, Head, Ledger, Record, Stored, chain_entries, load
from capstate.ledgers.memory import MemoryLedger
from capstate.runtime import Permit, Runtime, Session
from capstate.trace import Call

KEY = bytes(range(32))


def tools(**more: Tool) -> list[Tool]:
    """Return the tools of the group ``git``; keyword arguments replace one or add one."""
    made = {"log": Tool("log", effect="read"), "push": Tool("push"), "sync": Tool("sync", idempotent=True), **more}
    return list(made.values())


class Stage:
    """Everything that a runtime reads, as plain attributes."""

    def __init__(self, ledger: Ledger | Path | None = None, *, key: bytes | None = None) -> None:
        self.ledger: Ledger | Path = ledger if ledger is not None else MemoryLedger()
        self.key = key
        self.time = 1_000
        self.groups: list[Group] = [Group("git", tools())]
        self.grants: dict[str, list[Grant | str]] = {}
        """By holder; holders that nobody names get ``default``."""
        self.default: list[Grant | str] = ["git/*"]
        self.sources: dict[str, Callable[[str], Any]] = {"config": lambda holder: self.grants.get(holder, self.default)}
        self.ceilings: dict[str, Callable[[str], Any]] = {}

    def runtime(self, ledger: Any = None, **more: Any) -> Runtime:
        """Start a runtime, as a process of its own would."""
        given: dict[str, Any] = {"grants": self.sources, "ceilings": self.ceilings, "key": self.key, **more}
        return Runtime(ledger or self.handle(), catalog=lambda: self.groups, clock=lambda: self.time, **given)

    def handle(self) -> Ledger | Path:
        """Return the storage as another process would see it."""
        return MemoryLedger(self.ledger) if isinstance(self.ledger, MemoryLedger) else self.ledger

    def session(self, id_: str = "s", *, on: str | tuple[str, ...] = "git", **more: Any) -> Session:
        """Open a session of a new runtime, loaded."""
        session = self.runtime().session(id_, **more)
        session.load(on, by="configuration")
        return session


def crash(session: Session) -> None:
    """End a session as a killed process would: nothing is written, the kernel takes its locks."""
    session._runtime.ledger.close()


def call(name: str, id_: str = "c1", occurrence: int = 0, /, **arguments: Any) -> Call:
    return Call(id_, name, arguments, occurrence)


def run(session: Session, made: Call | str, **more: Any) -> Permit:
    """Put a call through the guard, and settle it."""
    with session.guard(made if isinstance(made, Call) else call(made), **more) as permit:
        permit.settle("done")
    return permit


def started(session: Session, made: Call | str, **more: Any) -> Permit:
    """Start a call and leave it running."""
    return session.guard(made if isinstance(made, Call) else call(made), **more).__enter__()


def refused(session: Session, made: Call | str, **more: Any) -> Reason | None:
    """Return why a call is refused or waits; None if it ran."""
    try:
        run(session, made, **more)
    except (Refused, NeedsApproval) as no:
        return no.reason
    return None


def entries(stage: Stage | Ledger, chain: str = "s") -> tuple[Entry, ...]:
    return load(storage(stage), chain).entries


def kinds(stage: Stage | Ledger, chain: str = "s") -> list[str]:
    return [entry.kind for entry in entries(stage, chain)]


def storage(stage: Stage | Ledger) -> Any:
    found = stage.ledger if isinstance(stage, Stage) else stage
    if isinstance(found, Path):
        raise TypeError("look at a file with shell()")
    return found


def forge(
    stage: Stage | Ledger, kind: str, body: dict[str, Any], chain: str = "s", *, key: bytes | None = None
) -> None:
    """Append what somebody with a shell would: a well-formed entry on the right head, with a writer's token."""
    ledger = storage(stage)
    rows = ledger._storage.rows.setdefault(chain, [])
    head = rows[-1].head if rows else None
    rows += chain_entries(chain, head, [Record(kind, body)], at=2_000, token=1, key=key)
    ledger._storage.changes += 1


def spoil(stage: Stage | Ledger, chain: str, sequence: int, stored: bytes | None = None) -> None:
    """Damage one row of a chain: a hole, as a bad disk makes one."""
    ledger = storage(stage)
    row = ledger._storage.rows[chain][sequence]
    ledger._storage.rows[chain][sequence] = Stored(sequence, stored or b"\0" * len(row.stored), row.digest, row.seal)
    ledger._storage.changes += 1


def cut(stage: Stage | Ledger, chain: str, count: int) -> None:
    """Take the last rows of a chain away: a rollback."""
    ledger = storage(stage)
    del ledger._storage.rows[chain][-count:]
    ledger._storage.changes += 1


class Wrapped:
    """A ledger with one method replaced."""

    def __init__(self, inner: Ledger, **methods: Callable[..., Any]) -> None:
        self.inner = inner
        self.methods = methods

    def __getattr__(self, name: str) -> Any:
        return self.methods.get(name) or getattr(self.inner, name)


@contextmanager
def closing(*sessions: Session) -> Iterator[None]:
    try:
        yield
    finally:
        for session in sessions:
            session.close()


def head_of(session: Session) -> Head | None:
    return session._runtime.ledger.head(session.id)


__all__ = [
    "KEY", "Limits", "Reason", "Stage", "Wrapped", "call", "closing", "crash", "cut", "entries", "forge", "head_of",
    "kinds", "refused", "run", "spoil", "started", "storage", "tools",
]  # fmt: skip
