"""Laws of authority: it is a meet, nothing in it adds but a grant, and every failure is nothing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capstate.authority import Authority, Ceiling, Decision, Effect, Grant, Pool, Source, SourceState, allow, ask, deny
from capstate.capabilities import Group, Tool
from capstate.epochs import Facts, reproject
from capstate.errors import InvalidInputError, Reason
from capstate.surface import Load, LoadKind
from tests.core.strategies import FAILED, OPEN, SEEDS, shuffled, world_of
from tests.translation import facts_of

RANKS = {None: 0, Effect.ASK: 1, Effect.ALLOW: 2}


def decisions(authority: Authority, facts: Facts) -> dict[str, Decision]:
    """What ``authority`` decides for every tool of the catalog of ``facts``."""
    return {
        definition.qualified: authority.decide(definition)
        for group in facts.catalog.groups.values()
        for definition in group.definitions.values()
    }


def effects(authority: Authority, facts: Facts) -> dict[str, int]:
    return {tool: RANKS[decision.effect] for tool, decision in decisions(authority, facts).items()}


def callable_tools(authority: Authority, facts: Facts) -> set[str]:
    return set(reproject(evolve(facts, authority=authority), None).surface.callable)


def clashing(facts: Facts) -> set[str]:
    """Tools that are withheld only because another callable tool has their wire name."""
    rows = reproject(facts, None).surface.withheld
    return {tool for tool, row in rows.items() if row.reason is Reason.NAME_CONFLICT and row.effect is not None}


def assert_no_more(less: Mapping[str, int], more: Mapping[str, int]) -> None:
    assert {tool for tool in more if less[tool] > more[tool]} == set()


def assert_meet(combine: Callable[[Authority, Ceiling], Authority], facts: Facts, ceiling: Ceiling) -> None:
    """``combine`` never gives more than either side, and gives the least of both."""
    mine, cut = effects(facts.authority, facts), effects(evolve(OPEN, ceilings=(ceiling,)), facts)
    both = effects(combine(facts.authority, ceiling), facts)
    assert both == {tool: min(mine[tool], cut[tool]) for tool in mine}


def with_ceiling(authority: Authority, ceiling: Ceiling) -> Authority:
    return evolve(authority, ceilings=(*authority.ceilings, ceiling))


def ceiling_of(seed: int, name: str = "one more") -> Ceiling:
    """A ceiling with the rules of some source of another world."""
    found = facts_of(world_of(seed)).authority
    rules = tuple(rule for source in found.pool.sources for rule in source.rules)
    effect = random.Random(seed).choice([None, None, None, *Effect])
    return Ceiling(name, () if effect else rules, effect)


@given(SEEDS, SEEDS)
def test_a_ceiling_is_a_meet(world: int, seed: int) -> None:
    """With one more ceiling each tool has the lesser of both effects."""
    facts = facts_of(world_of(world))
    assert_meet(with_ceiling, facts, ceiling_of(seed))


@given(SEEDS, SEEDS)
def test_a_meet_is_idempotent(world: int, seed: int) -> None:
    """The same ceiling twice, under two names, decides as it does once."""
    facts = facts_of(world_of(world))
    once = with_ceiling(facts.authority, ceiling_of(seed, "x"))
    twice = with_ceiling(once, ceiling_of(seed, "y"))

    assert effects(twice, facts) == effects(once, facts)


@given(SEEDS, SEEDS, SEEDS)
def test_a_meet_is_commutative_and_associative(world: int, one: int, other: int) -> None:
    """Which of two ceilings came first, or bears the lesser name, changes no effect."""
    facts = facts_of(world_of(world))
    a, b = ceiling_of(one, "a"), ceiling_of(other, "b")
    swapped = (evolve(a, name="b"), evolve(b, name="a"))

    assert effects(with_ceiling(with_ceiling(facts.authority, a), b), facts) == effects(
        evolve(facts.authority, ceilings=(*facts.authority.ceilings, *swapped)), facts
    )


@given(SEEDS, SEEDS)
def test_what_only_cuts_never_adds(world: int, seed: int) -> None:
    """A further ceiling, a deny or an ask given in the ledger, and a deny of a source add no effect to any tool."""
    facts = facts_of(world_of(world))
    rng = random.Random(seed)
    rules = [rule for source in facts_of(world_of(seed)).authority.pool.sources for rule in source.rules]
    cuts = [rule for rule in rules if rule.effect is Effect.DENY] + [deny(rng.choice(["*", "git/*", "a/x"]))]
    before, pool = effects(facts.authority, facts), facts.authority.pool

    assert_no_more(effects(with_ceiling(facts.authority, ceiling_of(seed)), facts), before)
    for cut in cuts:
        given_now = evolve(facts.authority, pool=evolve(pool, granted=(*pool.granted, cut)))
        from_source = evolve(facts.authority, pool=evolve(pool, sources=(*pool.sources, Source("a cut", (cut,)))))
        assert_no_more(effects(given_now, facts), before)
        assert_no_more(effects(from_source, facts), before)
        assert callable_tools(given_now, facts) <= callable_tools(facts.authority, facts) | clashing(facts)


def test_a_cut_can_free_a_wire_name() -> None:
    """Monotone is the authority, tool by tool: a deny of one of two tools of one wire name makes the other callable."""
    group = Group("g", [Tool("x", wire_name="t"), Tool("y", wire_name="t")])
    facts = facts_of(world_of(1))
    facts = evolve(facts, catalog=type(facts.catalog).of([group]), loads=(), path=None)
    loaded = evolve(facts, loads=(Load(0, LoadKind.LOAD, ("*",)),))

    assert callable_tools(OPEN, loaded) == set()
    assert callable_tools(evolve(OPEN, pool=evolve(OPEN.pool, granted=(deny("g/y"),))), loaded) == {"g/x"}


@given(SEEDS, st.sampled_from(FAILED))
def test_a_source_that_fails_gives_nothing(world: int, state: SourceState) -> None:
    """One more grant source that is not ok empties the pool, whatever rules it still carries."""
    facts = facts_of(world_of(world))
    pool = facts.authority.pool
    failed = evolve(facts.authority, pool=evolve(pool, sources=(*pool.sources, Source("failed", (allow("*"),), state))))

    assert set(effects(failed, facts).values()) <= {0}
    assert callable_tools(failed, facts) == set()


@given(SEEDS, st.sampled_from(FAILED))
def test_a_ceiling_that_fails_gives_nothing(world: int, state: SourceState) -> None:
    """Whatever rules or effect it still carries."""
    facts = facts_of(world_of(world))
    for ceiling in (Ceiling("failed", (allow("*"),), None, state), Ceiling("failed", (), Effect.ALLOW, state)):
        assert set(effects(with_ceiling(facts.authority, ceiling), facts).values()) <= {0}


@given(SEEDS, SEEDS)
def test_order_of_arrival_leaves_no_trace(world: int, seed: int) -> None:
    """Rules, sources, ceilings and wants shuffled: the same decisions, the same value, the same JSON."""
    facts = facts_of(world_of(world))
    again = shuffled(facts.authority, random.Random(seed))

    assert again == facts.authority
    assert again.to_json() == facts.authority.to_json()
    assert decisions(again, facts) == decisions(facts.authority, facts)


@given(SEEDS, st.integers(1, 4), SEEDS)
def test_attenuation_holds_at_every_depth(world: int, depth: int, seed: int) -> None:
    """No descendant has an effect that one of its ancestors lacks, whatever it wants and whatever allows it holds."""
    facts = facts_of(world_of(world))
    rng = random.Random(seed)
    line = [facts.authority]
    for _ in range(depth):
        own = facts_of(world_of(rng.randrange(2**32))).authority
        pool = evolve(own.pool, want=rng.choice([("*",), ("git/*", "a/*"), ()]), launch=True)
        line.append(Authority(pool, own.ceilings, line[-1]))
    for ancestor, descendant in itertools.combinations(line, 2):
        assert_no_more(effects(descendant, facts), effects(ancestor, facts))


@given(SEEDS)
def test_a_child_is_its_want_cut_by_its_parent(world: int) -> None:
    """A want of everything is the parent itself, one of nothing is nothing; an own allow or ask adds nothing."""
    facts = facts_of(world_of(world))
    parent = facts.authority
    generous = Pool((Source("config", (allow("*"),)),), (allow("*"),))
    asking = Pool((Source("config", (ask("*"),)),), (ask("*"),))

    assert effects(Authority(evolve(generous, want=("*",)), (), parent), facts) == effects(parent, facts)
    assert set(effects(Authority(evolve(generous, want=()), (), parent), facts).values()) <= {0}
    assert set(effects(Authority(evolve(asking, want=()), (), parent), facts).values()) <= {0}
    assert_no_more(
        effects(Authority(evolve(asking, want=("git/*",)), (), parent), facts),
        effects(Authority(Pool(want=("git/*",)), (), parent), facts),
    )


@pytest.mark.parametrize("parent", ["missing", "ended", None])
@given(world=SEEDS)
def test_without_a_parent_to_ask_a_child_has_nothing(parent: str | None, world: int) -> None:
    """Missing, ended, or simply not named: the decision is the parent's, and it is nothing."""
    facts = facts_of(world_of(world))
    child = Authority(Pool(want=("*",)), (), parent)  # type: ignore[arg-type]
    found = decisions(child, facts)

    assert {d.effect for d in found.values()} <= {None}
    assert {d.decided_by for d in found.values()} <= {f"parent!{parent or 'missing'}"}


