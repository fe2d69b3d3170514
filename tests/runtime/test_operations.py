"""Operations of a session: prepared, started, observed, recorded; a crash at each place, and what recovery does."""

from __future__ import annotations

from typing import Any

import pytest

from capstate.authority import ask, deny
from capstate.capabilities import Group, Tool
from capstate.effects import Action, Answer, Operation, OperationState
from capstate.errors import InvalidInputError, NeedsApproval, Reason, Refused
from capstate.runtime import Session
from tests.runtime.stage import Stage, call, crash, kinds, refused, run, started, tools


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.groups = [Group("git", tools(put=Tool("put", idempotent=True)))]
    stage.default = ["git/*"]
    return stage


def known(session: Session, id_: str) -> Operation:
    return next(op for op in session.operations if op.id == id_)


def again(stage: Stage, session: Session) -> Session:
    """The process dies; another one resumes."""
    crash(session)
    return stage.runtime().session(session.id)


def test_an_operation_goes_through_its_states_under_one_id(stage: Stage) -> None:
    """Each is durable before what it allows is done."""
    session = stage.session()
    made = call("git/push", x=1)
    prepared = session.prepare(made)
    assert known(session, prepared).state is OperationState.PREPARED
    permit = started(session, made)
    assert permit.operation == prepared
    assert known(session, prepared).state is OperationState.EXECUTING
    permit.observe(evidence="E1")
    assert (known(session, prepared).state, known(session, prepared).settled) == (OperationState.OBSERVED, True)
    permit.settle()

    assert (known(session, prepared).state, known(session, prepared).evidence) == (OperationState.COMMITTED, "E1")
    assert kinds(stage)[-4:] == ["prepared", "started", "observed", "settled"]


def test_a_prepared_call_starts_once_and_nobody_elses(stage: Stage) -> None:
    """Also after a crash: the same call starts it under its id, an equal one of another id does not."""
    session = stage.session()
    prepared = session.prepare(call("git/push", x=1))
    assert session.prepare(call("git/push", x=1)) == prepared
    session = again(stage, session)

    assert refused(session, call("git/push", "other", x=1)) is Reason.OUTCOME_UNKNOWN
    assert run(session, call("git/push", x=1)).operation == prepared
    assert kinds(stage).count("prepared") == 1


def test_what_may_not_start_cannot_be_prepared(stage: Stage) -> None:
    """Refused as the guard refuses; waiting for approval is no reason, and uses none up."""
    stage.default = ["git/*", ask("git/push"), deny("git/sync")]
    session = stage.session()
    with pytest.raises(Refused):
        session.prepare(call("git/sync"))
    with pytest.raises(InvalidInputError, match="outside effect"):
        session.prepare(call("git/log"))
    made = call("git/push", x=1)
    prepared = session.prepare(made)
    with pytest.raises(NeedsApproval), session.guard(made):
        pass
    session.approve(made, by="ann")

    assert run(session, made).operation == prepared


def test_left_unsettled_it_is_still_executing(stage: Stage) -> None:
    """What nobody can tell is no end."""
    session = stage.session()
    with session.guard(call("git/push", x=1)) as permit:
        pass
    assert permit.operation is not None

    left = known(session, permit.operation)
    assert (left.state, left.outcome, left.settled) == (OperationState.EXECUTING, "outcome_unknown", False)


@pytest.mark.parametrize("outcome", ["ok", "error", "cancelled"])
def test_what_was_observed_is_what_is_settled(stage: Stage, outcome: Any) -> None:
    """Leaving the block settles so; another outcome is refused; twice is refused."""
    session = stage.session()
    with session.guard(call("git/push", x=1)) as permit:
        permit.observe(outcome=outcome)
        with pytest.raises(InvalidInputError, match="observed"):
            permit.settle(outcome="not_run")
        with pytest.raises(InvalidInputError, match="observed once"):
            permit.observe(outcome=outcome)
    assert permit.outcome == outcome
    with pytest.raises(InvalidInputError, match="outcome"), session.guard(call("git/push", "c2", x=2)) as permit:
        permit.observe(outcome="outcome_unknown")


