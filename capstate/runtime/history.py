"""What a session takes from the messages of the next request. Pure.

A history restores nothing. It says which loads it still retains, where it was cut, which opaque items it holds, and
which calls it closed without knowing how they ended: those may take away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from capstate.digest import check_text
from capstate.epochs import Boundary
from capstate.errors import InvalidInputError
from capstate.trace import Call, Message, Outcome, Role

if TYPE_CHECKING:
    from capstate.projection import Adapter, Profile
    from capstate.surface import Load


def adapter_of(profile: Profile) -> Adapter | None:
    """Return the profile's adapter; None for one that renders nothing."""
    return profile.adapter


def neutral(profile: Profile, history: Sequence[Any]) -> list[Message]:
    """Return ``history`` in neutral form.

    Raises:
        InvalidInputError: a message is not neutral, and the provider has no adapter to read it; or no entry can hold
            what it says.
        MalformedError: the adapter cannot read it.
    """
    adapter = adapter_of(profile)
    if adapter is not None:
        return _written(adapter.read(history))
    for n, message in enumerate(history):
        if not isinstance(message, Message):
            raise InvalidInputError(
                f"history[{n}]", "a Message, or a provider that reads its own", type(message).__name__
            )
    return _written(list(history))


def _written(messages: list[Message]) -> list[Message]:
    """Return ``messages`` if entries can hold what they take from them: ids, issuers, calls of unknown outcome."""
    check_text("".join(message.id for message in messages), "history", "message ids")
    for n, message in enumerate(messages):
        if message.issuer is not None:
            check_text(message.issuer, f"history[{n}].issuer")
    for claim in unknown(messages):
        check_text(claim.call + claim.tool + claim.arguments, "call of unknown outcome", "id, tool and digest")
    return messages


def retained(loads: Sequence[Load], messages: Sequence[Message]) -> tuple[int, ...]:
    """Return the loads whose entry, or whose call's result, ``messages`` hold, in order of their place."""
    entries: dict[str, int] = {}
    results: dict[str, int] = {}
    for n, message in enumerate(messages):
        if message.id:
            entries.setdefault(message.id, n)
        if message.role is Role.TOOL and message.result_for is not None:
            results.setdefault(message.result_for, n)
    places = []
    for load in loads:
        place = entries.get(load.at) if load.at is not None else None
        if place is None and load.call is not None:
            place = results.get(load.call)
        if place is not None:
            places.append((place, load.sequence))
    return tuple(sequence for _, sequence in sorted(places))


def boundary(messages: Sequence[Message], path: tuple[str, ...] | None) -> Boundary:
    """Return where the history was cut, and its leaf."""
    kept = [m for m in messages if m.role not in (Role.SUMMARY, Role.SYSTEM, Role.OPAQUE)]
    leaf = path[-1] if path else (messages[-1].id if messages else None)
    return Boundary(kept[0].id or None if kept else None, len(kept), leaf or None)


def opaque(messages: Sequence[Message]) -> tuple[tuple[str, str], ...]:
    """Return (message id, issuer) of each opaque item."""
    return tuple((m.id, m.issuer or "") for m in messages if m.role is Role.OPAQUE)


class Claim(NamedTuple):
    """A call of which a history says that nobody knows how it ended; ``arguments``: their digest, if it has one."""

    call: str
    occurrence: int
    tool: str
    arguments: str


def unknown(messages: Sequence[Message]) -> Iterator[Claim]:
    """Give the calls that the history closes as ``outcome_unknown``, also those that a summary stands for."""
    calls: dict[str, Call] = {}
    for message in messages:
        for call in message.calls:
            calls[call.id] = call
        if message.role is Role.TOOL and message.outcome is Outcome.OUTCOME_UNKNOWN and message.result_for in calls:
            call = calls[message.result_for]
            yield Claim(call.id, call.occurrence, call.tool, call.digest)
        for row in message.rows:
            if row.outcome is Outcome.OUTCOME_UNKNOWN:
                yield Claim(row.call, row.occurrence, row.tool, row.arguments or "")
        yield from unknown(message.covered)
