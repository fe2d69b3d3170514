from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capstate.capabilities import Definition, Group, NameRule, Tool
from capstate.errors import InvalidInputError

RULE = NameRule()
GROUPS = st.text("ab_-. é", min_size=1, max_size=5)
TOOLS = st.text("ab_-. é/", min_size=1, max_size=70)


def definition(group: str, tool: str, wire_name: str | None = None) -> Definition:
    return Group(group, [Tool(tool, wire_name=wire_name)]).definitions[tool]


@pytest.mark.parametrize(
    ("group", "tool", "wire"),
    [
        ("git", "log", "git__log"),
        ("a-b", "read_file", "a-b__read_file"),
        ("my_group", "x_1", "my_group__x_1"),
        ("g", "t" * 61, "g__" + "t" * 61),
    ],
)
def test_clean_names_stay_readable(group: str, tool: str, wire: str) -> None:
    """Group and tool joined by two underscores, up to the limit."""
    assert RULE.name(definition(group, tool)) == wire


@pytest.mark.parametrize(
    ("group", "tool", "head"),
    [
        ("g", "a__b", "g_a__b"),
        ("g", "_a", "g__a"),
        ("g_", "a", "g__a"),
        ("g", "a/b", "g_a_b"),
        ("g", "é", "g__"),
        ("g", "t" * 62, "g_" + "t" * 43),
    ],
)
def test_other_names_carry_their_digest(group: str, tool: str, head: str) -> None:
    """Legal characters of both, three underscores, sixteen characters of base32, never over the limit."""
    wire = RULE.name(definition(group, tool))

    assert wire is not None
    assert re.fullmatch(re.escape(head) + r"___[a-z2-7]{16}", wire)
    assert len(wire) <= 64


def test_the_digest_in_a_name_is_fixed() -> None:
    """A stored transcript names tools; the same id must get the same name in every version."""
    assert RULE.name(definition("g", "a/b")) == "g_a_b___lm6b7sgouwlhtxw3"


@given(st.lists(st.tuples(GROUPS, TOOLS), unique=True, min_size=2, max_size=8))
def test_names_are_one_to_one_and_legal(pairs: list[tuple[str, str]]) -> None:
    """No two qualified ids share a wire name, also where their joined texts are the same."""
    names = [RULE.name(definition(*pair)) for pair in pairs]

    assert len(set(names)) == len(pairs)
    assert all(name is not None and RULE.legal(name) for name in names)


def test_a_declared_wire_name_is_used_or_nothing() -> None:
    """It is never changed to fit."""
    assert RULE.name(definition("g", "t", "Bash")) == "Bash"
    assert RULE.name(definition("g", "t", "not legal")) is None
    assert RULE.name(definition("g", "t", "")) is None


@pytest.mark.parametrize(
    ("name", "legal"),
    [("a", True), ("", False), ("a" * 64, True), ("a" * 65, False), ("a b", False), ("a\n", False), ("A_9-", True)],
)
def test_legal_names(name: str, legal: bool) -> None:
    """One to ``limit`` characters, all of the set."""
    assert RULE.legal(name) is legal


def test_a_rule_without_underscore_or_room_has_no_name() -> None:
    """Where not even the digest fits, the tool has no wire name; a smaller limit cuts the head alone."""
    assert NameRule(chars="a-z").name(definition("g", "t")) is None
    assert NameRule(limit=18).name(definition("git", "log/x")) is None
    short = NameRule(limit=20).name(definition("git", "log/x"))
    assert short is not None
    assert short.startswith("g___")
    assert len(NameRule(limit=19).name(definition("git", "log/x")) or "") == 19


@pytest.mark.parametrize(
    "chars", ["", "^a", "a]", "[a", "a](b+)+[c", "\\", "a\\", "z-a", "a--b", "a&&b", "a||b", "a~~b", "\\\n"]
)
def test_characters_stay_inside_their_set(chars: str) -> None:
    """What would end the set, negate it or mean something else in it, is refused."""
    with pytest.raises(InvalidInputError) as raised:
        NameRule(chars=chars)
    assert (raised.value.place, raised.value.got) == ("name rule.chars", chars)
    assert raised.value.expected == "the inside of a regular-expression character set"


@pytest.mark.parametrize(
    ("chars", "name"), [("a\\]", "]a"), ("a\\-z", "-"), ("a-c.", "b."), ("\\w", "\u00e9_1"), ("a^", "^")]
)
def test_characters_of_a_set(chars: str, name: str) -> None:
    """Ranges, escapes, classes, and a caret that is not the first."""
    assert NameRule(chars=chars).legal(name)
    assert not NameRule(chars=chars).legal("q q")


def test_no_name_hangs_on_the_luck_of_its_digest() -> None:
    """A digest form exists only where all that it may consist of is legal and fits."""
    rule = NameRule(chars="a-z_")
    names = [rule.name(definition("g_", f"t{n}")) for n in range(200)]

    assert set(names) == {None}
    assert NameRule(chars="a-z2-7_").name(definition("g_", "t")) is not None
    assert NameRule(chars="a-z2-6_").name(definition("g_", "t")) is None
    assert NameRule(chars="a-z2-7").name(definition("g_", "t")) is None
    assert NameRule(limit=18).name(definition("g_", "t")) is None
    assert NameRule(limit=19).name(definition("g_", "t")) is not None


def test_name_rules_are_values() -> None:
    """Equal by limit and characters."""
    assert NameRule() == NameRule(64, "A-Za-z0-9_-")
    assert len({NameRule(), NameRule(64), NameRule(63), NameRule(chars="a")}) == 3
