"""Laws of the one function: same facts, same bytes, however they arrived; and nothing changes unsaid."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capstate.authority import Authority, Pool, Source, allow, ask, deny
from capstate.capabilities import Catalog, Group, NameRule, Tool
from capstate.epochs import NO_PROFILE, Boundary, Cause, Epoch, Facts, reproject
from capstate.receipts import Action, Change, Receipt
from capstate.surface import Load, LoadKind
from tests.core.strategies import OPEN, SEEDS, shuffled, story, world_of
from tests.translation import facts_of

LENGTH = 5


def chain(seed: int, length: int = LENGTH) -> Iterator[tuple[Facts, Epoch | None, Epoch]]:
    """Facts, the epoch before, and the epoch, along one session."""
    before: Epoch | None = None
    for facts in story(seed, length):
        epoch = reproject(facts, before)
        yield facts, before, epoch
        before = epoch


Sight = dict[str, tuple[str, str, str]]


def seen(epoch: Epoch) -> Sight:
    """What a model sees: each callable tool with its definition, its effect and its place."""
    places = {p.definition.qualified: f"{p.mark.at} {p.mark.call}" for p in epoch.projection.deferred if p.mark}
    return {
        tool: (row.definition.fingerprint, str(row.effect), places.get(tool, "immediate"))
        for tool, row in epoch.surface.callable.items()
    }


def wished(epoch: Epoch) -> Sight:
    """What a child's first receipt compares with: all it asked for, where it would stand."""
    want = epoch.facts.authority.pool.want
    rows = [row.definition for row in epoch.surface.rows()]
    places = {tool: sight[2] for tool, sight in seen(epoch).items()}
    return {
        d.qualified: (d.fingerprint, "allow", places.get(d.qualified, "immediate"))
        for d in rows
        if want is not None and {"*", f"{d.group}/*", d.qualified} & set(want)
    }


def rows_of(epoch: Epoch) -> list[tuple[Any, ...]]:
    return [
        (row.definition.qualified, row.reason, row.effect, row.decided_by, row.wire, row.loaded, row.mark)
        for row in epoch.surface.rows()
    ]


def assert_same(one: Epoch, other: Epoch) -> None:
    """The whole of both epochs is equal, not only the receipt."""
    assert one.receipt.encoded == other.receipt.encoded
    assert one == other
    assert rows_of(one) == rows_of(other)
    assert one.surface == other.surface
    assert dict(one.surface.wires) == dict(other.surface.wires)
    assert one.projection.immediate == other.projection.immediate
    assert one.projection.deferred == other.projection.deferred
    assert one.projection.dropped == other.projection.dropped
    assert one.projection == other.projection
    assert one.state == other.state
    assert one.receipt.rows == other.receipt.rows


# -- same facts, same bytes


@given(SEEDS)
def test_an_epoch_before_only_saves_work(seed: int) -> None:
    """With the epoch before, with its receipt, and with that read back from its bytes, the next epoch is the same."""
    stored: dict[str, bytes] = {}
    for facts, before, epoch in chain(seed):
        if before is not None:
            read = Receipt.from_bytes(before.receipt.encoded, stored.get)
            assert read == before.receipt
            assert_same(epoch, reproject(facts, before.receipt))
            assert_same(epoch, reproject(facts, read))
        stored.update(epoch.blobs)


@given(SEEDS)
def test_what_an_epoch_needs_is_stored_with_it_or_before(seed: int) -> None:
    """Every digest that a receipt names has its bytes among the blobs of its chain."""
    stored: dict[str, bytes] = {}
    for _, _, epoch in chain(seed):
        stored.update(epoch.blobs)
        named = [*dict(epoch.receipt.body["state"]).values(), *dict(epoch.receipt.body["groups"]).values()]
        named += [digest for _, digest in orjson.loads(stored[epoch.state["catalog"]])]
        assert set(named) <= stored.keys()


@given(SEEDS)
def test_facts_read_anew_give_the_same_bytes(seed: int) -> None:
    """Values built twice from the same world share no memo, and nothing in facts is changed by deriving."""
    one, other = (reproject(facts_of(world_of(seed)), None) for _ in range(2))

    assert_same(one, other)
    assert_same(one, reproject(one.facts, None))
    assert one.facts == other.facts


