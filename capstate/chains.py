"""Reading a whole chain back: what verifies, what is damaged, and what an audit may say about it.

Damage is a finding, not an exception: a chain with a hole still holds denies that count. What a finding means for
grants, loads and calls is the runtime's business. Pure over the rows that a storage gives.

Import these names from :mod:`capstate.ledger`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from capstate.entries import OPENED, Entry, Head, Stored, check_key, decode, torn
from capstate.errors import LedgerFormatError, MalformedError

if TYPE_CHECKING:
    from capstate.ledger import Ledger


class DamageKind(StrEnum):
    """What is wrong with a part of a chain."""

    TAIL = "tail"
    """The last row holds no entry, as after a torn write: ``Ledger.repair`` cuts it."""
    HOLE = "hole"
    """Rows are missing, do not verify, or do not link to the row before."""


@frozen
class Damage:
    """One damaged span of a chain, both ends included.

    Attributes:
        kind: what is wrong.
        first: the first sequence number of the span.
        last: the last one.
        why: the same for people.
    """

    kind: DamageKind
    first: int
    last: int
    why: str


@frozen
class Chain:
    """A chain as read: the entries that verify, and what is wrong with the rest.

    Attributes:
        id: id of the chain.
        entries: those that verify, in order.
        damage: the spans that do not, in order.
    """

    id: str
    entries: tuple[Entry, ...] = field(repr=False)
    damage: tuple[Damage, ...]
    head: Head | None
    """The storage's head, also when that row is damaged: what the next append has to follow."""

    @property
    def log(self) -> str | None:
        """The random id in the body of the first entry."""
        first = self.entries[0] if self.entries else None
        log = None if first is None or first.sequence or first.kind != OPENED else first.body.get("log")
        return log if isinstance(log, str) else None


def load(ledger: Ledger, chain: str, key: bytes | None = None, *, after: Head | None = None) -> Chain:
    """Read and verify ``chain``, or what follows ``after``, a head this caller verified before.

    Damage never raises. Entries after a hole that verify and link among themselves are returned and flagged
    ``after_hole``; so are both neighbours of a broken link, since nothing tells which of them is the wrong one.

    Raises:
        LedgerFormatError: an entry has an unknown format version.
        LedgerUnavailableError: the storage failed.
    """
    check_key(key)
    reader = _Reader(chain, key, after)
    for row in ledger.read(chain, after.sequence if after else 0):
        reader.take(row)
    return reader.result()


class Outcome(StrEnum):
    """What an audit of a chain found; never a boolean."""

    BROKEN = "broken"
    INTACT_UNANCHORED = "intact-unanchored"
    CONSISTENT_WITH_ANCHOR = "consistent-with-anchor"
    ROLLED_BACK = "rolled-back"
    FORKED = "forked"
    WRONG_LOG = "wrong-log"
    UNKNOWN_FORMAT = "unknown-format"


@frozen
class Verdict:
    """The outcome of :func:`verify` and what it rests on.

    Attributes:
        outcome: what was found.
        why: the same for people.
        head: the last entry, or None for an empty chain.
        log: id of the log, where the chain has a readable opening.
    """

    outcome: Outcome
    why: str
    index: int | None = None
    """The first sequence number at fault."""
    head: Head | None = None
    log: str | None = None
    unsealed: tuple[int, ...] = ()
    """Posts without a valid seal, if a key was given: these count only where they take away."""


