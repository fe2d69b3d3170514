"""Real processes: who owns a chain when others race, stop, die or fork, and what they write at once.

Each process here is a child that does what its standard input says, one line at a time, and is ended by its id.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capstate.errors import LedgerUnavailableError, SessionLockedError, StaleWriterError
from capstate.ledger import Head, Outcome, Record, Writer, chain_entries, verify
from capstate.ledgers.sqlite import SQLiteLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).resolve().parents[2]
ACTOR = """
import os, sys, threading
from capstate.errors import *
from capstate.ledger import *
from capstate.ledgers.sqlite import SQLiteLedger
ledger = SQLiteLedger(sys.argv[1])
writer = head = None

def lock():
    global writer
    writer = ledger.lock("s")
    return writer.token

def unlock():
    writer.close()

def read():
    global head
    head = ledger.head("s")
    return head and head.sequence

def append():
    global head
    rows = chain_entries("s", head, [Record("x", {"pid": os.getpid()})], at=1, token=writer.token)
    head = ledger.append("s", rows, expect=head, writer=writer)
    return head.sequence

def deny(head):
    return chain_entries("s", head, [Record("deny", {"pid": os.getpid()})], at=1, posted=True)

def posts():
    def work():
        for _ in range(15):
            ledger.post("s", deny)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return "done"

def fork():
    # a child that outlives its parent, as a tool server does; it writes to the pipe once it runs
    ready, running = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(0); os.close(1); os.write(running, b".")
        import time; time.sleep(600)
        os._exit(0)
    os.read(ready, 1)
    return child

for line in sys.stdin:
    try:
        print(globals()[line.strip()](), flush=True)
    except LedgerError as error:
        print(type(error).__name__, flush=True)
"""


class Actor:
    """One child process with the ledger open."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ACTOR, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
        )

    def begin(self, verb: str) -> None:
        """Say what to do, without waiting for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(verb + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Wait for the answer to what was begun."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, verb: str) -> str:
        """Say what to do and wait for the answer."""
        self.begin(verb)
        return self.answer()

    def kill(self) -> None:
        """End the process as ``kill -9`` does, and wait until it is gone."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger's path."""
    return tmp_path / "a.db"


@pytest.fixture
def actor(path: Path) -> Iterator[Callable[[], Actor]]:
    """Start actors, and end them all."""
    started: list[Actor] = []

    def start() -> Actor:
        started.append(Actor(path))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.kill()
        for pipe in (each.process.stdin, each.process.stdout):
            if pipe is not None:
                pipe.close()


def test_two_processes_race_for_one_chain(actor: Callable[[], Actor]) -> None:
    """From the first start on a new file on, exactly one of two gets the lock in each round, with the next token."""
    pair = (actor(), actor())
    for number in range(1, 21):
        for each in pair:
            each.begin("lock")
        answers = {each.answer(): each for each in pair}
        assert {str(number), "SessionLockedError"} == set(answers)
        answers[str(number)].do("unlock")


def test_a_killed_owner_frees_its_chain(actor: Callable[[], Actor]) -> None:
    """``kill -9`` gives the lock back; the next owner has a higher token and sees what the dead one wrote."""
    first, second = actor(), actor()
    assert ["1", "None", "0"] == [first.do(verb) for verb in ("lock", "read", "append")]
    assert "SessionLockedError" == second.do("lock")

    first.kill()

    assert ["2", "0", "1"] == [second.do(verb) for verb in ("lock", "read", "append")]


def test_a_stopped_owner_keeps_its_chain(actor: Callable[[], Actor]) -> None:
    """A process under SIGSTOP is alive: nobody takes its chain; posts go in; continued, it must look again first."""
    first, second = actor(), actor()
    first.do("lock")
    first.do("append")
    os.kill(first.process.pid, signal.SIGSTOP)
    try:
        assert "SessionLockedError" == second.do("lock")
        assert "done" == second.do("posts")
    finally:
        os.kill(first.process.pid, signal.SIGCONT)

    assert ["StaleWriterError", "60", "61"] == [first.do(verb) for verb in ("append", "read", "append")]


def test_a_zombie_writes_nothing_after_a_new_owner(path: Path, actor: Callable[[], Actor]) -> None:
    """An owner whose lock file was deleted while it was stopped is refused by its token, also with the right head."""
    first, second = actor(), actor()
    assert ["1", "None", "0"] == [first.do(verb) for verb in ("lock", "read", "append")]
    os.kill(first.process.pid, signal.SIGSTOP)
    for file in path.with_name("a.db-locks").iterdir():
        file.unlink()
    assert ["2", "0", "1"] == [second.do(verb) for verb in ("lock", "read", "append")]
    os.kill(first.process.pid, signal.SIGCONT)

    assert ["StaleWriterError", "1", "StaleWriterError"] == [first.do(verb) for verb in ("append", "read", "append")]
    assert "2" == second.do("append")


def test_a_lock_does_not_outlive_its_owner_in_a_forked_child(actor: Callable[[], Actor]) -> None:
    """A child made by ``fork`` that lives on does not hold the chain of its dead parent."""
    first, second = actor(), actor()
    first.do("lock")
    child = int(first.do("fork"))
    try:
        assert "SessionLockedError" == second.do("lock")
        first.kill()
        assert "2" == second.do("lock")
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_must_open_anew(path: Path) -> None:
    """In a child of ``fork`` the parent's object and writer refuse; the parent's lock stays as it was."""
    with closing(SQLiteLedger(path)) as ledger, ledger.lock("s") as writer:
        child = os.fork()
        if child == 0:
            os._exit(_in_the_child(ledger, writer, path))
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        rows = chain_entries("s", None, [Record("x", {})], at=1, token=writer.token)
        assert 0 == ledger.append("s", rows, expect=None, writer=writer).sequence


def _in_the_child(ledger: SQLiteLedger, writer: Writer, path: Path) -> int:
    try:
        for act in (ledger.revision, lambda: ledger.head("s"), lambda: ledger.lock("t")):
            try:
                act()
            except LedgerUnavailableError:
                continue
            return 1
        writer.close()
        ledger.close()
        anew = SQLiteLedger(path)
        try:
            anew.lock("s")
        except SessionLockedError:
            return 0
    except BaseException:  # noqa: BLE001 - the parent's tests must not run on in the child
        return 3
    return 2


def test_threads_of_two_processes_post_one_chain(path: Path, actor: Callable[[], Actor]) -> None:
    """Four threads in each of two processes, and an owner: 120 posts, none lost, none twice, numbered without a gap."""
    pair = (actor(), actor())
    with closing(SQLiteLedger(path)) as ledger, ledger.lock("s") as writer:
        for each in pair:
            each.begin("posts")
        own = 0
        while own < 10:
            head: Head | None = ledger.head("s")
            rows = chain_entries("s", head, [Record("x", {})], at=1, token=writer.token)
            try:
                ledger.append("s", rows, expect=head, writer=writer)
            except StaleWriterError as error:
                if not error.owner:
                    raise
                continue
            own += 1
        assert ["done", "done"] == [each.answer() for each in pair]

        verdict = verify(ledger, "s")
        assert (Outcome.INTACT_UNANCHORED, 129) == (verdict.outcome, verdict.head and verdict.head.sequence)
