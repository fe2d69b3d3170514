from __future__ import annotations

import itertools
import json
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capstate.capabilities import Catalog, Group, Tool, ToolEffect
from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import InvalidInputError

PUSH = Tool("push", description="Push commits.")
LOG = Tool("log", effect="read")


def test_what_nobody_declared_is_external_and_cautious() -> None:
    """The defaults of a tool promise nothing."""
    tool = Tool("push")

    assert tool.effect is ToolEffect.EXTERNAL
    assert (tool.idempotent, tool.needs, tool.reaches, tool.loads, tool.wire_name) == (False, (), None, False, None)
    assert (tool.description, tool.annotations) == ("", {})
    assert tool.schema == {"properties": {}, "type": "object"}


def test_a_definition_is_all_that_was_declared() -> None:
    """The canonical bytes hold every argument under its own name, and the attributes give them back."""
    tool = Tool(
        "run",
        description="Runs it.",
        schema={"type": "object"},
        annotations={"title": "Run"},
        effect="read",
        idempotent=True,
        needs=["vpn", "db"],
        reaches="inner",
        loads=True,
        wire_name="run_it",
    )

    assert json.loads(tool.encoded) == {
        "annotations": {"title": "Run"},
        "description": "Runs it.",
        "effect": "read",
        "idempotent": True,
        "loads": True,
        "name": "run",
        "needs": ["db", "vpn"],
        "reaches": "inner",
        "schema": {"type": "object"},
        "wire_name": "run_it",
    }
    assert tool.encoded == canonical(json.loads(tool.encoded))
    assert (tool.description, tool.schema, tool.annotations) == ("Runs it.", {"type": "object"}, {"title": "Run"})
    assert (tool.name, tool.effect, tool.idempotent, tool.needs) == ("run", ToolEffect.READ, True, ("db", "vpn"))
    assert (tool.reaches, tool.loads, tool.wire_name) == ("inner", True, "run_it")


def test_an_empty_schema_is_kept_as_it_is() -> None:
    """Only a missing schema gets the default."""
    assert Tool("x", schema={}).schema == {}


