"""Children are cut by their ancestors as these are now; forks take what is lasting and nothing else."""

from __future__ import annotations

import pytest

from capstate.authority import allow, ask, deny
from capstate.capabilities import Group, Tool
from capstate.errors import InvalidInputError, Reason, SessionClosedError, SessionLockedError
from capstate.ledger import Record
from capstate.runtime import Session
from capstate.trace import Message, Role
from tests.runtime.stage import (
    KEY,
    Limits,
    Stage,
    call,
    crash,
    entries,
    forge,
    kinds,
    refused,
    run,
    started,
    storage,
)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def names(session: Session) -> list[str]:
    return sorted(session.surface.callable)


# -- children


def test_a_child_starts_with_its_want_loaded(stage: Stage) -> None:
    """``*`` is all that the parent may; a shorter want is just that."""
    session = stage.session()

    assert names(session.spawn("all", want=["*"])) == ["git/log", "git/push", "git/sync"]
    assert names(session.spawn("one", want=["git/log"])) == ["git/log"]
    assert names(session.spawn("none", want=[])) == []


def test_its_first_receipt_says_what_it_did_not_get(stage: Stage) -> None:
    """It is compared with the want, so a cut shows as narrowed, by the parent."""
    stage.grants["s"] = [allow("git/log")]
    child = stage.session().spawn("k", want=["git/*"])
    receipt = child.reproject().receipt

    assert (receipt.cause, "narrowed" in receipt.kinds) == ("child", True)
    assert receipt.tools("removed") == ["git/push", "git/sync"]
    assert "parent_ceiling" in receipt.reasons


def test_a_parent_that_shrinks_shrinks_its_line_at_once(stage: Stage) -> None:
    """At every depth, at the next call."""
    session = stage.session()
    child = session.spawn("k1", want=["*"])
    grandchild = child.spawn("k2", want=["*"])
    last = grandchild.spawn("k3", want=["*"])
    assert refused(last, "git/log") is None
    stage.grants["s"] = [allow("git/push")]

    for each in (child, grandchild, last):
        assert refused(each, "git/log") is Reason.NOT_AUTHORISED
        assert names(each) == ["git/push"]


def test_each_ancestor_cuts(stage: Stage) -> None:
    """A deny, or an ask, at any level above holds for all below, and for nobody above."""
    session = stage.session()
    child = session.spawn("k1", want=["*"])
    last = child.spawn("k2", want=["*"]).spawn("k3", want=["*"])
    child.deny("git/push", by="ann")
    child.grant("git/sync", by="ann", effect="ask")

    assert refused(last, "git/push") is Reason.NOT_AUTHORISED
    assert refused(last, "git/sync") is Reason.NEEDS_APPROVAL
    assert refused(session, "git/push") is refused(session, "git/sync") is None
    last.approve(call("git/sync"), by="ann")
    assert refused(last, "git/sync") is None


def test_nothing_flows_up_or_sideways(stage: Stage) -> None:
    """A child's loads and grants are its own, and its own allow does not widen its want."""
    stage.default = []
    stage.grants["s"] = [allow("git/*")]
    session = stage.runtime().session("s")
    child, sibling = session.spawn("k", want=["git/log"]), session.spawn("l", want=["git/log"])
    child.load("git")
    child.grant("git/push", by="ann")

    assert names(session) == []
    assert names(child) == names(sibling) == ["git/log"]


def test_a_parent_of_another_process_is_read_from_the_ledger(stage: Stage) -> None:
    """The child asks its own sources for the parent's holder, and folds the parent's entries."""
    session = stage.session(holder="ann")
    session.spawn("k", want=["*"]).close()
    child = stage.runtime().session("k")
    assert refused(child, "git/log") is None
    session.grant("git/log", by="ann", effect="deny")
    assert refused(child, "git/log") is Reason.NOT_AUTHORISED
    stage.grants["ann"] = [allow("git/log")]

    assert refused(child, "git/push") is Reason.NOT_AUTHORISED


def test_what_a_job_gives_the_parent_in_another_process_is_nothing_here(stage: Stage) -> None:
    """A grant until a job ends lives in its writer's process alone: nobody else can know that it still does."""
    stage.default = []
    session = stage.session()
    session.spawn("k", want=["*"]).close()
    job = session.job("one", grants=["git/log"])
    job.__enter__()
    assert refused(session, "git/log") is None

    assert refused(stage.runtime().session("k"), "git/log") is Reason.NOT_AUTHORISED
    job.__exit__(None, None, None)


