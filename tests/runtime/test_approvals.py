"""A person's yes to one call: what uses it up, what leaves it, what ends it."""

from __future__ import annotations

import pytest

from capstate.authority import allow, ask, deny
from capstate.capabilities import Group, Tool
from capstate.errors import InvalidInputError, NeedsApproval, Reason
from tests.runtime.stage import Stage, call, crash, entries, kinds, refused, run, started, tools


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.default = [allow("git/*"), ask("git/push")]
    return made


def test_an_approved_call_starts_once(stage: Stage) -> None:
    """The approval is gone after one start, also for the very same call."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")

    assert refused(session, "git/push") is None
    assert refused(session, "git/push") is Reason.NEEDS_APPROVAL


def test_it_is_used_up_in_the_append_that_starts_the_call(stage: Stage) -> None:
    """The entry that starts the call names the approval; no entry between could be lost."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    started(session, "git/push")

    assert kinds(stage)[-2:] == ["approved", "started"]
    assert entries(stage)[-1].body["approval"] == ["c1", 0, "git/push", call("git/push").digest]


@pytest.mark.parametrize(
    "other",
    [call("git/push", "c2"), call("git/push", "c1", 1), call("git/push", x=1)],
    ids=["another id", "another occurrence", "other arguments"],
)
def test_a_mismatch_leaves_it_untouched(stage: Stage, other: object) -> None:
    """Another call waits for its own approval, and the approved one still starts."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")

    assert refused(session, other) is Reason.NEEDS_APPROVAL  # type: ignore[arg-type]
    assert refused(session, "git/push") is None


def test_another_definition_leaves_it_untouched(stage: Stage) -> None:
    """While the tool is another one the approval does not count; when the definition returns, it does."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    before = stage.groups
    stage.groups = [Group("git", tools(push=Tool("push", description="now with force")))]

    assert refused(session, "git/push") is Reason.NEEDS_APPROVAL
    stage.groups = before
    assert refused(session, "git/push") is None


def test_a_refused_start_leaves_it_untouched(stage: Stage) -> None:
    """A resource that is down for a moment does not use it up."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    stage.groups = [Group("git", tools(), up=False)]
    assert refused(session, "git/push") is Reason.RESOURCE_UNAVAILABLE

    stage.groups = [Group("git", tools())]
    assert refused(session, "git/push") is None


def test_it_survives_a_restart(stage: Stage) -> None:
    """A killed process leaves it in the ledger; the next one honours it, once."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    crash(session)
    again = stage.session()

    assert refused(again, "git/push") is None
    crash(again)
    assert refused(stage.session(), "git/push") is Reason.NEEDS_APPROVAL


def test_an_older_copy_of_the_session_does_not_revive_it(stage: Stage) -> None:
    """Moving the leaf back, or reprojecting as if nothing had been, gives nothing back."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    run(session, "git/push")
    session.reproject("branch", path=[])

    assert refused(session, "git/push") is Reason.NEEDS_APPROVAL


def test_it_does_not_travel(stage: Stage) -> None:
    """Neither a fork nor a child may start what was approved in the origin."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    fork, child = session.fork("f"), session.spawn("k", want=["git/*"])

    assert refused(fork, "git/push") is Reason.NEEDS_APPROVAL
    assert refused(child, "git/push") is Reason.NEEDS_APPROVAL
    assert refused(session, "git/push") is None


def test_a_later_deny_ends_it(stage: Stage) -> None:
    """Also after the deny was taken back."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    grant = session.deny("git/push", by="bob")
    session.revoke(grant.id, by="bob")

    assert refused(session, "git/push") is Reason.NEEDS_APPROVAL


def test_a_posted_deny_ends_it(stage: Stage) -> None:
    """A deny that another process posts counts from then on, whatever its owner read in between."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    grant = stage.runtime().deny("s", "git/*", by="bob")
    session.revoke(grant.id, by="bob")

    assert refused(session, "git/push") is Reason.NEEDS_APPROVAL


def test_a_deny_to_the_holder_ends_it_although_nobody_looked(stage: Stage) -> None:
    """The holder's chain is another one; its denies end approvals that were there before."""
    stage.grants["ann"] = stage.default
    session = stage.session(holder="ann")
    other = stage.runtime()
    session.approve(call("git/push"), by="ann")
    session.approve(call("git/push", "c2"), by="ann")
    assert refused(session, call("git/push", "c2")) is None
    grant = other.deny("ann", "git/push", by="bob")
    session.revoke(grant.id, by="bob")

    assert refused(session, "git/push") is Reason.NEEDS_APPROVAL
    session.approve(call("git/push"), by="ann")
    assert refused(session, "git/push") is None


def test_a_deny_by_the_configuration_ends_it_at_an_epoch(stage: Stage) -> None:
    """What an epoch saw denied does not come back when the configuration changes its mind."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    stage.default.append(deny("git/push"))
    session.reproject()
    stage.default.pop()

    assert "lapsed" in kinds(stage)
    assert refused(session, "git/push") is Reason.NEEDS_APPROVAL


def test_no_epoch_ends_what_is_still_asked(stage: Stage) -> None:
    """A tool that is down, or out of the catalog for a moment, was not denied."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    stage.groups = []
    session.reproject()
    stage.groups = [Group("git", tools())]

    assert refused(session, "git/push") is None


def test_a_rejected_call_is_denied_for_good(stage: Stage) -> None:
    """Its outcome is ``denied``, its approval withdrawn, and no later allow revives that very call."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    session.reject(call("git/push"), by="bob")

    assert refused(session, "git/push") is Reason.NOT_AUTHORISED
    stage.default[:] = [allow("git/*")]
    assert refused(session, "git/push") is Reason.NOT_AUTHORISED
    assert refused(session, call("git/push", "c2")) is None


def test_only_a_waiting_call_can_be_approved(stage: Stage) -> None:
    """An allowed, an unknown or a denied call is a mistake of the caller, and nothing is written."""
    session = stage.session()
    before = kinds(stage)
    for tool in ("git/log", "git/nothing"):
        with pytest.raises(InvalidInputError):
            session.approve(call(tool), by="ann")
    with pytest.raises(InvalidInputError):
        session.approve(call("git/push"), by="")

    assert kinds(stage) == before


def test_an_approval_of_a_bridge_is_for_what_it_reaches(stage: Stage) -> None:
    """If the inner tool became another one since, the call waits again; and a deny of the inner tool ends it."""
    bridge = Tool("bridge", effect="read", reaches="tool")
    stage.groups = [Group("git", tools(bridge=bridge))]
    session = stage.session()
    through = call("git/bridge", tool="git/push")
    session.approve(through, by="ann")
    stage.groups = [Group("git", tools(bridge=bridge, push=Tool("push", description="other")))]
    assert refused(session, through) is Reason.NEEDS_APPROVAL
    stage.groups = [Group("git", tools(bridge=bridge))]
    session.revoke(session.deny("git/push", by="bob").id, by="bob")

    assert refused(session, through) is Reason.NEEDS_APPROVAL


def test_waiting_has_no_result_and_no_count(stage: Stage) -> None:
    """A call that waits leaves no entry and has no result yet."""
    session = stage.session()
    before = kinds(stage)
    with pytest.raises(NeedsApproval) as waiting, session.guard(call("git/push")):
        pass

    assert not hasattr(waiting.value, "result")
    assert waiting.value.call == call("git/push")
    assert kinds(stage) == before
