"""One request, judged by itself: what it made callable, against loads on its path and authority at that moment.

Not here: how it differs from the request before (:mod:`capstate.audit.changes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from capstate.agents.pi import Entry, Event, EventKind, Session, boundary, events
from capstate.agents.requests import Request
from capstate.audit.places import Place, Places, Walks
from capstate.audit.should import Should, derive
from capstate.findings import Grade

if TYPE_CHECKING:
    from capstate.policy import Policy

DEFERS: Mapping[str, str] = {
    "anthropic-messages": "tool_reference",
    "openai-responses": "tool_search",
    "openai-codex-responses": "tool_search",
    "openai-completions": "",
}
"""What an API can do natively, where neither a policy nor a body tells what its model does."""

Test = Callable[[str], bool]


@frozen
class Turn:
    """One judged request. Sets are None where they cannot be known.

    Attributes:
        lineage: what this request goes on from: a session, else a process.
        path: ids of the entries from root to leaf, while this turn is judged; empty without a session.
        last: by name, the last event on the path that covers it.
        may: whether a name is authorised; None if nobody knows.
    """

    request: Request
    place: Place | None
    lineage: str
    path: AbstractSet[str] = field(repr=False)
    compaction: str | None
    last: Mapping[str, Event] = field(repr=False)
    should: Should
    callable: frozenset[str] | None
    authorised: frozenset[str] | None
    may: Test | None
    not_authorised: frozenset[str] | None
    never_loaded: frozenset[str] | None
    lost: frozenset[str] | None
    grade: Grade

    def to_json(self, unexplained: Iterable[str] | None) -> dict[str, Any]:
        """Return the line of a report."""
        request = self.request
        return {
            "turn": request.turn,
            "callable": _listed(self.callable),
            "authorised": _listed(self.authorised),
            "not_authorised": _listed(self.not_authorised),
            "never_loaded": _listed(self.never_loaded),
            "lost": _listed(self.lost),
            "unexplained": _listed(unexplained),
            "should": {
                "immediate": list(self.should.immediate),
                "deferred": dict(self.should.deferred),
                "withheld": {name: reason.value for name, reason in self.should.withheld.items()},
            },
            "kind": request.kind,
            "process": request.process,
            "session": self.place.session.id if self.place is not None else request.session,
            "leaf": self.place.leaf if self.place is not None else request.leaf,
            "grade": self.grade.value,
            "file": request.file,
            "line": request.line,
        }


class Turns:
    """Judges requests in their order; keeps what earlier ones showed to exist."""

    def __init__(self, policy: Policy, sessions: Sequence[Session], requests: Sequence[Request]) -> None:
        self.policy = policy
        self.places = Places(sessions)
        self._walks = Walks(policy)
        self._defer = {(r.api, r.model) for r in requests if r.wire and (r.wire.deferred or r.wire.unloaded)}
        self._seen: set[str] = set()
        self._start: dict[str, frozenset[str]] = {}
        self._roots = _roots(sessions)
        self._marked: dict[tuple[str, str, str, str | None], str] = {}
        self._process: dict[int | None, Turn] = {}

    def judge(self, request: Request) -> Turn:
        """Judge one request; :class:`Turn` says what it is compared with."""
        acts = request.kind == "turn"
        before = self._process.get(request.process)
        place = self.places.find(request)
        if place is None and not acts:
            place = before.place if before is not None else self.places.only()
        walk = self._walks.to(place)
        path, happened = walk.path, walk.events
        callable_ = request.wire.effective if request.wire is not None else None
        self._seen |= callable_ or set()
        resident = self._resident(request, place, callable_ if acts else None, happened)
        listed = request.authorised
        if listed is None and not acts and before is not None:
            listed = before.request.authorised
        may = authority(self.policy, listed)
        should = Should()
        if acts:
            should = self._should(request, place, path=path, happened=happened, resident=resident or (), may=may)
        loaded = should.loaded
        if not acts and place is not None:
            loaded = self.loaded_at(place) or loaded
        grade = self._grade(request, may)
        known = place is not None and resident is not None
        turn = Turn(
            request=request,
            place=place,
            lineage=_lineage(request, place),
            path=walk.ids,
            compaction=next((e.id for e in reversed(path) if e.type == "compaction"), None),
            last={name: event for event in happened for name in event.names},
            should=should,
            callable=callable_,
            authorised=self._authorised(listed, callable_, request),
            may=may,
            not_authorised=None if may is None or callable_ is None else frozenset(n for n in callable_ if not may(n)),
            never_loaded=callable_ - loaded if callable_ is not None and known else None,
            lost=should.callable - callable_ if callable_ is not None and place is not None else None,
            grade=grade,
        )
        if acts:
            self._process[request.process] = turn
        return turn

    def loaded_at(self, place: Place) -> frozenset[str] | None:
        """Return what was loaded at a place for which there is no request; None if residents are unknown."""
        resident = self.policy.resident
        start = self._start.get(self._roots.get(place.session.id, place.session.id))
        if resident is None and start is None:
            return None
        names = self.policy.expand(resident) if resident is not None else start or ()
        happened = events(place.session.walk(place.leaf), self.policy)
        return derive(
            happened,
            frozenset(),
            resident=names,
            names=(),
            exists=_always,
            available=_always,
            authorised=None,
            defers=False,
        ).loaded

    def _should(
        self,
        request: Request,
        place: Place | None,
        *,
        path: Sequence[Entry],
        happened: Sequence[Event],
        resident: Iterable[str],
        may: Test | None,
    ) -> Should:
        registered = request.registered
        catalog = {n for names in self.policy.groups.values() for n in names}
        if request.wire is None:
            catalog |= set(resident)  # nothing was shown that could leave one out
        catalog |= self._seen | (registered or set()) | {n for event in happened for n in event.names}
        retained = boundary(path).retained
        project = partial(
            derive,
            happened,
            retained,
            resident=resident,
            names=catalog,
            exists=catalog.__contains__,
            available=lambda n: not self.policy.is_down(n) and (registered is None or n in registered),
            authorised=may,
            defers=self._defers(request),
            needs_immediate=request.api == "anthropic-messages",
        )
        should = project()
        changed = self._changed(request, place, should)
        return project(changed=changed) if changed else should

    def _changed(self, request: Request, place: Place | None, should: Should) -> frozenset[str]:
        """Return the names whose definition on the wire is not the one first shown under their mark."""
        if place is None:
            return frozenset()
        found = set()
        for name, mark in should.deferred.items():
            shown = request.definitions.get(name)
            key = place.session.id, name, mark, request.api
            if shown is not None and self._marked.setdefault(key, shown) != shown:
                found.add(name)
        return frozenset(found)

    def _resident(
        self, request: Request, place: Place | None, callable_: frozenset[str] | None, happened: Sequence[Event]
    ) -> tuple[str, ...] | None:
        if self.policy.resident is not None:
            return self.policy.expand(self.policy.resident)
        if place is None:
            return None
        root = self._roots.get(place.session.id, place.session.id)
        if callable_ is not None and root not in self._start and request.kind == "turn":
            loads = {n for event in happened if event.kind is EventKind.LOAD for n in event.names}
            self._start[root] = callable_ - loads
        start = self._start.get(root)
        return None if start is None else tuple(sorted(start))

    def _defers(self, request: Request) -> bool:
        told = self.policy.provider
        fits = told.api in (None, request.api) and told.model in (None, request.model)
        if told.defers is not None and fits:
            return bool(told.defers)
        if request.recorded:
            return bool(DEFERS.get(request.api or "", ""))
        return (request.api, request.model) in self._defer

    def _authorised(
        self, listed: frozenset[str] | None, callable_: frozenset[str] | None, request: Request
    ) -> frozenset[str] | None:
        if not self.policy.authoritative:
            return listed
        selected = self.policy.expand((*(self.policy.allow or ()), *(self.policy.ask or ())))
        names = {*selected, *(callable_ or ()), *(request.registered or ())}
        return frozenset(n for n in names if self.policy.effect(n) in ("allow", "ask"))

    def _grade(self, request: Request, may: Test | None) -> Grade:
        if request.wire is None:
            return Grade.UNKNOWN
        if may is None:
            return Grade.INFERRED
        return Grade.RECORDED if request.recorded else Grade.OBSERVED


def authority(policy: Policy, listed: frozenset[str] | None) -> Test | None:
    """Return who may: the policy if it says, else the recorded list, else None for unknown."""
    if policy.authoritative:
        return lambda name: policy.effect(name) in ("allow", "ask")
    return listed.__contains__ if listed is not None else None


def _always(name: str) -> bool:  # noqa: ARG001 - a test that every name passes
    return True


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


def _listed(names: Iterable[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)