def test_a_dead_parent_has_not_ended(stage: Stage) -> None:
    """Its process is gone; its authority is what sources and entries say."""
    session = stage.session()
    session.spawn("k", want=["*"]).close()
    crash(session)

    assert refused(stage.runtime().session("k"), "git/log") is None


def test_an_ended_ancestor_gives_nothing(stage: Stage) -> None:
    """Whether its owner ended it or somebody outside did."""
    session = stage.session()
    last = session.spawn("k1", want=["*"]).spawn("k2", want=["*"])
    stage.runtime().end("s", by="ann")

    assert refused(last, "git/log") is Reason.NOT_AUTHORISED
    assert last.explain("git/log")["decided_by"] == "parent: parent!ended"
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    assert session.explain("git/log")["decided_by"] == "ceiling ended"
    assert session.reproject().surface.callable == {}
    session.close()
    with pytest.raises(SessionClosedError):
        stage.runtime().session("s")


def test_an_unreachable_parent_is_nothing(stage: Stage) -> None:
    """Its chain is not there: the child may do nothing, and its limits are none left."""
    session = stage.session()
    session.spawn("k", want=["*"]).close()
    session.close()
    del storage(stage)._storage.rows["s"]
    child = stage.runtime().session("k")

    assert child.explain("git/log")["decided_by"] == "parent!missing"
    assert refused(child, "git/log") is Reason.NOT_AUTHORISED


def test_a_line_that_bites_its_tail_is_nothing(stage: Stage) -> None:
    """Forged openings that make two sessions each other's parent end nowhere, and give nothing."""
    for one, other in (("a", "b"), ("b", "a")):
        forge(
            stage,
            "opened",
            {"holder": one, "kind": "child", "log": "", "parent": other, "root": one, "want": ["*"]},
            one,
        )
    session = stage.session("a")

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    assert session.reproject().surface.callable == {}


def test_a_child_without_its_restriction_may_do_nothing(stage: Stage) -> None:
    """What it asked for at launch was not stored: ``policy_missing``, whatever it loads."""
    session = stage.session()
    session._append(Record("spawned", {"at": None, "call": None, "child": "unknown"}))
    child = session.child("unknown")
    child.load("git")

    assert refused(child, "git/log") is Reason.POLICY_MISSING
    child.close()
    assert refused(session.child("unknown"), "git/log") is Reason.POLICY_MISSING


def test_a_child_resumes_with_its_restriction(stage: Stage) -> None:
    """Through its parent, or by its id: the want of its launch holds, never another one."""
    session = stage.session()
    session.spawn("k", want=["git/log"]).close()
    again = session.child("k")
    assert names(again) == ["git/log"]
    again.close()
    session.close()

    assert names(stage.runtime().session("k")) == ["git/log"]
    assert kinds(stage, "k").count("opened") == 1


def test_a_session_is_nobodys_child_by_asking(stage: Stage) -> None:
    """Resuming something else as a child, or spawning over it, is refused and changes nothing."""
    session, other = stage.session(), stage.session("other")
    other.close()
    before = kinds(stage, "other")
    with pytest.raises(InvalidInputError):
        session.child("other")
    with pytest.raises(InvalidInputError):
        session.spawn("other", want=["*"])
    with pytest.raises(InvalidInputError):
        session.fork("other")

    assert kinds(stage, "other") == before


def test_a_deny_posted_before_a_session_exists_holds_when_it_does(stage: Stage) -> None:
    """The post opens a holder's chain; the session, child or fork of that id still begins as what it is."""
    outside = stage.runtime()
    for id_ in ("s", "k", "f"):
        outside.deny(id_, "git/push", by="ann")
    session = stage.session(holder="bob")
    child, fork = session.spawn("k", want=["*"]), session.fork("f")

    assert session.holder == fork.holder == "bob"
    for each in (session, child, fork):
        assert names(each) == ["git/log", "git/sync"]
    session.close()
    assert stage.session().holder == "bob"


