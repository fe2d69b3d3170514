"""Streamed calls, put together: a call is a record only when its end was reported and its arguments are final.

Nothing is mended: arguments that are no JSON object at the end are an error, and the call never becomes a record.

>>> stream = Assembler()
>>> stream.feed("a1", "c1", name="git/log", arguments='{"path": ')
>>> stream.open
frozenset({('c1', 0)})
>>> stream.feed("a1", "c1", arguments='"src"}', done=True)
Call(id='c1', tool='git/log', arguments={'path': 'src'}, occurrence=0)
>>> stream.calls("a1")
(Call(id='c1', tool='git/log', arguments={'path': 'src'}, occurrence=0),)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from capstate.digest import canonical
from capstate.errors import InvalidInputError, MalformedError
from capstate.trace.messages import Call, Key


@define
class _Piece:
    """A call that is being received: its parts in the order of arrival."""

    occurrence: int
    name: list[str] = field(factory=list)
    arguments: list[str] = field(factory=list)
    call: Call | None = None
    failed: MalformedError | None = None

    @property
    def ended(self) -> bool:
        return self.call is not None or self.failed is not None


class Assembler:
    """The calls of the messages that are being received.

    Args:
        seen: how many calls of each id the history already has; a further one gets the next occurrence.

    Raises:
        InvalidInputError: a count is no whole number from 0.
    """

    def __init__(self, seen: Mapping[str, int] | None = None) -> None:
        self._seen = dict(seen or {})
        for id_, count in self._seen.items():
            if type(count) is not int or count < 0:
                raise InvalidInputError(f"seen[{id_!r}]", "a whole number from 0", count)
        self._messages: dict[str, dict[str, _Piece]] = {}

    def feed(self, message: str, call: str, *, name: str = "", arguments: str = "", done: bool = False) -> Call | None:
        """Take one delta of a call; return the call if this ended it.

        Args:
            message: id of the message that makes the call.
            call: the call's id; it may be there in an earlier message, where it is another call.
            name: more of the tool's name.
            arguments: more of the arguments' text.
            done: nothing more will come. No text at all is a call without arguments.

        Raises:
            InvalidInputError: a part is no text, or the call has ended. Nothing was taken.
            MalformedError: the call ended without a name, or its arguments are no JSON object (also one with
                repeated names, NaN or huge integers). It is in :attr:`failed` from now on.
        """
        place = f"call {call!r} of message {message!r}"
        for what, part in (("message", message), ("call", call), ("name", name), ("arguments", arguments)):
            if not isinstance(part, str):
                raise InvalidInputError(f"{place}.{what}", "text", part)
        pieces = self._messages.get(message, {})
        piece = pieces.get(call)
        if piece is not None and piece.ended:
            raise InvalidInputError(place, "a call that has not ended", "more after its end")
        if piece is None:
            piece = self._messages.setdefault(message, pieces).setdefault(call, _Piece(self._seen.get(call, 0)))
            self._seen[call] = piece.occurrence + 1
        piece.name.append(name)
        piece.arguments.append(arguments)
        if not done:
            return None
        try:
            piece.call = _finished(place, call, piece)
        except MalformedError as error:
            piece.failed = error
            raise
        return piece.call

    def calls(self, message: str) -> tuple[Call, ...]:
        """Return the calls of a message in the order in which they began.

        Raises:
            InvalidInputError: one has not ended, or no call of the message was fed.
            MalformedError: one ended malformed.
        """
        if message not in self._messages:
            raise InvalidInputError("message", "the id of a message that was fed", message)
        found = []
        for id_, piece in self._messages[message].items():
            if piece.failed is not None:
                raise MalformedError(piece.failed.place, piece.failed.expected, piece.failed.got)
            if piece.call is None:
                raise InvalidInputError(f"call {id_!r} of message {message!r}", "a call that has ended", "an open one")
            found.append(piece.call)
        return tuple(found)

    @property
    def open(self) -> frozenset[Key]:
        """Keys of the calls that are no records: not ended, or malformed. They block compaction of their unit."""
        pieces = ((id_, piece) for found in self._messages.values() for id_, piece in found.items())
        return frozenset((id_, piece.occurrence) for id_, piece in pieces if piece.call is None)

    @property
    def failed(self) -> Mapping[Key, str]:
        """The arguments' text of the calls that ended malformed, as it was received."""
        pieces = ((id_, piece) for found in self._messages.values() for id_, piece in found.items())
        return {(id_, p.occurrence): "".join(p.arguments) for id_, p in pieces if p.failed is not None}


def _finished(place: str, id_: str, piece: _Piece) -> Call:
    tool, text = "".join(piece.name), "".join(piece.arguments)
    if not tool:
        raise MalformedError(f"{place}.name", "the name of a tool", "nothing")
    return Call(id_, tool, _arguments(f"{place}.arguments", text), piece.occurrence)


def _arguments(place: str, text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_once)
        canonical(found, place=place)  # NaN, huge integers, lone surrogates
    except (ValueError, RecursionError) as error:
        raise MalformedError(place, "one JSON object", f"{text[:200]!r}: {error}") from error
    if not isinstance(found, dict):
        raise MalformedError(place, "one JSON object", f"{text[:200]!r}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return made
