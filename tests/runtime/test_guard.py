"""The one gate: by which name, in which order of reasons, what is written, how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capstate.authority import allow, ask, deny
from capstate.capabilities import Group, NameRule, Tool
from capstate.epochs import NO_PROFILE
from capstate.errors import (
    InvalidInputError,
    LedgerUnavailableError,
    NeedsApproval,
    Reason,
    Refused,
    SessionClosedError,
)
from capstate.ledgers.memory import MemoryLedger
from capstate.projection import Issuer, Profile
from capstate.trace import Call
from tests.runtime.stage import Stage, Wrapped, call, crash, entries, kinds, refused, run, started, tools


@pytest.fixture
def stage() -> Stage:
    return Stage()


# -- names


def test_a_call_names_a_tool_by_wire_name_or_qualified_id(stage: Stage) -> None:
    """By exact bytes; nothing is folded, trimmed or guessed."""
    session = stage.session()
    for name in ("git/log", "git__log"):
        assert refused(session, name) is None
    for name in ("log", "Git__log", "git__log ", "git_log", "git/log/", "git//log", "", "git/*", "*", "git/LOG"):
        assert refused(session, name) is Reason.UNKNOWN_TOOL


@pytest.mark.parametrize("name", [None, 7, ["git/log"], {"a": 1}, b"git/log"], ids=repr)
def test_a_name_that_is_no_text_is_no_call(name: object) -> None:
    """Also one that cannot be hashed: the call is refused when it is made, and no session sees it."""
    with pytest.raises(InvalidInputError, match=r"call\.tool: expected text"):
        Call("c1", name)  # type: ignore[arg-type]


def test_a_wire_name_that_spells_another_tools_qualified_id_reaches_neither(stage: Stage) -> None:
    """A lax tool that calls itself ``git/push`` on the wire cannot be taken for it, and does not hide it."""
    stage.groups = [Group("git", tools()), Group("lax", [Tool("x", effect="read", wire_name="git/push")])]
    stage.default = [allow("*")]
    session = stage.session(on="*")
    session.reproject(provider=Profile(Issuer("p", "a", "m"), None, names=NameRule(chars="A-Za-z0-9_/-")))  # type: ignore[arg-type]

    assert refused(session, "git/push") is Reason.NAME_CONFLICT
    assert refused(session, "git__push") is None
    assert refused(session, "lax/x") is None


def test_the_name_of_another_provider_is_no_name(stage: Stage) -> None:
    """Wire names are those of the last projection."""
    short = Profile(Issuer("p", "a", "m"), None, names=NameRule(limit=19, chars="a-z0-9_"))  # type: ignore[arg-type]
    stage.groups = [Group("G", [Tool("log", effect="read")])]
    stage.default = ["*"]
    session = stage.session(on="*")
    wire = str(session.reproject(provider=short).projection.immediate[0].wire)
    assert refused(session, wire) is None
    session.reproject(provider=NO_PROFILE)

    assert refused(session, wire) is Reason.UNKNOWN_TOOL
    assert refused(session, "G__log") is None


def test_a_withheld_tool_is_known_by_its_wire_name_too(stage: Stage) -> None:
    """The reason is the tool's own, not that it is unknown."""
    stage.default = ["git/log"]
    session = stage.session()

    assert refused(session, "git__push") is Reason.NOT_AUTHORISED


# -- reasons


def test_reasons_come_in_order(stage: Stage) -> None:
    """Every reason that a tool has is cured in turn; the next one shows each time."""
    stage.default = []
    stage.groups = [Group("git", [Tool("push", wire_name="a b")], up=False)]
    session = stage.runtime().session("s")
    seen = [refused(session, "git/nothing"), refused(session, "git/push")]
    stage.groups = [Group("git", [Tool("push")], up=False)]
    seen.append(refused(session, "git/push"))
    stage.default = [allow("git/push", pin=[("git/push", "b3:other")])]
    seen.append(refused(session, "git/push"))
    stage.groups = [Group("git", [Tool("push")])]
    seen.append(refused(session, "git/push"))
    stage.default = ["git/push", ask("git/push")]
    seen.append(refused(session, "git/push"))
    session.load("git")
    seen.append(refused(session, "git/push"))
    session.approve(call("git/push"), by="ann")
    permit = started(session, "git/push")
    seen.append(refused(session, call("git/push", "c2")))
    permit.settle()

    assert seen == [
        Reason.UNKNOWN_TOOL,
        Reason.NAME_UNREPRESENTABLE,
        Reason.NOT_AUTHORISED,
        Reason.RESOURCE_UNAVAILABLE,
        Reason.SCHEMA_CHANGED,
        Reason.NOT_LOADED,
        Reason.NEEDS_APPROVAL,
        Reason.OUTCOME_UNKNOWN,
    ]


