"""Does a storage keep the contract of :class:`capstate.ledger.Ledger`? One call, one report; no test framework needed.

::

    def fresh():                        # a new, empty storage ...
        path = folder / uuid4().hex
        return lambda: MyLedger(path)   # ... and how to open one more handle on it

    report = check(fresh)
    print(report)
    raise SystemExit(not report.ok)

Two handles stand for two processes. What only real processes show (a lock freed by ``kill -9``, kept by a stopped
owner; what a power cut leaves) is outside of this suite. The checks themselves are in ``ledger_checks.py``
and ``ledger_sharing.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from capstate.conformance import ledger_checks, ledger_sharing  # noqa: F401 - importing them fills CHECKS
from capstate.conformance.ledger_bench import CHECKS, Bench, BrokenPromiseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from capstate.ledger import Ledger

__all__ = ["CHECKS", "Report", "Result", "check", "run"]


@frozen
class Result:
    """One promise of the contract, and why it is not kept (None: it is)."""

    name: str
    promise: str
    fault: str | None

    def __str__(self) -> str:
        return f"kept    {self.promise}" if self.fault is None else f"BROKEN  {self.promise} -- {self.fault}"


@frozen
class Report:
    """What :func:`check` found."""

    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """Whether every promise is kept."""
        return all(result.fault is None for result in self.results)

    def __str__(self) -> str:
        kept = sum(result.fault is None for result in self.results)
        return "\n".join([*map(str, self.results), f"{kept} of {len(self.results)} promises kept"])


def check(fresh: Callable[[], Callable[[], Ledger]]) -> Report:
    """Run every check on a storage of its own. What a check raises is a fault of the storage, not of the run."""
    return Report(tuple(run(name, fresh) for name in CHECKS))


def run(name: str, fresh: Callable[[], Callable[[], Ledger]]) -> Result:
    """Run the check called ``name``, one of :data:`CHECKS`."""
    function = CHECKS[name]
    fault: str | None = None
    try:
        with Bench(fresh()) as bench:
            function(bench)
    except BrokenPromiseError as broken:
        fault = str(broken)
    except Exception as error:  # noqa: BLE001 - whatever a stranger's storage raises is the finding
        fault = f"{type(error).__name__}: {error}"
    return Result(name, " ".join((function.__doc__ or name).split()).rstrip("."), fault)
