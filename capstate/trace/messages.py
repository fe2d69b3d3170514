"""The neutral record of a conversation: messages, calls and outcomes.

Adapters read a provider's messages into these and render them back; the library never keeps a provider's
form as its own. A message read from a provider keeps what it was read from in ``native`` so that it goes back
to the same API unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from capstate.digest import Domain, canonical, fingerprint


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


@frozen
class Call:
    """One call that the model proposes.

    ``tool`` is what the model wrote: a wire name, or the qualified id. ``occurrence`` tells calls apart whose
    ids repeat, as foreign histories' do; a host that makes fresh ids leaves it 0.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any] = field(factory=dict, hash=False)
    occurrence: int = 0

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
        covered: of an opaque item, those messages in readable form, where the host still has them.
        refers: of an opaque item, wire names or qualified ids of the tools that it names.
        native: what the message was read from, for its own API.
        api: the API that ``native`` belongs to.
    """

    id: str
    role: Role
    text: str = ""
    calls: tuple[Call, ...] = ()
    result_for: str | None = None
    tool: str | None = None
    outcome: Outcome | None = None
    evidence: str | None = None
    issuer: str | None = None
    item: str | None = None
    covers: tuple[str, ...] = ()
    covered: tuple[Message, ...] = ()
    refers: tuple[str, ...] = ()
    native: Any = field(default=None, repr=False, hash=False)
    api: str | None = None
