"""Rows beside the chains put back as they were: fencing tokens, the limits; and what only a descendant sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from capstate.errors import InvalidInputError, Reason, SessionClosedError
from capstate.ledger import Pool
from capstate.runtime import Runtime, Session
from tests.runtime.stage import (
    KEY,
    Limits,
    Stage,
    call,
    crash,
    cut,
    entries,
    kinds,
    refused,
    run,
    spoil,
    started,
    storage,
)
from tests.runtime.test_shell import Shell


class Rows:
    """What stands beside the chains, to be kept and put back: in memory, or in a file through another connection."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.shell = Shell(stage.ledger) if isinstance(stage.ledger, Path) else None

    def pool(self) -> Any:
        if self.shell is None:
            return storage(self.stage)._storage.pools["s"]
        return Pool(*self.shell.sql("SELECT version, value FROM pools WHERE root = 's'")[0])

    def put(self, pool: Any) -> None:
        if self.shell is None:
            storage(self.stage)._storage.pools["s"] = pool
            storage(self.stage)._storage.changes += 1
        else:
            self.shell.sql("UPDATE pools SET version = ?, value = ? WHERE root = 's'", pool.version, pool.value)

    def token(self, token: int, chain: str = "s") -> None:
        if self.shell is None:
            storage(self.stage)._storage.tokens[chain] = token
        else:
            self.shell.sql("UPDATE writers SET token = ? WHERE chain = ?", token, chain)


