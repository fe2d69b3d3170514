"""The asynchronous guard: the loop is never held, and no cancellation at any point loses or doubles a call."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from capstate.errors import InvalidInputError, LedgerUnavailableError, Reason, Refused
from capstate.ledgers.memory import MemoryLedger
from capstate.runtime import Session
from tests.runtime.stage import Limits, Stage, Wrapped, call, kinds


@pytest.fixture
def stage() -> Stage:
    return Stage()


class Slow:
    """A ledger whose appends wait for the test, or for a while."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.storage = MemoryLedger()
        self.seconds = seconds
        self.entered, self.go = threading.Event(), threading.Event()
        self.held = False
        self.failing = False

    def ledger(self) -> Any:
        return Wrapped(self.storage, append=self.append)

    def append(self, *args: Any, **more: Any) -> Any:
        if self.held:
            self.entered.set()
            self.go.wait(30)
        if self.failing:
            raise LedgerUnavailableError("the disk is full")
        time.sleep(self.seconds)
        return self.storage.append(*args, **more)


def test_it_does_what_the_synchronous_one_does(stage: Stage) -> None:
    """Permits, results, refusals and what is left unsettled."""
    session = stage.session()

    async def main() -> None:
        async with session.guard(call("git/push")) as permit:
            assert permit.settle("result", evidence="e-1") == "result"
        assert permit.outcome == "ok"
        async with session.guard(call("git/log")) as read:
            read.settle()
        with pytest.raises(Refused) as no:
            async with session.guard(call("git/nothing")):
                pytest.fail("it started")
        assert no.value.reason is Reason.UNKNOWN_TOOL
        for name, outcome in (("git/log", "error"), ("git/sync", "outcome_unknown")):
            with pytest.raises(ZeroDivisionError):
                async with session.guard(call(name, "c2")) as permit:
                    raise ZeroDivisionError
            assert permit.outcome == outcome
        with pytest.raises(InvalidInputError):
            permit.settle()

    asyncio.run(main())
    assert [(op.tool, op.outcome) for op in session.operations] == [("git/push", "ok"), ("git/sync", "outcome_unknown")]


def test_a_hundred_agents_share_a_slow_ledger_and_the_loop_goes_on(stage: Stage) -> None:
    """Each append takes a while; meanwhile the loop's heart beats: it is never held for a whole append."""
    slow = Slow()
    runtime = stage.runtime(slow.ledger())
    sessions = [runtime.session(f"s{n}") for n in range(100)]
    for session in sessions:
        session.load("git")
    beats: list[int] = [0]
    seen: list[int] = []

    def append(*args: Any, **more: Any) -> Any:
        before = beats[0]
        for _ in range(400):  # wait for the heart, not for the clock; a held loop would never beat
            if beats[0] > before:
                break
            time.sleep(0.005)
        seen.append(beats[0] - before)
        return slow.storage.append(*args, **more)

    runtime.ledger = Wrapped(slow.storage, append=append)

    async def heart() -> None:
        while True:
            beats[0] += 1
            await asyncio.sleep(0)

    async def agent(session: Session) -> None:
        async with session.guard(call("git/push")) as permit:
            await asyncio.sleep(0)
            permit.settle("done")

    async def main() -> None:
        beating = asyncio.create_task(heart())
        await asyncio.gather(*(agent(session) for session in sessions))
        beating.cancel()

    asyncio.run(main())
    assert len(seen) == 200
    assert min(seen) > 0
    assert all([op.outcome for op in session.operations] == ["ok"] for session in sessions)


async def cancelled(work: Awaitable[Any], when: Callable[[], Awaitable[Any]], times: int = 1) -> None:
    """Cancel ``work`` once ``when`` is done, and demand that it ends cancelled."""
    task = asyncio.ensure_future(work)
    await when()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("times", [1, 3])
def test_cancelled_while_it_starts_it_was_never_sent(stage: Stage, times: int) -> None:
    """The start is waited for, then settled as cancelled; the body never runs; an equal call may follow."""
    slow = Slow()
    session = stage.runtime(slow.ledger()).session("s", limits=Limits(concurrency=1, cost=10))
    session.load("git")

    async def work() -> None:
        async with session.guard(call("git/push"), cost=7):
            pytest.fail("the body ran")

    async def main() -> None:
        slow.held = True

        async def when() -> None:
            await asyncio.to_thread(slow.entered.wait, 30)
            asyncio.get_running_loop().call_later(0.05, slow.go.set)

        await cancelled(work(), when, times)

    asyncio.run(main())
    assert [op.outcome for op in session.operations] == ["cancelled"]
    assert session.used == {"calls": 1, "cost": 0}
    with session.guard(call("git/push", "c2")) as permit:
        permit.settle()


def test_cancelled_before_it_starts_nothing_is_written(stage: Stage) -> None:
    """The task never ran."""
    session = stage.session()
    before = kinds(stage)

    async def work() -> None:
        async with session.guard(call("git/push")):
            pytest.fail("the body ran")

    async def main() -> None:
        task = asyncio.ensure_future(work())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert kinds(stage) == before


