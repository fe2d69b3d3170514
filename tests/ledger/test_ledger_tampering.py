"""A forger at the rows: what load and verify find, what takes a key or a head kept elsewhere, and no false alarm."""

from __future__ import annotations

import random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from capstate.digest import Domain, fingerprint
from capstate.errors import InvalidInputError, MalformedError
from capstate.ledger import (
    Damage,
    DamageKind,
    Entry,
    Head,
    Outcome,
    Record,
    Stored,
    blob_key,
    chain_entries,
    load,
    read_blob,
    verify,
)
from capstate.ledgers.memory import MemoryLedger
from tests.ledger.rows import KEY, Rows, honest

GOOD = honest()
SEALED = honest(key=KEY)
HEAD = GOOD[-1].head


def audit(rows: Any, **known: Any) -> Outcome:
    """The outcome over these rows."""
    return verify(Rows(rows), "s", **known).outcome


def resequence(rows: Any) -> list[Stored]:
    """Number the rows anew, as a forger does who only edits the column."""
    return [evolve(row, sequence=number) for number, row in enumerate(rows)]


def test_an_honest_chain_is_intact() -> None:
    """The base of all cases: without a head unanchored, with any earlier head consistent, with its key as well."""
    assert Outcome.INTACT_UNANCHORED == audit(GOOD)
    assert {Outcome.CONSISTENT_WITH_ANCHOR} == {audit(GOOD, head=entry.head, log="log-1") for entry in GOOD}
    assert Outcome.CONSISTENT_WITH_ANCHOR == audit(SEALED, key=KEY, head=SEALED[-1].head)
    assert GOOD == load(Rows(GOOD), "s").entries


def test_every_flipped_byte_is_found() -> None:
    """One bit, or all bits, of any byte of any row: broken, at that row, without key or head; also of its digest."""
    flips = 0
    for number, row in enumerate(GOOD):
        for at in range(len(row.stored)):
            for mask in (0x01, 0xFF):
                stored = bytearray(row.stored)
                stored[at] ^= mask
                verdict = verify(Rows([*GOOD[:number], evolve(row, stored=bytes(stored)), *GOOD[number + 1 :]]), "s")
                assert (Outcome.BROKEN, number) == (verdict.outcome, verdict.index)
                flips += 1
        for at in range(len(row.digest)):
            digest = row.digest[:at] + chr(ord(row.digest[at]) ^ 1) + row.digest[at + 1 :]
            assert Outcome.BROKEN == audit([*GOOD[:number], evolve(row, digest=digest), *GOOD[number + 1 :]])
    assert flips == 2 * sum(len(row.stored) for row in GOOD)


def test_every_flipped_byte_of_a_seal_is_found_with_the_key() -> None:
    """A changed or missing seal of a writer's entry is broken; of a post it is named, since that may only take away."""
    for number, row in enumerate(SEALED):
        seal = row.seal or ""
        for other in (None, "", *(seal[:at] + chr(ord(seal[at]) ^ 1) + seal[at + 1 :] for at in range(len(seal)))):
            verdict = verify(Rows([*SEALED[:number], evolve(row, seal=other), *SEALED[number + 1 :]]), "s", KEY)
            if row.posted:
                assert (Outcome.INTACT_UNANCHORED, (number,)) == (verdict.outcome, verdict.unsealed)
            else:
                assert (Outcome.BROKEN, number) == (verdict.outcome, verdict.index)


@pytest.mark.parametrize("renumber", [False, True])
def test_dropped_entries_are_found(renumber: bool) -> None:
    """Any span cut out of the front or the middle is broken, also if the rest is numbered anew."""
    for first in range(len(GOOD) - 1):
        for last in range(first, len(GOOD) - 1):
            rows: Any = [*GOOD[:first], *GOOD[last + 1 :]]
            assert Outcome.BROKEN == audit(resequence(rows) if renumber else rows)


