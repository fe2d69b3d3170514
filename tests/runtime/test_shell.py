"""An agent with a shell writes into the ledger itself, with correctly recomputed digests and links."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from capstate.authority import allow, ask, deny
from capstate.capabilities import Group, Tool
from capstate.errors import NeedsApproval, Reason, Refused
from capstate.ledger import Outcome, Record, Stored, chain_entries, decode, load, verify
from capstate.ledgers.sqlite import SQLiteLedger
from capstate.runtime import Runtime, Session
from capstate.trace import Call

KEY = bytes(range(1, 33))
GROUPS = [Group("git", [Tool("log", effect="read"), Tool("push"), Tool("sync")])]
PUSH = GROUPS[0].definitions["push"]


def runtime(path: Path, key: bytes | None = KEY) -> Runtime:
    rules = [
        allow("git/log"),
        ask("git/sync"),
        allow("git/sync"),
        allow("git/*", pin=True, id="pinned"),
        deny("git/push"),
    ]
    return Runtime(path, catalog=lambda: GROUPS, grants={"config": lambda _: rules[:3]}, key=key)


def reason(session: Session, tool: str, id_: str = "c1") -> Reason | None:
    try:
        with session.guard(Call(id_, tool)) as permit:
            permit.settle()
    except (Refused, NeedsApproval) as no:
        return no.reason
    return None


class Shell:
    """What anybody can do who can write the file: read rows, write rows, compute digests; no key."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sql(self, text: str, *values: Any) -> list[Any]:
        db = sqlite3.connect(self.path)
        try:
            found = db.execute(text, values).fetchall()
            db.commit()
            return found
        finally:
            db.close()

    def rows(self, chain: str = "s") -> list[Stored]:
        found = self.sql("SELECT sequence, stored, digest, seal FROM entries WHERE chain = ? ORDER BY sequence", chain)
        return [Stored(*row) for row in found]

    def write(self, chain: str, rows: list[Stored] | tuple[Stored, ...]) -> None:
        for row in rows:
            values = (chain, row.sequence, bytes(row.stored), row.digest, row.seal)
            self.sql(
                "INSERT OR REPLACE INTO entries (chain, sequence, stored, digest, seal) VALUES (?, ?, ?, ?, ?)", *values
            )

    def append(self, kind: str, body: dict[str, Any], chain: str = "s", *, posted: bool = False) -> None:
        rows = self.rows(chain)
        head = rows[-1].head if rows else None
        made = chain_entries(chain, head, [Record(kind, body)], at=1, token=0 if posted else 1, posted=posted)
        seal = next((row.seal for row in reversed(rows) if row.seal), None)
        self.write(chain, [Stored(e.sequence, e.stored, e.digest, seal) for e in made])

    def rewrite(self, change: Any, chain: str = "s") -> None:
        """Change every body as it likes, and chain all entries again from the first."""
        entries = [decode(row, chain) for row in self.rows(chain)]
        made: list[Stored] = []
        for entry in entries:
            head = made[-1].head if made else None
            record = Record(entry.kind, change(entry.kind, dict(entry.body)))
            more: Any = {"at": entry.at, "token": entry.token, "posted": entry.posted}
            made += [
                Stored(e.sequence, e.stored, e.digest, old.seal)
                for e, old in zip(chain_entries(chain, head, [record], **more), [entry], strict=True)
            ]
        self.write(chain, made)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


def begun(path: Path, key: bytes | None = KEY) -> None:
    with runtime(path, key) as one, one.session("s") as session:
        session.load("git", by="configuration")
        session.reproject()
        session.grant("git/sync", by="ann", effect="deny", id="no-sync")
        session.grant("git/log", by="ann", id="log")


def approval(tool: str) -> dict[str, Any]:
    call = Call("c1", tool)
    definition = GROUPS[0].definitions[tool.partition("/")[2]]
    return {
        "arguments": call.digest,
        "by": "ann",
        "call": "c1",
        "definition": definition.fingerprint,
        "occurrence": 0,
        "reached": [],
        "seen": 99,
        "tool": tool,
    }


