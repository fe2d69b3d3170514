"""What a session behind a boundary has of the one before it: the table of the reference, cell by cell (EP-07)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from capstate.authority import ask
from capstate.capabilities import Group
from capstate.decisions import Decision
from capstate.providers import anthropic, openai_chat
from capstate.runtime import Session
from capstate.trace import Message
from tests.docs.pages import tables
from tests.runtime.stage import Limits, Reason, Stage, call, crash, refused, run, started, tools

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reasons.md"
FACETS = [
    "loads", "grants of persons", "of this session", "of a job", "approvals", "rejections", "limits used", "operations",
    "decisions",
]  # fmt: skip
HISTORY = [Message("e1", "user"), Message("e2", "user")]


def before() -> tuple[Stage, Session]:
    """A session that has one thing of each kind."""
    stage = Stage()
    stage.groups = [Group(name, tools()) for name in ("git", "later", "mine", "ours", "job", "asked")]
    stage.default = ["git/*", ask("asked/*")]
    session = stage.session(holder="ann", limits=Limits(calls=50))
    for group in ("mine", "ours", "job", "asked"):
        session.load(group, at="e1")
    session.load("later", at="e2")
    session.grant("later/*", by="ann")
    session.grant("mine/*", by="ann")
    session.grant("ours/*", by="ann", lifetime="session")
    stage.running = session.job("job", grants=["job/*"])  # type: ignore[attr-defined]  # kept: else it ends at once
    stage.running.__enter__()  # type: ignore[attr-defined]
    session.reproject("turn", provider=anthropic.profile("m"), history=HISTORY, path=["e1", "e2"])
    session.approve(call("asked/log", "approved"), by="ann")
    session.reject(call("asked/push", "rejected"), by="ann")
    run(session, call("git/log", "spent"))
    started(session, call("git/push", "open"))
    session.decide(Decision("D1", "so it is", "accepted", ["E1"]))
    return stage, session


def reopened(stage: Stage, session: Session) -> Session:
    crash(session)
    session._closed = True  # its process is gone, and with it what it would still have written
    return stage.runtime().session("s")


def projected(cause: str, **more: object) -> Callable[[Stage, Session], Session]:
    def act(_: Stage, session: Session) -> Session:
        session.reproject(cause, **more)  # type: ignore[arg-type]
        return session

    return act


def spawned(_: Stage, session: Session) -> Session:
    return session.spawn("k", want=["git", "mine", "ours", "job", "asked"])


BOUNDARIES: dict[str, Callable[[Stage, Session], Session]] = {
    "compaction": projected("compaction", history=[Message("s1", "summary", covers=["e1"]), HISTORY[1]]),
    "provider_switch": projected("provider_switch", provider=openai_chat.profile("m")),
    "branch": projected("branch", path=["e1"]),
    "reopen": reopened,
    "fork": lambda _, session: session.fork("f", at="e1"),
    "child": spawned,
}


def found(made: Session, boundary: str) -> dict[str, str]:
    """What the session behind the boundary has, by trying it."""

    def may(tool: str, id_: str) -> bool:
        reason = refused(made, call(tool, id_))
        assert reason in (None, Reason.NOT_AUTHORISED, Reason.NOT_LOADED), (tool, reason)
        return reason is None

    later = made.explain("later/log")["loaded"]
    loads = "yes" if later else "its want" if boundary == "child" else "of the path"
    through = "through the parent" if boundary == "child" else "yes"
    grants = [through if may(f"{group}/log", f"try {group}") else "no" for group in ("mine", "ours", "job")]
    rest = [
        refused(made, call("asked/log", "approved")) is None,
        refused(made, call("asked/push", "rejected")) is Reason.NOT_AUTHORISED,
        made.used["calls"] >= 2,
        refused(made, call("git/push", "open again")) is Reason.OUTCOME_UNKNOWN,
        "D1" in made.decisions.decisions,
    ]
    return dict(zip(FACETS, [loads, *grants, *("yes" if one else "no" for one in rest)], strict=True))


def told() -> dict[str, dict[str, str]]:
    (table,) = [one for one in tables(PAGE) if one[0][0] == "inherited at"]
    assert table[0][1:] == FACETS
    return {row[0]: dict(zip(FACETS, row[1:], strict=True)) for row in table[1:]}


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_what_is_inherited_is_what_the_table_says(boundary: str) -> None:
    """Each cell, tried."""
    stage, session = before()

    assert found(BOUNDARIES[boundary](stage, session), boundary) == told()[boundary]


def test_every_row_of_the_table_is_tried() -> None:
    """No boundary stands there that is not played."""
    assert list(told()) == list(BOUNDARIES)