def test_a_cut_tail_takes_a_head_to_see() -> None:
    """Without a head kept elsewhere a shorter chain is as good as any; with it, it is rolled back."""
    for length in range(len(GOOD)):
        assert Outcome.INTACT_UNANCHORED == audit(GOOD[:length])
        verdict = verify(Rows(GOOD[:length]), "s", head=HEAD)
        assert (Outcome.ROLLED_BACK, length) == (verdict.outcome, verdict.index)


@pytest.mark.parametrize("renumber", [False, True])
def test_swapped_and_repeated_entries_are_found(renumber: bool) -> None:
    """Any two rows exchanged, any row repeated at any place."""
    for one in range(len(GOOD)):
        for two in range(len(GOOD)):
            rows: list[Any] = list(GOOD)
            if one != two:
                rows[one], rows[two] = rows[two], rows[one]
                assert Outcome.BROKEN == audit(resequence(rows) if renumber else rows)
            rows = [*GOOD[:two], GOOD[one], *GOOD[two:]]
            assert Outcome.BROKEN == audit(resequence(rows) if renumber else rows)


def test_renumbered_entries_are_found() -> None:
    """The number beside the bytes is not believed."""
    for number, row in enumerate(GOOD):
        for other in (-1, number + 1, 100):
            assert Outcome.BROKEN == audit([*GOOD[:number], evolve(row, sequence=other), *GOOD[number + 1 :]])


def test_the_number_inside_the_bytes_is_compared_with_the_one_beside() -> None:
    """An entry that links and verifies but says another number than its row is broken, and is not returned."""
    (late,) = chain_entries("s", Head(23, GOOD[18].digest), [Record("x", {})], at=1, token=1)
    rows = [*GOOD[:19], evolve(late, sequence=19)]

    assert (Outcome.BROKEN, 19) == (verify(Rows(rows), "s").outcome, verify(Rows(rows), "s").index)
    assert GOOD[:19] == load(Rows(rows), "s").entries


def test_entries_of_another_chain_are_found() -> None:
    """Rows moved to another chain are broken there, one or all of them, at their old place or at the end."""
    other = honest("t")
    for number in range(len(GOOD)):
        assert Outcome.BROKEN == audit([*GOOD[:number], other[number], *GOOD[number + 1 :]])
    assert Outcome.BROKEN == audit(other)
    assert Outcome.BROKEN == audit([*GOOD, evolve(other[1], sequence=20)])


def test_a_chain_built_anew_takes_a_head_a_log_id_or_a_key_to_see() -> None:
    """Without a key anybody can build a chain: forked against a head, wrong against the log id, broken with the key."""
    forged = honest(log="log-2")

    assert Outcome.INTACT_UNANCHORED == audit(forged)
    assert Outcome.FORKED == audit(forged, head=HEAD)
    assert Outcome.WRONG_LOG == audit(forged, log="log-1", head=HEAD)
    assert Outcome.BROKEN == audit(forged, key=KEY)
    assert Outcome.FORKED == audit(SEALED[:5] + tuple(_continue(SEALED[4].head)), head=SEALED[-1].head)


def test_a_chain_without_a_log_id_is_the_wrong_log_for_who_expects_one() -> None:
    """A first entry of another kind, or without an id, never passes for the log expected."""
    for record in (Record("deny", {"log": "log-1"}), Record("opened", {}), Record("opened", {"log": 1})):
        rows = chain_entries("s", None, [record], at=1, token=1)
        assert Outcome.WRONG_LOG == audit(rows, log="log-1")
        assert Outcome.INTACT_UNANCHORED == audit(rows)


def test_an_empty_chain_is_not_valid_but_unanchored_or_rolled_back() -> None:
    """Nothing is a finding of its own only against a head."""
    assert Outcome.INTACT_UNANCHORED == audit([])
    assert Outcome.ROLLED_BACK == audit([], head=HEAD)


def test_an_unknown_format_is_said() -> None:
    """An entry of a later version is neither broken nor skipped: verify says so."""
    later = GOOD[19].stored.replace(b'"format":1', b'"format":2')

    assert Outcome.UNKNOWN_FORMAT == audit([*GOOD[:19], Stored(19, later, fingerprint(Domain.ENTRY, later))])


