"""The neutral record of a conversation: messages, calls and outcomes.

Adapters read a provider's messages into these and render them back; the library never keeps a provider's
form as its own. A message read from a provider keeps what it was read from in ``native`` so that it goes back
to the same API unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Literal

from attrs import field, frozen

from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import InvalidInputError
from capstate.trace.outcomes import Outcome, Row


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SUMMARY = "summary"
    """A readable summary in place of older messages. Navigation, never a source of permission."""
    OPAQUE = "opaque"
    """One issuer's item, passed back to that issuer byte for byte and to no other."""


Key = tuple[str, int]
"""What tells a call from every other of its history: its id, and which call of that id it is."""


def is_key(value: object) -> bool:
    """Whether something is the key of a call."""
    return isinstance(value, tuple) and [type(part) for part in value] == [str, int]


RoleName = Literal["system", "user", "assistant", "tool", "summary", "opaque"]
OutcomeName = Literal["ok", "error", "denied", "not_run", "cancelled", "outcome_unknown"]
"""The values of :class:`Outcome` as an editor completes them."""


def _role(value: Role | str) -> Role:
    try:
        return Role(value)
    except ValueError:
        raise InvalidInputError("message role", f"one of {', '.join(Role)}", value) from None


def _outcome(value: Outcome | str | None) -> Outcome | None:
    try:
        return Outcome(value) if value is not None else None
    except ValueError:
        raise InvalidInputError("message outcome", f"one of {', '.join(Outcome)}, or None", value) from None


def _listed(name: str, kind: type, expected: str, value: object) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InvalidInputError(f"message {name}", f"a list, each {expected}", value)
    found = tuple(value)
    for n, one in enumerate(found):
        if not isinstance(one, kind):
            raise InvalidInputError(f"message {name}[{n}]", expected, type(one).__name__)
    return found


def _calls(value: Iterable[Call]) -> tuple[Call, ...]:
    return _listed("calls", Call, "a Call", value) if value != () else ()


def _covers(value: Iterable[str]) -> tuple[str, ...]:
    return _listed("covers", str, "an id", value) if value != () else ()


def _refers(value: Iterable[str]) -> tuple[str, ...]:
    return _listed("refers", str, "a name", value) if value != () else ()


def _covered(value: Iterable[Message]) -> tuple[Message, ...]:
    return _listed("covered", Message, "a Message", value) if value != () else ()


def _rows(value: Iterable[Row]) -> tuple[Row, ...]:
    return _listed("rows", Row, "a Row", value) if value != () else ()


_OPTIONAL = ("result_for", "tool", "evidence", "issuer", "item", "api")


@frozen
class Call:
    """One call that the model proposes.

    ``tool`` is what the model wrote: a wire name, or the qualified id. ``occurrence`` tells calls apart whose
    ids repeat, as foreign histories' do; a host that makes fresh ids leaves it 0.

    Raises:
        InvalidInputError: the id or tool is no text, the arguments no mapping, the occurrence no integer from 0.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any] = field(factory=dict, hash=False)
    occurrence: int = 0

    def __attrs_post_init__(self) -> None:
        for name, value in (("id", self.id), ("tool", self.tool)):
            if not isinstance(value, str):
                raise InvalidInputError(f"call.{name}", "text", value)
        if not isinstance(self.arguments, Mapping):
            raise InvalidInputError(f"call {self.id!r} arguments", "a mapping", type(self.arguments).__name__)
        if type(self.occurrence) is not int or not 0 <= self.occurrence < 2**53:
            raise InvalidInputError(f"call {self.id!r} occurrence", "a whole number from 0", self.occurrence)

    @property
    def key(self) -> Key:
        """Call id and occurrence: what tells it from every other call of its history."""
        return self.id, self.occurrence

    @property
    def digest(self) -> str:
        """Fingerprint of the canonical arguments. Raises InvalidInputError if they are not I-JSON."""
        return fingerprint(Domain.ARGUMENTS, canonical(dict(self.arguments), place=f"call {self.id!r} arguments"))


@frozen
class Message:
    """One entry of a history.

    Attributes:
        id: stable id of the transcript entry; empty where the host has none.
        calls: of an assistant message, in order.
        result_for: of a tool message, the id of the call that it answers.
        tool: of a tool message, the name of the tool, where known.
        outcome: of a tool message.
        issuer: of an opaque item, who made it (:attr:`capstate.projection.Issuer.id`).
        covers: of a summary or opaque item, ids of the messages it stands for.
        covered: of an opaque item, those messages in readable form, where the host still has them. Of a summary, the
            calls that it covers and whose outcome is unknown, and their results: they are not sent.
        rows: of a summary, what is kept of each call that it covers.
        refers: of an opaque item, wire names or qualified ids of the tools that it names.
        native: what the message was read from, for its own API.
        api: the API that ``native`` belongs to.

    Raises:
        InvalidInputError: a field is of another kind, no such role or outcome, or calls of another than an assistant.
    """

    id: str
    role: Role = field(converter=_role)
    text: str = ""
    calls: tuple[Call, ...] = field(default=(), converter=_calls)
    result_for: str | None = None
    tool: str | None = None
    outcome: Outcome | None = field(default=None, converter=_outcome)
    evidence: str | None = None
    issuer: str | None = None
    item: str | None = None
    covers: tuple[str, ...] = field(default=(), converter=_covers)
    covered: tuple[Message, ...] = field(default=(), converter=_covered)
    refers: tuple[str, ...] = field(default=(), converter=_refers)
    native: Any = field(default=None, repr=False, hash=False)
    api: str | None = None
    rows: tuple[Row, ...] = field(default=(), converter=_rows)

    def __attrs_post_init__(self) -> None:
        for name in ("id", "text"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInputError(f"message {name}", "text", getattr(self, name))
        for name in _OPTIONAL:
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise InvalidInputError(f"message {name}", "text, or None", value)
        if self.calls and self.role is not Role.ASSISTANT:
            raise InvalidInputError(f"calls of message {self.id!r}", "an assistant message", self.role.value)
