"""What an editor and a type checker know of the API: mypy reads this file with the rest of the suite."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import assert_type

from capstate import (
    Call,
    Cause,
    Epoch,
    Grant,
    Group,
    Message,
    Outcome,
    Permit,
    Refused,
    Role,
    Runtime,
    Session,
    Tool,
    allow,
    ask,
)
from capstate.ledgers.memory import MemoryLedger


def runtime() -> Runtime:
    git = Group("git", [Tool("log", effect="read"), Tool("push")])
    return Runtime(
        MemoryLedger(), catalog=lambda: [git], grants={"config": lambda _: [allow("git/*"), ask("git/push")]}
    )


def test_a_message_takes_words_and_members() -> None:
    """A role and an outcome may be written as text; what is read back is the member."""
    message = Message("m", "tool", "done", result_for="c1", outcome="ok")

    assert_type(message.role, Role)
    assert_type(message.outcome, Outcome | None)
    assert message == Message("m", Role.TOOL, "done", result_for="c1", outcome=Outcome.OK)
    assert Message("m", "user").role is Role.USER


def test_settling_returns_what_it_was_given() -> None:
    """With its type; without a result it returns None."""
    with runtime() as given, given.session("s") as session:
        assert_type(session, Session)
        session.load("git", by="configuration")
        with session.guard(Call("c1", "git/log")) as permit:
            assert_type(permit, Permit)
            assert_type(permit.settle(["a"], outcome="error", evidence="e"), list[str])
        with session.guard(Call("c2", "git/log")) as permit:
            permit.settle(outcome=Outcome.CANCELLED)
        assert permit.outcome is Outcome.CANCELLED


def test_words_of_signatures_are_literals_or_members() -> None:
    """Each takes the text and the member of its enumeration; a typo does not type-check, and is refused."""
    with runtime() as given, given.session("s") as session:
        assert_type(session.reproject("compaction"), Epoch)
        session.reproject(Cause.COMPACTION)
        assert_type(session.grant("git/*", by="ann", effect="ask", lifetime="session"), Grant)
        assert_type(session.job("j", grants="git"), AbstractContextManager[Session])
        for wrong in (
            lambda: session.reproject("compactoin"),  # type: ignore[arg-type]
            lambda: session.grant("git/*", by="ann", effect="alow"),  # type: ignore[arg-type]
            lambda: session.load("git", by="me"),  # type: ignore[arg-type]
            lambda: session.reconcile("op", outcome="fine", by="ann"),  # type: ignore[arg-type]
        ):
            try:
                wrong()
            except ValueError:
                continue
            raise AssertionError


def test_a_refusal_carries_a_message() -> None:
    """The result of a refused call goes into a history as it is."""
    with runtime() as given, given.session("s") as session:
        history = [Message("m", "user")]
        try:
            with session.guard(Call("c1", "git/nothing")):
                raise AssertionError
        except Refused as no:
            assert_type(no.result, Message)
            history.append(no.result)
        assert [message.role for message in history] == ["user", "tool"]
