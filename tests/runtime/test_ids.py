"""Whose chain an id is; and that no mistake of the caller becomes damage of the session's own chain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capstate.errors import InvalidInputError, Reason
from capstate.ledger import Record
from capstate.runtime import Session
from tests.runtime.stage import KEY, Limits, Stage, call, crash, entries, kinds, refused, started, storage


@pytest.fixture
def stage() -> Stage:
    made = Stage(key=KEY)
    made.default = []
    return made


def held(stage: Stage) -> Session:
    """A session of ann's, whose chain holds a grant."""
    session = stage.session("a", holder="ann")
    session.grant("git/log", by="ann")
    return session


@pytest.mark.parametrize("how", ["spawn", "fork", "child", "session", "limits"])
def test_a_holders_chain_is_taken_over_by_nobody(stage: Stage, how: str) -> None:
    """Neither as a child, nor as a fork, nor for another holder; nothing is written, in either chain."""
    first = held(stage)
    other = stage.session("b", holder="bob")
    before = entries(stage, "ann"), entries(stage, "b")
    ways: dict[str, Callable[[], Any]] = {
        "spawn": lambda: other.spawn("ann", want=["*"]),
        "fork": lambda: other.fork("ann"),
        "child": lambda: other.child("ann"),
        "session": lambda: stage.runtime().session("ann", holder="bob"),
        "limits": lambda: stage.runtime().session("ann", holder="bob", limits=Limits(calls=1)),
    }
    with pytest.raises(InvalidInputError, match=r"an unused id|a child of"):
        ways[how]()

    assert (entries(stage, "ann"), entries(stage, "b")) == before
    assert refused(first, "git/log") is None
    stage.runtime().session("ann").close()  # and its lock is free


def test_a_holder_may_have_a_session_of_its_own_name(stage: Stage) -> None:
    """A session is its own holder by default: it has what the holder was granted, and its grants are the holder's."""
    first = held(stage)
    own = stage.session("ann")
    assert own.holder == "ann"
    assert refused(own, "git/log") is None
    own.grant("git/push", by="ann")

    assert refused(first, "git/push") is None


@pytest.mark.parametrize("kind", ["child", "fork", "session of another holder"])
def test_a_session_that_is_not_its_own_holder_is_nobodys(stage: Stage, kind: str) -> None:
    """What it is granted does not reach a session that names it as holder: that one is refused, in any order."""
    other = stage.session("b", holder="bob")
    early = stage.session("x", holder="k")
    if kind == "child":
        made = other.spawn("k", want=["*"])
    else:
        made = other.fork("k") if kind == "fork" else stage.runtime().session("k", holder="bob")
    made.load("git")
    with pytest.raises(InvalidInputError, match="no other session's chain"):
        stage.runtime().session("y", holder="k")
    made.grant("git/push", by="ann")
    made.grant("git/log", by="ann", lifetime="session")

    assert refused(early, "git/push") is refused(early, "git/log") is Reason.NOT_AUTHORISED
    with pytest.raises(InvalidInputError, match="no other session's chain"):
        early.grant("git/push", by="bob")
    assert stage.runtime().state("y") is None
    with pytest.raises(InvalidInputError, match="a grant of this session or its holder"):
        early.revoke(made.deny("git/sync", by="ann", lifetime="session").id, by="bob")
    early.deny("git/*", by="bob")  # what takes away, takes away
    assert refused(made, "git/log") is Reason.NOT_AUTHORISED


def test_a_fork_of_a_child_shares_its_chain(stage: Stage) -> None:
    """They have one holder, and are cut by one parent."""
    stage.grants["s"] = ["git/*"]
    child = stage.session().spawn("k", want=["git/*"])
    fork = child.fork("f")
    assert fork.holder == "k"
    fork.grant("git/log", by="ann", effect="ask")

    assert refused(fork, "git/push") is refused(child, call("git/push", "c2")) is None
    assert refused(fork, "git/log") is refused(child, "git/log") is Reason.NEEDS_APPROVAL


@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_the_name_of_a_holder_in_the_line_is_used(stage: Stage, how: str) -> None:
    """Also while nothing was written for it: a child of that name would get what its parent's holder is granted."""
    session = stage.session("a", holder="ann")
    with pytest.raises(InvalidInputError, match="an unused id"):
        session.spawn("ann", want=["*"]) if how == "spawn" else session.fork("ann")

    assert storage(stage).head("ann") is None
    assert not {"spawned", "forked"} & set(kinds(stage, "a"))


@pytest.mark.parametrize("how", ["child", "fork", "session"])
@pytest.mark.parametrize("written", ["posts", "a post and a grant"])
def test_an_early_deny_is_kept_and_makes_no_holder(stage: Stage, how: str, written: str) -> None:
    """A chain of posts alone holds only what takes away: who begins under its id is cut by it."""
    stage.default = ["git/*"]
    session = stage.session("a", holder="bob")
    stage.runtime().deny("kid", "git/push", by="ann")
    if written != "posts":
        stage.runtime().append_to("kid", Record("grant", {"effect": "allow", "id": "x", "on": "git/log"}))
    ways: dict[str, Callable[[], Session]] = {
        "child": lambda: session.spawn("kid", want=["*"]),
        "fork": lambda: session.fork("kid"),
        "session": lambda: stage.runtime().session("kid", holder="bob"),
    }
    if written != "posts":
        with pytest.raises(InvalidInputError, match="an unused id"):
            ways[how]()
        return
    made = ways[how]()
    made.load("git")

    assert refused(made, "git/push") is Reason.NOT_AUTHORISED
    assert refused(made, "git/log") is None
    stage.runtime()._post(
        "gone", Record("ended", {"by": "ann"})
    )  # as a runtime did that was not asked whether it exists
    with pytest.raises(InvalidInputError, match="an unused id"):
        session.spawn("gone", want=["*"])