def test_a_refusal_is_one_result_that_names_no_tool(stage: Stage) -> None:
    """The result's text and form hold no tool, group, source or rule; the outcome says whether policy said no."""
    stage.sources["secret-policy"] = lambda _: [deny("git/push", id="secret-rule")]
    session = stage.session()
    session.unload("git/log")
    outcomes = {"git__push": "denied", "git__log": "not_run", "git__nothing": "not_run"}
    for name, outcome in outcomes.items():
        with pytest.raises(Refused) as no, session.guard(call(name)):
            pass
        result = no.value.result
        assert (no.value.outcome, str(result.outcome), result.result_for) == (outcome, outcome, "c1")
        text = result.text + repr(result)
        assert not any(word in text for word in ("git", "push", "log", "secret"))


def test_refusals_are_counted_and_the_first_of_each_kind_is_written_at_once(stage: Stage) -> None:
    """The others come with the next append; nothing is lost at close, and an epoch begins a new count."""
    stage.default = ["git/log"]
    session = stage.session()
    session.reproject()
    for _ in range(3):
        refused(session, "git/push")
    assert [e.body["counts"] for e in entries(stage) if e.kind == "refused"] == [[["git/push", "not_authorised", 1]]]
    session.note({})
    refused(session, "git/push")
    session.close()

    counts = [e.body["counts"] for e in entries(stage) if e.kind == "refused"]
    assert counts == [[["git/push", "not_authorised", n]] for n in (1, 2, 1)]
    session = stage.session()
    session.reproject()
    refused(session, "git/push")
    assert kinds(stage)[-1] == "refused"


def test_unknown_names_do_not_fill_the_ledger(stage: Stage) -> None:
    """A model that invents names is counted under none of them."""
    session = stage.session()
    session.reproject()
    before = len(kinds(stage))
    for n in range(50):
        refused(session, call(f"invented/{n}"))

    assert len(kinds(stage)) == before + 1
    assert len(session._refused) == 1


# -- what a call reaches


@pytest.fixture
def bridged(stage: Stage) -> Stage:
    bridge = Tool("bridge", effect="read", reaches="tool")
    again = Tool("again", effect="read", reaches="to")
    loader = Tool("load", effect="read", reaches="tool", loads=True)
    stage.groups = [Group("git", tools(bridge=bridge, again=again)), Group("sys", [loader]), Group("more", [Tool("x")])]
    stage.default = ["git/*", "sys/*", "more/*", deny("git/push")]
    return stage


def test_what_a_bridge_reaches_is_judged_too(bridged: Stage) -> None:
    """By wire name or id; the permit holds the definition that may run; an external inner tool makes it external."""
    session = bridged.session()
    assert refused(session, call("git/bridge", tool="git/push")) is Reason.NOT_AUTHORISED
    assert refused(session, call("git/bridge", tool="git__push")) is Reason.NOT_AUTHORISED
    assert refused(session, call("git/bridge", tool="more/x")) is Reason.NOT_LOADED
    assert refused(session, call("git/bridge", tool="nothing")) is Reason.UNKNOWN_TOOL
    permit = run(session, call("git/bridge", tool="git__log"))
    assert permit.inner is not None
    assert (permit.inner.qualified, permit.operation) == ("git/log", None)
    assert run(session, call("git/bridge", "c2", tool="git/sync")).operation is not None


