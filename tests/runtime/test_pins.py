"""Pins of the configuration: taken once at first sight, recorded, never taken anew."""

from __future__ import annotations

import pytest

from capstate.authority import allow
from capstate.capabilities import Group, Tool
from capstate.errors import Reason
from tests.runtime.stage import KEY, Stage, entries, forge, kinds, refused, spoil, tools

OTHER = [Group("git", tools(log=Tool("log", effect="read", description="other")))]


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.default = [allow("git/*", pin=True)]
    return made


def pins(stage: Stage, chain: str = "s") -> list[dict[str, object]]:
    return [entry.body for entry in entries(stage, chain) if entry.kind == "pin"]


def test_a_pin_is_taken_at_the_first_epoch_and_recorded_once(stage: Stage) -> None:
    """Per source, holder and grant; later epochs and restarts leave it alone."""
    session = stage.session()
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    session.reproject()
    session.reproject("compaction")
    assert refused(session, "git/log") is None
    session.close()
    stage.session().reproject()

    assert [(pin["source"], pin["id"]) for pin in pins(stage)] == [("config", stage.default[0].id)]  # type: ignore[union-attr]


def test_a_restart_does_not_take_it_anew(stage: Stage) -> None:
    """A definition that changed while nobody ran is another one, whoever starts then."""
    session = stage.session()
    session.reproject()
    session.close()
    stage.groups = OTHER
    session = stage.session()
    session.reproject()

    assert refused(session, "git/log") is Reason.SCHEMA_CHANGED
    assert len(pins(stage)) == 1


def test_a_new_member_is_not_covered(stage: Stage) -> None:
    """A pin on a whole group is for the members that it saw."""
    session = stage.session()
    session.reproject()
    stage.groups = [Group("git", tools(new=Tool("new")))]
    session.reproject()

    assert refused(session, "git/new") is Reason.NOT_AUTHORISED
    assert refused(session, "git/log") is None


def test_what_nobody_has_seen_is_pinned_when_it_is_seen(stage: Stage) -> None:
    """A server that is not there yet has no first sight."""
    stage.groups = []
    session = stage.session()
    session.reproject()
    assert pins(stage) == []
    stage.groups = [Group("git", tools())]
    session.reproject()

    assert refused(session, "git/log") is None
    assert len(pins(stage)) == 1


def test_two_sessions_of_one_holder_share_a_pin(stage: Stage) -> None:
    """It is in the holder's chain, so the second session does not take another one."""
    one = stage.session("one", holder="ann")
    one.reproject()
    stage.groups = OTHER
    two = stage.session("two", holder="ann")
    two.reproject()

    assert len(pins(stage, "ann")) == 1
    assert refused(two, "git/log") is Reason.SCHEMA_CHANGED


def test_a_holder_chain_that_another_process_owns_gives_none(stage: Stage) -> None:
    """The pin cannot be recorded, so it is not taken, and covers nothing; later it can be."""
    owner = stage.runtime().ledger.lock("ann")
    session = stage.session("one", holder="ann")
    session.reproject()
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    owner.close()
    session.reproject()

    assert refused(session, "git/log") is None


def test_the_fork_of_an_open_session_takes_pins_in_its_name(stage: Stage) -> None:
    """The origin, open in the same process, owns the holder's chain; its writer records the pin, and it goes on."""
    stage.default = []
    session = stage.session()
    fork = session.fork("f")
    stage.default = [allow("git/*", pin=True)]
    fork.reproject()

    assert refused(fork, "git/log") is None
    session.note({"still": "the writer"})
    assert kinds(stage)[-2:] == ["pin", "note"]


@pytest.mark.parametrize("accept", [False, True])
def test_a_lost_pin_covers_nothing(stage: Stage, accept: bool) -> None:
    """Its entry is destroyed, the tool another one: it is not taken anew, also after the damage was accepted."""
    session = stage.session()
    session.reproject()
    session.close()
    spoil(stage, "s", next(e.sequence for e in entries(stage) if e.kind == "pin"))
    stage.groups = OTHER
    session = stage.session()
    session.reproject()
    if accept:
        session.accept_damage(by="ann")
        session.reproject()

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    session.grant("git/log", by="ann")
    assert (refused(session, "git/log") is None) is accept


def test_after_accepted_damage_new_rules_get_their_pins(stage: Stage) -> None:
    """Only what may have been lost is lost."""
    session = stage.session()
    session.reproject()
    session.close()
    spoil(stage, "s", next(e.sequence for e in entries(stage) if e.kind == "pin"))
    session = stage.session()
    session.accept_damage(by="ann")
    stage.default = [allow("git/log", pin=True)]
    session.load("git/log")
    session.reproject()

    assert refused(session, "git/log") is None


def test_a_forged_pin_is_none_and_stays_none() -> None:
    """With a key, an unsealed pin does not pin to what the forger likes; it only takes away."""
    stage = Stage(key=KEY)
    stage.default = [allow("git/log", pin=True)]
    session = stage.session()
    evil = OTHER[0].definitions["log"]
    forge(stage, "pin", {"source": "config", "id": stage.default[0].id, "pin": [[evil.qualified, evil.fingerprint]]})  # type: ignore[union-attr]
    stage.groups = OTHER
    session.reproject()

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
