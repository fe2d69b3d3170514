"""What stays of a call when its messages go: a row with its outcome, and the class that says who may retell it.

Not here: which calls may go (:mod:`capstate.trace.compact`).

>>> row = Row("c1", 0, "bank/pay", Outcome.OUTCOME_UNKNOWN, Risk.IRREVERSIBLE, operation="op-7")
>>> row.free
False
>>> row.line
'- "bank/pay" "c1": outcome_unknown, irreversible, operation "op-7"'
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum

from attrs import field, frozen

from capstate.errors import InvalidInputError


class Outcome(StrEnum):
    """How a call ended; the value is kept through every transformation (TT-06)."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    """Refused by policy or a person."""
    NOT_RUN = "not_run"
    """Refused before it started for any other reason."""
    CANCELLED = "cancelled"
    """Stopped before any effect, confirmed."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """It may have happened."""


class Risk(StrEnum):
    """What is lost if somebody retells the result of a call in their own words (CP-07)."""

    READ = "read"
    """It can be read again."""
    READ_ONCE = "read_once"
    """Reading again is costly, or gives something else: a log at a time, a paid query."""
    VERIFICATION = "verification"
    """A test run, a check, a probe."""
    REVERSIBLE = "reversible"
    """An effect that can be undone."""
    IRREVERSIBLE = "irreversible"
    """An effect that cannot, or that others see. A call of which nobody knows better is one."""
    SENSITIVE = "sensitive"
    """Secrets, personal data."""
    CAPABILITY = "capability"
    """It loaded, unloaded or granted."""


FREE = frozenset({Risk.READ, Risk.READ_ONCE})
UNFINISHED_FIELDS = frozenset({"state", "reconciliation"})
FIELDS: dict[Risk, frozenset[str]] = {
    Risk.READ: frozenset(),
    Risk.READ_ONCE: frozenset({"observed", "identifiers"}),
    Risk.VERIFICATION: frozenset({"verdict", "subject", "version", "counts", "failing"}),
    Risk.REVERSIBLE: frozenset({"state", "resources", "at"}),
    Risk.IRREVERSIBLE: frozenset({"state", "resources", "at", "approval", "idempotency"}),
    Risk.SENSITIVE: frozenset({"redaction", "retention"}),
    Risk.CAPABILITY: frozenset({"added", "item", "definition", "epoch", "load_point"}),
}
"""The fixed fields of each class; a call that ended badly may have those of its state as well."""


def _details(value: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    try:
        made = dict(value)
    except (TypeError, ValueError):
        raise InvalidInputError("row details", "pairs of texts", value) from None
    if {type(name) for name in made} - {str}:
        raise InvalidInputError("row details", "pairs of texts", made)
    return tuple(sorted(made.items()))


def _outcome(value: Outcome | str | None) -> Outcome | None:
    try:
        return Outcome(value) if value is not None else None
    except ValueError:
        raise InvalidInputError("row.outcome", f"one of {', '.join(Outcome)}, or None", value) from None


def _risk(value: Risk | str) -> Risk:
    try:
        return Risk(value)
    except ValueError:
        raise InvalidInputError("row.risk", f"one of {', '.join(Risk)}", value) from None


@frozen
class Row:
    """What is kept of one call that a summary stands for.

    Attributes:
        call: id of the call.
        occurrence: which call of that id.
        tool: the name that the model wrote.
        outcome: as its result had it; None if that had none.
        risk: the class of the call.
        operation: id of the operation, where known.
        evidence: id of the artefact that shows the result, where there is one.
        message: id of the message that made the call.
        source: id of the message with its result.
        arguments: digest of the arguments; none of a sensitive call, or if they are not I-JSON.
        details: fixed fields, by :data:`FIELDS`.

    Raises:
        InvalidInputError: a field is of another kind, or a fixed field is none that the class has.
    """

    call: str
    occurrence: int
    tool: str
    outcome: Outcome | None = field(converter=_outcome)
    risk: Risk = field(converter=_risk)
    operation: str | None = None
    evidence: str | None = None
    message: str = ""
    source: str = ""
    arguments: str | None = None
    details: tuple[tuple[str, str], ...] = field(default=(), converter=_details)

    def __attrs_post_init__(self) -> None:
        for name in ("call", "tool", "message", "source"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInputError(f"row.{name}", "text", getattr(self, name))
        for name in ("operation", "evidence", "arguments"):
            if not isinstance(getattr(self, name), str | None):
                raise InvalidInputError(f"row.{name}", "text, or None", getattr(self, name))
        if type(self.occurrence) is not int or not 0 <= self.occurrence < 2**53:
            raise InvalidInputError("row.occurrence", "a whole number from 0", self.occurrence)
        allowed = FIELDS[self.risk] | (frozenset() if self.succeeded else UNFINISHED_FIELDS)
        for name, value in self.details:
            if name not in allowed:
                expected = f"one of {', '.join(sorted(allowed)) or 'no fields'}"
                raise InvalidInputError(f"details of call {self.call!r}, {self.risk.value}", expected, name)
            if not isinstance(value, str):
                raise InvalidInputError(f"details of call {self.call!r}.{name}", "text", value)

    @property
    def key(self) -> tuple[str, int]:
        """Call id and occurrence."""
        return self.call, self.occurrence

    @property
    def succeeded(self) -> bool:
        """Whether nothing is known to have gone wrong; also true of a result that says nothing."""
        return self.outcome in (None, Outcome.OK)

    @property
    def free(self) -> bool:
        """Whether a summariser may see call and result, and retell them."""
        return self.risk in FREE and self.succeeded

    @property
    def line(self) -> str:
        """The row as one line: fixed words, and quoted values."""
        outcome = self.outcome.value if self.outcome is not None else "outcome not recorded"
        known = [("operation", self.operation), ("evidence", self.evidence), *self.details]
        if self.risk is not Risk.READ:
            known.append(("arguments", self.arguments))
        again = f" ({self.occurrence})" if self.occurrence else ""
        told = [f"{name} {_quoted(value)}" for name, value in known if value is not None]
        return f"- {_quoted(self.tool)} {_quoted(self.call)}{again}: {', '.join([outcome, self.risk.value, *told])}"


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
