"""What holds for one session now: folded chains, authority read live, and the surface that follows.

A session derives from four things that can change under it: its own chain, the chain of its holder and of its
ancestors, the host's sources, and the host's catalog. ``Live.look`` reads all of them; what did not change costs
a comparison. An ancestor's authority is computed here, in the process of the child: the same sources asked for
the ancestor's holder, and the ancestor's entries. Nothing is remembered that could stand in for a failed read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from attrs import define, evolve, field

from capstate.authority import FIRST_SIGHT, Authority, Ceiling, Effect, Grant, Lifetime, Pool, Source, allow
from capstate.errors import LedgerUnavailableError
from capstate.ledger import DamageKind, Entry, Head, Ledger, load
from capstate.runtime.facts import Opening, covers
from capstate.runtime.sources import Sources
from capstate.runtime.state import State
from capstate.surface import Surface, derive

if TYPE_CHECKING:
    from capstate.capabilities import Catalog, NameRule


@define
class Folds:
    """The chains that one session looks at, each folded as far as it was read."""

    ledger: Ledger
    key: bytes | None
    rolled: set[str] = field(factory=set)
    """Chains of which entries that were read are gone, or are others now."""
    _states: dict[str, tuple[Head, State]] = field(factory=dict)
    _absent: set[str] = field(factory=set)
    """Chains that were asked for and have no entry: one may come."""
    revision: int | None = None
    """The ledger's revision as of the last refresh."""

    def refresh(self) -> None:
        """Take in whatever anybody appended to these chains."""
        revision = self.ledger.revision()
        if revision != self.revision:
            for chain in (*self._states, *self._absent):
                self._take(chain)
            self.revision = revision

    def get(self, chain: str) -> State | None:
        """Return the state of ``chain``; None if it has no entry."""
        found = self._states.get(chain)
        if found is None:
            self._take(chain)
            found = self._states.get(chain)
        return found[1] if found is not None else None

    def changed(self) -> bool:
        """Take in what anybody appended since the last refresh; whether authority depends on any of it."""
        if self.ledger.revision() == self.revision:
            return False
        before = self._versions()
        self.refresh()
        return self._versions() != before

    def _versions(self) -> dict[str, int]:
        return {chain: state.version for chain, (_, state) in self._states.items()}

    def head(self, chain: str) -> Head | None:
        """Return the head up to which ``chain`` is folded."""
        found = self._states.get(chain)
        return found[0] if found is not None else None

    def latest(self) -> int:
        """Return the latest time in any entry of these chains."""
        return max((state.at for _, state in self._states.values()), default=0)

    def take(self, chain: str, entries: tuple[Entry, ...]) -> None:
        """Take in what this session itself appended to ``chain``."""
        found = self._states.get(chain)
        state = found[1] if found is not None else State(chain)
        for entry in entries:
            state.apply(entry)
        self._absent.discard(chain)
        self._states[chain] = (entries[-1].head, state)

    def _take(self, chain: str) -> None:
        known = self._states.get(chain)
        head = self.ledger.head(chain)
        if known is None and head is None:
            self._absent.add(chain)
            return
        if head is None:
            raise LedgerUnavailableError(f"chain {chain!r} was there, and is gone")
        if known is not None and known[0] == head:
            return
        read = load(self.ledger, chain, self.key, after=known[0] if known is not None else None)
        state = known[1] if known is not None else State(chain)
        for damage in read.damage:
            if damage.kind is DamageKind.HOLE:
                state.damaged(min(damage.first, head.sequence + 1), damage.last)
                if known is not None:
                    self.rolled.add(chain)
        for entry in read.entries:
            state.apply(entry)
        self._absent.discard(chain)
        self._states[chain] = (read.head or head, state)


_LOOKS = 50
"""How often a look is made again because a chain changed while the host was asked."""


class _Made(NamedTuple):
    """An authority, what it was made from, and how long that holds."""

    inputs: tuple[Any, ...]
    expires: int | None
    until: tuple[int, frozenset[str]] | None
    authority: Authority


