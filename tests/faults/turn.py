"""One turn of an agent, and the compaction behind it, as a process that dies where it is told to.

``python -m tests.faults.turn LEDGER WORLD-PORT TOOL DIE-AT [POLICY...]``: opens the session, projects, creates a pull
request through the guard, records it, compacts, closes. Behind every write of the ledger, and before and behind the act
in the world, there is a *gate*; at gate number DIE-AT the process kills itself. A session that was begun before is
recovered first. The last line of the output says what came of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from capstate import Call, Group, Message, Refused, Runtime, Tool
from capstate.effects import Action, Answer, Operation
from capstate.ledgers.sqlite import SQLiteLedger
from capstate.providers import anthropic
from capstate.runtime import Permit, Session
from tests.faults.world import ask

TURN_87 = Call("c87", "forge/create_pr", {"branch": "fix-payments", "title": "Raise the time-out"})
WRITES = ("append", "post", "lock", "repair")


class Gates:
    """Counts the points at which the process may die."""

    def __init__(self, die_at: int) -> None:
        self.die_at, self.passed = die_at, 0

    def gate(self) -> None:
        self.passed += 1
        if self.passed == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)


class Gated:
    """A ledger with a gate behind each write."""

    def __init__(self, inner: SQLiteLedger, gates: Gates) -> None:
        self.inner, self.gates = inner, gates

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name not in WRITES:
            return method

        def between(*given: Any, **more: Any) -> Any:
            result = method(*given, **more)
            self.gates.gate()  # who dies before the next write has died here: nothing is durable in between
            return result

        return between


class Turn:
    """The host."""

    def __init__(self, ledger: Path, port: int, tool: dict[str, bool], gates: Gates, policy: list[str]) -> None:
        self.name, self.port, self.tool, self.gates = ledger.name, port, tool, gates
        forge = Group(
            "forge",
            [Tool("create_pr", idempotent=tool["idempotent"]), Tool("log", effect="read"), Tool("merge")],
        )
        self.runtime = Runtime(
            Gated(SQLiteLedger(ledger), gates),
            catalog=lambda: [forge],
            grants={"config": lambda _: policy},
        )

    def run(self) -> dict[str, Any]:
        session = self.runtime.session("s")
        known = {operation.call for operation in session.operations}
        session.load("forge", by="configuration")
        session.reproject("turn", provider=anthropic.profile("claude-x"), history=[Message("u86", "user", "Fix it.")])
        refused = self.recover(session) if TURN_87.id in known else self.act(session)
        summary = Message("s1", "summary", "A pull request was asked for. forge/merge is available.")
        before = session.receipt
        epoch = session.reproject("compaction", history=[summary])
        (operation,) = session.operations
        told = {
            "outcome": operation.outcome,
            "state": str(operation.state),
            "evidence": operation.evidence,
            "refused": refused,
            "callable": sorted(epoch.surface.callable),
            "epochs": [before.epoch if before is not None else -1, epoch.receipt.epoch],
        }
        session.close()
        return told

    def act(self, session: Session) -> str | None:
        """Do the act of turn 87 under the guard."""
        with session.guard(TURN_87) as permit:
            self.create(permit)
        return None

    def create(self, permit: Permit) -> None:
        self.gates.gate()
        number = ask(self.port, do="create", mark=self.mark(permit.operation), once=self.tool["idempotent"])
        self.gates.gate()
        permit.observe(evidence=f"pr-{number}")
        permit.settle()

    def recover(self, session: Session) -> str | None:
        """Do as recovery says; then let the model ask for the same under another id, if nobody knows how it ended."""
        for step in session.recover(self.find if self.tool["queryable"] else None, by="recovery"):
            if step.action in (Action.START, Action.RETRY):
                self.act(session)
        if any(operation.open for operation in session.operations):
            try:
                with session.guard(Call("c88", TURN_87.tool, TURN_87.arguments)) as permit:
                    self.create(permit)
            except Refused as no:
                return str(no.reason)
        return None

    def mark(self, operation: str | None) -> str:
        """What the world knows the act by: ids of operations are those of one ledger."""
        return f"{self.name} {operation}"

    def find(self, operation: Operation) -> Answer:
        found = ask(self.port, do="find", mark=self.mark(operation.id))
        return Answer("ok", "found by its mark") if found else Answer("not_run")


def main() -> None:
    ledger, port, tool, die_at, *policy = sys.argv[1:]
    gates = Gates(int(die_at))
    told = Turn(Path(ledger), int(port), json.loads(tool), gates, policy).run()
    sys.stdout.write(json.dumps({**told, "gates": gates.passed}) + "\n")


if __name__ == "__main__":
    main()
