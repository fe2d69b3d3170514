"""Torn tails, holes, rollbacks: what still counts, what waits for a named person, what never bricks."""

from __future__ import annotations

import pytest

from capstate.authority import allow, ask
from capstate.capabilities import Group
from capstate.digest import Domain, fingerprint
from capstate.errors import InvalidInputError, LedgerUnavailableError, Reason
from capstate.ledger import Outcome, Stored, verify
from tests.runtime.stage import (
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
    tools,
)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def holed(stage: Stage, kind: str) -> None:
    """Destroy the first entry of a kind, while nobody has the session open; the last of a chain would be a tail."""
    spoil(stage, "s", next(entry.sequence for entry in entries(stage) if entry.kind == kind))


def test_a_torn_tail_is_cut_and_reported(stage: Stage) -> None:
    """The next receipt says so, and nothing else changes."""
    session = stage.session()
    session.reproject()
    crash(session)
    rows = storage(stage)._storage.rows["s"]
    torn = b'{"at":1,"bo'
    rows.append(Stored(len(rows), torn, fingerprint(Domain.ENTRY, torn)))
    session = stage.session()
    receipt = session.reproject().receipt

    assert "recovered_tail" in receipt.kinds
    assert receipt.body["damage"] == ["tail"]
    assert refused(session, "git/push") is None
    assert session.reproject().receipt == receipt


def test_after_a_hole_external_calls_wait_for_a_named_person(stage: Stage) -> None:
    """Reads go on; the receipt says that there is a hole; accepting it needs a name and a hole."""
    session = stage.session()
    session.note({})
    session.note({})
    session.close()
    holed(stage, "note")
    session = stage.session()
    receipt = session.reproject().receipt

    assert "recovered_hole" in receipt.kinds
    assert refused(session, "git/push") is Reason.SESSION_READ_ONLY
    assert refused(session, "git/log") is None
    with pytest.raises(InvalidInputError):
        session.accept_damage(by="")
    session.accept_damage(by="ann")
    assert refused(session, "git/push") is None
    with pytest.raises(InvalidInputError):
        session.accept_damage(by="ann")
    session.close()
    assert refused(stage.session(), call("git/push", "c2")) is None


def test_what_adds_behind_a_hole_counts_for_nothing(stage: Stage) -> None:
    """Grants, approvals and loads given behind it: not before it is accepted, and not after."""
    stage.default = [allow("git/log"), ask("git/sync")]
    stage.groups.append(Group("more", tools()))
    session = stage.session()
    session.note({})
    session.note({})
    session.close()
    holed(stage, "note")
    session = stage.session()
    session.grant("git/push", by="ann")
    session.load("more")
    assert refused(session, "git/push") is Reason.NOT_AUTHORISED
    assert session.explain("more/log")["loaded"] is False
    session.accept_damage(by="bob")
    assert refused(session, "git/push") is Reason.NOT_AUTHORISED
    assert session.explain("more/log")["loaded"] is False
    assert refused(session, "git/sync") is Reason.NEEDS_APPROVAL
    session.grant("git/push", by="ann")

    assert refused(session, "git/push") is None


def test_what_was_before_the_hole_still_counts(stage: Stage) -> None:
    """Loads and grants that the chain still proves."""
    stage.default = []
    session = stage.session()
    session.grant("git/log", by="ann")
    session.note({})
    session.note({})
    session.close()
    holed(stage, "note")

    assert refused(stage.session(), "git/log") is None


def test_what_takes_away_counts_behind_a_hole(stage: Stage) -> None:
    """A deny, an unload, an operation that was started: all of them."""
    session = stage.session()
    session.note({})
    session.deny("git/sync", by="ann")
    session.unload("git/log")
    started(session, call("git/push", "c0"))
    crash(session)
    holed(stage, "note")
    session = stage.session()
    session.accept_damage(by="ann")

    assert refused(session, "git/sync") is Reason.NOT_AUTHORISED
    assert refused(session, "git/log") is Reason.NOT_LOADED
    assert refused(session, call("git/push", "c1")) is Reason.OUTCOME_UNKNOWN