@define
class Live:
    """The reading side of one session."""

    chain: str
    folds: Folds
    sources: Sources
    clock: Callable[[int], int]
    """The time now, never before the one given."""
    jobs: Callable[[str], tuple[int, frozenset[str]] | None]
    """Of a session that this process has open: its fencing token, and the grants of jobs that run in it now."""
    _nothing: Authority = field(factory=lambda: Authority(Pool(launch=False)))
    _made: dict[str, _Made] = field(factory=dict)
    _looked: tuple[tuple[Any, ...], Surface] | None = None

    @property
    def state(self) -> State:
        """The session's own state."""
        return self.folds.get(self.chain) or State(self.chain)

    def now(self) -> int:
        """Milliseconds since the epoch; never behind the ledger, and never running back."""
        return self.clock(self.folds.latest())

    def look(self, names: NameRule, path: tuple[str, ...] | None) -> tuple[Catalog, Authority, Surface]:
        """Return what exists, who may, and what may be called, all read now.

        Raises:
            LedgerUnavailableError: a chain cannot be read, or does not come to rest.
            CatalogUnavailableError: the catalog cannot be read.
        """
        for _ in range(_LOOKS):
            found = self._once(names, path)
            # Only now: the host may take its time to answer, and what was denied meanwhile was denied before this
            # look ended. What had changed before is found here as well, and looked at again.
            if not self.folds.changed():
                return found
        raise LedgerUnavailableError(f"what {self.chain!r} rests on changes faster than its sources answer")

    def _once(self, names: NameRule, path: tuple[str, ...] | None) -> tuple[Catalog, Authority, Surface]:
        catalog = self.sources.read_catalog()
        authority = self.authority(self.chain)
        state = self.folds.get(self.chain)
        inputs = (catalog, authority, state.loads if state is not None else (), names, path)
        looked = self._looked
        if looked is not None and looked[0] == inputs:
            return catalog, authority, looked[1]
        surface = derive(catalog, inputs[2], path, authority, names, looked[1] if looked is not None else None)
        self._looked = (inputs, surface)
        return catalog, authority, surface

    def authority(self, chain: str, below: tuple[str, ...] = ()) -> Authority:
        """Return the authority of ``chain``'s session now, with that of its ancestors."""
        state = self.folds.get(chain)
        opening = state.opening if state is not None else None
        if state is None or opening is None or opening.kind == "holder":
            return self._nothing
        holder = state if opening.holder == chain else self.folds.get(opening.holder)
        parent = None
        if opening.parent is not None or opening.kind == "child":
            parent = self._parent(opening.parent, (*below, chain))
        read = self.sources.read(opening.holder, state.sources)
        forked = tuple(origin.version for origin in self.origins(state)) if opening.origin is not None else ()
        inputs = (read, state.version, holder.version if holder is not None else -1, parent, forked)
        made = self._made.get(chain)
        if (
            made is not None
            and made.inputs == inputs
            and (made.expires is None or made.expires > self.now())
            and (made.until is None or made.until == self.jobs(chain))
        ):
            return made.authority
        made = self._made[chain] = self._make(chain, state, holder, inputs, made)
        return made.authority

    def origins(self, state: State) -> Iterator[State]:
        """Give the states of the sessions that ``state``'s was forked from, nearest first."""
        seen = {state.chain}
        while state.opening is not None and state.opening.origin is not None and state.opening.origin[0] not in seen:
            origin = self.folds.get(state.opening.origin[0])
            if origin is None:
                return
            seen.add(origin.chain)
            yield origin
            state = origin

    def line(self) -> Iterator[State]:
        """Give the states that authority rests on: of the session, ancestors, holders, origins and root."""
        seen: set[str] = set()
        chain: str | None = self.chain
        while chain is not None and chain not in seen:
            state = self.folds.get(chain)
            opening = state.opening if state is not None else None
            forked = [origin.chain for origin in self.origins(state)] if state is not None else []
            for each in (chain, *((opening.holder, opening.root) if opening is not None else ()), *forked):
                found = self.folds.get(each) if each not in seen else None
                seen.add(each)
                if found is not None:
                    yield found
            chain = opening.parent if opening is not None else None

    def unseen_pins(self, catalog: Catalog) -> Iterator[tuple[str, str, list[list[str]]]]:
        """Give (source, grant id, pin) of each first-sight pin of the session's holder that was never taken.

        The pin is empty while nobody has seen a tool that the grant names: then it cannot be taken yet.
        """
        state = self.state
        if state.opening is None:
            return
        holder = self.folds.get(state.opening.holder)
        for source in self.sources.read(state.opening.holder, state.sources):
            for rule in source.rules if isinstance(source, Source) else ():
                key = (source.name, rule.id)
                if rule.pin == FIRST_SIGHT and (holder is None or (key not in holder.pins and key not in holder.lost)):
                    yield *key, pin_of(rule.on, catalog)

    def _parent(self, parent: str | None, below: tuple[str, ...]) -> Authority | Literal["missing", "ended"]:
        state = self.folds.get(parent) if parent is not None and parent not in below else None
        if parent is None or state is None:
            return "missing"
        return "ended" if state.ended else self.authority(parent, below)

    def _make(
        self, chain: str, state: State, holder: State | None, inputs: tuple[Any, ...], last: _Made | None
    ) -> _Made:
        read, _, _, parent, _ = inputs
        opening = state.opening or Opening("child")
        named = [*read, *self.sources.missing(state.sources, state.retired)]
        sources = tuple(_resolved(s, holder) for s in named if isinstance(s, Source))
        ceilings = [c for c in named if isinstance(c, Ceiling)]
        cut = state.restrictions if holder is None or holder is state else (*state.restrictions, *holder.restrictions)
        origins = [origin for origin in self.origins(state) if origin is not holder]
        cut = (*cut, *(rule for origin in origins for rule in origin.restrictions))
        if cut:
            # Asks that may not add are a ceiling: everything, but these only if asked.
            ceilings.append(Ceiling("restrictions", (allow("*"), *cut)))
        if state.ended:
            ceilings.append(Ceiling("ended"))
        grants = list(state.grants.values())
        for other in (holder, *origins):
            if other is not None and other is not state:
                # An origin's allows are its holder's, or its own and temporary; what it was denied goes with the fork.
                given = (g for g in other.grants.values() if g.lifetime is Lifetime.PERSISTENT)
                shared = other is holder and shares(state, holder)
                grants += [g for g in given if shared or g.effect is not Effect.ALLOW]
        expiring = [g.expires for g in (*grants, *_rules(sources, ceilings)) if g.expires is not None]
        now = self.now() if expiring else 0
        if expiring:
            sources = tuple(_unexpired(source, now) for source in sources)
            ceilings = [_unexpired(ceiling, now) for ceiling in ceilings]
        until = self.jobs(chain) if _has_jobs(state) else None
        live = tuple(g for g in grants if (g.expires is None or g.expires > now) and _lives(g, until))
        launch = opening.launch if parent is not None else None
        pool = Pool(sources, live, launch, launch=parent is None or launch is not None)
        authority = Authority(pool, tuple(ceilings), parent)
        if last is not None and last.authority == authority:
            authority = last.authority
        return _Made(inputs, min((e for e in expiring if e > now), default=None), until, authority)


