"""What a person is told about a decision: the rule behind ``decided_by``, and names that nothing bears now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from capstate.authority import Authority, Effect, Grant
from capstate.errors import Reason
from capstate.runtime.facts import covers
from capstate.surface import LoadKind

if TYPE_CHECKING:
    from capstate.capabilities import Catalog
    from capstate.runtime.verdict import Names
    from capstate.surface import Load

_ABOVE = "parent: "


def rule_of(authority: Authority, decided_by: str, tool: str) -> dict[str, Any] | None:
    """Return the rule that ``decided_by`` names, readable: its source, what it is on, its effect, its giver.

    None where no rule decided: a source that failed, a ceiling of one effect, nothing that speaks of the tool.
    """
    looked: Authority | str | None = authority
    while decided_by.startswith(_ABOVE) and isinstance(looked, Authority):
        looked, decided_by = looked.parent, decided_by.removeprefix(_ABOVE)
    source, _, id_ = decided_by.partition("#")
    if not isinstance(looked, Authority) or not id_:
        return None
    for name, rule in _rules(looked):
        if (name, rule.id) == (source, id_) and covers(rule.on, tool):
            return {"source": name, "on": rule.on, "effect": str(rule.effect), "giver": rule.giver}
    return None


def named_in_vain(catalog: Catalog, authority: Authority, loads: Iterable[Load]) -> dict[str, Any]:
    """Return the selectors of loads, and the rules, that name nothing that exists now; each once, in order."""
    known = [d.qualified for group in catalog.groups.values() for d in group.definitions.values()]

    def vain(on: str) -> bool:
        return not any(covers(on, tool) for tool in known)

    wished = {on for load in loads if load.do is LoadKind.LOAD for on in load.on}
    rules = [
        {"source": name, "id": rule.id, "on": rule.on, "effect": str(rule.effect), "giver": rule.giver}
        for name, rule in _rules(authority)
        if vain(rule.on)
    ]
    return {"unknown_loads": sorted(filter(vain, wished)), "unknown_rules": rules}


def withheld(names: Names, wires: Iterable[str]) -> dict[str, tuple[Reason, str]]:
    """Return reason and deciding rule of each wire name that may not be called."""
    found = {}
    for wire in wires:
        row = names.find(wire)
        if row is None:
            found[wire] = (Reason.UNKNOWN_TOOL, "")
        elif row.reason is not None:
            found[wire] = (row.reason, row.decided_by)
    return found


def _rules(authority: Authority) -> Iterator[tuple[str, Grant]]:
    """Give every rule of one holder's authority with its source, as ``decided_by`` names that."""
    pool = authority.pool
    for source in pool.sources:
        yield from ((source.name, rule) for rule in source.rules)
    yield from (("granted", rule) for rule in pool.granted)
    yield from (("want", Grant(on, Effect.ALLOW, id=on)) for on in pool.want or ())
    for ceiling in authority.ceilings:
        yield from ((f"ceiling {ceiling.name}", rule) for rule in ceiling.rules)
