"""The simulated cache: whole blocks of an equal prefix, by hand and against counting byte by byte."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capstate.errors import InvalidInputError
from capstate.usage import simulate

REQUEST = b"tools,tools,first,second"


@pytest.mark.parametrize(
    ("before", "block", "known"),
    [
        ([], 4, 0),
        ([REQUEST], 4, 6),
        ([REQUEST + b" and more"], 4, 6),
        ([b"tools,tools,FIRST"], 4, 3),
        ([b"tools,tools,FIRST"], 5, 2),
        ([b"Tools,tools,first"], 4, 0),
        ([b"tools,tools,FIRST", b"tools,"], 4, 3),
        ([b"x", b"tools,tools,first,s"], 1, 19),
        ([REQUEST], 100, 0),
    ],
)  # fmt: skip
def test_whole_blocks_of_an_equal_prefix_are_known(before: list[bytes], block: int, known: int) -> None:
    """A block that differs in its last byte is not; what stands behind a difference neither."""
    found = simulate(before, REQUEST, block)

    assert (found.known, found.blocks, found.block) == (known, len(REQUEST) // block, block)


@given(st.binary(max_size=60), st.integers(0, 60), st.binary(max_size=60), st.integers(1, 9))
def test_it_is_the_count_of_equal_bytes(one: bytes, cut: int, rest: bytes, block: int) -> None:
    """For any two requests that begin alike."""
    other = one[:cut] + rest
    equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))

    assert simulate([one], other, block).known == equal // block
    assert simulate([one], other, block).known <= simulate([one], other, 1).known


def test_a_request_shorter_than_a_block_has_no_fraction() -> None:
    """Nothing is not none of it."""
    assert simulate([b"ab"], b"ab", 3).fraction is None
    assert simulate([b"abcd"], b"abxd", 2).fraction == 0.5


@pytest.mark.parametrize("block", [0, -1, 1.5, True, None])
def test_a_block_has_a_size(block: Any) -> None:
    """Whole bytes."""
    with pytest.raises(InvalidInputError, match=r"^block: "):
        simulate([], b"", block)
