"""Arguments of the wrong kind, at every public function and method: one clear error, nothing written, nothing lost."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

import capstate
from capstate.authority import Effect, Grant, Limits, allow, ask, deny
from capstate.capabilities import Group, Tool, ToolEffect, ToolEffectName
from capstate.children import Result
from capstate.decisions import Decision, Observation
from capstate.epochs import Cause, CauseName
from capstate.errors import (
    CallNotStartedError,
    CapstateError,
    InvalidInputError,
    NeedsApproval,
    Refused,
    SurfaceExceededError,
)
from capstate.grants import EffectName
from capstate.ledger import Record, load
from capstate.ledgers.memory import MemoryLedger
from capstate.policy import parse
from capstate.providers import anthropic
from capstate.runtime import Permit, Rules, Runtime, Session, open_ledger
from capstate.runtime.verdict import operation_id
from capstate.runtime.wishes import ORIGINS
from capstate.trace import Call, Message, Outcome, OutcomeName, Role
from capstate.trace.messages import RoleName
from tests.runtime.stage import Stage, call, crash, refused, run, started, storage, tools

LONG = "x" * 100_000
ODD: dict[str, Any] = {
    "none": None, "five": 5, "minus": -1, "fraction": 1.5, "true": True, "empty": "", "word": "x", "blank": " ",
    "bytes": b"x", "list": [], "list of 5": [5], "list of none": [None], "mapping": {}, "mapping of 5": {5: 5},
    "object": object(), "surrogate": "\ud800", "list of surrogate": ["\ud800"], "nul": "a\0b", "long": LONG,
    "function": lambda: None, "type": str, "set": {"x"}, "generator": (c for c in "ab"), "group": Group("git", []),
    "tool": Tool("x"), "call": Call("c", "t"), "message": Message("m", "user"), "rule": allow("git/*"),
    "bad message": [{"role": 5}], "odd call": Call("\ud800", "\ud800", {"a": object()}), "nan": float("nan"),
    "unknown": [
        Message("\ud800", "assistant", calls=[Call("\ud800", "git__push", {"a": object()})]),
        Message("r", "tool", result_for="\ud800", outcome="outcome_unknown"),
    ],
}  # fmt: skip


def odd_values() -> Iterator[tuple[str, Any]]:
    for name, value in ODD.items():
        yield name, (c for c in "ab") if name == "generator" else value


PENDING = operation_id("s", "pending", 0, "git/sync", call("git/sync", "pending", p=1).digest)
"""A call of the stage whose body did not say how it ended."""
PROFILE = anthropic.profile("claude-x")

# What a good call of each method looks like; each argument is then exchanged for every odd value.
SESSION: dict[str, dict[str, Any]] = {
    "load": {"on": "git", "at": "e1", "call": "c1", "by": "user"},
    "unload": {"on": "more", "at": "e1", "call": "c1", "by": "user"},
    "removal": {"on": "more", "at": "e1"},
    "reproject": {"cause": "turn", "provider": PROFILE, "history": [Message("e1", "user")], "path": ["e1"]},
    "check": {"body": {"tools": [], "messages": []}},
    "spawn": {"id": "k", "want": ["git/log"], "at": "e1", "call": "c1"},
    "child": {"id": "born"},
    "child_result": {"id": "born", "result": Result("t", "completed"), "resolves": bool},
    "decide": {"decision": Decision("d1", "so it is", "open")},
    "observe": {"observation": Observation("o1", ["E1"])},
    "recheck": {},
    "fork": {"id": "f", "at": "e1", "path": ["e1"]},
    "explain": {"tool": "git/log"},
    "guard": {"call": call("git/log"), "cost": 0},
    "prepare": {"call": call("git/sync", "p2")},
    "recover": {"ask": None, "by": "ann"},
    "reconcile": {"operation": PENDING, "outcome": "ok", "by": "ann", "evidence": "e"},
    "grant": {
        "on": "more/*", "by": "ann", "effect": "deny", "lifetime": "session", "pin": True, "expires": 5_000, "id": "g"
    },
    "deny": {"on": "more/*", "by": "ann", "lifetime": "session"},
    "revoke": {"id": "held", "by": "ann"},
    "job": {"name": "j", "grants": ["git/log"], "by": "ann"},
    "approve": {"call": call("git/push"), "by": "ann"},
    "reject": {"call": call("git/push", "other"), "by": "ann"},
    "retire": {"name": "config", "by": "ann"},
    "accept_damage": {"by": "ann"},
    "note": {"body": {"a": 1}},
    "end": {},
    "close": {},
}  # fmt: skip
RUNTIME: dict[str, dict[str, Any]] = {
    "session": {"id": "n", "holder": "bob", "limits": Limits(calls=5)},
    "deny": {"chain": "n", "on": "more/*", "by": "ann"},
    "revoke": {"chain": "s", "id": "held", "by": "ann"},
    "end": {"session": "gone", "by": "ann"},
    "state": {"chain": "s"},
    "append_to": {"chain": "n", "records": Record("note", {})},
    "close": {},
}
PERMIT: dict[str, dict[str, Any]] = {
    "settle": {"result": "x", "outcome": "ok", "evidence": "e", "cost": 0},
    "observe": {"outcome": "ok", "evidence": "e"},
    "not_sent": {},
}
ANYTHING = {("settle", "result")}
"""Arguments of which any value is a good one."""


def public(kind: type[Any]) -> set[str]:
    found = {name for base in kind.__mro__[:-1] for name in vars(base) if not name.startswith("_")}
    return {name for name in found if inspect.isfunction(inspect.getattr_static(kind, name))}


@pytest.mark.parametrize(("kind", "table"), [(Session, SESSION), (Runtime, RUNTIME), (Permit, PERMIT)])
def test_every_public_method_is_tried(kind: type[Any], table: dict[str, dict[str, Any]]) -> None:
    """The tables below name every method and every argument that there is: a new one cannot be left out."""
    assert set(table) == public(kind)
    for name, arguments in table.items():
        assert list(arguments) == list(inspect.signature(getattr(kind, name)).parameters)[1:], name


def staged() -> tuple[Stage, Session]:
    stage = Stage()
    stage.groups = [Group("git", tools()), Group("more", [Tool("log", effect="read")])]
    stage.default = ["git/*", "more/*", ask("git/push")]
    session = stage.session(holder="s")
    session.grant("git/log", by="ann", lifetime="session", id="held")
    session.spawn("born", want=["git/log"]).close()
    stage.runtime().session("gone").close()
    session.reproject(provider=PROFILE)
    with session.guard(call("git/sync", "pending", p=1)) as permit:
        assert permit.operation == PENDING
    return stage, session


def heads(stage: Stage) -> dict[str, Any]:
    ledger = storage(stage)
    return {chain: ledger.head(chain) for chain in ledger.chains()}


def applied(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call by name; what stands behind a star goes by place."""
    starred = [
        a for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_POSITIONAL for a in [p.name]
    ]
    if starred:
        plain = [value for name, value in arguments.items() if name not in starred]
        return function(*plain, arguments[starred[0]])
    return function(**arguments)