@pytest.mark.parametrize(
    "named", [["git/push"], ["git/log", "git/push"], ("git/log", "git/push"), [["git/push"]]], ids=repr
)
def test_every_tool_of_a_list_is_judged(bridged: Stage, named: object) -> None:
    """One that may not is enough."""
    assert refused(bridged.session(), call("git/bridge", tool=named)) is not None


@pytest.mark.parametrize("named", [7, None, True, {"name": "git/log"}, [7], 1.5, [], "", ["git/log", 7]], ids=repr)
def test_what_cannot_be_told_is_refused(bridged: Stage, named: object) -> None:
    """An argument that names a tool in some other form is not let through unseen."""
    assert refused(bridged.session(), call("git/bridge", tool=named)) is Reason.UNKNOWN_TOOL


def test_a_bridge_that_names_nothing_cannot_be_told(bridged: Stage) -> None:
    """Without its argument it may reach what it likes; a loader without one loads nothing."""
    session = bridged.session(on=("git", "sys"))
    assert refused(session, "git/bridge") is Reason.UNKNOWN_TOOL
    assert refused(session, call("git/bridge", arguments={"tool": "git/log"})) is Reason.UNKNOWN_TOOL
    assert run(session, "sys/load").reached == ()
    assert run(session, call("sys/load", "c2", tool=[])).reached == ()


@pytest.mark.parametrize(
    "arguments",
    [
        {"to": "git/log"},
        {"to": "git/push"},
        {"deep": [{"to": "git/log"}]},
        {"to": "git/log", "arguments": json.dumps({"to": "git/push"})},
        json.dumps({"to": "git/log"}),
        None,
    ],
    ids=["in sight", "denied", "deeper", "decoy", "text", "nothing"],
)
def test_a_bridge_behind_a_bridge_cannot_be_told(bridged: Stage, arguments: object) -> None:
    """Nothing says where the arguments of the inner one stand: what is in sight may be a decoy."""
    session = bridged.session(on=("git", "sys"))
    for inner in ("git/again", "git/bridge", "git__again", "sys/load"):
        assert refused(session, call("git/bridge", tool=inner, arguments=arguments)) is Reason.UNKNOWN_TOOL
    assert run(session, call("sys/load", tool="git/again")).operation is None


def test_a_loader_may_name_what_is_not_loaded(bridged: Stage) -> None:
    """A tool, a group, or all of a group: authorised is enough; it runs nothing but itself."""
    session = bridged.session(on="sys")
    for name in ("more/x", "more__x", "more", "more/*", ["more/x", "git/log"]):
        assert run(session, call("sys/load", tool=name)).operation is None
    for name, reason in {"git/push": Reason.NOT_AUTHORISED, "nothing": Reason.UNKNOWN_TOOL}.items():
        assert refused(session, call("sys/load", tool=name)) is reason
    bridged.default.remove("more/*")
    assert refused(session, call("sys/load", tool="more")) is Reason.NOT_AUTHORISED


def test_an_ask_of_the_inner_tool_is_an_ask(bridged: Stage) -> None:
    """The call through the bridge waits as the direct one would."""
    bridged.default.append(ask("git/log"))
    session = bridged.session()
    through = call("git/bridge", tool="git/log")
    assert refused(session, through) is Reason.NEEDS_APPROVAL
    session.approve(through, by="ann")

    assert refused(session, call("git/bridge", tool="git/sync")) is None
    assert refused(session, through) is None


def test_an_idempotent_bridge_makes_nothing_idempotent(bridged: Stage) -> None:
    """A repeat is safe only if everything that may have an effect says so."""
    bridge = Tool("bridge", effect="read", reaches="tool", idempotent=True)
    bridged.groups = [Group("git", tools(bridge=bridge, put=Tool("put")))]
    session = bridged.session()
    started(session, call("git/bridge", tool="git/put"))
    started(session, call("git/bridge", "c2", tool="git/sync"))

    assert refused(session, call("git/bridge", "c3", tool="git/put")) is Reason.OUTCOME_UNKNOWN
    assert refused(session, call("git/bridge", "c4", tool="git/sync")) is None


