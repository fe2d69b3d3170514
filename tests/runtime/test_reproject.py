"""What a projection promises: durable before it is returned, derived again after a post, nothing without a ledger."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from capstate.capabilities import Group, Tool
from capstate.errors import InvalidInputError, LedgerUnavailableError, Reason, StaleWriterError, SurfaceExceededError
from capstate.ledgers.memory import MemoryLedger
from capstate.providers import anthropic, openai_chat
from capstate.trace import Call, Message, Outcome, Role
from tests.runtime.stage import (
    Stage,
    Wrapped,
    call,
    crash,
    entries,
    forge,
    kinds,
    refused,
    run,
    started,
    storage,
    tools,
)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_receipt_is_in_the_ledger_when_the_epoch_is_returned(stage: Stage) -> None:
    """With every blob that it names."""
    session = stage.session()
    receipt = session.reproject("compaction").receipt
    body = entries(stage)[-1].body

    assert (body["digest"], body["receipt"]) == (receipt.digest, dict(receipt.body))
    named = [digest for _, digest in (*receipt.body["state"], *receipt.body["groups"])]
    assert all(storage(stage).blob(digest) is not None for digest in named)


def test_an_append_that_fails_returns_no_epoch(stage: Stage) -> None:
    """The error goes through, and the session goes on from the epoch before."""
    storage_, broken = MemoryLedger(), [False]

    def append(*args: Any, **more: Any) -> Any:
        if broken[0]:
            raise LedgerUnavailableError("the disk is full")
        return storage_.append(*args, **more)

    session = stage.runtime(Wrapped(storage_, append=append)).session("s")
    session.load("git")
    before = session.reproject()
    broken[0] = True
    with pytest.raises(LedgerUnavailableError):
        session.reproject("compaction")
    assert session.receipt == before.receipt
    broken[0] = False

    assert session.reproject("compaction").receipt.body["previous"] == before.receipt.digest


def test_a_post_between_reading_and_appending_is_derived_again(stage: Stage) -> None:
    """The deny that came in that moment is in the epoch that is returned."""
    inner = MemoryLedger()
    stage.ledger = inner
    outside, posted = stage.runtime(), [0]

    def append(*args: Any, **more: Any) -> Any:
        if posted[0] == 0 and more.get("blobs"):
            posted[0] += 1
            outside.deny("s", "git/push", by="ann")
        return inner.append(*args, **more)

    session = stage.runtime(Wrapped(inner, append=append)).session("s")
    session.load("git")
    epoch = session.reproject()

    assert posted == [1]
    assert "git/push" not in epoch.surface.callable
    assert kinds(stage)[-2:] == ["grant", "epoch"]


def test_a_post_between_judging_and_starting_is_judged_again(stage: Stage) -> None:
    """The call that was about to start does not."""
    inner = MemoryLedger()
    stage.ledger = inner
    outside, armed = stage.runtime(), [False]

    def append(*args: Any, **more: Any) -> Any:
        if armed[0]:
            armed[0] = False
            outside.deny("s", "git/push", by="ann")
        return inner.append(*args, **more)

    session = stage.runtime(Wrapped(inner, append=append)).session("s")
    session.load("git")
    armed[0] = True

    assert refused(session, "git/push") is Reason.NOT_AUTHORISED
    assert "started" not in kinds(stage)


def test_posts_without_end_are_no_reason_to_go_on_for_ever(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append that never gets its turn raises in the end, and nothing is handed out."""
    for room in ("session", "gated"):
        monkeypatch.setattr(f"capstate.runtime.{room}.TRIES", 12)
    inner = MemoryLedger()
    stage.ledger = inner
    outside, armed = stage.runtime(), [False]

    def append(*args: Any, **more: Any) -> Any:
        if armed[0]:
            outside.deny("s", "git/none", by="ann")
        return inner.append(*args, **more)

    session = stage.runtime(Wrapped(inner, append=append)).session("s")
    session.load("git")
    armed[0] = True
    for act in (session.reproject, lambda: run(session, "git/push")):
        with pytest.raises(StaleWriterError):
            act()


def test_another_writer_ends_this_one(stage: Stage) -> None:
    """Its lock was lost and somebody else wrote: no projection, no call, not even a read."""
    session = stage.session()
    storage(stage)._storage.owners.clear()  # as when somebody deletes the lock
    other = stage.session()
    other.note({})
    for act in (session.reproject, lambda: run(session, "git/push"), lambda: run(session, "git/log")):
        with pytest.raises(StaleWriterError):
            act()

    assert refused(other, "git/log") is None