@pytest.mark.parametrize(
    "change",
    [
        {"description": "x"},
        {"schema": {"type": "string"}},
        {"annotations": {"a": 1}},
        {"effect": "read"},
        {"idempotent": True},
        {"needs": ["db"]},
        {"reaches": "tool"},
        {"loads": True},
        {"wire_name": "w"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_change_of_a_definition_changes_its_fingerprint(change: dict[str, Any]) -> None:
    """So that no grant or mark for the old one reaches the new one."""
    old, new = (Group("g", [tool]).definitions["t"] for tool in (Tool("t"), Tool("t", **change)))

    assert old.fingerprint != new.fingerprint
    assert old != new


def test_a_returned_schema_is_a_copy() -> None:
    """Writing into it changes nothing."""
    tool = Tool("x", schema={"type": "object"}, annotations={"a": 1})
    tool.schema["type"] = "string"
    tool.annotations["a"] = 2

    assert tool.schema == {"type": "object"}
    assert tool.annotations == {"a": 1}


@pytest.mark.parametrize("name", ["", "*", None, 3])
def test_a_tool_needs_a_name(name: Any) -> None:
    """Empty, the wildcard, or no text: refused with its place."""
    with pytest.raises(InvalidInputError, match=r"expected a non-empty name other than '\*', got") as raised:
        Tool(name)
    assert raised.value.place == f"tool {name!r}"
    assert raised.value.expected == "a non-empty name other than '*'"


@pytest.mark.parametrize("id", ["", "*", None, "a/b", "/"])
def test_a_group_needs_an_id_without_a_slash(id: Any) -> None:  # noqa: A002 - the word of the design
    """Else two groups could claim one qualified name."""
    with pytest.raises(InvalidInputError) as raised:
        Group(id)
    assert raised.value.place == f"group {id!r}"
    assert raised.value.expected == "a non-empty name other than '*', without '/'"


def test_an_unknown_effect_is_refused() -> None:
    """With the place and the two words there are."""
    with pytest.raises(InvalidInputError) as raised:
        Tool("x", effect="write")  # type: ignore[arg-type]
    assert (raised.value.place, raised.value.expected) == ("tool 'x'.effect", "'read' or 'external'")
    assert raised.value.got == "write"


def test_a_schema_that_is_no_json_is_refused_with_the_tool() -> None:
    """The place is the tool."""
    with pytest.raises(InvalidInputError, match=r"^tool 'x': "):
        Tool("x", schema={"maximum": float("nan")})


def test_a_stranger_computes_the_fingerprints() -> None:
    """Of a definition: group, server (absent or marked) and canonical bytes; of a group: id and its definitions."""
    bare, served = Group("git", [LOG, PUSH]), Group("git", [PUSH], server="s1")
    log, push = (bare.definitions[name].fingerprint for name in ("log", "push"))

    assert log == fingerprint(Domain.TOOL, b"git", b"", LOG.encoded)
    assert served.definitions["push"].fingerprint == fingerprint(Domain.TOOL, b"git", b"\x00s1", PUSH.encoded)
    assert bare.fingerprint == fingerprint(
        Domain.GROUP, b"git", json.dumps([log, push], separators=(",", ":")).encode()
    )


def test_no_server_is_not_a_server_without_a_name() -> None:
    """Absent and empty are told apart."""
    assert Group("g", [LOG]).definitions["log"] != Group("g", [LOG], server="").definitions["log"]


def test_a_definition_knows_its_place() -> None:
    """Group, name, qualified id and server."""
    definition = Group("fs", [Tool("a/b")], server="s").definitions["a/b"]

    assert (definition.group, definition.name, definition.qualified) == ("fs", "a/b", "fs/a/b")
    assert definition.server == "s"


def test_definitions_are_equal_by_fingerprint() -> None:
    """Also as members of a set; and never equal to something else."""
    one, same = (Group("g", [Tool("t")]).definitions["t"] for _ in range(2))
    other = Group("h", [Tool("t")]).definitions["t"]

    assert one == same
    assert len({one, same, other}) == 2
    assert one != one.fingerprint


def test_order_of_arrival_is_no_part_of_a_group() -> None:
    """Six orders of three tools are one group, sorted by name."""
    tools = [Tool("c"), Tool("a"), Tool("b")]
    groups = [Group("g", order) for order in itertools.permutations(tools)]

    assert {group.fingerprint for group in groups} == {groups[0].fingerprint}
    assert all(list(group.definitions) == ["a", "b", "c"] for group in groups)
    assert groups[0].conflicts == frozenset()


def test_the_same_tool_twice_is_one_tool() -> None:
    """No conflict, and the same group."""
    twice = Group("g", [LOG, Tool("log", effect="read")])

    assert twice.conflicts == frozenset()
    assert twice == Group("g", [LOG])


def test_two_tools_of_one_name_are_a_conflict_in_any_order() -> None:
    """The kept definition is that of least fingerprint, and the group's fingerprint covers both."""
    one, two = Tool("t", description="1"), Tool("t", description="2")
    forth, back = Group("g", [one, two, LOG]), Group("g", [LOG, two, one])
    prints = sorted(Group("g", [tool]).definitions["t"].fingerprint for tool in (one, two))

    assert forth.conflicts == back.conflicts == {"t"}
    assert forth == back
    assert forth.definitions["t"].fingerprint == back.definitions["t"].fingerprint == prints[0]
    assert forth != Group("g", [one, LOG])
    assert forth != Group("g", [two, LOG])
    covered = [forth.definitions["log"].fingerprint, *prints]
    assert forth.fingerprint == fingerprint(Domain.GROUP, b"g", json.dumps(covered, separators=(",", ":")).encode())


def test_a_group_that_is_down_is_another_value_of_the_same_definitions() -> None:
    """``up`` is compared and hashed, but no part of the fingerprint."""
    up, down = Group("g", [LOG]), Group("g", [LOG], up=False)

    assert (up.up, down.up) == (True, False)
    assert up.fingerprint == down.fingerprint
    assert up != down
    assert len({up, down, Group("g", [LOG])}) == 2
    assert up != "g"


def test_a_catalog_is_sorted_by_group_and_finds_by_qualified_id() -> None:
    """A name with a slash is found as well; what is not there is None."""
    catalog = Catalog.of([Group("git", [LOG]), Group("fs", [Tool("a/b")])])
    found = catalog.find("fs/a/b")

    assert list(catalog.groups) == ["fs", "git"]
    assert found is not None
    assert found.name == "a/b"
    assert [catalog.find(name) for name in ("git/push", "web/log", "git", "", "log")] == [None] * 5


def test_catalogs_are_equal_by_value() -> None:
    """In any order of arrival, and never equal to something else."""
    groups = [Group("a", [LOG]), Group("b", [PUSH])]
    one, same, other = Catalog.of(groups), Catalog.of(groups[::-1]), Catalog.of(groups[:1])

    assert one == same
    assert one == one  # noqa: PLR0124 - the short way
    assert len({one, same, other}) == 2
    assert one != other
    assert one != one.groups


def test_something_else_than_a_group_is_refused() -> None:
    """With the place."""
    with pytest.raises(InvalidInputError, match=r"^catalog: expected capability groups, got git$"):
        Catalog.of(["git"])  # type: ignore[list-item]


@pytest.mark.parametrize(("a", "b"), list(itertools.product([True, False], repeat=2)))
def test_parts_of_a_group_are_up_together(a: bool, b: bool) -> None:
    """Two groups of one id are one with the tools of both, up only if both are."""
    merged = Catalog.of([Group("g", [LOG], up=a), Group("g", [PUSH], up=b)]).groups["g"]

    assert list(merged.definitions) == ["log", "push"]
    assert merged.up is (a and b)


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=3), min_size=1, max_size=4))
def test_a_split_group_is_the_whole_group(parts: list[list[str]]) -> None:
    """However the tools of one group arrive, the catalog is that of one group with all of them."""
    tools = [[Tool(name) for name in part] for part in parts]
    split = Catalog.of(Group("g", part) for part in tools)

    assert split == Catalog.of([Group("g", [tool for part in tools for tool in part])])


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_conflict_outlives_a_merge(order: tuple[int, ...]) -> None:
    """A name that conflicted in a part, or conflicts between parts, conflicts in the whole."""
    one, two = Tool("t", description="1"), Tool("t", description="2")
    parts = [Group("g", [one, two]), Group("g", [one]), Group("g", [LOG])]
    merged = Catalog.of(parts[i] for i in order).groups["g"]
    between = Catalog.of([Group("g", [one]), Group("g", [two])]).groups["g"]

    assert merged.conflicts == {"t"}
    assert between.conflicts == {"t"}


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("annotations", [], "an object"),
        ("description", None, "text"),
        ("effect", ["read"], "'read' or 'external'"),
        ("effect", None, "'read' or 'external'"),
        ("idempotent", 1, "True or False"),
        ("loads", "yes", "True or False"),
        ("needs", "web", "a list of group ids"),
        ("needs", 3, "a list of group ids"),
        ("needs", [""], "a non-empty name other than '*', without '/'"),
        ("needs", ["a/b"], "a non-empty name other than '*', without '/'"),
        ("needs", [None], "a non-empty name other than '*', without '/'"),
        ("reaches", 1, "text or None"),
        ("schema", "object", "an object"),
        ("wire_name", b"x", "text or None"),
    ],
)
def test_a_field_of_another_type_is_refused(field: str, value: Any, expected: str) -> None:
    """Never coerced: 1 is not True, and a text is not a list of letters. The error names tool and field."""
    with pytest.raises(InvalidInputError) as raised:
        Tool("x", **{field: value})
    assert (raised.value.place, raised.value.expected) == (f"tool 'x'.{field}", expected)


