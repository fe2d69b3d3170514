"""What a session concluded: kept in its chain, marked when something new speaks to it, and never cited from nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from capstate.decisions import Decision, Graph, Observation
from capstate.errors import InvalidInputError, StaleWriterError
from capstate.ledger import Record
from capstate.runtime.owned import TRIES, Owned

if TYPE_CHECKING:
    from collections.abc import Iterable


class Deciding(Owned):
    """The decisions of a session (``docs/spec/decisions.md``)."""

    def decide(self, decision: Decision) -> Graph:
        """Keep a decision, or, under an id that is known, review one; durable on return.

        Raises:
            InvalidInputError: a premise is not known or rests on it, evidence that it cites cannot be looked up, or it
                is no Decision.
        """
        _one_of(Decision, decision)
        self._cited("decision", decision.evidence)
        return self._concluded(
            Record("decision", {"decision": decision.to_json()}),
            lambda graph: graph.review(decision) if decision.id in graph.decisions else graph.add(decision),
        )

    def observe(self, observation: Observation) -> Graph:
        """Keep something new; in the same entry what it affects is marked for review. Durable on return (LP-05).

        Raises:
            InvalidInputError: evidence that it cites cannot be looked up, or it is no Observation.
        """
        _one_of(Observation, observation)
        self._cited("observation", observation.evidence)
        record = Record("observation", {"observation": observation.to_json()})
        return self._concluded(record, lambda graph: graph.observe(observation))

    def recheck(self) -> tuple[str, ...]:
        """Ask for all evidence that decisions cite whether it can be looked up still; say what cannot (EV-09).

        What it showed is not checkable from then on, in this session and its later forks. No lock is held meanwhile.

        Raises:
            InvalidInputError: the runtime was given no ``evidence`` to ask.
            Exception: whatever that raises. A store that cannot tell says nothing, and nothing is kept.
        """
        with self._open():
            self._live.folds.refresh()
            graph = self._live.state.decisions
        resolves = self._runtime._evidence
        if resolves is None:
            raise InvalidInputError("recheck", "a Runtime with evidence=, which says what can be looked up", "none")
        cited = dict.fromkeys(e for decision in graph.decisions.values() for e in decision.evidence)
        gone = [id_ for id_ in cited if id_ not in graph.expired and resolves(id_) is not True]
        if gone:
            self._concluded(Record("expired", {"evidence": gone}), lambda now: now.expire(gone))
        return tuple(gone)

    @property
    def decisions(self) -> Graph:
        """Every decision of this session, with what needs another look."""
        with self._open():
            self._live.folds.refresh()
            return self._live.state.decisions

    def _concluded(self, record: Record, change: Callable[[Graph], Graph]) -> Graph:
        with self._open():
            for attempt in range(TRIES):
                change(self._live.state.decisions)  # raises before anything is written
                try:
                    self._append(record, derived=True)
                except StaleWriterError as error:
                    self._after(error, attempt)
                    continue
                return self._live.state.decisions
            raise StaleWriterError(self.id, None, None, owner=True)

    def _cited(self, place: str, evidence: Iterable[str | None]) -> None:
        """Refuse evidence that cannot be looked up now, where the runtime can tell (EV-01, EV-02)."""
        if self._runtime._evidence is None:
            return
        for id_ in evidence:
            if id_ is not None and not self._resolves(id_):
                raise InvalidInputError(f"{place} evidence", "the id of an artefact that can be looked up", id_)

    def _resolves(self, id_: str) -> bool:
        function = self._runtime._evidence
        try:
            return function is not None and function(id_) is True
        except Exception:  # noqa: BLE001 - whatever a store raises, this id does not resolve
            return False


def _one_of(kind: type[object], value: object) -> None:
    if not isinstance(value, kind):
        name = kind.__name__
        raise InvalidInputError(name.lower(), f"{'an' if name[0] in 'AO' else 'a'} {name}", value)
