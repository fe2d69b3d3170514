"""What ran: each run at the request that proposed it, against that request and authority at that moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from capstate.agents.pi import identity
from capstate.agents.requests import Ran
from capstate.audit.turns import Turn, Turns, authority
from capstate.findings import Finding, Grade

if TYPE_CHECKING:
    from capstate.agents.pi import Entry, Session
    from capstate.audit.places import Place
    from capstate.policy import Policy


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
            found.append(Ran(e.said.tool, session.id, e.parent, observed=False, file=session.path.name, line=e.line))
    return found


def judge_runs(runs: Sequence[Ran], judged: Sequence[Turn], turns: Turns, policy: Policy) -> Iterator[Verdict]:
    """Judge ``runs`` in order."""
    at = {(t.place.session.id, t.place.leaf): t for t in judged if t.place is not None and t.request.kind == "turn"}
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
        yield _judge(placed, at, turns, policy)


def _judge(run: Ran, at: dict[tuple[str, str], Turn], turns: Turns, policy: Policy) -> Verdict:
    place = turns.places.of(run.session, run.leaf)
    turn = _proposed(place, at) if place is not None else None
    listed = run.authorised if run.authorised is not None else turn.request.authorised if turn is not None else None
    may = authority(policy, listed)
    loaded = None
    if turn is not None and turn.never_loaded is not None:
        loaded = turn.should.loaded
    elif turn is None and place is not None:
        loaded = turns.loaded_at(place)
    return Verdict(
        run,
        turn,
        unauthorised=None if may is None else not may(run.name),
        never_loaded=None if loaded is None else run.name not in loaded,
        not_in_request=None if turn is None or turn.callable is None else run.name not in turn.callable,
        asked=policy.authoritative and policy.effect(run.name) == "ask",
    )


def _proposed(place: Place, at: dict[tuple[str, str], Turn]) -> Turn | None:
    entries, seen = place.session.entries, set()
    e = entries.get(place.leaf)
    while e is not None and e.id not in seen:
        found = at.get((place.session.id, e.id))
        if found is not None:
            return found
        seen.add(e.id)
        e = entries.get(e.parent or "")
    return None


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
