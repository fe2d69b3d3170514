"""What :mod:`capstate.conformance.ledgers` checks of writers, posts and threads; each docstring is the promise."""

# ruff: noqa: FBT003 - docstrings are promises, not commands; booleans here are expected values

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from capstate.conformance.ledger_bench import (
    Bench,
    BrokenPromiseError,
    check,
    deny,
    entries,
    grow,
    raises,
    same,
    together,
    torn_tail,
)
from capstate.errors import (
    InvalidInputError,
    LedgerUnavailableError,
    PoolConflictError,
    SessionLockedError,
    StaleWriterError,
)
from capstate.ledger import Head, Ledger, Outcome, Pool, PoolChange, Stored, Writer, blob_key, load, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_THREADS = 8
_EACH = 10


@check
def one_writer(bench: Bench) -> None:
    """A chain has one writer, whichever handle asks; other chains are free; closing frees it, twice is once."""
    ledger, other = bench.open(), bench.open()
    writer = ledger.lock("s")
    for handle in (ledger, other):
        raises(SessionLockedError, partial(handle.lock, "s"), "a second writer")
    with other.lock("t"):
        pass
    tokens = [writer.token]
    for handle in (other, ledger, other):
        writer.close()
        writer.close()
        writer = handle.lock("s")
        tokens.append(writer.token)
    same(True, tokens[0] > 0 and tokens == sorted(set(tokens)), f"tokens grow: {tokens}")
    raises(SessionLockedError, lambda: ledger.lock("s"), "a second writer after three changes")


@check
def tokens_above(bench: Bench) -> None:
    """A writer that asks for a token above one that entries name gets it, and so do all after it."""
    ledger, other = bench.open(), bench.open()
    with ledger.lock("s") as writer:
        first = writer.token
    with other.lock("s", above=first + 40) as writer:
        same(True, writer.token > first + 40, "a token above the one that was asked for")
        second = writer.token
        same(0, grow(other, writer).sequence, "its append")
    with ledger.lock("s", above=first) as writer:
        same(True, writer.token > second, "a token above all before")


@check
def owners(bench: Bench) -> None:
    """Whether a chain has a live writer can be asked by any handle, and asking takes nothing from anybody."""
    ledger, other = bench.open(), bench.open()
    for handle in (ledger, other):
        same(False, handle.owned("s"), "whether a chain that nobody locked has a writer")
    writer = ledger.lock("s")
    for handle in (ledger, other, ledger):
        same(True, handle.owned("s"), "whether a locked chain has a writer")
        same(False, handle.owned("t"), "whether another chain has one")
    same(0, grow(ledger, writer).sequence, "the append of a writer that was asked after")
    writer.close()
    same(False, other.owned("s"), "whether a chain that was given back has a writer")
    with other.lock("s"):
        pass


@check
def one_of_many(bench: Bench) -> None:
    """Of many threads that lock at once, one gets the chain."""
    handles = [bench.open() for _ in range(_THREADS)]
    got: list[Writer] = []

    def take(handle: Ledger) -> None:
        with suppress(SessionLockedError):
            got.append(handle.lock("s"))

    together([partial(take, handle) for handle in handles])
    same(1, len(got), "owners")


@check
def old_writers(bench: Bench) -> None:
    """A writer that was closed, belongs to another chain, or comes before the newest token writes nothing."""
    ledger, other = bench.open(), bench.open()
    writer = ledger.lock("s")
    grow(ledger, writer)
    raises(InvalidInputError, lambda: ledger.append("t", entries(writer, None), expect=None, writer=writer), "a chain")
    writer.close()
    error = raises(StaleWriterError, lambda: grow(ledger, writer), "a closed writer")
    same(False, error.owner, "whether it is the owner")
    with other.lock("s") as newer:
        zombie = Writer("s", writer.token, lambda: None)
        same(False, raises(StaleWriterError, lambda: grow(ledger, zombie), "an old token").owner, "the owner")
        raises(StaleWriterError, lambda: ledger.repair("s", writer=zombie), "repair with an old token")
        same(1, grow(other, newer).sequence, "the new owner's append")


@check
def closing(bench: Bench) -> None:
    """A closed handle refuses everything, gave back its locks, and may be closed again."""
    ledger, other = bench.open(), bench.open()
    writer = ledger.lock("s")
    head = grow(ledger, writer)
    ledger.close()
    ledger.close()
    same(True, writer.closed, "whether the writer is closed")
    acts: list[Callable[[], object]] = [
        lambda: ledger.head("s"), lambda: list(ledger.read("s")), ledger.chains, ledger.revision,
        lambda: ledger.append("s", entries(writer, head), expect=head, writer=writer),
        lambda: ledger.post("s", deny("s")), lambda: ledger.lock("s"), lambda: ledger.repair("s", writer=writer),
        lambda: ledger.blob("b3:"), lambda: ledger.pool("s"),
    ]  # fmt: skip
    for number, act in enumerate(acts):
        raises(LedgerUnavailableError, act, f"use number {number} of a closed handle")
    with other.lock("s") as newer:
        grow(other, newer)


