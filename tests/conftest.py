"""Profiles of the random tests, and the tests that only a soak runs.

``fast`` is for work at the desk, ``ci`` finds the same on every machine and does not shrink (that is for a desk),
``quick`` kills most mutants and ``patient`` is for those that survive it, ``soak`` takes its time (``--soak``, or
Hypothesis' own ``--hypothesis-profile=NAME``). No profile has a deadline: no test measures time.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile("fast", max_examples=30, deadline=None)
settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target),
)
settings.register_profile("quick", max_examples=15, deadline=None, derandomize=True, database=None)
settings.register_profile("patient", max_examples=60, deadline=None, database=None)
settings.register_profile(
    "soak", max_examples=5_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") else "fast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the tests marked soak too, under the profile soak")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--soak"):
        settings.load_profile("soak")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--soak"):
        return
    left = [item for item in items if item.get_closest_marker("soak")]
    if left:  # deselected, not skipped: nothing about them is unknown
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> bool:
    """Whether this is a soak: the same test then takes many more worlds."""
    return bool(request.config.getoption("--soak"))
