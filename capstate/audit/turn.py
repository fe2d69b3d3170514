"""One judged request, as a value and as a line of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from attrs import field, frozen

from capstate.agents.pi import Event
from capstate.agents.requests import Request
from capstate.audit.places import Place
from capstate.audit.should import Should
from capstate.findings import Grade

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


def _listed(names: Iterable[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)
