"""Foreign JSON, looked at one level at a time: what it must be, and where it is not.

Nothing here walks into a value on its own, so that hostile nesting costs nothing, and an error never holds or
prints the value it complains about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from capstate.errors import InvalidInputError, MalformedError
from capstate.trace import Message


def kind(value: object) -> str:
    """Return a short word for the JSON type of ``value``."""
    words = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return words.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def mapping(value: object, place: str) -> Mapping[str, Any]:
    """Return ``value``. Raises MalformedError if it is not an object."""
    if not isinstance(value, Mapping):
        raise MalformedError(place, "an object", kind(value))
    return value


def listing(value: object, place: str) -> Sequence[Any]:
    """Return ``value``, or nothing for null. Raises MalformedError if it is neither null nor an array."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise MalformedError(place, "an array", kind(value))
    return value


def text(value: object, place: str) -> str:
    """Return ``value``. Raises MalformedError if it is not a string."""
    if not isinstance(value, str):
        raise MalformedError(place, "a string", kind(value))
    return value


def name(value: object, place: str) -> str:
    """Return ``value``. Raises MalformedError if it is not a string with something in it."""
    if not isinstance(value, str) or not value:
        raise MalformedError(place, "a non-empty string", kind(value))
    return value


def yes_or_no(value: object, place: str) -> None:
    """Refuse what is neither True nor False, however true it is.

    Raises:
        InvalidInputError: it is not.
    """
    if type(value) is not bool:
        raise InvalidInputError(place, "True or False", value)


_ROLES = {"tool": "OpenAI Chat", "function": "OpenAI Chat", "developer": "OpenAI"}


def strange(role: str) -> str:
    """Return what to call a role that an API does not have: whose it is, if that is known, and never its text."""
    return f"a role of {_ROLES[role]} ({role})" if role in _ROLES else "another role"


def blocks(content: object, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and value of each block of a message's ``content``; plain text is one text block.

    Raises:
        MalformedError: it is not text, null or an array of objects.
    """
    if isinstance(content, str):
        yield place, {"type": "text", "text": content}
        return
    for i, block in enumerate(listing(content, place)):
        here = f"{place}[{i}]"
        yield here, mapping(block, here)


def prose(content: object, place: str) -> str:
    """Return the text of a message's ``content``, one line break between blocks; other blocks are left out.

    Raises:
        MalformedError: as :func:`blocks`, or a text block has no text.
    """
    return "\n".join(
        text(b.get("text"), f"{here}.text") for here, b in blocks(content, place) if b.get("type") in _TEXT
    )


_TEXT = frozenset({"text", "input_text", "output_text"})


def natives(history: object, api: frozenset[str], place: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield position and value of every native message or item in ``history``, also those that neutral ones hold.

    Raises:
        MalformedError: an entry is neither a :class:`~capstate.trace.Message` nor an object.
    """
    for i, entry in enumerate(listing(history, place)):
        if not isinstance(entry, Message):
            yield i, mapping(entry, f"{place}[{i}]")
        elif entry.native is not None and entry.api in api:
            held = entry.native if isinstance(entry.native, list | tuple) else (entry.native,)
            for item in held:
                yield i, mapping(item, f"{place}[{i}].native")