@given(SEEDS, SEEDS)
def test_order_of_arrival_leaves_no_trace(seed: int, order: int) -> None:
    """Groups, their tools, rules, sources and ceilings in another order: the same receipt, byte for byte."""
    rng = random.Random(order)
    facts = facts_of(world_of(seed))
    groups = []
    for group in facts.catalog.groups.values():
        tools = [d.tool for d in (*group.definitions.values(), *group.rivals)]
        parts = rng.sample(tools, len(tools)), tools[: rng.randint(0, len(tools))]
        groups += [Group(group.id, part, server=group.server, up=group.up) for part in parts]
    loads = tuple(
        evolve(load, definitions=dict(rng.sample(list(load.definitions.items()), len(load.definitions))))
        for load in facts.loads
    )
    again = evolve(
        facts,
        catalog=Catalog.of(rng.sample(groups, len(groups))),
        authority=shuffled(facts.authority, rng),
        loads=loads,
    )

    assert_same(reproject(facts, None), reproject(again, None))


CODE = """
import sys
from tests.core.test_laws_epochs import chain
for seed in map(int, sys.argv[1:]):
    for _, _, epoch in chain(seed):
        print(epoch.receipt.digest)
"""


def test_other_processes_and_hash_seeds_give_the_same_bytes() -> None:
    """Three processes with three hash seeds agree on every receipt of some chains."""
    seeds = [str(seed) for seed in range(12)]
    root = Path(__file__).parents[2]
    outputs = set()
    for hash_seed in ("0", "1", "4242"):
        env = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(root)]),
        }
        command = [sys.executable, "-c", CODE, *seeds]
        outputs.add(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)

    assert len(outputs) == 1
    assert len(outputs.pop().split()) == LENGTH * len(seeds)


@given(SEEDS, st.text(max_size=20), st.sampled_from(list(Cause)))
def test_only_facts_decide(seed: int, text: str, cause: Cause) -> None:
    """Cause, session, ledger, limits, audit, damage, boundary, fork and opaque items change no tool and no place."""
    facts = facts_of(world_of(seed))
    noise = evolve(
        facts,
        cause=cause,
        session=text,
        ledger=text,
        boundary=Boundary(text, 7, text),
        used={"calls": 7},
        audit=text,
        damage=("hole",),
        fork={"session": text},
        opaque=((text, text),),
    )
    one, other = reproject(facts, None), reproject(noise, None)

    assert rows_of(one) == rows_of(other)
    assert (one.surface, one.projection) == (other.surface, other.projection)
    assert one.projection.deferred == other.projection.deferred


@given(SEEDS, SEEDS)
def test_no_receipt_adds_a_tool(seed: int, other: int) -> None:
    """Whatever receipt is given as the one before, the tools and places are those of the facts."""
    facts, strange = facts_of(world_of(seed)), reproject(facts_of(world_of(other)), None)
    alone = reproject(facts, None)

    for previous in (strange, strange.receipt):
        after = reproject(facts, previous)
        assert rows_of(after) == rows_of(alone)
        assert after.projection == alone.projection


@given(SEEDS)
def test_entries_that_no_load_names_are_no_part_of_the_path(seed: int) -> None:
    """A path that grows by such entries is the same fact: its epoch goes on."""
    facts = facts_of(world_of(seed))
    path = [entry for pair in ((f"other {n}", entry) for n, entry in enumerate(facts.path or ())) for entry in pair]
    longer = evolve(facts, path=None if facts.path is None else (*path, "leaf"))
    one = reproject(facts, None)

    assert_same(one, reproject(longer, None))
    assert reproject(longer, one).receipt is one.receipt
    assert reproject(longer, one.receipt).receipt is one.receipt


# -- an unchanged epoch goes on; a boundary always has a receipt


@given(SEEDS)
def test_an_unchanged_turn_is_the_same_epoch(seed: int) -> None:
    """The very object with the epoch before, the very receipt with the receipt before."""
    epoch = reproject(facts_of(world_of(seed)), None)
    again = facts_of(world_of(seed))

    assert reproject(again, epoch) is epoch
    assert reproject(again, epoch.receipt).receipt is epoch.receipt
    assert reproject(evolve(again, session="another"), epoch).receipt.body["previous"] is None


