"""Every error that leaves capstate, grouped by who must act, and the one list of reasons.

Facts are attributes (``place``, ``expected``, ``got``, ``reason``, ...); the message is for people.
A class named after a state rather than ``...Error`` (:class:`Refused`, :class:`NeedsApproval`) is an
ordinary answer of the guard that a host handles in its loop, not a fault.

==========================  =====================================================================
who must act                classes
==========================  =====================================================================
the caller                  :class:`InvalidInputError`, :class:`SessionClosedError`, :class:`SurfaceExceededError`
whoever sent the bytes      :class:`MalformedError`
the operator                :class:`LedgerError` and below it, :class:`CatalogUnavailableError`
the model, or a person      :class:`Refused`, :class:`NeedsApproval`
==========================  =====================================================================
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capstate.ledger import Head
    from capstate.trace.messages import Call, Message


class Reason(StrEnum):
    """Why a tool is withheld or a call refused; members stand in the order in which they are tested.

    One list for withheld rows, refusals, ``explain``, receipts and exceptions (design: the guard).
    """

    UNKNOWN_TOOL = "unknown_tool"
    """No group of the catalog has a tool of that name now."""
    NAME_CONFLICT = "name_conflict"
    """Two definitions claim one qualified name, or two callable tools one wire name."""
    NAME_UNREPRESENTABLE = "name_unrepresentable"
    """The provider has no legal name for the tool."""
    POLICY_MISSING = "policy_missing"
    """A child without its stored launch restriction: it may do nothing."""
    NOT_AUTHORISED = "not_authorised"
    """The pool or a ceiling gives neither allow nor ask."""
    RESOURCE_UNAVAILABLE = "resource_unavailable"
    """The group, or a group that the tool needs, is down or gone."""
    SCHEMA_CHANGED = "schema_changed"
    """Only a pinned grant is in the way: it covers another definition of this name."""
    NOT_LOADED = "not_loaded"
    """Nobody loaded the tool on this path, or it was unloaded."""
    SESSION_READ_ONLY = "session_read_only"
    """The ledger is damaged and not yet accepted: external calls wait."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """An equal operation is unsettled; it may have happened."""
    LIMIT_EXCEEDED = "limit_exceeded"
    """The pool of calls, cost or slots of the session tree is used up."""
    NEEDS_APPROVAL = "needs_approval"
    """The decision is ask, and this call has no approval yet."""


class CapstateError(Exception):
    """The base of all errors that capstate raises."""


class InvalidInputError(CapstateError, ValueError):
    """An argument, policy, catalog or file that the caller can mend. Nothing was written."""

    def __init__(self, place: str, expected: str, got: object) -> None:
        self.place, self.expected, self.got = place, expected, got
        super().__init__(f"{place}: expected {expected}, got {got if isinstance(got, str) else repr(got)}")


class MalformedError(CapstateError):
    """Bytes that do not decode: a ledger entry, a receipt, a session file, a request body."""

    def __init__(self, place: str, expected: str, got: object) -> None:
        self.place, self.expected, self.got = place, expected, got
        super().__init__(f"{place}: expected {expected}, got {got if isinstance(got, str) else repr(got)}")


class SessionClosedError(CapstateError):
    """A session was used after it was closed."""


class CatalogUnavailableError(CapstateError):
    """The host's catalog could not be read; nothing is callable until it can."""


class SurfaceExceededError(CapstateError):
    """A finished request body makes something callable that is not authorised now, or that nobody can tell.

    Attributes:
        names: wire names that the body makes callable and the surface does not.
        differing: wire names of which a definition on the wire is not the one that is authorised.
        unknown: what in the body may make something callable, and cannot be read.
    """

    def __init__(self, names: tuple[str, ...], differing: tuple[str, ...], unknown: tuple[str, ...] = ()) -> None:
        self.names, self.differing, self.unknown = names, differing, unknown
        super().__init__(
            "the request body exceeds the surface: "
            + "; ".join(
                f"{what} {', '.join(map(repr, found))}"
                for what, found in (
                    ("not callable", names),
                    ("another definition of", differing),
                    ("unknown", unknown),
                )
                if found
            )
        )


class LedgerError(CapstateError):
    """Something about the ledger that the operator must look at."""


class LedgerUnavailableError(LedgerError):
    """The ledger cannot be read or written now. Nothing is callable; a retry may help."""


class SessionLockedError(LedgerError):
    """Another live writer owns this session."""


class StaleWriterError(LedgerError):
    """The chain moved on under another writer; this writer's append was refused and nothing was written.

    Attributes:
        expected: the head that the writer believed in.
        got: the head that the chain has.
        owner: whether the writer still owns the chain; if so, only posts or its own threads moved the head.
    """

    def __init__(self, chain: str, expected: Head | None, got: Head | None, *, owner: bool) -> None:
        self.chain, self.expected, self.got, self.owner = chain, expected, got, owner
        what = f"its head is {got}, not {expected}" if owner else "another writer owns it now, or this one was closed"
        super().__init__(f"chain {chain!r}: {what}")


class PoolConflictError(LedgerError):
    """Another session changed the limits pool first; read it, derive again, retry. Nothing was written."""

    def __init__(self, root: str, expected: int, got: int) -> None:
        self.root, self.expected, self.got = root, expected, got
        super().__init__(f"pool of {root!r}: its version is {got}, not {expected}")


class LedgerFormatError(LedgerError):
    """The ledger was written by a version that this one does not know."""


class CallNotStartedError(CapstateError):
    """Base of the guard's two ordinary answers; ``call`` did not start."""

    def __init__(self, call: Call, reason: Reason, decided_by: str, message: str) -> None:
        self.call, self.reason, self.decided_by = call, reason, decided_by
        super().__init__(message)


class Refused(CallNotStartedError):  # noqa: N818 - a state the host handles, named like the design
    """The guard said no. ``result`` is the one result that the call gets in the trace.

    Attributes:
        outcome: ``denied`` if policy or a person said no, else ``not_run``.
        result: a :class:`~capstate.trace.Message` that names no tool the model may not know.
    """

    def __init__(self, call: Call, reason: Reason, decided_by: str, outcome: str, result: Message) -> None:
        self.outcome, self.result = outcome, result
        super().__init__(call, reason, decided_by, f"call {call.id!r} refused: {reason.value}")


class NeedsApproval(CallNotStartedError):  # noqa: N818 - a state the host handles, named like the design
    """The call may start once somebody approved exactly this call. It has no result yet."""

    def __init__(self, call: Call, decided_by: str) -> None:
        super().__init__(call, Reason.NEEDS_APPROVAL, decided_by, f"call {call.id!r} needs approval")