def test_appended_without_the_key() -> None:
    """A forger with the file but no key: what he appends is broken, unless it is a post, which is named as unsealed."""
    grant = chain_entries("s", SEALED[-1].head, [Record("grant", {})], at=1, token=1)
    post = chain_entries("s", SEALED[-1].head, [Record("grant", {})], at=1, posted=True)

    assert Outcome.INTACT_UNANCHORED == audit([*SEALED, *grant])
    assert Outcome.BROKEN == audit([*SEALED, *grant], key=KEY)
    verdict = verify(Rows([*SEALED, *post]), "s", KEY, head=SEALED[-1].head)
    assert (Outcome.CONSISTENT_WITH_ANCHOR, (20,)) == (verdict.outcome, verdict.unsealed)
    assert [False] * 20 + [True] == [entry.unsealed for entry in load(Rows([*SEALED, *post]), "s", KEY).entries]


def _continue(head: Head, count: int = 16) -> list[Entry]:
    return list(chain_entries("s", head, [Record("x", {"n": n}) for n in range(count)], at=1, token=1))


@pytest.mark.parametrize(
    ("rows", "kept", "after_hole", "damage"),
    [
        ([*GOOD[:19], evolve(GOOD[19], stored=GOOD[19].stored[:-9])], [*range(19)], [], [("tail", 19, 19)]),
        ([*GOOD[:19], evolve(GOOD[19], stored=b"")], [*range(19)], [], [("tail", 19, 19)]),
        ([evolve(GOOD[0], stored=b"\0" * 40)], [], [], [("tail", 0, 0)]),
        ([*GOOD[:19], evolve(GOOD[19], stored=GOOD[18].stored)], [*range(19)], [], [("hole", 19, 19)]),
        ([*GOOD[:18], evolve(GOOD[18], stored=b"{"), evolve(GOOD[19], stored=b"{")], [*range(18)], [],
         [("hole", 18, 18), ("tail", 19, 19)]),
        ([*GOOD[:5], *GOOD[8:]], [*range(5), *range(8, 20)], [*range(8, 20)], [("hole", 5, 7)]),
        (GOOD[3:], [*range(3, 20)], [*range(3, 20)], [("hole", 0, 2)]),
        ([*GOOD[:5], evolve(GOOD[5], stored=b"{}"), *GOOD[6:]], [*range(5), *range(6, 20)], [*range(6, 20)],
         [("hole", 5, 5)]),
        ([*GOOD[:5], *_continue(honest(log="x")[4].head, 3)], [*range(8)], [4, 5, 6, 7], [("hole", 4, 5)]),
        ([*GOOD[:5], GOOD[4], *GOOD[5:]], [*range(20)], [*range(5, 20)], [("hole", 4, 4)]),
    ],
)  # fmt: skip
def test_load_returns_what_verifies_and_says_what_does_not(
    rows: Any, kept: list[int], after_hole: list[int], damage: list[tuple[str, int, int]]
) -> None:
    """A torn last row is a tail, the rest a hole; what comes later is there, flagged, as are both sides of a link."""
    chain = load(Rows(rows), "s")

    assert kept == [entry.sequence for entry in chain.entries]
    assert after_hole == [entry.sequence for entry in chain.entries if entry.after_hole]
    assert damage == [(found.kind.value, found.first, found.last) for found in chain.damage]


