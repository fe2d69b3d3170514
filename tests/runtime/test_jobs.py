"""Grants that end: with a job, the process, the session, or a time."""

from __future__ import annotations

from typing import Any

import pytest

from capstate.authority import Effect, Grant, Lifetime, deny
from capstate.capabilities import Group, Tool
from capstate.errors import InvalidInputError, LedgerUnavailableError, Reason
from capstate.ledger import Record
from capstate.ledgers.memory import MemoryLedger
from tests.runtime.stage import Stage, Wrapped, call, closing, crash, forge, kinds, refused, run, tools


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.default = []
    return made


def test_a_job_grants_for_its_time(stage: Stage) -> None:
    """Within the job the tool may be called, after it not."""
    session = stage.session()
    with session.job("sync", grants=["git/push"]):
        assert refused(session, "git/push") is None

    assert refused(session, "git/push") is Reason.NOT_AUTHORISED


def test_jobs_end_in_any_order(stage: Stage) -> None:
    """Each ends its own grants, whichever began first."""
    session = stage.session()
    one, two = session.job("one", grants=["git/push"]), session.job("two", grants=["git/log"])
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)

    assert refused(session, "git/push") is Reason.NOT_AUTHORISED
    assert refused(session, "git/log") is None
    two.__exit__(None, None, None)
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED


def test_a_job_that_fails_ends_too(stage: Stage) -> None:
    """An exception in the job takes the grants with it."""
    session = stage.session()
    with pytest.raises(ZeroDivisionError), session.job("one", grants=["git/push"]):
        raise ZeroDivisionError

    assert refused(session, "git/push") is Reason.NOT_AUTHORISED


def test_the_close_of_the_session_ends_them(stage: Stage) -> None:
    """Closed within the job: the ledger says so, and the next process has nothing."""
    session = stage.session()
    job = session.job("one", grants=["git/push"])
    job.__enter__()
    session.close()
    job.__exit__(None, None, None)

    assert "closed" in kinds(stage)
    assert refused(stage.session(), "git/push") is Reason.NOT_AUTHORISED


def test_the_death_of_the_process_ends_them(stage: Stage) -> None:
    """The grant is still in the ledger, under a fencing token that is nobody's any more."""
    session = stage.session()
    job = session.job("one", grants=["git/push"])
    job.__enter__()
    crash(session)
    again = stage.session()

    assert any(g.lifetime is Lifetime.UNTIL for g in again._live.state.grants.values())
    assert refused(again, "git/push") is Reason.NOT_AUTHORISED
    with pytest.raises(LedgerUnavailableError):
        job.__exit__(None, None, None)


@pytest.mark.parametrize("token", [0, 2, 99, None])
def test_another_token_is_nothing(stage: Stage, token: int | None) -> None:
    """A grant until a job ends lives under its writer's token alone."""
    session = stage.session()
    grant = Grant("git/push", Effect.ALLOW, None, "", "job", Lifetime.UNTIL, "job", None, token)
    session._append(Record("grant", grant.to_json()))

    assert refused(session, "git/push") is Reason.NOT_AUTHORISED


def test_a_job_that_the_ledger_could_not_hear_end_is_over(stage: Stage) -> None:
    """The append of its end fails: when the ledger answers again, its grants do not."""
    storage = MemoryLedger()
    broken = False

    def append(*args: Any, **more: Any) -> Any:
        if broken:
            raise LedgerUnavailableError("the disk is full")
        return storage.append(*args, **more)

    session = stage.runtime(Wrapped(storage, append=append)).session("s")
    session.load("git")
    with pytest.raises(LedgerUnavailableError), session.job("one", grants=["git/*"]):
        broken = True
    broken = False

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    with session.job("one", grants=["git/log"]):
        assert refused(session, "git/log") is None
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED


def test_a_deny_wins_over_a_job(stage: Stage) -> None:
    """What a job grants is in the one pool, where any deny wins."""
    stage.default = [deny("git/push")]
    session = stage.session()
    with session.job("one", grants=["git/*"]):
        assert refused(session, "git/push") is Reason.NOT_AUTHORISED
        assert refused(session, "git/log") is None


def test_a_job_grants_the_definitions_of_its_start(stage: Stage) -> None:
    """A tool that changes, or comes, while the job runs is not granted by it."""
    session = stage.session()
    with session.job("one", grants=["git"]):
        stage.groups = [Group("git", tools(push=Tool("push", description="other"), new=Tool("new")))]
        assert refused(session, "git/push") is Reason.SCHEMA_CHANGED
        assert refused(session, "git/new") is Reason.NOT_AUTHORISED


