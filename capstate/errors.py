"""Every error that leaves capstate, grouped by who must act, and the one list of reasons.

Facts are attributes (``place``, ``expected``, ``got``, ``reason``, ...); the message is for people.
A class named after a state rather than ``...Error`` (:class:`Refused`, :class:`NeedsApproval`) is an
ordinary answer of the guard that a host handles in its loop, not a fault.

==========================  =====================================================================
who must act                classes
==========================  =====================================================================
the caller                  :class:`InvalidInputError`, :class:`SessionClosedError`, :class:`SurfaceExceededError`
whoever sent the bytes      :class:`MalformedError`
whoever cites it            below :class:`EvidenceError`: :class:`EvidenceAbsentError`,
                            :class:`EvidenceExpiredError`, :class:`EvidenceTamperedError`,
                            :class:`EvidenceKeyError`, :class:`EvidenceUnavailableError`
the operator                :class:`CatalogUnavailableError`, and below :class:`LedgerError`:
                            :class:`LedgerUnavailableError`, :class:`SessionLockedError`,
                            :class:`StaleWriterError`, :class:`PoolConflictError`, :class:`LedgerFormatError`
the model, or a person      below :class:`CallNotStartedError`: :class:`Refused`, :class:`NeedsApproval`
==========================  =====================================================================

All are below :class:`CapstateError`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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


_SHOWN = 2_000


def _shown(got: object) -> str:
    """Return what a message says of ``got``: short, visible, and text that every terminal and log can take."""
    text = got if isinstance(got, str) and got and got == got.strip() else repr(got)
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
    return cut.encode("utf-8", "backslashreplace").decode()


class CapstateError(Exception):
    """The base of all errors that capstate raises. Copied and pickled as a whole: message and facts."""

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (type(self), self.args, vars(self))


def _again(kind: type[CapstateError], told: tuple[object, ...], facts: dict[str, object]) -> CapstateError:
    error = kind.__new__(kind, *told)  # its own constructor takes facts and makes the message of them
    vars(error).update(facts)
    return error


class InvalidInputError(CapstateError, ValueError):
    """An argument, policy, catalog or file that the caller can mend. Nothing was written."""

    def __init__(self, place: str, expected: str, got: object) -> None:
        self.place, self.expected, self.got = place, expected, got
        super().__init__(f"{_shown(place)}: expected {expected}, got {_shown(got)}")


class MalformedError(CapstateError):
    """Bytes that do not decode: a ledger entry, a receipt, a session file, a request body."""

    def __init__(self, place: str, expected: str, got: object) -> None:
        self.place, self.expected, self.got = place, expected, got
        super().__init__(f"{_shown(place)}: expected {expected}, got {_shown(got)}")


class SessionClosedError(CapstateError):
    """A session was used after it was closed."""


class CatalogUnavailableError(CapstateError):
    """The host's catalog could not be read; nothing is callable until it can."""


class SurfaceExceededError(CapstateError):
    """A finished request body makes something callable that is not authorised now, or cannot be read in full.

    Attributes:
        names: wire names that the body makes callable and the surface does not.
        differing: wire names whose definition on the wire is not the one that is authorised.
        unknown: what may carry tools and this version cannot read: keys of the body, types of items and blocks.
        why: by wire name, reason and deciding rule of what is withheld.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        differing: tuple[str, ...],
        unknown: tuple[str, ...] = (),
        why: Mapping[str, tuple[Reason, str]] | None = None,
    ) -> None:
        self.names, self.differing, self.unknown, self.why = names, differing, unknown, dict(why or {})
        told = {name: f" ({_because(*because)})" for name, because in self.why.items()}
        super().__init__(
            "the request body exceeds the surface: "
            + "; ".join(
                f"{what} {', '.join(repr(name) + told.get(name, '') for name in found)}"
                for what, found in (
                    ("not callable", names),
                    ("another definition of", differing),
                    ("not known here", unknown),
                )
                if found
            )
        )


class LedgerError(CapstateError):
    """Something about the ledger that the operator must look at."""


class LedgerUnavailableError(LedgerError):
    """The ledger cannot be read or written now. Nothing is callable; a retry may help."""


class SessionLockedError(LedgerError):
    """Another live writer owns this session: another process, or a session of this one that was not closed."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}: another process, or a session of this process that was not closed")


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


class EvidenceError(CapstateError):
    """An artefact cannot be had.

    Attributes:
        id: as it was asked for.
    """

    def __init__(self, id: str, why: str) -> None:  # noqa: A002 - the word of the specification
        self.id, self.why = id, why
        super().__init__(f"evidence {_shown(id)}: {why}")


class EvidenceAbsentError(EvidenceError):
    """Nothing of that id was kept for this tenant; also where another tenant has it."""

    def __init__(self, id: str) -> None:  # noqa: A002 - as above
        super().__init__(id, "absent")


class EvidenceExpiredError(EvidenceError):
    """It was kept until a time that is over. What cited it can no longer be checked."""

    def __init__(self, id: str) -> None:  # noqa: A002 - as above
        super().__init__(id, "expired")


class EvidenceTamperedError(EvidenceError):
    """What is stored under that id does not have it."""


class EvidenceKeyError(EvidenceError):
    """It is encrypted, under a key that this keeper does not have."""

    def __init__(self, id: str) -> None:  # noqa: A002 - as above
        super().__init__(id, "encrypted under another key")


class EvidenceUnavailableError(EvidenceError):
    """The storage cannot be read or written now; a retry may help."""

    def __init__(self, why: str) -> None:
        super().__init__("store", why)


def _because(reason: Reason, decided_by: str) -> str:
    return f"{reason.value}, decided by {_shown(decided_by)}" if decided_by else reason.value


class CallNotStartedError(CapstateError):
    """Base of the guard's two ordinary answers; ``call`` did not start. Its text is for logs, not for the model."""

    def __init__(self, call: Call, reason: Reason, decided_by: str, message: str) -> None:
        self.call, self.reason, self.decided_by = call, reason, decided_by
        named = f"call {_shown(repr(call.id))} of {_shown(repr(call.tool))}"
        super().__init__(f"{named} {message}: {_because(reason, decided_by)}")


class Refused(CallNotStartedError):  # noqa: N818 - a state the host handles, named like the design
    """The guard said no. ``result`` is the one result that the call gets in the trace.

    Attributes:
        outcome: ``denied`` if policy or a person said no, else ``not_run``.
        result: a :class:`~capstate.trace.Message` that names no tool the model may not know.
    """

    def __init__(self, call: Call, reason: Reason, decided_by: str, outcome: str, result: Message) -> None:
        self.outcome, self.result = outcome, result
        super().__init__(call, reason, decided_by, "refused")


class NeedsApproval(CallNotStartedError):  # noqa: N818 - a state the host handles, named like the design
    """The call may start once somebody approved exactly this call. It has no result yet."""

    def __init__(self, call: Call, decided_by: str) -> None:
        super().__init__(call, Reason.NEEDS_APPROVAL, decided_by, "waits")
