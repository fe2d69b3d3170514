"""What ran: each run at the request that proposed it, against that request and authority at that moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from capstate.agents.pi import identity
from capstate.agents.requests import Ran
from capstate.audit.turn import Turn
from capstate.authority import Effect
from capstate.findings import Finding, Grade

if TYPE_CHECKING:
    from capstate.agents.pi import Entry, Session
    from capstate.audit.places import Place
    from capstate.audit.turns import Turns


@frozen
class Verdict:
    """One run, judged; None where it cannot be known."""

    ran: Ran
    turn: Turn | None
    unauthorised: bool | None
    never_loaded: bool | None
    not_in_request: bool | None
    asked: bool

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with the run."""
        grade = Grade.OBSERVED if self.ran.observed else Grade.RECORDED
        for rule, wrong, sure in (
            ("CS120", self.not_in_request, grade),
            ("CS121", self.never_loaded, grade),
            ("CS202", self.unauthorised, grade),
            ("CS203", self.asked, Grade.INFERRED),
        ):
            if wrong:
                yield Finding(
                    rule,
                    sure,
                    (self.ran.name,),
                    turn=self.turn.request.turn if self.turn is not None else None,
                    file=self.ran.file,
                    line=self.ran.line,
                    entry=self.ran.leaf,
                    detail="ran",
                )


def recorded_runs(sessions: Sequence[Session]) -> list[Ran]:
    """Return a run for each result without error in ``sessions``; entries copied into several files count once."""
    found = []
    for session, e in _results(sessions):
        if e.said is not None:
            found.append(Ran(e.said.tool, session.id, e.parent, observed=False, file=session.file, line=e.line))
    return found


def judge_runs(runs: Sequence[Ran], judged: Sequence[Turn], turns: Turns) -> Iterator[Verdict]:
    """Judge ``runs`` in order."""
    proposed = _Proposed(judged)
    unplaced = Counter(r.name for r in runs if r.leaf is None)
    spare: dict[str, list[Ran]] = {}
    if unplaced:
        for ran in recorded_runs(turns.places.sessions):
            spare.setdefault(ran.name, []).append(ran)
    for run in runs:
        placed = run
        if run.leaf is None and spare.get(run.name):
            same = next((r for r in spare[run.name] if run.session in (None, r.session)), None)
            if same is not None:
                spare[run.name].remove(same)
                placed = evolve(run, session=same.session, leaf=same.leaf)
        yield _judge(placed, proposed, turns)


def _judge(run: Ran, proposed: _Proposed, turns: Turns) -> Verdict:
    place = turns.places.of(run.session, run.leaf)
    turn = proposed.at(place) if place is not None else None
    listed = run.authorised if run.authorised is not None else turn.request.authorised if turn is not None else None
    who = turns.who(listed)
    loaded = None
    if turn is not None and turn.never_loaded is not None:
        loaded = turn.should.loaded
    elif turn is None and place is not None:
        loaded = turns.loaded_at(place)
    return Verdict(
        run,
        turn,
        unauthorised=not who.may(run.name) if who.known else None,
        never_loaded=None if loaded is None else run.name not in loaded,
        not_in_request=None if turn is None or turn.callable is None else run.name not in turn.callable,
        asked=who.known and who.effect(run.name) is Effect.ASK,
    )


class _Proposed:
    """Finds the request that proposed a run: the last one asked at or above its place."""

    def __init__(self, judged: Sequence[Turn]) -> None:
        self._known: dict[tuple[str, str], Turn | None] = {
            (t.place.session.id, t.place.leaf): t for t in judged if t.place is not None and t.request.kind == "turn"
        }

    def at(self, place: Place) -> Turn | None:
        entries, passed = place.session.entries, dict[tuple[str, str], None]()
        at = place.leaf
        key = place.session.id, at
        while at in entries and key not in self._known and key not in passed:
            passed[key] = None
            at = entries[at].parent or ""
            key = place.session.id, at
        found = self._known.get(key)
        self._known.update(dict.fromkeys(passed, found))
        return found


def _results(sessions: Sequence[Session]) -> Iterator[tuple[Session, Entry]]:
    seen: set[tuple[str, str, str]] = set()
    for session in sorted(sessions, key=lambda s: -len(s.order)):
        for e in session.order:
            said = e.said
            if e.type != "message" or said is None or said.role != "toolResult" or said.is_error or not said.tool:
                continue
            key = identity(session, e)
            if key not in seen:
                seen.add(key)
                yield session, e