def test_job_grants_do_not_travel(stage: Stage) -> None:
    """A fork does not have them; a child has them exactly while its parent has."""
    session = stage.session()
    with session.job("one", grants=["git/log"]):
        fork, child = session.fork("f"), session.spawn("k", want=["git/*"])
        assert refused(fork, "git/log") is Reason.NOT_AUTHORISED
        assert refused(child, "git/log") is None

    assert refused(child, "git/log") is Reason.NOT_AUTHORISED


def test_a_session_grant_ends_with_its_session_alone(stage: Stage) -> None:
    """It survives a restart of its own session, and is not that of a fork."""
    session = stage.session()
    session.grant("git/log", by="ann", lifetime="session")
    session.grant("git/push", by="ann")
    fork = session.fork("f")

    assert refused(fork, "git/log") is Reason.NOT_AUTHORISED
    assert refused(fork, "git/push") is None
    session.close()
    assert refused(stage.session(), "git/log") is None


def test_time_ends_a_grant_and_no_clock_brings_it_back(stage: Stage) -> None:
    """It is gone when its time is over, and stays gone when the clock is set back behind the ledger."""
    session = stage.session()
    session.grant("git/log", by="ann", expires=2_000)
    assert refused(session, "git/log") is None
    stage.time = 2_000
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    stage.time = 1_000

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    session.note({"at": "later than the grant"})
    session.close()
    assert refused(stage.session(), "git/log") is Reason.NOT_AUTHORISED


def test_a_forged_time_brings_no_deny_to_an_end() -> None:
    """An entry without a valid seal does not move the clock: a deny with an end does not end by it."""
    stage = Stage(key=bytes(32))
    session = stage.session()
    session.grant("git/log", by="ann", effect="deny", expires=1_500)
    forge(stage, "note", {})

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED


@pytest.mark.parametrize(
    "wrong",
    [
        {"lifetime": "until"},
        {"lifetime": "for ever"},
        {"effect": "maybe"},
        {"expires": "tomorrow"},
        {"expires": True},
        {"by": ""},
        {"on": "git"},
    ],
    ids=str,
)
def test_a_grant_that_makes_no_sense_is_refused(stage: Stage, wrong: dict[str, object]) -> None:
    """The error names the argument, and nothing is written."""
    session = stage.session()
    before = kinds(stage)
    with pytest.raises(InvalidInputError):
        session.grant(**{"on": "git/log", "by": "ann", **wrong})  # type: ignore[arg-type]

    assert kinds(stage) == before


def test_one_id_is_one_grant(stage: Stage) -> None:
    """A second grant under the id of a deny would take the deny's place: it is refused."""
    session = stage.session()
    session.grant("git/push", by="ann", effect="deny", id="x")
    with pytest.raises(InvalidInputError):
        session.grant("git/log", by="bob", id="x")

    assert refused(session, "git/push") is Reason.NOT_AUTHORISED


def test_a_grant_taken_back_is_gone(stage: Stage) -> None:
    """Also a persistent one in the holder's chain; what nobody holds cannot be taken back."""
    with closing(session := stage.session(holder="ann")):
        mine = session.grant("git/log", by="ann", lifetime="session")
        held = session.grant("git/push", by="ann")
        assert refused(session, "git/log") is refused(session, "git/push") is None
        session.revoke(mine.id, by="ann")
        session.revoke(held.id, by="ann")

        assert refused(session, "git/log") is refused(session, call("git/push", "c2")) is Reason.NOT_AUTHORISED
        with pytest.raises(InvalidInputError):
            session.revoke(mine.id, by="ann")


def test_a_grant_pins_what_exists_now_unless_told_otherwise(stage: Stage) -> None:
    """By default a changed definition needs a new grant; an open grant follows it."""
    session = stage.session()
    session.grant("git/log", by="ann")
    session.grant("git/sync", by="ann", pin=False)
    stage.groups = [Group("git", [Tool("log", effect="read", description="2"), Tool("sync", description="2")])]

    assert refused(session, "git/log") is Reason.SCHEMA_CHANGED
    assert refused(session, "git/sync") is None
    session.grant("git/log", by="ann")
    assert refused(session, "git/log") is None
    run(session, call("git/log"))