@given(SEEDS, st.sampled_from(sorted(set(Cause) - {Cause.TURN})))
def test_every_other_cause_makes_a_receipt(seed: int, cause: Cause) -> None:
    """Also where nothing changed; it follows the one before, says nothing changed, and names no reason but itself."""
    epoch = reproject(facts_of(world_of(seed)), None)
    after = reproject(evolve(epoch.facts, cause=cause), epoch)

    assert after.receipt.body["previous"] == epoch.receipt.digest
    assert after.receipt.epoch == epoch.receipt.epoch + 1
    assert (after.receipt.cause, after.receipt.changes, after.receipt.body["changes"]) == (cause, (), [])
    assert after.receipt.kinds == ("rederived",)
    assert set(after.receipt.reasons) <= {cause}
    assert after.projection == epoch.projection


@given(SEEDS, st.sampled_from(["tail", "hole"]))
def test_damage_is_received_at_any_turn(seed: int, kind: str) -> None:
    """Found damage makes a receipt of its kind even where nothing else changed."""
    epoch = reproject(facts_of(world_of(seed)), None)
    after = reproject(evolve(epoch.facts, damage=(kind,)), epoch)

    assert after.receipt != epoch.receipt
    assert after.receipt.cause == "turn"
    assert after.receipt.kinds == (f"recovered_{kind}",)
    assert after.receipt.body["damage"] == [kind]


# -- exactly one receipt explains each change


def assert_explained(before: Epoch | None, after: Epoch) -> None:
    """The changes of the receipt are the difference between what the model saw and sees, tool by tool."""
    was, now = seen(before) if before is not None else wished(after), seen(after)
    if before is not None and before.receipt is after.receipt:
        assert was == now
        return
    told = [c for c in after.receipt.changes if c.action is not Action.WITHHELD]
    by_tool = {c.tool: c for c in told}
    assert len(by_tool) == len(told)
    assert by_tool.keys() == {tool for tool in was.keys() | now.keys() if was.get(tool) != now.get(tool)}
    for tool, change in by_tool.items():
        expected = Action.ADDED if tool not in was else Action.REMOVED if tool not in now else None
        if expected is None:
            expected = (
                Action.REDEFINED
                if was[tool][0] != now[tool][0]
                else Action.EFFECT
                if was[tool][2] == now[tool][2]
                else Action.MOVED
            )
        assert change.action is expected
        assert change.reason
    held = {c.tool for c in after.receipt.changes if c.action is Action.WITHHELD}
    assert held <= {tool for tool, row in after.surface.withheld.items() if row.loaded} - was.keys()


def expanded(receipt: Receipt, rows: dict[str, set[str]]) -> list[Change]:
    """The changes that the body states, with each whole group as its members."""
    found = []
    for action, target, reason, decided_by in receipt.body["changes"]:
        group, _, name = target.partition("/")
        names = sorted(rows[group]) if name == "*" else [name]
        found += [Change(Action(action), f"{group}/{n}", reason, decided_by) for n in names]
    return found


@given(SEEDS)
def test_each_change_of_what_is_seen_is_explained_once(seed: int) -> None:
    """Along a chain no tool comes, goes, moves or changes without one line of one receipt, and no line is idle."""
    for _, before, epoch in chain(seed):
        assert_explained(before, epoch)


@given(SEEDS)
def test_what_is_placed_is_what_is_callable(seed: int) -> None:
    """Each callable tool stands at one place of the wire, and nothing else does."""
    for _, _, epoch in chain(seed):
        placed = [p.definition.qualified for p in (*epoch.projection.immediate, *epoch.projection.deferred)]
        assert sorted(placed) == sorted(epoch.surface.callable)


@given(SEEDS)
def test_whole_groups_are_named_whole(seed: int) -> None:
    """The body says the same as the changes; a whole group is one line, and nothing else is."""
    for _, before, epoch in chain(seed):
        if before is not None and before.receipt is epoch.receipt:
            continue
        rows = {group: set(r.by_name()) for group, r in epoch.receipt.rows.items()}
        for group, r in before.receipt.rows.items() if before is not None else ():
            rows.setdefault(group, set()).update(r.by_name())
        assert sorted(expanded(epoch.receipt, rows)) == sorted(epoch.receipt.changes)
        alike: dict[str, list[Change]] = {}
        for change in epoch.receipt.changes:
            alike.setdefault(change.tool.partition("/")[0], []).append(change)
        for group, changes in alike.items():
            whole = len(changes) == len(rows[group]) and len({c[0:1] + c[2:] for c in changes}) == 1
            assert (
                [f"{group}/*"] == [c[1] for c in epoch.receipt.body["changes"] if c[1].startswith(f"{group}/")]
            ) is whole


