"""Worlds of Annex A of docs/spec/surface.md: a large enumeration over small domains, and larger random ones.

The enumeration is one product of families (authority, placement, loads, resources, names, profile), so that every
family meets every other.  A world is computed from its index by mixed radix decoding.  Before decoding, the index goes
through a fixed permutation: neighbours, and the members of any stride, differ in all families at once.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any

World = dict[str, Any]
Rule = dict[str, Any]

# The groups of the enumeration.  As joined text "a-b/x" comes before "a/x"; as pairs it comes after.
A, B = "a", "a-b"
AX, AY, BX = "a/x", "a/y", "a-b/x"


# -- Authority ---------------------------------------------------------------------------------------------------------


def _rule(effect: str, on: str, pin: list[list[str]] | None = None) -> Rule:
    return {"effect": effect, "on": on, "pin": pin}


def _numbered(rules: Sequence[Rule], prefix: str) -> list[Rule]:
    return [{"id": f"{prefix}{number}", **rule} for number, rule in enumerate(rules)]


# Pins know the token "d1"; a tool that bears "d2" now is one whose definition changed.
RULES: list[Rule] = [
    _rule("allow", "*"),
    _rule("allow", "*", [[AX, "d1"], [AY, "d1"], [BX, "d1"]]),
    _rule("allow", "a/*"),
    _rule("allow", "a/*", [[AX, "d1"], [BX, "d2"]]),
    _rule("allow", "a/*", [[AY, "d0"]]),
    _rule("allow", AX, [[AX, "d1"]]),
    _rule("allow", AX, [[AX, "d0"], [AX, "d2"]]),
    _rule("allow", BX),
    _rule("allow", "a-b/*", [[BX, "d1"], [AX, "d1"]]),
    _rule("allow", "*", []),
    _rule("allow", "*", [[tool, token] for tool in (BX, AX, AY) for token in ("d2", "d1")]),
    _rule("ask", "*"),
    _rule("ask", AX),
    _rule("deny", AX),
    _rule("deny", "a-b/*"),
]

CONFIG: list[list[Rule]] = [[], *[[r] for r in RULES], *[[r, s] for r in RULES for s in RULES]]

# State of `config`, and the other sources: one that sorts before `config`, one that sorts after it.
SOURCES: list[tuple[str, dict[str, tuple[str, list[Rule]]]]] = [
    ("ok", {}),
    ("ok", {"app": ("ok", [])}),
    ("ok", {"app": ("ok", [_rule("allow", "a/*"), _rule("allow", BX)]), "job": ("ok", [])}),
    ("ok", {"job": ("ok", [_rule("allow", "*"), _rule("ask", AX)])}),
    ("ok", {"app": ("ok", [_rule("allow", "*")])}),
    ("ok", {"job": ("ok", [_rule("allow", "a-b/*"), _rule("ask", AY)])}),
    ("ok", {"app": ("ok", [_rule("deny", AX)]), "job": ("ok", [_rule("allow", AX)])}),
    ("ok", {"job": ("error", [_rule("allow", "*")])}),
    ("missing", {"app": ("ok", [_rule("allow", "*")])}),
    ("error", {"app": ("stale", [])}),
]

GRANTED: list[list[Rule]] = [
    [],
    [_rule("allow", "*")],
    [_rule("allow", "a/*", [[AX, "d1"], [AY, "d1"]])],
    [_rule("allow", AX, [[AX, "d0"]])],
    [_rule("allow", AX, [[AX, "d2"]]), _rule("ask", BX)],
    [_rule("allow", "a/*"), _rule("allow", BX), _rule("ask", AY)],
    [_rule("deny", AY), _rule("allow", BX)],
]


def _ceiling(effect: str | None, rules: list[Rule] | None = None, state: str = "ok") -> dict[str, Any]:
    return {"state": state, "effect": effect, "rules": None if rules is None else _numbered(rules, "c")}


CEILINGS: list[dict[str, dict[str, Any]]] = [
    {},
    {"trust": _ceiling("allow")},
    {"trust": _ceiling("ask")},
    {"org": _ceiling("ask"), "Trust": _ceiling("ask")},
    {"org": _ceiling("allow"), "trust": _ceiling("allow"), "zone": _ceiling(None, [_rule("allow", "*")])},
    {"trust": _ceiling(None, [_rule("allow", "a-b/*"), _rule("allow", "*")])},
    {"trust": _ceiling(None, [_rule("allow", "*"), _rule("ask", AX)])},
    {"trust": _ceiling(None, [_rule("allow", "*", [[AX, "d1"], [AY, "d1"], [BX, "d1"]])])},
    {"org": _ceiling("allow"), "trust": _ceiling(None, [_rule("allow", "a/*"), _rule("allow", BX, [[BX, "d0"]])])},
    {"trust": _ceiling(None, [_rule("deny", AX), _rule("allow", "*")]), "zone": _ceiling("ask")},
    {"org": _ceiling("deny"), "trust": _ceiling("none")},
    {"trust": _ceiling(None, [])},
    {"org": _ceiling("ask"), "trust": _ceiling("allow", None, "stale")},
    {"trust": _ceiling(None, [_rule("allow", "*")], "error")},
]


def _authority(
    rules: Sequence[Rule],
    granted: Sequence[Rule] = (),
    ceilings: dict[str, Any] | None = None,
    child: dict[str, Any] | None = None,
    state: str = "ok",
) -> dict[str, Any]:
    return {
        "sources": {"host": {"state": state, "rules": _numbered(rules, "h")}},
        "granted": _numbered(granted, "k"),
        "ceilings": ceilings or {},
        "child": child,
    }


def _child(want: list[str] | None, parent: Any) -> dict[str, Any]:
    return {"want": want, "parent": parent}


WANTS: list[list[str]] = [["*"], ["*", "a/*"], ["a/*", AX], [BX, AX]]

# Plain relatives of the authority that varies: its parent when it is a child's ...
PARENTS: list[Any] = [
    _authority([_rule("allow", "*")]),
    _authority([_rule("allow", "*", [[AX, "d1"], [AY, "d1"], [BX, "d1"]])]),
    _authority([_rule("ask", "*")], [_rule("allow", AY)]),
    _authority([_rule("allow", "*")], ceilings={"trust": _ceiling("ask"), "org": _ceiling("allow")}),
    _authority([], child=_child(["a/*", BX], _authority([_rule("allow", "*"), _rule("deny", AX)]))),
]
BROKEN: list[Any] = [
    _child(None, PARENTS[0]),
    _child(None, "ended"),
    _child([], PARENTS[0]),
    _child(["*"], "missing"),
    _child([AX], "ended"),
    _child(["*"], _authority([_rule("allow", "*")], state="error")),
    _child(["*"], _authority([_rule("allow", "*")], child=_child(None, PARENTS[0]))),
    _child(["*"], _authority([], child=_child(["*"], "missing"))),
]

# ... and its child, own rules and want, when it is a parent's.
CHILDREN: list[Callable[[Any], Any]] = [
    lambda parent: _authority([], child=_child(["*"], parent)),
    lambda parent: _authority([_rule("ask", AX), _rule("allow", "*")], child=_child(["a/*", BX], parent)),
    lambda parent: _authority([_rule("deny", AY)], [_rule("ask", BX)], child=_child(["*", AX], parent)),
    lambda parent: _authority([], ceilings={"trust": _ceiling("ask")}, child=_child(["a/*"], parent)),
    lambda parent: _authority([], child=_child(None, parent)),
    lambda parent: _authority([], child=_child(["*"], _authority([], child=_child(["*", "a/*"], parent)))),
    lambda parent: _authority([], child=_child(["*"], _authority([_rule("ask", AY)], child=_child(["a/*"], parent)))),
    lambda parent: _authority([], child=_child(["*"], _authority([], child=_child(None, parent)))),
]

# Where the authority that varies stands: alone (with one rule more), as a child, as a parent or grandparent.
ROLES: list[tuple[str, Any]] = [
    ("alone", None),
    *[("more", rule) for rule in RULES],
    *[("child", _child(want, parent)) for want in WANTS for parent in PARENTS],
    *[("child", child) for child in BROKEN],
    *[("under", child) for child in CHILDREN],
]
# Sources with ceilings: all that are in order with each other, those that are broken with a few.
HOSTS = [
    (sources, ceilings)
    for sources in range(len(SOURCES))
    for ceilings in range(len(CEILINGS))
    if (sources < 7 and ceilings < 10) or (sources + ceilings) % 4 == 0
]
AUTHORITY_SIZES = [len(CONFIG), len(HOSTS), len(GRANTED), len(ROLES)]


def _small_authority(digits: Sequence[int]) -> dict[str, Any]:
    config, (sources, ceilings), granted = CONFIG[digits[0]], HOSTS[digits[1]], GRANTED[digits[2]]
    (state, others), (role, what) = SOURCES[sources], ROLES[digits[3]]
    rules = _numbered(config, "r") + ([{"id": "extra", **what}] if role == "more" else [])
    authority = {
        "sources": {
            "config": {"state": state, "rules": rules},
            **{name: {"state": other, "rules": _numbered(its, "s")} for name, (other, its) in others.items()},
        },
        "granted": _numbered(granted, "g"),
        "ceilings": CEILINGS[ceilings],
        "child": what if role == "child" else None,
    }
    return what(authority) if role == "under" else authority


# -- Loads -------------------------------------------------------------------------------------------------------------

OLD = {AX: "d2", AY: "d0", BX: "d1"}
NEW = {AX: "d1", AY: "d1", BX: "d1"}
# do, on, place, definitions.  The place "at" is an entry of the event's own, "first" an entry that several share.
EVENTS: list[tuple[str, list[str], str, dict[str, str]]] = [
    ("load", ["*"], "at", NEW),
    ("load", ["*"], "at call", OLD),
    ("load", ["*"], "call", NEW),
    ("load", ["*"], "", NEW),
    ("load", [AX], "first", {AX: "d1"}),
    ("load", ["a/*"], "at", {AY: "d1"}),
    ("load", [BX, AY], "call", {BX: "d2", AX: "d1"}),
    ("load", ["a-b/*", AY], "at", NEW),
    ("load", ["a/*", BX], "at call", NEW),
    ("unload", ["*"], "at", {}),
    ("unload", [AX], "", {}),
    ("unload", ["a-b/*", AY], "call", {}),
    ("removal", ["*"], "at", {}),
    ("removal", [AX, "a-b/*"], "", {}),
    ("removal", ["a/*"], "first", {}),
]
PATHS: list[list[str] | None] = [
    None,
    ["root", "first", "e0", "e1", "e2"],
    ["e2", "e1", "first", "e0"],
    ["first", "e1", "leaf"],
    ["e0", "e2"],
    [],
]
# By number of events: every choice of retained events in every order.
RETAINED: list[list[list[int]]] = [
    [list(kept) for size in range(length + 1) for kept in permutations(range(length), size)] for length in range(4)
]
LOADS_OF_LENGTH = [len(EVENTS) ** length * len(RETAINED[length]) for length in range(4)]


def _small_loads(index: int) -> tuple[list[dict[str, Any]], list[int]]:
    length = 0
    while index >= LOADS_OF_LENGTH[length]:
        index -= LOADS_OF_LENGTH[length]
        length += 1
    index, kept = divmod(index, len(RETAINED[length]))
    events: list[dict[str, Any]] = []
    for number in range(length):
        index, event = divmod(index, len(EVENTS))
        do, on, place, definitions = EVENTS[event]
        at = f"e{number}" if "at" in place.split() else "first" if place == "first" else None
        call = f"c{number}" if "call" in place else None
        events.append({"do": do, "on": on, "at": at, "call": call, "definitions": definitions})
    return events, RETAINED[length][kept]


# -- Catalog and profile -----------------------------------------------------------------------------------------------

TOKENS = [("d1", "d1"), ("d2", "d1"), ("d1", "d2")]  # of a/x and a-b/x; a/y bears d1
# Whether "a", "a-b" and a third group "c" are up (None: not in the catalog); what a/x and a-b/x need.
RESOURCES: list[tuple[bool, bool, bool | None, list[str], list[str]]] = [
    (True, True, None, [], []),
    (True, True, True, [], []),
    (True, True, True, ["c"], [A]),
    (True, True, True, [B, "c"], ["c", A]),
    (True, True, None, [B], ["c"]),
    (True, True, False, [B], ["c"]),
    (True, True, False, ["c", B], []),
    (True, False, None, [], []),
    (True, False, None, ["c", B], []),
    (True, False, True, ["c", B], [A]),
    (False, True, True, [], ["c", A]),
    (False, False, False, [B, "c"], ["c", A]),
]
# Own wire names of a/x, a/y and a-b/x, and entries of the catalog besides "a" and "a-b" (made from a copy of a/x).
NAMES: list[tuple[tuple[str | None, str | None, str | None], str]] = [
    ((None, None, None), ""),
    (("t", None, "t"), ""),
    (("t", "t", "t"), ""),
    ((None, None, "a__x"), ""),
    (("a__y", None, None), ""),
    (("a__x", "T", "t"), ""),
    (("a b", "", "t"), ""),
    ((None, "a" * 19, None), ""),
    ((None, None, None), "same"),
    (("t", "t", None), "same down"),
    ((None, None, "a__x"), "token"),
    (("t", None, "t"), "needs"),
    ((None, "a__x", None), "wire name"),
    ((None, None, None), "more"),
    ((None, None, None), "unclean"),
]
LETTERS = "A-Za-z0-9_-"
PROVIDER_NAMES = [(64, LETTERS), (128, "A-Za-z0-9_.-"), (19, LETTERS), (18, LETTERS), (5, LETTERS), (64, "a-z_-")]
DEFERRING = [(True, False), (True, True), (False, False)]  # whether it defers, and needs an immediate tool
PROFILES = [(*deferring, *names) for deferring in DEFERRING for names in PROVIDER_NAMES]
FACT_SIZES = [sum(LOADS_OF_LENGTH), len(PATHS), len(TOKENS), len(RESOURCES), len(NAMES), len(PROFILES)]


def _tool(name: str, definition: str, needs: list[str], wire_name: str | None) -> dict[str, Any]:
    return {"name": name, "definition": definition, "needs": needs, "wire_name": wire_name}


def _small_catalog(tokens: int, resources: int, names: int) -> list[dict[str, Any]]:
    (x_token, b_token), (a_up, b_up, c_up, x_needs, b_needs) = TOKENS[tokens], RESOURCES[resources]
    (x_own, y_own, b_own), extra = NAMES[names]
    ax = _tool("x", x_token, x_needs, x_own)
    catalog = [
        {"id": B, "up": b_up, "tools": [_tool("x", b_token, b_needs, b_own)]},
        {"id": A, "up": a_up, "tools": [_tool("y", "d1", [], y_own), ax]},
    ]
    if c_up is not None:
        catalog.append({"id": "c", "up": c_up, "tools": []})
    more = {
        "same": [dict(ax)],
        "same down": [dict(ax)],
        "token": [{**ax, "definition": "d3"}],
        "needs": [{**ax, "needs": [*x_needs, A]}],
        "wire name": [{**ax, "wire_name": "other"}],
        "more": [_tool("z", "d1", [], None), _tool("Z", "d1", ["c"], "a__z")],
    }
    if extra in more:
        catalog.append({"id": A, "up": extra != "same down", "tools": more[extra]})
    if extra == "unclean":
        unclean = [_tool(name, "d1", [], None) for name in ("x__y", "x/y", "_x", "x_", "x_y", "x.y")]
        catalog += [{"id": "a_", "up": True, "tools": unclean[:2]}, {"id": "a_b", "up": True, "tools": unclean}]
    return catalog


def _small_facts(digits: Sequence[int]) -> World:
    loads, retained = _small_loads(digits[0])
    defers, needs_immediate, limit, chars = PROFILES[digits[5]]
    return {
        "profile": {
            "defers": defers,
            "needs_immediate": needs_immediate,
            "names": {"limit": limit, "chars": chars},
        },
        "catalog": _small_catalog(digits[2], digits[3], digits[4]),
        "loads": loads,
        "path": PATHS[digits[1]],
        "retained": retained,
    }


# -- The enumeration ---------------------------------------------------------------------------------------------------


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _decode(index: int, sizes: Sequence[int]) -> list[int]:
    digits = []
    for size in sizes:
        index, digit = divmod(index, size)
        digits.append(digit)
    return digits


AUTHORITIES, FACTS = _product(AUTHORITY_SIZES), _product(FACT_SIZES)


def _stir(number: int) -> int:
    """A fixed function of a number to 64 bits without a visible pattern (the finaliser of splitmix64)."""
    mask = 2**64 - 1
    number = (number + 0x9E3779B97F4A7C15) & mask
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & mask
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & mask
    return number ^ number >> 31


def _places(index: int) -> tuple[int, int]:
    """Number of the authority and of the other facts: a permutation, as each step can be undone from the other half."""
    authority, facts = divmod(index, FACTS)
    authority = (authority + _stir(facts)) % AUTHORITIES
    facts = (facts + _stir(authority)) % FACTS
    authority = (authority + _stir(facts)) % AUTHORITIES
    return authority, facts


def count_small_worlds() -> int:
    """How many worlds the enumeration holds; all are distinct."""
    return AUTHORITIES * FACTS


def small_world(index: int) -> World:
    """The world of one index, with no part shared with any other world."""
    authority, facts = _places(index)
    world = _small_facts(_decode(facts, FACT_SIZES))
    world["authority"] = _small_authority(_decode(authority, AUTHORITY_SIZES))
    copy: World = json.loads(json.dumps(world))
    return copy


def small_worlds(stride: int = 1, offset: int = 0) -> Iterator[World]:
    """Every `stride`-th world from `offset` on; the skipped ones cost nothing."""
    for index in range(offset, count_small_worlds(), stride):
        yield small_world(index)


# -- Random worlds -----------------------------------------------------------------------------------------------------

GROUP_IDS = ["git", "files", "web-1", "a", "a-b", "a_b", "_odd", "x__y", "Git", "two words", "\uff5eg", "\U0001f600g"]
TOOL_NAMES = [
    "log",
    "push",
    "x",
    "y",
    "b_c",
    "b__c",
    "deep/er",
    "Log",
    "trailing_",
    "dot.ted",
    "\u00e9t\u00e9",
    "l" * 70,
]
OWN_NAMES = ["search", "Search", "git__log", "a__x", "a-b__x", "a_b__x", "bad name", "", "w" * 40, "\u00e9"]
SOURCE_NAMES = ["config", "app", "job", "Zed", "trial", "\uff5es", "\U0001f600s"]
CEILING_NAMES = ["trust", "org", "Plan", "zone"]
RULE_IDS = ["r1", "r10", "r2", "R3", "k", "\uff5er", "\U0001f600r"]


class _Random:
    """One random world in the making."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.groups = rng.sample(GROUP_IDS, rng.randint(1, 8))
        self.tokens: dict[str, str] = {}  # what each qualified id bears now
        for group in self.groups:
            for name in rng.sample(TOOL_NAMES, rng.randint(0 if rng.random() < 0.1 else 1, 8)):
                self.tokens[f"{group}/{name}"] = rng.choice(["d1", "d1", "d2"])

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def token(self, tool: str) -> str:
        """Mostly the definition that the tool bears."""
        return self.tokens.get(tool, "d1") if self.chance(0.8) else self.rng.choice(["d0", "d1", "d2"])

    def selector(self, wide: float = 0.3) -> str:
        if self.chance(wide):
            return "*"
        if self.chance(0.5) or not self.tokens:
            return self.rng.choice([*self.groups, "gone"]) + "/*"
        return self.rng.choice([*self.tokens, "gone/log"])

    def selectors(self) -> list[str]:
        return [self.selector() for _ in range(self.rng.choice([1, 1, 2, 4]))]

    def some_tools(self, part: float) -> list[str]:
        return [tool for tool in self.tokens if self.chance(part)]

    def catalog(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        for group in self.groups:
            tools = []
            for tool in [tool for tool in self.tokens if tool.partition("/")[0] == group]:
                needs = (
                    self.rng.sample([*GROUP_IDS[:4], *self.groups], self.rng.randint(1, 2)) if self.chance(0.1) else []
                )
                own = self.rng.choice(OWN_NAMES) if self.chance(0.2) else None
                tools.append(_tool(tool.partition("/")[2], self.tokens[tool], list(dict.fromkeys(needs)), own))
            entries.append({"id": group, "up": self.chance(0.9), "tools": tools})
            if self.chance(0.15):
                again = [dict(tool) for tool in tools if self.chance(0.5)]
                for copy in again:
                    if self.chance(0.3):
                        copy.update(self.rng.choice([{"definition": "d3"}, {"needs": [group]}, {"wire_name": "again"}]))
                entries.append({"id": group, "up": self.chance(0.9), "tools": again})
        self.rng.shuffle(entries)
        return entries

    def rules(self, most: int, allow: float = 0.75) -> list[Rule]:
        rules = []
        for rule_id in self.rng.sample(RULE_IDS, self.rng.randint(min(1, most), most)):
            effect = "allow" if self.chance(allow) else self.rng.choice(["ask", "ask", "ask", "deny"])
            on = self.selector(0.65 if effect == "allow" else 0.15 if effect == "ask" else 0.03)
            pin = None
            if effect == "allow" and self.chance(0.35):
                pin = [
                    [tool, self.token(tool)] for tool in self.some_tools(0.8) for _ in range(self.rng.choice([1, 1, 2]))
                ]
            rules.append({"id": rule_id, "effect": effect, "on": on, "pin": pin})
        return rules

    def state(self, broken: float) -> str:
        return self.rng.choice(["missing", "stale", "error"]) if self.chance(broken) else "ok"

    def ceiling(self) -> dict[str, Any]:
        if self.chance(0.5):
            effect = self.rng.choice(["allow", "allow", "allow", "ask", "ask", "ask", "none", "deny"])
            return {"state": self.state(0.04), "effect": effect, "rules": None}
        return {"state": self.state(0.04), "effect": None, "rules": self.rules(4, allow=0.85)}

    def authority(self, depth: int) -> dict[str, Any]:
        """Of a session with `depth` ancestors, unless the line breaks off."""
        sources = self.rng.sample(SOURCE_NAMES, self.rng.choice([0, 1, 1, 2, 2, 3, 4]))
        ceilings = self.rng.sample(CEILING_NAMES, self.rng.choice([0, 0, 0, 1, 1, 2, 3]))
        child = None
        if depth:
            parent = self.rng.choice(["missing", "ended"]) if self.chance(0.06) else self.authority(depth - 1)
            want = None if self.chance(0.05) else ["*"] * self.chance(0.5) + self.selectors() * self.chance(0.9)
            child = {"want": want, "parent": parent}
        return {
            "sources": {name: {"state": self.state(0.03), "rules": self.rules(4)} for name in sources},
            "granted": self.rules(self.rng.choice([0, 1, 3])),
            "ceilings": {name: self.ceiling() for name in ceilings},
            "child": child,
        }

    def loads(self) -> tuple[list[dict[str, Any]], list[str] | None, list[int]]:
        """Events of a transcript tree: the path leads from its root to one entry, history keeps part of the events."""
        parents: dict[str, str | None] = {"n0": None}
        for number in range(1, self.rng.randint(2, 24)):
            parents[f"n{number}"] = f"n{number - 1 if self.chance(0.8) else self.rng.randrange(number)}"
        leaf: str | None = self.rng.choice(list(parents)[-4:])
        path: list[str] = []
        while leaf is not None:
            path.insert(0, leaf)
            leaf = parents[leaf]
        places = sorted(self.rng.choices(range(len(parents)), k=self.rng.randint(0, 20)))
        if self.chance(0.3):
            self.rng.shuffle(places)
        events = []
        for number, place in enumerate(places):
            do = self.rng.choice(["load"] * 6 + ["unload", "removal", "removal"]) if number else "load"
            on = ["*"] if not number and self.chance(0.7) else self.selectors()
            if do != "load" and self.chance(0.8):
                on = [selector for selector in on if selector != "*"] or [self.selector(0)]
            found = self.some_tools(0.9) if do == "load" and self.chance(0.85) else []
            call = f"c{self.rng.choice([number, place])}" if self.chance(0.6) else None
            at = f"n{place}" if self.chance(0.7) else None
            events.append(
                {"do": do, "on": on, "at": at, "call": call, "definitions": {t: self.token(t) for t in found}}
            )
        kept = [index for index in range(len(events)) if self.chance(0.75)]
        if self.chance(0.3):
            self.rng.shuffle(kept)
        return events, path if self.chance(0.6) else [] if self.chance(0.05) else None, kept

    def world(self) -> World:
        loads, path, retained = self.loads()
        limit, chars = self.rng.choice([(64, LETTERS)] * 5 + [(128, "A-Za-z0-9_.-"), (64, "a-z0-9_"), (18, LETTERS)])
        return {
            "profile": {
                "defers": self.chance(0.8),
                "needs_immediate": self.chance(0.4),
                "names": {"limit": limit, "chars": chars},
            },
            "catalog": self.catalog(),
            "loads": loads,
            "path": path,
            "retained": retained,
            "authority": self.authority(self.rng.choice([0, 0, 0, 1, 1, 2, 3])),
        }


def random_world(rng: random.Random) -> World:
    """A larger world: up to 8 groups of 8 tools, 20 events on a transcript tree, 4 sources, 3 ceilings, depth 3."""
    world: World = json.loads(json.dumps(_Random(rng).world()))
    return world
