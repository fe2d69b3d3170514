"""What a parent gives a child, what comes back, and what of that counts. Pure.

That a run ended and that a claim is supported are two things. A claim counts if it cites evidence and all of it
resolves; unfinished descendants are named. The rules are ``docs/spec/children.md``.

Not here: a child's authority, or starting one (:mod:`capstate.runtime`); looking evidence up.

>>> claims = [Claim("q1", "the file is there", ["E1"]), Claim("q2", "it was uploaded")]
>>> made = record(Result("t", "completed", claims=claims, trace_ref="run-7"), {"E1"}.__contains__)
>>> made.status.value, [made.supported[claim.id] for claim in claims]
('completed_unverified', [True, False])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from attrs import asdict, field, fields, frozen

from capstate.digest import canonical, check_text
from capstate.errors import InvalidInputError


class Status(StrEnum):
    """How a child's run ended, by its own word."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"


class Verification(StrEnum):
    """What was checked of it, by its own word."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


class RecordStatus(StrEnum):
    """What a parent may make of it."""

    COMPLETED = "completed"
    COMPLETED_UNVERIFIED = "completed_unverified"
    """The run ended; not all of what it says is supported."""
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"


def _text(value: object, place: str) -> str:
    text = check_text(value, place, "text that says something")
    if not text:
        raise InvalidInputError(place, "text that says something", text)
    return text


def _checked(kind: type[Any], value: object, place: str) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise InvalidInputError(place, "a list", value)
    for n, one in enumerate(value):
        if kind is str:
            _text(one, f"{place}[{n}]")
        elif not isinstance(one, kind):
            raise InvalidInputError(f"{place}[{n}]", f"a {kind.__name__}", one)
    return value


# Converters only make tuples of lists; what is no list is left to the check, which knows its place.
def _texts(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]


def _claims(value: Iterable[Claim]) -> tuple[Claim, ...]:
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]


def _stages(value: Iterable[Stage]) -> tuple[Stage, ...]:
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]


def _copied(value: Mapping[str, Any]) -> Mapping[str, Any]:
    given: object = value  # what is no mapping is left to the check as well
    return dict(given) if isinstance(given, Mapping) else value


def _ended(value: Status | str) -> Status:
    try:
        return Status(value)
    except ValueError:
        raise InvalidInputError("result status", f"one of {', '.join(Status)}", value) from None


def _verification(value: Verification | str) -> Verification:
    try:
        return Verification(value)
    except ValueError:
        raise InvalidInputError("result verification", f"one of {', '.join(Verification)}", value) from None


@frozen(kw_only=True)
class Task:
    """What a child is told: all of it, so that nothing of the parent's history is needed (CH-01).

    Attributes:
        facts: what is known.
        excluded: paths that were tried, or must not be.
        tools: what it may use, as selectors.
        constraints: how it must work.
        output: what is expected of it.

    Raises:
        InvalidInputError: a part is no list of texts, or no output is expected.
    """

    facts: tuple[str, ...] = field(converter=_texts)
    excluded: tuple[str, ...] = field(converter=_texts)
    tools: tuple[str, ...] = field(converter=_texts)
    constraints: tuple[str, ...] = field(converter=_texts)
    output: str

    def __attrs_post_init__(self) -> None:
        for name in ("facts", "excluded", "tools", "constraints"):
            _checked(str, getattr(self, name), f"task {name}")
        _text(self.output, "task output")

    def to_json(self) -> dict[str, Any]:
        """Return the task as JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@frozen
class Claim:
    """One thing that a child says, and what shows it.

    Attributes:
        id: of this claim, in its result.
        claim: what is said.
        evidence: ids of artefacts.
        places: of those ids, where inside the artefact.
    """

    id: str
    claim: str
    evidence: tuple[str, ...] = field(default=(), converter=_texts)
    places: Mapping[str, str] = field(factory=dict, converter=_copied, hash=False)

    def __attrs_post_init__(self) -> None:
        _text(self.id, "claim id")
        _text(self.claim, f"claim {self.id!r}")
        _checked(str, self.evidence, f"claim {self.id!r} evidence")
        places: object = self.places
        if not isinstance(places, Mapping) or not set(places) <= set(self.evidence):
            raise InvalidInputError(f"claim {self.id!r} places", "places of its evidence, by id", self.places)
        for id_, place in self.places.items():
            _text(place, f"claim {self.id!r} places[{id_!r}]")