# -- how calls end


def test_a_start_is_durable_before_the_permit(stage: Stage) -> None:
    """The entry is there when the body begins; an outcome when it ends."""
    session = stage.session()
    with session.guard(call("git/push")) as permit:
        assert kinds(stage)[-1] == "started"
        assert permit.settle("result", evidence="e-1") == "result"
        assert kinds(stage)[-1] == "settled"

    assert [(op.outcome, op.evidence) for op in session.operations] == [("ok", "e-1")]


def test_left_unsettled_a_read_is_an_error_an_external_call_unknown(stage: Stage) -> None:
    """Also when the body raises; the exception goes through."""
    session = stage.session()
    for name, outcome in (("git/log", "error"), ("git/push", "outcome_unknown")):
        with pytest.raises(ZeroDivisionError), session.guard(call(name)) as permit:
            raise ZeroDivisionError
        assert str(permit.outcome) == outcome
    with session.guard(call("git/sync")) as permit:
        pass
    assert permit.outcome == "outcome_unknown"


def test_nothing_was_sent_is_cancelled_and_may_be_repeated(stage: Stage) -> None:
    """The body says so, whether it fails then or not; an equal call may start."""
    session = stage.session()
    permit = started(session, call("git/push"))
    permit.not_sent()

    assert permit.outcome == "cancelled"
    assert refused(session, call("git/push", "c2")) is None


def test_a_call_is_settled_once(stage: Stage) -> None:
    """A second word on it is a mistake, for a read and for an external call."""
    session = stage.session()
    for name in ("git/log", "git/push"):
        with session.guard(call(name)) as permit:
            permit.settle()
            for again in (permit.settle, permit.not_sent):
                with pytest.raises(InvalidInputError):
                    again()
        with pytest.raises(InvalidInputError):
            permit.settle(outcome="error")
    assert kinds(stage).count("settled") == 1


@pytest.mark.parametrize("wrong", [{"outcome": "fine"}, {"outcome": None}, {"evidence": 7}], ids=str)
def test_a_settlement_that_makes_no_sense_settles_nothing(stage: Stage, wrong: dict[str, Any]) -> None:
    """The call is still running afterwards."""
    session = stage.session()
    permit = started(session, "git/push")
    with pytest.raises(InvalidInputError):
        permit.settle(**wrong)
    assert permit.outcome is None
    permit.settle()


def test_a_gate_is_for_one_use(stage: Stage) -> None:
    """Entering it twice would start the call twice."""
    gate = stage.session().guard(call("git/log"))
    with gate:
        pass
    with pytest.raises(InvalidInputError), gate:
        pass


def test_closing_settles_what_runs(stage: Stage) -> None:
    """What nobody settled is unknown; a word that comes later is refused."""
    session = stage.session()
    read, external = started(session, call("git/log")), started(session, call("git/push"))
    session.close()

    assert external.outcome == "outcome_unknown"
    with pytest.raises(InvalidInputError):
        external.settle()
    read.settle()
    for act in (
        lambda: run(session, "git/log"),
        session.reproject,
        lambda: session.load("git"),
        lambda: session.surface,
    ):
        with pytest.raises(SessionClosedError):
            act()
    assert refused(stage.session(), call("git/push", "c2")) is Reason.OUTCOME_UNKNOWN


def test_a_revocation_while_the_call_runs_lets_it_end(stage: Stage) -> None:
    """It was authorised when it started; it settles, and the next one is refused."""
    session = stage.session()
    with session.guard(call("git/push")) as permit:
        stage.runtime().deny("s", "git/*", by="ann")
        permit.settle()

    assert permit.outcome == "ok"
    assert refused(session, call("git/push", "c2")) is Reason.NOT_AUTHORISED


def test_an_equal_external_call_waits_whatever_its_id(stage: Stage) -> None:
    """Equal is the same tool with the same canonical arguments; a read may be repeated at any time."""
    session = stage.session()
    started(session, call("git/push", "c1", a=1, b=2))

    assert refused(session, call("git/push", "c9", b=2, a=1)) is Reason.OUTCOME_UNKNOWN
    assert refused(session, call("git__push", "c9", b=2, a=1)) is Reason.OUTCOME_UNKNOWN
    assert refused(session, call("git/push", "c9", a=1)) is None
    started(session, call("git/log", "c1"))
    assert refused(session, call("git/log", "c2")) is None