# -- the session's own entries

BAD: dict[str, Any] = {
    "a number": 5, "a list": ["x"], "bytes": b"x", "empty": "", "long": "x" * 1025, "NUL": "a\0b",
    "surrogate": "\ud800",
}  # fmt: skip


@pytest.mark.parametrize("wrong", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("where", ["id", "holder", "child", "fork", "resumed child", "deny", "end"])
def test_an_id_that_is_none_is_refused_and_burns_nothing(stage: Stage, where: str, wrong: Any) -> None:
    """No chain, no entry, no lock is left; the session it was asked of goes on."""
    stage.default = ["git/*"]
    session, outside = stage.session(), stage.runtime()
    before = {chain: len(entries(stage, chain)) for chain in storage(stage).chains()}
    ways: dict[str, Callable[[], Any]] = {
        "id": lambda: outside.session(wrong),
        "holder": lambda: outside.session("new", holder=wrong),
        "child": lambda: session.spawn(wrong, want=["*"]),
        "fork": lambda: session.fork(wrong),
        "resumed child": lambda: session.child(wrong),
        "deny": lambda: outside.deny(wrong, "git/*", by="ann"),
        "end": lambda: outside.end(wrong, by="ann"),
    }
    with pytest.raises(InvalidInputError):
        ways[where]()

    assert {chain: len(entries(stage, chain)) for chain in storage(stage).chains()} == before
    assert refused(session, "git/push") is None
    outside.session("new", holder="ann").close()


WRONG: dict[str, Callable[[Session, str], Any]] = {
    "evidence of a reconciliation": lambda s, op: s.reconcile(op, outcome="ok", by="ann", evidence=5),  # type: ignore[arg-type]
    "place of a fork": lambda s, _: s.fork("new", at=5),  # type: ignore[arg-type]
    "place of a child": lambda s, _: s.spawn("new", want=["*"], at=5),  # type: ignore[arg-type]
    "call of a child": lambda s, _: s.spawn("new", want=["*"], call=["c"]),  # type: ignore[arg-type]
    "id of a grant": lambda s, _: s.grant("git/log", by="ann", id=5),  # type: ignore[arg-type]
    "id of a deny": lambda s, _: s.grant("git/log", by="ann", effect="deny", id=["x"]),  # type: ignore[arg-type]
    "note with a set": lambda s, _: s.note({"a": {1, 2}}),
    "note with a key that is none": lambda s, _: s.note({5: "a"}),  # type: ignore[dict-item]
    "note with a large number": lambda s, _: s.note({"a": 2**60}),
    "note with a surrogate": lambda s, _: s.note({"a": "\ud800"}),
    "record of the host": lambda s, _: s._append(Record("grant", {"id": "x"})),
    "load of the host": lambda s, _: s._append(Record("note", {}), Record("load", {"on": "git/*"})),
    "post": lambda s, _: s._runtime._post("s", Record("grant", {"on": "git", "effect": "deny", "id": "x"})),
    "append as the owner": lambda s, _: s._runtime.append_to("s", Record("pin", {"source": 5})),
    "append to a holder": lambda s, _: s._runtime.append_to("new", Record("pin", {"source": 5})),
}


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
@pytest.mark.parametrize("act", WRONG.values(), ids=WRONG.keys())
def test_no_argument_makes_a_session_read_only(act: Callable[[Session, str], Any], key: bytes | None) -> None:
    """One clear error, nothing written, and no chain of the name it was for; then all goes on, also after a restart."""
    stage = Stage(key=key)
    session = stage.session()
    waiting = started(session, call("git/push", "c0"))
    before = entries(stage)
    with pytest.raises(InvalidInputError):
        act(session, str(waiting.operation))

    assert entries(stage) == before
    assert storage(stage).head("new") is None
    waiting.settle()
    assert refused(session, "git/push") is None
    session.spawn("new", want=["*"]).close()
    session.close()
    assert refused(stage.session(), call("git/push", "c2")) is None


def test_a_child_whose_parent_crashed_between_naming_and_opening_it_can_be_started(stage: Stage) -> None:
    """An id that is named and was never opened is not used."""
    session = stage.session()
    session._append(Record("spawned", {"at": None, "call": None, "child": "k"}))
    crash(session)

    assert stage.session().spawn("k", want=["*"]).holder == "k"


def test_the_same_in_a_file(tmp_path: Path) -> None:
    """The post is refused inside the storage's transaction, and the ledger goes on."""
    stage = Stage(tmp_path / "agent.db", key=KEY)
    session = stage.session()
    with pytest.raises(InvalidInputError, match="record 'grant'"):
        session._runtime._post("s", Record("grant", {"on": "git", "effect": "deny", "id": "x"}))
    with pytest.raises(InvalidInputError):
        stage.runtime().session("new", holder="a\0b")

    assert refused(session, "git/push") is None
    assert refused(stage.session("new", holder="ann"), "git/push") is None
