"""Words about calls: proposed, approved, started, ended, interrupted, asked after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.scenarios.hosts import HostError
from tests.scenarios.stage import Refusal, UnsupportedError
from tests.scenarios.talking import Talking
from tests.scenarios.transcript import message

_TOLD = {"done": "ok", "not_done": "cancelled", "not_sent": "cancelled", "stopped": "cancelled", "failed": "error"}


class Calling(Talking):
    """Calls go through the guard; each gets one result."""

    def op_model_calls(self, event: dict[str, Any]) -> None:
        """The model proposes calls; perhaps they are run."""
        session, made = event["session"], []
        self.host_of(session)
        wires = self._wires(session)
        for call in event["calls"]:
            qualified = call.get("wire_name_of", call.get("tool"))
            issued = self._issued(session, qualified) if "wire_name_of" in call else qualified
            wire = call.get("wire_name") or wires.get(qualified, issued)
            made.append({**call, "tool": wire, "args": call.get("args", {})})
        self.transcript(session).add(message(f"a{event['n']}-{session}", "assistant", calls=made))
        if event.get("run") == "none":
            return
        ids = [call["id"] for call in made]
        if event.get("parallel"):
            for id_ in self._start(session, ids, None, together=True):
                self._settle(session, id_, "ok")
            return
        for id_ in ids:
            for started in self._start(session, [id_], None):
                self._settle(session, started, "ok")

    def _start(
        self,
        session: str,
        ids: list[str],
        operation: str | None,
        args: Mapping[str, Any] | None = None,
        *,
        together: bool = False,
    ) -> list[str]:
        """Put calls through the guard; return those that started. A refused one gets its result."""
        transcript = self.transcript(session)
        found = [self._call(session, id_) for id_ in ids]
        bodies = [{**c, "args": args.get(c["id"], c["args"])} if args is not None else c for c in found]
        told = self.host_of(session).call("start", session=session, calls=bodies, event=self.n, together=together)
        started = []
        for call, answer in zip(found, told, strict=True):
            if "refused" not in answer:
                started.append(call["id"])
                self.begun[session, call["id"], call["occurrence"]] = answer["operation"]
                if operation is not None:
                    self.operations[operation] = session, call, answer["operation"]
                continue
            self.refusals.setdefault(call["id"], []).append({**answer, "event": self.n, "session": session})
            if "result" in answer:
                transcript.add({**answer["result"], "id": f"r-{call['id']}-{len(transcript.entries)}"})
        return started

    def _call(self, session: str, id_: str) -> dict[str, Any]:
        call = self.transcript(session).call(id_)
        if call is None:
            raise UnsupportedError(f"a call {id_} that nobody proposed")
        return call

    def _settle(
        self,
        session: str,
        id_: str,
        outcome: str | None,
        *,
        evidence: str | None = None,
        at: str | None = None,
        detail: str | None = None,
    ) -> None:
        call = self._call(session, id_)
        told = self.host_of(session).call(
            "settle", session=session, call=id_, occurrence=call["occurrence"],
            outcome="outcome_unknown" if outcome is None else outcome, evidence=evidence,
        )  # fmt: skip
        if told.get("missing"):
            self._late(session, call, outcome or "outcome_unknown", evidence)
            return
        self._answer(session, id_, told["outcome"], evidence=evidence, at=at, detail=detail)

    def op_begin(self, event: dict[str, Any]) -> None:
        """Proposed calls are started."""
        args = event.get("args_now")
        if args is not None and not (set(args) <= set(event["calls"])):
            args = dict.fromkeys(event["calls"], args)
        self._start(event["session"], event["calls"], event.get("operation"), args)

    def op_finish(self, event: dict[str, Any]) -> None:
        """A started call ends."""
        session = event["session"]
        if self.transcript(session).results(event["call"]) and event["call"] not in self._waiting(session):
            raise Refusal("duplicate_result")
        self._settle(
            session,
            event["call"],
            event["outcome"],
            evidence=event.get("evidence"),
            at=event.get("message"),
            detail=event.get("detail"),
        )

    def _waiting(self, session: str) -> list[str]:
        return [c["id"] for c in self.transcript(session).open_calls()]

    def op_approve(self, event: dict[str, Any]) -> None:
        """A person decides on one call. A rejected call has its result at once."""
        session = event["session"]
        own = self.transcript(session).call(event["call"])
        told = [call for t in self.transcripts.values() if (call := t.call(event["call"])) is not None]
        if own is None and not told:
            raise UnsupportedError(f"a call {event['call']} that nobody proposed")
        call = own if own is not None else told[0]  # a decision that was sent to another session
        try:
            self.host_of(session).call("approve", session=session, call=call, decision=event["decision"])
        except HostError as error:
            if error.name != "InvalidInputError":
                raise
            raise Refusal("not_approvable") from error
        if event["decision"] == "reject" and own is not None:
            self._start(session, [event["call"]], None)

    def op_interrupt(self, event: dict[str, Any]) -> None:
        """A person stops the turn: what runs ends as its executor says, what had not begun never will."""
        session = event["session"]
        says = event.get("executor_says", {})
        for call in self.transcript(session).open_calls():
            if (session, call["id"], call["occurrence"]) in self.begun:
                told = says.get(call["id"])
                self._settle(session, call["id"], _TOLD.get(told, told))
            else:
                self._answer(session, call["id"], "not_run", detail="interrupted before it started")

    def op_late_result(self, event: dict[str, Any]) -> None:
        """The true result of a call comes after recovery closed it."""
        session = event["session"]
        if event["call"] in self._waiting(session):  # nobody closed it: this is simply its result
            self._settle(session, event["call"], event["outcome"], evidence=event.get("evidence"))
            return
        self._late(session, self._call(session, event["call"]), event["outcome"], event.get("evidence"))

    def _late(self, session: str, call: Mapping[str, Any], outcome: str, evidence: str | None) -> None:
        chain = self._call_any("do_state", chain=session) or {"operations": {}}
        known = [
            (id_, op)
            for id_, op in chain["operations"].items()
            if (op["call"], op["occurrence"]) == (call["id"], call["occurrence"])
        ]
        if not known or known[-1][1]["settled"]:
            raise Refusal("duplicate_result")
        self.host_of(session).call(
            "reconcile", session=session, operation=known[-1][0], outcome=outcome, evidence=evidence
        )

    def op_reconcile(self, event: dict[str, Any]) -> None:
        """The tool's side was asked what became of an operation."""
        session, _, operation = self.operations[event["operation"]]
        if event["tool_side"] == "unknown":
            return
        self.host_of(session).call(
            "reconcile", session=session, operation=operation, outcome=_TOLD[event["tool_side"]],
            evidence=event.get("evidence"),
        )  # fmt: skip

    def op_continue(self, event: dict[str, Any]) -> None:
        """The runtime goes on by itself: it decides about what a crash left, and runs again what it may."""
        session = event["session"]
        for step in self.host_of(session).call("recover", session=session):
            if step["action"] not in ("start", "retry"):
                continue
            for started in self._start(session, [step["call"]], None):
                call = self._call(session, started)
                told = self.host_of(session).call(
                    "settle", session=session, call=started, occurrence=call["occurrence"], outcome="ok", evidence=None
                )
                if started in self._waiting(session):
                    self._answer(session, started, told["outcome"])

    def op_transport_lost(self, event: dict[str, Any]) -> None:
        """A connection ends with calls in flight: sent, no reply."""
        for session in tuple(self.where):
            for call in self.transcript(session).open_calls():
                if call["id"] in event.get("in_flight", ()):
                    if (session, call["id"], call["occurrence"]) not in self.begun:
                        self._start(session, [call["id"]], None)
                    self._settle(session, call["id"], None)
        self.op_resource({"id": event["resource"], "state": event.get("state", "down")})
