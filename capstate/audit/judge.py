"""The audit itself: judged requests, findings, and the summary, from material that was read before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from capstate.agents.lines import Damage
from capstate.agents.pi import Session, broken_trace, identity, record_after
from capstate.agents.requests import Ran, Request
from capstate.audit.changes import Changes
from capstate.audit.runs import Verdict, judge_runs, recorded_runs
from capstate.audit.turns import UNTOLD, Turns
from capstate.findings import Finding, Grade
from capstate.projection import OnWire

if TYPE_CHECKING:
    from capstate.audit.turn import Turn
    from capstate.policy import Policy


@frozen
class Material:
    """What was read.

    Attributes:
        runs: what spies in the tools saw; None if there was no such record, then results in the sessions count.
        unknown: kinds of record that nobody here knows, with their count.
        barren: arguments that held nothing to judge, what was expected of each, and what it held instead.
    """

    sessions: tuple[Session, ...] = ()
    requests: tuple[Request, ...] = ()
    runs: tuple[Ran, ...] | None = None
    damage: tuple[Damage, ...] = ()
    unknown: Mapping[str, int] = field(factory=dict)
    barren: tuple[tuple[str, str, str], ...] = ()


def audit(material: Material, policy: Policy) -> Iterator[dict[str, Any]]:
    """Yield one line a request, one a finding, then the summary. Raises nothing.

    Without request bodies the agent's own record of its active set stands in, where it keeps one.
    """
    requests = material.requests or recorded_requests(material.sessions)
    turns = Turns(policy, material.sessions, requests)
    changes = Changes()
    judged: list[Turn] = []
    for request in requests:
        turn = turns.judge(request)
        change = changes.take(turn)
        judged.append(turn)
        yield turn.to_json(change.unexplained)
        yield from (finding.to_json() for finding in change.findings)
    runs = recorded_runs(material.sessions) if material.runs is None else list(material.runs)
    verdicts = list(judge_runs(runs, judged, turns))
    known = material.runs is not None or bool(material.sessions)
    for verdict in verdicts:
        yield from (finding.to_json() for finding in verdict.findings())
    damage = [*material.damage, *(d for s in material.sessions for d in s.damage)]
    yield from (finding.to_json() for finding in _files(material.sessions, damage))
    yield {"summary": _summary(material, judged, verdicts if known else None, damage)}


def recorded_requests(sessions: Sequence[Session]) -> tuple[Request, ...]:
    """Return a request for each answer of the model in ``sessions``, with the active set that the agent recorded."""
    found: list[Request] = []
    seen: set[tuple[str, str, str]] = set()
    for session in sorted(sessions, key=lambda s: -len(s.order)):
        records: dict[str, frozenset[str] | None] = {}
        for e in session.order:
            records[e.id] = record_after(records.get(e.parent or ""), e)
            said = e.said
            key = identity(session, e)
            if said is None or said.role != "assistant" or e.parent not in session.entries or key in seen:
                continue
            seen.add(key)
            active = records.get(e.parent or "")
            found.append(
                Request(
                    turn=len(found) + 1,
                    api=said.api or None,
                    model=said.model,
                    session=session.id,
                    leaf=e.parent,
                    wire=None if active is None else OnWire(tuple(sorted(active)), {}, {}),
                    recorded=True,
                    file=session.file,
                    line=e.line,
                )
            )
    return tuple(found)


def _files(sessions: Sequence[Session], damage: Sequence[Damage]) -> Iterator[Finding]:
    seen: set[tuple[tuple[str, str, str], str]] = set()
    for session in sorted(sessions, key=lambda s: -len(s.order)):
        for broken in broken_trace(session.walk()):
            e = broken.entry
            key = (identity(session, e), broken.call)
            if key in seen:
                continue
            seen.add(key)
            where = Finding("CS501", Grade.RECORDED, file=session.file, line=e.line, entry=e.id)
            yield evolve(where, names=(broken.tool,) if broken.tool else (), detail=f"no {broken.missing}")
    for row in damage:
        yield Finding("CS601", Grade.OBSERVED, file=row.file, line=row.line, entry=row.entry, detail=row.kind.value)


def _unknown_turns(judged: Sequence[Turn]) -> dict[str, int]:
    """Return in how many requests each verdict cannot be given, and how many are of a kind that nobody knows."""
    turns = [t for t in judged if t.request.kind == "turn"]
    return {
        "kind": sum(t.request.kind == UNTOLD for t in judged),
        "callable": sum(t.callable is None for t in turns),
        "not_authorised": sum(t.not_authorised is None for t in turns),
        "never_loaded": sum(t.never_loaded is None for t in turns),
        "lost": sum(t.lost is None for t in turns),
    }


def _summary(
    material: Material, judged: Sequence[Turn], told: Sequence[Verdict] | None, damage: Sequence[Damage]
) -> dict[str, Any]:
    verdicts = told or ()
    unknown = Counter(material.unknown)
    for session in material.sessions:
        unknown.update(session.unknown)
    for turn in judged:
        if turn.request.wire is not None:
            unknown.update({f"wire {name}": count for name, count in turn.request.wire.unknown.items()})
    grades = {t.grade for t in judged} | {v.grade for v in verdicts if v.judged}
    return {
        "requests": sum(t.request.kind == "turn" for t in judged),
        "not_authorised_turns": sum(bool(t.not_authorised) for t in judged),
        "never_loaded_turns": sum(bool(t.never_loaded) for t in judged),
        "lost_turns": sum(bool(t.lost) for t in judged),
        "ran_unauthorised": sum(v.unauthorised is True for v in verdicts),
        "ran_never_loaded": sum(v.never_loaded is True for v in verdicts),
        "damage": [row.to_json() for row in damage],
        "loads_from": "transcript",
        "grade": next((g.value for g in Grade if g in grades), Grade.UNKNOWN.value),
        "unknown_turns": _unknown_turns(judged),
        "runs": None if told is None else len(told),
        "unknown_runs": {
            "unauthorised": sum(v.unauthorised is None for v in verdicts),
            "never_loaded": sum(v.never_loaded is None for v in verdicts),
        },
        "unknown": dict(sorted(unknown.items())),
    }
