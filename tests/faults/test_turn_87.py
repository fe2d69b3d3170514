"""Turn 87: a pull request is created, and the process dies. Whenever it does, there is never a second one (FX-06).

The outside world, the agent, and the agent after the crash are three processes; what they share is the ledger file
and a socket.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from capstate.examine import verify
from capstate.ledger import load
from capstate.ledgers.sqlite import SQLiteLedger
from tests.faults.world import ROOT, ask, world

POLICY = ("forge/create_pr", "forge/log", "forge/merge")
SHRUNK = POLICY[:2]
TOOLS = [
    {"idempotent": idempotent, "queryable": queryable} for idempotent, queryable in product((False, True), repeat=2)
]


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """How many gates a turn without a crash has."""
    with world() as port:
        told = turn(tmp_path_factory.mktemp("whole") / "a.db", port, TOOLS[0])
        assert (told["outcome"], told["state"], told["evidence"]) == ("ok", "committed", "pr-1")
        yield told["gates"]


def turn(ledger: Path, port: int, tool: dict[str, bool], die_at: int = 0, policy: tuple[str, ...] = POLICY) -> Any:
    """Run one turn; what it told, or None if it died."""
    command = [
        sys.executable,
        "-m",
        "tests.faults.turn",
        str(ledger),
        str(port),
        json.dumps(tool),
        str(die_at),
        *policy,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def hold(ledger: Path, told: dict[str, Any], tool: dict[str, bool], count: int, where: str) -> None:
    """Hold what is left after the last process to everything that was promised."""
    assert count <= 1, f"{where}: a second pull request"
    if told["state"] == "committed":
        assert (count, told["outcome"], told["refused"]) == (1, "ok", None), where
    else:
        # Nobody can tell, and a repeat might do harm: it waits for a person, and the model cannot have it otherwise.
        assert not any(tool.values()), where
        assert told["refused"] == "outcome_unknown", where
    assert told["callable"] == sorted(SHRUNK), where
    with closing(SQLiteLedger(ledger, read_only=True)) as read:
        (row,) = verify(read, "s")
        assert row["good"], where
        epochs = [entry.body["receipt"] for entry in load(read, "s").entries if entry.kind == "epoch"]
    assert [epoch["epoch"] for epoch in epochs] == list(range(len(epochs))), where
    compactions = [epoch["cause"] for epoch in epochs].count("compaction")
    assert 1 <= compactions <= 2, where


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: "-".join(k for k, v in tool.items() if v) or "neither")
def test_there_is_never_a_second_pull_request(tool: dict[str, bool], gates: int, tmp_path: Path) -> None:
    """Killed at each gate in turn; permissions shrink before it is opened again."""
    died = 0
    with world() as port:
        for at in range(1, gates + 1):
            ledger = tmp_path / f"{at}.db"
            before = ask(port, do="count")
            assert turn(ledger, port, tool, at) is None, f"gate {at} was not reached"
            died += 1
            told = turn(ledger, port, tool, policy=SHRUNK)
            hold(ledger, told, tool, ask(port, do="count") - before, f"gate {at} of {gates}")

    assert died == gates


def test_nor_if_recovery_dies_as_well(gates: int, tmp_path: Path) -> None:
    """Killed right after the act, then at each gate of the recovery."""
    tool = TOOLS[1]
    with world() as port:
        act = next(at for at in range(1, gates + 1) if _made(tmp_path / f"find {at}.db", port, tool, at))
        at, told = 0, None
        while told is None:
            at += 1
            ledger = tmp_path / f"{at}.db"
            before = ask(port, do="count")
            assert turn(ledger, port, tool, act) is None
            told = turn(ledger, port, tool, at, SHRUNK)
            last = told if told is not None else turn(ledger, port, tool, policy=SHRUNK)
            hold(ledger, last, tool, ask(port, do="count") - before, f"gate {at} of the recovery")

    assert at > 5


def _made(ledger: Path, port: int, tool: dict[str, bool], at: int) -> bool:
    """Whether a process that dies at this gate has created its pull request."""
    before = ask(port, do="count")
    assert turn(ledger, port, tool, at) is None
    return bool(ask(port, do="count") > before)


NAIVE = """
import json, os, pathlib, signal, sys
from tests.faults.world import ask
file, port, dies = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "dies"
said = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
if not said:
    file.write_text(json.dumps({"call": "c87"}) + "\\n")
if len(said) < 2:  # a call without a result: what else is there to do but run it
    number = ask(port, do="create", mark=file.name, once=False)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    file.write_text(file.read_text() + json.dumps({"result": number}) + "\\n")
"""


def test_a_host_that_goes_by_its_transcript_has_two(tmp_path: Path) -> None:
    """What this is about (FM-11): the call is written down before it runs, its result after; and that is not enough."""
    with world() as port:
        for how in ("dies", "lives", "lives"):
            command = [sys.executable, "-c", NAIVE, str(tmp_path / "transcript.jsonl"), str(port), how]
            subprocess.run(command, cwd=ROOT, timeout=60, check=how == "lives")

        assert ask(port, do="count") == 2
