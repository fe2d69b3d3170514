"""Tokens that a provider reports for one request, in one form.

Figures are observations: as reported, never explained, never compared across an epoch boundary. What a provider
does not report is None and stays so; it is not zero, and nothing is made up from what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from attrs import frozen

from capstate.errors import InvalidInputError


@frozen
class Usage:
    """Tokens of one request.

    Attributes:
        read: input read from a cache.
        write: input written to a cache.
        uncached: input that was neither read from nor written to a cache. Of a provider that reports a total with
            cached input in it, the rest; None if a part that is needed for that is not reported.
        output: tokens the model made.
    """

    read: int | None = None
    write: int | None = None
    uncached: int | None = None
    output: int | None = None


class Kind(StrEnum):
    """What a request was for. A compaction's own tokens are never added to those of a turn."""

    TURN = "turn"
    COMPACTION = "compaction"


class Comparison(StrEnum):
    """What two requests say about a provider's cache."""

    NOT_COMPARABLE = "not comparable"
    """A boundary lies between, or one of them is a compaction: nothing says that the same cache went on."""
    UNKNOWN = "unknown"
    """The provider did not report what was read from a cache."""
    READ = "read"
    """It reported that input was read from a cache."""
    NOTHING_READ = "nothing read"
    """It reported that none was."""


class Prefix(StrEnum):
    """What changed in front of the conversation, as far as it can be told apart."""

    SAME = "same"
    TOOLS = "tools"
    HISTORY = "history"
    CONFOUNDED = "confounded"
    """Tools and history changed at once: nothing says which of them a figure follows from."""
    UNKNOWN = "unknown"


@frozen
class Reading:
    """One request, as far as caches are concerned.

    Attributes:
        span: number of the cache comparison span: it grows with each compaction, reopen, fork, move and switch.
        usage: its tokens.
        kind: what the request was for.
        tools: fingerprint of the tool definitions in front of the messages; None if unknown.
        head: fingerprint of the first message; None if unknown.
    """

    span: int
    usage: Usage = Usage()
    kind: Kind = Kind.TURN
    tools: str | None = None
    head: str | None = None


def compare(before: Reading | None, now: Reading) -> Comparison:
    """Say what ``now`` tells about the cache that ``before`` may have filled. Only reported figures count."""
    if before is None or before.span != now.span or Kind.COMPACTION in (before.kind, now.kind):
        return Comparison.NOT_COMPARABLE
    if now.usage.read is None:
        return Comparison.UNKNOWN
    return Comparison.READ if now.usage.read else Comparison.NOTHING_READ


def prefix(before: Reading | None, now: Reading) -> Prefix:
    """Say which part of the prefix changed; a change of the tools is never laid to a compaction, nor the reverse."""
    if before is None or None in (before.tools, now.tools, before.head, now.head):
        return Prefix.UNKNOWN
    changed = before.tools != now.tools, before.head != now.head
    return {
        (False, False): Prefix.SAME,
        (True, False): Prefix.TOOLS,
        (False, True): Prefix.HISTORY,
        (True, True): Prefix.CONFOUNDED,
    }[changed]


@frozen
class Simulated:
    """What a cache of whole blocks would have had of a request. A simulation: no provider reported it (CA-08).

    Attributes:
        block: bytes of one block.
        blocks: whole blocks of the request.
        known: how many of them, from the first on, an earlier request had.
    """

    block: int
    blocks: int
    known: int

    @property
    def fraction(self) -> float | None:
        """Known blocks among all; None for a request shorter than a block."""
        return self.known / self.blocks if self.blocks else None


def simulate(before: Iterable[bytes], now: bytes, block: int) -> Simulated:
    """Return what a cache that had seen ``before`` would know of ``now``: whole blocks of an equal prefix.

    Args:
        before: earlier requests, each as its bytes in the order in which a model reads them: tools, then messages.
        now: the request.
        block: bytes of one block.

    Raises:
        InvalidInputError: the block is no whole number from 1.
    """
    if type(block) is not int or block < 1:
        raise InvalidInputError("block", "a whole number of bytes from 1", block)
    return Simulated(block, len(now) // block, max((_common(one, now) // block for one in before), default=0))


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix, found by halves: comparing bytes is faster than counting them."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