def test_a_definition_has_one_form_however_it_was_given() -> None:
    """Members for words, other mappings for objects, needs in any order, twice, or as a set."""
    plain = Tool(
        "x", effect="read", schema={"a": 1}, annotations={"b": 2}, needs=["a", "b"], reaches="r", wire_name="w"
    )
    other = Tool(
        "x",
        effect=ToolEffect.READ,
        schema=MappingProxyType({"a": 1}),
        annotations=OrderedDict(b=2),
        needs={"b", "a"},
        reaches="r",
        wire_name="w",
    )

    assert plain == other
    assert plain.encoded == other.encoded
    assert (other.effect, other.needs) == (ToolEffect.READ, ("a", "b"))
    assert Tool("x", needs=("b", "a", "b")).needs == ("a", "b")
    assert Tool("x", needs=("b", "a")).encoded == Tool("x", needs=["a", "b"]).encoded
    assert {plain, other, Tool("y")} == {plain, Tool("y")}
    assert plain != plain.encoded


def test_text_that_nobody_can_write_down_is_refused() -> None:
    """Lone surrogates have no bytes: in a name, an id, a server, a need or a description."""
    for make in (
        lambda: Tool("\ud800"),
        lambda: Group("\ud800"),
        lambda: Group("g", server="\ud800"),
        lambda: Tool("x", needs=["\ud800"]),
        lambda: Tool("x", description="\ud800"),
    ):
        with pytest.raises(InvalidInputError) as raised:
            make()
        raised.value.args[0].encode()