def shares(state: State, holder: State | None) -> bool:
    """Whether the chain that bears the name of ``state``'s holder is that holder's, and not some other session's.

    A holder's name may be the id of a session that is its own holder; and a child's own forks share its chain, because
    they are cut by the same parent. What others give there is for somebody else.
    """
    if holder is None or holder is state or holder.opening is None:
        return True
    parent = state.opening.parent if state.opening is not None else None
    return holder.opening.holder == holder.chain and holder.opening.parent == parent


def _rules(sources: Iterable[Source], ceilings: Iterable[Ceiling]) -> Iterator[Grant]:
    said: Iterable[Source | Ceiling] = (*sources, *ceilings)
    for one in said:
        yield from one.rules


_Said = TypeVar("_Said", Source, Ceiling)


def _unexpired(said: _Said, now: int) -> _Said:
    """Return a source or ceiling without the rules whose time is over."""
    if all(rule.expires is None or rule.expires > now for rule in said.rules):
        return said
    return evolve(said, rules=tuple(r for r in said.rules if r.expires is None or r.expires > now))


def _has_jobs(state: State) -> bool:
    return any(grant.lifetime is Lifetime.UNTIL for grant in state.grants.values())


def _lives(grant: Grant, until: tuple[int, frozenset[str]] | None) -> bool:
    """Whether a grant until a job ends still lives: in the very session object that gave it, while the job runs there.

    The token alone proves nothing: it stands in a row that whoever writes the file can set back.
    """
    if grant.lifetime is not Lifetime.UNTIL or grant.effect is not Effect.ALLOW:
        return True
    return until is not None and grant.token == until[0] and grant.id in until[1]


def _resolved(source: Source, holder: State | None) -> Source:
    """Return ``source`` with the pins that were taken at first sight; one not taken covers nothing."""
    if not any(rule.pin == FIRST_SIGHT for rule in source.rules):
        return source
    pins = holder.pins if holder is not None else {}
    rules = tuple(
        evolve(rule, pin=pins.get((source.name, rule.id), frozenset())) if rule.pin == FIRST_SIGHT else rule
        for rule in source.rules
    )
    return evolve(source, rules=rules)


def pin_of(selector: str, catalog: Catalog) -> list[list[str]]:
    """Return the definitions that ``selector`` names now, as a pin."""
    return [
        [d.qualified, d.fingerprint]
        for group in catalog.groups.values()
        for d in group.definitions.values()
        if covers(selector, d.qualified) and d.name not in group.conflicts
    ]
