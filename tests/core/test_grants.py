from __future__ import annotations

import itertools
from typing import Any

import pytest

from capstate.authority import (
    FIRST_SIGHT,
    Ceiling,
    Effect,
    Grant,
    Lifetime,
    Limits,
    Pool,
    Source,
    SourceState,
    allow,
    ask,
    check_selector,
    deny,
    rules_of,
)
from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import InvalidInputError
from capstate.grants import member


@pytest.mark.parametrize("selector", ["*", "git/*", "git/log", "git/deep/er", "a b/\u00e9"])
def test_selectors(selector: str) -> None:
    """Everything, a group, or a tool whose name may hold a slash."""
    assert check_selector(selector, "here") == selector


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "git",
        "/",
        "/log",
        "git/",
        "*/log",
        "*/*",
        "git/*x",
        "*x/y",
        "git/x ",
        "git//x",
        "git/\x01",
        None,
        3,
        ["*"],
        b"*",
    ],
)
def test_what_is_no_selector(selector: Any) -> None:
    """Refused with the place: a bare group id covers nothing by accident."""
    with pytest.raises(InvalidInputError) as raised:
        check_selector(selector, "policy.allow[2]")

    assert raised.value.place == "policy.allow[2]"
    assert raised.value.expected == "'group/name', 'group/*' or '*'"
    assert raised.value.got == selector


def test_the_short_ways_to_write_a_rule() -> None:
    """Effect, selector, id; nothing else is set."""
    for make, effect in ((allow, Effect.ALLOW), (ask, Effect.ASK), (deny, Effect.DENY)):
        rule = make("git/*", id="r")
        assert (rule.on, rule.effect, rule.pin, rule.id) == ("git/*", effect, None, "r")
        assert (rule.giver, rule.lifetime, rule.until, rule.expires, rule.token) == (
            "",
            Lifetime.PERSISTENT,
            None,
            None,
            None,
        )


def test_a_short_way_without_an_id_is_the_long_way() -> None:
    """The id is that of the rule's fields."""
    assert allow("git/*") == Grant("git/*", Effect.ALLOW)
    assert ask("git/*") == Grant("git/*", Effect.ASK)
    assert deny("git/*") == Grant("git/*", Effect.DENY)
    assert len({allow("git/*").id, ask("git/*").id, deny("git/*").id}) == 3


def test_a_source_says_nothing_unless_told() -> None:
    """No rule, no effect, no revision; and it is in order."""
    source, ceiling, pool = Source("s"), Ceiling("c"), Pool()

    assert (source.rules, source.state, source.revision) == ((), SourceState.OK, None)
    assert (ceiling.rules, ceiling.effect, ceiling.state, ceiling.revision) == ((), None, SourceState.OK, None)
    assert (pool.sources, pool.granted, pool.want, pool.launch) == ((), (), None, True)


def test_an_effect_is_a_member_however_it_is_written() -> None:
    """A plain word is the member of that name, so that a deny is never taken for something else; others are refused."""
    plain: Any = "deny"
    rule = Grant("*", plain, lifetime="until")  # type: ignore[arg-type]

    assert rule.effect is Effect.DENY
    assert rule.lifetime is Lifetime.UNTIL
    assert rule == Grant("*", Effect.DENY, lifetime=Lifetime.UNTIL)
    assert Source("s", (), "error").state is SourceState.ERROR
    assert Ceiling("c", (), "ask", "stale").effect is Effect.ASK
    assert Ceiling("c", (), None, "stale").state is SourceState.STALE
    for wrong, place in (({"effect": "none"}, "effect"), ({"effect": "allow", "lifetime": "long"}, "lifetime")):
        with pytest.raises(InvalidInputError) as raised:
            Grant("git/log", **wrong)  # type: ignore[arg-type]
        assert raised.value.place == f"grant on 'git/log'.{place}"
    with pytest.raises(InvalidInputError, match=r"^x: expected one of allow, ask, deny, got none$"):
        member(Effect, "none", "x")


def test_a_rule_without_an_id_has_one_of_its_fields() -> None:
    """A digest of all other fields: each of them changes it, and equal rules have the same."""
    base = Grant("git/*", Effect.ALLOW)
    others = [
        Grant("git/log", Effect.ALLOW),
        Grant("git/*", Effect.ASK),
        allow("git/*", pin=True),
        allow("git/*", pin=[]),
        allow("git/*", pin=[("git/log", "b3:1")]),
        Grant("git/*", Effect.ALLOW, giver="ann"),
        Grant("git/*", Effect.ALLOW, lifetime=Lifetime.SESSION),
        Grant("git/*", Effect.ALLOW, until="job"),
        Grant("git/*", Effect.ALLOW, expires=1),
        Grant("git/*", Effect.ALLOW, token=1),
    ]
    body = {"effect": "allow", "id": "", "on": "git/*"}

    assert len({rule.id for rule in [base, *others]}) == len(others) + 1
    assert Grant("git/*", Effect.ALLOW) == base
    assert base.id == "r" + fingerprint(Domain.RULE, canonical(body))[3:19]
    assert len(base.id) == 17


def test_a_pin_lists_definitions() -> None:
    """Pairs in any form and order; True is the first sight, False and None are no pin; an empty pin is one."""
    pairs: list[Any] = [("git/log", "b3:1"), ["git/push", "b3:2"]]

    assert allow("git/*", pin=pairs).pin == frozenset({("git/log", "b3:1"), ("git/push", "b3:2")})
    assert allow("git/*", pin=pairs) == allow("git/*", pin=reversed(pairs))
    assert allow("git/*", pin=True).pin == FIRST_SIGHT
    assert allow("git/*", pin=False).pin is None
    assert allow("git/*").pin is None
    assert allow("git/*", pin=()).pin == frozenset()


