"""What was concluded, from what, and what must be looked at again when something new is known. Pure.

Nothing here says whether a conclusion is right. A mark for review changes no status and removes nothing. The rules are
``docs/spec/decisions.md``.

Not here: evidence itself (:mod:`capstate.evidence`), or keeping a graph in a ledger (:mod:`capstate.runtime`).

>>> graph = Graph().add(
...     Decision("D1", "the database answers in time", "accepted", evidence=["E042"]),
...     Decision("H1", "the database is the cause", "excluded", premises=["D1"]),
... )
>>> later = graph.observe(Observation("O7", evidence=["E087"], challenges=["E042"]))
>>> later.decisions["H1"].status.value, later.standing("H1").value, later.material("H1").evidence
('excluded', 'needs_review', ('E042',))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from attrs import evolve, field, fields, frozen

from capstate.digest import canonical, check_text
from capstate.errors import InvalidInputError

_MOST = 2**53


class DecisionStatus(StrEnum):
    """What was concluded."""

    ACCEPTED = "accepted"
    EXCLUDED = "excluded"
    """A rejected path."""
    OPEN = "open"
    """A question without an answer yet."""


class Standing(StrEnum):
    """What a decision is worth now; the first that applies (decisions.md 5)."""

    NEEDS_REVIEW = "needs_review"
    NOT_CHECKABLE = "not_checkable"
    """It rests on evidence that expired."""
    UNSUPPORTED = "unsupported"
    OPEN = "open"
    SUPPORTED = "supported"


# Converters only make tuples of lists; what is no list is left to the check, which knows its place.
def _tuple(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]


def _status(value: DecisionStatus | str) -> DecisionStatus:
    try:
        return DecisionStatus(value)
    except ValueError:
        raise InvalidInputError("decision status", f"one of {', '.join(DecisionStatus)}", value) from None


def _ids(value: object, place: str) -> None:
    if not isinstance(value, tuple):
        raise InvalidInputError(place, "a list of texts", value)
    for n, one in enumerate(value):
        _id(one, f"{place}[{n}]")


def _id(value: object, place: str) -> None:
    if not check_text(value, place, "text that says something"):
        raise InvalidInputError(place, "text that says something", value)


@frozen
class Decision:
    """One conclusion, and what it rests on (DG-01).

    Attributes:
        id: the same for every version of it.
        statement: what was concluded, in a sentence.
        status: accepted, excluded or open.
        evidence: ids of artefacts that support it.
        premises: ids of decisions that it rests on.
        conditions: whatever speaks to one of these makes a review necessary.
        epoch: in which it was made.
        turn: in which it was made.
        owner: who made it: a session, or a child's trace.

    Raises:
        InvalidInputError: a part is of another kind, or it is its own premise.
    """

    id: str
    statement: str
    status: DecisionStatus = field(converter=_status)
    evidence: tuple[str, ...] = field(default=(), converter=_tuple)
    premises: tuple[str, ...] = field(default=(), converter=_tuple)
    conditions: tuple[str, ...] = field(default=(), converter=_tuple)
    epoch: int = 0
    turn: int = 0
    owner: str = ""

    def __attrs_post_init__(self) -> None:
        _id(self.id, "decision id")
        place = f"decision {self.id!r}"
        _id(self.statement, f"{place} statement")
        for name in ("evidence", "premises", "conditions"):
            _ids(getattr(self, name), f"{place} {name}")
        for name in ("epoch", "turn"):
            number = getattr(self, name)
            if type(number) is not int or not 0 <= number < _MOST:
                raise InvalidInputError(f"{place} {name}", "a whole number from 0", number)
        check_text(self.owner, f"{place} owner")
        if self.id in self.premises:
            raise InvalidInputError(f"{place} premises", "other decisions", self.id)

    def to_json(self) -> dict[str, Any]:
        """Return the decision as JSON."""
        return _json(self)

    @classmethod
    def from_json(cls, body: object) -> Decision:
        """Read what :meth:`to_json` wrote. Raises InvalidInputError for anything else."""
        return cls(**_parts(cls, body, "decision"))


@frozen
class Observation:
    """Something new, and what it speaks to.

    Attributes:
        id: what marks are given because of.
        evidence: ids of artefacts that show it.
        challenges: ids of evidence and of decisions that it speaks against.
        conditions: of decisions that name one of them.

    Raises:
        InvalidInputError: a part is of another kind.
    """

    id: str
    evidence: tuple[str, ...] = field(default=(), converter=_tuple)
    challenges: tuple[str, ...] = field(default=(), converter=_tuple)
    conditions: tuple[str, ...] = field(default=(), converter=_tuple)

    def __attrs_post_init__(self) -> None:
        _id(self.id, "observation id")
        for name in ("evidence", "challenges", "conditions"):
            _ids(getattr(self, name), f"observation {self.id!r} {name}")

    def to_json(self) -> dict[str, Any]:
        """Return the observation as JSON."""
        return _json(self)

    @classmethod
    def from_json(cls, body: object) -> Observation:
        """Read what :meth:`to_json` wrote. Raises InvalidInputError for anything else."""
        return cls(**_parts(cls, body, "observation"))


class Material(NamedTuple):
    """What looking at a decision again needs, by id, premises first (DG-05)."""

    decisions: tuple[str, ...]
    evidence: tuple[str, ...]


@frozen
class Graph:
    """All decisions of a task, and which of them need another look. Every change gives a new graph.

    Attributes:
        decisions: the last version of each, by id, in the order in which they were made.
        reviews: by decision, ids of the observations and decisions because of which it needs review.
        expired: ids of evidence that cannot be looked up any more.
    """

    decisions: Mapping[str, Decision] = field(factory=dict, hash=False)
    reviews: Mapping[str, tuple[str, ...]] = field(factory=dict, hash=False)
    expired: frozenset[str] = frozenset()

    def add(self, *decisions: Decision) -> Graph:
        """Return the graph with further decisions, in their order.

        Raises:
            InvalidInputError: an id is taken, or a premise is not known.
        """
        made = dict(self.decisions)
        for decision in decisions:
            if not isinstance(decision, Decision):
                raise InvalidInputError("decision", "a Decision", decision)
            if decision.id in made:
                raise InvalidInputError(
                    f"decision {decision.id!r}", "an id that no other has (review changes one)", "taken"
                )
            _known(decision, made)
            made[decision.id] = decision
        return evolve(self, decisions=made)

    def review(self, decision: Decision) -> Graph:
        """Return the graph with a new version of a decision. It ends its own marks, and no other's (decisions.md 3).

        Raises:
            InvalidInputError: nothing of that id is known, a premise is not, or one rests on the decision itself.
        """
        if getattr(decision, "id", None) not in self.decisions:
            raise InvalidInputError("decision", "a new version of one that is known", decision)
        _known(decision, self.decisions)
        above = self._resting_on([decision.id])
        for premise in decision.premises:
            if premise in above:
                raise InvalidInputError(f"decision {decision.id!r} premises", "none that rests on it", premise)
        was = self.decisions[decision.id]
        reviews = {id_: because for id_, because in self.reviews.items() if id_ != decision.id}
        changed = evolve(self, decisions={**self.decisions, decision.id: decision}, reviews=reviews)
        if (was.statement, was.status) == (decision.statement, decision.status):
            return changed
        return _marked(changed, [id_ for id_ in above if id_ != decision.id], decision.id)

    def observe(self, observation: Observation) -> Graph:
        """Return the graph after something new: what it affects needs review; nothing else changes (DG-02 to DG-04)."""
        return _marked(self, self.affected(observation), observation.id)

    def affected(self, observation: Observation) -> tuple[str, ...]:
        """Return the decisions that ``observation`` affects, transitively, in the order in which they were made."""
        against, conditions = set(observation.challenges), set(observation.conditions)
        return self._resting_on(
            id_
            for id_, d in self.decisions.items()
            if id_ in against or not against.isdisjoint(d.evidence) or not conditions.isdisjoint(d.conditions)
        )

    def expire(self, evidence: Iterable[str]) -> Graph:
        """Return the graph without what is shown by this evidence, which can be looked up no more (EV-09)."""
        gone = _tuple(list(evidence))
        _ids(gone, "evidence")
        return evolve(self, expired=self.expired.union(gone))

    def standing(self, id: str) -> Standing:  # noqa: A002 - the word of the specification
        """Return what a decision is worth now. Raises InvalidInputError if there is none of that id."""
        return self.standings(id)[id]

    def standings(self, *ids: str) -> dict[str, Standing]:
        """Return what these decisions are worth now, by id; without ids: all of them.

        Raises:
            InvalidInputError: there is none of an id.
        """
        wanted = ids or tuple(self.decisions)
        gone: set[str] = set()
        bare: set[str] = set()
        for id_ in self._premises_first(wanted):
            decision = self.decisions[id_]
            if not self.expired.isdisjoint(decision.evidence) or not gone.isdisjoint(decision.premises):
                gone.add(id_)
            unfounded = not decision.evidence and not decision.premises and decision.status is not DecisionStatus.OPEN
            if unfounded or not bare.isdisjoint(decision.premises):
                bare.add(id_)
        return {id_: self._standing(id_, gone, bare) for id_ in wanted}

    def material(self, id: str) -> Material:  # noqa: A002 - as above
        """Return what looking at a decision again needs. Raises InvalidInputError if there is none of that id."""
        found = tuple(self._premises_first([id]))
        cited = dict.fromkeys(e for id_ in found for e in self.decisions[id_].evidence)
        return Material(found, tuple(cited))

    def to_json(self) -> dict[str, Any]:
        """Return the graph as JSON."""
        return {
            "decisions": [decision.to_json() for decision in self.decisions.values()],
            "expired": sorted(self.expired),
            "reviews": [[id_, list(because)] for id_, because in self.reviews.items()],
        }

    @classmethod
    def from_json(cls, body: object) -> Graph:
        """Read what :meth:`to_json` wrote. Raises InvalidInputError for anything else."""
        parts = _parts(cls, body, "graph")
        for name in parts:
            if not isinstance(parts[name], list):
                raise InvalidInputError(f"graph {name}", "a list", parts[name])
        made = [Decision.from_json(one) for one in parts["decisions"]]
        by_id = {decision.id: decision for decision in made}
        if len(by_id) < len(made):
            raise InvalidInputError("graph decisions", "one of each id", [decision.id for decision in made])
        for decision in made:  # in the order of their making a premise may stand behind: a review can name a later one
            _known(decision, by_id)
        _ids(tuple(parts["expired"]), "graph expired")
        graph = cls(by_id, _reviews(parts["reviews"], by_id), frozenset(parts["expired"]))
        for _ in graph._premises_first(by_id):
            pass  # raises if one rests on itself
        return graph

    def _standing(self, id_: str, gone: set[str], bare: set[str]) -> Standing:
        if id_ in self.reviews:
            return Standing.NEEDS_REVIEW
        if id_ in gone:
            return Standing.NOT_CHECKABLE
        if id_ in bare:
            return Standing.UNSUPPORTED
        return Standing.OPEN if self.decisions[id_].status is DecisionStatus.OPEN else Standing.SUPPORTED

    def _resting_on(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return ``ids`` and whatever rests on them, in however many steps, in the order of their making."""
        above: dict[str, list[str]] = {}
        for decision in self.decisions.values():
            for premise in decision.premises:
                above.setdefault(premise, []).append(decision.id)
        left = list(ids)
        found = set(left)
        while left:
            more = [id_ for id_ in above.get(left.pop(), ()) if id_ not in found]
            found.update(more)
            left += more
        return tuple(id_ for id_ in self.decisions if id_ in found)

    def _premises_first(self, ids: Iterable[str]) -> Iterator[str]:
        """Give ``ids`` and all that they rest on, each once, behind its premises. Raises InvalidInputError."""
        over: dict[str, bool] = {}  # False while its premises are looked at
        for wanted in ids:
            if wanted not in self.decisions:
                raise InvalidInputError("decision id", "one that is known", wanted)
            left = [wanted]
            while left:
                id_ = left[-1]
                if id_ in over:
                    left.pop()
                    if not over[id_]:
                        over[id_] = True
                        yield id_
                    continue
                over[id_] = False
                for premise in reversed(self.decisions[id_].premises):
                    if over.get(premise) is False:
                        raise InvalidInputError(f"decision {id_!r} premises", "none that rests on it", premise)
                    left += [premise] if premise not in over else []


