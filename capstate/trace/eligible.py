"""Which units may be summarised: closed ones, with evidence stored and nobody waiting (CP-06).

Who knows is the caller. What was stored has no default: forgotten, it would lose results.

>>> Facts(stored=None, running={"c1"})
Traceback (most recent call last):
    ...
capstate.errors.InvalidInputError: facts.running: expected keys (call id, occurrence), got c1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from capstate.errors import InvalidInputError
from capstate.trace.messages import Key, is_key
from capstate.trace.outcomes import Risk, Row

if TYPE_CHECKING:
    from capstate.trace.check import Unit
    from capstate.trace.messages import Call, Message


def _keys(value: Iterable[Key]) -> frozenset[Key]:
    try:
        return frozenset(value)
    except TypeError:
        raise InvalidInputError("facts", "sets of keys (call id, occurrence)", value) from None


def _stored(value: Iterable[Key] | None) -> frozenset[Key] | None:
    return None if value is None else _keys(value)


def _ids(value: Iterable[str]) -> frozenset[str]:
    if isinstance(value, str):
        raise InvalidInputError("facts.pinned", "several message ids", value)
    return frozenset(value)


def _copy(value: Mapping[Key, Any]) -> dict[Key, Any]:
    return dict(value)


def _risks(value: Mapping[Key, Risk | str]) -> dict[Key, Risk]:
    found = {}
    for key, risk in value.items():
        try:
            found[key] = Risk(risk)
        except ValueError:
            raise InvalidInputError(f"facts.risks[{key}]", f"one of {', '.join(Risk)}", risk) from None
    return found


@frozen
class Facts:
    """What the caller knows of the calls of a history. Keys are (call id, occurrence).

    Attributes:
        stored: calls whose result can be looked up later. None: every result can, since the host keeps them all.
        streaming: calls whose arguments are not final (:attr:`capstate.trace.Assembler.open`).
        running: calls that run.
        waiting: calls that a person has not decided yet.
        risks: the class of each call; any other is irreversible.
        operations: the operation's id, of calls that have one.
        details: fixed fields of each call, by :data:`capstate.trace.outcomes.FIELDS`.
        pinned: ids of messages that must stay.

    Raises:
        InvalidInputError: a key is none, or a class does not exist.
    """

    stored: frozenset[Key] | None = field(converter=_stored)
    streaming: frozenset[Key] = field(default=frozenset(), converter=_keys)
    running: frozenset[Key] = field(default=frozenset(), converter=_keys)
    waiting: frozenset[Key] = field(default=frozenset(), converter=_keys)
    risks: Mapping[Key, Risk] = field(factory=dict, converter=_risks)
    operations: Mapping[Key, str] = field(factory=dict, converter=_copy)
    details: Mapping[Key, Mapping[str, str]] = field(factory=dict, converter=_copy)
    pinned: frozenset[str] = field(default=frozenset(), converter=_ids)

    def __attrs_post_init__(self) -> None:
        for name in ("stored", "streaming", "running", "waiting", "risks", "operations", "details"):
            wrong = [key for key in getattr(self, name) or () if not is_key(key)]
            if wrong:
                raise InvalidInputError(f"facts.{name}", "keys (call id, occurrence)", wrong[0])

    def row(self, call: Call, message: Message, result: Message) -> Row:
        """Return what is kept of a call that goes. Raises InvalidInputError for details that its class has not."""
        risk = self.risks.get(call.key, Risk.IRREVERSIBLE)
        return Row(
            call.id,
            call.occurrence,
            call.tool,
            result.outcome,
            risk,
            self.operations.get(call.key),
            result.evidence,
            message.id,
            result.id,
            None if risk is Risk.SENSITIVE else _digest(call),
            self.details.get(call.key, {}),
        )


def _digest(call: Call) -> str | None:
    try:
        return call.digest
    except InvalidInputError:  # a foreign history may hold what JSON cannot; that must not keep it for ever
        return None


class Held(StrEnum):
    """Why a unit stays."""

    STREAMING = "streaming"
    RUNNING = "running"
    NEEDS_APPROVAL = "needs_approval"
    MISSING_RESULT = "missing_result"
    NOT_STORED = "not_stored"
    PINNED = "pinned"


@frozen
class Kept:
    """A unit that stays although it stands before the suffix: its message, the call that holds it, and why.

    Attributes:
        message: id of the unit's message.
        call: id and occurrence of the call that holds it.
        why: what holds it.
    """

    message: str
    call: Key
    why: Held


def holding(unit: Unit, messages: Sequence[Message], facts: Facts) -> Iterator[Kept]:
    """Give every reason why a unit must stay, in the order of its calls."""
    id_ = messages[unit.start].id
    for n, call in enumerate(unit.calls):
        for keys, why in (
            (facts.streaming, Held.STREAMING),
            (facts.running, Held.RUNNING),
            (facts.waiting, Held.NEEDS_APPROVAL),
        ):
            if call.key in keys:
                yield Kept(id_, call.key, why)
        result = unit.results.get(n)
        if result is None:
            yield Kept(id_, call.key, Held.MISSING_RESULT)
        elif facts.stored is not None and call.key not in facts.stored:
            yield Kept(id_, call.key, Held.NOT_STORED)
        if id_ in facts.pinned or (result is not None and messages[result].id in facts.pinned):
            yield Kept(id_, call.key, Held.PINNED)
