"""How a request differs from the one before it in its session: boundaries, what explains a change, findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import frozen

from capstate.agents.pi import EventKind
from capstate.findings import Finding, Grade

if TYPE_CHECKING:
    from capstate.audit.turn import Turn

_GONE = {"fork": "CS103", "move": "CS103", "reopen": "CS102", "compaction": "CS101", None: "CS104"}


@frozen
class Change:
    """What changed at a request.

    Attributes:
        boundary: ``fork``, ``reopen``, ``move`` or ``compaction``, the first that applies; None for none.
        unexplained: names that came or went without anything that accounts for it.
    """

    boundary: str | None
    unexplained: frozenset[str] | None
    findings: tuple[Finding, ...]


class Changes:
    """Compares each judged request with the one before in its lineage."""

    def __init__(self) -> None:
        self._before: dict[str, Turn] = {}
        self._shown: dict[str, set[str]] = defaultdict(set)
        self._settled: dict[str, dict[str, tuple[str, EventKind]]] = defaultdict(dict)
        self._defined: dict[tuple[str, str | None, str], str] = {}

    def take(self, turn: Turn) -> Change:
        """Compare ``turn`` and remember it. A turn of which nothing is known changes nothing."""
        if turn.callable is None:
            return Change(None, None, ())
        if turn.request.kind != "turn":
            return Change(None, frozenset(), tuple(self._widened(turn, None)))
        before = self._before.get(turn.lineage)
        boundary = _boundary(before, turn)
        unexplained = self._unexplained(before, turn, boundary)
        found = [*self._gone(before, turn, boundary), *self._widened(turn, before), *self._redefined(turn)]
        self._before[turn.lineage] = turn
        self._shown[turn.lineage] |= turn.callable
        self._settle(turn)
        return Change(boundary, unexplained, tuple(found))

    def _unexplained(self, before: Turn | None, turn: Turn, boundary: str | None) -> frozenset[str] | None:
        if turn.callable is None:
            return None
        if before is None or before.callable is None or boundary is not None:
            return frozenset()
        if (before.request.api, before.request.model) != (turn.request.api, turn.request.model):
            return frozenset()
        changed = before.callable ^ turn.callable
        return frozenset(
            name for name in changed if not self._explained(name, before, turn, came=name in turn.callable)
        )

    def _explained(self, name: str, before: Turn, turn: Turn, *, came: bool) -> bool:
        event = turn.last.get(name)
        fits = event is not None and (event.kind is EventKind.LOAD) is came
        if fits and event is not None and self._settled[turn.lineage].get(name) != (event.entry, event.kind):
            return True
        if before.may is None or turn.may is None:
            return False
        return before.may(name) is not came and turn.may(name) is came

    def _settle(self, turn: Turn) -> None:
        """Note the events that the wire has followed: each accounts for one change only."""
        settled = self._settled[turn.lineage]
        for name, event in turn.last.items():
            if (event.kind is EventKind.LOAD) is (name in (turn.callable or ())):
                settled[name] = event.entry, event.kind

    def _gone(self, before: Turn | None, turn: Turn, boundary: str | None) -> Iterator[Finding]:
        earlier = before.lost if before is not None and before.lost is not None else frozenset()
        new = (turn.lost or frozenset()) - earlier
        if new:
            detail = "" if boundary is not None or before is None else _model_change(before, turn)
            yield _finding(_GONE[boundary], turn, new, detail=detail)

    def _widened(self, turn: Turn, before: Turn | None) -> Iterator[Finding]:
        for rule, now, earlier in (
            ("CS121", turn.never_loaded, before.never_loaded if before is not None else None),
            ("CS201", turn.not_authorised, before.not_authorised if before is not None else None),
        ):
            new = (now or frozenset()) - (earlier or frozenset())
            if new:
                yield _finding(rule, turn, new, seen=rule == "CS201")
        if before is not None and before.callable is not None and turn.callable is not None:
            came = (turn.callable - before.callable) & self._shown[turn.lineage]
            back = came - turn.should.callable
            if back:
                sure = (turn.never_loaded or frozenset()) | (turn.not_authorised or frozenset())
                yield _finding("CS110", turn, back, seen=back <= sure)

    def _redefined(self, turn: Turn) -> Iterator[Finding]:
        changed = set()
        for name, shown in turn.request.definitions.items():
            key = turn.lineage, turn.request.api, name
            if self._defined.get(key, shown) != shown:
                changed.add(name)
            self._defined[key] = shown
        if changed:
            yield _finding("CS401", turn, changed, seen=True)


def _boundary(before: Turn | None, turn: Turn) -> str | None:
    place = turn.place
    if before is None:
        if place is None:
            return None
        if place.session.parent is not None:
            return "fork"
        answered = any(e.said is not None and e.said.role == "assistant" for e in place.session.walk(place.leaf))
        return "reopen" if answered else None
    if before.request.process != turn.request.process:
        return "reopen"
    if before.place is not None and place is not None and before.place.leaf not in turn.path:
        return "move"
    return "compaction" if before.compaction != turn.compaction else None


def _model_change(before: Turn, turn: Turn) -> str:
    same = (before.request.api, before.request.model) == (turn.request.api, turn.request.model)
    return "" if same else "model change"


def _finding(
    rule: str, turn: Turn, names: set[str] | frozenset[str], *, detail: str = "", seen: bool = False
) -> Finding:
    """Return a finding of ``turn``; ``seen``: the body alone shows it, whatever else of the turn is inferred."""
    grade = turn.grade
    if seen and grade in (Grade.INFERRED, Grade.UNKNOWN):
        grade = Grade.RECORDED if turn.request.recorded else Grade.OBSERVED
    elif grade is Grade.UNKNOWN:
        grade = Grade.INFERRED
    return Finding(
        rule,
        grade,
        tuple(sorted(names)),
        turn=turn.request.turn,
        file=turn.request.file,
        line=turn.request.line,
        entry=turn.place.leaf if turn.place is not None else None,
        detail=detail,
    )