@given(SEEDS)
def test_a_child_without_its_launch_restriction_has_nothing(world: int) -> None:
    """Whatever else holds, and the reason says so."""
    facts = facts_of(world_of(world))
    lost = Authority(Pool((Source("config", (allow("*"),)),), launch=False), (), OPEN)

    assert {d.reason for d in decisions(lost, facts).values()} <= {Reason.POLICY_MISSING}
    assert {d.decided_by for d in decisions(lost, facts).values()} <= {"launch!missing"}


@given(SEEDS)
def test_equal_slices_decide_equally(world: int) -> None:
    """Authority cut down to a group is a value: built twice it is equal, hashes equally and decides equally."""
    facts = facts_of(world_of(world))
    again = shuffled(facts.authority, random.Random(0))
    for id_, group in facts.catalog.groups.items():
        one, other = facts.authority.over(id_), again.over(id_)
        assert one == other
        assert hash(one) == hash(other)
        assert one.uniform is other.uniform
        if one.uniform:
            assert len({one.decide(d) for d in group.definitions.values()}) <= 1


def test_decisions_of_a_missing_tool() -> None:
    """Authority speaks of definitions, in the catalog or not."""
    push = Group("git", [Tool("push")]).definitions["push"]

    assert OPEN.decide(push).effect is Effect.ALLOW
    assert Authority(Pool()).decide(push) == Decision(None, Reason.NOT_AUTHORISED, "pool")


