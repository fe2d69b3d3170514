"""The guard of a read-only call, and the receipt made durable: what they cost against a floor of the same run.

Functions of the host are excluded by being as cheap as can be: each returns a list that it holds.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.timing import Figure, Prepared, medians
from capstate.authority import allow
from capstate.capabilities import Group, Tool
from capstate.ledger import Record
from capstate.ledgers.sqlite import SQLiteLedger
from capstate.runtime import Runtime, Session
from capstate.trace import Call

SIZES = ((100, 1), (100, 100), (10_000, 100), (100_000, 100), (100_000, 1))
"""(tools, groups)."""
LEVELS = 3
CALL = Call("c", "g0__t0")
INNER = 500


class Bench:
    """One runtime over a SQLite file, closed at the end."""

    def __init__(self, tools: int, groups: int) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="guard-")
        listed = [Group(f"g{g}", [Tool(f"t{n}", effect="read") for n in range(tools // groups)]) for g in range(groups)]
        rules = [allow("*")]
        self.ledger = SQLiteLedger(Path(self.folder.name) / "agent.db")
        self.runtime = Runtime(
            self.ledger,
            catalog=lambda: listed,
            grants={"config": lambda _: rules},
            ceilings={"trust": lambda _: "allow"},
        )
        self.sessions = [self.runtime.session("s")]
        self.sessions[0].load("*", by="configuration")
        self.sessions[0].reproject()

    def child(self) -> Session:
        """Add one more level below the last."""
        self.sessions.append(self.sessions[-1].spawn(f"k{len(self.sessions)}", want=["*"]))
        self.sessions[-1].reproject()
        return self.sessions[-1]

    def close(self) -> None:
        """Close everything, and remove the file."""
        for session in self.sessions:
            session.close()
        self.ledger.close()
        self.folder.cleanup()


def one(session: Session) -> Prepared:
    """A read-only call through the guard, settled."""

    def run(_: None) -> None:
        with session.guard(CALL) as permit:
            permit.settle()

    run(None)
    return (lambda: None), run


def head(ledger: SQLiteLedger) -> Prepared:
    """The floor: what it costs to ask SQLite whether anything changed."""
    return (lambda: None), lambda _: ledger.revision()


def guard() -> list[Figure]:
    """Return what a read-only call costs, by the size of the catalog and by the depth of the line."""
    benches = {size: Bench(*size) for size in SIZES}
    deep = Bench(1_000, 100)
    try:
        work = {f"{tools} tools in {groups} groups": one(b.sessions[0]) for (tools, groups), b in benches.items()}
        first = next(iter(work))
        work["child level 0"] = one(deep.sessions[0])
        for level in range(1, LEVELS + 1):
            work[f"child level {level}"] = one(deep.child())
        work["head"] = head(benches[SIZES[0]].ledger)
        found = medians(work, repeats=15, inner=INNER)
    finally:
        for bench in (*benches.values(), deep):
            bench.close()
    floor = found["head"]
    figures = [
        Figure(f"guard, {name}", seconds, "reading the head", floor, detail={"us": seconds * 1e6})
        for name, seconds in found.items()
        if name != "head" and not name.startswith("child")
    ]
    largest = f"{SIZES[-1][0]} tools in {SIZES[-1][1]} groups"
    figures.append(Figure("guard, 100,000 tools", found[largest], "the guard of 100 tools", found[first], limit=1.5))
    worst = max(found[n] for n in found if n != "head" and not n.startswith("child"))
    figures.append(Figure("guard, slowest catalog", worst, "20 us", 20e-6, limit=1.0))
    per_level = (found[f"child level {LEVELS}"] - found["child level 0"]) / LEVELS
    figures.append(Figure("guard, one more child level", per_level, "10 us", 10e-6, limit=1.0))
    return figures


def bare(path: Path) -> tuple[sqlite3.Connection, Callable[[bytes], object]]:
    """The floor of durability: SQLite alone, one row of these bytes, one commit that reaches the disk."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE bare (sequence INTEGER PRIMARY KEY, stored BLOB NOT NULL)")
    return db, lambda stored: db.execute("INSERT INTO bare (stored) VALUES (?)", (stored,))


def receipt() -> list[Figure]:
    """Return what it costs to make a receipt durable, and the whole boundary, against a bare commit of its bytes."""
    bench = Bench(1_000, 100)
    db, commit = bare(Path(bench.folder.name) / "bare.db")
    try:
        session = bench.sessions[0]
        epoch = session.reproject("compaction")
        record = Record("epoch", {"digest": epoch.receipt.digest, "receipt": dict(epoch.receipt.body)})
        written = list(bench.ledger.read("s"))[-1].stored
        work: dict[str, Prepared] = {
            "append": ((lambda: None), lambda _: session._append(record, blobs=epoch.blobs)),  # noqa: SLF001 - this step alone
            "boundary": ((lambda: None), lambda _: session.reproject("compaction")),
            "bare": ((lambda: written), commit),
        }
        found = medians(work, repeats=101)
    finally:
        db.close()
        bench.close()
    detail, floor = {"bytes": float(len(written))}, "SQLite alone committing its bytes"
    return [
        Figure("a receipt made durable", found["append"], floor, found["bare"], 2.0, detail),
        Figure("a boundary of 1,000 tools in 100 groups, receipt durable", found["boundary"], floor, found["bare"]),
    ]


BENCHMARKS = {"guard": guard, "durable receipt": receipt}