def test_an_opening_counts_once(stage: Stage) -> None:
    """A second one, by whoever, changes neither holder nor restriction."""
    session = stage.session()
    child = session.spawn("k", want=["git/log"])
    forge(stage, "opened", {"holder": "root", "kind": "session", "log": "", "root": "k", "want": None}, "k")

    assert names(child) == ["git/log"]
    assert child.holder == "k"


# -- sessions that were there before


def test_a_session_keeps_its_holder(stage: Stage) -> None:
    """Asked for another one it is refused, before anything is locked or written."""
    session = stage.session(holder="ann")
    session.close()
    before = entries(stage)
    with pytest.raises(InvalidInputError):
        stage.runtime().session("s", holder="bob")
    assert entries(stage) == before

    assert stage.runtime().session("s").holder == "ann"


def test_a_child_has_no_limits_of_its_own(stage: Stage) -> None:
    """They are those of its tree."""
    session = stage.session()
    session.spawn("k", want=["*"]).close()
    with pytest.raises(InvalidInputError):
        stage.runtime().session("k", limits=Limits(calls=9))


def test_a_session_has_one_owner(stage: Stage) -> None:
    """A second one is refused while the first lives, also in the same runtime."""
    session = stage.session()
    with pytest.raises(SessionLockedError):
        stage.runtime().session("s")
    with pytest.raises(SessionLockedError):
        session._runtime.session("s")
    session.close()

    stage.runtime().session("s").close()


def test_an_unsealed_opening_may_do_nothing() -> None:
    """With a key, a chain whose first entry nobody sealed opens a session without authority."""
    stage = Stage(key=KEY)
    forge(stage, "opened", {"holder": "s", "kind": "session", "log": "", "root": "s"})

    assert refused(stage.session(), "git/log") is Reason.POLICY_MISSING


# -- forks


def test_a_fork_has_the_loads_of_its_path(stage: Stage) -> None:
    """Those up to ``at``, and those without a place."""
    stage.groups = [Group(name, [Tool("x", effect="read")]) for name in ("a", "b", "c", "d")]
    stage.default = ["*"]
    session = stage.session(on="a")
    for n, group in enumerate("bcd", 1):
        session.load(group, at=f"e{n}", by="model")
    path = ["e1", "e2", "e3"]

    assert names(session.fork("f1", at="e2", path=path)) == ["a/x", "b/x", "c/x"]
    session.reproject(path=path)
    assert names(session.fork("f2", at="e1")) == ["a/x", "b/x"]
    assert names(session.fork("f3")) == ["a/x", "b/x", "c/x", "d/x"]
    with pytest.raises(InvalidInputError):
        session.fork("f4", at="e9", path=path)


def test_a_fork_of_a_linear_history_has_no_load_from_behind_it(stage: Stage) -> None:
    """Also where some entries were compacted since: those came before. What stood without a place goes along."""
    stage.groups = [Group(name, [Tool("x", effect="read")]) for name in "abcde"]
    stage.default = ["*"]
    session = stage.session(on="a")
    for n, group in enumerate("bcd", 1):
        session.load(group, at=f"e{n}", by="model")
    session.unload("b", at="e4")
    session.load("e")
    session.reproject(history=[Message(f"e{n}", "user") for n in range(2, 6)])

    assert names(session.fork("f1", at="e1")) == ["a/x", "b/x", "e/x"]
    assert names(session.fork("f2", at="e2")) == ["a/x", "b/x", "c/x", "e/x"]
    assert names(session.fork("f3", at="e3")) == ["a/x", "b/x", "c/x", "d/x", "e/x"]
    assert names(session.fork("f4", at="e5")) == names(session.fork("f5")) == ["a/x", "c/x", "d/x", "e/x"]


def test_a_fork_at_an_entry_that_only_a_load_names_ends_there(stage: Stage) -> None:
    """Without a history, what was loaded at other entries afterwards came behind it."""
    stage.groups = [Group(name, [Tool("x", effect="read")]) for name in "abc"]
    stage.default = ["*"]
    session = stage.session(on="a")
    session.load("b", at="e1")
    session.load("c", at="e2")

    assert names(session.fork("f1", at="e1")) == ["a/x", "b/x"]
    assert names(session.fork("f2", at="e2")) == ["a/x", "b/x", "c/x"]


