"""Random facts for the laws: worlds as the model's generator makes them, read as the library's values."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from capstate.authority import Authority, Ceiling, Effect, Grant, Pool, Source, SourceState
from capstate.capabilities import Catalog, Group
from capstate.epochs import Boundary, Cause, Facts
from tests.translation import World, authority_of, groups_of, loads_of, prints_of, profile_of
from tests.worlds import random_world

SEEDS = st.integers(0, 2**32 - 1)
"""Worlds are drawn by seed: a failure then names one number and not a page of facts."""


def world_of(seed: int) -> World:
    return random_world(random.Random(seed))


def neighbour(seed: int, rng: random.Random) -> World:
    """The world of ``seed`` with one part exchanged for that of another world, and most of it the same."""
    world, other = world_of(seed), world_of(rng.randrange(2**32))
    part = rng.choice(["catalog", "loads", "path", "retained", "authority", "profile", "tool", "up", "nothing"])
    if part == "tool":
        tools = [tool for group in world["catalog"] for tool in group["tools"]]
        for tool in rng.sample(tools, min(len(tools), 2)):
            tool["definition"] = rng.choice(["d1", "d2", "d9"])
    elif part == "up":
        group = rng.choice(world["catalog"])
        group["up"] = not group["up"]
    elif part == "loads":
        world["loads"], world["retained"] = other["loads"], other["retained"]
    elif part == "retained":
        world["retained"] = rng.sample(world["retained"], rng.randint(0, len(world["retained"])))
    elif part != "nothing":
        world[part] = other[part]
    return world


def story(seed: int, length: int, **more: Any) -> list[Facts]:
    """Facts that change a little from one to the next; values of unchanged groups are shared, as hosts share them."""
    rng = random.Random(seed)
    found: list[Facts] = []
    shared: dict[str, Group] = {}
    first = rng.randrange(2**32)
    for number in range(length):
        world = neighbour(first, rng) if number else world_of(first)
        groups = groups_of(world)
        prints = prints_of(groups)
        catalog = Catalog.of(shared.setdefault(f"{g.fingerprint} {g.up}", g) for g in groups)
        found.append(
            Facts(
                catalog=catalog,
                authority=authority_of(world["authority"], prints),
                loads=loads_of(world["loads"], prints),
                path=None if world["path"] is None else tuple(world["path"]),
                retained=tuple(world["retained"]),
                profile=profile_of(world["profile"]),
                opaque=tuple(
                    (f"m{n}", rng.choice(["some/api/model/", "other/api/model/"])) for n in range(rng.randint(0, 2))
                ),
                cause=rng.choice([Cause.TURN, Cause.TURN, *Cause]),
                used={"calls": rng.randint(0, 9)},
                audit=rng.choice(["", "intact-unanchored"]),
                boundary=rng.choice([None, Boundary("e1", 3, None)]),
                damage=rng.choice([(), (), (), ("tail",), ("hole",)]),
                **{"session": "s", "ledger": "l", **more},
            )
        )
    return found


def shuffled(authority: Authority, rng: random.Random) -> Authority:
    """The same authority, arrived in another order."""

    def rules(listed: tuple[Grant, ...]) -> list[Grant]:
        return rng.sample(listed, len(listed))

    sources = [Source(s.name, rules(s.rules), s.state, s.revision) for s in authority.pool.sources]
    ceilings = [Ceiling(c.name, rules(c.rules), c.effect, c.state, c.revision) for c in authority.ceilings]
    want = authority.pool.want
    pool = Pool(
        rng.sample(sources, len(sources)),
        rules(authority.pool.granted),
        None if want is None else rng.sample([*want, *want], 2 * len(want)),
        authority.pool.launch,
    )
    parent = shuffled(authority.parent, rng) if isinstance(authority.parent, Authority) else authority.parent
    return Authority(pool, rng.sample(ceilings, len(ceilings)), parent)


OPEN = Authority(Pool((Source("config", (Grant("*", Effect.ALLOW),)),)))
"""Everything is allowed."""

FAILED = [SourceState.MISSING, SourceState.STALE, SourceState.ERROR]
