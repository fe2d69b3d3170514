"""Words about boundaries: restart, crash, children, forks, and processes on the stored session."""

from __future__ import annotations

from typing import Any

from tests.scenarios.calling import Calling
from tests.scenarios.stage import Refusal


class Leaving(Calling):
    """Sessions end, resume, spawn and fork."""

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

    def op_spawn(self, event: dict[str, Any]) -> None:
        """A child starts."""
        parent, child = event["parent"], event["child"]
        self.host_of(parent).call(
            "spawn", parent=parent, session=child, want=event["want"], call=event.get("call"), keep=not self.processes
        )
        self.parents[child], self.wants[child] = parent, event["want"]
        self.spawned_by[child] = event.get("call")
        self.providers[child] = self.provider(parent)
        self._elsewhere(child, self.where[parent])
        self.causes[child] = "child"

    def op_child_result(self, event: dict[str, Any]) -> None:
        """A child returns: its parent keeps what it says, and the call that started it has its result."""
        child = event["child"]
        parent, call = self.parents[child], self.spawned_by.get(child)
        known = [one["id"] for one in self.given.get("evidence", ())]
        told = self.host_of(parent).call("child_result", parent=parent, child=child, told=event, known=known)
        if call is not None and call in [one["id"] for one in self.transcript(parent).open_calls()]:
            self._answer(parent, call, "ok", detail=f"{child}: {told}")

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