@given(SEEDS)
def test_a_receipt_holds_its_facts(seed: int) -> None:
    """Numbers, links, fingerprints, sources and what is withheld are those of the epoch."""
    for facts, before, epoch in chain(seed):
        if before is not None and before.receipt is epoch.receipt:
            continue
        body = epoch.receipt.body
        assert body["epoch"] == (before.receipt.epoch + 1 if before is not None else 0)
        assert body["previous"] == (before.receipt.digest if before is not None else None)
        assert (body["session"], body["ledger"], body["audit"]) == ("s", "l", facts.audit)
        assert (body["surface"], body["wire"]) == (epoch.surface.fingerprint, epoch.projection.fingerprint)
        assert body["used"] == dict(facts.used)
        assert body["dropped"] == [m for m, issuer in facts.opaque if issuer != facts.profile.issuer.id]
        assert body["state"] == sorted([name, digest] for name, digest in epoch.state.items())
        assert body["boundary"] == (facts.boundary.to_json() if facts.boundary is not None else None)
        assert [name for name, *_ in body["sources"] if not name.startswith("parent: ")] == [
            *(s.name for s in facts.authority.pool.sources),
            *(f"ceiling {c.name}" for c in facts.authority.ceilings),
        ]
        lost = {t: [r.reason, r.decided_by] for t, r in epoch.surface.withheld.items() if r.loaded}
        told = {}
        for target, reason, decided_by in body["withheld"]:
            group, _, name = target.partition("/")
            for n in epoch.receipt.rows[group].by_name() if name == "*" else [name]:
                told[f"{group}/{n}"] = [reason, decided_by]
        assert told == lost
        rows = {f"{g}/{n}": r for g, all_ in epoch.receipt.rows.items() for n, r in all_.by_name().items()}
        assert {t for t, r in rows.items() if r.callable} == epoch.surface.callable.keys()
        assert rows.keys() == {row.definition.qualified for row in epoch.surface.rows()}


def test_no_text_of_a_definition_is_in_a_receipt() -> None:
    """Not the description, not a name in the schema, not an annotation; neither in the body nor in its rows."""
    word = "xyzzy"
    schema = {"type": "object", "properties": {word: {"type": "string", "description": word}}}
    tool = Tool("log", description=word, schema=schema, annotations={"title": word})
    facts = Facts(Catalog.of([Group("git", [tool])]), OPEN, (Load(0, LoadKind.LOAD, ("*",)),))
    receipt = reproject(facts, None).receipt

    assert receipt.body["changes"] == [["added", "git/*", "load", f"config#{OPEN.pool.sources[0].rules[0].id}"]]
    assert word.encode() not in receipt.encoded + b"".join(rows.encoded for rows in receipt.rows.values())


def test_a_receipt_grows_with_groups_and_not_with_tools() -> None:
    """Ten times the tools in as many groups: the same size, give or take nothing."""
    few, many = (
        Facts(
            Catalog.of(Group(f"g{g}", [Tool(f"t{n}") for n in range(size)]) for g in range(8)),
            OPEN,
            (Load(0, LoadKind.LOAD, ("*",)),),
        )
        for size in (10, 100)
    )

    assert len(reproject(few, None).receipt.encoded) == len(reproject(many, None).receipt.encoded)