@pytest.mark.parametrize(
    ("build", "place"),
    [
        (lambda: Pool((Source("a"), Source("a"))), "grant sources"),
        (lambda: Authority(Pool(), (Ceiling("a"), Ceiling("a"))), "ceilings"),
        (lambda: Pool(want=("git",)), "want"),
        (lambda: Source("a", (), "fine"), "state of a source"),
        (lambda: Ceiling("a", (), "none"), "effect of a ceiling"),
    ],
    ids=["sources", "ceilings", "want", "state", "effect"],
)
def test_values_that_cannot_be(build: Callable[[], object], place: str) -> None:
    """Two parts of one name, a want that is no selector, and words of no meaning are refused with their place."""
    with pytest.raises(InvalidInputError) as raised:
        build()
    assert raised.value.place == place


def test_a_rule_named_twice_decides_once() -> None:
    """The least rule by source and id is named; a deny names itself, also where an allow of lesser name stands."""
    push = Group("git", [Tool("push")]).definitions["push"]
    rules = (allow("*", id="a"), allow("git/*", id="b"), ask("git/push", id="z"), ask("*", id="c"))

    assert Authority(Pool((Source("s", rules),))).decide(push) == Decision(Effect.ASK, None, "s#c")
    denied = Authority(Pool((Source("s", (*rules, deny("git/push", id="y"))),)))
    assert denied.decide(push) == Decision(None, Reason.NOT_AUTHORISED, "s#y")
    assert Authority(Pool((Source("t", (allow("*", id="a"),)), Source("s", (allow("*", id="z"),))))).decide(
        push
    ) == Decision(Effect.ALLOW, None, "s#z")
    assert Grant("*", Effect.ALLOW) in OPEN.pool.sources[0].rules