def verify(
    ledger: Ledger, chain: str, key: bytes | None = None, *, head: Head | None = None, log: str | None = None
) -> Verdict:
    """Audit ``chain`` against what the caller knows from elsewhere: a key, an earlier ``head``, the ``log`` id.

    Without ``head`` a cut tail, or a chain rewritten from its start, is not visible: the outcome is at best
    ``intact-unanchored``. With a key, every entry that is no post must be sealed.

    Raises:
        LedgerUnavailableError: the storage failed.
    """
    try:
        found = load(ledger, chain, key)
    except LedgerFormatError as error:
        return Verdict(Outcome.UNKNOWN_FORMAT, str(error))
    unsealed = _unsealed(found)
    index: int | None
    if log is not None and found.entries and found.log != log and (found.log is not None or not found.damage):
        outcome, why, index = Outcome.WRONG_LOG, f"the log is {found.log!r}, not {log!r}", 0
    elif found.damage:
        outcome, why, index = Outcome.BROKEN, found.damage[0].why, found.damage[0].first
    elif unsealed is not None:
        outcome, why, index = Outcome.BROKEN, "an entry of the writer has no valid seal", unsealed
    else:
        outcome, why, index = _compare(found.entries, head)
    posts = tuple(entry.sequence for entry in found.entries if entry.unsealed and entry.posted)
    return Verdict(outcome, why, index, found.head, found.log, posts)


def _unsealed(found: Chain) -> int | None:
    return next((entry.sequence for entry in found.entries if entry.unsealed and not entry.posted), None)


def _compare(entries: tuple[Entry, ...], head: Head | None) -> tuple[Outcome, str, int | None]:
    """Compare an undamaged chain with a head seen before."""
    count = len(entries)
    if head is None:
        return Outcome.INTACT_UNANCHORED, f"{_entries(count)}, and no head to compare with", None
    if head.sequence >= count:
        return Outcome.ROLLED_BACK, f"{_entries(count)}, but entry {head.sequence} was seen before", count
    if entries[head.sequence].digest != head.digest:
        return Outcome.FORKED, f"entry {head.sequence} is not the one seen before", head.sequence
    return Outcome.CONSISTENT_WITH_ANCHOR, f"{_entries(count)}, among them the head seen before", None


class _Reader:
    """The state of one :func:`load`."""

    def __init__(self, chain: str, key: bytes | None, after: Head | None) -> None:
        self.chain, self.key, self.after = chain, key, after
        self.entries: list[Entry] = []
        self.damage: list[Damage] = []
        self.head: Head | None = None
        self.link: str | None = after.digest if after else None  # what the next entry must name
        self.linked = True  # False after a row that cannot be linked to
        self.next = after.sequence if after else 0
        self.last_torn = False

    def take(self, row: Stored) -> None:
        self.last_torn = False
        if self.after is not None and self.head is None and row.sequence == self.after.sequence:
            self.head = row.head
            self.next += 1
            if row.head != self.after:
                self.hole(row.sequence, row.sequence, "it is not the entry that was read before")
                self.linked = False
            return
        self.head = row.head
        if row.sequence < self.next:
            self.hole(row.sequence, row.sequence, f"it stands where entry {self.next} should")
            return
        if row.sequence > self.next:
            self.hole(self.next, row.sequence - 1, "missing")
            self.linked = False
        self.next = row.sequence + 1
        try:
            entry = decode(row, self.chain)
        except MalformedError as error:
            self.hole(row.sequence, row.sequence, f"expected {error.expected}, got {error.got}")
            self.linked, self.last_torn = False, torn(row)
            return
        if self.linked and entry.previous != self.link:
            self.hole(max(row.sequence - 1, 0), row.sequence, "an entry does not name the digest of the one before")
            if self.entries:
                self.entries[-1] = evolve(self.entries[-1], after_hole=True)
        unsealed = self.key is not None and not entry.sealed(self.key)
        if unsealed or self.damage:
            entry = evolve(entry, unsealed=unsealed, after_hole=bool(self.damage))
        self.entries.append(entry)
        self.link, self.linked = entry.digest, True

    def hole(self, first: int, last: int, why: str) -> None:
        self.damage.append(Damage(DamageKind.HOLE, first, last, why))

    def result(self) -> Chain:
        if self.last_torn:
            self.damage[-1] = evolve(self.damage[-1], kind=DamageKind.TAIL)
        if self.after is not None and self.head is None:
            self.hole(self.after.sequence, self.after.sequence, "the chain ends before the entry that was read last")
        return Chain(self.chain, tuple(self.entries), tuple(self.damage), self.head)


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"