@pytest.mark.parametrize("refuse", [False, True], ids=["failed", "refused"])
def test_cancelled_while_a_start_fails_it_is_cancelled(stage: Stage, refuse: bool) -> None:
    """A refusal, or a ledger that fails meanwhile, leaves nothing behind; no exception is lost unlooked at."""
    slow = Slow()
    session = stage.runtime(slow.ledger()).session("s")
    session.load("git")
    problems: list[dict[str, Any]] = []

    async def work() -> None:
        async with session.guard(call("git/nothing" if refuse else "git/push")):
            pytest.fail("the body ran")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        slow.held, slow.failing = True, not refuse

        async def when() -> None:
            await asyncio.to_thread(slow.entered.wait, 30)
            asyncio.get_running_loop().call_later(0.05, slow.go.set)

        await cancelled(work(), when)

    asyncio.run(main())
    slow.held = slow.failing = False
    assert session.operations == ()
    assert problems == []


@pytest.mark.parametrize(
    ("told", "outcome"), [(None, "outcome_unknown"), ("ok", "ok"), ("not sent", "cancelled")], ids=str
)
def test_cancelled_in_the_body_it_ends_as_the_body_said(stage: Stage, told: str | None, outcome: str) -> None:
    """Unsettled it is unknown; what was said before the cancellation counts."""
    session = stage.session()

    async def main() -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with session.guard(call("git/push")) as permit:
                if told == "ok":
                    permit.settle()
                elif told is not None:
                    permit.not_sent()
                inside.set()
                await asyncio.sleep(30)

        await cancelled(work(), inside.wait)

    asyncio.run(main())
    assert [op.outcome for op in session.operations] == [outcome]


@pytest.mark.parametrize("times", [1, 3])
def test_cancelled_while_it_settles_it_settles_first(stage: Stage, times: int) -> None:
    """The outcome is durable before the cancellation goes on."""
    slow = Slow()
    session = stage.runtime(slow.ledger()).session("s")
    session.load("git")

    async def work() -> None:
        async with session.guard(call("git/push")) as permit:
            permit.settle()
            slow.held = True

    async def main() -> None:
        async def when() -> None:
            await asyncio.to_thread(slow.entered.wait, 30)
            asyncio.get_running_loop().call_later(0.05, slow.go.set)

        await cancelled(work(), when, times)

    asyncio.run(main())
    slow.held = False
    assert [op.outcome for op in session.operations] == ["ok"]


def test_a_time_out_around_the_guard_is_a_time_out(stage: Stage) -> None:
    """The library's way of cancelling is that of asyncio, so its time-outs work."""
    session = stage.session()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), session.guard(call("git/push")):
                await asyncio.sleep(30)

    asyncio.run(main())
    assert [op.outcome for op in session.operations] == ["outcome_unknown"]


def test_a_program_that_ends_loses_no_permit(stage: Stage) -> None:
    """``asyncio.run`` cancels every task at its end: a start in a worker thread is no task, and is settled."""
    slow = Slow()
    session = stage.runtime(slow.ledger()).session("s")
    session.load("git")

    async def work() -> None:
        async with session.guard(call("git/push")):
            await asyncio.sleep(30)

    async def main() -> None:
        slow.held = True
        main.task = asyncio.ensure_future(work())  # type: ignore[attr-defined]
        await asyncio.to_thread(slow.entered.wait, 30)
        asyncio.get_running_loop().call_later(0.05, slow.go.set)

    asyncio.run(main())
    slow.held = False
    assert [op.outcome for op in session.operations] == ["cancelled"]
    assert session._permits == []


def test_a_ledger_that_fails_at_the_end_is_heard(stage: Stage) -> None:
    """The error leaves the block; the operation is unsettled, and stays so over a restart."""
    slow = Slow()
    session = stage.runtime(slow.ledger()).session("s")
    session.load("git")

    async def main() -> None:
        async def work() -> None:
            async with session.guard(call("git/push")) as permit:
                permit.settle()
                slow.failing = True

        with pytest.raises(LedgerUnavailableError):
            await work()

    asyncio.run(main())
    slow.failing = False
    assert [op.settled for op in session.operations] == [False]


def test_settling_within_the_block_does_not_touch_the_ledger(stage: Stage) -> None:
    """Otherwise the loop would be held for it; it is written when the block is left."""
    session = stage.session()

    async def main() -> None:
        async with session.guard(call("git/push")) as permit:
            before = kinds(stage)
            permit.settle()
            assert kinds(stage) == before
        assert kinds(stage)[-1] == "settled"

    asyncio.run(main())


def test_sessions_that_close_while_calls_run_settle_them_once(stage: Stage) -> None:
    """Another thread closes: the block still ends without an error of its own."""
    session = stage.session()

    async def main() -> None:
        async with session.guard(call("git/push")):
            await asyncio.to_thread(session.close)

    asyncio.run(main())
    assert kinds(stage).count("settled") == 1
