"""What :mod:`capstate.conformance.ledgers` checks of rows, blobs, pools and ids; each docstring is the promise."""

# ruff: noqa: FBT003 - booleans here are expected values

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import evolve

from capstate.conformance.ledger_bench import (
    Bench,
    always,
    check,
    deny,
    entries,
    grow,
    raises,
    raw,
    same,
    snapshot,
    torn_tail,
)
from capstate.errors import InvalidInputError, PoolConflictError, StaleWriterError
from capstate.ledger import MAX_BYTES, Head, Outcome, Pool, PoolChange, Stored, blob_key, load, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ODD_CHAINS = (
    "a", "A", "a b", "../a", "/a", "a/b", ".", "..", "a'; DROP TABLE entries; --", '"', "%00", "\u00e9", "e\u0301",
    "\U0001f600", "\ufffd", "\u202e", "\x01", "\n", "x" * 1024,
)  # fmt: skip
_BAD_CHAINS: tuple[Any, ...] = ("", "x" * 1025, "a\0b", "\ud800", None, 7, b"a")


@check
def empty(bench: Bench) -> None:
    """A new storage holds nothing, and asking for nothing makes nothing."""
    ledger = bench.open()
    same((None, (), (), None), snapshot(ledger, "s"), "an empty storage")
    same(None, ledger.blob(blob_key(b"x")), "a blob that nobody put")


@check
def bytes_come_back(bench: Bench) -> None:
    """What was appended is read back in order, byte for byte, seals and all, also by another handle."""
    ledger = bench.open()
    with ledger.lock("s") as writer:
        rows = entries(writer, None, 3)
        rows = (rows[0], evolve(rows[1], seal="b3k:00"), rows[2])
        head = ledger.append("s", rows, expect=None, writer=writer)
    for handle in (ledger, bench.open()):
        same(rows[-1].head, head, "the head that append returned")
        same(head, handle.head("s"), "the head")
        expected = [(row.sequence, row.stored, row.digest, row.seal) for row in rows]
        same(expected, [(r.sequence, r.stored, r.digest, r.seal) for r in handle.read("s")], "the rows")
        same(expected[1:], [(r.sequence, r.stored, r.digest, r.seal) for r in handle.read("s", 1)], "rows from 1")
        same([], list(handle.read("s", 3)), "rows from beyond the head")
        same([], list(handle.read("s", 2**70)), "rows from far beyond the head")


@check
def long_chains(bench: Bench) -> None:
    """A chain of some thousand entries is read whole and in order."""
    ledger = bench.open()
    with ledger.lock("s") as writer:
        grow(ledger, writer, 2345)
    found = load(ledger, "s")
    same((), found.damage, "damage")
    same(list(range(2345)), [entry.sequence for entry in found.entries], "sequence numbers")


@check
def survives_reopening(bench: Bench) -> None:
    """Rows, blobs, pool and tokens are there for the next handle after all were closed."""
    first = bench.open()
    writer = first.lock("s")
    head = grow(first, writer, 2, blobs={blob_key(b"v"): b"v"}, pool=PoolChange("s", 0, b"p"))
    first.close()
    later = bench.open()
    same(head, later.head("s"), "the head")
    same((b"v", Pool(1, b"p")), (later.blob(blob_key(b"v")), later.pool("s")), "blob and pool")
    with later.lock("s") as again:
        same(True, again.token > writer.token, "the new token is above the old")


@check
def wrong_head(bench: Bench) -> None:
    """An append that does not follow the head is refused with both heads named, and nothing of it is written."""
    ledger = bench.open()
    with ledger.lock("s") as writer:
        head = grow(ledger, writer, 2)
        before = snapshot(ledger, "s")
        others = [Head(sequence, head.digest) for sequence in (0, 7, 2**50)]
        for wrong in (None, Head(1, "b3:" + "0" * 64), *others):

            def act(wrong: Head | None = wrong) -> object:
                rows = entries(writer, wrong)
                more: dict[str, Any] = {"blobs": {blob_key(b"v"): b"v"}, "pool": PoolChange("s", 0, b"p")}
                return ledger.append("s", rows, expect=wrong, writer=writer, **more)

            error = raises(StaleWriterError, act, f"append after {wrong}")
            same((wrong, head, True), (error.expected, error.got, error.owner), "what the error says")
        same(before, snapshot(ledger, "s"), "the storage afterwards")
        same(None, ledger.blob(blob_key(b"v")), "the blob")


@check
def wrong_rows(bench: Bench) -> None:
    """Rows that are none, skip a number, repeat one, are too large or have another digest are refused whole."""
    ledger = bench.open()
    with ledger.lock("s") as writer:
        head = grow(ledger, writer)
        good = entries(writer, head, 3)
        bad: list[Sequence[Stored]] = [
            (), good[1:], (good[0], good[2]), (good[0], good[0]), (good[0], evolve(good[1], digest=good[2].digest)),
            (good[0], evolve(good[1], stored=good[1].stored + b" ")),
            (good[0], raw(good[0].head, b"x" * (MAX_BYTES + 1))),
        ]  # fmt: skip
        for rows in bad:
            append = partial(ledger.append, "s", rows, expect=head, writer=writer)
            raises(InvalidInputError, append, "append")
            raises(InvalidInputError, partial(ledger.post, "s", partial(always, rows)), "post")
        same(head, ledger.head("s"), "the head")
        same(good[2].head, ledger.append("s", good, expect=head, writer=writer), "a good append afterwards")


