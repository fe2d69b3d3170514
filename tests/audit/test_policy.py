from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capstate import Limits
from capstate.errors import InvalidInputError
from capstate.policy import Policy, Provider, parse, read_policy

FULL = """
resident = ["read", "git/log"]
loaders = ["load"]
unloaders = ["drop"]
allow = ["git/*", "read"]
ask = ["git/push"]
deny = ["web/*"]
[groups]
git = ["log", "push"]
web = ["fetch"]
[resources]
web = "down"
git = "up"
[limits]
calls = 5
cost = 0
concurrency = 2
[provider]
provider = "p"
api = "anthropic-messages"
model = "m"
account = "a"
defers = "tool_reference"
needs_immediate = true
"""


def test_every_key_is_read() -> None:
    """A file with all keys becomes the value that it says."""
    assert parse(FULL) == Policy(
        resident=("read", "git/log"),
        loaders=frozenset({"load"}),
        unloaders=frozenset({"drop"}),
        allow=("git/*", "read"),
        ask=("git/push",),
        deny=("web/*",),
        groups={"git": ("log", "push"), "web": ("fetch",)},
        down=frozenset({"web"}),
        limits=Limits(5, 0, 2),
        provider=Provider("p", "anthropic-messages", "m", "a", "tool_reference", needs_immediate=True),
    )


def test_an_empty_file_says_nothing() -> None:
    """Absent lists are not empty lists: only a given one is authority."""
    assert parse("") == Policy()
    assert not parse('resident = ["a"]').authoritative
    assert parse("allow = []").authoritative


def test_any_deny_wins_then_ask_then_allow() -> None:
    """The strongest word counts; what nothing covers has none."""
    policy = parse('allow = ["g/*", "x"]\nask = ["b"]\ndeny = ["g/a"]\n[groups]\ng = ["a", "b", "c"]')
    assert [policy.effect(n) for n in ("a", "b", "c", "x", "y")] == ["deny", "ask", "allow", "allow", None]


def test_a_group_without_an_entry_is_the_wire_prefix() -> None:
    """group/name means group__name, and group/* every such name."""
    policy = parse('allow = ["git/*", "web/fetch"]\n[resources]\ngit = "down"')
    assert [policy.effect(n) for n in ("git__log", "web__fetch", "web__x", "log")] == ["allow", "allow", None, None]
    assert (policy.is_down("git__log"), policy.is_down("web__fetch")) == (True, False)
    assert policy.expand(["git/log", "x"]) == ("git__log", "x")


def test_selectors_expand_to_wire_names() -> None:
    """Members of a listed group have the names that the list gives."""
    assert parse(FULL).expand(["git/*", "git/log", "read"]) == ("log", "push", "read")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("alow = []", "alow"),
        ("[group]\na = []", "group"),
        ("allow = 'x'", "allow"),
        ("allow = [1]", "allow[0]"),
        ('allow = ["a", ""]', "allow[1]"),
        ('allow = ["*"]', "allow[0]"),
        ('deny = ["a/"]', "deny[0]"),
        ('deny = ["g*/x"]', "deny[0]"),
        ('loaders = ["g/*"]', "loaders[0]"),
        ("groups = []", "groups"),
        ("[groups]\ng = 'x'", "groups.g"),
        ("[groups]\ng = [true]", "groups.g[0]"),
        ('[groups]\n"a/b" = []', "groups.a/b"),
        ("[resources]\ng = true", "resources.g"),
        ("[limits]\ncalls = -1", "limits.calls"),
        ("[limits]\ncost = 1.5", "limits.cost"),
        ("[limits]\nconcurrency = true", "limits.concurrency"),
        ("[limits]\ncall = 1", "limits.call"),
        ("[provider]\ndefers = true", "provider.defers"),
        ("[provider]\ndefers = 'x'", "provider.defers"),
        ("[provider]\napi = 1", "provider.api"),
        ("[provider]\nneeds_immediate = 'yes'", "provider.needs_immediate"),
        ("[provider]\nurl = 'x'", "provider.url"),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_place(text: str, place: str) -> None:
    """An unknown key or a wrong type is refused, named by its path in the file."""
    with pytest.raises(InvalidInputError) as error:
        parse(text)
    assert error.value.place == f"policy: {place}"


def test_all_faults_come_at_once() -> None:
    """A file with several faults is refused once, with each of them."""
    with pytest.raises(InvalidInputError) as error:
        parse('alow = []\nask = [1]\n[limits]\ncalls = "x"')
    for place in ("alow", "ask[0]", "limits.calls"):
        assert place in str(error.value)


def test_what_is_no_toml_is_refused(tmp_path: Path) -> None:
    """Broken TOML, other bytes and a missing file are the caller's mistake, each with its place."""
    path = tmp_path / "p.toml"
    for data in (b"allow = [", b"\xff\xfe", b"a = " + b"[" * 5000):
        path.write_bytes(data)
        with pytest.raises(InvalidInputError, match=r"p\.toml"):
            read_policy(path)
    with pytest.raises(InvalidInputError, match="missing"):
        read_policy(tmp_path / "missing.toml")
    path.write_text(FULL)
    assert read_policy(path) == parse(FULL)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but the one error leaves, and it has its place."""
    places = ["policy"]
    try:
        parse(text)
    except InvalidInputError as error:
        places.append(error.place)
    assert all(place.startswith("policy") for place in places)
