"""A process of its own: shares with others the ledger file and the configuration file, nothing else.

Reads one JSON command a line, answers one JSON line. Started by ``test_processes.py``; ended by its id, or by the end
of its input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from capstate.authority import Grant, Limits, allow, ask, deny
from capstate.capabilities import Group, Tool
from capstate.epochs import CauseName
from capstate.errors import CapstateError, NeedsApproval, Refused
from capstate.runtime import Permit, Runtime, Session
from capstate.trace import Call

_RULES = {"allow": allow, "ask": ask, "deny": deny}


class Actor:
    """One runtime, and what its commands left open."""

    def __init__(self, ledger: str, config: str) -> None:
        self.config = Path(config)
        self.runtime = Runtime(ledger, catalog=self.catalog, grants={"config": self.rules}, key=self.key())
        self.sessions: dict[str, Session] = {}
        self.permits: dict[str, Permit] = {}
        self.jobs: list[Any] = []

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.config.read_text(encoding="utf-8"))
        return found

    def key(self) -> bytes | None:
        key = self.read().get("key")
        return bytes.fromhex(key) if key else None

    def catalog(self) -> list[Group]:
        return [
            Group(id_, [Tool(name, **more) for name, more in tools.items()])
            for id_, tools in self.read()["groups"].items()
        ]

    def rules(self, holder: str) -> list[Grant]:
        return [_RULES[effect](on) for effect, on in self.read()["grants"].get(holder, [])]

    def do_open(self, id: str, **more: Any) -> list[str]:  # noqa: A002
        limits = Limits(**more.pop("limits")) if "limits" in more else None
        session = self.sessions[id] = self.runtime.session(id, limits=limits, **more)
        session.load("*", by="configuration")
        return sorted(session.surface.callable)

    def do_spawn(self, parent: str, id: str, want: list[str]) -> None:  # noqa: A002
        self.sessions[parent].spawn(id, want=want).close()

    def do_surface(self, id: str) -> list[str]:  # noqa: A002
        return sorted(self.sessions[id].surface.callable)

    def do_reproject(self, id: str, cause: CauseName = "turn") -> dict[str, Any]:  # noqa: A002
        receipt = self.sessions[id].reproject(cause).receipt
        return {
            "cause": receipt.cause,
            "kinds": receipt.kinds,
            "wire": receipt.body["wire"],
            "removed": receipt.tools("removed"),
        }

    def do_run(self, id: str, tool: str, call: str = "c1", cost: int = 0) -> str:  # noqa: A002
        with self.sessions[id].guard(Call(call, tool), cost=cost) as permit:
            permit.settle()
        return "ran"

    def do_many(self, id: str, tool: str, count: int) -> int:  # noqa: A002
        ran = 0
        for n in range(count):
            try:
                with self.sessions[id].guard(Call(f"{id}-{n}", tool), cost=1) as permit:
                    ran += 1
                    permit.settle()
            except Refused:
                continue
        return ran

    def do_start(self, id: str, tool: str, call: str = "c1") -> str:  # noqa: A002
        permit = self.sessions[id].guard(Call(call, tool)).__enter__()
        self.permits[call] = permit
        return str(permit.operation)

    def do_settle(self, call: str) -> None:
        self.permits.pop(call).settle()

    def do_job(self, id: str, name: str, on: list[str]) -> None:  # noqa: A002
        self.jobs.append(self.sessions[id].job(name, grants=on))
        self.jobs[-1].__enter__()

    def do_deny(self, chain: str, on: str) -> str:
        return self.runtime.deny(chain, on, by="ann").id

    def do_end(self, id: str) -> None:  # noqa: A002
        self.runtime.end(id, by="ann")

    def do_approve(self, id: str, tool: str, call: str = "c1") -> None:  # noqa: A002
        self.sessions[id].approve(Call(call, tool), by="ann")

    def do_used(self, id: str) -> dict[str, int]:  # noqa: A002
        return self.sessions[id].used

    def do_operations(self, id: str) -> list[list[Any]]:  # noqa: A002
        return [[op.id, op.tool, op.settled] for op in self.sessions[id].operations]

    def do_close(self, id: str) -> None:  # noqa: A002
        self.sessions.pop(id).close()


def main() -> None:
    actor = Actor(*sys.argv[1:3])
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"is": getattr(actor, "do_" + command.pop("do"))(**command)}
        except (Refused, NeedsApproval) as no:
            answer = {"is": str(no.reason)}
        except CapstateError as error:
            answer = {"is": type(error).__name__}
        print(json.dumps(answer), flush=True)  # noqa: T201 - it answers on its output


if __name__ == "__main__":
    main()