def test_facts_say_nothing_unless_told() -> None:
    """A linear history that holds nothing, no provider, no session, no damage; the next request."""
    facts = Facts(Catalog.of([]), Authority(Pool()))
    epoch = reproject(facts, None)

    assert (facts.loads, facts.path, facts.retained, facts.opaque, facts.damage) == ((), None, (), (), ())
    assert (facts.cause, facts.session, facts.ledger, facts.audit) == (Cause.TURN, "", "", "")
    assert (facts.boundary, dict(facts.used), facts.fork) == (None, {}, None)
    assert facts.profile == NO_PROFILE
    assert facts.profile.adapter is None
    assert (facts.profile.issuer.id, facts.profile.defers, facts.profile.names) == ("///", "", NameRule())
    assert Boundary().to_json() == {"first_kept": None, "kept": None, "leaf": None}
    assert epoch.request == {}
    assert epoch.receipt.body["issuer"] == ["", "", "", ""]
    assert orjson.loads(epoch.blobs[epoch.state["profile"]]) == {
        "account": "",
        "api": "",
        "call_id_chars": None,
        "call_id_limit": None,
        "chars": "A-Za-z0-9_-",
        "defers": "",
        "limit": 64,
        "model": "",
        "needs_immediate": False,
        "provider": "",
    }


# -- causes


def git(**more: Any) -> Facts:
    """Three tools loaded and allowed."""
    loads = (Load(0, LoadKind.LOAD, ("git/*",), at="e1"),)
    catalog = Catalog.of([Group("git", [Tool("log"), Tool("push"), Tool("pull")]), Group("web", [Tool("get")])])
    pool = Pool((Source("config", (allow("*", id="all"),)),))
    return Facts(
        **{"catalog": catalog, "authority": Authority(pool), "loads": loads, "path": ("e1",), "session": "s", **more}
    )


def config(*rules: Any) -> dict[str, Any]:
    return {"authority": Authority(Pool((Source("config", rules),)))}


def catalog(*tools: Tool, up: bool = True) -> dict[str, Any]:
    return {"catalog": Catalog.of([Group("git", tools, up=up), Group("web", [Tool("get")])])}


def then(do: LoadKind, on: str) -> dict[str, Any]:
    return {"loads": (Load(0, LoadKind.LOAD, ("git/*",), at="e1"), Load(1, do, (on,)))}


LOG, PUSH, PULL = Tool("log"), Tool("push"), Tool("pull")
ALL = allow("*", id="all")
CASES: dict[str, tuple[dict[str, Any], str, str, list[str]]] = {
    "deny": (config(ALL, deny("git/push", id="no")), "authority", "narrowed", ["removed git/push authority config#no"]),
    "ask": (config(ALL, ask("git/push", id="q")), "authority", "rederived", ["effect git/push authority config#q"]),
    "deny all": (config(deny("*", id="no")), "authority", "narrowed", ["removed git/* authority config#no"]),
    "down": (
        catalog(LOG, PUSH, PULL, up=False),
        "resource",
        "narrowed",
        ["removed git/* resource_unavailable group git"],
    ),
    "redefined": (
        catalog(Tool("log", effect="read"), PUSH, PULL),
        "list_changed",
        "changed",
        ["redefined git/log list_changed config#all"],
    ),
    "list": (
        catalog(LOG, PUSH, Tool("new")),
        "list_changed",
        "changed narrowed widened",
        ["added git/new list_changed config#all", "removed git/pull list_changed "],
    ),
    "load": (then(LoadKind.LOAD, "web/*"), "load", "widened", ["added web/* load config#all"]),
    "unload": (then(LoadKind.UNLOAD, "git/log"), "load", "narrowed", ["removed git/log unload "]),
    "leaf": ({"path": ()}, "branch", "narrowed rederived", ["removed git/* unload "]),
    "history": ({"retained": (0,)}, "history", "rederived", []),
    "opaque": ({"opaque": (("m1", "other//m/"),)}, "history", "degraded rederived", []),
}


@pytest.mark.parametrize("name", CASES)
def test_at_a_turn_the_cause_is_what_changed(name: str) -> None:
    """With what it brought about, tool by tool or group by group."""
    changed, cause, kinds, changes = CASES[name]
    receipt = reproject(git(**changed), reproject(git(), None)).receipt
    reasons = {line.split()[2] for line in changes}

    assert receipt.cause == cause
    assert " ".join(receipt.kinds) == kinds
    assert [" ".join(change) for change in receipt.body["changes"]] == changes
    assert set(receipt.reasons) - {cause, "provider_incompatible"} == reasons - {cause}
    assert (cause in receipt.reasons) is (cause in reasons or cause in {"branch", "history"})
    assert ("provider_incompatible" in receipt.reasons) is ("degraded" in kinds)
