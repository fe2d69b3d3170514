"""What holds for one session now: folded chains, authority read live, and the surface that follows.

A session derives from four things that can change under it: its own chain, the chain of its holder and of its
ancestors, the host's sources, and the host's catalog. ``Live.look`` reads all of them; what did not change costs
a comparison. An ancestor's authority is computed here, in the process of the child: the same sources asked for
the ancestor's holder, and the ancestor's entries. Nothing is remembered that could stand in for a failed read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from capstate.authority import FIRST_SIGHT, Authority, Ceiling, Effect, Grant, Lifetime, Pool, Source, allow
from capstate.ledger import DamageKind, Head, Ledger, load
from capstate.runtime.sources import Sources
from capstate.runtime.state import State, covers
from capstate.surface import Surface, derive

if TYPE_CHECKING:
    from capstate.capabilities import Catalog, NameRule


@define
class Folds:
    """The chains that one session looks at, each folded as far as it was read."""

    ledger: Ledger
    key: bytes | None
    _states: dict[str, tuple[Head, State]] = field(factory=dict)
    _revision: int | None = None
    version: int = 0
    """Grows when any of these states does."""

    def refresh(self) -> None:
        """Take in whatever anybody appended to these chains."""
        revision = self.ledger.revision()
        if revision == self._revision:
            return
        for chain in tuple(self._states):
            self._take(chain)
        self._revision = revision

    def get(self, chain: str) -> State | None:
        """Return the state of ``chain``; None if it has no entry."""
        if chain not in self._states:
            self._take(chain)
        found = self._states.get(chain)
        return found[1] if found is not None else None

    def head(self, chain: str) -> Head | None:
        """Return the head up to which ``chain`` is folded."""
        found = self._states.get(chain)
        return found[0] if found is not None else None

    def _take(self, chain: str) -> None:
        known = self._states.get(chain)
        head = self.ledger.head(chain)
        if head is None or (known is not None and known[0] == head):
            return
        read = load(self.ledger, chain, self.key, after=known[0] if known is not None else None)
        state = known[1] if known is not None else State(chain)
        state.holes.extend(d.first for d in read.damage if d.kind is DamageKind.HOLE)
        for entry in read.entries:
            state.apply(entry)
        self._states[chain] = (read.head or head, state)
        self.version += 1


@define
class Live:
    """The reading side of one session."""

    chain: str
    folds: Folds
    sources: Sources
    clock: Callable[[], int]
    alive: Callable[[str], int | None]
    """The fencing token under which this process has a session open; None if it has not."""
    _authority: dict[str, tuple[tuple[Any, ...], Authority]] = field(factory=dict)
    _granted: dict[str, tuple[tuple[Any, ...], tuple[Grant, ...]]] = field(factory=dict)
    _pinned: dict[tuple[Any, ...], Source] = field(factory=dict)
    _looked: tuple[tuple[Any, ...], Surface] | None = None

    @property
    def state(self) -> State:
        """The session's own state."""
        state = self.folds.get(self.chain)
        return state if state is not None else State(self.chain)

    def now(self) -> int:
        """Milliseconds since the epoch; never behind the ledger."""
        return max(self.clock(), self.state.at)

    def look(self, names: NameRule, path: tuple[str, ...] | None) -> tuple[Catalog, Authority, Surface]:
        """Return what exists, who may, and what may be called, all read now.

        Raises:
            LedgerUnavailableError: a chain cannot be read.
            CatalogUnavailableError: the catalog cannot be read.
        """
        self.folds.refresh()
        catalog = self.sources.read_catalog()
        authority = self.authority(self.chain)
        loads = self.state.loads
        inputs = (catalog, authority, loads, names, path)
        if self._looked is not None and self._looked[0] == inputs:
            return catalog, authority, self._looked[1]
        surface = derive(
            catalog,
            loads,
            path,
            authority,
            names,
            self._looked[1] if self._looked is not None else None,
        )
        self._looked = (inputs, surface)
        return catalog, authority, surface

    def authority(self, chain: str) -> Authority:
        """Return the authority of ``chain``'s session now, with that of its ancestors."""
        state = self.folds.get(chain)
        if state is None or state.opening is None:
            return Authority(Pool(launch=False))
        opening = state.opening
        child = opening.parent is not None or opening.kind == "child"
        parent: Any = None
        if child:
            above = self.folds.get(opening.parent) if opening.parent is not None else None
            if above is None or opening.parent is None:
                parent = "missing"
            else:
                parent = "ended" if above.ended else self.authority(opening.parent)
        holder = self.folds.get(opening.holder)
        pins: Mapping[tuple[str, str], Any] = holder.pins if holder is not None else {}
        sources = tuple(
            self._resolve(source, pins, opening.holder)
            for source in self.sources.read_grants(opening.holder, state.sources, state.retired)
        )
        ceilings = self.sources.read_ceilings(opening.holder, state.sources, state.retired)
        if state.restrictions:
            # Asks that may not add are a ceiling: everything, but these only if asked.
            ceilings = (*ceilings, Ceiling("restrictions", (allow("*"), *state.restrictions)))
        inputs = (sources, self._grants(chain, opening.holder), opening.launch, child, ceilings, parent)
        last = self._authority.get(chain)
        if last is not None and last[0] == inputs:
            return last[1]
        pool = Pool(
            sources, inputs[1], opening.launch if child else None, launch=not child or opening.launch is not None
        )
        made = Authority(pool, ceilings, parent)
        self._authority[chain] = (inputs, made)
        return made

    def _resolve(self, source: Source, pins: Mapping[tuple[str, str], Any], holder: str) -> Source:
        """Return ``source`` with the pins that were taken at first sight; one not taken yet covers nothing."""
        if not any(rule.pin == FIRST_SIGHT for rule in source.rules):
            return source
        taken = tuple(pins.get((source.name, rule.id), frozenset()) for rule in source.rules)
        key = (source.name, holder, source.rules, source.revision, taken)
        found = self._pinned.get(key)
        if found is None:
            rules = tuple(
                evolve(rule, pin=pin) if rule.pin == FIRST_SIGHT else rule
                for rule, pin in zip(source.rules, taken, strict=True)
            )
            found = self._pinned[key] = evolve(source, rules=rules)
        return found

    def _grants(self, chain: str, holder: str) -> tuple[Grant, ...]:
        """Return the grants in the ledger that live now: the chain's own, and its holder's persistent ones."""
        state, above = self.folds.get(chain), self.folds.get(holder)
        own = tuple(state.grants.values()) if state is not None else ()
        held = tuple(above.grants.values()) if above is not None and holder != chain else ()
        token = self.alive(chain)
        expiring = [g.expires for g in (*own, *held) if g.expires is not None]
        now = self.now() if expiring else 0
        key = (own, held, token, tuple(e > now for e in expiring))
        last = self._granted.get(chain)
        if last is not None and last[0] == key:
            return last[1]
        live = tuple(
            g
            for g in (*own, *(g for g in held if g.lifetime is Lifetime.PERSISTENT))
            if (g.expires is None or g.expires > now)
            and (
                g.lifetime is not Lifetime.UNTIL or g.effect is Effect.DENY or (token is not None and g.token == token)
            )
        )
        self._granted[chain] = (key, live)
        return live

    def unseen_pins(self, catalog: Catalog) -> Iterator[tuple[str, str, list[list[str]]]]:
        """Give (source, grant id, pin) of each first-sight pin of the session's holder that can be taken now.

        A grant whose tools nobody has seen yet is not pinned yet: it covers nothing until then.
        """
        opening = self.state.opening
        if opening is None:
            return
        holder = self.folds.get(opening.holder)
        pins = holder.pins if holder is not None else {}
        for source in self.sources.read_grants(opening.holder, self.state.sources, self.state.retired):
            for rule in source.rules:
                if rule.pin == FIRST_SIGHT and (source.name, rule.id) not in pins:
                    pin = pin_of(rule.on, catalog)
                    if pin:
                        yield source.name, rule.id, pin


def pin_of(selector: str, catalog: Catalog) -> list[list[str]]:
    """Return the definitions that ``selector`` names now, as a pin."""
    return [
        [d.qualified, d.fingerprint]
        for group in catalog.groups.values()
        for d in group.definitions.values()
        if covers(selector, d.qualified) and d.name not in group.conflicts
    ]