def test_load_goes_on_from_a_head_it_saw() -> None:
    """With ``after``, only what follows is returned; if that entry is gone or another, it is damage."""
    later = load(Rows(GOOD), "s", after=GOOD[7].head)
    assert ((), GOOD[8:], HEAD) == (later.damage, later.entries, later.head)
    nothing = load(Rows(GOOD), "s", after=HEAD)
    assert ((), (), HEAD) == (nothing.damage, nothing.entries, nothing.head)

    rolled_back = load(Rows(GOOD[:5]), "s", after=GOOD[7].head)
    assert [(DamageKind.HOLE, 7, 7)] == [(found.kind, found.first, found.last) for found in rolled_back.damage]
    forked = load(Rows(honest(log="log-2")), "s", after=GOOD[7].head)
    assert [(DamageKind.HOLE, 7, 7)] == [(found.kind, found.first, found.last) for found in forked.damage]
    assert all(entry.after_hole for entry in forked.entries)
    unlinked = load(Rows([*GOOD[:8], *GOOD[9:]]), "s", after=GOOD[7].head)
    assert [Damage(DamageKind.HOLE, 8, 8, "missing")] == list(unlinked.damage)


def test_a_wrong_key_is_an_error_of_the_caller() -> None:
    """A key of another size never passes as "not sealed"."""
    for key in (b"", b"x" * 31, "x" * 32):
        with pytest.raises(InvalidInputError):
            load(Rows(GOOD), "s", key)  # type: ignore[arg-type]


def test_no_false_alarm_on_a_thousand_honest_ledgers() -> None:
    """Chains of random length, with posts, batches, keys and new owners between: never anything but intact."""
    luck = random.Random(20)
    for number in range(1000):
        ledger, key = MemoryLedger(), luck.choice([None, KEY])
        heads = [head for _ in range(luck.randrange(1, 4)) for head in _session(ledger, f"s{number}", key, luck)]
        verdict = verify(ledger, f"s{number}", key, head=luck.choice(heads))
        assert (Outcome.CONSISTENT_WITH_ANCHOR, ()) == (verdict.outcome, verdict.unsealed)


def _session(ledger: MemoryLedger, chain: str, key: bytes | None, luck: random.Random) -> list[Head]:
    heads = []
    with ledger.lock(chain) as writer:
        for _ in range(luck.randrange(1, 6)):
            head = ledger.head(chain)
            if luck.random() < 0.3:
                heads.append(ledger.post(chain, lambda head: chain_entries(
                    chain, head, [Record("deny", {})], at=1, key=key, posted=True)))  # fmt: skip
            else:
                records = [Record("x", {"n": luck.random()}) for _ in range(luck.randrange(1, 4))]
                rows = chain_entries(chain, head, records, at=1, token=writer.token, key=key)
                heads.append(ledger.append(chain, rows, expect=head, writer=writer))
    return heads


ROW = st.builds(
    Stored,
    st.integers(-2, 25),
    st.binary(max_size=60) | st.sampled_from([row.stored[:cut] for row in GOOD for cut in (None, -1)]),
    st.sampled_from([row.digest for row in GOOD]) | st.text(max_size=5),
    st.none() | st.text(st.characters(), max_size=5),
) | st.sampled_from(GOOD)  # fmt: skip


@settings(max_examples=300)
@given(st.lists(ROW, max_size=25), st.none() | st.just(KEY), st.none() | st.sampled_from([row.head for row in GOOD]))
def test_any_rows_at_all_give_a_verdict(rows: list[Stored], key: bytes | None, head: Head | None) -> None:
    """Whatever a storage gives, load and verify return; and what load returns is only ever entries that verify."""
    found = load(Rows(rows), "s", key, after=head)
    assert all(entry.digest == fingerprint(Domain.ENTRY, entry.stored) for entry in found.entries)
    assert isinstance(audit(rows, key=key, head=head), Outcome)


def test_a_spoilt_blob_is_found() -> None:
    """A blob is verified against its key whenever it is read through ``read_blob``."""

    class Spoilt(Rows):
        def blob(self, digest: str) -> bytes | None:
            return {blob_key(b"good"): b"good", blob_key(b"spoilt"): b"Spoilt"}.get(digest)

    assert b"good" == read_blob(Spoilt([]), blob_key(b"good"))
    assert read_blob(Spoilt([]), blob_key(b"none")) is None
    with pytest.raises(MalformedError):
        read_blob(Spoilt([]), blob_key(b"spoilt"))