def tried(stage: Stage, function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """Call, enter what it returns, and close what it opens. An error of bad input must have written nothing."""
    before = heads(stage)
    try:
        made = applied(function, arguments)
        if hasattr(made, "__enter__"):
            with made:
                pass
    except InvalidInputError as error:
        found = error
    except CapstateError:
        return "another"
    else:
        return "done"
    assert heads(stage) == before
    assert found.place
    assert found.expected
    assert len(str(found)) < 5_000
    str(found).encode()
    return "refused"


def well(stage: Stage, session: Session) -> None:
    """It still guards and reprojects, and is not read-only."""
    state = session._live.state
    assert not state.read_only
    assert run(session, call("git/log", "later")).outcome is Outcome.OK
    assert (
        run(session, call("git/sync", f"later{len(state.operations)}", n=len(state.operations))).outcome is Outcome.OK
    )
    assert "git/log" in session.reproject(provider=PROFILE, history=[]).surface.callable
    again = stage.runtime().state(session.id)
    assert again is not None
    assert not again.read_only


@pytest.mark.parametrize("argument", [f"{m}.{a}" for m, given in SESSION.items() for a in given])
def test_no_odd_argument_of_a_session_hurts(argument: str) -> None:
    """Bad input or success, or another error of the library; and the session goes on, also in another process."""
    method, _, name = argument.partition(".")
    seen = set()
    for _, value in odd_values():
        stage, session = staged()
        seen.add(tried(stage, getattr(session, method), {**SESSION[method], name: value}))
        well(stage, session)
        session.close()
        well(stage, stage.session())
    assert "refused" in seen


@pytest.mark.parametrize("argument", [f"{m}.{a}" for m, given in RUNTIME.items() for a in given])
def test_no_odd_argument_of_a_runtime_hurts(argument: str) -> None:
    """As for a session; the runtime opens sessions afterwards."""
    method, _, name = argument.partition(".")
    seen = set()
    for _, value in odd_values():
        stage, session = staged()
        seen.add(tried(stage, getattr(session._runtime, method), {**RUNTIME[method], name: value}))
        well(stage, session)
        stage.runtime().session("yet another").close()
    assert "refused" in seen


@pytest.mark.parametrize("argument", [f"{m}.{a}" for m, given in PERMIT.items() for a in given])
def test_no_odd_argument_of_a_permit_settles_anything(argument: str) -> None:
    """What is refused leaves the call running, and it can still be settled, inside ``with`` and ``async with``."""
    method, _, name = argument.partition(".")
    seen = set()
    for later in (False, True):
        for _, value in odd_values():
            stage, session = staged()
            permit = started(session, call("git/sync", "p"))
            permit._later = later
            seen.add(told := tried(stage, getattr(permit, method), {**PERMIT[method], name: value}))
            if told == "refused":
                assert permit.outcome is None
                permit.settle()
            permit._leave()
            assert [op.id for op in session._live.state.unsettled] == [PENDING]
            well(stage, session)
    assert "refused" in seen or (method, name) in ANYTHING


@pytest.mark.parametrize("argument", ["ledger", "catalog", "grants", "ceilings", "key", "clock"])
def test_no_odd_argument_makes_a_runtime(argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made or refused; what its functions return is read later, and never raises raw."""
    monkeypatch.chdir(tmp_path)
    more = {"list": [print], "async": {"config": _asynchronous}, "url": "postgresql://x", "bytes path": _BytesPath()}
    for value in (*(value for _, value in odd_values()), *more.values()):
        given: dict[str, Any] = {"ledger": MemoryLedger(), "catalog": list, "grants": {}, "ceilings": {}}
        try:
            runtime = Runtime(**{**given, argument: value})
        except CapstateError:
            continue
        with runtime:
            try:
                with runtime.session("s") as session:
                    session.reproject()
            except CapstateError:
                pass


async def _asynchronous(holder: str) -> list[str]:
    raise NotImplementedError(holder)


class _BytesPath:
    def __fspath__(self) -> bytes:
        return b"x"


MAKERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Tool": (
        Tool,
        {
            "name": "x", "description": "", "schema": None, "annotations": None, "effect": "read", "idempotent": False,
            "needs": (), "reaches": None, "loads": False, "wire_name": None,
        },
    ),
    "Group": (Group, {"id": "g", "tools": [Tool("x")], "server": None, "up": True}),
    "Grant": (
        Grant,
        {
            "on": "a/b", "effect": "allow", "pin": None, "id": "", "giver": "", "lifetime": "persistent", "until": None,
            "expires": None, "token": None,
        },
    ),
    "allow": (allow, {"on": "a/b", "pin": None, "id": ""}),
    "ask": (ask, {"on": "a/b", "id": ""}),
    "deny": (deny, {"on": "a/b", "id": ""}),
    "Limits": (Limits, {"calls": None, "cost": None, "concurrency": None}),
    "Rules": (Rules, {"rules": [], "revision": None}),
    "Call": (Call, {"id": "c", "tool": "t", "arguments": {}, "occurrence": 0}),
    "Message": (
        Message,
        {
            "id": "m", "role": "user", "text": "", "calls": (), "result_for": None, "tool": None, "outcome": None,
            "evidence": None, "issuer": None, "item": None, "covers": (), "covered": (), "refers": (), "native": None,
            "api": None, "rows": (),
        },
    ),
    "open_ledger": (open_ledger, {"ledger": "x.db"}),
    "profile": (anthropic.profile, {"model": "m", "account": "", "provider": "p"}),
}  # fmt: skip
FREE = {"Message.native"}


@pytest.mark.parametrize("argument", [f"{m}.{a}" for m, (_, given) in MAKERS.items() for a in given])
def test_no_odd_argument_of_a_value_raises_raw(argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value is made or refused, with the place of the argument; what is made can be hashed as it could before."""
    monkeypatch.chdir(tmp_path)
    maker, _, name = argument.partition(".")
    make, good = MAKERS[maker]
    refusals = 0
    for _, value in odd_values():
        try:
            make(**{**good, name: value})
        except CapstateError as error:
            refusals += 1
            str(error).encode()
    assert refusals or argument in FREE


@pytest.mark.parametrize("kind", [Tool, Group, Grant, Limits, Rules, Call, Message], ids=lambda kind: kind.__name__)
def test_every_argument_of_a_value_is_tried(kind: type[Any]) -> None:
    """The table of values is complete."""
    assert list(MAKERS[kind.__name__][1]) == list(inspect.signature(kind).parameters)


GIT = Group("git", tools())
WRONG: dict[str, tuple[Callable[[Session, Runtime], object], str]] = {
    "provider by name": (lambda s, _: s.reproject(provider="anthropic"), "provider"),  # type: ignore[arg-type]
    "path a number": (lambda s, _: s.reproject(path=5), "path"),  # type: ignore[arg-type]
    "path a text": (lambda s, _: s.reproject(path="abc"), "path"),
    "path a set": (lambda s, _: s.reproject(path={"a", "b"}), "path"),
    "path of numbers": (lambda s, _: s.reproject(path=["a", 5]), "path[1]"),  # type: ignore[list-item]
    "history a text": (lambda s, _: s.reproject(history="text"), "history"),
    "history of numbers": (lambda s, _: s.reproject(history=[5]), "history[0]"),
    "history used up": (lambda s, _: s.reproject(history=iter([])), "history"),  # type: ignore[arg-type]
    "cause": (lambda s, _: s.reproject("lunch"), "cause"),  # type: ignore[arg-type]
    "guard a text": (lambda s, _: s.guard("x"), "call"),  # type: ignore[arg-type]
    "approve a text": (lambda s, _: s.approve("x", by="ann"), "call"),  # type: ignore[arg-type]
    "reject a number": (lambda s, _: s.reject(3, by="ann"), "call"),  # type: ignore[arg-type]
    "approve by nobody": (lambda s, _: s.approve(call("git/push"), by=""), "by"),
    "load a group": (lambda s, _: s.load(GIT), "selector"),  # type: ignore[arg-type]
    "load a number": (lambda s, _: s.load(5), "selector"),  # type: ignore[arg-type]
    "load by somebody": (lambda s, _: s.load("git", by="bob"), "by"),  # type: ignore[arg-type]
    "unload nothing": (lambda s, _: s.unload(None), "selector"),  # type: ignore[arg-type]
    "unload by somebody": (lambda s, _: s.unload("git", by="bob"), "by"),  # type: ignore[arg-type]
    "note a number": (lambda s, _: s.note(5), "note"),  # type: ignore[arg-type]
    "note no JSON": (lambda s, _: s.note({"a": object()}), "note"),
    "check a text": (lambda s, _: s.check("{}"), "body"),  # type: ignore[arg-type]
    "explain a number": (lambda s, _: s.explain(5), "tool"),  # type: ignore[arg-type]
    "spawn for a number": (lambda s, _: s.spawn("k", want=5), "want"),  # type: ignore[arg-type]
    "spawn without an id": (lambda s, _: s.spawn("", want="*"), "child id"),
    "spawn at a number": (lambda s, _: s.spawn("k", want="*", at=5), "at"),  # type: ignore[arg-type]
    "child of nobody": (lambda s, _: s.child("unknown"), "child id"),
    "fork at a number": (lambda s, _: s.fork("f", at=5), "at"),  # type: ignore[arg-type]
    "fork at no entry": (lambda s, _: s.fork("f", at="unknown"), "at"),
    "fork off the path": (lambda s, _: s.fork("f", at="unknown", path=["e1"]), "at"),
    "fork of a text": (lambda s, _: s.fork("f", path="e1"), "path"),
    "job without a name": (lambda s, _: s.job(""), "job"),
    "job for a number": (lambda s, _: s.job("j", grants=5), "grants"),  # type: ignore[arg-type]
    "grant a wildcard": (lambda s, _: s.grant("git/pu*", by="ann"), "on"),
    "grant of nothing": (lambda s, _: s.grant("gti/*", by="ann"), "on"),
    "pin a list": (lambda s, _: s.grant("git/*", by="ann", pin=[]), "pin"),  # type: ignore[arg-type]
    "evidence": (lambda s, _: s.reconcile("op", outcome="ok", by="ann", evidence=5), "evidence"),  # type: ignore[arg-type]
    "session by number": (lambda _, r: r.session(5), "session id"),  # type: ignore[arg-type]
    "holder": (lambda _, r: r.session("n", holder=5), "holder"),  # type: ignore[arg-type]
    "limits": (lambda _, r: r.session("n", limits={"calls": 5}), "limits"),  # type: ignore[arg-type]
    "end a typo": (lambda _, r: r.end("typo", by="ann"), "session id"),
    "end a holder": (lambda _, r: r.end("bob", by="ann"), "session id"),
    "revoke a typo": (lambda _, r: r.revoke("typo", "x", by="ann"), "grant id"),
    "deny a wildcard": (lambda _, r: r.deny("s", "git/pu*", by="ann"), "grant selector"),
    "append nothing": (lambda _, r: r.append_to("s"), "records"),
    "grants a list": (lambda _, r: Runtime(r.ledger, catalog=list, grants=[allow("a/b")]), "grants"),  # type: ignore[arg-type]
    "grants a function": (lambda _, r: Runtime(r.ledger, catalog=list, grants=print), "grants"),  # type: ignore[arg-type]
    "a source": (lambda _, r: Runtime(r.ledger, catalog=list, grants={"a": ["x/y"]}), "grants 'a'"),  # type: ignore[dict-item]
    "catalog a list": (lambda _, r: Runtime(r.ledger, catalog=[GIT]), "catalog"),  # type: ignore[arg-type]
    "a ledger": (lambda *_: Runtime(5, catalog=list), "ledger"),  # type: ignore[arg-type]
    "a class of ledger": (lambda *_: Runtime(MemoryLedger, catalog=list), "ledger"),  # type: ignore[arg-type]
    "a clock": (lambda _, r: Runtime(r.ledger, catalog=list, clock=5), "clock"),  # type: ignore[arg-type]
    "a tool, no list": (lambda *_: Group("g", Tool("x")), "group 'g'.tools"),  # type: ignore[arg-type]
    "a group of texts": (lambda *_: Group("g", ["x"]), "group 'g'.tools[0]"),  # type: ignore[list-item]
    "covers a text": (lambda *_: Message("m", "summary", covers="abc"), "message covers"),
    "a text of 5": (lambda *_: Message("m", "user", 5), "message text"),  # type: ignore[arg-type]
    "a grant's id": (lambda *_: allow("a/b", id=5), "grant on 'a/b'.id"),  # type: ignore[arg-type]
    "a revision": (lambda *_: Rules([], revision=-1), "revision of rules"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_named(name: str) -> None:
    """The place in the error is the argument; nothing was written, and the session goes on."""
    stage, session = staged()
    stage.runtime().deny("bob", "more/*", by="ann")
    before = heads(stage)
    do, place = WRONG[name]
    with pytest.raises(InvalidInputError) as raised:
        do(session, session._runtime)

    assert raised.value.place == place
    assert heads(stage) == before
    well(stage, session)


@pytest.mark.parametrize("native", [False, True], ids=["neutral", "native"])
@pytest.mark.parametrize("wrong", ["id", "arguments", "issuer"])
def test_a_history_that_no_entry_can_hold_is_refused_before_anything(wrong: str, native: bool) -> None:
    """Also before the pins that are due are taken: an id that is no text, arguments that are no JSON."""
    stage = Stage()
    stage.default = [allow("git/*", pin=True)]
    session = stage.session()
    before = heads(stage)
    bad = {
        "id": [Message("\ud800", "user")],
        "issuer": [Message("o", "opaque", issuer="\ud800")],
        "arguments": [
            Message("a", "assistant", calls=[Call("c", "git__push", {"a": object()})]),
            Message("r", "tool", result_for="c", outcome="outcome_unknown"),
        ],
    }[wrong]
    with pytest.raises(InvalidInputError):
        session.reproject(provider=PROFILE if native else None, history=bad)

    assert heads(stage) == before
    assert "git/log" in session.reproject(history=[]).surface.callable


def test_one_selector_stands_for_several() -> None:
    """A child's want and a job's grants may be one text, a group id as well."""
    _, session = staged()
    with session.spawn("k", want="git") as child:
        assert list(child.surface.callable) == ["git/log", "git/push", "git/sync"]
    with session.job("j", grants="more"):
        assert session.explain("more/log")["effect"] == "allow"


def test_a_clock_that_tells_something_else_opens_nothing() -> None:
    """Seconds as a fraction would stand in every entry."""
    stage = Stage()
    runtime = Runtime(stage.handle(), catalog=list, clock=lambda: 1.5)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidInputError, match=r"^clock: expected a whole number of milliseconds"):
        runtime.session("s")
    assert heads(stage) == {}


# -- selectors

SLIPS = [
    "", " ", "/", "git/", "/push", "*/push", "*/*", "git/pu*", "git/*sh", "g*t/push", "**", "git/**", "git/* ",
    " git/*", "git /push", "git/ push", "git/push ", "git/push\n", "\tgit/push", "git//push", "git/push/",
    "git/pu\0sh", "gi\x7ft/x", "git/\x85x", "git/\ud800",
]  # fmt: skip


@pytest.mark.parametrize("slip", SLIPS, ids=ascii)
def test_a_slip_in_a_selector_is_refused_everywhere(slip: str) -> None:
    """Rules, loads, grants, wants, and the policy file: what can never name a tool is no selector."""
    stage, session = staged()
    before = heads(stage)
    for refuse in (
        lambda: allow(slip),
        lambda: ask(slip),
        lambda: deny(slip),
        lambda: session.load(slip),
        lambda: session.load(["git", slip]),
        lambda: session.unload(slip),
        lambda: session.removal(slip),
        lambda: session.grant(slip, by="ann", effect="deny"),
        lambda: session.deny(slip, by="ann"),
        lambda: session.spawn("k", want=[slip]),
        lambda: session.job("j", grants=[slip]),
        lambda: session._runtime.deny("s", slip, by="ann"),
        lambda: parse(f"deny = [{_toml(slip)}]"),
    ):
        with pytest.raises(InvalidInputError):
            refuse()
    assert heads(stage) == before


def _toml(text: str) -> str:
    return '"' + "".join(f"\\u{ord(c):04x}" for c in text) + '"'


@pytest.mark.parametrize("name", ["git/push", "git/*", "git/deep/er", "a b/é", "git/a.b-c_d:e"])
def test_the_file_and_the_api_take_the_same(name: str) -> None:
    """One rule for both."""
    assert deny(name).on == name
    assert parse(f"deny = [{_toml(name)}]").deny == (name,)


def test_a_source_with_a_slip_is_an_error_that_says_so() -> None:
    """It is nothing, so nobody may anything; and a person finds out why."""
    stage, session = staged()
    stage.default = ["git/*", "git/pu*"]

    assert refused(session, "git/log") is not None
    told = session.explain("git/log")
    assert told["decided_by"] == "config!error"
    assert told["source_errors"] == {
        "config": "InvalidInputError: source 'config'[1]: expected 'group/name', 'group/*' or '*', got git/pu*"
    }


# -- what names nothing now


def test_what_names_nothing_is_shown() -> None:
    """Loads and rules of a typo are lasting wishes: legal, and listed until something bears the name."""
    stage, session = staged()
    session.load("nosuch")
    given = session.deny("gti/push", by="ann")
    stage.default = ["git/*", "more/*", ask("web/fetch", id="w")]

    assert session.explain() == {
        "unknown_loads": ["nosuch/*"],
        "unknown_rules": [
            {"source": "config", "id": "w", "on": "web/fetch", "effect": "ask", "giver": ""},
            {"source": "granted", "id": given.id, "on": "gti/push", "effect": "deny", "giver": "ann"},
        ],
        "source_errors": {},
    }
    assert session.explain("gti/push")["reason"] == "unknown_tool"
    stage.groups += [Group("nosuch", [Tool("x")]), Group("gti", [Tool("push")]), Group("web", [Tool("fetch")])]
    assert session.explain() == {"unknown_loads": [], "unknown_rules": [], "source_errors": {}}
    assert "nosuch/x" not in session.surface.callable


def test_a_load_by_the_configuration_is_written_once() -> None:
    """Also where nothing bears the name."""
    stage, session = staged()
    session.load("nosuch", by="configuration")
    before = heads(stage)
    session.load("nosuch", by="configuration")
    assert heads(stage) == before


def test_what_was_unloaded_is_no_wish() -> None:
    """An unload or a removal of a name that nothing bears wishes for nothing."""
    _, session = staged()
    session.unload("nosuch")
    session.removal("nosuch")
    assert session.explain()["unknown_loads"] == []


def test_a_pin_on_nothing_is_refused_and_an_open_grant_is_not() -> None:
    """A grant of today's definitions, of which there are none, would look given and be nothing."""
    stage, session = staged()
    with pytest.raises(InvalidInputError, match=r"exists now \(pin=False gives an open grant\), got gti/\*"):
        session.grant("gti/*", by="ann")
    with pytest.raises(InvalidInputError, match="exists now, got gti/"), session.job("j", grants=["gti"]):
        pytest.fail("the job began")
    session.grant("gti/*", by="ann", pin=False)
    session.load("gti")
    stage.groups.append(Group("gti", [Tool("push", effect="read")]))
    assert refused(session, "gti/push") is None


# -- chains and entries that are not there


def test_an_early_deny_holds_when_its_session_comes() -> None:
    """A chain that does not exist yet may be denied; a session that does not exist cannot be ended."""
    stage = Stage()
    stage.runtime().deny("later", "git/log", by="ann")
    with pytest.raises(InvalidInputError):
        stage.runtime().end("later", by="ann")
    session = stage.session("later")
    assert refused(session, "git/log") is not None
    stage.runtime().end("later", by="ann")
    assert refused(session, "git/log") is not None


def test_a_child_that_was_started_and_never_opened_is_known() -> None:
    """After a crash between the two entries it resumes without its restriction; another id is nobody's child."""
    stage, session = staged()
    session._append(Record("spawned", {"at": None, "call": None, "child": "lost"}))
    assert refused(session.child("lost"), "git/log") is not None
    stage.runtime().deny("somebody", "git/log", by="ann")
    for unknown in ("never", "somebody", "gone"):
        with pytest.raises(InvalidInputError):
            session.child(unknown)


def test_a_fork_of_a_linear_history_is_at_an_entry_that_is_known() -> None:
    """One of the last history, or one that a load names; for any other the caller says the path."""
    _, session = staged()
    session.load("more", at="e1", by="model")
    session.reproject(history=[Message("e2", "user"), Message("e3", "user")])
    for n, at in enumerate(("e1", "e2", "e3")):
        session.fork(f"f{n}", at=at).close()
    with pytest.raises(InvalidInputError, match=r"^at: expected an entry of the last history or of a load"):
        session.fork("f", at="e9")
    session.fork("f", at="e9", path=["e1", "e9"]).close()


# -- sources that fail


class _Mute(Exception):  # noqa: N818 - a stranger's
    def __str__(self) -> str:
        raise RuntimeError


def _raising(error: Exception, _: str) -> None:
    raise error


def test_what_a_source_raised_is_told_to_people_alone() -> None:
    """``explain`` has it while it fails; no receipt and no fingerprint depends on it."""
    receipts = []
    for error in (RuntimeError("no route to host"), ValueError("x" * 9_000), _Mute()):
        stage, session = staged()
        stage.ceilings["trust"] = partial(_raising, error)
        session.close()
        session = stage.session()
        receipt = session.reproject("reopen").receipt
        assert "route" not in str(receipt.body)
        receipts.append({**receipt.body, "ledger": "", "previous": "", "previous_entry": ""})
        told = session.explain("git/log")
        assert told["decided_by"] == "ceiling trust!error"
        assert told["source_errors"] == session.explain()["source_errors"] == session.explain("x")["source_errors"]
        assert list(told["source_errors"]) == ["ceiling trust"]
        assert told["source_errors"]["ceiling trust"].startswith(type(error).__name__)
        assert len(told["source_errors"]["ceiling trust"]) <= 500
        stage.ceilings["trust"] = lambda _: "allow"
    assert [{k: r[k] for k in ("sources", "surface", "state")} for r in receipts[1:]] == [
        {k: receipts[0][k] for k in ("sources", "surface", "state")}
    ] * 2


def test_a_source_that_works_again_is_no_error() -> None:
    """What was raised before is forgotten at the next reading."""
    failing = [True]
    stage = Stage()
    stage.sources["other"] = lambda _: 1 / 0 if failing else []
    session = stage.session()
    assert session.explain()["source_errors"] == {"other": "ZeroDivisionError: division by zero"}
    failing.clear()
    assert session.explain()["source_errors"] == {}


def test_what_fails_for_a_parent_is_told_in_the_child() -> None:
    """A child's authority asks for its parent's holder as well: the error says whose it was."""
    _, session = staged()
    child = session.spawn("k", want="git")

    def source(holder: str) -> list[str]:
        if holder == "s":
            raise KeyError(holder)
        return ["git/*"]

    sources: Any = session._runtime._sources[1]
    sources["config"] = source
    child.close()
    child = session.child("k")
    assert child.explain("git/log")["source_errors"] == {"config of s": "KeyError: 's'"}


def test_a_catalog_that_cannot_say_why_is_unavailable() -> None:
    """Its error's own text may fail; the class is told."""

    def broken() -> list[Group]:
        raise _Mute

    runtime = Runtime(MemoryLedger(), catalog=broken)
    with runtime.session("s") as session, pytest.raises(capstate.CapstateError, match="_Mute"):
        session.reproject()


# -- what a decision rests on, for people


def test_the_rule_behind_a_decision_is_readable() -> None:
    """Source, selector, effect and giver stand beside ``decided_by``, for the pool, a ceiling, a parent and a want."""
    stage, session = staged()
    trust: list[Any] = [[allow("*"), ask("git/sync")]]
    stage.ceilings["trust"] = lambda _: trust[0]
    session.close()
    session = stage.session()
    session.deny("more/*", by="ann")

    assert session.explain("git/push")["rule"] == {"source": "config", "on": "git/push", "effect": "ask", "giver": ""}
    assert session.explain("more/log")["rule"] == {
        "source": "granted",
        "on": "more/*",
        "effect": "deny",
        "giver": "ann",
    }
    assert session.explain("git/sync")["rule"] == {
        "source": "ceiling trust", "on": "git/sync", "effect": "ask", "giver": ""
    }  # fmt: skip
    child = session.spawn("k", want=["git/log", "git/push", "more"])
    assert child.explain("git/log")["rule"] == {"source": "want", "on": "git/log", "effect": "allow", "giver": ""}
    told = child.explain("more/log")
    assert told["decided_by"].startswith("parent: granted#")
    assert told["rule"] == {"source": "granted", "on": "more/*", "effect": "deny", "giver": "ann"}
    assert child.explain("git/sync")["rule"] is None
    trust[0] = "none"
    assert session.explain("git/log")["decided_by"] == "ceiling trust"
    assert session.explain("git/log")["rule"] is None
    session.end()
    assert child.explain("git/log")["rule"] is None


def test_a_wire_name_is_explained_as_its_tool() -> None:
    """What stands in a request body can be asked about as it stands there."""
    _, session = staged()
    assert session.explain("git__push") == session.explain("git/push")


def test_errors_of_the_guard_say_what_and_why() -> None:
    """Tool, reason and deciding rule, for logs; the result for the model names none of them."""
    _, session = staged()
    session.deny("git/sync", by="ann")
    with pytest.raises(Refused) as no, session.guard(call("git/sync", "c7")):
        pytest.fail("it ran")
    assert str(no.value) == f"call 'c7' of 'git/sync' refused: not_authorised, decided by {no.value.decided_by}"
    assert "git" not in no.value.result.text
    with pytest.raises(NeedsApproval) as wait, session.guard(call("git__push", "c8")):
        pytest.fail("it ran")
    assert str(wait.value) == f"call 'c8' of 'git__push' waits: needs_approval, decided by {wait.value.decided_by}"
    with pytest.raises(CallNotStartedError) as long, session.guard(Call(LONG, LONG)):
        pytest.fail("it ran")
    assert len(str(long.value)) < 5_000


def test_a_body_that_exceeds_says_why() -> None:
    """For each name that is withheld: its reason and who decided it."""
    _, session = staged()
    denied = session.deny("git/sync", by="ann")
    body: dict[str, Any] = {
        "tools": [{"name": name, "input_schema": {}} for name in ("git__sync", "rm")],
        "messages": [],
    }
    with pytest.raises(SurfaceExceededError) as raised:
        session.check(body)

    assert str(raised.value) == (
        "the request body exceeds the surface: "
        f"not callable 'git__sync' (not_authorised, decided by granted#{denied.id}), 'rm' (unknown_tool)"
    )


# -- words


@pytest.mark.parametrize(
    ("words", "kind"),
    [(CauseName, Cause), (OutcomeName, Outcome), (EffectName, Effect), (RoleName, Role), (ToolEffectName, ToolEffect)],
    ids=["cause", "outcome", "effect", "role", "tool effect"],
)
def test_the_words_that_an_editor_completes_are_all_there_are(words: Any, kind: type[StrEnum]) -> None:
    """A signature's literal and its enumeration have the same values, in the same order."""
    assert get_args(words) == tuple(word.value for word in kind)
    assert ORIGINS == ("configuration", "user", "model")


def test_an_evidence_that_cannot_be_written_is_refused_at_once() -> None:
    """Also where the entry is only written when the block is left: what was said is not lost."""
    stage, session = staged()
    permit = started(session, call("git/sync", "late"))
    permit._later = True
    with pytest.raises(InvalidInputError):
        permit.settle(evidence="\ud800")
    permit.settle(evidence="log")
    permit._leave()
    crash(session)
    entry = load(storage(stage), "s").entries[-1]
    assert (entry.body["outcome"], entry.body["evidence"]) == ("ok", "log")
    assert entry.kind == "settled"