@check
def all_or_nothing(bench: Bench) -> None:
    """If the pool or a blob is refused, no row is there, and the other way round."""
    ledger = bench.open()
    with ledger.lock("s") as writer:
        grow(ledger, writer, pool=PoolChange("s", 0, b"1"))
        before = snapshot(ledger, "s")
        blobs = {blob_key(b"v"): b"v"}

        pool = PoolChange("s", 1, b"2")

        def again(**other: Any) -> Head:  # noqa: ANN401 - what append takes
            return grow(ledger, writer, 2, **{"blobs": blobs, "pool": pool, **other})

        error = raises(PoolConflictError, lambda: again(pool=evolve(pool, expect=0)), "a pool seen too early")
        same(("s", 0, 1), (error.root, error.expected, error.got), "what the error says")
        raises(PoolConflictError, lambda: again(pool=evolve(pool, root="other")), "a pool that is not there")
        raises(InvalidInputError, lambda: again(blobs={**blobs, blob_key(b"w"): b"x"}), "a blob of another key")
        raises(InvalidInputError, lambda: again(pool=evolve(pool, expect=-1)), "a negative version")
        same(before, snapshot(ledger, "s"), "the storage afterwards")
        same(None, ledger.blob(blob_key(b"v")), "the blob")
        again()
        same((b"v", Pool(2, b"2")), (ledger.blob(blob_key(b"v")), ledger.pool("s")), "a good append afterwards")


@check
def blobs(bench: Bench) -> None:
    """Blobs of any bytes come back, may be put twice, and belong to no chain."""
    ledger = bench.open()
    values = (b"", b"\x00\xff" * 50, b"text", b"x" * 2_000_000)
    with ledger.lock("s") as writer, ledger.lock("t") as other:
        for owner in (writer, other):
            grow(ledger, owner, blobs={blob_key(value): value for value in values})
    same(list(values), [bench.open().blob(blob_key(value)) for value in values], "the blobs")


@check
def pools(bench: Bench) -> None:
    """A pool belongs to its root: another chain's append changes it, and its version grows by one."""
    ledger, other = bench.open(), bench.open()
    with ledger.lock("child") as child, other.lock("root") as root:
        grow(ledger, child, pool=PoolChange("root", 0, b"1"))
        same(Pool(1, b"1"), other.pool("root"), "after the child")
        grow(other, root, pool=PoolChange("root", 1, b"2"))
        same(Pool(2, b"2"), ledger.pool("root"), "after the root")
        same(None, ledger.pool("child"), "the child's own")


@check
def repairs(bench: Bench) -> None:
    """Repair cuts a last row that holds no entry, returns it, and never cuts an entry."""
    ledger = bench.open()
    with ledger.lock("s") as writer:
        same(None, ledger.repair("s", writer=writer), "repair of an empty chain")
        head = grow(ledger, writer, 2)
        row = torn_tail(ledger, writer)
        cut = ledger.repair("s", writer=writer)
        same((row.sequence, row.stored), cut and (cut.sequence, cut.stored), "what was cut")
        same(None, ledger.repair("s", writer=writer), "a second repair")
        same(head, ledger.head("s"), "the head")
        grow(ledger, writer)
        same((), load(ledger, "s").damage, "damage afterwards")


@check
def chain_ids(bench: Bench) -> None:
    """Any text is a chain of its own, locks included; what is no text of 1 to 1024 characters is refused."""
    ledger = bench.open()
    writers = {chain: ledger.lock(chain) for chain in _ODD_CHAINS}
    heads = {chain: grow(ledger, writer) for chain, writer in writers.items()}
    same(tuple(sorted(_ODD_CHAINS)), bench.open().chains(), "the chains")
    same(heads, {chain: ledger.head(chain) for chain in _ODD_CHAINS}, "the heads")
    same({Outcome.CONSISTENT_WITH_ANCHOR}, {verify(ledger, c, head=heads[c]).outcome for c in _ODD_CHAINS}, "verify")
    writer = writers["a"]
    for bad in _BAD_CHAINS:
        acts: list[Callable[[Any], object]] = [
            ledger.head, ledger.read, ledger.lock, ledger.pool, lambda bad: ledger.post(bad, deny("a")),
            lambda bad: ledger.append(bad, entries(writer, None), expect=None, writer=writer),
            lambda bad: ledger.repair(bad, writer=writer),
            lambda bad: grow(ledger, writer, pool=PoolChange(bad, 0, b"")),
        ]  # fmt: skip
        for number, act in enumerate(acts):
            raises(InvalidInputError, partial(act, bad), f"use number {number} of {bad!r:.20}")