def test_an_approval_behind_a_hole_counts_for_nothing(stage: Stage) -> None:
    """A read that waits for approval can be approved again once the damage is accepted, not before."""
    stage.default = [ask("git/log")]
    session = stage.session()
    session.note({})
    session.note({})
    session.close()
    holed(stage, "note")
    session = stage.session()
    session.approve(call("git/log"), by="ann")
    assert refused(session, "git/log") is Reason.NEEDS_APPROVAL
    session.accept_damage(by="ann")
    assert refused(session, "git/log") is Reason.NEEDS_APPROVAL
    session.approve(call("git/log"), by="ann")

    assert refused(session, "git/log") is None


def test_a_destroyed_grant_is_gone_a_destroyed_deny_is_seen_as_damage(stage: Stage) -> None:
    """Nothing tells what was in the hole: external calls wait, because it may have been a deny."""
    session = stage.session()
    session.deny("git/push", by="ann")
    session.note({})
    session.note({})
    session.close()
    holed(stage, "grant")

    assert refused(stage.session(), "git/push") is Reason.SESSION_READ_ONLY


def test_what_was_settled_behind_a_hole_waits_for_reconciliation(stage: Stage) -> None:
    """An operation started before it and settled after it is unsettled, until somebody says how it ended."""
    session = stage.session()
    permit = started(session, "git/push")
    session.note({})
    permit.settle()
    session.close()
    holed(stage, "note")
    session = stage.session()
    session.accept_damage(by="ann")

    assert [op.settled for op in session.operations] == [False]
    assert refused(session, call("git/push", "c2")) is Reason.OUTCOME_UNKNOWN
    session.reconcile(str(permit.operation), outcome="ok", by="ann", evidence="ticket-7")
    assert [(op.settled, op.evidence) for op in session.operations] == [(True, "ticket-7")]
    assert refused(session, call("git/push", "c2")) is None


def test_reconciling_comes_before_or_after_accepting(stage: Stage) -> None:
    """A named person's word on an operation counts behind a hole as well."""
    session = stage.session()
    permit = started(session, "git/push")
    session.note({})
    permit.settle()
    session.close()
    holed(stage, "note")
    session = stage.session()
    session.reconcile(str(permit.operation), outcome="ok", by="ann")
    session.accept_damage(by="ann")

    assert refused(session, call("git/push", "c2")) is None


def test_totals_behind_a_hole_count(stage: Stage) -> None:
    """The largest total anywhere is what was used."""
    session = stage.session(limits=Limits(calls=3))
    for n in range(3):
        run(session, call("git/log", f"c{n}"))
    session.close()
    spoil(stage, "s", next(e.sequence for e in entries(stage) if e.kind == "started"))
    del storage(stage)._storage.pools["s"]

    assert refused(stage.session(), "git/log") is Reason.LIMIT_EXCEEDED


def test_a_lost_opening_opens_nothing(stage: Stage) -> None:
    """Without its first entry a chain has no holder and no restriction: nothing may be called."""
    session = stage.session()
    session.close()
    spoil(stage, "s", 0)
    session = stage.runtime().session("s")

    assert refused(session, "git/log") is Reason.POLICY_MISSING
    assert session.reproject().surface.callable == {}


def test_damage_of_the_holder_is_damage(stage: Stage) -> None:
    """Its chain may have held a deny; the session accepts for both chains."""
    session = stage.session(holder="ann")
    session.deny("git/sync", by="ann")
    session.grant("git/log", by="ann")
    session.close()
    spoil(stage, "ann", 1)
    session = stage.session()

    assert refused(session, "git/push") is Reason.SESSION_READ_ONLY
    session.accept_damage(by="ann")
    assert refused(session, "git/push") is None
    assert kinds(stage, "ann")[-1] == "accepted"


