"""Worlds of Annex A as the library's own values, and its answer in the form of Annex A."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capstate.authority import Authority, Ceiling, Effect, Grant, Pool, Source, SourceState
from capstate.capabilities import Catalog, Group, NameRule, Tool
from capstate.epochs import Epoch, Facts, reproject
from capstate.projection import Issuer, Profile
from capstate.surface import Load, LoadKind

World = dict[str, Any]
Prints = Mapping[tuple[str, str], frozenset[str]]
"""(qualified id, token) to the fingerprints that bear the token in this catalog."""

NOBODY: Any = None
"""No adapter: nothing here renders."""


def groups_of(world: World) -> list[Group]:
    """The entries of the catalog, each a group of its own."""
    return [
        Group(
            entry["id"],
            [
                Tool(tool["name"], description=tool["definition"], needs=tool["needs"], wire_name=tool["wire_name"])
                for tool in entry["tools"]
            ],
            up=entry["up"],
        )
        for entry in world["catalog"]
    ]


def prints_of(groups: list[Group]) -> Prints:
    found: dict[tuple[str, str], frozenset[str]] = {}
    for group in groups:
        for definition in (*group.definitions.values(), *group.rivals):
            key = (definition.qualified, definition.tool.description)
            found[key] = found.get(key, frozenset()) | {definition.fingerprint}
    return found


def grant_of(rule: dict[str, Any], prints: Prints) -> Grant:
    """In a pin the token alone counts, so it lists every definition that bears it."""
    pin = None
    if rule["pin"] is not None:
        pin = frozenset((tool, p) for tool, token in rule["pin"] for p in prints.get((tool, token), {f"no {token}"}))
    return Grant(rule["on"], Effect(rule["effect"]), pin, rule["id"])


def authority_of(authority: dict[str, Any], prints: Prints) -> Authority:
    def rules(listed: list[dict[str, Any]]) -> tuple[Grant, ...]:
        return tuple(grant_of(rule, prints) for rule in listed)

    sources = [
        Source(name, rules(source["rules"]), SourceState(source["state"]))
        for name, source in authority["sources"].items()
    ]
    ceilings = [
        Ceiling(
            name,
            rules(ceiling["rules"] or []),
            None if ceiling["effect"] in (None, "none") else Effect(ceiling["effect"]),
            SourceState(ceiling["state"]),
        )
        for name, ceiling in authority["ceilings"].items()
    ]
    child = authority["child"]
    granted = rules(authority["granted"])
    if child is None:
        return Authority(Pool(sources, granted), ceilings)
    parent: Any = child["parent"] if isinstance(child["parent"], str) else authority_of(child["parent"], prints)
    return Authority(Pool(sources, granted, child["want"], child["want"] is not None), ceilings, parent)


def loads_of(loads: list[dict[str, Any]], prints: Prints) -> tuple[Load, ...]:
    return tuple(
        Load(
            number,
            LoadKind(event["do"]),
            tuple(event["on"]),
            event["at"],
            event["call"],
            {tool: min(prints.get((tool, token), {f"no {token}"})) for tool, token in event["definitions"].items()},
        )
        for number, event in enumerate(loads)
    )


def profile_of(profile: dict[str, Any]) -> Profile:
    return Profile(
        Issuer("some", "api", "model"),
        NOBODY,
        "deferral" if profile["defers"] else "",
        profile["needs_immediate"],
        NameRule(profile["names"]["limit"], profile["names"]["chars"]),
    )


def facts_of(world: World, **more: Any) -> Facts:
    """The facts that a world states; ``more`` are those that it says nothing of, such as a cause."""
    groups = groups_of(world)
    prints = prints_of(groups)
    return Facts(
        catalog=Catalog.of(groups),
        authority=authority_of(world["authority"], prints),
        loads=loads_of(world["loads"], prints),
        path=None if world["path"] is None else tuple(world["path"]),
        retained=tuple(world["retained"]),
        profile=profile_of(world["profile"]),
        **more,
    )


def answer_of(epoch: Epoch) -> dict[str, Any]:
    """The epoch in the form of Annex A."""
    placed = [*epoch.projection.immediate, *epoch.projection.deferred]
    marks = {p.definition.qualified: p.mark.load if p.mark is not None else None for p in placed}
    return {
        "callable": {
            tool: {"effect": str(row.effect), "decided_by": row.decided_by, "at": marks[tool]}
            for tool, row in epoch.surface.callable.items()
        },
        "withheld": {
            tool: {"reason": str(row.reason), "decided_by": row.decided_by}
            for tool, row in epoch.surface.withheld.items()
        },
        "order": [p.definition.qualified for p in placed],
    }


def decide(world: World) -> dict[str, Any]:
    """What the library answers for ``world``, as ``tests.model.predict`` does."""
    return answer_of(reproject(facts_of(world), None))
