"""One process of a case: a host with a runtime of its own, driven by commands.

``python -m tests.scenarios.worker LEDGER FOLDER`` speaks JSON lines over its standard streams. Nothing but the
ledger and the files in FOLDER is shared with other processes. The same class serves in one process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from capstate.authority import Grant, Limits
from capstate.children import Claim, Result
from capstate.errors import CapstateError, NeedsApproval, Refused
from capstate.ledger import Ledger, Record, load, verify
from capstate.runtime import Gate, Permit, Runtime, Session
from tests.scenarios import forms


class Worker:
    """The sessions of one process."""

    def __init__(self, ledger: str | Ledger, folder: Path) -> None:
        self._folder = folder
        self.runtime = Runtime(ledger, catalog=self._catalog, grants={"config": self._config})
        self._sessions: dict[str, Session] = {}
        self._gates: dict[str, tuple[Gate, Permit]] = {}
        self._jobs: dict[str, ExitStack] = {}
        self._seen: dict[str, str] = {}

    # The host's sources: each reads its file again, whenever it is asked.

    def _catalog(self) -> list[Any]:
        return forms.catalog_of(forms.read(self._folder / "world.json"))

    def _config(self, holder: str) -> list[Grant]:
        return forms.rules_of(forms.read(self._folder / "config.json"), holder)

    def do(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Carry out one command."""
        return getattr(self, f"do_{command}")(**arguments)

    # ---- sessions

    def do_open(self, session: str, limits: Mapping[str, Any] | None = None, holder: str | None = None) -> list[str]:
        given = Limits(**limits) if limits is not None else None
        self._sessions[session] = self.runtime.session(session, limits=given, holder=holder)
        return self._remember(session)

    def _remember(self, session: str) -> list[str]:
        """Take note of the last receipt: what comes after it is new."""
        receipt = self._sessions[session].receipt
        self._seen[session] = receipt.digest if receipt is not None else ""
        return []

    def do_spawn(self, parent: str, session: str, want: list[str], call: str | None, keep: bool) -> None:
        self._sessions[session] = self._sessions[parent].spawn(session, want=want, call=call)
        self._seen[session] = ""
        if not keep:
            self.do_close(session)

    def do_started_before(self, parent: str, session: str) -> None:
        """A crash came after the parent's entry that it starts a child, and before the child's own."""
        self.runtime.append_to(parent, Record("spawned", {"at": None, "call": None, "child": session}))

    def do_child(self, parent: str, session: str, keep: bool) -> None:
        self._sessions[session] = self._sessions[parent].child(session)
        self._remember(session)
        if not keep:
            self.do_close(session)

    def do_fork(self, session: str, to: str, at: str | None, path: list[str], keep: bool) -> None:
        self._sessions[to] = self._sessions[session].fork(to, at=at, path=path)
        self._seen[to] = ""
        if not keep:
            self.do_close(to)

    def do_close(self, session: str) -> None:
        self._sessions.pop(session).close()

    def do_end(self, session: str) -> None:
        self._sessions.pop(session).end()

    def do_quit(self) -> None:
        """An orderly end: children first, as their parents' sessions were opened first."""
        for session in reversed(list(self._sessions)):
            self.do_close(session)
        self.runtime.close()

    def drop(self) -> None:
        """The nearest thing to a crash that one process can do to itself: the ledger goes, nothing is settled."""
        self.runtime.ledger.close()
        self._sessions.clear()
        for job in self._jobs.values():
            with suppress(CapstateError):  # nothing can be written any more, as after a crash
                job.close()

    # ---- wishes and grants

    def do_load(self, session: str, on: list[str], at: str | None = None, by: Any = "model") -> None:
        self._sessions[session].load(on, at=at, by=by)

    def do_unload(self, session: str, on: list[str], at: str | None = None) -> None:
        self._sessions[session].unload(on, at=at, by="model")

    def do_note(self, session: str, body: Mapping[str, Any]) -> None:
        self._sessions[session].note(body)

    def do_grant(self, session: str, on: str, *, effect: Any, lifetime: Any, pin: bool, id: str) -> str:  # noqa: A002
        made = self._sessions[session].grant(on, by="ann", effect=effect, lifetime=lifetime, pin=pin, id=id)
        return made.id

    def do_revoke(self, session: str, id: str) -> None:  # noqa: A002
        self._sessions[session].revoke(id, by="ann")

    def do_post_revoke(self, chain: str, id: str) -> None:  # noqa: A002
        self.runtime.revoke(chain, id, by="ann")

    def do_job(self, session: str, name: str, on: list[str]) -> None:
        stack = self._jobs.setdefault(f"{session} {name}", ExitStack())
        stack.enter_context(self._sessions[session].job(name, grants=on))

    def do_end_job(self, session: str, name: str) -> None:
        self._jobs.pop(f"{session} {name}").close()

    # ---- calls

    def do_start(self, session: str, calls: list[dict[str, Any]], event: Any, together: bool) -> list[dict[str, Any]]:
        if not together:
            return [self._start(session, call, event) for call in calls]
        with ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(lambda call: self._start(session, call, event), calls))

    def _start(self, session: str, body: dict[str, Any], event: Any) -> dict[str, Any]:
        call = forms.call_of(body)
        gate = self._sessions[session].guard(call, cost=body.get("cost", 0))
        rows = {row.definition.qualified: row for row in self._sessions[session].surface.rows()}
        try:
            permit = gate.__enter__()
        except Refused as no:
            return {
                "refused": no.reason.value,
                "outcome": no.outcome,
                "text": f"{no} {no.result.text}",
                "result": forms.message_to_json(no.result),
            }
        except NeedsApproval as wait:
            return {"refused": "needs_approval", "text": str(wait)}
        self._gates[f"{session} {call.id} {call.occurrence}"] = gate, permit
        tool = permit.definition.qualified
        row = rows.get(tool)
        told = {"session": session, "call": call.id, "occurrence": call.occurrence, "event": event}
        self._run({**told, "tool": tool, "args": dict(call.arguments), "operation": permit.operation,
                   "asked": row is not None and row.effect == "ask"})  # fmt: skip
        if permit.inner is not None and not permit.definition.tool.loads:
            self._run({**told, "tool": permit.inner.qualified, "via": tool, "operation": permit.operation})
        return {"operation": permit.operation, "tool": tool}

    def _run(self, told: dict[str, Any]) -> None:
        """The body of every tool: it leaves a line outside of the product."""
        with (self._folder / "spies.jsonl").open("a", encoding="utf-8") as spies:
            spies.write(json.dumps(told) + "\n")

    def do_settle(self, session: str, call: str, occurrence: int, outcome: Any, evidence: str | None) -> Any:
        """End a call: ``outcome`` None leaves it as a body would that cannot tell."""
        key = f"{session} {call} {occurrence}"
        if key not in self._gates:
            return {"missing": True}
        gate, permit = self._gates[key]
        if outcome is None:
            gate.__exit__(None, None, None)
        elif outcome == "cancelled":
            permit.not_sent()
        else:
            permit.settle(outcome=outcome, evidence=evidence)
        return {"outcome": str(permit.outcome)}

    def do_prepare(self, session: str, body: dict[str, Any]) -> str:
        return self._sessions[session].prepare(forms.call_of(body))

    def do_observe(self, session: str, call: str, occurrence: int, evidence: str | None) -> None:
        self._gates[f"{session} {call} {occurrence}"][1].observe(evidence=evidence)

    def do_recover(self, session: str) -> list[dict[str, Any]]:
        steps = self._sessions[session].recover(by="recovery")
        return [{"call": step.operation.call, "action": str(step.action)} for step in steps]

    def do_child_result(self, parent: str, child: str, told: dict[str, Any], known: list[str]) -> str:
        made = [Claim(c["id"], c["claim"], c["evidence"]) for c in told.get("claims", ())]
        result = Result(child, told["status"], claims=made, trace_ref=told.get("trace_ref"))
        return str(self._sessions[parent].child_result(child, result, resolves=set(known).__contains__).status)

    def do_approve(self, session: str, call: dict[str, Any], decision: str) -> None:
        one = self._sessions[session]
        (one.reject if decision == "reject" else one.approve)(forms.call_of(call), by="ann")

    def do_reconcile(self, session: str, operation: str, outcome: Any, evidence: str | None) -> None:
        self._sessions[session].reconcile(operation, outcome=outcome, by="ann", evidence=evidence)

    # ---- looking

    def do_look(
        self, session: str, cause: Any, provider: dict[str, Any], history: list[dict[str, Any]], path: list[str]
    ) -> dict[str, Any]:
        """Reproject, and return the request with everything that checks compare it with."""
        one = self._sessions[session]
        profile = forms.profile_of(provider)
        messages = [forms.message_of(m) for m in history]
        epoch = one.reproject(cause, provider=profile, history=messages, path=path)
        exceeded = None
        try:
            one.check(epoch.request)
        except CapstateError as error:
            exceeded = str(error)
        receipts = []
        if epoch.receipt.digest != self._seen.get(session):
            self._seen[session] = epoch.receipt.digest
            receipts = [{**epoch.receipt.body, "tools": [list(c) for c in epoch.receipt.changes]}]
        surface = one.surface
        return {
            "request": epoch.request,
            "wires": {q: row.wire for q, row in surface.callable.items()},
            "withheld": {q: str(row.reason) for q, row in surface.withheld.items()},
            "fingerprint": epoch.projection.fingerprint,
            "exceeded": exceeded,
            "receipts": receipts,
            "explained": sorted(q for q in (*surface.callable, *surface.withheld) if one.explain(q)["callable"]),
        }

    def do_state(self, chain: str) -> dict[str, Any] | None:
        """What a chain says; for this no session is needed."""
        state = self.runtime.state(chain)
        if state is None:
            return None
        root = state.opening.root if state.opening is not None else chain
        pool = self.runtime.ledger.pool(root)
        above = self.runtime.state(root)
        limits = above.limits if above is not None else None
        given = {
            f"grant {g.id}": sorted(map(list, g.pin)) for g in state.grants.values() if isinstance(g.pin, frozenset)
        }
        return {
            "operations": {
                op.id: {"call": op.call, "occurrence": op.occurrence, "state": op.state, "outcome": op.outcome,
                        "settled": op.settled, "evidence": op.evidence, "owner": op.session, "tool": op.tool}
                for op in state.operations.values()
            },
            "pins": {f"{s} {i}": sorted(map(list, pin)) for (s, i), pin in state.pins.items()} | given,
            "ended": state.ended,
            "results": {child: record.to_json() for child, record in state.results.items()},
            "limits": limits.to_json() if limits is not None else None,
            "pool": json.loads(pool.value) if pool is not None else None,
            "receipt": state.receipt[1]["kinds"] if state.receipt is not None else [],
        }  # fmt: skip

    def do_chain(self, chain: str) -> dict[str, Any]:
        """The entries as stored, and what an audit says of them."""
        found = load(self.runtime.ledger, chain)
        return {
            "entries": [[e.sequence, e.digest, e.kind, e.token, e.body if e.kind == "note" else None]
                        for e in found.entries],
            "damage": [[str(d.kind), d.first, d.last] for d in found.damage],
            "outcome": str(verify(self.runtime.ledger, chain).outcome),
        }  # fmt: skip


def failure(error: Exception) -> dict[str, Any]:
    """Return what the other side must know of an error."""
    return {"error": type(error).__name__, "text": str(error), "ours": isinstance(error, CapstateError)}


def main(ledger: str, folder: str, mode: str = "") -> None:
    """Serve commands until the input ends."""
    opened: str | Ledger = ledger
    if mode == "read":
        from capstate.ledgers.sqlite import SQLiteLedger

        opened = SQLiteLedger(ledger, read_only=True)
    worker = Worker(opened, Path(folder))
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"ok": worker.do(command["do"], command["with"])}
        except Exception as error:  # noqa: BLE001 - the other side judges it
            answer = failure(error)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        if command["do"] == "quit":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
