"""Judges one request by itself: what it made callable, against loads on its path and authority at that moment.

A request that no session holds is judged by what its own body says of loads: less than a session would say, and so
inferred. There a tool is lost only if the body itself holds its load, and never loaded only if the policy names the
residents and no part of the history is hidden. A body without any tool may be a turn that lost them all, or a request
for a summary or a title, which nobody means to give tools: its kind is unknown, unless a record or a session says it,
and nothing counts as lost there.

A resident tool that nothing has shown yet is lost where a later request of the same process shows it, and that is
inferred: it may have been registered in between. Where none does, nobody knows whether it exists.

Not here: how a request differs from the one before (:mod:`capstate.audit.changes`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from capstate.agents.bodies import path
from capstate.agents.pi import EventKind, Session
from capstate.audit.conversations import Conversations
from capstate.audit.known import Names, Who
from capstate.audit.places import Place, Places, Walk, Walks
from capstate.audit.should import Loads, Should, Shown
from capstate.audit.turn import Turn
from capstate.audit.wires import profile
from capstate.findings import Grade

if TYPE_CHECKING:
    from pathlib import Path

    from capstate.agents.requests import Request
    from capstate.policy import Policy


UNTOLD = "unknown"
"""The kind of a request of which nobody can tell whether the model should have had tools."""


@frozen
class _Found:
    """What loads say of one request."""

    walk: Walk
    should: Should = field(factory=Should)
    never_loaded: frozenset[str] | None = None
    lost: frozenset[str] | None = None
    by_later: bool = False
    """A loss rests on what a later request shows."""


class Turns:
    """Judges requests in their order; keeps what earlier ones showed to exist."""

    def __init__(self, policy: Policy, sessions: Sequence[Session], requests: Sequence[Request]) -> None:
        self.policy = policy
        self.places = Places(sessions)
        self.names = Names(policy)
        self._walks = Walks(policy)
        self._loads: dict[tuple[Path, str | None], tuple[Walk, Loads]] = {}
        self._shown: dict[tuple[str, str | None], Shown] = {}
        self._who: dict[frozenset[str] | None, Who] = {}
        self._defer = {(r.api, r.model) for r in requests if r.wire and (r.wire.deferred or r.wire.unloaded)}
        self._seen = {n for names in policy.groups.values() for n in names}
        self._later = _shown_by_process(requests)
        self._start: dict[str, frozenset[str]] = {}
        self._roots = _roots(sessions)
        self._process: dict[int | None, Turn] = {}
        self._conversations = Conversations()

    def judge(self, request: Request) -> Turn:
        """Judge one request; :class:`Turn` says what it is compared with."""
        before = self._process.get(request.process)
        place = self.places.find(request)
        if place is None and request.bare and not request.told:
            request = evolve(request, kind=UNTOLD)
        acts = request.kind == "turn"
        if place is None and not acts and request.kind != UNTOLD:
            place = before.place if before is not None else self.places.only()
        callable_ = request.wire.effective if request.wire is not None else None
        self._seen |= callable_ or set()
        listed = request.authorised
        if listed is None and not acts and before is not None:
            listed = before.request.authorised
        who = self.who(listed)
        lineage = _lineage(request, place)
        if place is not None:
            found = self._in_session(request, place, callable_, who)
        elif acts:
            found = self._in_body(request, lineage, callable_, who)
        elif request.kind == UNTOLD:
            self._conversations.interrupt(lineage)
            found = _Found(Walk(self.policy), never_loaded=frozenset())
        else:
            found = _Found(Walk(self.policy))
        turn = Turn(
            request=request,
            place=place,
            lineage=lineage,
            path=found.walk.ids,
            compaction=found.walk.compaction,
            last=found.walk.last,
            should=found.should,
            callable=callable_,
            authorised=self._authorised(listed, callable_, request, who),
            may=who.may if who.known else None,
            not_authorised=None
            if callable_ is None or not who.known
            else frozenset(n for n in callable_ if not who.may(n)),
            never_loaded=found.never_loaded,
            lost=found.lost,
            grade=_grade(request, who, found, place),
        )
        if acts:
            self._process[request.process] = turn
        return turn

    def who(self, listed: frozenset[str] | None) -> Who:
        """Return who may, where ``listed`` was recorded."""
        key = None if self.policy.authoritative else listed
        if key not in self._who:
            self._who[key] = Who(self.names, key)
        return self._who[key]

    def loaded_at(self, place: Place) -> frozenset[str] | None:
        """Return what was loaded at a place for which there is no request; None if residents are unknown."""
        resident = self._resident_at(place)
        if resident is None:
            return None
        loads = self._loads_on(self._walks.to(place), place, None, resident)
        nothing = profile(None, "", self.policy.provider)
        return loads.should(resident, self.who(None), profile=nothing).loaded

    def _in_session(self, request: Request, place: Place, callable_: frozenset[str] | None, who: Who) -> _Found:
        walk = self._walks.to(place)
        if request.kind != "turn":
            loaded = self.loaded_at(place)
            never = None if callable_ is None or loaded is None else callable_ - loaded
            return _Found(walk, Should(), never, None if callable_ is None else frozenset())
        self._begin(place, callable_, walk)
        resident = self._resident_at(place)
        loads = self._loads_on(walk, place, request.api, resident or frozenset())
        later = self._later[_process(request)] & loads.resident - self._seen if request.wire is not None else set()
        should = self._should(request, walk, loads, who, later)
        if callable_ is None:
            return _Found(walk, should)
        lost = should.callable - callable_
        never = None if resident is None else callable_ - should.loaded
        return _Found(walk, should, never, lost, by_later=request.registered is None and bool(lost & later))

    def _in_body(self, request: Request, lineage: str, callable_: frozenset[str] | None, who: Who) -> _Found:
        walk = Walk(self.policy)
        walk.follow(path(request.history))
        told = self.policy.resident is not None
        before = self._conversations.of(lineage, request.history)
        carried = before.loaded - walk.last.keys()
        shown = self._shown.setdefault((lineage, request.api), Shown())
        loads = Loads(self.names, {*self.policy.expand(self.policy.resident or ()), *carried}, shown)
        loads.follow(walk.events)
        should = self._should(request, walk, loads, who)
        before.loaded = should.loaded
        if callable_ is None:
            return _Found(walk, should)
        here = {n for event in walk.events if event.kind is EventKind.LOAD for n in event.names}
        return _Found(
            walk,
            should,
            callable_ - should.loaded if told and not before.partial else None,
            (should.callable - callable_) & here if here else None,
        )

    def _should(
        self, request: Request, walk: Walk, loads: Loads, who: Who, later: Iterable[str] = frozenset()
    ) -> Should:
        told, registered = self.policy.provider, request.registered
        # Where nothing was shown, nothing could leave a resident out.
        exists = self._seen | set(later) | (registered or set()) | (loads.resident if request.wire is None else set())
        seen = None if request.recorded else (request.api, request.model) in self._defer
        loads.show(request.definitions)
        return loads.should(
            exists,
            who,
            registered=registered,
            retained=walk.retained,
            profile=profile(request.api, request.model, told, seen=seen),
        )

    def _loads_on(self, walk: Walk, place: Place, api: str | None, resident: frozenset[str]) -> Loads:
        key = place.session.path, api
        held, loads = self._loads.get(key, (None, None))
        if held is not walk or loads is None or loads.resident != resident:
            shown = self._shown.setdefault((f"session {self._root(place)}", api), Shown())
            loads = Loads(self.names, resident, shown)
            self._loads[key] = walk, loads
        loads.follow(walk.events)
        return loads

    def _root(self, place: Place) -> str:
        return self._roots.get(place.session.id, place.session.id)

    def _begin(self, place: Place, callable_: frozenset[str] | None, walk: Walk) -> None:
        """Take what the first request of a session and its copies showed for resident, if no policy says it."""
        if callable_ is not None and self._root(place) not in self._start:
            loads = {n for event in walk.events if event.kind is EventKind.LOAD for n in event.names}
            self._start[self._root(place)] = callable_ - loads

    def _resident_at(self, place: Place) -> frozenset[str] | None:
        if self.policy.resident is not None:
            return frozenset(self.policy.expand(self.policy.resident))
        return self._start.get(self._root(place))

    def _authorised(
        self, listed: frozenset[str] | None, callable_: frozenset[str] | None, request: Request, who: Who
    ) -> frozenset[str] | None:
        if not self.policy.authoritative:
            return listed
        selected = self.policy.expand((*(self.policy.allow or ()), *(self.policy.ask or ())))
        names: Iterable[str] = {*selected, *(callable_ or ()), *(request.registered or ())}
        return frozenset(n for n in names if who.may(n))


def _grade(request: Request, who: Who, found: _Found, place: Place | None) -> Grade:
    judged = found.never_loaded is not None or found.lost is not None
    if request.wire is None or request.kind == UNTOLD or not (judged or who.known):
        return Grade.UNKNOWN
    if (judged and place is None) or found.by_later or not who.known:
        return Grade.INFERRED
    return Grade.RECORDED if request.recorded else Grade.OBSERVED


def _process(request: Request) -> tuple[int | None, str | None]:
    return request.process, request.session


def _shown_by_process(requests: Sequence[Request]) -> Mapping[tuple[int | None, str | None], set[str]]:
    """Return what the requests of each process made callable at any time."""
    found: dict[tuple[int | None, str | None], set[str]] = defaultdict(set)
    for request in requests:
        found[_process(request)] |= request.wire.effective if request.wire is not None else set()
    return found


def _lineage(request: Request, place: Place | None) -> str:
    if place is not None:
        return f"session {place.session.id}"
    return f"session {request.session}" if request.session is not None else f"process {request.process}"


def _roots(sessions: Sequence[Session]) -> dict[str, str]:
    """Return, by session id, the id of the session that it goes back to by forks and clones."""
    parents: dict[str, str] = {}
    ids = {s.id for s in sessions}
    for s in sessions:
        named = (s.parent or "").removesuffix(".jsonl")
        parent = named if named in ids else named.rpartition("_")[2]
        if parent in ids and parent != s.id:
            parents[s.id] = parent
    roots = {}
    for s in sessions:
        at, seen = s.id, {s.id}
        while at in parents and parents[at] not in seen:
            at = parents[at]
            seen.add(at)
        roots[s.id] = at
    return roots