def test_a_ledger_that_is_gone_makes_nothing_callable(stage: Stage) -> None:
    """Reads, resident tools, everything raises; messages are not touched."""
    session = stage.session()
    session.reproject()
    session._runtime.ledger.close()
    for act in (
        session.reproject,
        lambda: run(session, "git/log"),
        lambda: session.surface,
        lambda: session.explain("x"),
    ):
        with pytest.raises(LedgerUnavailableError):
            act()


def test_a_turn_without_a_change_writes_nothing(stage: Stage) -> None:
    """The same epoch again; a boundary always has a receipt; a change has one with its cause."""
    session = stage.session()
    epoch = session.reproject()
    before = kinds(stage)
    assert session.reproject().receipt is epoch.receipt
    assert kinds(stage) == before
    causes = [session.reproject("compaction").receipt.cause]
    stage.default = ["git/log"]
    causes.append(session.reproject().receipt.cause)
    stage.groups = [Group("git", tools(), up=False)]
    causes.append(session.reproject().receipt.cause)
    stage.groups = [Group("git", [Tool("log", effect="read", description="2")], up=False)]
    causes.append(session.reproject().receipt.cause)
    session.unload("git")
    causes.append(session.reproject().receipt.cause)

    assert causes == ["compaction", "authority", "resource", "list_changed", "load"]
    assert [e.body["receipt"]["cause"] for e in entries(stage) if e.kind == "epoch"] == ["open", *causes]


def test_a_resumed_session_is_compared_with_its_last_receipt(stage: Stage) -> None:
    """What came while it was away is ``widened``, what went ``narrowed``; nothing comes back from the receipt."""
    session = stage.session()
    stage.default = ["git/log"]
    session.reproject()
    session.close()
    stage.default = ["git/push"]
    session = stage.session()
    receipt = session.reproject().receipt

    assert (receipt.cause, receipt.tools("added"), receipt.tools("removed")) == ("reopen", ["git/push"], ["git/log"])
    assert {"widened", "narrowed"} <= set(receipt.kinds)


def test_denies_revokes_and_ends_from_outside_are_seen_at_the_next_call(stage: Stage) -> None:
    """Without any epoch between; a deny is taken back by its owner alone."""
    stage.default = []
    session, outside = stage.session(), stage.runtime()
    grant = session.grant("git/*", by="ann")
    denied = outside.deny("s", "git/log", by="bob")
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    with pytest.raises(InvalidInputError):
        outside.revoke("s", denied.id, by="bob")
    session.revoke(denied.id, by="ann")
    assert refused(session, "git/log") is None
    outside.revoke("s", grant.id, by="bob")
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    with pytest.raises(InvalidInputError):
        outside.revoke("s", grant.id, by="bob")
    with pytest.raises(InvalidInputError):
        outside.revoke("nobody", "x", by="bob")
    session.grant("git/*", by="ann")
    outside.end("s", by="bob")

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED


@pytest.mark.parametrize("cause", ["", "because", None, 3])
def test_a_cause_is_one_of_the_list(stage: Stage, cause: Any) -> None:
    """Another one is a mistake of the caller; nothing is written."""
    session = stage.session()
    before = kinds(stage)
    with pytest.raises(InvalidInputError):
        session.reproject(cause)

    assert kinds(stage) == before


# -- histories


def test_a_load_is_placed_where_the_history_holds_it(stage: Stage) -> None:
    """By its entry, or by the result of its call; in neutral or native messages, also mixed."""
    session = stage.runtime().session("s")
    session.load("git/log", at="e2", by="model")
    session.load("git/push", call="t1", by="model")
    history: list[Any] = [
        Message("e1", Role.USER, "go"),
        Message("e2", Role.USER, "loaded log"),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "load", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]},
    ]
    epoch = session.reproject(provider=anthropic.profile("claude-x"), history=history)
    assert epoch.facts.retained == (0, 1)
    epoch = session.reproject("compaction", history=history[2:])

    assert epoch.facts.retained == (1,)
    assert epoch.receipt.body["boundary"] == {"first_kept": None, "kept": 2, "leaf": None}


def test_a_history_that_no_adapter_reads_is_refused(stage: Stage) -> None:
    """Native messages need a provider; the error names the message."""
    session = stage.session()
    with pytest.raises(InvalidInputError, match=r"history\[1\]"):
        session.reproject(history=[Message("e1", Role.USER), {"role": "user", "content": "x"}])


def test_no_history_is_the_history_as_before(stage: Stage) -> None:
    """A turn that names none keeps placements; so does a provider switch."""
    session = stage.runtime().session("s")
    session.load("git/log", at="e1", by="model")
    session.load("git/push", by="user")
    profile = anthropic.profile("claude-x")
    first = session.reproject(provider=profile, history=[Message("e1", Role.USER, "x")])
    assert [p.definition.name for p in first.projection.deferred] == ["log"]
    assert session.reproject().receipt == first.receipt
    assert session.reproject(provider=openai_chat.profile("gpt-x")).projection.deferred == ()
    back = session.reproject(provider=profile)

    assert [p.definition.name for p in back.projection.deferred] == ["log"]