GAINS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "an allow": [("grant", {"effect": "allow", "id": "x", "on": "*"})],
    "an ask where nothing is allowed": [
        ("grant", {"effect": "ask", "id": "x", "on": "git/push"}),
        ("approved", approval("git/push")),
    ],
    "a revoke of a deny": [("revoke", {"by": "ann", "id": "no-sync"})],
    "an allow under the id of a deny": [("grant", {"effect": "allow", "id": "no-sync", "on": "git/sync"})],
    "another deny under the id of a deny": [("grant", {"effect": "deny", "id": "no-sync", "on": "git/nothing"})],
    "an approval": [("revoke", {"by": "ann", "id": "no-sync"}), ("approved", approval("git/sync"))],
    "a job": [("grant", {"effect": "allow", "id": "x", "lifetime": "until", "on": "*", "token": 2, "until": "job"})],
    "a pin": [("pin", {"source": "config", "id": "pinned", "pin": [[PUSH.qualified, PUSH.fingerprint]]})],
    "an opening": [("opened", {"holder": "root", "kind": "session", "log": "l", "root": "s"})],
    "a retired source": [("retired", {"by": "ann", "name": "config"})],
    "an acceptance": [("accepted", {"by": "ann"}), ("grant", {"effect": "allow", "id": "x", "on": "*"})],
    "a receipt": [("epoch", {"digest": "x", "receipt": {"sources": [], "groups": []}})],
    "a reconciliation": [("reconciled", {"by": "ann", "id": "op", "outcome": "ok"})],
    "the end of the job that denies": [("job-ended", {"job": "no-sync"}), ("closed", {})],
}


@pytest.mark.parametrize("forged", GAINS.values(), ids=GAINS.keys())
@pytest.mark.parametrize("posted", [False, True], ids=["appended", "posted"])
@pytest.mark.parametrize("live", [False, True], ids=["closed", "open"])
def test_with_a_key_nothing_is_gained(path: Path, forged: list[Any], posted: bool, live: bool) -> None:
    """Whatever is appended with a right digest, link and somebody else's seal, in a closed or an open session."""
    begun(path)
    with runtime(path) as one:
        session = one.session("s") if live else None
        for kind, body in forged:
            Shell(path).append(kind, body, posted=posted)
        session = session or one.session("s")

        assert reason(session, "git/push") is Reason.NOT_AUTHORISED
        assert reason(session, "git/sync") is Reason.NOT_AUTHORISED
        session.close()
        outcome = verify(one.ledger, "s", KEY)
        assert outcome.outcome is Outcome.BROKEN or (posted and outcome.unsealed)


@pytest.mark.parametrize("forged", ["an allow", "a revoke of a deny", "an approval"])
def test_without_a_key_whoever_can_write_can_grant(path: Path, forged: str) -> None:
    """It is said so: the outcome is unanchored, and only a head kept elsewhere could show more."""
    begun(path, None)
    for kind, body in GAINS[forged]:
        Shell(path).append(kind, body)
    with runtime(path, None) as one, one.session("s") as session:
        gained = {tool for tool in ("git/push", "git/sync") if reason(session, tool) is not Reason.NOT_AUTHORISED}

        assert gained
        assert verify(one.ledger, "s").outcome is Outcome.INTACT_UNANCHORED


def test_a_settlement_is_none_of_theirs(path: Path) -> None:
    """A forged one leaves the operation unsettled, whether it is appended or written over the true end."""
    with runtime(path) as one:
        session = one.session("s")
        session.load("git", by="configuration")
        session.grant("git/sync", by="ann", pin=False)
        waiting = Call("c1", "git/sync")
        session.approve(waiting, by="ann")
        permit = session.guard(waiting).__enter__()
        for kind in ("settled", "reconciled"):
            Shell(path).append(kind, {"by": "x", "evidence": None, "id": permit.operation, "outcome": "ok", "used": {}})
        assert [op.settled for op in session.operations] == [False]
        session.accept_damage(by="ann")
        assert reason(session, "git/sync", "c2") is Reason.OUTCOME_UNKNOWN
        one.ledger.close()
    with runtime(path) as one, one.session("s") as session:
        assert reason(session, "git/sync", "c2") is Reason.OUTCOME_UNKNOWN


def test_a_start_does_not_hide_an_unsettled_operation(path: Path) -> None:
    """A forged start under its id, as a harmless read, is another operation."""
    with runtime(path) as one:
        session = one.session("s")
        session.load("git", by="configuration")
        session.approve(Call("c1", "git/sync"), by="ann")
        permit = session.guard(Call("c1", "git/sync")).__enter__()
        body = {
            "approval": None,
            "arguments": "x",
            "call": "c1",
            "cost": None,
            "effect": "read",
            "id": permit.operation,
        }
        Shell(path).append("started", {**body, "occurrence": 0, "tool": "git/log", "used": {}})
        session.accept_damage(by="ann")

        assert reason(session, "git/sync", "c2") is Reason.OUTCOME_UNKNOWN


def test_a_sealed_entry_works_at_its_place_alone(path: Path) -> None:
    """Neither a copy at the end, nor one in another chain, counts: the seal covers chain, place and link."""
    with runtime(path) as one, one.session("s") as session:
        session.load("git", by="configuration")
        grant = session.grant("git/push", by="ann", id="push")
        session.revoke(grant.id, by="ann")
    shell = Shell(path)
    sealed = next(row for row in shell.rows() if b'"id":"push"' in row.stored and b'"effect"' in row.stored)
    end = shell.rows()[-1].sequence + 1
    shell.write("s", [Stored(end, sealed.stored, sealed.digest, sealed.seal)])
    body = decode(sealed, "s").body
    shell.append("grant", body)
    with runtime(path) as one, one.session("other") as other:
        other.load("git", by="configuration")
        shell.append("grant", body, "other")
        assert reason(other, "git/push") is Reason.NOT_AUTHORISED
        with one.session("s") as session:
            assert reason(session, "git/push") is Reason.NOT_AUTHORISED