def test_a_fork_is_compared_with_its_origin(stage: Stage) -> None:
    """A revocation since shows in its first receipt, which names origin and head; a crash before it changes nothing."""
    session = stage.session()
    session.reproject()
    stage.default = ["git/log"]
    fork = session.fork("f", at=None)
    crash(fork)
    fork = stage.runtime().session("f")
    receipt = fork.reproject().receipt

    assert receipt.cause == "fork"
    assert receipt.tools("removed") == ["git/push", "git/sync"]
    assert receipt.body["fork"]["session"] == "s"


def test_a_revocation_after_the_fork_reaches_it(stage: Stage) -> None:
    """Persistent grants are the holder's, read live; so is their end. The origin may end."""
    stage.default = []
    session = stage.session()
    grant = session.grant("git/*", by="ann")
    fork = session.fork("f")
    assert refused(fork, "git/log") is None
    session.revoke(grant.id, by="ann")
    assert refused(fork, "git/log") is Reason.NOT_AUTHORISED
    again = session.grant("git/log", by="ann")
    session.end()

    assert refused(fork, "git/log") is None
    fork.revoke(again.id, by="ann")
    assert refused(fork, "git/log") is Reason.NOT_AUTHORISED


def test_forks_of_forks_and_children_of_forks(stage: Stage) -> None:
    """Three deep, each derives from what holds now; a fork of a child is still cut by the parent."""
    session = stage.session()
    second = session.fork("f1").fork("f2")
    child = second.spawn("k1", want=["git/log", "git/push"])
    twin = child.fork("k1f")
    last = twin.spawn("k2", want=["*"])
    assert names(twin) == names(last) == ["git/log", "git/push"]
    second.deny("git/push", by="ann")

    for each in (session, second, child, twin, last):
        assert "git/push" not in names(each)
    stage.runtime().end("f2", by="ann")
    for each in (child, twin, last):
        assert names(each) == []
    assert names(session) == ["git/log", "git/sync"]


def test_a_fork_sees_the_operations_of_its_origin(stage: Stage) -> None:
    """They stay the origin's; an equal call is refused while one is unsettled, then not."""
    session = stage.session()
    settled = run(session, call("git/push", "c0", branch="old"))
    permit = started(session, call("git/push", branch="main"))
    fork = session.fork("f").fork("ff")

    assert {(op.id, op.session) for op in fork.operations} == {(settled.operation, "s"), (permit.operation, "s")}
    assert refused(fork, call("git/push", "c9", branch="main")) is Reason.OUTCOME_UNKNOWN
    assert refused(fork, call("git/push", "c9", branch="other")) is None
    with pytest.raises(InvalidInputError):
        fork.reconcile(str(permit.operation), outcome="ok", by="ann")
    permit.settle()
    assert refused(fork, call("git/push", "c9", branch="main")) is None


def test_an_idempotent_call_of_the_origin_is_not_repeated_by_a_fork(stage: Stage) -> None:
    """The same operation id belongs to the origin: the fork waits."""
    session = stage.session()
    started(session, call("git/sync"))

    assert refused(session.fork("f"), call("git/sync")) is Reason.OUTCOME_UNKNOWN


def test_a_fork_may_grant_while_its_origin_is_open(stage: Stage) -> None:
    """The holder's chain is the origin's, owned by this process; another process is refused, its deny is not."""
    stage.default = []
    session = stage.session()
    fork = session.fork("f")
    fork.grant("git/log", by="ann")
    session.note({"the": "origin goes on"})
    assert refused(fork, "git/log") is refused(session, "git/log") is None
    fork.close()
    other = stage.runtime().session("f")
    with pytest.raises(SessionLockedError):
        other.grant("git/push", by="ann")
    other.deny("git/log", by="ann")

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED


def test_a_fork_honours_no_native_item(stage: Stage) -> None:
    """Loads keep their place; what the provider shows is made anew from them."""
    stage.default = [allow("git/*"), ask("git/push"), deny("git/sync")]
    session = stage.runtime().session("s")
    session.load("git", at="e1", by="model")
    history = [Message("e1", Role.USER, "load it")]
    session.reproject(history=history)
    receipt = session.fork("f").reproject(history=history).receipt

    assert receipt.kinds == ("rederived",)
