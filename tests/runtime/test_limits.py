"""One pool of calls, cost and slots for a whole tree of sessions."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from capstate.errors import InvalidInputError, Reason, SessionLockedError
from capstate.ledger import Pool
from tests.runtime.stage import KEY, Limits, Stage, call, crash, entries, forge, refused, run, started, storage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_calls_are_counted_over_the_whole_tree(stage: Stage) -> None:
    """Session, child, fork and their line use one pool; refused calls use nothing."""
    session = stage.session(limits=Limits(calls=3))
    child, fork = session.spawn("k", want=["*"]), session.fork("f")
    assert refused(session, "git/nothing") is Reason.UNKNOWN_TOOL
    for n, each in enumerate((session, child, fork)):
        run(each, call("git/log", f"c{n}"))

    for each in (session, child, fork, child.spawn("k2", want=["*"])):
        assert refused(each, call("git/log", "c9")) is Reason.LIMIT_EXCEEDED
        assert each.used == {"calls": 3, "cost": 0}


def test_used_survives_every_boundary(stage: Stage) -> None:
    """Compaction, restart, a crash, another limit: nothing is given back."""
    session = stage.session(limits=Limits(calls=3))
    run(session, "git/log")
    session.reproject("compaction")
    session.close()
    session = stage.session(limits=Limits(calls=4))
    run(session, "git/log")
    crash(session)
    session = stage.session()

    assert session.used == {"calls": 2, "cost": 0}
    assert session.reproject().receipt.body["used"] == {"calls": 2, "cost": 0}
    run(session, "git/log")
    run(session, "git/log")
    assert refused(session, "git/log") is Reason.LIMIT_EXCEEDED


def test_cost_is_reserved_then_settled(stage: Stage) -> None:
    """What is reserved counts while the call runs, what it really cost after; nothing sent costs nothing."""
    session = stage.session(limits=Limits(cost=100))
    permit = started(session, "git/log", cost=60)
    assert refused(session, call("git/log", "c2"), cost=41) is Reason.LIMIT_EXCEEDED
    permit.settle(cost=10)
    assert session.used == {"calls": 1, "cost": 10}
    started(session, call("git/log", "c3"), cost=90).not_sent()

    assert session.used == {"calls": 2, "cost": 10}


def test_slots_are_freed_as_calls_end(stage: Stage) -> None:
    """No more calls at once than the limit, over the whole tree."""
    session = stage.session(limits=Limits(concurrency=2))
    child = session.spawn("k", want=["*"])
    one, two = started(session, call("git/log", "c1")), started(child, call("git/log", "c2"))
    assert refused(child, call("git/log", "c3")) is Reason.LIMIT_EXCEEDED
    one.settle()

    assert refused(child, call("git/log", "c3")) is None
    two.settle()


def test_the_slots_of_a_dead_owner_are_freed_and_its_cost_is_spent(stage: Stage) -> None:
    """Whether somebody else notices, or it comes back itself."""
    session = stage.session(limits=Limits(concurrency=1, cost=1_000))
    session.spawn("k", want=["*"]).close()
    other = stage.runtime()
    child = other.session("k")
    started(child, "git/log", cost=70)
    assert refused(session, "git/log") is Reason.LIMIT_EXCEEDED
    crash(child)

    assert refused(session, "git/log", cost=1) is None
    assert session.used["cost"] == 71
    started(session, call("git/log", "c2"), cost=5)
    crash(session)
    assert refused(stage.session(), call("git/log", "c3")) is None
    assert stage.runtime().state("s") is not None


def test_the_slots_of_a_living_owner_are_not(stage: Stage) -> None:
    """Its lock cannot be had, so it lives, however long it takes."""
    session = stage.session(limits=Limits(concurrency=1))
    child = session.spawn("k", want=["*"])
    permit = started(child, "git/log")
    for n in range(3):
        assert refused(session, call("git/log", f"c{n}")) is Reason.LIMIT_EXCEEDED
    with pytest.raises(SessionLockedError):
        stage.runtime().session("k")
    permit.settle()


@pytest.mark.parametrize("damage", ["deleted", "reset", "garbage", "older"])
@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
def test_a_row_that_was_tampered_with_gives_nothing_back(damage: str, key: bytes | None) -> None:
    """The totals stand in the entries of the tree, also where a child alone used them."""
    stage = Stage(key=key)
    session = stage.session(limits=Limits(calls=4, concurrency=2))
    child = session.spawn("k", want=["*"])
    pools = storage(stage)._storage.pools
    run(child, "git/log")
    older = pools["s"]
    for n in range(2):
        run(child, call("git/log", f"c{n}"))
    running = started(child, call("git/log", "c7"))
    if damage == "deleted":
        del pools["s"]
    else:
        value = {
            "reset": b'{"calls":0,"running":{},"seal":"","serial":0,"spent":0}',
            "garbage": b"\xff",
            "older": older.value,
        }
        pools["s"] = Pool(older.version if damage == "older" else 9, value[damage])
    storage(stage)._storage.changes += 1

    assert refused(child, call("git/log", "c9")) is Reason.LIMIT_EXCEEDED
    assert child.used["calls"] == 4
    running.settle()
    session.close()
    assert refused(stage.session(), call("git/log", "c9")) is Reason.LIMIT_EXCEEDED


def test_a_row_without_the_seal_is_not_believed() -> None:
    """With a key, whoever frees slots in the row, totals untouched, frees none."""
    stage = Stage(key=KEY)
    session = stage.session(limits=Limits(concurrency=1))
    permit = started(session, "git/log")
    pools = storage(stage)._storage.pools
    found = pools["s"]
    pools["s"] = Pool(found.version, found.value.replace(b'"running":{"s":[1,1,0]}', b'"running":{}'))

    assert pools["s"] != found
    assert refused(session, call("git/log", "c2")) is Reason.LIMIT_EXCEEDED
    permit.settle()
    assert refused(session, call("git/log", "c2")) is None


def test_a_forged_lower_total_is_none(stage: Stage) -> None:
    """Totals only grow: an entry that says less changes nothing, one that says more counts."""
    session = stage.session(limits=Limits(calls=10))
    run(session, "git/log")
    forge(stage, "settled", {"id": "x", "outcome": "ok", "used": {"calls": 0, "serial": 0, "spent": 0}})
    assert session.used["calls"] == 1
    session.close()

    assert stage.session().used["calls"] == 1


def test_lowered_limits_hold_at_once(stage: Stage) -> None:
    """A session that comes with other limits keeps what was used."""
    session = stage.session(limits=Limits(calls=9))
    for n in range(4):
        run(session, call("git/log", f"c{n}"))
    session.close()

    assert refused(stage.session(limits=Limits(calls=4)), "git/log") is Reason.LIMIT_EXCEEDED


def test_limits_come_before_approval_and_after_unknown_outcomes(stage: Stage) -> None:
    """The order of reasons."""
    stage.ceilings["trust"] = lambda _: "ask"
    session = stage.session(limits=Limits(calls=0))

    assert refused(session, "git/push") is Reason.LIMIT_EXCEEDED


@pytest.mark.parametrize("cost", [-1, 1.0, "1", True, 2**53])
def test_a_cost_is_whole_micro_units(stage: Stage, cost: Any) -> None:
    """Anything else is a mistake of the caller, before and after the call."""
    session = stage.session(limits=Limits(cost=10))
    with pytest.raises(InvalidInputError):
        session.guard(call("git/log"), cost=cost)
    permit = started(session, "git/log")
    with pytest.raises(InvalidInputError):
        permit.settle(cost=cost)
    permit.settle(cost=3)

    assert session.used["cost"] == 3


def test_threads_never_exceed_a_limit_by_one(stage: Stage) -> None:
    """Sixteen threads over four sessions of one tree, with limits on all three kinds."""
    session = stage.session(limits=Limits(calls=40, cost=200, concurrency=3))
    everybody = [session, session.spawn("k", want=["*"]), session.fork("f"), session.fork("g")]
    running, most, ran = [0], [0], [0]
    lock = threading.Lock()

    def work(n: int) -> None:
        for i in range(6):
            one = everybody[n % 4]
            try:
                with one.guard(call("git/log", f"c{n}-{i}"), cost=4) as permit:
                    with lock:
                        running[0] += 1
                        ran[0] += 1
                        most[0] = max(most[0], running[0])
                    with lock:
                        running[0] -= 1
                    permit.settle()
            except Exception as no:
                if getattr(no, "reason", None) is not Reason.LIMIT_EXCEEDED:
                    raise

    failed: list[BaseException] = []

    def guarded(n: int) -> None:
        try:
            work(n)
        except BaseException as error:  # noqa: BLE001 - carried over
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    assert most[0] <= 3
    assert 0 < ran[0] <= 40
    assert session.used == {"calls": ran[0], "cost": 4 * ran[0]}


def test_without_limits_a_read_leaves_no_entry(stage: Stage) -> None:
    """The common case writes nothing; with a limit each call is reserved in the ledger."""
    session = stage.session()
    before = entries(stage)
    run(session, "git/log")

    assert entries(stage) == before
    assert session.used == {}