@pytest.mark.parametrize(
    "pin",
    ["git/log", b"ab", {"git/log": "b3:1"}, 7, [("git/log",)], [("a", "b", "c")], [("a", 1)], ["ab"], [{"a", "b"}]],
)
def test_a_pin_is_pairs_of_text(pin: Any) -> None:
    """Anything else is refused with the rule it stands at; two letters are no pair."""
    with pytest.raises(InvalidInputError) as raised:
        allow("git/*", pin=pin)
    assert (raised.value.place, raised.value.expected) == (
        "grant on 'git/*'.pin",
        "(qualified id, fingerprint) pairs",
    )


@pytest.mark.parametrize("effect", [Effect.ASK, Effect.DENY])
@pytest.mark.parametrize(
    "pin", [FIRST_SIGHT, frozenset({("git/log", "b3:1")}), frozenset()], ids=["sight", "pin", "empty"]
)
def test_only_an_allow_is_pinned(effect: Effect, pin: Any) -> None:
    """A pinned deny would end with the next definition."""
    with pytest.raises(InvalidInputError, match="a pin with allow only"):
        Grant("git/*", effect, pin)


def test_a_rule_as_json_says_what_is_set() -> None:
    """Fields at their default are left out; a pin is sorted."""
    full = Grant("git/*", Effect.ALLOW, frozenset({("b", "2"), ("a", "1")}), "x", "ann", Lifetime.UNTIL, "job", 5, 6)

    assert deny("*", id="x").to_json() == {"effect": "deny", "id": "x", "on": "*"}
    assert allow("*", id="x", pin=True).to_json() == {"effect": "allow", "id": "x", "on": "*", "pin": "first-sight"}
    assert full.to_json() == {
        "effect": "allow",
        "expires": 5,
        "giver": "ann",
        "id": "x",
        "lifetime": "until",
        "on": "git/*",
        "pin": [["a", "1"], ["b", "2"]],
        "token": 6,
        "until": "job",
    }
    assert Grant("*", Effect.ASK, expires=0, token=0).to_json().items() >= {"expires": 0, "token": 0}.items()


def test_rules_of_one_id_have_an_order_too() -> None:
    """By their content, so that it is the same in any order of arrival."""
    rules = [allow("*", id="x"), deny("git/*", id="x"), ask("git/log", id="x"), allow("*", id="a")]
    sources = [Source("s", order) for order in itertools.permutations(rules)]

    assert {source.rules for source in sources} == {sources[0].rules}
    assert len({source.digest for source in sources}) == 1
    assert sources[0].rules[0].id == "a"


def test_a_source_is_known_by_its_rules() -> None:
    """The digest covers rules and the one effect; not the name, not the revision."""
    rules = (allow("git/*", id="x"),)
    digest = fingerprint(Domain.RULES, canonical([None, rules[0].to_json()]))

    assert Source("a", rules, revision=1).digest == Source("b", rules, revision=2).digest == digest
    assert Ceiling("a", rules).digest == digest
    assert Ceiling("a", (), Effect.ASK).digest == fingerprint(Domain.RULES, canonical(["ask"]))
    assert len({Ceiling("a", (), effect).digest for effect in (None, *Effect)}) == 4
    assert Source("a").digest == Ceiling("a").digest


def test_what_a_source_may_return() -> None:
    """Grants, and selectors that allow, in any iterable."""
    rule = deny("git/push")

    assert rules_of([rule, "git/*"], "here") == (rule, allow("git/*"))
    assert rules_of(iter((rule,)), "here") == (rule,)
    assert rules_of([], "here") == ()


@pytest.mark.parametrize("value", ["git/*", b"git", {"git/*": "allow"}, None, 3])
def test_a_source_returns_a_list(value: Any) -> None:
    """A single text is not read letter by letter."""
    with pytest.raises(InvalidInputError) as raised:
        rules_of(value, "source 'config'")
    assert (raised.value.place, raised.value.expected, raised.value.got) == (
        "source 'config'",
        "a list of grants",
        value,
    )


def test_a_wrong_member_of_a_list_is_named() -> None:
    """By its number."""
    with pytest.raises(InvalidInputError) as raised:
        rules_of(["git/*", "git"], "source 'config'")
    assert raised.value.place == "source 'config'[1]"


@pytest.mark.parametrize("name", ["calls", "cost", "concurrency"])
@pytest.mark.parametrize("value", [-1, 1.0, "1", True, 2**53])
def test_limits_are_whole_numbers(name: str, value: Any) -> None:
    """From 0 to what every JSON reader keeps; each is checked and named."""
    with pytest.raises(InvalidInputError) as raised:
        Limits(**{name: value})
    assert raised.value.place == f"limits.{name}"
    assert raised.value.expected == "a whole number from 0 to 2**53 - 1, or None"


def test_limits_as_json() -> None:
    """All three, None where there is none."""
    assert Limits(0, 2**53 - 1).to_json() == {"calls": 0, "concurrency": None, "cost": 2**53 - 1}
    assert Limits(concurrency=3).to_json() == {"calls": None, "concurrency": 3, "cost": None}


def test_the_words_of_grants_are_those_of_the_specification() -> None:
    """Files, ledgers and receipts hold these words: another spelling would read nothing that was written."""
    assert list(map(str, Effect)) == ["allow", "ask", "deny"]
    assert list(map(str, Lifetime)) == ["persistent", "session", "until"]
    assert list(map(str, SourceState)) == ["ok", "missing", "stale", "error"]
    assert FIRST_SIGHT == "first-sight"
