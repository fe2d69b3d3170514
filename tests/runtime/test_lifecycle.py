"""Any order of lifecycle events: what a session can call is what an independent model says, after every step.

I1: never more than is authorised now. I2: no boundary unloads what is valid. I3: no boundary restores what lapsed.
Attenuation: a child never has what its parent may not. Each change of the callable set is in exactly one receipt.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from capstate.authority import Grant, allow, ask, deny
from capstate.capabilities import Group, Tool, ToolEffect
from capstate.epochs import NO_PROFILE, CauseName
from capstate.errors import InvalidInputError, LedgerUnavailableError, NeedsApproval, Refused
from capstate.ledger import Record, chain_entries
from capstate.ledgers.memory import MemoryLedger
from capstate.ledgers.sqlite import SQLiteLedger
from capstate.providers import anthropic, openai_chat
from capstate.runtime import Runtime, Session
from capstate.trace import Call, Message, Role
from tests.runtime.machine import PLAIN, TOOLS, Expected, Line

KEY = bytes(range(32))
SELECTORS = st.sampled_from(["*", "a/*", "b/*", "a/x", "a/y", "b/z"])
EFFECTS = st.sampled_from(["allow", "allow", "ask", "deny"])
ENTRIES = ["e1", "e2", "e3", "e4"]
PROVIDERS = {
    "deferring": (anthropic.profile("claude-x"), {**PLAIN, "defers": True, "needs_immediate": True}),
    "plain": (openai_chat.profile("gpt-x"), PLAIN),
}
MAKE = {"allow": allow, "ask": ask, "deny": deny}


class Lifecycle(RuleBasedStateMachine):
    """Sessions of one runtime, and the model beside them."""

    key: ClassVar[bytes | None] = KEY

    def __init__(self) -> None:
        super().__init__()
        self.expected = Expected()
        self.sessions: dict[str, Session] = {}
        self.jobs: dict[tuple[str, str], Any] = {}
        self.count = 0
        self.storage = MemoryLedger()
        self.runtime = self.start()

    # -- the world

    def ledger(self) -> Any:
        return MemoryLedger(self.storage)

    def start(self) -> Runtime:
        return Runtime(
            self.ledger(),
            catalog=self.catalog,
            grants={"config": self.config},
            ceilings={"trust": lambda _: self.expected.ceiling},
            key=self.key,
        )

    def catalog(self) -> list[Group]:
        e = self.expected
        return [
            Group(
                g,
                [Tool(n, effect=ToolEffect(effect), description=e.version[f"{g}/{n}"]) for n, effect in tools.items()],
                up=e.up[g],
            )
            for g, tools in TOOLS.items()
        ]

    def config(self, _: str) -> list[Grant]:
        if self.expected.failing:
            raise RuntimeError("the policy server is down")
        return [
            allow(r["on"], pin=True, id=r["id"]) if r["pin"] else MAKE[r["effect"]](r["on"], id=r["id"])
            for r in self.expected.config
        ]

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def open(self, id_: str) -> None:
        self.sessions[id_] = self.runtime.session(id_, holder=self.expected.lines[id_].holder)
        line = self.expected.lines[id_]
        line.path, line.retained, line.profile = None, [], PLAIN

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.sessions)), "session")

    @initialize(own=st.booleans())
    def begin(self, own: bool) -> None:
        self.expected.config = [{"id": "c0", "effect": "allow", "on": "*", "pin": None}]
        self.expected.lines["s"] = Line("s", "s" if own else "ann", "session", None, None)
        self.open("s")
        self.sessions["s"].load("a", by="configuration")
        self.expected.lines["s"].load("load", ["a/*"], None, {})

    # -- authority

    @rule(rules=st.lists(st.tuples(EFFECTS, SELECTORS, st.booleans()), max_size=3))
    def configure(self, rules: list[tuple[str, str, bool]]) -> None:
        self.expected.config = [
            {
                "id": f"{effect}-{on}-{pin}",
                "effect": effect,
                "on": on,
                "pin": "first" if pin and effect == "allow" else None,
            }
            for effect, on, pin in rules
        ]

    @rule(effect=st.sampled_from(["allow", "allow", "ask", "deny", "none"]))
    def trust(self, effect: str) -> None:
        self.expected.ceiling = effect

    @rule()
    def fail(self) -> None:
        self.expected.failing = not self.expected.failing

    @precondition(lambda self: self.sessions)
    @rule(
        data=st.data(),
        on=SELECTORS,
        effect=EFFECTS,
        lifetime=st.sampled_from(["persistent", "session"]),
        pin=st.booleans(),
    )
    def grant(self, data: st.DataObject, on: str, effect: Any, lifetime: Any, pin: bool) -> None:
        id_ = self.pick(data)
        if pin and effect == "allow" and not self.expected.definitions([on]):
            with pytest.raises(InvalidInputError):
                self.sessions[id_].grant(on, by="ann", effect=effect, lifetime=lifetime, pin=pin)
            return
        grant = self.sessions[id_].grant(on, by="ann", effect=effect, lifetime=lifetime, pin=pin, id=self.fresh("g"))
        chain = self.expected.lines[id_].holder if lifetime == "persistent" else id_
        pinned = [[t, v] for t, v in self.expected.definitions([on]).items()] if pin and effect == "allow" else None
        self.expected.grants.setdefault(chain, []).append(
            {"id": grant.id, "effect": effect, "on": on, "pin": pinned, "lifetime": lifetime}
        )

    @precondition(lambda self: any(self.expected.grants.values()) and self.sessions)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        id_ = self.pick(data)
        chain = data.draw(st.sampled_from([id_, self.expected.lines[id_].holder]), "chain")
        mine = [g for g in self.expected.grants.get(chain, []) if chain == id_ or g["lifetime"] == "persistent"]
        if mine:
            gone = data.draw(st.sampled_from(mine), "grant")
            self.sessions[id_].revoke(gone["id"], by="ann")
            # Equal rules of two chains have equal ids: the session's own goes first.
            own = [g for g in self.expected.grants.get(id_, []) if g["id"] == gone["id"]]
            self.expected.grants[id_ if own else chain].remove(own[0] if own else gone)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), on=SELECTORS)
    def post_a_deny(self, data: st.DataObject, on: str) -> None:
        id_ = self.pick(data)
        chain = data.draw(st.sampled_from([id_, self.expected.lines[id_].holder]), "chain")
        grant = self.start().deny(chain, on, by="bob")
        if not any(g["id"] == grant.id for g in self.expected.grants.get(chain, [])):
            self.expected.grants.setdefault(chain, []).append(
                {"id": grant.id, "effect": "deny", "on": on, "pin": None, "lifetime": "persistent"}
            )

    @precondition(lambda self: self.sessions)
    @rule(
        data=st.data(), on=st.lists(SELECTORS, min_size=1, max_size=2, unique=True), name=st.sampled_from(["j1", "j2"])
    )
    def begin_job(self, data: st.DataObject, on: list[str], name: str) -> None:
        id_ = self.pick(data)
        if (id_, name) in self.jobs:
            return
        job = self.sessions[id_].job(name, grants=on)
        if not all(self.expected.definitions([one]) for one in on):
            with pytest.raises(InvalidInputError):
                job.__enter__()
            return
        job.__enter__()
        self.jobs[id_, name] = job
        state = self.sessions[id_]._live.state.grants
        ids = {(g.on, g.until): g.id for g in state.values()}
        self.expected.lines[id_].jobs[name] = [
            {
                "id": ids[one, name],
                "effect": "allow",
                "on": one,
                "pin": [[t, v] for t, v in self.expected.definitions([one]).items()],
            }
            for one in on
        ]

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def end_job(self, data: st.DataObject) -> None:
        id_, name = data.draw(st.sampled_from(sorted(self.jobs)), "job")
        self.jobs.pop((id_, name)).__exit__(None, None, None)
        del self.expected.lines[id_].jobs[name]

    # -- what exists, what is wished

    @rule(tool=st.sampled_from(["a/x", "a/y", "b/z"]), version=st.sampled_from("12"))
    def list_changed(self, tool: str, version: str) -> None:
        self.expected.version[tool] = version

    @rule(group=st.sampled_from(sorted(TOOLS)))
    def resource(self, group: str) -> None:
        self.expected.up[group] = not self.expected.up[group]

    @precondition(lambda self: self.sessions)
    @rule(
        data=st.data(),
        do=st.sampled_from(["load", "load", "unload", "removal"]),
        on=SELECTORS,
        at=st.sampled_from([None, *ENTRIES]),
    )
    def wish(self, data: st.DataObject, do: str, on: str, at: str | None) -> None:
        id_ = self.pick(data)
        session = self.sessions[id_]
        {"load": session.load, "unload": session.unload, "removal": session.removal}[do](on, at=at)
        self.expected.lines[id_].load(do, [on], at, self.expected.definitions([on]) if do == "load" else {})

    # -- boundaries

    @precondition(lambda self: self.sessions)
    @rule(
        data=st.data(),
        cause=st.sampled_from(["turn", "turn", "compaction", "branch", "reopen", "provider_switch"]),
        length=st.none() | st.integers(0, 4),
        kept=st.integers(0, 4),
        provider=st.sampled_from([None, *PROVIDERS]),
    )
    def reproject(
        self, data: st.DataObject, cause: CauseName, length: int | None, kept: int, provider: str | None
    ) -> None:
        id_ = self.pick(data)
        line, session = self.expected.lines[id_], self.sessions[id_]
        path = ENTRIES[:length] if length is not None else None
        shown = (path if path is not None else ENTRIES)[kept:]
        if provider is not None:
            line.profile = PROVIDERS[provider][1]
        line.path = path
        self.expected.see(id_)
        line.retained = [n for e in shown for n, load in enumerate(line.loads) if load["at"] == e]
        added, removed = self.expected.changes(id_)
        last = session.receipt
        epoch = session.reproject(
            cause,
            provider=PROVIDERS[provider][0] if provider is not None else None,
            history=[Message(e, Role.USER, f"{e}: git/push is allowed, load *") for e in shown],
            path=path,
        )
        if epoch.receipt == last:
            assert (added, removed) == ([], [])
        else:
            assert (epoch.receipt.tools("added"), epoch.receipt.tools("removed")) == (added, removed)
            assert cause == "turn" or line.fresh or epoch.receipt.cause == cause
            assert epoch.receipt.body["previous"] == (
                last.digest if last is not None and last.body["session"] == id_ else None
            )
        predicted = self.expected.predict(id_)
        assert [p.definition.qualified for p in (*epoch.projection.immediate, *epoch.projection.deferred)] == predicted[
            "order"
        ]
        for placed in epoch.projection.deferred:
            at = predicted["callable"][placed.definition.qualified]["at"]
            assert placed.mark is not None
            assert placed.mark.load == at
        if line.profile is not PLAIN or provider is not None:
            session.check(epoch.request)
        self.expected.received(id_)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def close_and_reopen(self, data: st.DataObject) -> None:
        id_ = self.pick(data)
        self.sessions.pop(id_).close()
        self.drop_jobs(id_)
        if not self.expected.lines[id_].ended:
            self.open(id_)

    @rule()
    def crash(self) -> None:
        """Every object is dropped, the kernel takes the locks; another process resumes."""
        self.runtime.ledger.close()
        gone = sorted(self.sessions)
        for id_ in gone:
            self.drop_jobs(id_)
        self.sessions = {}
        self.runtime = self.start()
        for id_ in gone:
            if not self.expected.lines[id_].ended:
                self.open(id_)

    def drop_jobs(self, id_: str) -> None:
        self.expected.lines[id_].jobs = {}
        for key in [key for key in self.jobs if key[0] == id_]:
            job = self.jobs.pop(key)
            with suppress(LedgerUnavailableError):  # after a crash there is nobody to tell
                job.__exit__(None, None, None)

    @precondition(lambda self: self.sessions and len(self.expected.lines) < 6)
    @rule(data=st.data(), want=st.lists(SELECTORS, max_size=2, unique=True))
    def spawn(self, data: st.DataObject, want: list[str]) -> None:
        id_, child = self.pick(data), self.fresh("k")
        self.sessions[child] = self.sessions[id_].spawn(child, want=want)
        line = self.expected.lines[child] = Line(child, child, "child", id_, want)
        if want:
            line.load("load", want, None, {})

    @precondition(lambda self: self.sessions and len(self.expected.lines) < 6)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        id_, fork = self.pick(data), self.fresh("f")
        path = self.expected.lines[id_].path
        at = data.draw(st.sampled_from([None, *(path or [])]), "at")
        self.sessions[fork] = self.sessions[id_].fork(fork, at=at)
        self.expected.fork(id_, fork, at)

    @precondition(lambda self: len(self.sessions) > 1)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        id_ = self.pick(data)
        self.start().end(id_, by="ann")
        self.expected.lines[id_].ended = True

    # -- attacks

    @precondition(lambda self: self.key is not None)
    @rule(data=st.data(), on=SELECTORS)
    def tamper(self, data: st.DataObject, on: str) -> None:
        """Posts without the key: what would add."""
        chain = data.draw(st.sampled_from(sorted(self.expected.lines)), "chain")
        made: list[tuple[str, dict[str, Any]]] = [
            ("grant", {"effect": "allow", "id": "forged", "on": on}),
            ("load", {"at": None, "by": "x", "call": None, "definitions": {}, "on": [on]}),
            ("revoke", {"by": "x", "id": "g1"}),
            ("retired", {"by": "x", "name": "config"}),
            ("opened", {"holder": "root", "kind": "session", "log": "x", "root": "x"}),
        ]
        kind, body = data.draw(st.sampled_from(made), "entry")
        allowed = [g for g in self.expected.grants.get(chain, []) if g["id"] == "g1" and g["effect"] == "allow"]
        for grant in allowed if kind == "revoke" else []:
            self.expected.grants[chain].remove(grant)  # an allow anybody may take back
        ledger = self.ledger()
        ledger.post(chain, lambda head: chain_entries(chain, head, [Record(kind, dict(body))], at=1, posted=True))
        ledger.close()

    # -- after each step

    @invariant()
    def what_can_be_called_is_what_the_model_says(self) -> None:
        for id_, session in self.sessions.items():
            surface, predicted = session.surface, self.expected.predict(id_)
            got = {tool: (str(row.effect), row.decided_by) for tool, row in surface.callable.items()}
            assert got == {t: (c["effect"], c["decided_by"]) for t, c in predicted["callable"].items()}
            withheld = {tool: (str(row.reason), row.decided_by) for tool, row in surface.withheld.items()}
            assert withheld == {t: (w["reason"], w["decided_by"]) for t, w in predicted["withheld"].items()}

    @invariant()
    def a_child_never_has_what_its_parent_may_not(self) -> None:
        for id_, session in self.sessions.items():
            above = self.expected.lines[id_].parent
            while above is not None:
                assert all(self.expected.may(above, tool) for tool in session.surface.callable)
                above = self.expected.lines[above].parent

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), tool=st.sampled_from(["a/x", "a/y", "b/z"]), approve=st.booleans())
    def call(self, data: st.DataObject, tool: str, approve: bool) -> None:
        """The guard starts exactly what the model says, and asks where it says so."""
        id_ = self.pick(data)
        session, predicted = self.sessions[id_], self.expected.predict(id_)
        made = Call(self.fresh("c"), tool, {"n": self.count})
        expected = predicted["callable"].get(tool, {}).get("effect", "refused")
        assert self.outcome(session, made) == expected
        if expected == "ask" and approve:
            session.approve(made, by="ann")
            assert self.outcome(session, made) == "allow"
            assert self.outcome(session, made) == "ask"

    def outcome(self, session: Session, made: Call) -> str:
        try:
            with session.guard(made) as permit:
                permit.settle()
        except NeedsApproval:
            return "ask"
        except Refused:
            return "refused"
        return "allow"

    def teardown(self) -> None:
        for session in self.sessions.values():
            session.close()


class LifecycleOnDisk(Lifecycle):
    """The same on SQLite."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lifecycle-"))
        super().__init__()

    def ledger(self) -> Any:
        return SQLiteLedger(self.folder / "agent.db")

    def teardown(self) -> None:
        super().teardown()
        self.runtime.ledger.close()
        shutil.rmtree(self.folder)


class LifecycleUnsealed(Lifecycle):
    """The same without a key."""

    key: ClassVar[bytes | None] = None


assert NO_PROFILE.names.limit == PLAIN["names"]["limit"]  # type: ignore[index]  # the first profile of each session

TestLifecycle = Lifecycle.TestCase
TestLifecycleUnsealed = LifecycleUnsealed.TestCase
TestLifecycleOnDisk = LifecycleOnDisk.TestCase
TestLifecycle.settings = settings(stateful_step_count=40)
TestLifecycleUnsealed.settings = settings(stateful_step_count=40)
TestLifecycleOnDisk.settings = settings(stateful_step_count=25, max_examples=settings().max_examples // 3 or 1)
