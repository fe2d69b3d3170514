"""A pure state machine over the life of a session: the three invariants after every event, and the model as a judge.

The state is a world of Annex A, so that the model can be asked about it; the library goes from epoch to epoch.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from capstate.epochs import Cause, Epoch, reproject
from tests.core.test_laws_epochs import assert_explained
from tests.model import decide as model_decides
from tests.model import predict
from tests.translation import World, answer_of, facts_of

GROUPS = {"a": ["x", "y"], "b": ["x", "z"], "c": ["w"]}
TOOLS = [f"{group}/{name}" for group, names in GROUPS.items() for name in names]
SELECTORS = st.sampled_from(["*", *(f"{group}/*" for group in GROUPS), *TOOLS])
TOKENS = st.sampled_from(["d1", "d2"])
PROFILES = [
    {"defers": defers, "needs_immediate": needs, "names": {"limit": 64, "chars": "A-Za-z0-9_-"}}
    for defers, needs in ((True, False), (True, True), (False, False))
]


class Session(RuleBasedStateMachine):
    """Everything that may happen to a session, in any order."""

    @initialize(resident=st.booleans())
    def start(self, resident: bool) -> None:
        self.entries = 0
        self.branches: list[list[str]] = [[]]
        self.denied: dict[str, str] = {}
        self.serial = 0
        self.world: World = {
            "profile": PROFILES[0],
            "catalog": [
                {"id": group, "up": True, "tools": [self.tool(name) for name in names]}
                for group, names in GROUPS.items()
            ],
            "loads": [self.event("load", "*", None)] if resident else [],
            "path": [],
            "retained": [],
            "authority": {
                "sources": {"config": {"state": "ok", "rules": [self.grant("allow", "a/*", None)]}},
                "granted": [],
                "ceilings": {},
                "child": None,
            },
        }
        self.epoch: Epoch | None = None
        self.go_on(Cause.OPEN)

    # -- words

    @staticmethod
    def tool(name: str, definition: str = "d1") -> dict[str, Any]:
        needs = ["c"] if name == "z" else []
        return {"name": name, "definition": definition, "needs": needs, "wire_name": None}

    @staticmethod
    def event(do: str, on: str, at: str | None, found: dict[str, str] | None = None) -> dict[str, Any]:
        return {"do": do, "on": [on], "at": at, "call": None, "definitions": found or {}}

    def grant(self, effect: str, on: str, pin: list[list[str]] | None) -> dict[str, Any]:
        self.serial += 1
        return {"id": f"r{self.serial}", "effect": effect, "on": on, "pin": pin}

    @property
    def tokens(self) -> dict[str, str]:
        return {f"{g['id']}/{t['name']}": t["definition"] for g in self.world["catalog"] for t in g["tools"]}

    @property
    def granted(self) -> list[dict[str, Any]]:
        rules: list[dict[str, Any]] = self.world["authority"]["granted"]
        return rules

    def entry(self) -> str:
        self.entries += 1
        self.branches[-1] = [*self.branches[-1], f"e{self.entries}"]
        self.world["path"] = self.branches[-1]
        return f"e{self.entries}"

    def happens(self, do: str, on: str) -> None:
        found = self.tokens if do == "load" else {}
        self.world["loads"].append(self.event(do, on, self.entry(), found))
        self.world["retained"] = [*self.world["retained"], len(self.world["loads"]) - 1]
        self.go_on()

    def go_on(self, cause: Cause = Cause.TURN) -> None:
        before, self.epoch = self.epoch, reproject(facts_of(copy.deepcopy(self.world), cause=cause), self.epoch)
        assert_explained(before, self.epoch)

    def callable_and_loaded(self) -> tuple[set[str], set[str]]:
        assert self.epoch is not None
        rows = list(self.epoch.surface.rows())
        return set(self.epoch.surface.callable), {r.definition.qualified for r in rows if r.loaded}

    # -- events

    @rule(on=SELECTORS)
    def load(self, on: str) -> None:
        self.happens("load", on)

    @rule(on=SELECTORS)
    def unload(self, on: str) -> None:
        self.happens("unload", on)

    @rule(on=SELECTORS)
    def removal(self, on: str) -> None:
        _, loaded = self.callable_and_loaded()
        self.happens("removal", on)
        assert self.callable_and_loaded()[1] == loaded

    @rule(on=SELECTORS, pinned=st.booleans(), effect=st.sampled_from(["allow", "allow", "ask"]))
    def allow(self, on: str, pinned: bool, effect: str) -> None:
        pin = [[t, d] for t, d in self.tokens.items()] if pinned and effect == "allow" else None
        self.granted.append(self.grant(effect, on, pin))
        self.go_on()

    @rule(on=SELECTORS)
    def deny(self, on: str) -> None:
        given = self.grant("deny", on, None)
        self.granted.append(given)
        self.denied[given["id"]] = on
        before = self.callable_and_loaded()[0]
        self.go_on()
        assert self.callable_and_loaded()[0] <= before

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        gone = self.granted.pop(data.draw(st.integers(0, len(self.granted) - 1)))
        self.denied.pop(gone["id"], None)
        self.go_on()

    @rule(state=st.sampled_from(["ok", "ok", "missing", "stale", "error"]))
    def source_read(self, state: str) -> None:
        self.world["authority"]["sources"]["config"]["state"] = state
        self.go_on()

    @rule(effect=st.sampled_from([None, "allow", "ask", "none", "deny"]))
    def trust(self, effect: str | None) -> None:
        ceiling = {"trust": {"state": "ok", "effect": effect, "rules": None}}
        self.world["authority"]["ceilings"] = {} if effect is None else ceiling
        self.go_on()

    @rule(number=st.integers(0, len(GROUPS) - 1), up=st.booleans())
    def resource(self, number: int, up: bool) -> None:
        self.world["catalog"][number]["up"] = up
        self.go_on()

    @rule(number=st.integers(0, len(GROUPS) - 1), data=st.data())
    def list_changes(self, number: int, data: st.DataObject) -> None:
        group = self.world["catalog"][number]
        names = data.draw(st.lists(st.sampled_from([*GROUPS[group["id"]], "new"]), unique=True))
        group["tools"] = [self.tool(name, data.draw(TOKENS)) for name in names]
        self.go_on()

    @rule(data=st.data(), native=st.booleans())
    def compact(self, data: st.DataObject, native: bool) -> None:
        kept = self.world["retained"]
        self.world["retained"] = kept[data.draw(st.integers(0, len(kept))) :]
        before = self.callable_and_loaded()
        self.go_on(Cause.NATIVE_COMPACTION if native else Cause.COMPACTION)
        assert self.callable_and_loaded() == before

    @rule(data=st.data())
    def move_leaf(self, data: st.DataObject) -> None:
        branch = data.draw(st.sampled_from(self.branches))
        self.branches.append(branch[: data.draw(st.integers(0, len(branch)))])
        self.world["path"] = self.branches[-1]
        self.go_on(data.draw(st.sampled_from([Cause.BRANCH, Cause.TURN])))

    @rule(profile=st.sampled_from(PROFILES))
    def switch(self, profile: dict[str, Any]) -> None:
        self.world["profile"] = profile
        before = self.callable_and_loaded()
        self.go_on()
        assert self.callable_and_loaded() == before

    @rule(cause=st.sampled_from([Cause.REOPEN, Cause.RESTART]))
    def reopen(self, cause: Cause) -> None:
        """A process that knows the receipt alone."""
        assert self.epoch is not None
        before = self.callable_and_loaded()
        self.epoch = reproject(facts_of(copy.deepcopy(self.world), cause=cause), self.epoch.receipt)
        assert self.callable_and_loaded() == before

    @rule()
    def turn(self) -> None:
        before = self.epoch
        self.go_on()
        assert self.epoch is before

    # -- what always holds

    @invariant()
    def model_agrees(self) -> None:
        """Callable set, effects, reasons, deciding rules, places and order."""
        assert self.epoch is not None
        assert answer_of(self.epoch) == predict(self.world)

    @invariant()
    def callable_is_authorised(self) -> None:
        """I1, by the model's word on authority alone; and nothing that was denied is back while the deny stands."""
        allowed = {
            f"{group['id']}/{tool['name']}"
            for group in self.world["catalog"]
            for tool in group["tools"]
            if model_decides(self.world["authority"], (group["id"], tool["name"]), tool["definition"])[0]
            in ("allow", "ask")
        }
        able = self.callable_and_loaded()[0]
        assert able <= allowed
        assert not {t for t in able for on in self.denied.values() if on in ("*", t, f"{t.partition('/')[0]}/*")}


TestSession = Session.TestCase
TestSession.settings = settings(stateful_step_count=30)
