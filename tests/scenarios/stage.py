"""What every word of a case needs: the hosts, the open sessions, the files of the host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from capstate.ledgers.memory import MemoryLedger
from tests.scenarios import damage, forms
from tests.scenarios.hosts import Host, LocalHost, ProcessHost
from tests.scenarios.states import Look, State
from tests.scenarios.transcript import Transcript, message


class UnsupportedError(Exception):
    """A word that this runner, or the product so far, does not know."""


class Refusal(Exception):  # noqa: N818 - an ordinary answer
    """An event ended in an error class of the cases."""

    def __init__(self, error: str) -> None:
        self.error = error
        super().__init__(error)


_PLAIN = {"id": "plain", "model": "m", "issuer": "plain/m/a", "deferred_loading": False}


_LIMITS = {
    "max_calls": "calls",
    "max_cost": "cost",
    "max_concurrency": "concurrency",
    "max_concurrent": "concurrency",
    "max_parallel": "concurrency",
}


class Stage:
    """The state of one running case, and how its sessions are reached."""

    def __init__(self, case: Mapping[str, Any], folder: Path, *, ledger: str, processes: bool) -> None:
        self.case, self.given, self.folder = case, case["given"], folder
        self.processes = processes
        self.first_provider: dict[str, Any] = self.given.get("provider", _PLAIN)
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
        self.spawned_by: dict[str, str | None] = {}
        """By child, the call that started it."""
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

    def stop(self) -> None:
        """End every process."""
        for host in self.hosts.values():
            if host.alive:
                host.kill()

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
        words = given.keys() - {"scope", "root"}
        if words - _LIMITS.keys() or given.get("scope", "tree") != "tree":
            raise UnsupportedError(f"given.limits {', '.join(sorted(words - _LIMITS.keys()))} {given.get('scope')}")
        return {_LIMITS[word]: given[word] for word in words}

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
        return self.providers.get(session, self.first_provider)

    def _write_world(self) -> None:
        forms.write(self.folder / "world.json", self.world)

    def _write_config(self) -> None:
        forms.write(self.folder / "config.json", [g for g in self.pool if g["place"] == "config"])

    def _wires(self, session: str) -> dict[str, str]:
        look = self.states[-1].looks.get(session) if self.states else None
        return look.wires if look is not None else {}

    def _issued(self, session: str, qualified: str) -> str:
        """Return the wire name under which a tool was last shown to the model."""
        looks = [state.looks[session] for state in reversed(self.states) if session in state.looks]
        return next((look.wires[qualified] for look in looks if qualified in look.wires), qualified)

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
