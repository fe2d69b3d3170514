"""The model of the specification against the authority table and against worlds worked out by hand."""

import json
import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.model import predict
from tests.worlds import count_small_worlds, random_world, small_world, small_worlds

TABLE = json.loads((Path(__file__).parent / "table.json").read_text(encoding="utf-8"))

ALLOW = {"id": "r", "effect": "allow", "on": "*", "pin": None}
REASONS = {
    "name_conflict",
    "name_unrepresentable",
    "policy_missing",
    "not_authorised",
    "resource_unavailable",
    "schema_changed",
    "not_loaded",
}


def rule(name: str, effect: str, on: str, pin: list[list[str]] | None = None) -> dict[str, Any]:
    return {"id": name, "effect": effect, "on": on, "pin": pin}


def authority(*rules: dict[str, Any], **parts: Any) -> dict[str, Any]:
    config = {"config": {"state": "ok", "rules": list(rules)}}
    return {"sources": config, "granted": [], "ceilings": {}, "child": None} | parts


def tool(
    name: str, definition: str = "d1", needs: tuple[str, ...] = (), wire_name: str | None = None
) -> dict[str, Any]:
    return {"name": name, "definition": definition, "needs": list(needs), "wire_name": wire_name}


def group(name: str, *tools: dict[str, Any], up: bool = True) -> dict[str, Any]:
    return {"id": name, "up": up, "tools": list(tools)}


def event(do: str, *on: str, at: str | None = None, call: str | None = None, **found: str) -> dict[str, Any]:
    """`found` maps a name in group g to a token."""
    definitions = {f"g/{name}": token for name, token in found.items()}
    return {"do": do, "on": list(on), "at": at, "call": call, "definitions": definitions}


def world(*catalog: dict[str, Any], limit: int = 64, chars: str = "A-Za-z0-9_-", **parts: Any) -> dict[str, Any]:
    """All that is in the catalog is loaded and allowed unless `parts` say otherwise."""
    names = {"limit": limit, "chars": chars}
    facts = {
        "profile": {"defers": True, "needs_immediate": False, "names": names},
        "catalog": list(catalog),
        "loads": [event("load", "*")],
        "path": None,
        "retained": [],
        "authority": authority(ALLOW),
    }
    return facts | parts


