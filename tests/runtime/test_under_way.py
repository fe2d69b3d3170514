"""What happens between two steps of one act: a deny while the host is asked, an id that somebody takes meanwhile."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from capstate.authority import Effect, Grant, Lifetime, allow, ask, deny
from capstate.capabilities import Group, Tool
from capstate.errors import (
    CatalogUnavailableError,
    InvalidInputError,
    LedgerUnavailableError,
    NeedsApproval,
    Reason,
    Refused,
    SessionLockedError,
)
from capstate.ledger import Record
from capstate.ledgers.memory import MemoryLedger
from capstate.runtime import Rules
from tests.runtime.stage import (
    Limits,
    Stage,
    Wrapped,
    call,
    crash,
    cut,
    entries,
    forge,
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


def once(act: Callable[[], object]) -> Callable[[], None]:
    """Return a function that does ``act`` the first time."""
    left = [act]

    def do() -> None:
        if left:
            left.pop()()

    return do


# -- between the look and the start


@pytest.mark.parametrize("place", ["catalog", "source", "ceiling"])
@pytest.mark.parametrize("chain", ["s", "ann", "p"])
def test_a_deny_while_the_host_is_asked_holds(stage: Stage, place: str, chain: str) -> None:
    """Whichever chain it is posted to, also one that had no entry; also where the host takes its own deny away then."""
    parent = stage.session("p", holder="ann")
    session = parent.spawn("s", want=["git"]) if chain != "ann" else parent
    other = stage.runtime()
    denied = once(lambda: other.deny(chain, "git/log", by="eve"))
    assert other.state("ann") is None
    armed = [False]

    def asked(answer: Any) -> Any:
        if armed[0]:
            denied()
        return answer

    groups = stage.groups
    stage.sources["config"] = lambda _: asked(["git/*"]) if place == "source" else ["git/*"]
    if place == "ceiling":
        stage.ceilings["cap"] = lambda _: asked("allow")
    session.close()
    parent.close()
    runtime = stage.runtime()
    if place == "catalog":
        runtime._sources = (lambda: asked(groups), *runtime._sources[1:])
    parent = runtime.session("p")
    session = parent.child("s") if chain != "ann" else parent
    assert refused(session, "git/log") is None
    armed[0] = True

    assert refused(session, call("git/log", "c2")) is Reason.NOT_AUTHORISED


def test_chains_that_never_come_to_rest_are_a_ledger_that_cannot_be_read(stage: Stage) -> None:
    """Somebody who posts at every look ends in an error, not in a loop and not in a permit."""
    session = stage.session()
    other = stage.runtime()

    def posting(_: str) -> list[str]:
        other.deny("s", "x/y", by="eve")
        return ["git/*"]

    stage.sources["config"] = posting
    session.close()
    session = stage.runtime().session("s")

    with pytest.raises(LedgerUnavailableError, match="changes faster"):
        run(session, "git/log")


def test_other_chains_may_grow_meanwhile(stage: Stage) -> None:
    """A busy ledger is no reason to look again."""
    session = stage.session()
    other = stage.runtime()
    asked: list[str] = []
    session.close()

    def posting(holder: str) -> list[str]:
        other.deny("elsewhere", "x/y", by="eve")
        asked.append(holder)
        return ["git/*"]

    stage.sources["config"] = posting
    session = stage.runtime().session("s")
    asked.clear()
    run(session, "git/log")

    assert asked == ["s"]


def test_a_busy_parent_is_no_reason_to_look_again(stage: Stage) -> None:
    """Its notes and its calls change nothing for the child, however slowly the sources answer."""
    asked: list[str] = []
    busy: list[int] = []

    def slow(holder: str) -> list[str]:
        if busy:
            busy.append(1)
            run(parent, call("git/push", f"busy {len(busy)}", n=len(busy)))
            parent.note({"n": len(busy)})
        asked.append(holder)
        return ["git/*"]

    parent = stage.session("p")
    session = parent.spawn("s", want=["git"])
    slots = session._live.sources._slots  # the child's alone: the parent's calls ask the quick one
    slots[0] = evolve(slots[0], function=slow)
    busy.append(1)
    try:
        run(session, "git/log")
    except LedgerUnavailableError as error:
        pytest.fail(str(error))

    assert sorted(asked) == ["p", "s"]


def test_a_deny_to_another_chain_before_the_start_is_durable_ends_it(stage: Stage) -> None:
    """The start stands in the ledger, settled as denied; the body never ran."""
    stage.session("p").close()
    inner = MemoryLedger(storage(stage))
    armed: list[str] = []

    def append(chain: str, rows: Any, **more: Any) -> Any:
        if armed and any(b'"kind":"started"' in row.stored for row in rows):
            stage.runtime().deny(armed.pop(), "git/push", by="eve")
        return inner.append(chain, rows, **more)

    parent = stage.runtime(Wrapped(inner, append=append)).session("p")
    child = parent.spawn("s", want=["git"])
    assert refused(child, call("git/push", "c0")) is None
    armed.append("p")
    ran: list[int] = []
    with pytest.raises(Refused) as no, child.guard(call("git/push", "c1")):
        ran.append(1)

    assert (no.value.reason, no.value.outcome, ran) == (Reason.NOT_AUTHORISED, "denied", [])
    assert [(op.call, str(op.outcome)) for op in child.operations] == [("c0", "ok"), ("c1", "denied")]
    assert not child._permits


def test_an_ask_before_the_start_is_durable_asks(stage: Stage) -> None:
    """What became stricter meanwhile is judged again; what it started is not left open."""
    stage.default = ["git/*"]
    stage.session("p").close()
    inner = MemoryLedger(storage(stage))
    armed: list[int] = []

    def append(chain: str, rows: Any, **more: Any) -> Any:
        if armed and any(b'"kind":"started"' in row.stored for row in rows):
            armed.clear()
            forge(stage, "grant", ask("git/push").to_json(), "p")
        return inner.append(chain, rows, **more)

    parent = stage.runtime(Wrapped(inner, append=append)).session("p")
    child = parent.spawn("s", want=["git"])
    armed.append(1)
    with pytest.raises(NeedsApproval):
        started(child, "git/push")

    assert [op.open for op in child.operations] == [False]


def test_a_host_that_cannot_be_asked_again_ends_the_start(stage: Stage) -> None:
    """It grew and nobody can say what holds now: an error, and nothing is left running."""
    stage.session("p").close()
    inner = MemoryLedger(storage(stage))
    armed: list[int] = []
    down: list[int] = []

    def append(chain: str, rows: Any, **more: Any) -> Any:
        if armed and any(b'"kind":"started"' in row.stored for row in rows):
            armed.clear()
            down.append(1)
            stage.runtime().deny("p", "x/y", by="eve")
        return inner.append(chain, rows, **more)

    def groups() -> list[Group]:
        if down:
            raise RuntimeError("gone")
        return stage.groups

    runtime = stage.runtime(Wrapped(inner, append=append))
    runtime._sources = (groups, *runtime._sources[1:])
    child = runtime.session("p").spawn("s", want=["git"])
    armed.append(1)
    with pytest.raises(CatalogUnavailableError):
        started(child, "git/push")

    assert [str(op.outcome) for op in child.operations] == ["denied"]


# -- ids


@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_an_id_that_somebody_takes_meanwhile_is_refused(stage: Stage, how: str) -> None:
    """What was found out about it before the lock was had is found out again."""
    inner = MemoryLedger(storage(stage))

    def lock(chain: str, **more: Any) -> Any:
        if chain == "k":
            stage.runtime().session("k", holder="eve").close()
        return inner.lock(chain, **more)

    session = stage.runtime(Wrapped(inner, lock=lock)).session("s")
    with pytest.raises(InvalidInputError, match="unused id"):
        getattr(session, how)("k", **({"want": ["git"]} if how == "spawn" else {}))

    assert not {"spawned", "forked"} & set(kinds(stage))
    assert [e.body["holder"] for e in entries(stage, "k")] == ["eve"]
    stage.runtime().session("k").close()  # and its lock was given back


def test_a_session_of_another_holder_that_begins_meanwhile_is_refused(stage: Stage) -> None:
    """The holder is compared when nobody else can begin under the id."""
    inner = MemoryLedger(storage(stage))

    def lock(chain: str, **more: Any) -> Any:
        stage.runtime().session("s", holder="eve").close()
        return inner.lock(chain, **more)

    with pytest.raises(InvalidInputError, match="holder 'eve'"):
        stage.runtime(Wrapped(inner, lock=lock)).session("s", holder="ann")

    stage.runtime().session("s").close()


def test_an_id_that_another_has_open_leaves_no_trace(stage: Stage) -> None:
    """No ``spawned`` entry for a child that never began."""
    stage.runtime().deny("k", "git/push", by="eve")
    owner = stage.runtime().ledger.lock("k")
    session = stage.session()
    with pytest.raises(SessionLockedError):
        session.spawn("k", want=["git"])

    assert "spawned" not in kinds(stage)
    owner.close()
    session.spawn("k", want=["git"]).close()


# -- what a function of the host may return


def finished(value: object) -> Any:
    future: concurrent.futures.Future[object] = concurrent.futures.Future()
    future.set_result(value)
    return future


def awaited(value: object) -> Any:
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    future.set_result(value)
    loop.close()
    return future


class Empty:
    """Iterates over nothing, as a finished future does."""

    def __iter__(self) -> Any:
        return iter(())

    def __await__(self) -> Any:
        return iter(())


WRONG: dict[str, Callable[[], Any]] = {
    "asyncio future": lambda: awaited([deny("git/log")]),
    "thread future": lambda: finished([deny("git/log")]),
    "awaitable": Empty,
    "chain": lambda: itertools.chain([deny("git/log")]),
    "map": lambda: map(str, []),
    "iterator": lambda: iter([]),
    "bytearray": lambda: bytearray(b""),
    "dict": dict,
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("revised", [False, True])
def test_what_is_no_list_at_every_look_is_an_error_of_the_source(stage: Stage, name: str, revised: bool) -> None:
    """Iterable is not enough: a finished future iterates over nothing."""
    value = WRONG[name]()
    stage.sources["other"] = lambda _: Rules(value, 1) if revised else value
    session = stage.session()

    for n in range(2):
        assert refused(session, call("git/log", f"c{n}")) is Reason.NOT_AUTHORISED
        assert session.explain("git/log")["decided_by"] == "other!error"


@pytest.mark.parametrize("name", WRONG)
def test_a_catalog_that_is_no_list_at_every_look_cannot_be_read(stage: Stage, name: str) -> None:
    """Else all tools would be lost without a word."""
    runtime = stage.runtime()
    value = WRONG[name]()
    runtime._sources = (lambda: value, *runtime._sources[1:])
    session = runtime.session("s")
    with pytest.raises(CatalogUnavailableError, match="expected groups as"):
        session.reproject()


@pytest.mark.parametrize(
    "made",
    [list, tuple, deque, lambda rules: dict.fromkeys(rules).keys(), lambda rules: dict(enumerate(rules)).values(), set],
    ids=["list", "tuple", "deque", "keys", "values", "set"],
)
def test_what_holds_the_same_at_every_look_is_a_list(stage: Stage, made: Callable[[list[Any]], Any]) -> None:
    """Sequences, sets and views, for rules and for groups."""
    rules, groups = made([allow("git/*"), deny("git/push")]), made(["unused"]) if made is set else made(stage.groups)
    stage.sources = {"config": lambda _: rules}
    runtime = stage.runtime()
    if made is not set:
        runtime._sources = (lambda: groups, *runtime._sources[1:])
    session = runtime.session("s")
    session.load("git")
    for n in range(2):
        assert refused(session, call("git/log", f"c{n}")) is None
        assert refused(session, call("git/push", f"c{n}")) is Reason.NOT_AUTHORISED


# -- rules with a time


@pytest.mark.parametrize("kind", ["sources", "ceilings"])
def test_a_rule_of_the_host_expires(stage: Stage, kind: str) -> None:
    """To the millisecond, without anything else changing; with a receipt that names it no more."""
    getattr(stage, kind)["timed"] = lambda _: [Grant("git/*", Effect.ALLOW, expires=2_000)]
    if kind == "sources":
        stage.default = []
    session = stage.session()
    stage.time = 1_999
    before = session.reproject()
    assert refused(session, "git/log") is None
    stage.time = 2_000

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    assert len(before.surface.callable) == 3
    assert session.reproject().surface.callable == {}


def test_a_deny_of_the_host_expires_as_well(stage: Stage) -> None:
    """Its time was over: what others allow counts."""
    stage.sources["timed"] = lambda _: [Grant("git/log", Effect.DENY, expires=2_000)]
    session = stage.session()
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    stage.time = 2_000

    assert refused(session, "git/log") is None


OF_A_SESSION = Grant("git/*", Effect.ALLOW, lifetime=Lifetime.SESSION)


@pytest.mark.parametrize(
    "rule",
    [
        OF_A_SESSION,
        Grant("git/*", Effect.ALLOW, lifetime=Lifetime.UNTIL, until="job", token=1),
        Grant("git/*", Effect.DENY, lifetime=Lifetime.SESSION),
    ],
    ids=["session", "until", "deny"],
)
def test_a_rule_that_nobody_would_end_is_an_error_of_the_source(stage: Stage, rule: Grant) -> None:
    """A configuration is no session and no job."""
    stage.sources["other"] = lambda _: [rule]
    session = stage.session()

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    assert "without lifetime" in session.explain("git/log")["source_errors"]["other"]


# -- damage


def test_what_is_damaged_after_an_acceptance_waits_again(stage: Stage) -> None:
    """An acceptance is of what was damaged then, also if the new damage stands before it in the chain."""
    session = stage.session()
    for _ in range(4):
        session.note({})
    session.close()
    first, second, *_ = [entry.sequence for entry in entries(stage) if entry.kind == "note"]
    spoil(stage, "s", second)
    session = stage.session()
    session.accept_damage(by="ann")
    assert refused(session, "git/push") is None
    session.close()
    session = stage.session()
    assert refused(session, call("git/push", "c2")) is None
    session.close()
    spoil(stage, "s", first)
    session = stage.session()

    assert refused(session, call("git/push", "c3", n=3)) is Reason.SESSION_READ_ONLY
    session.accept_damage(by="bob")
    assert refused(session, call("git/push", "c3", n=3)) is None
    assert [e.body["damage"] for e in entries(stage) if e.kind == "accepted"][1] == [[first, first], [second, second]]


def test_what_is_lost_next_to_accepted_damage_waits_again(stage: Stage) -> None:
    """A span that grew is another one."""
    session = stage.session()
    for _ in range(4):
        session.note({})
    session.close()
    first = next(entry.sequence for entry in entries(stage) if entry.kind == "note")
    rows = storage(stage)._storage.rows["s"]
    del rows[first]
    session = stage.session()
    session.accept_damage(by="ann")
    session.close()
    del storage(stage)._storage.rows["s"][first]

    assert refused(stage.session(), "git/push") is Reason.SESSION_READ_ONLY


@pytest.mark.parametrize("how", ["guard", "close", "reproject", "approve"])
@pytest.mark.parametrize("chain", ["s", "ann"])
def test_a_rollback_that_was_seen_is_told_at_once(stage: Stage, how: str, chain: str) -> None:
    """By a call, by closing, by a projection: the next process knows, and does not believe what is left."""
    stage.default = [ask("git/log"), "git/push", "git/sync"]
    session = stage.session(holder="ann")
    other = stage.runtime()
    other.deny(chain, "git/nothing", by="eve")
    other.deny(chain, "git/sync", by="eve")
    assert refused(session, "git/sync") is Reason.NOT_AUTHORISED
    cut(stage, chain, 1)
    if how == "guard":
        refused(session, call("git/push", "c7"))
        crash(session)
    elif how == "reproject":
        session.reproject()
        crash(session)
    elif how == "approve":
        session.approve(call("git/log", "c8"), by="ann")
        crash(session)
    else:
        assert session.surface.callable
        session.close()

    assert "rollback" in [d for e in entries(stage, chain) if e.kind == "repaired" for d in e.body["damage"]]
    assert refused(stage.session(holder="ann"), call("git/push", "c9")) is Reason.SESSION_READ_ONLY


# -- what a person rejected


def test_a_rejection_outlives_the_definition(stage: Stage) -> None:
    """This call with these arguments was refused; another definition under the name changes nothing."""
    stage.default = [ask("git/push")]
    session = stage.session()
    session.reject(call("git/push"), by="ann")
    stage.groups = [Group("git", tools(push=Tool("push", description="another text")))]

    assert refused(session, "git/push") is Reason.NOT_AUTHORISED
    assert session.explain("git/push")["callable"]
    stage.default = ["git/push"]
    assert refused(session, "git/push") is Reason.NOT_AUTHORISED
    assert refused(session, call("git/push", "c2")) is None


def test_a_rejection_goes_with_the_fork(stage: Stage) -> None:
    """And with the fork of the fork, also one that was given after it."""
    stage.default = [ask("git/*")]
    session = stage.session()
    first = session.fork("f")
    second = first.fork("g")
    session.reject(call("git/push"), by="ann")
    stage.default = ["git/*"]

    for each in (session, first, second):
        assert refused(each, "git/push") is Reason.NOT_AUTHORISED
        assert refused(each, call("git/push", "c1", 1)) is None


# -- revisions


@pytest.mark.parametrize("how", ["guard", "session", "restart"])
@pytest.mark.parametrize("kind", ["sources", "ceilings"])
def test_a_revision_that_a_guard_saw_is_not_forgotten(stage: Stage, kind: str, how: str) -> None:
    """In this session, in another of the process, and after a kill: an older one is stale, without any projection."""
    answer = [Rules(["git/*"], 5)]
    getattr(stage, kind)["timed"] = lambda _: answer[0]
    runtime = stage.runtime()
    session = runtime.session("s")
    session.load("git")
    assert refused(session, "git/log") is None
    answer[0] = Rules(["git/*"], 7)
    assert refused(session, "git/log") is None
    answer[0] = Rules(["git/*"], 6)
    if how == "session":
        session.close()
        session = runtime.session("t", holder="s")
        session.load("git")
    elif how == "restart":
        crash(session)
        session = stage.session()

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    assert session.explain("git/log")["decided_by"].endswith("timed!stale")
    answer[0] = Rules(["git/*"], 7)
    assert refused(session, "git/log") is None


def test_a_parents_revision_is_not_forgotten_either(stage: Stage) -> None:
    """A child that saw it tells the parent's chain."""
    answer = [Rules(["git/*"], 5)]
    stage.sources["config"] = lambda _: answer[0]
    parent = stage.session("p")
    child = parent.spawn("s", want=["git"])
    assert refused(child, "git/log") is None
    crash(parent)
    answer[0] = Rules(["git/*"], 4)
    child = stage.runtime().session("p").child("s")

    assert refused(child, "git/log") is Reason.NOT_AUTHORISED