def test_an_idempotent_call_is_repeated_under_its_operation(stage: Stage) -> None:
    """After a crash as well: one operation id, and one settlement settles it."""
    session = stage.session()
    first = started(session, call("git/sync", "c1"))
    crash(session)
    session = stage.session()
    again = run(session, call("git/sync", "c2"))

    assert again.operation == first.operation
    assert [op.settled for op in session.operations] == [True]


def test_a_crash_leaves_an_unknown_outcome_until_it_is_reconciled(stage: Stage) -> None:
    """Nothing but a named person's word, or the tool's side through them, settles it."""
    session = stage.session()
    permit = started(session, call("git/push"))
    crash(session)
    session = stage.session()
    assert refused(session, call("git/push", "c2")) is Reason.OUTCOME_UNKNOWN
    faults: list[dict[str, Any]] = [{"outcome": "ok", "by": ""}, {"outcome": "fine", "by": "ann"}]
    for wrong in faults:
        with pytest.raises(InvalidInputError):
            session.reconcile(str(permit.operation), **wrong)
    session.reconcile(str(permit.operation), outcome="outcome_unknown", by="ann")
    assert refused(session, call("git/push", "c2")) is Reason.OUTCOME_UNKNOWN
    session.reconcile(str(permit.operation), outcome="not_run", by="ann")
    with pytest.raises(InvalidInputError):
        session.reconcile(str(permit.operation), outcome="ok", by="ann")

    assert refused(session, call("git/push", "c2")) is None


def test_a_reconciled_call_keeps_its_outcome_when_its_body_cannot_tell(stage: Stage) -> None:
    """The tool's side was asked while the body still waited: left unsettled it says nothing, settled it does."""
    session = stage.session()
    for id_, settle, outcome in (("c1", False, "ok"), ("c2", True, "error")):
        with session.guard(call("git/push", id_, id=id_)) as permit:
            session.reconcile(str(permit.operation), outcome="ok", by="ann")
            if settle:
                permit.settle(outcome="error")
        assert session._live.state.operations[str(permit.operation)].outcome == outcome
    assert all(op.settled for op in session.operations)


def test_a_ledger_that_fails_at_the_end_leaves_the_operation_unsettled(stage: Stage) -> None:
    """The error goes through, the permit can be settled again, and nothing pretends that it was."""
    storage = MemoryLedger()
    broken = [False]

    def append(*args: object, **more: object) -> object:
        if broken[0]:
            raise LedgerUnavailableError("the disk is full")
        return MemoryLedger.append(storage, *args, **more)  # type: ignore[arg-type]

    session = stage.runtime(Wrapped(storage, append=append)).session("s")
    session.load("git")
    permit = started(session, "git/push")
    broken[0] = True
    with pytest.raises(LedgerUnavailableError):
        permit.settle()
    with pytest.raises(LedgerUnavailableError), session.guard(call("git/push", "c2", other=1)):
        pytest.fail("it started without an entry")
    broken[0] = False
    assert permit.outcome is None
    permit.settle()
    assert [op.settled for op in session.operations] == [True]


def test_arguments_that_are_not_json_start_nothing_external(stage: Stage) -> None:
    """They have no canonical form, so no operation could stand for the call."""
    session = stage.session()
    before = kinds(stage)
    with pytest.raises(InvalidInputError), session.guard(call("git/push", x=float("nan"))):
        pytest.fail("it started")

    assert kinds(stage) == before


def test_needing_approval_is_no_refusal(stage: Stage) -> None:
    """It says which call waits, and who decided."""
    stage.default = [allow("git/*"), ask("git/push", id="careful")]
    with pytest.raises(NeedsApproval) as waits, stage.session().guard(call("git/push")):
        pass

    assert waits.value.decided_by == "config#careful"