def reasons(facts: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {name: (why["reason"], why["decided_by"]) for name, why in predict(facts)["withheld"].items()}


def marks(facts: dict[str, Any]) -> dict[str, int | None]:
    return {name: what["at"] for name, what in predict(facts)["callable"].items()}


@pytest.mark.parametrize("row", TABLE, ids=[row["title"] for row in TABLE])
def test_table(row: dict[str, Any]) -> None:
    """Each row of the authority table holds."""
    assert predict(row["world"]) == row["answer"]


def test_annex() -> None:
    """Facts like those that the specification prints, with the grant narrowed to git/log, have the answer it prints."""
    facts = {
        "profile": {"defers": True, "needs_immediate": False, "names": {"limit": 64, "chars": "A-Za-z0-9_-"}},
        "catalog": [group("git", tool("log"), tool("push"))],
        "loads": [{"do": "load", "on": ["git/*"], "at": "e1", "call": None, "definitions": {"git/log": "d1"}}],
        "path": None,
        "retained": [0],
        "authority": {
            "sources": {"config": {"state": "ok", "rules": [rule("g1", "allow", "git/log")]}},
            "granted": [rule("g2", "allow", "git/log", [["git/log", "d1"]])],
            "ceilings": {"trust": {"state": "ok", "effect": "ask", "rules": None}},
            "child": None,
        },
    }
    assert predict(facts) == {
        "callable": {"git/log": {"effect": "ask", "decided_by": "ceiling trust", "at": 0}},
        "withheld": {"git/push": {"reason": "not_authorised", "decided_by": "pool"}},
        "order": ["git/log"],
    }


def test_order_is_of_pairs() -> None:
    """`a/x` stands before `a-b/x`, though the joined text of the second is less."""
    assert predict(world(group("a-b", tool("x")), group("a", tool("x"))))["order"] == ["a/x", "a-b/x"]


def test_selector_names_no_other_group() -> None:
    """`a/*` covers a tool whose own name holds a slash, and nothing of a group whose id merely begins with `a`."""
    facts = world(group("a", tool("deep/er")), group("a-b", tool("x")), authority=authority(rule("r", "allow", "a/*")))
    assert predict(facts)["order"] == ["a/deep/er"]
    assert reasons(facts) == {"a-b/x": ("not_authorised", "pool")}


def test_wire_names() -> None:
    """A clean name of six characters fits a limit of six; one that is not clean needs nineteen; an own one must fit."""
    catalog = group("g", tool("abc"), tool("a_b"), tool("a__b"), tool("y", wire_name="own.y"), tool("z", wire_name=""))
    all_but_own = {"g/a__b", "g/a_b", "g/abc"}
    lost = ("name_unrepresentable", "")
    assert set(reasons(world(catalog, limit=6))) == {"g/a__b", "g/y", "g/z"}
    assert set(reasons(world(catalog, limit=18))) == {"g/a__b", "g/y", "g/z"}
    assert reasons(world(catalog, limit=19)) == {"g/y": lost, "g/z": lost}
    assert set(predict(world(catalog, limit=5))["callable"]) == set()
    assert set(predict(world(catalog, limit=64, chars="A-Za-z0-9_.-"))["callable"]) == all_but_own | {"g/y"}
    assert set(predict(world(catalog, limit=64, chars="a-z_"))["callable"]) == all_but_own - {"g/a__b"}


def test_own_name_takes_the_derived_name_of_another() -> None:
    """Both members of a pair with one wire name are withheld, unless the other is withheld for a reason of its own."""
    catalog = [group("g", tool("x"), tool("y", wire_name="g__x"))]
    both = {"g/x": ("name_conflict", ""), "g/y": ("name_conflict", "")}
    assert reasons(world(*catalog)) == both
    only_x = [event("load", "g/x")]
    assert reasons(world(*catalog, loads=only_x)) == {"g/y": ("not_loaded", "")}


def test_two_groups_of_one_id() -> None:
    """Equal claims are one tool, unequal ones conflict before all else, and the group is up only if both parts are."""
    first = group("g", tool("same"), tool("other"), tool("needy"))
    second = group("g", tool("same"), tool("other", "d2"), tool("needy", needs=("g",)), up=False)
    assert reasons(world(first, second, authority=authority())) == {
        "g/same": ("not_authorised", "pool"),
        "g/other": ("name_conflict", ""),
        "g/needy": ("name_conflict", ""),
    }
    assert reasons(world(first, second))["g/same"] == ("resource_unavailable", "group g")


def test_first_resource_that_lacks() -> None:
    """The own group is named before the needed ones, these in order; one that is not in the catalog counts as down."""
    needy = tool("x", needs=("up", "gone", "late"))
    others = [group("up"), group("late", up=False)]
    assert reasons(world(group("g", needy), *others)) == {"g/x": ("resource_unavailable", "group gone")}
    assert reasons(world(group("g", needy, up=False), *others)) == {"g/x": ("resource_unavailable", "group g")}


def test_changed_definition() -> None:
    """A changed definition is told apart from no authority; a resource that is down is named first, loading last."""
    pinned = authority(rule("r2", "allow", "g/*", [["g/x", "d1"]]), rule("r1", "allow", "*", [["g/x", "d0"]]))
    facts = world(group("g", tool("x", "d2"), tool("y")), loads=[], authority=pinned)
    assert reasons(facts) == {"g/x": ("schema_changed", "config#r1"), "g/y": ("not_authorised", "pool")}
    facts["catalog"][0]["up"] = False
    assert reasons(facts)["g/x"] == ("resource_unavailable", "group g")


def test_ask_beats_changed_in_the_pool_but_not_between_components() -> None:
    """Within a set of rules an ask that covers outweighs an outdated pin; between components `changed` is less."""
    outdated, ask = rule("a", "allow", "*", [["g/x", "d0"]]), rule("b", "ask", "g/x")
    facts = world(group("g", tool("x")), authority=authority(outdated, ask))
    assert predict(facts)["callable"]["g/x"] == {"effect": "ask", "decided_by": "config#b", "at": None}
    ceiling = {"trust": {"state": "ok", "effect": None, "rules": [outdated]}}
    facts["authority"] = authority(ask, ceilings=ceiling)
    assert reasons(facts) == {"g/x": ("schema_changed", "ceiling trust#a")}


def test_first_of_equals_decides() -> None:
    """`deny` and `none` weigh the same, and of equals the pool, then the first ceiling by name, decides."""
    denies = {"state": "ok", "effect": "deny", "rules": None}
    asks = {"state": "ok", "effect": "ask", "rules": None}
    facts = world(group("g", tool("x")), authority=authority(ceilings={"z": denies}))
    assert reasons(facts) == {"g/x": ("not_authorised", "pool")}
    facts["authority"] = authority(ALLOW, ceilings={"b": asks, "B": asks})
    assert predict(facts)["callable"]["g/x"]["decided_by"] == "ceiling B"


def test_source_that_is_not_ok() -> None:
    """One source that is not ok empties the whole pool, even of a rule that denies; the least by name is named."""
    sources = {
        "config": {"state": "ok", "rules": [rule("r", "deny", "*")]},
        "zoo": {"state": "error", "rules": []},
        "job": {"state": "stale", "rules": [ALLOW]},
    }
    facts = world(group("g", tool("x")), authority=authority(sources=sources, granted=[ALLOW]))
    assert reasons(facts) == {"g/x": ("not_authorised", "job!stale")}


def test_child() -> None:
    """A child is allowed what it wants and its parent has; its own allow rules and asks add nothing, an ask cuts."""
    parent = authority(rule("p", "allow", "g/*"))
    child = {"want": ["g/x", "g/y", "h/*"], "parent": parent}
    own = authority(rule("a", "allow", "*"), rule("b", "ask", "g/y"), rule("c", "ask", "g/z"), child=child)
    facts = world(group("g", tool("x"), tool("y"), tool("z")), group("h", tool("x")), authority=own)
    assert predict(facts) == {
        "callable": {
            "g/x": {"effect": "allow", "decided_by": "want#g/x", "at": None},
            "g/y": {"effect": "ask", "decided_by": "config#b", "at": None},
        },
        "withheld": {
            "g/z": {"reason": "not_authorised", "decided_by": "pool"},
            "h/x": {"reason": "not_authorised", "decided_by": "parent: pool"},
        },
        "order": ["g/x", "g/y"],
    }


def test_missing_want() -> None:
    """A missing want is named before a source that is not ok; a missing want of the parent is only no authority."""
    broken = {"config": {"state": "error", "rules": []}}
    lost = authority(sources=broken, child={"want": None, "parent": "ended"})
    facts = world(group("g", tool("x"), up=False), authority=lost)
    assert reasons(facts) == {"g/x": ("policy_missing", "launch!missing")}
    facts["authority"] = authority(child={"want": ["*"], "parent": lost})
    assert reasons(facts) == {"g/x": ("not_authorised", "parent: launch!missing")}


def test_grandchild() -> None:
    """What decides at the top is told at every depth, and a parent that has ended or is missing gives nothing."""
    top: Any = authority(rule("p", "allow", "*", [["g/x", "d0"], ["g/y", "d1"]]))
    ceiling = {"trust": {"state": "ok", "effect": "ask", "rules": None}}
    middle = authority(ceilings=ceiling, child={"want": ["g/*"], "parent": top})
    facts = world(group("g", tool("x"), tool("y")), authority=authority(child={"want": ["*"], "parent": middle}))
    assert reasons(facts) == {"g/x": ("schema_changed", "parent: parent: config#p")}
    assert predict(facts)["callable"]["g/y"]["decided_by"] == "parent: ceiling trust"
    middle["child"]["parent"] = "ended"
    assert reasons(facts)["g/y"] == ("not_authorised", "parent: parent!ended")


def test_marks() -> None:
    """The first load of a tool gives its mark; deferral needs the event kept and the definition as it was found."""
    loads = [
        event("load", "g/x", at="e1", x="d1"),
        event("load", "g/*", call="c2", x="d1", y="d1", z="d0"),
        event("load", "*", v="d1"),
        event("load", "*", at="e4", v="d1", w="d1"),
    ]
    facts = world(group("g", *(tool(name) for name in "vwxyz")), loads=loads, retained=[1, 0, 2, 3])
    loads[1]["on"] = ["g/y", "g/z"]
    assert marks(facts) == {"g/v": None, "g/w": None, "g/x": 0, "g/y": 1, "g/z": None}
    assert predict(facts)["order"] == ["g/v", "g/w", "g/z", "g/y", "g/x"]
    facts["retained"] = [0]
    assert predict(facts)["order"] == ["g/v", "g/w", "g/y", "g/z", "g/x"]


def test_removal() -> None:
    """A removal takes the mark and not the wish; the next load marks anew; an unload takes the wish."""
    loads = [event("load", "*", at="e1", x="d1"), event("removal", "g/x", at="e2")]
    facts = world(group("g", tool("x")), loads=loads, retained=[0, 1, 2])
    assert marks(facts) == {"g/x": None}
    loads.append(event("load", "g/x", at="e3", x="d1"))
    assert marks(facts) == {"g/x": 2}
    loads.append(event("unload", "*"))
    assert reasons(facts) == {"g/x": ("not_loaded", "")}
    loads.append(event("removal", "*"))
    assert reasons(facts) == {"g/x": ("not_loaded", "")}


def test_path() -> None:
    """With a path, order is that of its entries, an event off it is none, and one without a place follows the rest."""
    loads = [
        event("unload", "g/x", at="e3"),
        event("load", "g/*", at="e1", x="d1", y="d1"),
        event("unload", "g/y", at="off"),
        event("load", "g/x", call="c", x="d1"),
    ]
    facts = world(group("g", tool("x"), tool("y")), loads=loads, retained=[1, 3])
    assert marks(facts) == {"g/x": 1}  # in ledger order
    facts["path"] = ["e1", "e2", "e3"]  # load at e1, unload of x at e3, and there, later in the ledger, load of x
    assert marks(facts) == {"g/x": 3, "g/y": 1}
    facts["path"] = []  # only the event without a place counts
    assert marks(facts) == {"g/x": 3}


def test_event_without_place_before_all_others() -> None:
    """An event without `at` that no counting event precedes in the ledger is taken before everything."""
    loads = [event("load", "*", at="off"), event("unload", "*"), event("load", "*", at="e1", x="d1")]
    facts = world(group("g", tool("x")), loads=loads, path=["e1"], retained=[2])
    assert marks(facts) == {"g/x": 2}


def test_provider_needs_an_immediate_tool() -> None:
    """If every callable tool would be deferred, none is; a withheld one does not count as immediate."""
    profile = {"defers": True, "needs_immediate": True, "names": {"limit": 64, "chars": "A-Za-z0-9_-"}}
    loads = [event("load", "*", at="e1", x="d1", y="d1")]
    rules = authority(rule("r", "allow", "g/*"))
    catalog = [group("g", tool("x"), tool("y")), group("h", tool("z"))]
    facts = world(*catalog, profile=profile, loads=loads, retained=[0], authority=rules)
    assert marks(facts) == {"g/x": None, "g/y": None}
    rules["granted"] = [rule("k", "allow", "h/z")]
    assert marks(facts) == {"g/x": 0, "g/y": 0, "h/z": None}
    assert predict(facts)["order"] == ["h/z", "g/x", "g/y"]
    profile["defers"] = False
    assert predict(facts)["order"] == ["g/x", "g/y", "h/z"]


@pytest.mark.parametrize("stride", [1, 1009, 10_000_019, 1_000_000_007])
def test_strides_visit_everything_together(stride: int) -> None:
    """Any stride through the enumeration meets distinct worlds, every reason, and every kind of callable tool."""
    seen: set[str] = set()
    found: Counter[object] = Counter()
    for facts in islice(small_worlds(stride, offset=7), 3000):
        seen.add(json.dumps(facts))
        answer = predict(facts)
        found.update(why["reason"] for why in answer["withheld"].values())
        found.update((what["effect"], what["at"] is None) for what in answer["callable"].values())
        child = facts["authority"]["child"]
        found.update({("child", child is not None), ("path", facts["path"] is None), ("loads", len(facts["loads"]))})
    assert len(seen) == 3000
    kinds = {(effect, immediate) for effect in ("allow", "ask") for immediate in (True, False)}
    rest = {(name, flag) for name in ("child", "path") for flag in (True, False)} | {("loads", 2), ("loads", 3)}
    assert found.keys() >= REASONS | kinds | rest


def test_enumeration_is_decoded() -> None:
    """A world follows from its index alone, the last one included, and its parts are its own."""
    assert count_small_worlds() > 2_000_000
    last = count_small_worlds() - 1
    assert list(small_worlds(stride=3, offset=last)) == [small_world(last)]
    assert next(small_worlds(stride=5, offset=12)) == small_world(12)
    changed = small_world(12)
    changed["authority"]["ceilings"]["extra"] = None
    changed["profile"]["names"]["limit"] = 0
    assert small_world(12) != changed


def test_random_worlds_are_interesting() -> None:
    """Random worlds follow from the seed; callable, deferred and withheld tools of all reasons are common."""
    rng = random.Random(4)
    facts = [random_world(rng) for _ in range(400)]
    again = random.Random(4)
    assert facts[:5] == [random_world(again) for _ in range(5)]
    answers = [predict(one) for one in facts]
    assert sum(bool(answer["callable"]) for answer in answers) > 100
    assert sum(bool(answer["withheld"]) for answer in answers) > 100
    assert sum(any(what["at"] is not None for what in answer["callable"].values()) for answer in answers) > 30
    assert {why["reason"] for answer in answers for why in answer["withheld"].values()} == REASONS
