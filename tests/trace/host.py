"""A host of its own process: one payment of unknown outcome, one compaction, and a kill at a named point.

Started by ``test_trace_crash.py``: ``host.py FOLDER POINT``. Its history is a file that is replaced whole; the epoch is
the ledger's. The history comes first: what the ledger says of it is never ahead.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from capstate.capabilities import Group, Tool
from capstate.ledgers.sqlite import SQLiteLedger
from capstate.runtime import Runtime
from capstate.trace import (
    Call,
    Candidate,
    Facts,
    Known,
    Message,
    Outcome,
    Role,
    choose,
    compact,
    extract,
    from_json,
    to_json,
)

BANK = Group("bank", [Tool("pay")])
PAY = Call("c1", "bank/pay", {"amount": 100})
OLD = [
    Message("u1", Role.USER, "Settle the invoice. " + "It is long. " * 90),
    Message("a1", Role.ASSISTANT, calls=(PAY,)),
    Message("t1", Role.TOOL, "timeout", result_for="c1", outcome=Outcome.OUTCOME_UNKNOWN),
    Message("u2", Role.USER, "Go on."),
]
POINTS = ["nothing", "built", "written", "replaced", "before append", "after append", "projected", "never"]


class Killed(SQLiteLedger):
    """A ledger whose process ends before or after its next append, if it is told to."""

    at = ""

    def append(self, *arguments: Any, **more: Any) -> Any:
        """Append, and end where that was asked for."""
        die(self.at, "before append")
        made = super().append(*arguments, **more)
        die(self.at, "after append")
        return made


def die(wanted: str, here: str) -> None:
    if wanted == here:
        os.kill(os.getpid(), signal.SIGKILL)


def stored(folder: Path) -> list[Message]:
    return from_json(json.loads((folder / "history.json").read_bytes()))


def store(folder: Path, messages: list[Message], point: str = "") -> None:
    """Replace the history, durably."""
    new = folder / "history.new"
    with new.open("w", encoding="utf-8") as file:
        json.dump(to_json(messages), file)
        file.flush()
        os.fsync(file.fileno())
    die(point, "written")
    new.replace(folder / "history.json")


def main(folder: Path, point: str) -> None:
    """Pay, lose the answer, compact."""
    ledger = Killed(folder / "agent.db")
    with Runtime(ledger, catalog=lambda: [BANK], grants={"config": lambda _: ["bank/*"]}) as runtime:
        session = runtime.session("s")
        session.load("bank", by="configuration")
        with session.guard(PAY) as permit:
            permit.settle(outcome="outcome_unknown")
        store(folder, OLD)
        session.reproject("open", history=OLD)
        die(point, "nothing")
        made = compact(OLD, facts=Facts(stored=None), summarise=extract, keep_last=1)
        known = Known(OLD, version=1, outcomes={PAY.key: Outcome.OUTCOME_UNKNOWN})
        chosen = choose([lambda: Candidate.of(made, version=1)], known).candidate
        die(point, "built")
        if chosen is None:
            raise SystemExit(3)
        store(folder, list(chosen.messages), point)
        die(point, "replaced")
        ledger.at = point
        session.reproject("compaction", history=chosen.messages)
        die(point, "projected")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
