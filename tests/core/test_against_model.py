"""The library and the independent model give the same answer: for the table, small worlds, and random ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.model import predict
from tests.translation import World, decide
from tests.worlds import count_small_worlds, random_world, small_worlds

TABLE = json.loads((Path(__file__).parent / "table.json").read_text(encoding="utf-8"))


def assert_agree(worlds: Iterable[World]) -> int:
    """Compare world by world; return how many there were."""
    number = 0
    for number, world in enumerate(worlds, 1):  # noqa: B007 - counted
        expected, got = predict(world), decide(world)
        if got != expected:
            pytest.fail(f"{json.dumps(world, indent=1)}\nmodel: {json.dumps(expected)}\nlibrary: {json.dumps(got)}")
    return number


@pytest.mark.parametrize("row", TABLE, ids=[row["title"] for row in TABLE])
def test_the_table(row: dict[str, Any]) -> None:
    """Each row of the authority table of the design holds for the library."""
    assert decide(row["world"]) == row["answer"]


def parts(number: int) -> list[object]:
    """Numbers of the parts of a long test; the mutation runs take the first alone."""
    return [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, number))]


@pytest.mark.parametrize("part", parts(16))
def test_small_worlds(part: int, soak: bool) -> None:
    """Worlds from all over the enumeration: every sixteenth of them in a part of its own."""
    count = (2_000_000 if soak else 20_000) // 16
    stride = count_small_worlds() // (16 * count)
    worlds = islice(small_worlds(16 * stride, part * stride), count)

    assert assert_agree(worlds) == count


@pytest.mark.parametrize("part", parts(8))
def test_random_worlds(part: int, soak: bool) -> None:
    """Larger worlds with odd names, many rules, deep families."""
    count = (200_000 if soak else 2_000) // 8
    rng = random.Random(20_261_130 + part)

    assert assert_agree(random_world(rng) for _ in range(count)) == count
