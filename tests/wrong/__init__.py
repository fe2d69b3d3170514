"""A gallery of wrong implementations, each rejected by a named test.

A test that nothing can fail proves nothing. So each test here plants one fault, small enough to be read as a
sentence, and shows that a test of the suite, called by its name, then fails:

    def test_union_for_meet(plant: Plant) -> None:
        \"\"\"The greatest of the parts decides instead of the least.\"\"\"
        plant(GroupAuthority, "_least", lambda self, name, print_: max(...))
        rejects(laws.test_a_ceiling_is_a_meet, *seeds(2))

- ``plant(owner, name, wrong)`` puts ``wrong`` in place of ``owner.name`` until the test ends.
- ``rejects(test, *cases)`` calls the test with each case (a tuple of its arguments) until it fails, and fails itself
  if none does. A test of random input is given its seeds by ``seeds(number of arguments)``; a test without arguments
  is given ``()``. That the right implementation passes is shown where the test itself runs.
- The fault may sit in the library, or be another implementation that the test's own module is given.

Faults of the pure core are in ``test_core.py``; those of other rooms stand in a module of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

Plant = Callable[[object, str, object], None]


def seeds(arguments: int, number: int = 80) -> list[tuple[int, ...]]:
    """Arguments for a test of random input."""
    rng = random.Random(1)
    return [tuple(rng.randrange(2**32) for _ in range(arguments)) for _ in range(number)]


def rejects(test: Callable[..., object], *cases: tuple[Any, ...]) -> None:
    """Hold ``test`` to failing for one of ``cases``."""
    call = test.hypothesis.inner_test if hasattr(test, "hypothesis") else test
    for case in cases:
        try:
            call(*case)
        except (AssertionError, pytest.fail.Exception):
            return
    pytest.fail(f"{test.__module__}.{test.__qualname__} accepts the fault")
