"""One case, told: every word of ``when`` is one method, mapped to the calls that a host makes.

The story is the script and keeps what belongs to the host: transcripts, configuration, the catalog's file. The
sessions live in workers (:mod:`tests.scenarios.worker`): all of them in one process, or each in its own. What was
seen after each event is a :class:`~tests.scenarios.states.State`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from capstate.ledgers.memory import MemoryLedger
from tests.scenarios import damage, forms, rules
from tests.scenarios.hosts import Host, HostError, LocalHost, ProcessHost
from tests.scenarios.states import Look, State
from tests.scenarios.transcript import Transcript, message

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
_TOLD = {"done": "ok", "not_done": "cancelled", "not_sent": "cancelled", "stopped": "cancelled", "failed": "error"}


class UnsupportedError(Exception):
    """A word that this runner, or the product so far, does not know."""


class Refusal(Exception):  # noqa: N818 - an ordinary answer
    """An event ended in an error class of the cases."""

    def __init__(self, error: str) -> None:
        self.error = error
        super().__init__(error)


class Story:
    """The run of one case."""

    def __init__(self, case: Mapping[str, Any], folder: Path, *, ledger: str, processes: bool) -> None:
        self.case, self.given, self.folder = case, case["given"], folder
        self.processes = processes
        self.memory = MemoryLedger() if ledger == "memory" else None
        self.database = folder / "ledger.db"
        self.hosts: dict[str, Host] = {}
        self.where: dict[str, str] = {}
        """The host of each open session."""
        self.known: list[str] = []
        """Every session that was ever opened, in order."""
        self.parents: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self.wants: dict[str, list[str] | None] = {}
        self.ended: set[str] = set()
        self.providers: dict[str, dict[str, Any]] = {}
        self.transcripts: dict[str, Transcript] = {}
        self.world: dict[str, Any] = {"groups": [], "resources": {}}
        self.pool: list[dict[str, Any]] = []
        """Live grants of the case, each with where it is."""
        self.copies = {e["to"] for e in case["when"] if e["op"] == "fork"}
        self.coming = self.copies | {e["child"] for e in case["when"] if e["op"] == "spawn"}
        self.waiting: list[dict[str, Any]] = []
        """Grants to sessions that do not exist yet."""
        self.operations: dict[str, tuple[str, dict[str, Any], str | None]] = {}
        """By the case's id: session, call, and the product's id."""
        self.begun: dict[tuple[str, str, int], str | None] = {}
        self.refusals: dict[str, list[dict[str, Any]]] = {}
        self.loads: list[tuple[str, str, list[str], str | None]] = []
        self.labels: dict[str, tuple[int, Look]] = {}
        self.stopped: list[str] = []
        self.twins: list[tuple[str, Look, Look]] = []
        """Session, its last request, and that of a session like it in another process."""
        self.causes: dict[str, str] = {}
        self.journal = damage.Journal()
        self.states: list[State] = []
        self.n: int = 0

    # ---- running

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

    def stop(self) -> None:
        """End every process."""
        for host in self.hosts.values():
            if host.alive:
                host.kill()

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

    def look(self, session: str, cause: str, **more: Any) -> dict[str, Any]:
        """Build the session's next request."""
        transcript = self.transcript(session)
        provider = self.provider(session)
        answer: dict[str, Any] = self.host_of(session).call(
            "look", session=session, cause=cause, provider=provider, history=transcript.sent, path=transcript.path,
            **more,
        )  # fmt: skip
        return answer

    def _chains(self) -> dict[str, dict[str, Any]]:
        chains = {s: self._call_any("do_state", chain=s) for s in self.known}
        return {s: told for s, told in chains.items() if told is not None}

    def _call_any(self, command: str, **arguments: Any) -> Any:
        """Ask any process that answers; a new one, if none does."""
        name = next((n for n, h in self.hosts.items() if h.alive and not h.frozen), "onlooker")
        return self.host(name).call(command.removeprefix("do_"), **arguments)

    def _spies(self) -> list[dict[str, Any]]:
        path = self.folder / "spies.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    # ---- hosts

    def host(self, name: str, *, read_only: bool = False) -> Host:
        """Return the host of that name, started if it does not run."""
        known = self.hosts.get(name)
        if known is not None and known.alive:
            return known
        if self.memory is not None:
            made: Host = LocalHost(self.memory, self.folder)
        else:
            made = ProcessHost(self.database, self.folder, read_only=read_only)
        self.hosts[name] = made
        return made

    def host_of(self, session: str) -> Host:
        """Return the host in which a session is open; it is opened again where it was open before."""
        if session not in self.where:
            self._reopen(session)
        return self.hosts[self.where[session]]

    def home(self, session: str) -> str:
        """Return the name of the host in which a session lives."""
        return session if self.processes else "main process"

    def open(self, session: str, name: str = "", *, limits: bool = True) -> None:
        """Open a session as its writer."""
        name = name or self.home(session)
        given = self._limits(session) if limits else None
        self.host(name).call("open", session=session, limits=given)
        self._opened(session, name)

    def _opened(self, session: str, name: str) -> None:
        self.where[session] = name
        if session not in self.known:
            self.known.append(session)

    def _limits(self, session: str) -> dict[str, Any] | None:
        given = self.given.get("limits")
        if given is None or given.get("root", "main") != session:
            return None
        names = {"calls": "max_calls", "cost": "max_cost", "concurrency": "max_concurrency"}
        return {name: given[word] for name, word in names.items() if word in given}

    def _reopen(self, session: str) -> None:
        if session in self.ended:
            raise Refusal("session_ended")
        parent = self.parents.get(session)
        if parent is not None and not self.processes:
            self.host_of(parent).call("child", parent=parent, session=session, keep=True)
            self._opened(session, self.where[parent])
        else:
            self.open(session)
        self._close_begun(session)

    def transcript(self, session: str) -> Transcript:
        """Return the session's transcript, read from its file."""
        if session not in self.transcripts:
            self.transcripts[session] = Transcript(self._file(session))
        return self.transcripts[session]

    def _file(self, session: str) -> Path:
        return self.folder / f"transcript-{quote(session, safe='')}.json"

    def provider(self, session: str) -> dict[str, Any]:
        """Return the provider that the session's next request goes to."""
        given: dict[str, Any] = self.given["provider"]
        return self.providers.get(session, given)

    # ---- the world before the first event

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

    def _entry(
        self,
        session: str,
        entry: Mapping[str, Any],
        others: Mapping[str, Mapping[str, Any]],
        evidence: Mapping[str, str],
    ) -> dict[str, Any]:
        body = dict(entry)
        if entry["role"] == "tool":
            body.setdefault("text", evidence.get(entry.get("evidence", ""), ""))
        elif entry["role"] == "opaque":
            maker = self._maker(session, entry["issuer"])
            api = maker.issuer.api
            found = {d.qualified: maker.names.name(d) or d.qualified
                     for g in forms.catalog_of(self.world) for d in g.definitions.values()}  # fmt: skip
            body["issuer"] = forms.issuer_id(entry["issuer"], api)
            body["api"], body["native"] = api, forms.native_item(entry, api, found)
            body["refers"] = [found.get(q, q) for q in entry.get("refers", ())]
            body["covered"] = [
                {k: v for k, v in others[i].items() if k != "superseded_by"}
                for i in entry.get("covers", ())
                if i in others and others[i]["role"] != "opaque"
            ]
        return body

    def _maker(self, session: str, issuer: str) -> Any:
        """Return the profile of the provider that made an item: one of the case's, by its issuer."""
        providers = [self.provider(session), *(e["to"] for e in self.case["when"] if e["op"] == "switch_provider")]
        made = next((p for p in providers if p["issuer"] == issuer), {**self.provider(session), "issuer": issuer})
        return forms.profile_of(made)

    def _old_operation(self, operation: Mapping[str, Any]) -> None:
        session = operation.get("session", "main")
        if operation["state"] in ("prepared", "observed"):
            raise UnsupportedError(f"given.ledger state {operation['state']}")
        self._start(session, [operation["call"]], operation["operation"])
        if operation["state"] == "committed":
            evidence = (operation.get("evidence") or [None])[0]
            self._settle(session, operation["call"], operation.get("outcome", "ok"), evidence=evidence)

    def _write_world(self) -> None:
        forms.write(self.folder / "world.json", self.world)

    def _write_config(self) -> None:
        forms.write(self.folder / "config.json", [g for g in self.pool if g["place"] == "config"])

    # ---- grants

    def _place(self, grant: Mapping[str, Any]) -> str:
        """Return where a grant belongs: in the file only what is there for good."""
        lasting = grant.get("lifetime", "persistent") == "persistent" and grant["holder"] not in self.copies
        return "config" if lasting and grant.get("scope", "config") == "config" else "ledger"

    def _add_grants(self, grants: Iterable[Mapping[str, Any]]) -> None:
        for grant in grants:
            body = {"lifetime": "persistent", **grant, "case": dict(grant), "place": self._place(grant)}
            if body["place"] == "ledger" and grant["holder"] in self.coming - {*self.known}:
                self.waiting.append(body)  # a child or fork that does not exist yet
                continue
            if body["place"] == "ledger":
                body["ledger id"] = self._give(body)
            self.pool.append(body)
        self._write_config()

    def _give(self, grant: Mapping[str, Any]) -> str:
        holder, lifetime = grant["holder"], grant["lifetime"]
        if lifetime.startswith("until:"):
            if grant["effect"] != "allow":
                raise UnsupportedError("a job's grant that denies or asks")
            self._with(holder, "job", name=lifetime[6:], on=[grant["on"]])
            return ""
        told: str = self._with(
            holder, "grant", on=grant["on"], effect=grant["effect"], pin=bool(grant.get("pin")),
            lifetime="session" if holder in self.copies else lifetime, id=grant.get("id", ""),
        )  # fmt: skip
        return told

    def _with(self, session: str, command: str, **arguments: Any) -> Any:
        """Do something in a session, opened for that alone if it is not open and never was."""
        if session in self.where or session in self.known:
            return self.host_of(session).call(command, session=session, **arguments)
        host = self.host("giver")
        host.call("open", session=session)
        try:
            return host.call(command, session=session, **arguments)
        finally:
            host.quit()

    def _take_grants(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            for grant in [g for g in self.pool if g.get("id") == id_]:
                self._take(grant)

    def _take(self, grant: dict[str, Any]) -> None:
        self.pool.remove(grant)
        if grant["place"] == "config":
            self._write_config()
        elif grant["lifetime"].startswith("until:"):
            self._end_job(grant["lifetime"][6:])
        elif self.processes or grant["holder"] not in self.where:
            # Somebody else takes it back, while the session's own process goes on.
            self.host("revoker").call("post_revoke", chain=grant["holder"], id=grant["ledger id"])
        else:
            self._with(grant["holder"], "revoke", id=grant["ledger id"])

    def op_set_grants(self, event: dict[str, Any]) -> None:
        """Grants come and go."""
        self._take_grants(event.get("remove", ()))
        self._add_grants(event.get("add", ()))

    def op_begin_temporary(self, event: dict[str, Any]) -> None:
        """A job begins, with grants that end with it."""
        self._add_grants([{"lifetime": f"until:{event['id']}", "scope": "temporary", **g} for g in event["grants"]])

    def op_end_temporary(self, event: dict[str, Any]) -> None:
        """A job ends."""
        self._end_job(event["id"])

    def _end_job(self, name: str) -> None:
        mine = [g for g in self.pool if g["lifetime"] == f"until:{name}"]
        self.pool = [g for g in self.pool if g not in mine]
        for holder in dict.fromkeys(g["holder"] for g in mine):
            if holder in self.where:
                self.host_of(holder).call("end_job", session=holder, name=name)

    def _replace_grants(self, grants: list[dict[str, Any]], place: str) -> None:
        """What is found at a restart is all there is: equal grants stay what they are, pins included."""
        stays = [g["case"] for g in self.pool if g["case"] in grants]
        for grant in [g for g in self.pool if g["place"] == place and g["case"] not in grants]:
            self._take(grant)
        self._add_grants([g for g in grants if g not in stays and self._place(g) == place])

    # ---- loads and the transcript

    def _load(self, session: str, groups: list[str], at: str | None, by: str) -> None:
        self.host_of(session).call("load", session=session, on=groups, at=at, by=by)
        self.loads.append((session, "load", groups, at))

    def op_load(self, event: dict[str, Any]) -> None:
        """The model's loader found a group; its result is the load point."""
        session, point = event["session"], event.get("load_point")
        transcript = self.transcript(session)
        if point is not None and point not in transcript.path:
            call = {"id": f"load-{point}", "tool": self._loader(session), "args": {}}
            transcript.add(message(f"a-{point}", "assistant", calls=[call]))
            transcript.add(message(point, "tool", result_for=call["id"], outcome="ok", text="loaded"))
        self._load(session, event["groups"], point, "model" if point is not None else "user")

    def _loader(self, session: str) -> str:
        loaders = [
            d.qualified
            for g in forms.catalog_of(self.world)
            for d in g.definitions.values()
            if d.tool.loads and d.qualified in self._wires(session)
        ]
        return self._wires(session)[loaders[0]] if loaders else "loader"

    def _wires(self, session: str) -> dict[str, str]:
        look = self.states[-1].looks.get(session) if self.states else None
        return look.wires if look is not None else {}

    def op_unload(self, event: dict[str, Any]) -> None:
        """The wish is taken back, as of now."""
        session = event["session"]
        path = self.transcript(session).path
        self.host_of(session).call("unload", session=session, on=event["groups"], at=path[-1] if path else None)
        self.loads.append((session, "unload", event["groups"], path[-1] if path else None))

    def op_say(self, event: dict[str, Any]) -> None:
        """Messages are added."""
        for entry in event["messages"]:
            others = {e["id"]: e for e in self.transcript(event["session"]).entries}
            self.transcript(event["session"]).add(self._entry(event["session"], entry, others, {}))

    def op_compact(self, event: dict[str, Any]) -> None:
        """The history is cut at a border of units, and a summary put before what is kept."""
        session = event["session"]
        self.host_of(session)
        if event.get("result", "ok") != "ok":
            return
        native = event.get("kind") == "native"
        summary = message(f"s{event['n']}", "summary", text=event.get("summary_text", ""))
        if native:
            issuer = self.provider(session)["issuer"]
            item = {"id": f"s{event['n']}", "role": "opaque", "item": "compaction", "issuer": issuer}
            summary = self._entry(session, item, {}, {})
        self.transcript(session).compact(summary, keep_last=event.get("keep_last"), keep_from=event.get("keep_from"))
        self.causes[session] = "native_compaction" if native else "compaction"

    # ---- calls

    def op_model_calls(self, event: dict[str, Any]) -> None:
        """The model proposes calls; perhaps they are run."""
        session, made = event["session"], []
        self.host_of(session)
        wires = self._wires(session)
        for call in event["calls"]:
            qualified = call.get("wire_name_of", call.get("tool"))
            wire = call.get("wire_name") or wires.get(qualified, qualified)
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

    def _answer(
        self,
        session: str,
        id_: str,
        outcome: str,
        *,
        evidence: str | None = None,
        at: str | None = None,
        detail: str | None = None,
    ) -> None:
        transcript = self.transcript(session)
        transcript.add(
            message(at or f"r-{id_}-{len(transcript.entries)}", "tool", result_for=id_, outcome=outcome,
                    evidence=evidence, text=detail if detail is not None else f"result of {id_}")
        )  # fmt: skip

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
        call = self._call(session, event["call"])
        try:
            self.host_of(session).call("approve", session=session, call=call, decision=event["decision"])
        except HostError as error:
            if error.name != "InvalidInputError":
                raise
            raise Refusal("not_approvable") from error
        if event["decision"] == "reject":
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

    def op_transport_lost(self, event: dict[str, Any]) -> None:
        """A connection ends with calls in flight: sent, no reply."""
        for session in tuple(self.where):
            for call in self.transcript(session).open_calls():
                if call["id"] in event.get("in_flight", ()):
                    if (session, call["id"], call["occurrence"]) not in self.begun:
                        self._start(session, [call["id"]], None)
                    self._settle(session, call["id"], None)
        self.op_resource({"id": event["resource"], "state": event.get("state", "down")})

    # ---- what exists

    def op_resource(self, event: dict[str, Any]) -> None:
        """A server goes or comes back."""
        self.world["resources"] = {**self.world["resources"], event["id"]: event["state"]}
        self._write_world()

    def op_list_changed(self, event: dict[str, Any]) -> None:
        """A server lists other tools."""
        old = next((g for g in self.world["groups"] if g["id"] == event["group"]), None)
        made = {"resource": event.get("resource"), **(old or {}), "id": event["group"], "tools": event["tools"]}
        rest = [made if g is old else g for g in self.world["groups"]]
        self.world = {**self.world, "groups": rest if old is not None else [*rest, made]}
        self._write_world()

    def op_switch_provider(self, event: dict[str, Any]) -> None:
        """The next requests go elsewhere."""
        old, new = self.provider(event["session"]), event["to"]
        self.providers[event["session"]] = new
        same = old["issuer"].split("/")[0] == new["issuer"].split("/")[0]
        self.causes[event["session"]] = "model_switch" if same else "provider_switch"

    def op_project(self, event: dict[str, Any]) -> None:
        """The next request is built, and remembered under a label."""
        self.host_of(event["session"])

    # ---- boundaries

    def op_restart(self, event: dict[str, Any]) -> None:
        """An orderly end, and a new process."""
        self._stop(event["session"], crash=False)
        self._resume(event, "restart")

    def op_crash(self, event: dict[str, Any]) -> None:
        """The process is killed."""
        self._stop(event["session"], crash=True)

    def op_resume(self, event: dict[str, Any]) -> None:
        """A new process, after a crash."""
        self._resume(event, "reopen")

    def _stop(self, session: str, *, crash: bool) -> None:
        name = self.where.get(session, self.home(session))
        host = self.hosts.get(name)
        self.stopped = [s for s, h in self.where.items() if h == name]
        if host is not None and host.alive:
            (host.kill if crash else host.quit)()
        for gone in self.stopped:
            del self.where[gone]
            self.transcripts.pop(gone, None)
        jobs = [g for g in self.pool if g["lifetime"].startswith("until:") and g["holder"] in self.stopped]
        self.pool = [g for g in self.pool if g not in jobs]

    def _resume(self, event: dict[str, Any], cause: str) -> None:
        session, order = event["session"], event.get("loaded")
        if order is not None:
            groups = sorted(
                self.world["groups"], key=lambda g: order.index(g["id"]) if g["id"] in order else len(order)
            )
            self.world = {**self.world, "groups": groups}
            self._write_world()
        if "grants" in event:
            self._replace_grants(event["grants"], "config")
        self.transcripts.clear()
        for again in [session, *(s for s in self.stopped if s != session and s not in self.parents)]:
            if again not in self.where and again not in self.ended:
                self._reopen(again)
            self.causes[again] = cause
        if "grants" in event:
            self._replace_grants(event["grants"], "ledger")
        for group in order or ():
            self._load(session, [group], None, "configuration")

    def _close_begun(self, session: str) -> None:
        """Give calls that had begun their one result: what the ledger knows, else that nobody knows."""
        chain = self._call_any("do_state", chain=session) or {"operations": {}}
        for call in self.transcript(session).open_calls():
            if (session, call["id"], call["occurrence"]) not in self.begun:
                continue
            same = [
                op
                for op in chain["operations"].values()
                if (op["call"], op["occurrence"]) == (call["id"], call["occurrence"])
            ]
            told: dict[str, Any] = {"outcome": "outcome_unknown", "evidence": None}
            told = same[-1] if same and same[-1]["settled"] else told
            self._answer(session, call["id"], told["outcome"], evidence=told["evidence"], detail="closed by recovery")

    def op_spawn(self, event: dict[str, Any]) -> None:
        """A child starts."""
        parent, child = event["parent"], event["child"]
        self.host_of(parent).call(
            "spawn", parent=parent, session=child, want=event["want"], call=event.get("call"), keep=not self.processes
        )
        self.parents[child], self.wants[child] = parent, event["want"]
        self.providers[child] = self.provider(parent)
        self._elsewhere(child, self.where[parent])
        self.causes[child] = "child"

    def op_resume_child(self, event: dict[str, Any]) -> None:
        """A child goes on, in a new process."""
        parent, child = event["parent"], event["child"]
        if child in self.where:
            self.host_of(child).call("close", session=child)
            if self.processes:
                self.hosts[self.where[child]].quit()
            del self.where[child]
        self.parents[child] = parent
        self.host_of(parent).call("child", parent=parent, session=child, keep=not self.processes)
        self._elsewhere(child, self.where[parent])
        self._close_begun(child)
        self.causes[child] = "reopen"

    def _elsewhere(self, session: str, name: str) -> None:
        """A session was made in one host; where each has its own process, it goes on in another."""
        if self.processes:
            self.open(session, limits=False)
        else:
            self._opened(session, name)
        mine = [grant for grant in self.waiting if grant["holder"] == session]
        self.waiting = [grant for grant in self.waiting if grant not in mine]
        self._add_grants([grant["case"] for grant in mine])

    def op_fork(self, event: dict[str, Any]) -> None:
        """A session is copied up to an entry; what is open there is closed in the copy."""
        origin, to, at = str(event.get("from", event.get("session"))), event["to"], event.get("at")
        source = self.transcript(origin)
        self.host_of(origin).call("fork", session=origin, to=to, at=at, path=source.path, keep=not self.processes)
        self.origins[to] = origin
        if origin in self.parents:
            self.parents[to] = self.parents[origin]
        self.providers[to] = self.provider(origin)
        self.transcripts[to] = source.copy(self._file(to), at)
        self._elsewhere(to, self.where[origin])
        for call in self.transcripts[to].open_calls():
            begun = (origin, call["id"], call["occurrence"]) in self.begun
            self._answer(to, call["id"], "outcome_unknown" if begun else "not_run", detail="open at the fork")
        self.causes[to] = "fork"

    def op_end_session(self, event: dict[str, Any]) -> None:
        """A session ends for good."""
        session = event["session"]
        self.host_of(session).call("end", session=session)
        del self.where[session]
        self.ended.add(session)

    # ---- processes on the stored session

    def op_open_writer(self, event: dict[str, Any]) -> None:
        """A process wants to write the session."""
        self.journal.open(self, event["session"], event["process"])
        self.causes[event["session"]] = "reopen"

    def op_open_reader(self, event: dict[str, Any]) -> None:
        """A process only looks."""
        host = self.host(event["process"], read_only=True)
        if host.call("state", chain=event["session"]) is None:
            raise Refusal("journal_corrupt")
        self.journal.used, self.journal.chain = True, event["session"]

    def op_append(self, event: dict[str, Any]) -> None:
        """A process writes a record."""
        self.journal.append(self, event["process"], event["record"])

    def op_close(self, event: dict[str, Any]) -> None:
        """A process closes the session in order, and ends."""
        self.hosts[event["process"]].quit()
        self.where = {s: h for s, h in self.where.items() if h != event["process"]}

    def op_freeze(self, event: dict[str, Any]) -> None:
        """A process stops answering."""
        self.hosts[event["process"]].freeze()

    def op_kill(self, event: dict[str, Any]) -> None:
        """A process is killed."""
        self.hosts[event["process"]].kill()
        self.where = {s: h for s, h in self.where.items() if h != event["process"]}
