"""Interleaved repeats and their medians: what a machine does meanwhile then falls on all sides of a ratio alike."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from attrs import asdict, frozen

Prepared = tuple[Callable[[], Any], Callable[[Any], object]]
"""Makes fresh input outside the measurement, and the work on it that is measured."""


@frozen
class Figure:
    """One measured ratio.

    Attributes:
        what: what was done.
        seconds: median of one run.
        floor: what it is compared with.
        floor_seconds: median of one run of that.
        limit: greatest ratio that the project promises; None without a promise.
        detail: further numbers.
        unit: of both figures, if they are not seconds.
    """

    what: str
    seconds: float
    floor: str
    floor_seconds: float
    limit: float | None = None
    detail: Mapping[str, float] = {}
    unit: str = "seconds"

    @property
    def ratio(self) -> float:
        """How many times the floor."""
        return self.seconds / self.floor_seconds

    @property
    def kept(self) -> bool:
        """Whether the promise, if there is one, holds."""
        return self.limit is None or self.ratio <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Return the figure as JSON."""
        return {**asdict(self), "detail": dict(self.detail), "ratio": round(self.ratio, 3), "kept": self.kept}


def in_user_mode() -> float:
    """Return the processor seconds of this process outside the system: for work that fills fresh memory.

    What a new page costs is the host's affair, and on a virtual machine can be more than the work that fills it.
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def medians(
    work: Mapping[str, Prepared],
    *,
    repeats: int = 15,
    inner: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of each piece of work, taken in turns; like timeit, without garbage collection.

    Args:
        work: by name.
        repeats: how often each is measured.
        inner: how often the work runs within one measurement, each time on fresh input.
        clock: seconds.
    """
    samples: dict[str, list[float]] = {name: [] for name in work}
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats + 1):
            for name, (prepare, run) in work.items():
                inputs = [prepare() for _ in range(inner)]
                began = clock()
                results = [run(one) for one in inputs]
                samples[name].append((clock() - began) / inner)
                del results  # as a host does: later, and not while anybody waits
    finally:
        gc.enable()
    return {name: statistics.median(taken[1:]) for name, taken in samples.items()}  # the first of each warms up
