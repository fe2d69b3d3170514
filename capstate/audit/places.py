"""Which entry of which session a request answered, and the path that leads there.

A record may say it (session and leaf). Where it does not, the newest texts and call ids of the body are compared
with the path of each entry that the model answered; the longest common end wins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from attrs import frozen

from capstate.agents.pi import Entry, Event, EventReader, Session, boundary
from capstate.agents.requests import Request, call_token

if TYPE_CHECKING:
    from pathlib import Path

    from capstate.policy import Policy

_FAR = 64
_TRIED = 4096
"""How many places are compared for one body, so that a hostile session costs bounded time."""


@frozen
class Place:
    """An entry of a session file."""

    session: Session
    leaf: str


class Walk:
    """The path of a place, and what happened on it. It grows with the next place on the same path.

    Attributes:
        last: by name, the last event that covers it.
        compaction: id of the last compaction; None without one.
    """

    def __init__(self, policy: Policy) -> None:
        self.path: list[Entry] = []
        self.ids: set[str] = set()
        self.events: list[Event] = []
        self.last: dict[str, Event] = {}
        self.compaction: str | None = None
        self._retained: set[str] | None = None
        self._reader = EventReader(policy)

    def follow(self, entries: Sequence[Entry]) -> None:
        """Go on down ``entries``."""
        start = len(self.path)
        self.path.extend(entries)
        for e in entries:
            self.ids.add(e.id)
            if e.type == "compaction":
                self.compaction = e.id
            if e.type in ("compaction", "context_edit"):
                self._retained = None
            elif self._retained is not None:
                self._retained.add(e.id)
        for event in self._reader.follow(self.path, start):
            self.events.append(event)
            self.last.update(dict.fromkeys(event.names, event))

    @property
    def retained(self) -> AbstractSet[str]:
        """Ids of the entries that the model still sees; found anew only where one could have gone."""
        if self._retained is None:
            self._retained = set(boundary(self.path).retained)
        return self._retained


class Walks:
    """Follows paths; a session that is asked again further down is not walked from its root again."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._last: dict[Path, Walk] = {}

    def to(self, place: Place) -> Walk:
        """Return the walk to ``place``; valid until the next call."""
        session = place.session
        walk = self._last.get(session.path) or Walk(self.policy)
        new = _below(session, place.leaf, walk.ids)
        if walk.path and (not new or new[0].parent != walk.path[-1].id) and place.leaf != walk.path[-1].id:
            walk, new = Walk(self.policy), list(session.walk(place.leaf))
        walk.follow(new)
        self._last[session.path] = walk
        return walk


def _below(session: Session, leaf: str, known: AbstractSet[str]) -> list[Entry]:
    """Return the entries on the path of ``leaf`` down from the last known one."""
    found: list[Entry] = []
    seen: set[str] = set()
    at: str | None = leaf
    while at is not None and at in session.entries and at not in known and at not in seen:
        seen.add(at)
        found.append(session.entries[at])
        at = found[-1].parent
    return found[::-1]


class Places:
    """Finds places; remembers which ones were taken, since a session is asked once at each."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        # Copies repeat entries: where a body fits several files, the origin and its newest state come first.
        self.sessions = sorted(sessions, key=lambda s: (s.parent is not None, -len(s.order)))
        self._taken: set[tuple[str, str]] = set()
        self._ends: dict[str, list[Place]] | None = None

    def find(self, request: Request) -> Place | None:
        """Return the place of ``request``; None if no session holds it."""
        place = self._told(request)
        if place is None and request.kind == "turn":
            place = self._matched(request)
        if place is not None:
            self._taken.add((place.session.id, place.leaf))
        return place

    def of(self, session: str | None, leaf: str | None) -> Place | None:
        """Return the place that a record names by session and leaf."""
        if leaf is None:
            return None
        own = [s for s in self.sessions if session is None or s.id == session]
        return next((Place(s, leaf) for s in own if leaf in s.entries), None)

    def only(self) -> Place | None:
        """Return the leaf of the only session, for requests that say nothing; None if there are more."""
        if len(self.sessions) != 1 or self.sessions[0].leaf is None:
            return None
        return Place(self.sessions[0], self.sessions[0].leaf)

    def _told(self, request: Request) -> Place | None:
        return self.of(request.session, request.leaf)

    def _matched(self, request: Request) -> Place | None:
        if not request.asked:
            return None
        wanted = request.asked[::-1]
        best: tuple[int, bool, bool] = (0, False, False)
        found: Place | None = None
        for place in self._index().get(wanted[0], [])[:_TRIED]:
            if request.session is not None and place.session.id != request.session:
                continue
            same, whole = _common(wanted, _asked(place))
            score = same, whole, (place.session.id, place.leaf) not in self._taken
            if score > best:
                best, found = score, place
        return found

    def _index(self) -> dict[str, list[Place]]:
        """Return the places at which a session was asked, by the newest token of each."""
        if self._ends is None:
            self._ends = defaultdict(list)
            for session in self.sessions:
                for leaf in _asked_at(session):
                    place = Place(session, leaf)
                    last = next(_asked(place), None)
                    if last is not None:
                        self._ends[last].append(place)
        return self._ends


def _asked_at(session: Session) -> list[str]:
    leaves = {e.parent: None for e in session.order if e.said is not None and e.said.role == "assistant" and e.parent}
    if session.leaf is not None:
        leaves[session.leaf] = None
    return [leaf for leaf in leaves if leaf in session.entries]


def _asked(place: Place) -> Iterator[str]:
    """Yield the tokens of a path, newest first."""
    at: str | None = place.leaf
    for _ in range(_FAR * 16):
        e = place.session.entries.get(at) if at is not None else None
        if e is None:
            return
        yield from _tokens(e)
        at = e.parent


def _tokens(e: Entry) -> Iterator[str]:
    said = e.said
    if said is None or e.type != "message":
        return
    if said.role == "user":
        yield from (f"u {text}" for text in reversed(said.texts))
    elif said.role == "assistant":
        yield from (call_token("c", call.id) for call in reversed(said.calls))
    elif said.role == "toolResult":
        yield call_token("r", said.call)


def _common(wanted: Sequence[str], have: Iterator[str]) -> tuple[int, bool]:
    """Return how many tokens agree from the end, and whether both sides ended there."""
    same = 0
    for token in wanted:
        if next(have, None) != token:
            return same, False
        same += 1
    return same, next(have, None) is None