@pytest.mark.parametrize(
    ("arguments", "place", "expected"),
    [
        ({"tools": ["log"]}, "group 'g'.tools[0]", "a tool"),
        ({"tools": [LOG, None]}, "group 'g'.tools[1]", "a tool"),
        ({"server": 3}, "group 'g'.server", "text"),
        ({"up": 1}, "group 'g'.up", "True or False"),
        ({"up": None}, "group 'g'.up", "True or False"),
    ],
    ids=["text", "none", "server", "one", "unknown"],
)
def test_a_group_of_something_else_is_refused(arguments: dict[str, Any], place: str, expected: str) -> None:
    """With the place in the group."""
    with pytest.raises(InvalidInputError) as raised:
        Group("g", **arguments)
    assert (raised.value.place, raised.value.expected) == (place, expected)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_united_group_keeps_every_claim(order: tuple[int, ...]) -> None:
    """Rivals in order, needs of all, and the one server that all parts have, in any order of arrival."""
    tools = [Tool("t", description=text, needs=[text]) for text in "abc"]
    parts = [Group("g", [tool, LOG], server="s") for tool in tools]
    one = Group.united(parts[i] for i in order)
    prints = sorted(part.definitions["t"].fingerprint for part in parts)

    assert one == Group.united(parts)
    assert [d.fingerprint for d in (one.definitions["t"], *one.rivals)] == prints
    assert (one.needs, one.server, one.conflicts) == (("a", "b", "c"), "s", frozenset("t"))
    assert Group.united([*parts, Group("g", [PUSH])]).server is None
    assert Group.united([Group("g", [LOG], server="a"), Group("g", server="b")]).server is None


def test_a_tool_is_bound_once_to_a_group() -> None:
    """Two groups built of the same value hold the same definition; another group or server another one."""
    tool = Tool("t")
    one, same = (Group("g", [tool]).definitions["t"] for _ in range(2))
    others = [Group("h", [tool]), Group("g", [tool], server=""), Group("g", [tool], server="s")]

    assert one is same
    assert len({one, *(group.definitions["t"] for group in others)}) == 4
    assert [group.definitions["t"].server for group in others] == [None, "", "s"]