def unknown(call_: Call) -> list[Message]:
    return [
        Message("e1", Role.ASSISTANT, calls=(call_,)),
        Message("e2", Role.TOOL, result_for=call_.id, outcome=Outcome.OUTCOME_UNKNOWN),
    ]


@pytest.mark.parametrize("covered", [False, True], ids=["in the history", "beside a summary"])
def test_an_unknown_outcome_of_a_transcript_takes_away(stage: Stage, covered: bool) -> None:
    """An external call that no entry knows becomes an unsettled operation: once, until it is reconciled, for good."""
    session = stage.session()
    history = unknown(Call("old", "git__push", {"branch": "main"}))
    if covered:
        history = [Message("e3", Role.SUMMARY, "pushed, all fine", covers=("e1", "e2"), covered=tuple(history))]
    for _ in range(2):
        session.reproject("compaction", history=history)
    assert kinds(stage).count("started") == 1
    assert refused(session, call("git/push", "new", branch="main")) is Reason.OUTCOME_UNKNOWN
    session.reconcile(session.operations[0].id, outcome="ok", by="ann")
    session.reproject("compaction", history=history)

    assert refused(session, call("git/push", "new", branch="main")) is None


def test_known_and_harmless_calls_of_a_transcript_are_left_alone(stage: Stage) -> None:
    """A read, a call that the ledger knows, and one that the origin of a fork owns add no operation."""
    session = stage.session()
    started(session, call("git/push", "known"))
    history = [*unknown(Call("known", "git/push")), *unknown(Call("read", "git/log"))]
    session.reproject(history=history)
    fork = session.fork("f")
    fork.reproject(history=history)

    assert kinds(stage).count("started") == 1
    assert kinds(stage, "f").count("started") == 0


# -- a body that is about to be sent


def test_a_body_is_compared_with_what_is_authorised_now(stage: Stage) -> None:
    """More than that, or another definition, is an error and an entry of its own; less is fine."""
    session = stage.session()
    with pytest.raises(InvalidInputError):
        session.check({})
    body = session.reproject(provider=anthropic.profile("claude-x"), history=[Message("e1", Role.USER, "x")]).request
    assert set(session.check(body).effective) == {"git__log", "git__push", "git__sync"}
    session.check({**body, "tools": body["tools"][:1]})
    altered = [{**tool, "description": "harmless"} for tool in body["tools"]]
    for more, names in (([*body["tools"], {"name": "rm", "input_schema": {}}], ("rm",)), (altered, ())):
        with pytest.raises(SurfaceExceededError) as found:
            session.check({**body, "tools": more})
        assert found.value.names == names
    stage.default = ["git/log"]
    with pytest.raises(SurfaceExceededError) as found:
        session.check(body)

    assert found.value.names == ("git__push", "git__sync")
    assert kinds(stage).count("finding") == 3


# -- threads, memory


def test_sixteen_threads_share_one_session(stage: Stage) -> None:
    """Loads, projections, calls, denies from outside: no error, one chain, every call settled."""
    session, outside = stage.session(), stage.runtime()
    failed: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for i in range(8):
                if n % 4 == 0:
                    session.reproject("compaction" if i % 2 else "turn")
                elif n % 4 == 1:
                    session.load("git", at=f"e{n}-{i}", by="model")
                    session.explain("git/log")
                elif n % 4 == 2:
                    outside.deny("s", f"git/none{n}{i}", by="ann")
                run(session, call("git/push", f"c{n}-{i}", n=n, i=i))
                run(session, call("git/log", f"r{n}-{i}"))
        except BaseException as error:  # noqa: BLE001 - carried over
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    assert len(session.operations) == 128
    assert all(op.settled for op in session.operations)
    assert [e.sequence for e in entries(stage)] == list(range(len(entries(stage))))


def test_what_is_remembered_does_not_grow_with_time(stage: Stage) -> None:
    """A thousand rounds of changing rules, revisions, grants and loads leave caches of the size of the line."""
    revision = [0]

    def config(_: str) -> Any:
        from capstate.runtime import Rules

        revision[0] += 1
        return Rules(["git/*"], revision[0])

    stage.sources = {"config": config}
    session = stage.session()
    child = session.spawn("k", want=["*"])
    for n in range(300):
        refused(child, "git/log")
        refused(child, call(f"invented{n}"))
    live = child._live

    assert len(live._made) == len(live.folds._states) == 2
    assert all(len(slot.last) <= 2 for slot in live.sources._slots)
    assert len(child._refused) + len(child._seen) <= 2
    assert child._permits == []


