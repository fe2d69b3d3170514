"""The pure core: epochs of many tools, without ledger, guard or rendering."""

from __future__ import annotations

from typing import Any

import orjson
from attrs import evolve

from benchmarks.timing import Figure, Prepared, in_user_mode, medians
from capstate.authority import Authority, Pool, Source, allow, ask
from capstate.capabilities import Catalog, Group, Tool
from capstate.digest import Domain, canonical, fingerprint
from capstate.epochs import Cause, Epoch, Facts, reproject
from capstate.providers import anthropic, openai_chat, openai_responses
from capstate.surface import Load, LoadKind
from capstate.trace import Call, Message, Outcome, Role

Arguments = dict[str, Any]


def arguments(number: int, version: int = 1) -> Arguments:
    """A tool as servers of real agents list them: some sentences, seven parameters, 1.7 kilobytes."""
    return {
        "name": f"tool_{number}",
        "description": f"Reads item {number} in version {version} and returns what it holds as text. Use it before you"
        " change an item, and again after the change, to see whether it has been taken. The result is cut after two"
        " thousand lines; ask for the rest with an offset. Do not use it for items that are not text: it says so and"
        " returns nothing. Several items can be read at once when they do not depend on each other.",
        "annotations": {"readOnlyHint": True, "openWorldHint": False, "title": f"Read item {number}"},
        "effect": "read",
        "schema": {
            "type": "object",
            "properties": {
                name: {
                    "type": kind,
                    "description": f"The {name} of the item, as the list of all items gives it; if it is left out, the"
                    " one that was used in the call before is taken.",
                }
                for name, kind in (
                    ("path", "string"),
                    ("offset", "integer"),
                    ("limit", "integer"),
                    ("force", "boolean"),
                    ("format", "string"),
                    ("encoding", "string"),
                    ("workspace", "string"),
                )
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    }


def body(number: int, version: int = 1) -> Arguments:
    """The same as the canonical definition holds it."""
    loaded: Arguments = orjson.loads(Tool(**arguments(number, version)).encoded)
    return loaded


def groups(tools: int, number: int, version: int = 1) -> list[Group]:
    """So many groups that hold so many tools together."""
    size = tools // number
    return [Group(f"g{g}", [Tool(**arguments(n, version)) for n in range(size)]) for g in range(number)]


def facts(listed: list[Group], **more: Any) -> Facts:
    """Everything loaded and allowed, one group asked for."""
    rules = (allow("*"), ask("g0/*"))
    return Facts(
        Catalog.of(listed), Authority(Pool((Source("config", rules),))), (Load(0, LoadKind.LOAD, ("*",)),), **more
    )


def again(epoch: Epoch, **changed: Any) -> Prepared:
    """A further epoch over the same Group values, in a catalog and an authority read anew."""

    def prepare() -> Facts:
        before = epoch.facts
        return Facts(
            Catalog.of(before.catalog.groups.values()),
            Authority(Pool(before.authority.pool.sources)),
            (*before.loads,),
            **changed,
        )

    return prepare, lambda read: reproject(read, epoch)


def unchanged() -> list[Figure]:
    """100 groups of the same values: 1,000 tools against 100,000."""
    small, large = (reproject(facts(groups(tools, 100)), None) for tools in (1_000, 100_000))
    kinds = {"turn": Cause.TURN, "boundary": Cause.COMPACTION}
    work = {
        f"{kind} {size}": again(epoch, cause=cause)
        for kind, cause in kinds.items()
        for size, epoch in (("small", small), ("large", large))
    }
    took = medians(work, repeats=31, inner=5)
    words = {"turn": "unchanged epoch", "boundary": "unchanged facts at a boundary, receipt included"}
    return [
        Figure(
            f"{words[kind]}, 100,000 tools",
            took[f"{kind} large"],
            "the same, 1,000 tools",
            took[f"{kind} small"],
            limit=1.5 if kind == "turn" else None,
            detail={"receipt bytes, 1,000 tools": len(small.receipt.encoded), "100,000": len(large.receipt.encoded)},
        )
        for kind in kinds
    ]


def one_changed() -> list[Figure]:
    """1 of 10,000 tools in groups of 100 has another definition: the changed Group is built from existing values."""
    epoch = reproject(facts(groups(10_000, 100)), None)
    before = list(epoch.facts.catalog.groups.values())
    kept = [definition.tool for definition in before[50].definitions.values()][1:]
    versions = iter(range(2, 1_000_000))

    def prepare() -> Tool:
        return Tool(**arguments(0, next(versions)))

    def change(tool: Tool) -> Epoch:
        group = Group(before[50].id, [tool, *kept])
        catalog = Catalog.of([*before[:50], group, *before[51:]])
        return reproject(evolve(epoch.facts, catalog=catalog), epoch)

    took = medians({"change": (prepare, change), "floor": encoding(1)}, repeats=51, inner=3)
    return [Figure("1 of 10,000 tools changed", took["change"], "encoding and hashing it", took["floor"], limit=50)]


def encoding(number: int) -> Prepared:
    """The floor: canonical bytes and one BLAKE3 of so many definitions."""
    bodies = [body(n) for n in range(number)]
    return lambda: bodies, lambda listed: [fingerprint(Domain.TOOL, canonical(one)) for one in listed]


def all_new() -> list[Figure]:
    """10,000 definitions that nobody saw before, as a first epoch and after another; from arguments to receipt."""
    number, size = 10_000, 100
    epoch = reproject(facts(groups(number, size, version=2)), None)
    made = [[arguments(n) for n in range(number // size)] for _ in range(size)]
    bodies = [body(n) for _ in range(size) for n in range(number // size)]  # as many objects as there are tools

    def build(_: object) -> list[Group]:
        return [Group(f"g{g}", [Tool(**a) for a in listed]) for g, listed in enumerate(made)]

    work: dict[str, Prepared] = {
        "first": (lambda: None, lambda _: reproject(facts(build(_)), None)),
        "next": (lambda: None, lambda _: reproject(evolve(epoch.facts, catalog=Catalog.of(build(_))), epoch)),
        "build": (lambda: None, build),
        "floor": (lambda: bodies, lambda listed: [fingerprint(Domain.TOOL, canonical(one)) for one in listed]),
        "orjson": (lambda: bodies, lambda listed: [orjson.dumps(one, option=orjson.OPT_SORT_KEYS) for one in listed]),
    }
    took, wall = medians(work, repeats=7, clock=in_user_mode), medians(work, repeats=5)
    floor = "canonical encoding and one BLAKE3 each"
    names = {"first": "10,000 new definitions, first epoch", "next": "10,000 new definitions, after 10,000 others"}
    return [
        Figure(
            what,
            took[name],
            floor,
            took["floor"],
            limit=2,
            detail={
                "by the wall clock, fresh memory included, x floor": wall[name] / wall["floor"],
                "values alone, x floor": took["build"] / took["floor"],
                "plain orjson, x floor": took["orjson"] / took["floor"],
            },
        )
        for name, what in names.items()
    ]


def receipts() -> list[Figure]:
    """Bytes of a receipt, against groups and tools; the floor is a tenth of the tools, or of the groups."""
    sizes = {
        (number, tools): len(reproject(facts(groups(tools, number)), None).receipt.encoded)
        for number, tools in ((10, 1_000), (100, 1_000), (10, 10_000), (100, 10_000))
    }
    return [
        Figure(
            "receipt bytes, 100 groups of 100 tools",
            sizes[100, 10_000],
            "100 groups of 10",
            sizes[100, 1_000],
            limit=1.1,
            unit="bytes",
        ),
        Figure(
            "receipt bytes, 10,000 tools in 100 groups",
            sizes[100, 10_000],
            "in 10 groups",
            sizes[10, 10_000],
            limit=11,
            unit="bytes",
        ),
    ]


def growth() -> list[Figure]:
    """First epoch from existing Group values, from 10 tools to 100,000, against as many encodings."""
    found = []
    for tools in (10, 100, 1_000, 10_000, 100_000):
        listed = groups(tools, min(100, tools // 10))
        floor, work = encoding(min(tools, 1_000)), {"all": (lambda g=listed: g, lambda g: reproject(facts(g), None))}
        took = medians({**work, "floor": floor}, repeats=5 if tools > 1_000 else 15)
        found.append(
            Figure(
                f"derive, project and receipt of {tools:,} known tools",
                took["all"] / tools,
                "encoding and hashing one",
                took["floor"] / min(tools, 1_000),
                detail={"microseconds in all": took["all"] * 1e6},
            )
        )
    return found


def rendering() -> list[Figure]:
    """The request parts of 1,000 tools, half of them deferred where the API can, against writing them as JSON."""
    found = []
    listed = groups(1_000, 100)
    half = tuple(f"g{n}/*" for n in range(50))
    marks = {
        f"g{g}/{name}": d.fingerprint for g, group in enumerate(listed[:50]) for name, d in group.definitions.items()
    }
    loads = (
        Load(0, LoadKind.LOAD, ("*",)),
        Load(1, LoadKind.UNLOAD, half),
        Load(2, LoadKind.LOAD, half, "e", "c", marks),
    )
    history = [
        Message("u", Role.USER, "load"),
        Message("a", Role.ASSISTANT, calls=(Call("c", "g99__tool_0"),)),
        Message("e", Role.TOOL, "loaded", result_for="c", outcome=Outcome.OK),
    ]
    for adapter, profile in (
        (anthropic, anthropic.profile("claude")),
        (openai_responses, openai_responses.profile("gpt")),
        (openai_chat, openai_chat.profile("gpt")),
    ):
        read = evolve(facts(listed), loads=loads, retained=(2,), profile=profile)
        projection = reproject(read, None).projection
        body = adapter.render(profile, projection, history)
        work: dict[str, Prepared] = {
            "render": (lambda: None, lambda _, a=adapter, p=profile, j=projection: a.render(p, j, history)),
            "floor": (lambda: None, lambda _, body=body: orjson.dumps(body)),
        }
        took = medians(work, repeats=15)
        found.append(
            Figure(
                f"rendering 1,000 tools for {profile.issuer.api}",
                took["render"],
                "writing the result with orjson",
                took["floor"],
                detail={"deferred": len(projection.deferred), "bytes": len(orjson.dumps(body))},
            )
        )
    return found


BENCHMARKS = {
    "unchanged": unchanged,
    "one-changed": one_changed,
    "all-new": all_new,
    "receipts": receipts,
    "growth": growth,
    "rendering": rendering,
}
