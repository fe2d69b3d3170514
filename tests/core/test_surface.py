"""Loads on a path, rows with their reasons, wire names; and that a derivation reuses what did not change."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capstate.authority import Authority, Effect, Pool, Source, allow, ask, deny
from capstate.capabilities import Catalog, Group, NameRule, Tool
from capstate.errors import InvalidInputError, Reason
from capstate.loads import Event
from capstate.surface import Load, LoadKind, Surface, by_group, counting, derive, fold
from tests.core.strategies import OPEN, SEEDS, story

ALL = (Load(0, LoadKind.LOAD, ("*",)),)
NAMES = NameRule()


def load(
    sequence: int, *on: str, do: str = "load", at: str | None = None, call: str | None = None, **found: str
) -> Load:
    return Load(sequence, LoadKind(do), on, at, call, {f"g/{name}": token for name, token in found.items()})


def surface(
    *groups: Group, loads: tuple[Load, ...] = ALL, authority: Authority = OPEN, previous: Surface | None = None
) -> Surface:
    return derive(Catalog.of(groups), loads, None, authority, NAMES, previous)


# -- loads


@pytest.mark.parametrize(
    ("places", "path", "order"),
    [
        ([None, "b", "a"], None, [0, 1, 2]),
        ([None, "b", "a"], ["a", "b"], [0, 2, 1]),
        (["b", None, "a", None], ["a", "b"], [2, 0, 1, 3]),
        (["a", "x", None], ["a"], [0, 2]),
        (["x", None], [], [1]),
        (["b", "b", "a"], ["a", "b", "a"], [2, 0, 1]),
        (["b", "a", None, "c"], ["a", "b", "c"], [1, 0, 2, 3]),
    ],
)
def test_events_count_in_order_of_the_path(places: list[str | None], path: list[str] | None, order: list[int]) -> None:
    """By the first place of their entry, then the ledger; one without a place goes with the farthest before it."""
    loads = [load(n, "*", at=at) for n, at in enumerate(places)]

    assert [event.sequence for event in counting(loads, None if path is None else tuple(path))] == order


def test_events_are_dealt_to_the_groups_that_they_can_cover() -> None:
    """A whole group, names of it, everything; other groups see nothing, and a whole unload ends all before it."""
    loads = [
        load(0, "*"),
        load(1, "g/x", "g/y", "h/*"),
        load(2, "g/x", "g/*"),
        load(3, "gone/x", do="removal"),
        load(4, "h/*", do="unload"),
        load(5, "h/x", do="unload"),
    ]

    assert by_group(loads, None, ["g", "h"]) == {
        "g": (Event(loads[0], None), Event(loads[1], frozenset({"x", "y"})), Event(loads[2], None)),
        "h": (Event(loads[5], frozenset({"x"})),),
    }


@pytest.mark.parametrize(
    ("story_", "expected"),
    [
        ("", (False, None)),
        ("L", (True, 0)),
        ("l", (True, None)),
        ("n", (True, None)),
        ("lL", (True, None)),
        ("LL", (True, 0)),
        ("LU", (False, None)),
        ("ULU", (False, None)),
        ("LUL", (True, 2)),
        ("LR", (True, None)),
        ("LRL", (True, 2)),
        ("LRl", (True, None)),
        ("LRLL", (True, 2)),
        ("R", (False, None)),
        ("RL", (True, 1)),
        ("RLL", (True, 1)),
        ("LRUL", (True, 3)),
        ("LxL", (True, 0)),
    ],
)
def test_a_tool_is_loaded_by_the_last_word_on_it(story_: str, expected: tuple[bool, int | None]) -> None:
    """L marks, l has no definition, n has no place; U unloads, R removes; x is about another tool."""
    made = {
        "L": lambda n: load(n, "g/*", at=f"e{n}", t="d"),
        "l": lambda n: load(n, "g/*", at=f"e{n}"),
        "n": lambda n: load(n, "g/*", t="d"),
        "U": lambda n: load(n, "g/*", do="unload", at=f"e{n}"),
        "R": lambda n: load(n, "g/*", do="removal", at=f"e{n}"),
        "x": lambda n: load(n, "g/x", do="unload"),
    }
    events = [Event(made[word](n), frozenset({"x"}) if word == "x" else None) for n, word in enumerate(story_)]
    loaded, mark = fold(events, "t", "g/t")

    assert (loaded, mark.sequence if mark is not None else None) == expected


def test_a_call_alone_gives_a_mark() -> None:
    """The entry may be known by the call whose result it is."""
    event = load(0, "g/*", call="c", t="d")

    assert fold([Event(event, None)], "t", "g/t") == (True, event)


@pytest.mark.parametrize("on", [("g",), ("*/x",), ("g/x", "")])
def test_a_load_names_selectors(on: tuple[str, ...]) -> None:
    """What is no selector would cover nothing without a word."""
    with pytest.raises(InvalidInputError) as raised:
        load(3, *on)
    assert raised.value.place == "load event 3.on"


def test_a_load_is_of_a_known_kind() -> None:
    """Word or member."""
    plain: Any = "unload"
    wrong: Any = "reload"

    assert Load(0, plain, ("*",)).do is LoadKind.UNLOAD
    with pytest.raises(
        InvalidInputError, match=r"^load event 0\.do: expected one of load, unload, removal, got reload$"
    ):
        Load(0, wrong, ("*",))


def test_loads_are_values() -> None:
    """Usable in a set, with definitions that are not; and JSON has every field."""
    one = load(1, "g/*", at="e", call="c", t="d")

    assert len({one, load(1, "g/*", at="e", call="c", t="d"), load(2, "g/*", at="e", call="c")}) == 2
    assert one.to_json() == {
        "at": "e",
        "call": "c",
        "definitions": {"g/t": "d"},
        "do": "load",
        "on": ["g/*"],
        "sequence": 1,
    }


# -- rows


def test_reasons_come_in_their_order() -> None:
    """Each of them alone withholds, and the first of several is named, with what decided and what authority says."""
    both = [Tool("t"), Tool("t", description="2")]
    long = Tool("t", wire_name="not legal", needs=["gone"])
    needy = Tool("t", needs=["gone", "down", "up"])
    pinned = Authority(Pool((Source("c", (allow("*", pin=[("g/t", "b3:other")], id="p"),)),)))
    closed = Authority(Pool((Source("c", (deny("*", id="d"),)),)))
    lost = Authority(Pool(launch=False))
    others = [Group("up"), Group("down", up=False)]
    nothing = (load(0, "h/*"),)

    def row(tools: list[Tool], up: bool = True, **more: Any) -> tuple[Any, ...]:
        found = surface(Group("g", tools, up=up), *others, **more).row("g/t")
        assert found is not None
        return (found.reason, found.decided_by, found.effect)

    assert row(both, up=False, authority=closed) == (Reason.NAME_CONFLICT, "", None)
    assert row([long], authority=closed) == (Reason.NAME_UNREPRESENTABLE, "", None)
    assert row([needy], authority=lost) == (Reason.POLICY_MISSING, "launch!missing", None)
    assert row([needy], authority=closed) == (Reason.NOT_AUTHORISED, "c#d", None)
    assert row([needy], up=False) == (Reason.RESOURCE_UNAVAILABLE, "group g", Effect.ALLOW)
    assert row([needy], authority=pinned) == (Reason.RESOURCE_UNAVAILABLE, "group down", None)
    assert row([Tool("t", needs=["up", "gone"])]) == (Reason.RESOURCE_UNAVAILABLE, "group gone", Effect.ALLOW)
    assert row([Tool("t")], authority=pinned, loads=nothing) == (Reason.SCHEMA_CHANGED, "c#p", None)
    assert row([Tool("t", needs=["up"])], loads=nothing) == (Reason.NOT_LOADED, "", Effect.ALLOW)
    assert row([Tool("t", needs=["up"])]) == (None, f"config#{OPEN.pool.sources[0].rules[0].id}", Effect.ALLOW)


def test_a_group_may_need_itself() -> None:
    """It is up if it is up."""
    for up in (True, False):
        found = surface(Group("g", [Tool("t", needs=["g"])], up=up)).row("g/t")
        assert found is not None
        assert (found.reason is None) is up


def test_rows_are_found_by_qualified_id() -> None:
    """Names with a slash too; a tool or group that is not there has none."""
    found = surface(Group("g", [Tool("a/b"), Tool("c")]), loads=(load(0, "g/c"),))

    assert [found.row(tool) is None for tool in ("g/a/b", "g/c", "g/d", "h/c", "g", "")] == [False, False, *[True] * 4]
    assert list(found.callable) == ["g/c"]
    assert list(found.withheld) == ["g/a/b"]
    assert [row.definition.name for row in found.rows()] == ["a/b", "c"]
    assert {name: row.definition.qualified for name, row in found.wires.items()} == {"g__c": "g/c"}


def test_one_wire_name_for_two_tools_is_for_none() -> None:
    """In one group or in two; what authority says of them stays visible; a third tool is not touched."""
    x, y, z = Tool("x", wire_name="t"), Tool("y", wire_name="t"), Tool("z")
    rules = Authority(Pool((Source("c", (allow("*"), ask("g/y"))),)))
    for groups in ([Group("g", [x, y, z])], [Group("g", [y, z]), Group("h", [x])]):
        found = surface(*groups, authority=rules)
        assert list(found.callable) == ["g/z"]
        assert {(r.reason, r.decided_by, r.mark) for r in found.withheld.values()} == {(Reason.NAME_CONFLICT, "", None)}
        assert {str(r.effect) for r in found.withheld.values()} == {"allow", "ask"}
        assert "t" not in found.wires


def test_equal_surfaces_have_the_same_callable_definitions() -> None:
    """Whatever else is in the catalog, loaded or not; another definition makes another surface."""
    one = surface(Group("g", [Tool("t")]))
    same = surface(Group("g", [Tool("t"), Tool("u")]), Group("h", [Tool("t")]), loads=(load(0, "g/t"),))
    other = surface(Group("g", [Tool("t", description="x")]))

    assert one == same
    assert len({one, same, other}) == 2
    assert one != other
    assert one != "surface"
    assert surface() == surface(Group("g", [Tool("t")]), loads=())


# -- reuse


def test_what_did_not_change_is_kept() -> None:
    """The surface itself when nothing did; the view of each other group, and each other row, when one tool did."""
    g, h = Group("g", [Tool("a"), Tool("b"), Tool("c", needs=["h"])]), Group("h", [Tool("a")])
    first = surface(g, h)
    same = surface(g, h, previous=first)
    changed = surface(Group("g", [Tool("a"), Tool("b", description="x"), Tool("c", needs=["h"])]), h, previous=first)
    down = surface(g, evolve_up(h), previous=first)

    assert same.views is first.views
    assert same.wires is first.wires
    assert changed.views["h"] is first.views["h"]
    assert changed.row("g/a") is first.row("g/a")
    assert changed.row("g/c") is first.row("g/c")
    assert changed.row("g/b") is not first.row("g/b")
    assert down.row("g/a") is first.row("g/a")
    assert down.row("g/c") is not first.row("g/c")
    assert list(down.callable) == ["g/a", "g/b"]


def evolve_up(group: Group) -> Group:
    return Group(group.id, [d.tool for d in group.definitions.values()], up=not group.up)


@given(SEEDS)
def test_reuse_changes_nothing(seed: int) -> None:
    """Along a chain, derived from the surface before or from nothing: the same rows and wire names."""
    before: Surface | None = None
    for facts in story(seed, 6):
        given_facts = (facts.catalog, facts.loads, facts.path, facts.authority, facts.profile.names)
        alone, before = derive(*given_facts), derive(*given_facts, before)
        assert list(alone.rows()) == list(before.rows())
        assert dict(alone.wires) == dict(before.wires)
        assert len(alone.wires) == len(before.wires) == len(alone.callable)
        assert (alone, alone.fingerprint) == (before, before.fingerprint)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "b", "same", "taken"]), st.booleans()), max_size=12))
def test_wire_names_follow_group_by_group(steps: list[tuple[int, str, bool]]) -> None:
    """Groups come, change their names, clash and go; the names are those of the callable rows at each step."""
    groups = {f"g{n}": Group(f"g{n}", [Tool(f"t{i}") for i in range(4)]) for n in range(10)}
    before = surface(*groups.values())
    for number, name, gone in steps:
        id_ = f"g{number}"
        wire = {"same": "taken", "taken": f"g{(number + 1) % 10}__t0"}.get(name)
        groups[id_] = Group(
            id_, [] if gone else [Tool("t0"), Tool(name, wire_name=wire), Tool("z", wire_name=f"z{number}")]
        )
        before = surface(*groups.values(), previous=before)
        alone = surface(*groups.values())
        assert dict(before.wires) == dict(alone.wires) == {r.wire: r for r in alone.callable.values()}
        assert set(before.wires) == set(alone.wires)
        assert list(before.rows()) == list(alone.rows())
        assert all(name in before.wires for name in before.wires)
        assert before.wires.get("nowhere") is None


def test_a_name_that_went_is_gone() -> None:
    """Looked up in a surface that laid a change over the rest."""
    groups = [Group(f"g{n}", [Tool("t")]) for n in range(9)]
    first = surface(*groups)
    after = surface(Group("g0", [Tool("u")]), *groups[1:], previous=first)

    assert after.wires.get("g0__t") is None
    with pytest.raises(KeyError, match="g0__t"):
        after.wires["g0__t"]
    assert after.wires["g0__u"].definition.qualified == "g0/u"
    assert len(after.wires) == 9


def test_twins_in_a_changed_group_are_both_withheld() -> None:
    """One wire name twice within the one group of many that changed."""
    groups = [Group(f"g{n}", [Tool("t")]) for n in range(20)]
    twins = Group("g0", [Tool("a", wire_name="twin"), Tool("b", wire_name="twin"), Tool("t")])
    after = surface(twins, *groups[1:], previous=surface(*groups))

    assert set(after.withheld) == {"g0/a", "g0/b"}
    assert "twin" not in after.wires
    assert len(after.wires) == 20


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_clashes_come_and_go(order: tuple[int, ...]) -> None:
    """Two groups with one wire name are both withheld until one of them leaves, in any order."""
    kinds = {
        0: [Group("a", [Tool("x", wire_name="t")]), Group("b", [Tool("x", wire_name="t")])],
        1: [Group("a", [Tool("x", wire_name="t")])],
        2: [Group("a", [Tool("x")]), Group("b", [Tool("x", wire_name="t"), Tool("y", wire_name="t")])],
    }
    before: Surface | None = None
    for kind in order:
        before = surface(*kinds[kind], previous=before)
        assert list(before.callable) == [[], ["a/x"], ["a/x"]][kind]
        assert dict(before.wires) == dict(surface(*kinds[kind]).wires)


def test_a_changed_authority_is_seen_at_once() -> None:
    """Also where another group's slice is the same."""
    groups = [Group("g", [Tool("t")]), Group("h", [Tool("t")])]
    first = surface(*groups)
    cut = evolve(OPEN, pool=evolve(OPEN.pool, granted=(deny("g/t"),)))
    after = surface(*groups, authority=cut, previous=first)

    assert list(after.callable) == ["h/t"]
    assert after.views["h"] is first.views["h"]
    assert list(surface(*groups, previous=after).callable) == ["g/t", "h/t"]


def test_held_groups_are_named_whole() -> None:
    """Only if all of it is loaded and withheld for one reason."""
    group = Group("g", [Tool("a"), Tool("b")])
    closed = Authority(Pool((Source("c", (deny("*", id="d"),)),)))
    mixed = Authority(Pool((Source("c", (deny("g/a", id="d"), deny("g/b", id="e"))),)))

    assert surface(group, authority=closed).views["g"].held == (("g/*", "not_authorised", "c#d"),)
    assert surface(group, authority=closed, loads=(load(0, "g/a"),)).views["g"].held == (
        ("g/a", "not_authorised", "c#d"),
    )
    assert surface(group, authority=mixed).views["g"].held == (
        ("g/a", "not_authorised", "c#d"),
        ("g/b", "not_authorised", "c#e"),
    )
    assert surface(group).views["g"].held == ()
    assert surface(group, loads=()).views["g"].held == ()
    assert surface(Group("g")).views["g"].held == ()