def test_a_crash_at_any_append_leaves_a_session_that_resumes() -> None:
    """Whatever was not written never was; what was written counts; nothing is called twice."""
    total = 0
    while True:
        made = Stage()
        session = made.session()
        inner = session._runtime.ledger
        count = [0]

        def append(*args: Any, count: list[int] = count, inner: Any = inner, last: int = total, **more: Any) -> Any:
            if count[0] == last:
                raise LedgerUnavailableError("killed")
            count[0] += 1
            return inner.append(*args, **more)

        session._runtime.ledger = Wrapped(inner, append=append)
        ran: list[str] = []
        try:
            session.reproject()
            with session.job("j", grants=["git/sync"]):
                with session.guard(call("git/push")) as permit:
                    ran.append("push")
                    permit.settle()
                session.load("git", at="e1", by="model")
            session.reproject("compaction")
            done = True
        except LedgerUnavailableError:
            done = False
        session._runtime.ledger = inner
        crash(session)
        again = made.session()
        again.reproject()
        settled = [op.settled for op in again.operations]
        assert settled in ([], [True]) or (settled == [False] and refused(again, call("git/push", "c2")))
        assert len(ran) <= len(settled)
        if done:
            break
        total += 1
    assert total >= 7


def test_forged_places_do_not_confuse_a_path(stage: Stage) -> None:
    """An unload whose place is no id is damage, not an error at the next projection."""
    session = stage.session()
    forge(stage, "unload", {"at": [], "call": None, "on": ["git/*"]})
    session.reproject(path=["e1"])

    assert refused(session, "git/log") is None
    assert refused(session, "git/push") is Reason.SESSION_READ_ONLY


def test_an_opaque_item_is_no_mark(stage: Stage) -> None:
    """An item that names a tool holds no load: the tool is immediate, and one that nobody loaded is not callable."""
    session = stage.runtime().session("s")
    session.load("git/log", at="e1", by="model")
    profile = anthropic.profile("claude-x")
    item = Message("e1x", Role.OPAQUE, issuer=profile.issuer.id, refers=("git__log", "git__push"), covers=("e1",))
    epoch = session.reproject("native_compaction", provider=profile, history=[item, Message("e2", Role.USER, "go on")])

    assert epoch.facts.retained == ()
    assert epoch.projection.deferred == ()
    assert sorted(epoch.surface.callable) == ["git/log"]


def test_what_an_unknown_outcome_takes_away_needs_no_new_epoch(stage: Stage) -> None:
    """A turn in which nothing else changed writes the operation, and no receipt."""
    session = stage.session()
    session.reproject(history=[])
    before = kinds(stage).count("epoch")
    session.reproject(history=unknown(Call("old", "git/push")))

    assert kinds(stage).count("epoch") == before
    assert refused(session, call("git/push", "new")) is Reason.OUTCOME_UNKNOWN


def test_what_nobody_knows_is_explained_as_unknown(stage: Stage) -> None:
    """A tool that is not in the catalog, and one that is."""
    session = stage.session()

    assert session.explain("git/nothing")["reason"] == "unknown_tool"
    assert session.explain("git/log")["callable"] is True
    assert repr(session) == "<Session 's'>"
    assert "guard of call" in repr(session.guard(call("git/log")))


def test_a_load_of_two_tools_of_one_name_is_refused(stage: Stage) -> None:
    """Two definitions claim it: the error names the group and the name, and nothing is written."""
    session = stage.session()
    before = kinds(stage)
    stage.groups.append(Group("git", [Tool("log", description="a laxer one")]))
    with pytest.raises(InvalidInputError, match="log"):
        session.load("git")
    session.load("git/push")
    for wrong in ({"at": ""}, {"at": 7}, {"call": ""}, {"by": "somebody"}):
        with pytest.raises(InvalidInputError):
            session.load("git/push", **wrong)

    assert kinds(stage)[len(before) :] == ["load"]
    assert refused(session, "git/log") is Reason.NAME_CONFLICT


def test_a_runtime_lets_go_of_the_ledger_that_it_opened(tmp_path: Path, stage: Stage) -> None:
    """One that was given stays open for whoever gave it."""
    stage.ledger = tmp_path / "agent.db"
    with stage.runtime() as own:
        own.session("s").close()
    with pytest.raises(LedgerUnavailableError):
        own.session("s")
    given = MemoryLedger()
    with stage.runtime(given) as other:
        other.session("s").close()

    assert given.head("s") is not None
    with pytest.raises(InvalidInputError):
        stage.runtime("postgresql://somewhere/db")