def asked_of(stage: Stage, says: Answer | None) -> tuple[Session, dict[str, str], list[str]]:
    """A session that crashed with operations in every state; what each is called, and which were asked after."""
    session = stage.session()
    ids = {"prepared": session.prepare(call("git/push", "p", x=1))}
    for name, tool in (("make", "git/push"), ("put", "git/put"), ("seen", "git/sync")):
        permit = started(session, call(tool, name, x=name))
        ids[name] = str(permit.operation)
        if name == "seen":
            permit.observe(evidence="E4")
    run(session, call("git/sync", "over", x="over"))
    session = again(stage, session)
    asked: list[str] = []

    def tool_side(operation: Operation) -> Answer | None:
        asked.append(operation.call)
        return says

    steps = {step.operation.id: step.action for step in session.recover(tool_side, by="recovery")}
    return session, {name: str(steps[id_]) for name, id_ in ids.items()}, asked


CELLS = {
    None: {"prepared": "start", "make": "wait", "put": "retry", "seen": "commit"},
    Answer("outcome_unknown"): {"prepared": "start", "make": "wait", "put": "retry", "seen": "commit"},
    Answer("ok", "E5"): {"prepared": "start", "make": "commit", "put": "commit", "seen": "commit"},
    Answer("not_run"): {"prepared": "start", "make": "retry", "put": "retry", "seen": "commit"},
}


@pytest.mark.parametrize("says", list(CELLS), ids=["nothing", "unknown", "done", "not done"])
def test_recovery_asks_and_then_decides(stage: Stage, says: Answer | None) -> None:
    """Only what may have happened is asked after; what is known to be over is recorded and does not run again."""
    session, actions, asked = asked_of(stage, says)

    assert actions == CELLS[says]
    assert asked == ["make", "put"]
    done = {op.call: op for op in session.operations}
    assert (done["seen"].state, done["seen"].evidence) == (OperationState.COMMITTED, "E4")
    if says == Answer("ok", "E5"):
        assert (done["make"].state, done["make"].evidence) == (OperationState.COMMITTED, "E5")
    may = {
        "prepared": call("git/push", "p", x=1),
        "make": call("git/push", "make", x="make"),
        "put": call("git/put", "put", x="put"),
    }
    for name, made in may.items():
        before = done[made.id].id
        if actions[name] == "wait":
            assert refused(session, made) is Reason.OUTCOME_UNKNOWN
        elif actions[name] in ("start", "retry"):
            assert run(session, made).operation == before


def test_recovery_leaves_what_runs_here_alone(stage: Stage) -> None:
    """A call of this very session that has not ended is nobody's to decide about."""
    session = stage.session()
    permit = started(session, call("git/push", x=1))

    assert session.recover(lambda _: Answer("ok"), by="recovery") == ()
    permit.settle()
    assert session.recover(by="recovery") == ()


def test_what_changed_while_the_tools_side_was_asked_is_not_overwritten(stage: Stage) -> None:
    """A person's answer that came meanwhile stands."""
    session = stage.session()
    id_ = str(started(session, call("git/push", x=1)).operation)
    session = again(stage, session)

    def slow(operation: Operation) -> Answer:
        session.reconcile(operation.id, outcome="error", by="ann")
        return Answer("ok", "E9")

    session.recover(slow, by="recovery")
    assert (known(session, id_).outcome, known(session, id_).evidence) == ("error", None)


def test_a_tool_that_is_no_longer_idempotent_is_not_repeated(stage: Stage) -> None:
    """What counts is the definition of now; one that is gone is not idempotent."""
    session = stage.session()
    started(session, call("git/put", x=1))
    session = again(stage, session)
    for groups in ([Group("git", tools(put=Tool("put")))], []):
        stage.groups = groups
        assert [step.action for step in session.recover(by="r")] == [Action.WAIT]


def test_a_prepared_operation_ends_only_as_not_done(stage: Stage) -> None:
    """A person may give it up; nobody can say that it happened."""
    session = stage.session()
    id_ = session.prepare(call("git/push", x=1))
    with pytest.raises(InvalidInputError, match="never begun"):
        session.reconcile(id_, outcome="ok", by="ann")
    session.reconcile(id_, outcome="not_run", by="ann")

    assert run(session, call("git/push", "other", x=1)).operation != id_


def test_forks_see_operations_and_repeat_none(stage: Stage) -> None:
    """Going back in a conversation undoes nothing: prepared, executing and observed stay with their owner."""
    session = stage.session()
    session.prepare(call("git/push", "p", x=1))
    started(session, call("git/push", "e", x=2))
    started(session, call("git/push", "o", x=3)).observe()
    fork = session.fork("f")

    assert [op.state.value for op in fork.operations] == ["prepared", "executing", "observed"]
    for n in (1, 2, 3):
        assert refused(fork, call("git/push", f"again{n}", x=n)) is Reason.OUTCOME_UNKNOWN
    assert fork.recover(by="r") == ()
