"""The neutral trace as JSON, and back: what a host stores, and what goes between programs.

Strict: a key that nobody knows, or a value of another kind, is an error that names the place and holds no value. What
a field has by default may be left out, and is. ``native`` is JSON, since it was read from it.

>>> from capstate.trace import Call, Message, Role
>>> trace = [Message("a1", Role.ASSISTANT, calls=(Call("c1", "git/log"),))]
>>> to_json(trace)
{'trace': 1, 'messages': [{'id': 'a1', 'role': 'assistant', 'calls': [{'id': 'c1', 'tool': 'git/log'}]}]}
>>> from_json(to_json(trace)) == trace
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import NOTHING, fields

from capstate.errors import InvalidInputError, MalformedError
from capstate.trace.messages import Call, Message
from capstate.trace.outcomes import Row

VERSION = 1
_KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def to_json(messages: Iterable[Message]) -> dict[str, Any]:
    """Return a trace as JSON values. Nothing of it is copied that is JSON already."""
    return {"trace": VERSION, "messages": [_message(message) for message in messages]}


def from_json(value: object, place: str = "") -> list[Message]:
    """Return the messages of a trace: of an object as :func:`to_json` makes it, or of a list of messages.

    Args:
        value: JSON as Python has it.
        place: stands in front of the places that an error names.

    Raises:
        MalformedError: it is another version, or no trace.
    """
    if isinstance(value, Mapping):
        if value.get("trace") != VERSION or isinstance(value["trace"], bool):
            raise MalformedError(f"{place}trace", f"the version of the form, {VERSION}", _kind(value.get("trace")))
        value = value.get("messages")
    try:
        return [_read(Message, one, f"{place}messages[{n}]") for n, one in enumerate(_list(value, f"{place}messages"))]
    except RecursionError:
        raise MalformedError(f"{place}messages", "messages that cover others at a few levels", "too many") from None


def _message(message: Message) -> dict[str, Any]:
    return _filled(
        message,
        calls=lambda calls: [_filled(call, arguments=dict) for call in calls],
        covers=list,
        covered=lambda covered: [_message(one) for one in covered],
        refers=list,
        rows=lambda rows: [_filled(row, details=dict) for row in rows],
    )


def _filled(value: Any, **parts: Callable[[Any], Any]) -> dict[str, Any]:  # noqa: ANN401 - any of the three
    made = {}
    for one in fields(type(value)):
        held = getattr(value, one.name)
        if one.default is NOTHING or held not in (None, "", (), 0, {}):
            made[one.name] = parts[one.name](held) if one.name in parts else getattr(held, "value", held)
    return made


def _read(kind: type[Any], value: object, place: str) -> Any:  # noqa: ANN401 - a value of that kind
    if not isinstance(value, Mapping):
        raise MalformedError(place, "an object", _kind(value))
    known = {one.name: one for one in fields(kind)}
    for name in value:
        if name not in known:
            raise MalformedError(place, f"only keys of a {kind.__name__.lower()}", "another key")
    for name, one in known.items():
        if one.default is NOTHING and name not in value:
            raise MalformedError(place, f"the key {name}", "none")
    given = {name: _part(kind, name, one, f"{place}.{name}") for name, one in value.items()}
    try:
        return kind(**given)
    except InvalidInputError as error:
        raise MalformedError(f"{place}, {error.place}", error.expected, _kind(error.got)) from error


def _part(kind: type[Any], name: str, value: object, place: str) -> Any:  # noqa: ANN401 - as the field has it
    inner = {"calls": Call, "covered": Message, "rows": Row}.get(name)
    if inner is not None:
        return tuple(_read(inner, one, f"{place}[{n}]") for n, one in enumerate(_list(value, place)))
    if name in ("covers", "refers"):
        return tuple(_list(value, place))
    if name == "native":
        return value
    if name in ("arguments", "details") and (kind is Call or name == "details"):
        if not isinstance(value, Mapping):
            raise MalformedError(place, "an object", _kind(value))
        return value
    if name == "occurrence":
        if type(value) is not int or value < 0:
            raise MalformedError(place, "a whole number from 0", _kind(value))
    elif value is not None and not isinstance(value, str):
        raise MalformedError(place, "a string", _kind(value))
    return value


def _list(value: object, place: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise MalformedError(place, "an array", _kind(value))
    return value


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
