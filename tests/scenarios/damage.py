"""Stored sessions of the cases: the same story in the product's own ledger, damaged in the same way.

The lines of a case are a stand-in for stored records. Each becomes one entry, made through the public API; what is
torn, zeroed or missing there is torn, zeroed or removed here, on disk.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve

from capstate.errors import StaleWriterError
from capstate.ledger import Head, Ledger, Record, Writer, chain_entries
from capstate.ledgers.memory import MemoryLedger
from capstate.ledgers.sqlite import SQLiteLedger
from tests.scenarios.hosts import HostError

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage
    from tests.scenarios.states import State

Row = tuple[int, str]
"""Sequence number and digest of an entry."""


class Journal:
    """The case's records of one session, and where each stands in the ledger."""

    def __init__(self) -> None:
        self.used = False
        self.chain = "main"
        self.records: dict[int, Row] = {}
        """By the case's number of the record, the entry that it became."""
        self.spoilt: set[int] = set()
        self.seen = False
        """Whether damage was reported."""
        self.tokens: dict[str, tuple[Head, int]] = {}
        """By process, the head that it left and its fencing token."""

    # ---- building

    def build(self, story: Stage, lines: list[str]) -> None:
        """Write the story of ``lines`` and damage it."""
        self.used = True
        parsed = [_parsed(line) for line in lines]
        opening = next((r for r in parsed if r is not None and r.get("kind") == "session"), None)
        self.chain = opening["id"] if opening is not None else "main"
        host = story.host("builder")
        host.call("open", session=self.chain)
        torn, zeroed, missing = None, [], []
        n = 0
        for place, (line, record) in enumerate(zip(lines, parsed, strict=True)):
            number = record["n"] if record is not None and "n" in record else n + 1
            for gap in range(n + 1, number):
                self._write(story, host, gap, {"kind": "message", "id": f"gap {gap}"})
                missing.append(gap)
            n = number
            if record is not None:
                self._write(story, host, n, record)
                continue
            self._write(story, host, n, _fragment(line, story))
            if place == len(lines) - 1 and "\0" not in line:
                torn = n
            else:
                zeroed.append(n)
        host.quit()
        for number in zeroed:
            _spoil(story, self.chain, self.records[number][0], b"\0")
        for number in missing:
            _spoil(story, self.chain, self.records[number][0], None)
        if torn is not None:
            _spoil(story, self.chain, self.records[torn][0], b"")
        self.spoilt = {*zeroed, *missing, *([torn] if torn is not None else [])}

    def _write(self, story: Stage, host: Any, number: int, record: Mapping[str, Any]) -> None:
        kind = record.get("kind")
        if kind in ("loaded", "unloaded"):
            command = {"loaded": "load", "unloaded": "unload"}[kind]
            more = {"by": "configuration"} if kind == "loaded" else {}
            host.call(command, session=self.chain, on=record["groups"], at=None, **more)
        elif kind in ("grant", "granted", "denied", "deny"):
            effect = record.get("effect", "deny" if kind in ("denied", "deny") else "allow")
            host.call("grant", session=self.chain, on=record["on"], effect=effect, pin=bool(record.get("pin")),
                      lifetime=record.get("lifetime", "persistent"), id=record.get("id", ""))  # fmt: skip
        elif kind != "session":
            host.call("note", session=self.chain, body={"record": dict(record)})
        last = host.call("chain", chain=self.chain)["entries"][-1]
        self.records[number] = last[0], last[1]
        if kind in ("loaded", "unloaded"):
            story.loads.append((self.chain, "load" if kind == "loaded" else "unload", record["groups"], None))

    # ---- processes

    def open(self, story: Stage, session: str, process: str) -> None:
        """Open the session in a process; what it was open in before stays what it is."""
        self.used, self.chain = True, session
        story.open(session, process, limits=False)

    def append(self, story: Stage, process: str, record: Mapping[str, Any]) -> None:
        """Write a record in a process; one that is dead had its write queued."""
        number = max(self.records, default=0) + 1
        if self.spoilt and number - 1 in self.spoilt and number - 1 == max(self.records):
            number -= 1  # a torn tail was cut off: the next record takes its place
        host = story.hosts[process]
        if not host.alive:
            self._zombie(story, process, record)
            return
        try:
            self._write(story, host, number, record)
        except HostError as error:
            if error.name != "ProcessFrozen":
                raise
            return
        self.spoilt.discard(number)

    def _zombie(self, story: Stage, process: str, record: Mapping[str, Any]) -> None:
        """The write that was queued when the process died, with its head and its fencing token."""
        head, token = self.tokens[process]
        ledger: Ledger = MemoryLedger(story.memory) if story.memory is not None else SQLiteLedger(story.database)
        try:
            late = Record("note", {"record": dict(record)})
            entries = chain_entries(self.chain, head, [late], at=0, token=token)
            ledger.append(self.chain, entries, expect=head, writer=Writer(self.chain, token, lambda: None))
        except StaleWriterError as error:
            raise HostError("StaleWriterError", str(error)) from error
        finally:
            ledger.close()

    # ---- looking

    def look(self, told: Mapping[str, Any], state: State) -> dict[str, Any]:
        """Return what of the case's records is in the chain now, and what damage this event reported."""
        event = state.event
        entries = told["entries"]
        process = event.get("process")
        if process is not None and event["op"] in ("open_writer", "append") and state.error is None:
            written = [e for e in entries if e[3]]
            self.tokens[process] = Head(entries[-1][0], entries[-1][1]), written[-1][3]
        there = {(e[0], e[1]) for e in entries}
        readable = [n for n, row in self.records.items() if row in there and n not in self.spoilt]
        kinds = {k for r in state.receipts.get(self.chain, ()) for k in r["kinds"]}
        damaged = next((k for k in ("tail", "hole") if f"recovered_{k}" in kinds), None)
        damaged = damaged or next((d[0] for d in told["damage"]), None)
        sequences = [e[0] for e in entries]
        spans = [range(d[1], d[2] + 1) for d in told["damage"]]
        lines = sorted(n for n, row in self.records.items() if n in self.spoilt or any(row[0] in s for s in spans))
        return {
            "readable_records": len(readable),
            "readable": sorted(readable),
            "damaged": damaged,
            "damage": told["damage"],
            "reported": sorted(kinds & {"recovered_tail", "recovered_hole"}),
            "line": lines[0] if lines else None,
            "sequence": "contiguous" if sequences == list(range(len(sequences))) and not told["damage"] else "gap",
            "ids": [e[4]["record"].get("id") for e in entries if e[4] is not None and "record" in e[4]],
        }


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _fragment(line: str, story: Stage) -> dict[str, Any]:
    """Return what a broken line was about to say."""
    begun = re.search(r'"groups":\["([^"]*)', line)
    found = [g["id"] for g in story.world["groups"] if begun is not None and g["id"].startswith(begun[1])]
    return {"kind": "loaded", "groups": found[:1]} if found else {"kind": "message", "id": "lost"}


def _spoil(story: Stage, chain: str, sequence: int, how: bytes | None) -> None:
    """Overwrite one stored row with zero bytes, cut it in half (empty bytes), or remove it (None)."""
    if story.memory is not None:
        rows = story.memory._storage.rows[chain]
        place = next(n for n, row in enumerate(rows) if row.sequence == sequence)
        if how is None:
            del rows[place]
        else:
            rows[place] = evolve(rows[place], stored=_spoilt(rows[place].stored, how))
        return
    with sqlite3.connect(story.database) as db:
        if how is None:
            db.execute("DELETE FROM entries WHERE chain = ? AND sequence = ?", (chain, sequence))
        else:
            stored = db.execute(
                "SELECT stored FROM entries WHERE chain = ? AND sequence = ?", (chain, sequence)
            ).fetchone()[0]
            db.execute(
                "UPDATE entries SET stored = ? WHERE chain = ? AND sequence = ?",
                (_spoilt(stored, how), chain, sequence),
            )
    db.close()


def _spoilt(stored: bytes, how: bytes) -> bytes:
    return how * len(stored) if how else stored[: len(stored) // 2]
