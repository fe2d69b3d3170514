"""Places on the wire, their order, and what the wire fingerprint depends on."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from attrs import evolve

from capstate.capabilities import Catalog, Group, NameRule, Tool
from capstate.projection import Issuer, Placed, Profile, Projection, is_sent, project
from capstate.surface import Load, LoadKind, Surface, derive
from tests.core.strategies import OPEN

ANY: Any = None
DEFERS = Profile(Issuer("p", "a", "m"), ANY, "some")
GROUPS = [Group("a", [Tool("x"), Tool("y")]), Group("a-b", [Tool("x")]), Group("c", [Tool("z")])]
PRINTS = {d.qualified: d.fingerprint for group in GROUPS for d in group.definitions.values()}


def load(sequence: int, *on: str, **more: Any) -> Load:
    return Load(sequence, LoadKind.LOAD, on, **{"at": f"e{sequence}", "definitions": PRINTS, **more})


def surface(*loads: Load, groups: list[Group] = GROUPS, names: NameRule = DEFERS.names) -> Surface:
    return derive(Catalog.of(groups), loads, None, OPEN, names)


def names(placed: tuple[Placed, ...]) -> list[str]:
    return [p.definition.qualified for p in placed]


LOADS = (load(0, "c/*"), load(1, "a-b/*", "a/y"), load(2, "a/x"))
FOUND = surface(*LOADS)


def test_deferred_tools_stand_in_order_of_their_place() -> None:
    """Then of the pair of group and name; those without a retained mark are immediate."""
    one, other = project(FOUND, (2, 1, 0), DEFERS), project(FOUND, (0, 1), DEFERS)

    assert names(one.immediate) == []
    assert names(one.deferred) == ["a/x", "a/y", "a-b/x", "c/z"]
    assert [p.mark.load for p in one.deferred if p.mark] == [2, 1, 1, 0]
    assert names(other.immediate) == ["a/x"]
    assert names(other.deferred) == ["c/z", "a/y", "a-b/x"]
    assert names(project(FOUND, (), DEFERS).immediate) == ["a/x", "a/y", "a-b/x", "c/z"]


def test_the_first_place_of_an_event_counts() -> None:
    """A history may hold its entry and the result of its call."""
    assert names(project(FOUND, (1, 0, 1, 2), DEFERS).deferred) == ["a/y", "a-b/x", "c/z", "a/x"]
    assert project(FOUND, (1, 0, 1, 2), DEFERS) == project(FOUND, (1, 0, 2), DEFERS)


def test_a_provider_without_deferral_has_all_immediate() -> None:
    """Whatever is retained."""
    plain = evolve(DEFERS, defers="")

    assert names(project(FOUND, (0, 1, 2), plain).immediate) == ["a/x", "a/y", "a-b/x", "c/z"]
    assert project(FOUND, (0, 1, 2), plain) == project(FOUND, (), plain)
    assert project(FOUND, (), plain) != project(FOUND, (), DEFERS)


def test_a_provider_that_needs_an_immediate_tool() -> None:
    """If none would be, all are; one is enough."""
    needs = evolve(DEFERS, needs_immediate=True)

    assert names(project(FOUND, (0, 1, 2), needs).deferred) == []
    assert names(project(FOUND, (0, 1), needs).deferred) == ["c/z", "a/y", "a-b/x"]
    assert project(surface(), (0,), needs).immediate == ()


def test_a_mark_of_another_definition_is_not_honoured() -> None:
    """The tool is immediate; a mark carries its entry and call."""
    other = [Group("a", [Tool("x", description="new"), Tool("y")])]
    found = surface(load(0, "a/*", at=None, call="c0"), groups=other)
    made = project(found, (0,), DEFERS)

    assert names(made.immediate) == ["a/x"]
    assert [(p.definition.qualified, p.mark and (p.mark.load, p.mark.at, p.mark.call)) for p in made.deferred] == [
        ("a/y", (0, None, "c0"))
    ]
    assert [p.wire for p in (*made.immediate, *made.deferred)] == ["a__x", "a__y"]


def prints(*loads: Load, retained: tuple[int, ...] = (), profile: Profile = DEFERS, **more: Any) -> str:
    return project(surface(*loads, names=profile.names, **more), retained, profile).fingerprint


def test_the_wire_fingerprint_covers_what_rendering_depends_on() -> None:
    """API, deferral, definitions, wire names, which are deferred, and their order and grouping by place."""
    two = (load(0, "a/*"), load(1, "c/*"))
    apart = (load(0, "a/x"), load(1, "a/y"), load(2, "c/*"))
    renamed = [Group("a", [Tool("x", wire_name="other"), Tool("y")]), *GROUPS[1:]]
    found = [
        prints(*two),
        prints(*two, profile=evolve(DEFERS, defers="other")),
        prints(*two, profile=evolve(DEFERS, issuer=Issuer("p", "b", "m"))),
        prints(two[0]),
        prints(*two, groups=renamed),
        prints(*two, retained=(0,)),
        prints(*two, retained=(1,)),
        prints(*two, retained=(0, 1)),
        prints(*two, retained=(1, 0)),
        prints(*apart, retained=(0, 1, 2)),
        prints(*apart, retained=(1, 0, 2)),
        prints(),
    ]

    assert len(set(found)) == len(found)


def test_the_wire_fingerprint_covers_nothing_else() -> None:
    """Not numbers of events, ids of entries, model, account, or what is not callable."""
    base = prints(load(0, "a/*"), load(1, "c/*"), retained=(0, 1))
    same = [
        prints(load(7, "a/*", at="other"), load(9, "c/*", at=None, call="c"), retained=(7, 9)),
        prints(load(0, "a/*"), load(1, "c/*"), load(2, "d/*"), retained=(2, 0, 1)),
        prints(
            load(0, "a/*"), load(1, "c/*"), retained=(0, 1), profile=evolve(DEFERS, issuer=Issuer("q", "a", "n", "k"))
        ),
        prints(load(0, "a/*"), load(1, "c/*"), retained=(0, 1), groups=[*GROUPS, Group("d", [Tool("t")])]),
    ]

    assert set(same) == {base}


def test_opaque_items_of_others_are_dropped() -> None:
    """By the whole binding of their issuer; they change no tool."""
    mine = DEFERS.issuer.id
    opaque = (("m1", mine), ("m2", f"{mine}x"), ("m3", ""))
    made = project(FOUND, (), DEFERS, opaque)

    assert made.dropped == ("m2", "m3")
    assert made == project(FOUND, (), DEFERS)


def test_blocks_are_kept_while_nothing_in_them_changes() -> None:
    """Of each group whose rows and honoured marks are the same."""
    first = project(FOUND, (0, 1), DEFERS)
    same = project(FOUND, (0, 1), DEFERS, (), first)
    fewer = project(FOUND, (0,), DEFERS, (), first)

    assert all(same.blocks[id_] is block for id_, block in first.blocks.items())
    assert {id_: fewer.blocks[id_] is block for id_, block in first.blocks.items()} == {
        "a": False,
        "a-b": False,
        "c": True,
    }
    assert fewer == project(FOUND, (0,), DEFERS)
    assert isinstance(hash(fewer), int)
    assert fewer != Projection({}, (), (), "")


def test_no_two_issuers_share_an_id() -> None:
    """A separator within a part is not one between parts."""
    parts = ["a", "/", "%", "%2F", "a/b", "", "b", "2F", "%25"]
    issuers = [Issuer(*four) for four in itertools.product(parts, repeat=4)]

    assert len({issuer.id for issuer in issuers}) == len(issuers)
    assert Issuer("anthropic", "anthropic-messages", "claude", "team/7%").id == (
        "anthropic/anthropic-messages/claude/team%2F7%25"
    )


SENT = Tool("log", description="Shows commits.", schema={"type": "object", "required": ["ref"]})


@pytest.mark.parametrize(
    ("sent", "same"),
    [
        ({"description": "Shows commits.", "schema": {"required": ["ref"], "type": "object"}}, True),
        ({"description": "Shows commits", "schema": {"required": ["ref"], "type": "object"}}, False),
        ({"schema": {"required": ["ref"], "type": "object"}}, False),
        ({"description": "Shows commits.", "schema": {"type": "object"}}, False),
        ({"description": "Shows commits."}, False),
        ({"description": "Shows commits.", "schema": "object"}, False),
        ({"description": "Shows commits.", "schema": {"required": [float("nan")], "type": "object"}}, False),
        ({"description": "Shows commits.", "schema": {"required": ["ref"], "type": "object"}, "type": "shell"}, False),
        ({"description": "Shows commits.", "schema": {"required": ["ref"], "type": "object"}, "keys": {"x": 1}}, False),
    ],
    ids=["same", "description", "no description", "schema", "no schema", "text", "no JSON", "type", "more keys"],
)
def test_what_was_sent_is_a_definition_only_to_the_byte(sent: dict[str, Any], same: bool) -> None:
    """Description and schema, in any order of keys, and nothing beside them; what is no JSON is none of ours."""
    assert is_sent(Group("git", [SENT]).definitions["log"], sent) is same


def test_a_tool_without_description_may_be_sent_without_one() -> None:
    """Absent is the empty text."""
    bare = Group("git", [Tool("log")]).definitions["log"]
    assert is_sent(bare, {"schema": dict(bare.tool.schema)})
    assert not is_sent(bare, {"schema": dict(bare.tool.schema), "description": "Shows all."})