@frozen
class Stage:
    """One part of a child's trace: positions from ``start`` to before ``end``.

    Attributes:
        name: of the stage, in its result.
        start: position of its first message.
        end: position behind its last message.
    """

    name: str
    start: int
    end: int

    def __attrs_post_init__(self) -> None:
        _text(self.name, "stage name")
        if type(self.start) is not int or type(self.end) is not int or not 0 <= self.start <= self.end < 2**53:
            raise InvalidInputError(f"stage {self.name!r}", "positions from 0, in order", (self.start, self.end))


@frozen
class Result:
    """What comes back from a child (CH-02).

    Attributes:
        task: what the child was told to do.
        status: how the run ended, by the child's own word.
        text: what it says as a whole.
        verification: what the child checked, by its own word.
        claims: the single things that it says.
        rejected: ways that it tried or weighed, and gave up.
        questions: what it leaves open.
        trace_ref: id of the child's trace, where that is kept.
        stages: parts of that trace, in order.

    Raises:
        InvalidInputError: a part is of another kind, two claims have one id, or stages overlap.
    """

    task: str
    status: Status = field(converter=_ended)
    text: str = ""
    verification: Verification = field(default=Verification.UNVERIFIED, converter=_verification)
    claims: tuple[Claim, ...] = field(default=(), converter=_claims)
    rejected: tuple[str, ...] = field(default=(), converter=_texts)
    questions: tuple[str, ...] = field(default=(), converter=_texts)
    trace_ref: str | None = None
    stages: tuple[Stage, ...] = field(default=(), converter=_stages)

    def __attrs_post_init__(self) -> None:
        _text(self.task, "result task")
        check_text(self.text, "result text")
        if self.trace_ref is not None:
            _text(self.trace_ref, "result trace_ref")
        for name, kind in (("claims", Claim), ("rejected", str), ("questions", str), ("stages", Stage)):
            _checked(kind, getattr(self, name), f"result {name}")
        ids = [claim.id for claim in self.claims]
        if len(set(ids)) < len(ids):
            raise InvalidInputError("result claims", "one claim of each id", ids)
        names = [stage.name for stage in self.stages]
        ends = zip(self.stages, self.stages[1:], strict=False)
        if len(set(names)) < len(names) or any(before.end > after.start for before, after in ends):
            raise InvalidInputError("result stages", "stages in order that do not overlap, each name once", names)

    def stage(self, name: str) -> Stage:
        """Return the span of the child's trace to look at again (CH-05). Raises InvalidInputError if there is none."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise InvalidInputError("stage", f"one of {[stage.name for stage in self.stages]}", name)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "claims": [
                {"claim": c.claim, "evidence": list(c.evidence), "id": c.id, "places": dict(c.places)}
                for c in self.claims
            ],
            "questions": list(self.questions),
            "rejected": list(self.rejected),
            "stages": [[stage.name, stage.start, stage.end] for stage in self.stages],
            "status": str(self.status),
            "task": self.task,
            "text": self.text,
            "trace_ref": self.trace_ref,
            "verification": str(self.verification),
        }

    @classmethod
    def from_json(cls, body: object) -> Result:
        """Read what :meth:`to_json` wrote. Raises InvalidInputError for anything else."""
        expected = {one.name for one in fields(cls)}
        if not isinstance(body, Mapping) or set(body) != expected:
            raise InvalidInputError("result", f"an object of {', '.join(sorted(expected))}", body)
        claims = _parts(body["claims"], "claims", {"claim", "evidence", "id", "places"})
        stages = body["stages"]
        if not isinstance(stages, list) or any(not isinstance(s, list) or len(s) != 3 for s in stages):  # noqa: PLR2004 - as written
            raise InvalidInputError("result stages", "lists of name, start, end", stages)
        made = [Claim(c["id"], c["claim"], c["evidence"], c["places"]) for c in claims]
        return cls(**{**body, "claims": made, "stages": [Stage(*s) for s in stages]})


def _parts(value: object, place: str, keys: set[str]) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or any(not isinstance(one, Mapping) or set(one) != keys for one in value):
        raise InvalidInputError(f"result {place}", f"objects of {', '.join(sorted(keys))}", value)
    return value


@frozen
class ChildRecord:
    """What a parent keeps of a child's result.

    Attributes:
        result: what came back.
        status: what the parent may make of it.
        supported: by claim id, whether all that it cites resolved when the record was made.
        waiting_on: descendants whose end is not known.
    """

    result: Result
    status: RecordStatus
    supported: Mapping[str, bool] = field(converter=_copied, hash=False)
    waiting_on: tuple[str, ...] = ()

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Ids of the claims that must not be taken for facts, in order."""
        return tuple(claim.id for claim in self.result.claims if not self.supported[claim.id])

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON."""
        return {
            "result": self.result.to_json(),
            "status": str(self.status),
            "supported": dict(self.supported),
            "waiting_on": list(self.waiting_on),
        }

    @classmethod
    def from_json(cls, body: object) -> ChildRecord:
        """Read what :meth:`to_json` wrote. Raises InvalidInputError for anything else."""
        if not isinstance(body, Mapping) or set(body) != {"result", "status", "supported", "waiting_on"}:
            raise InvalidInputError("child record", "an object of result, status, supported, waiting_on", body)
        result, supported = Result.from_json(body["result"]), body["supported"]
        ids = {claim.id for claim in result.claims}
        if not isinstance(supported, Mapping) or any(type(value) is not bool for value in supported.values()):
            raise InvalidInputError("child record supported", "true or false by claim id", supported)
        if set(supported) != ids:
            raise InvalidInputError("child record supported", "every claim, and no other", sorted(supported))
        status, waiting = body["status"], body["waiting_on"]
        if status not in RecordStatus.__members__.values():
            raise InvalidInputError("child record status", f"one of {', '.join(RecordStatus)}", status)
        waiting = _checked(str, _texts(waiting), "child record waiting_on")
        return cls(result, RecordStatus(status), dict(supported), waiting)


def record(result: Result, resolves: Callable[[str], bool], waiting_on: Iterable[str] = ()) -> ChildRecord:
    """Return what counts of ``result`` (children.md 3).

    Args:
        resolves: whether an evidence id can be looked up now; an error counts as no.
        waiting_on: descendants of the child whose end is not known.

    Raises:
        InvalidInputError: an argument is of another kind, or the result is more than an entry can hold.
    """
    if not isinstance(result, Result):
        raise InvalidInputError("child result", "a Result", result)
    canonical(result.to_json(), place="child result")
    waiting = tuple(dict.fromkeys(_checked(str, _texts(waiting_on), "waiting_on")))
    known: dict[str, bool] = {}
    for id_ in {id_ for claim in result.claims for id_ in claim.evidence}:
        try:
            known[id_] = resolves(id_) is True
        except Exception:  # noqa: BLE001 - whatever a store raises, this id does not resolve
            known[id_] = False
    supported = {c.id: bool(c.evidence) and all(known[id_] for id_ in c.evidence) for c in result.claims}
    return ChildRecord(
        result, _status(result, waiting=bool(waiting), whole=all(supported.values())), supported, waiting
    )


def _status(result: Result, *, waiting: bool, whole: bool) -> RecordStatus:
    if result.status is not Status.COMPLETED:
        return RecordStatus(str(result.status))
    if waiting or result.verification is Verification.INCOMPLETE:
        return RecordStatus.INCOMPLETE
    if not whole or result.verification is not Verification.VERIFIED:
        return RecordStatus.COMPLETED_UNVERIFIED
    return RecordStatus.COMPLETED
