"""An approval that a deny ended does not live again: wherever the deny stood, and although it was taken back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from capstate.authority import allow, ask, deny
from capstate.capabilities import Group, Tool
from capstate.errors import InvalidInputError, Reason
from capstate.ledgers.memory import MemoryLedger
from capstate.runtime import Session
from tests.runtime.stage import Stage, Wrapped, call, entries, kinds, refused, tools


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.default = [allow("git/*"), ask("git/push")]
    return made


def family(stage: Stage) -> tuple[dict[str, Session], Session]:
    """A fork of a child of a fork, for a holder of its own, and all that it rests on; open, so that denies end."""
    root = stage.session("root", holder="ann")
    origin = root.fork("origin")
    parent = origin.spawn("parent", want=["*"])
    last = parent.fork("last")
    assert refused(last, call("git/log")) is None
    return {"root": root, "origin": origin, "parent": parent, "last": last}, last


@pytest.mark.parametrize("chain", ["root", "ann", "origin", "parent", "last"])
@pytest.mark.parametrize("on", ["git/push", "git/*", "*"])
def test_a_deny_anywhere_above_ends_it_although_nobody_looked(stage: Stage, chain: str, on: str) -> None:
    """Posted and taken back between approval and use: in ancestors, their holders and origins, and in its own chain."""
    line, last = family(stage)
    last.approve(call("git/push"), by="ann")
    last.approve(call("git/push", "c2"), by="ann")
    assert refused(last, call("git/push", "c2")) is None
    grant = stage.runtime().deny(chain, on, by="bob")
    owner = line["root" if chain == "ann" else chain]
    owner.revoke(grant.id, by="bob")

    assert refused(last, "git/push") is Reason.NEEDS_APPROVAL
    last.approve(call("git/push"), by="ann")
    assert refused(last, "git/push") is None


def test_a_deny_before_it_ends_nothing(stage: Stage) -> None:
    """What was denied and allowed again before a person said yes is past."""
    line, last = family(stage)
    for chain in ("root", "ann", "origin", "parent"):
        grant = stage.runtime().deny(chain, "git/push", by="bob")
        line["root" if chain == "ann" else chain].revoke(grant.id, by="bob")
    last.approve(call("git/push"), by="ann")

    assert refused(last, "git/push") is None


def test_a_deny_of_something_else_ends_nothing(stage: Stage) -> None:
    """Only one that covers a tool of the call."""
    line, last = family(stage)
    last.approve(call("git/push"), by="ann")
    line["parent"].revoke(stage.runtime().deny("parent", "git/log", by="bob").id, by="bob")

    assert refused(last, "git/push") is None


@pytest.mark.parametrize("seen", ["the call", "another call", "another approval", "a rejection"])
@pytest.mark.parametrize("source", ["config", "ceiling", "raises"])
def test_what_only_the_guard_saw_denied_ends_it(stage: Stage, source: str, seen: str) -> None:
    """A configuration that denied for a moment, between two epochs: whatever call made the guard look."""
    trouble: list[Any] = []

    def trust(_: str) -> Any:
        return trouble[0] if trouble else "allow"

    stage.ceilings["trust"] = trust
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    if source == "config":
        stage.default.append(deny("git/push"))
    else:
        trouble.append("none" if source == "ceiling" else object())
    look: dict[str, Callable[[], Any]] = {
        "the call": lambda: refused(session, "git/push"),
        "another call": lambda: refused(session, call("git/log", "c7")),
        "another approval": lambda: session.approve(call("git/nothing"), by="ann"),
        "a rejection": lambda: session.reject(call("git/nothing"), by="ann"),
    }
    for _ in range(2):
        with suppress(InvalidInputError):
            look[seen]()
    stage.default[:] = [allow("git/*"), ask("git/push")]
    trouble.clear()

    assert kinds(stage).count("lapsed") == 1
    assert next(e.body for e in entries(stage) if e.kind == "lapsed") == {"tools": ["git/push"]}
    assert refused(session, "git/push") is Reason.NEEDS_APPROVAL
    session.close()
    assert refused(stage.session(), "git/push") is Reason.NEEDS_APPROVAL


def test_a_parent_whose_configuration_denies_ends_the_childs(stage: Stage) -> None:
    """Seen only by the guard of the child."""
    session = stage.session()
    child = session.spawn("k", want=["*"])
    child.approve(call("git/push"), by="ann")
    stage.grants["s"] = [allow("git/log")]
    assert refused(child, "git/push") is Reason.NOT_AUTHORISED
    del stage.grants["s"]

    assert refused(child, "git/push") is Reason.NEEDS_APPROVAL


def test_a_deny_of_what_a_bridge_reaches_ends_it(stage: Stage) -> None:
    """Seen only by the guard: the tool that the call names stays allowed."""
    stage.groups = [Group("git", tools(bridge=Tool("bridge", effect="read", reaches="tool")))]
    session = stage.session()
    through = call("git/bridge", tool="git/push")
    session.approve(through, by="ann")
    stage.default.append(deny("git/push"))
    assert refused(session, through) is Reason.NOT_AUTHORISED
    stage.default.pop()

    assert refused(session, through) is Reason.NEEDS_APPROVAL


def test_without_an_approval_that_it_touches_nothing_is_written(stage: Stage) -> None:
    """A refusal is counted, and no more; a rejected call and a missing tool end no approval of another call."""
    session = stage.session()
    session.approve(call("git/push"), by="ann")
    session.reject(call("git/push", "c2"), by="ann")
    stage.default.append(deny("git/sync"))
    assert refused(session, "git/sync") is Reason.NOT_AUTHORISED
    assert refused(session, call("git/push", "c2")) is Reason.NOT_AUTHORISED
    stage.groups = []
    assert refused(session, "git/push") is Reason.UNKNOWN_TOOL
    stage.groups = [Group("git", tools())]

    assert "lapsed" not in kinds(stage)
    assert refused(session, "git/push") is None


def test_a_deny_that_comes_while_a_person_approves_comes_before() -> None:
    """It is posted between judging and writing: the call does not wait for approval any more, it is refused."""
    storage, posts = MemoryLedger(), list[Callable[[], Any]]()

    def append(*args: Any, **more: Any) -> Any:
        while posts:
            posts.pop()()
        return storage.append(*args, **more)

    stage = Stage(storage)
    stage.default = [allow("git/*"), ask("git/push")]
    session = stage.runtime(Wrapped(storage, append=append)).session("s")
    session.load("git")
    posts.append(lambda: stage.runtime().deny("s", "git/push", by="bob"))
    with pytest.raises(ValueError, match="not_authorised"):
        session.approve(call("git/push"), by="ann")

    assert "approved" not in kinds(stage)


def test_a_post_that_denies_nothing_delays_an_approval_and_no_more() -> None:
    """The verdict is derived again, and the approval written behind the post."""
    storage, posts = MemoryLedger(), list[Callable[[], Any]]()

    def append(*args: Any, **more: Any) -> Any:
        while posts:
            posts.pop()()
        return storage.append(*args, **more)

    stage = Stage(storage)
    stage.default = [allow("git/*"), ask("git/push")]
    session = stage.runtime(Wrapped(storage, append=append)).session("s")
    session.load("git")
    posts.append(lambda: stage.runtime().deny("s", "git/log", by="bob"))
    session.approve(call("git/push"), by="ann")

    assert refused(session, "git/push") is None