def test_a_whole_rewritten_chain_is_worth_nothing(path: Path) -> None:
    """A deny turned into an allow, all digests and links made anew: nothing external may run until a person looked."""
    begun(path)

    def change(kind: str, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "effect": "allow"} if kind == "grant" else body

    Shell(path).rewrite(change)
    with runtime(path) as one, one.session("s") as session:
        reasons = [reason(session, f"git/{tool}") for tool in ("log", "push", "sync")]
        assert reasons == [None, Reason.NOT_AUTHORISED, Reason.SESSION_READ_ONLY]
        assert verify(one.ledger, "s", KEY).outcome is Outcome.BROKEN


def test_limits_are_not_raised_from_outside(path: Path) -> None:
    """An unsealed limit can only lower, an unsealed total only raise."""
    with runtime(path) as one:
        from capstate.authority import Limits

        session = one.session("s", limits=Limits(calls=2))
        session.load("git", by="configuration")
        assert reason(session, "git/log") is None
        shell = Shell(path)
        shell.append("limits", {"limits": {"calls": 99, "concurrency": None, "cost": None}})
        shell.append("settled", {"id": "x", "outcome": "ok", "used": {"calls": 0, "serial": 0, "spent": 0}})
        assert reason(session, "git/log", "c2") is None
        assert reason(session, "git/log", "c3") is Reason.LIMIT_EXCEEDED
        session.close()
        assert reason(one.session("s"), "git/log", "c4") is Reason.LIMIT_EXCEEDED


def test_what_takes_away_needs_no_seal(path: Path) -> None:
    """A deny, an ask, a revoke of an allow and an end by somebody without the key are obeyed at the next call."""
    begun(path)
    with runtime(path) as keyed, runtime(path, None) as plain:
        session = keyed.session("s")
        assert reason(session, "git/log") is None
        Shell(path).append("grant", {"effect": "ask", "id": "a", "on": "git/log"}, posted=True)
        assert reason(session, "git/log") is Reason.NEEDS_APPROVAL
        session.approve(Call("c1", "git/log"), by="ann")
        assert reason(session, "git/log") is None
        session.reproject()
        assert reason(session, "git/log", "c2") is Reason.NEEDS_APPROVAL
        session.revoke("a", by="ann")
        assert reason(session, "git/log") is None
        plain.deny("s", "git/log", by="bob")
        assert reason(session, "git/log") is Reason.NOT_AUTHORISED
        plain.end("s", by="bob")
        assert session.reproject().surface.callable == {}


def test_malformed_bodies_take_away_at_most(path: Path) -> None:
    """Entries whose bodies make no sense raise nothing; at worst external calls wait."""
    begun(path)
    shell = Shell(path)
    kinds = [
        "opened",
        "load",
        "unload",
        "removal",
        "grant",
        "revoke",
        "pin",
        "approved",
        "rejected",
        "lapsed",
        "started",
        "settled",
        "reconciled",
        "epoch",
        "limits",
        "retired",
        "job-ended",
        "closed",
        "spawned",
        "forked",
        "ended-not",
        "accepted",
        "repaired",
        "note",
        "refused",
        "finding",
        "who knows",
    ]
    bodies: list[dict[str, Any]] = [
        {},
        {"on": 1, "id": [], "effect": "deny", "at": {}, "by": 1},
        {"on": ["git"], "at": [], "call": {}, "definitions": []},
        {"on": "git/*", "effect": "allow", "id": "x", "pin": 7, "expires": "x", "lifetime": 3},
        {"source": {}, "id": {}, "pin": [[1, 2]], "lost": 5, "damage": {}, "tools": 5, "name": {}, "job": []},
        {"receipt": {"sources": [["a", 1, "x", {}]]}, "limits": {"calls": -1, "more": 2}, "child": {}},
        {"id": 1, "call": None, "occurrence": -1, "tool": [], "arguments": {}, "effect": [], "used": {"calls": "x"}},
    ]
    with runtime(path) as one:
        session = one.session("s")
        for kind in kinds:
            for body in bodies:
                shell.append(kind, body)
        assert reason(session, "git/push") is Reason.NOT_AUTHORISED
        assert reason(session, "git/log") in (None, Reason.NOT_LOADED)
        session.reproject()
        session.close()
        again = one.session("s")
        assert reason(again, "git/push") is Reason.NOT_AUTHORISED
        again.reproject()
        assert load(SQLiteLedger(path, read_only=True), "s").entries