@pytest.fixture(params=["memory", "sqlite"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(tmp_path / "agent.db" if request.param == "sqlite" else None, key=KEY)


# -- fencing tokens


@pytest.mark.parametrize("back", [1, 2], ids=["the job's", "the one of before"])
def test_a_token_set_back_revives_no_job(stage: Stage, back: int) -> None:
    """A grant until a job ends lives in the session object that gave it, whatever token the next one is given."""
    stage.default = []
    stage.session().close()
    session = stage.session()
    job = session.job("sync", grants=["git/push"])
    job.__enter__()
    assert refused(session, "git/push") is None
    crash(session)
    session._closed = True  # it is no more: its job ends without a word
    Rows(stage).token(back)
    again = stage.session()

    assert refused(again, call("git/push", "c2")) is Reason.NOT_AUTHORISED
    child = again.spawn("k", want=["*"])
    child.load("git")
    assert refused(child, "git/push") is Reason.NOT_AUTHORISED
    with again.job("sync", grants=["git/push"]):
        assert refused(again, call("git/push", "c3")) is None
        assert refused(child, "git/push") is None
    assert refused(again, call("git/push", "c4")) is Reason.NOT_AUTHORISED
    job.__exit__(None, None, None)


def test_a_session_closed_and_opened_again_in_one_process_has_no_job_either(stage: Stage) -> None:
    """The process is the same, the session object is not."""
    stage.default = []
    runtime = stage.runtime()
    first = runtime.session("s")
    first.load("git")
    job = first.job("sync", grants=["git/push"])
    job.__enter__()
    assert refused(first, "git/push") is None
    first._closed = True  # its end is not written
    runtime._forget(first)
    first._writer.close()
    Rows(stage).token(0)

    assert refused(runtime.session("s"), call("git/push", "c2")) is Reason.NOT_AUTHORISED
    job.__exit__(None, None, None)


# -- limits


@pytest.mark.parametrize("who", ["root", "user", "sibling", "grandchild", "fork", "restarted"])
@pytest.mark.parametrize("kept", [1, 2], ids=["after one", "after two"])
def test_an_older_row_gives_nobody_another_call(stage: Stage, who: str, kept: int) -> None:
    """The row is compared with the entries of the whole tree, whoever wrote them, by whoever looks."""
    root = stage.session(limits=Limits(calls=3))
    user, sibling = root.spawn("k", want=["*"]), root.spawn("j", want=["*"])
    line = {"root": root, "user": user, "sibling": sibling, "grandchild": sibling.spawn("g", want=["*"])}
    line["fork"] = root.fork("f")
    for each in line.values():
        assert each.used["calls"] == 0  # everybody looked before
    rows, older = Rows(stage), None
    for n in range(3):
        run(user, call("git/log", f"c{n}"))
        older = rows.pool() if n + 1 == kept else older
    rows.put(older)
    if who == "restarted":
        sibling.close()
        line[who] = stage.runtime().session("j")

    assert refused(line[who], call("git/log", "c9")) is Reason.LIMIT_EXCEEDED
    assert line[who].used["calls"] == 3


def test_an_older_row_frees_no_running_call_of_another(stage: Stage) -> None:
    """A slot that a sibling holds, and the cost it reserved, are found in its entries."""
    root = stage.session(limits=Limits(concurrency=1, cost=100))
    child, other = root.spawn("k", want=["*"]), root.spawn("j", want=["*"])
    run(root, "git/log", cost=1)
    older = Rows(stage).pool()
    permit = started(child, "git/log", cost=50)
    Rows(stage).put(older)

    assert refused(other, "git/log", cost=1) is Reason.LIMIT_EXCEEDED
    assert other.used["cost"] == 51
    permit.settle()
    assert refused(other, "git/log", cost=1) is None


def test_an_older_row_while_a_call_runs_is_no_base_for_its_end(stage: Stage) -> None:
    """What is settled is counted from what the entries say."""
    root = stage.session(limits=Limits(calls=4))
    child = root.spawn("k", want=["*"])
    permit = started(root, "git/log")
    older = Rows(stage).pool()
    run(child, "git/log")
    run(child, call("git/log", "c2"))
    Rows(stage).put(older)
    permit.settle()

    assert root.used["calls"] == child.used["calls"] == 3


def test_a_child_whose_birth_was_lost_counts_all_the_same() -> None:
    """The entry that names it was destroyed, and the row put back: the child's own beginning says whose it is."""
    stage = Stage(key=KEY)
    root = stage.session(limits=Limits(calls=3))
    child = root.spawn("k", want=["*"])
    older = None
    for n in range(3):
        run(child, call("git/log", f"c{n}"))
        older = older or Rows(stage).pool()
    spawned = next(e.sequence for e in entries(stage) if e.kind == "spawned")
    root.note({})
    root.close()
    spoil(stage, "s", spawned)
    Rows(stage).put(older)

    assert refused(stage.session(), "git/log") is Reason.LIMIT_EXCEEDED


def test_another_tree_named_by_a_forged_entry_does_not_count() -> None:
    """Somebody who names a chain of another tree as a child neither uses up nor confuses the limits."""
    from tests.runtime.stage import forge

    stage = Stage(key=KEY)
    other = stage.session("o", limits=Limits(calls=9))
    for n in range(5):
        run(other, call("git/log", f"c{n}"))
    session = stage.session(limits=Limits(calls=2))
    forge(stage, "spawned", {"child": "o"})

    assert session.used["calls"] == 0
    assert refused(session, "git/log") is None


def test_a_call_reads_the_tree_only_if_somebody_else_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, a limited call asks for no head of another chain; after somebody's entry it asks once for each."""
    stage = Stage(tmp_path / "agent.db")
    session = stage.session(limits=Limits(calls=99))
    children = [session.spawn(f"k{n}", want=["*"]) for n in range(6)]
    run(session, "git/log")
    ledger, asked = session._runtime.ledger, list[str]()
    right = ledger.head

    def head(chain: str) -> Any:
        asked.append(chain)
        return right(chain)

    monkeypatch.setattr(ledger, "head", head)
    for n in range(4):
        run(session, call("git/log", f"c{n}"))
    assert [chain for chain in asked if chain.startswith("k")] == []
    run(children[0], "git/log")
    asked.clear()
    run(session, call("git/log", "c9"))

    assert sorted(chain for chain in asked if chain.startswith("k")) == [f"k{n}" for n in range(6)]


# -- three deep


def deep(stage: Stage) -> tuple[list[Session], Runtime]:
    """Root, child, grandchild and its child, each in a process of its own."""
    line = [stage.session()]
    for n in range(3):
        line[-1].spawn(f"k{n}", want=["*"]).close()
        line.append(stage.runtime().session(f"k{n}"))
    assert refused(line[-1], "git/push") is None
    return line, stage.runtime()


@pytest.mark.parametrize("level", [0, 1, 2])
def test_an_ancestor_that_ended_ends_the_line_below(stage: Stage, level: int) -> None:
    """Seen by the last of the line at its next call, though nobody between looked; and after a restart."""
    line, outside = deep(stage)
    outside.end(line[level].id, by="ann")

    assert refused(line[-1], call("git/log", "c2")) is Reason.NOT_AUTHORISED
    line[-1].close()
    again = stage.runtime().session("k2")
    assert refused(again, call("git/log", "c3")) is Reason.NOT_AUTHORISED
    line[level].close()
    with pytest.raises(SessionClosedError):
        stage.runtime().session(line[level].id)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_damage_of_an_ancestor_makes_the_line_below_wait(level: int) -> None:
    """External calls of the last one wait until it is accepted where it is; reads go on."""
    stage = Stage(key=KEY)
    line, _ = deep(stage)
    line[level].note({})
    line[level].note({})
    name = line[level].id
    for each in line:
        each.close()
    spoil(stage, name, next(e.sequence for e in entries(stage, name) if e.kind == "note"))
    last = stage.runtime().session("k2")
    assert refused(last, call("git/push", "c2")) is Reason.SESSION_READ_ONLY
    assert refused(last, call("git/log", "c2")) is None
    with pytest.raises(InvalidInputError):
        last.accept_damage(by="ann")
    owner = stage.runtime().session(name) if level < 3 else last
    owner.accept_damage(by="ann")

    assert refused(last, call("git/push", "c2")) is None


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_rollback_that_only_a_descendant_saw_is_kept_where_it_was(level: int) -> None:
    """The deny that was cut off the ancestor's chain holds while the descendant lives, and the loss shows after."""
    stage = Stage(key=KEY)
    line, outside = deep(stage)
    name = line[level].id
    for each in line[:-1]:
        each.close()
    outside.deny(name, "git/sync", by="ann")
    last = line[-1]
    assert refused(last, "git/sync") is Reason.NOT_AUTHORISED
    cut(stage, name, 1)
    assert refused(last, "git/sync") is Reason.NOT_AUTHORISED
    assert refused(last, call("git/push", "c2")) is Reason.SESSION_READ_ONLY
    last.reproject("compaction")
    last.reproject("compaction")
    last.close()

    assert kinds(stage, name).count("repaired") == 1
    again = stage.runtime().session("k2")
    assert refused(again, call("git/push", "c3")) is Reason.SESSION_READ_ONLY
    stage.runtime().session(name).accept_damage(by="ann")
    assert refused(again, call("git/push", "c3")) is None


# -- time


@pytest.mark.parametrize("how", ["post", "append"])
def test_no_entry_is_written_behind_the_chain(stage: Stage, how: str) -> None:
    """A clock that runs behind the ledger in another process writes the ledger's time."""
    stage.time = 5_000
    session = stage.session(holder="ann")
    session.grant("git/log", by="ann")
    session.close()
    stage.time = 1_000
    outside = stage.runtime()
    if how == "post":
        outside.deny("ann", "git/push", by="bob")
    else:
        again = outside.session("s")
        again.grant("git/sync", by="bob")

    shell = Shell(stage.ledger) if isinstance(stage.ledger, Path) else None
    from capstate.ledger import decode

    rows = shell.rows("ann") if shell is not None else storage(stage)._storage.rows["ann"]
    times = [decode(row, "ann").at for row in rows]
    assert times == sorted(times)
    assert times[-1] == 5_000


def test_a_forged_time_is_not_taken_over(stage: Stage) -> None:
    """A later time in an entry that nobody sealed moves no clock: a deny with an end does not end by it."""
    session = stage.session()
    session.grant("git/log", by="ann", effect="deny", expires=1_500)
    session.close()
    rows = Rows(stage)
    if rows.shell is not None:
        from capstate.ledger import Record, Stored, chain_entries

        head = rows.shell.rows()[-1].head
        made = chain_entries("s", head, [Record("note", {})], at=9_000, token=1)
        rows.shell.write("s", [Stored(e.sequence, e.stored, e.digest, None) for e in made])
    else:
        from tests.runtime.stage import forge

        forge(stage, "note", {})
    stage.runtime().deny("s", "git/push", by="bob")

    assert refused(stage.session(), "git/log") is Reason.NOT_AUTHORISED
