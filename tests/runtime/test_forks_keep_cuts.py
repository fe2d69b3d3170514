"""What cut a session cuts its forks: lost ceilings, old configurations, denies, damage; and other cuts that stay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capstate import Call, Group, Message, Reason, Refused, Rules, Runtime, Session, Tool, allow, deny
from capstate.errors import InvalidInputError
from capstate.ledgers.memory import MemoryLedger

if TYPE_CHECKING:
    from collections.abc import Callable

GIT = Group("git", [Tool("log", effect="read"), Tool("push")])


def refused(session: Session, **arguments: Any) -> tuple[Reason, str]:
    with pytest.raises(Refused) as raised, session.guard(Call("c", "git/push", arguments)):
        pass
    return raised.value.reason, raised.value.decided_by


def opened(path: Path, **sources: Any) -> Runtime:
    return Runtime(path, catalog=lambda: [GIT], **sources)


def used(runtime: Runtime, holder: str = "al") -> None:
    with runtime, runtime.session("s", holder=holder) as session:
        session.load("git")
        session.reproject()


def test_a_fork_lacks_the_ceiling_that_its_origin_lacks(tmp_path: Path) -> None:
    """A ceiling that the origin's ledger names and this process does not have is nothing in the fork as well."""
    grants = {"c": lambda _: [allow("git/*")]}
    used(opened(tmp_path / "a.db", grants=grants, ceilings={"trust": lambda _: ["git/log"]}))
    runtime = opened(tmp_path / "a.db", grants=grants)

    with runtime, runtime.session("s") as origin, origin.fork("f") as fork:
        assert refused(origin) == refused(fork) == (Reason.NOT_AUTHORISED, "ceiling trust!missing")


def test_a_fork_knows_the_revision_that_its_origin_saw(tmp_path: Path) -> None:
    """A configuration rolled back behind what the origin saw is stale in the fork as well."""
    used(opened(tmp_path / "a.db", grants={"c": lambda _: Rules([allow("git/*"), deny("git/push")], 7)}))
    runtime = opened(tmp_path / "a.db", grants={"c": lambda _: Rules([allow("git/*")], 3)})

    with runtime, runtime.session("s") as origin, origin.fork("f") as fork:
        assert refused(origin) == refused(fork) == (Reason.NOT_AUTHORISED, "c!stale")


def test_what_an_origin_is_denied_its_fork_is_denied() -> None:
    """Also where they act for another holder, and also if the deny comes after the fork."""
    runtime = Runtime(MemoryLedger(), catalog=lambda: [GIT], grants={"c": lambda _: [allow("git/*")]})
    with runtime.session("s", holder="alice") as origin:
        origin.load("git")
        with origin.fork("f") as fork:
            with fork.guard(Call("c0", "git/push", {"n": 0})) as permit:
                permit.settle()
            runtime.deny("s", "git/push", by="operator")

            assert refused(fork, n=1)[0] is Reason.NOT_AUTHORISED


def test_a_rejection_stays_beside_another_of_the_same_call() -> None:
    """Each rejection is for its own arguments; one does not replace another."""
    runtime = Runtime(MemoryLedger(), catalog=lambda: [GIT], grants={"c": lambda _: [allow("git/*")]})
    with runtime.session("s") as session:
        session.load("git")
        session.reject(Call("c", "git/push", {"x": 1}), by="ann")
        session.reject(Call("c", "git/push", {"x": 2}), by="ann")

        assert refused(session, x=1) == (Reason.NOT_AUTHORISED, "rejected by ann")


def test_the_clock_is_never_behind_any_chain_that_counts() -> None:
    """A grant that expired by an entry of its holder's chain does not live again when the clock runs back."""
    now = [1000]
    runtime = Runtime(MemoryLedger(), catalog=lambda: [GIT], clock=lambda: now[0])
    with runtime.session("a", holder="alice") as first:
        first.load("git")
        first.grant("git/*", by="ann", expires=2000)
    now[0] = 3000
    with runtime.session("a") as first:
        first.grant("git/log", by="ann")
    now[0] = 1500

    with runtime.session("b", holder="alice") as second:
        second.load("git")
        assert refused(second)[0] is Reason.NOT_AUTHORISED


@pytest.mark.parametrize(
    "build",
    [
        lambda: Call(5, "git/push"),  # type: ignore[arg-type]
        lambda: Call("c", None),  # type: ignore[arg-type]
        lambda: Call("c", "git/push", "{}"),  # type: ignore[arg-type]
        lambda: Call("c", "git/push", {}, -1),
        lambda: Call("c", "git/push", {}, True),
        lambda: Message("m", "asistant"),
        lambda: Message("m", "tool", outcome="fine"),
        lambda: Message("m", "assistant", calls=[None]),  # type: ignore[list-item]
    ],
    ids=["id", "tool", "arguments", "occurrence", "boolean", "role", "outcome", "calls"],
)
def test_calls_and_messages_are_checked_when_they_are_made(build: Callable[[], object]) -> None:
    """A value of the wrong kind is one clear error, before anything is written."""
    with pytest.raises(InvalidInputError):
        build()


def test_words_are_roles_and_outcomes() -> None:
    """A role or outcome given as text is the member that it names."""
    assert Message("m", "tool", result_for="c", outcome="ok") == Message(
        "m", Message("x", "tool").role, result_for="c", outcome=Message("x", "tool", outcome="ok").outcome
    )
    assert type(Message("m", "tool").role).__name__ == "Role"