@check
def posts(bench: Bench) -> None:
    """Anyone may post to an empty, a free or an owned chain; the owner's next append then sees a newer head."""
    ledger, other = bench.open(), bench.open()
    seen: list[Head | None] = []

    def make(head: Head | None) -> Sequence[Stored]:
        seen.append(head)
        return deny("s")(head)

    first = other.post("s", make)
    same(None, seen[-1], "the head that make got")
    with ledger.lock("s") as writer:
        own = grow(ledger, writer)
        posted = other.post("s", make)
        same((own, Head(2, posted.digest)), (seen[-1], posted), "the head that make got, and the new one")
        rows = entries(writer, own)
        error = raises(StaleWriterError, lambda: ledger.append("s", rows, expect=own, writer=writer), "append")
        same((own, posted, True), (error.expected, error.got, error.owner), "what the error says")
        same(3, grow(ledger, writer).sequence, "the retry")
    same([True, False, True, False], [entry.posted for entry in load(other, "s").entries], "what was posted")
    same(0, first.sequence, "the first post")


@check
def failing_posts(bench: Bench) -> None:
    """What ``make`` raises comes through and nothing is written, also if it tries to write; it may read."""
    ledger = bench.open()
    head = ledger.post("s", deny("s"))
    for error in (OSError("mine"), KeyError("mine"), StaleWriterError("s", None, None, owner=True)):

        def fail(_: Head | None, error: Exception = error) -> Sequence[Stored]:
            raise error

        try:
            ledger.post("s", fail)
        except Exception as found:  # noqa: BLE001 - the very object is compared
            same(True, found is error, f"{error!r} comes through, not {found!r}")
        else:
            raise BrokenPromiseError("nothing was raised")

    def writes(_: Head | None) -> Sequence[Stored]:
        ledger.post("s", deny("s"))
        return ()

    def reads(seen: Head | None) -> Sequence[Stored]:
        same((head, 1), (ledger.head("s"), len(list(ledger.read("s")))), "what make reads")
        return deny("s")(seen)

    raises(InvalidInputError, lambda: ledger.post("s", writes), "a post inside a post")
    same(head, ledger.head("s"), "the head")
    same(1, ledger.post("s", reads).sequence, "a good post afterwards")


@check
def revisions(bench: Bench) -> None:
    """The revision stays while nothing changes, and changes for every handle with each change by anyone."""
    ledger, other = bench.open(), bench.open()
    writer = ledger.lock("s")
    steps: list[Callable[[], object]] = [
        lambda: grow(ledger, writer), lambda: other.post("s", deny("s")), lambda: ledger.post("t", deny("t")),
        lambda: grow(ledger, writer, pool=PoolChange("s", 0, b"1"), blobs={blob_key(b"v"): b"v"}),
        lambda: torn_tail(ledger, writer), lambda: ledger.repair("s", writer=writer), lambda: other.lock("u"),
    ]  # fmt: skip
    for number, step in enumerate(steps):
        before = (ledger.revision(), other.revision())
        list(ledger.read("s"))
        other.head("s")
        same(before, (ledger.revision(), other.revision()), f"revisions after only reading, before step {number}")
        step()
        after = (ledger.revision(), other.revision())
        same((True, True), (before[0] != after[0], before[1] != after[1]), f"revisions changed by step {number}")


@check
def many_posters(bench: Bench) -> None:
    """Threads that post at once, over several handles, make one chain without a gap and lose nothing."""
    handles = [bench.open() for _ in range(2)]

    def work(number: int) -> None:
        for _ in range(_EACH):
            handles[number % 2].post("s", deny("s"))

    together([partial(work, number) for number in range(_THREADS)])
    verdict = verify(handles[0], "s")
    last = verdict.head and verdict.head.sequence
    same((Outcome.INTACT_UNANCHORED, _THREADS * _EACH - 1), (verdict.outcome, last), "the verdict and the last number")


@check
def never_over(bench: Bench) -> None:
    """Threads that count a pool up to its limit, each on its own chain, never lose a count and never pass the limit."""
    limit, handles = _THREADS * 3, [bench.open() for _ in range(2)]
    spent: list[int] = []

    def work(number: int) -> None:
        ledger = handles[number % 2]
        with ledger.lock(f"child {number}") as writer:
            while True:
                pool = ledger.pool("root") or Pool(0, b"0")
                used = int(pool.value)
                if used >= limit:
                    return
                with suppress(PoolConflictError):
                    grow(ledger, writer, pool=PoolChange("root", pool.version, b"%d" % (used + 1)))
                    spent.append(used + 1)

    together([partial(work, number) for number in range(_THREADS)])
    same(list(range(1, limit + 1)), sorted(spent), "what was spent")
    counted = sum(len(list(handles[0].read(f"child {number}"))) for number in range(_THREADS))
    same(limit, counted, "reserving entries")
