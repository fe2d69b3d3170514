"""Real processes killed at every write of a compaction: the old epoch or the new one, never a mix (CP-18)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from capstate.errors import Reason, Refused
from capstate.runtime import Runtime
from capstate.trace import Call, Facts, Outcome, Role, Strategy, check, compact, extract
from tests.trace.host import BANK, OLD, POINTS, stored

ROOT = Path(__file__).resolve().parents[2]
REPLACED = POINTS.index("replaced")
APPENDED = POINTS.index("after append")


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_leaves_the_old_epoch_or_the_new_one(point: str, tmp_path: Path) -> None:
    """History and epoch agree or the epoch is the older; both are whole; what is unknown stays, and is not repeated."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.trace.host", str(tmp_path), point],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=120,
    )
    assert done.returncode == (0 if point == "never" else -signal.SIGKILL)

    history = stored(tmp_path)
    new = POINTS.index(point) >= REPLACED
    assert check(history) == ()
    assert (history == OLD) is not new
    assert [m.role for m in history] == ([Role.SUMMARY, Role.USER] if new else [m.role for m in OLD])

    runtime = Runtime(tmp_path / "agent.db", catalog=lambda: [BANK], grants={"config": lambda _: ["bank/*"]})
    with runtime, runtime.session("s") as session:
        begun = session.receipt
        assert begun is not None
        assert (begun.epoch, begun.cause) == ((1, "compaction") if POINTS.index(point) >= APPENDED else (0, "open"))
        epoch = session.reproject("restart", history=history)
        assert epoch.facts.boundary is not None
        assert epoch.facts.boundary.kept == (1 if new else 4)
        assert sorted(session.surface.callable) == ["bank/pay"]
        with pytest.raises(Refused) as caught, session.guard(Call("c2", "bank/pay", {"amount": 100})):
            pass
        assert caught.value.reason is Reason.OUTCOME_UNKNOWN

    made = compact(history, facts=Facts(stored=None), summarise=extract, keep_last=1)
    assert (made.strategy is Strategy.NONE) is new
    rows = made.rows or history[0].rows
    assert [(row.call, row.outcome) for row in rows] == [("c1", Outcome.OUTCOME_UNKNOWN)]
