"""One case, told: every word of ``when`` is one method, mapped to the calls that a host makes.

The story is the script and keeps what belongs to the host: transcripts, configuration, the catalog's file. The
sessions live in workers (:mod:`tests.scenarios.worker`): all of them in one process, or each in its own. What was
seen after each event is a :class:`~tests.scenarios.states.State`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.scenarios import rules
from tests.scenarios.hosts import HostError
from tests.scenarios.leaving import Leaving
from tests.scenarios.stage import Refusal, UnsupportedError
from tests.scenarios.states import Look, State

_CLASSES = {
    "SessionLockedError": "session_locked",
    "StaleWriterError": "stale_writer",
    "SessionClosedError": "session_ended",
    "LedgerUnavailableError": "ledger_unavailable",
    "CatalogUnavailableError": "catalog_unavailable",
    "MalformedError": "journal_corrupt",
}


_PROCESS_WORDS = {"open_writer", "open_reader"}


_TWINS = {"order_dependent_names", "volatile_in_definition"}


class Story(Leaving):
    """The run of one case."""

    def run(self) -> None:
        """Set the world up and tell every event."""
        try:
            self._set_up()
            self._record({"n": 0, "op": "start"}, None)
            for event in self.case["when"]:
                self.n = event["n"]
                tell = getattr(self, f"op_{event['op']}", None)
                if tell is None:
                    raise UnsupportedError(f"op {event['op']}")
                self._record(event, self._attempt(tell, event))
            if _TWINS & {never["predicate"] for never in self.case["then"].get("never", ())}:
                self._meet_twins()
        finally:
            self.stop()

    def _attempt(self, tell: Callable[[dict[str, Any]], None], event: dict[str, Any]) -> str | None:
        try:
            tell(event)
        except Refusal as refusal:
            return refusal.error
        except HostError as error:
            if error.name not in _CLASSES:
                raise
            return _CLASSES[error.name]
        return None

    def _record(self, event: dict[str, Any], error: str | None) -> None:
        looks = dict(self.states[-1].looks) if self.states else {}
        receipts: dict[str, list[dict[str, Any]]] = {}
        fresh: set[str] = set()
        for session in [s for s in self.known if s in self.where]:
            if self.hosts[self.where[session]].frozen:
                continue
            answer = self.look(session, self.causes.get(session, "turn"))
            looks[session] = Look.of(answer, self.provider(session), self.world)
            receipts[session] = answer["receipts"]
            fresh.add(session)
        self.causes.clear()
        if event["op"] == "resume_child" and error is None:
            reasons = set(looks[event["child"]].withheld.values())
            error = "policy_missing" if reasons == {"policy_missing"} else None
        if "label" in event:
            self.labels[event["label"]] = event["n"], looks[event["session"]]
        state = State(
            event["n"], event, looks, fresh, receipts, error, self._chains(),
            {s: list(t.sent) for s, t in self.transcripts.items()},
            {s: list(t.entries) for s, t in self.transcripts.items()},
            self._spies(),
        )  # fmt: skip
        if self.journal.used:
            state.journal = self.journal.look(self._call_any("do_chain", chain=self.journal.chain), state)
        state.allowed = {s: rules.allowed(self, s) for s in self.known}
        self.states.append(state)

    def _meet_twins(self) -> None:
        """Build the same request in another session and process, where everything arrived the other way round."""
        world = self.world
        self.world = {**world, "groups": [{**g, "tools": g["tools"][::-1]} for g in world["groups"][::-1]]}
        self._write_world()
        for session in [s for s in self.known if s in self.where and s not in self.parents and s not in self.origins]:
            host, twin = self.host("twin"), f"{session} twin"
            host.call("open", session=twin, holder=session)
            mine = [load for load in self.loads if load[0] == session]
            first = [load for load in mine if load[3] is None and load[1] == "load"]
            for _, do, on, at in [*first[::-1], *(load for load in mine if load not in first)]:
                more = {"by": "model"} if do == "load" else {}
                host.call(do, session=twin, on=on, at=at, **more)
            transcript, provider = self.transcript(session), self.provider(session)
            answer = host.call(
                "look", session=twin, cause="open", provider=provider, history=transcript.sent, path=transcript.path
            )
            self.twins.append((session, self.states[-1].looks[session], Look.of(answer, provider, self.world)))

    def _set_up(self) -> None:
        given = self.given
        resources = {r["id"]: r.get("state", "up") for r in given.get("resources", ())}
        self.world = {"groups": list(given.get("groups", ())), "resources": resources}
        self._write_world()
        self._write_config()
        (self.folder / "spies.jsonl").touch()
        if given.get("journal"):
            self.journal.build(self, given["journal"])
        self._open_sessions()
        self._add_grants(given.get("grants", ()))
        for receipt in given.get("receipts", ()):
            session = receipt.get("session", "main")
            self.host_of(session).call("note", session=session, body={"old receipt": receipt})
        self._transcripts()
        for operation in given.get("ledger", ()):
            self._old_operation(operation)
        for session in self.where:
            self.causes[session] = "child" if session in self.parents else "open"
        if _PROCESS_WORDS & {event["op"] for event in self.case["when"]}:
            self._leave_to_processes()

    def _open_sessions(self) -> None:
        given = self.given
        children = {child["id"]: child for child in given.get("children", ())}
        named = dict.fromkeys([*given.get("transcript", {}), *given.get("loaded", {})])
        for session in [s for s in named if s not in children] or ["main"]:
            if not self.journal.used or session != self.journal.chain:
                self.open(session)
        for child in children.values():
            self._old_child(child)
        for session, groups in given.get("loaded", {}).items():
            for group in groups:
                self._load(session, [group], None, "configuration")

    def _leave_to_processes(self) -> None:
        for session in tuple(self.where):
            self.look(session, self.causes.pop(session, "open"))
        for host in self.hosts.values():
            host.quit()
        self.hosts.clear()
        self.where.clear()

    def _old_child(self, child: Mapping[str, Any]) -> None:
        parent, id_, policy = child["parent"], child["id"], child.get("policy")
        policy = policy.get("want") if isinstance(policy, dict) else policy
        self.parents[id_], self.wants[id_] = parent, policy
        host = self.host_of(parent)
        if policy is None:
            host.call("started_before", parent=parent, session=id_)
            host.call("child", parent=parent, session=id_, keep=False)
        else:
            host.call("spawn", parent=parent, session=id_, want=policy, call=None, keep=False)

    def _transcripts(self) -> None:
        evidence = {e["id"]: e.get("text", "") for e in self.given.get("evidence", ())}
        for session, entries in self.given.get("transcript", {}).items():
            transcript = self.transcript(session)
            texts = {entry["id"]: entry for entry in entries}
            for entry in entries:
                transcript.add(self._entry(session, entry, texts, evidence))

    def _old_operation(self, operation: Mapping[str, Any]) -> None:
        session = operation.get("session", "main")
        call, evidence = self._call(session, operation["call"]), (operation.get("evidence") or [None])[0]
        if operation["state"] == "prepared":
            known = self.host_of(session).call("prepare", session=session, body=call)
            self.operations[operation["operation"]] = session, call, known
            return
        self._start(session, [operation["call"]], operation["operation"])
        if operation["state"] == "observed":
            self.host_of(session).call(
                "observe", session=session, call=call["id"], occurrence=call["occurrence"], evidence=evidence
            )
        elif operation["state"] == "committed":
            self._settle(session, operation["call"], operation.get("outcome", "ok"), evidence=evidence)