def _marked(graph: Graph, ids: Iterable[str], because: str) -> Graph:
    reviews = dict(graph.reviews)
    for id_ in ids:
        reviews[id_] = tuple(dict.fromkeys((*reviews.get(id_, ()), because)))
    return evolve(graph, reviews={id_: reviews[id_] for id_ in graph.decisions if id_ in reviews})


def _known(decision: Decision, decisions: Mapping[str, Decision]) -> None:
    for n, premise in enumerate(decision.premises):
        if premise not in decisions:
            raise InvalidInputError(f"decision {decision.id!r} premises[{n}]", "the id of a decision", premise)


def _reviews(listed: list[Any], decisions: Mapping[str, Decision]) -> dict[str, tuple[str, ...]]:
    made: dict[str, tuple[str, ...]] = {}
    for n, pair in enumerate(listed):
        place = f"graph reviews[{n}]"
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[1], list) or not pair[1]:  # noqa: PLR2004 - a pair
            raise InvalidInputError(place, "an id, and why", pair)
        if not isinstance(pair[0], str) or pair[0] not in decisions or pair[0] in made:
            raise InvalidInputError(place, "the id of a decision, once", pair[0])
        _ids(tuple(pair[1]), place)
        made[pair[0]] = tuple(pair[1])
    return {id_: made[id_] for id_ in decisions if id_ in made}


def _json(value: Decision | Observation) -> dict[str, Any]:
    found = {one.name: getattr(value, one.name) for one in fields(type(value))}
    body = {name: list(part) if isinstance(part, tuple) else part for name, part in found.items()}
    body = {name: str(part) if isinstance(part, StrEnum) else part for name, part in body.items()}
    canonical(body, place=f"{type(value).__name__.lower()} {value.id!r}")
    return body


def _parts(cls: type[Any], body: object, what: str) -> dict[str, Any]:
    expected = {one.name for one in fields(cls)}
    if not isinstance(body, Mapping) or set(body) != expected:
        raise InvalidInputError(what, f"an object of {', '.join(sorted(expected))}", body)
    return dict(body)
