"""What a first receipt is compared with, also when a crash came before it was written."""

from __future__ import annotations

from tests.runtime.stage import Stage, crash


def test_a_fork_is_compared_with_its_origin_as_it_was_at_the_fork() -> None:
    """The origin projects something else meanwhile, the fork's process dies: its first receipt still explains all."""
    stage = Stage()
    session = stage.session()
    session.reproject()
    fork = session.fork("f")
    stage.default = ["git/log"]
    session.reproject()
    crash(session)
    fork = stage.runtime().session("f")

    assert fork.reproject().receipt.tools("removed") == ["git/push", "git/sync"]


def test_a_fork_of_a_fork_that_never_projected_is_compared_with_the_first_origin() -> None:
    """The nearest receipt on the line, at the point where the line left it."""
    stage = Stage()
    session = stage.session()
    session.reproject()
    second = session.fork("f1").fork("f2")
    stage.default = ["git/log"]
    session.reproject()
    crash(second)
    receipt = stage.runtime().session("f2").reproject().receipt

    assert receipt.cause == "fork"
    assert receipt.tools("removed") == ["git/push", "git/sync"]


def test_an_origin_without_receipts_is_compared_with_nothing() -> None:
    """Everything that the fork may call is then new."""
    stage = Stage()
    session = stage.session()
    fork = session.fork("f")
    crash(fork)

    assert stage.runtime().session("f").reproject().receipt.tools("added") == ["git/log", "git/push", "git/sync"]