def test_a_revision_is_told_once(stage: Stage) -> None:
    """Not at every call."""
    stage.sources["config"] = lambda _: Rules(["git/*"], 5)
    session = stage.session()
    for n in range(5):
        run(session, call("git/log", f"c{n}"))

    assert kinds(stage).count("revisions") == 1
    session.reproject()
    assert kinds(stage).count("revisions") == 1


# -- what has no place


@pytest.mark.parametrize("kind", ["unload", "removal"])
def test_what_was_forged_has_no_place(kind: str) -> None:
    """It takes away as of the end of the ledger; an entry or a call named in it moves nothing."""
    stage = Stage(key=bytes(32))
    session = stage.session()
    session.load("git", at="e1")
    forge(stage, kind, {"at": "e1", "by": "user", "call": "c1", "on": ["git/log"]})
    session._live.folds.refresh()
    last = session._live.state.loads[-1]

    assert (str(last.do), last.at, last.call, last.on) == (kind, None, None, ("git/log",))


# -- the token


def test_a_token_that_was_set_back_is_raised_above_the_entries(stage: Stage) -> None:
    """What the storage remembers of tokens is no entry: two owners must not share one."""
    session = stage.session()
    session.note({})
    crash(session)
    highest = entries(stage)[-1].token
    storage(stage)._storage.tokens["s"] = 0
    session = stage.runtime().session("s")

    assert session._writer.token > highest
    stage.runtime().append_to("ann", Record("note", {}))
    storage(stage)._storage.tokens["ann"] = 0
    stage.runtime().append_to("ann", Record("note", {}))
    tokens = [entry.token for entry in entries(stage, "ann")]
    assert tokens == sorted(tokens)
    assert tokens[0] < tokens[-1]


def test_the_slots_of_an_owner_that_lives_are_not_freed(stage: Stage) -> None:
    """Whether it lives is asked without taking its lock from it."""
    root = stage.session("p", limits=Limits(concurrency=1))
    child = root.spawn("s", want=["git"])
    permit = started(child, "git/push")
    assert refused(root, "git/log") is Reason.LIMIT_EXCEEDED
    permit.settle()

    assert refused(root, "git/log") is None
    assert refused(child, "git/log") is None