def test_damage_of_an_ancestor_is_accepted_there(stage: Stage) -> None:
    """The child's external calls wait for it."""
    session = stage.session()
    session.note({})
    session.spawn("k", want=["*"]).close()
    session.close()
    holed(stage, "note")
    session = stage.session()
    child = session.child("k")
    assert refused(child, "git/push") is Reason.SESSION_READ_ONLY
    assert refused(child, "git/log") is None
    with pytest.raises(InvalidInputError):
        child.accept_damage(by="ann")
    session.accept_damage(by="ann")

    assert refused(child, "git/push") is None


def test_a_rollback_under_a_living_session_is_seen_and_kept(stage: Stage) -> None:
    """The deny that was cut off still holds here; the chain says from then on that something is missing."""
    session = stage.session()
    session.reproject()
    session.deny("git/sync", by="ann")
    cut(stage, "s", 1)

    assert refused(session, "git/sync") is Reason.NOT_AUTHORISED
    assert refused(session, "git/push") is Reason.SESSION_READ_ONLY
    receipt = session.reproject().receipt
    assert "recovered_hole" in receipt.kinds
    session.close()
    session = stage.session()
    assert refused(session, "git/push") is Reason.SESSION_READ_ONLY
    session.accept_damage(by="ann")
    assert refused(session, "git/push") is None


def test_a_rollback_behind_an_acceptance_is_damage_again(stage: Stage) -> None:
    """What was accepted once was another loss."""
    session = stage.session()
    session.note({})
    session.note({})
    session.close()
    holed(stage, "note")
    session = stage.session()
    session.accept_damage(by="ann")
    assert refused(session, "git/push") is None
    cut(stage, "s", 3)

    assert refused(session, call("git/push", "c2")) is Reason.SESSION_READ_ONLY
    session.accept_damage(by="ann")
    assert refused(session, call("git/push", "c2")) is None
    session.close()
    assert refused(stage.session(), call("git/push", "c3")) is None


def test_a_chain_that_is_gone_is_a_ledger_that_is_gone(stage: Stage) -> None:
    """A living session whose chain was deleted raises; it does not begin anew."""
    session = stage.session()
    del storage(stage)._storage.rows["s"]
    storage(stage)._storage.changes += 1
    for act in (session.reproject, lambda: run(session, "git/log")):
        with pytest.raises(LedgerUnavailableError):
            act()


def test_a_bad_receipt_bricks_nothing(stage: Stage) -> None:
    """Its blobs are gone or other bytes: the next receipt has a lower audit outcome, and the surface is the same."""
    session = stage.session()
    before = sorted(session.reproject().surface.callable)
    session.close()
    for digest in storage(stage)._storage.blobs:
        storage(stage)._storage.blobs[digest] = b"[]"
    session = stage.session()
    epoch = session.reproject()

    assert epoch.receipt.body["audit"].startswith("broken")
    assert sorted(epoch.surface.callable) == before
    assert refused(session, "git/push") is None


def test_every_receipt_may_go(stage: Stage) -> None:
    """A chain without its receipts derives the same surface (only pins and sources are remembered elsewhere)."""
    session = stage.session()
    session.reproject()
    session.grant("git/log", by="ann")
    expected = sorted(session.surface.callable)
    session.close()
    storage(stage)._storage.blobs.clear()

    assert sorted(stage.session().reproject().surface.callable) == expected


def test_a_head_kept_elsewhere_shows_a_rollback(stage: Stage) -> None:
    """The chain alone looks intact after its tail was cut; against the head it is rolled back, or forked."""
    session = stage.session()
    session.deny("git/push", by="ann")
    session.close()
    head = entries(stage)[-1].head
    cut(stage, "s", 1)
    assert verify(storage(stage), "s").outcome is Outcome.INTACT_UNANCHORED
    assert verify(storage(stage), "s", head=head).outcome is Outcome.ROLLED_BACK
    session = stage.session()
    session.note({})

    assert verify(storage(stage), "s", head=head).outcome is Outcome.FORKED
