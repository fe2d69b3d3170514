"""What callers give to a runtime or a session, checked before anything is read or written.

Each function returns its argument as the method goes on with it, or raises InvalidInputError with the place, what was
expected there, and what it got. An argument that would only fail once it stands in an entry must not get that far.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

from capstate.digest import check_text
from capstate.errors import InvalidInputError
from capstate.ledger import Ledger, Record, check_chain
from capstate.trace import Call, Message

MAX_ID = 65_536
"""The most characters of an id or a name; what stands in an entry must leave room for the rest of it."""


def an_id(value: object, place: str, expected: str = "an id") -> str:
    """Return ``value`` if it is text that can stand for somebody or something."""
    text = check_text(value, place, expected)
    if not 0 < len(text) <= MAX_ID:
        raise InvalidInputError(place, f"{expected} of 1 to {MAX_ID} characters", text)
    return text


def an_id_or_none(value: object, place: str) -> str | None:
    """Return ``value`` if it is None or as :func:`an_id`."""
    return None if value is None else an_id(value, place, "an id, or None")


def a_person(by: object) -> str:
    """Return ``by`` if it names somebody."""
    return an_id(by, "by", "the name of a person or a program")


def a_chain(value: object, place: str) -> str:
    """Return ``value`` if a chain can have it as its id."""
    try:
        check_chain(value)
    except InvalidInputError as error:
        raise InvalidInputError(place, error.expected, value) from None
    return cast("str", value)


def a_call(call: object) -> Call:
    """Return ``call`` if it is one."""
    if not isinstance(call, Call):
        raise InvalidInputError("call", "a Call", call)
    return call


def several(value: object, place: str, expected: str) -> list[Any]:
    """Return the members of ``value`` if it holds several things; a text or a mapping is one thing."""
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise InvalidInputError(place, expected, value)
    return list(value)


def a_path(path: object) -> tuple[str, ...] | None:
    """Return ``path`` if it is None or entry ids in an order."""
    if path is None:
        return None
    expected = "entry ids from root to leaf, or None"
    if isinstance(path, AbstractSet):
        raise InvalidInputError("path", expected, path)
    entries = several(path, "path", expected)
    for n, entry in enumerate(entries if {*map(type, entries)} != {str} else ()):
        if not isinstance(entry, str):
            raise InvalidInputError(f"path[{n}]", "an entry id", entry)
    check_text("".join(entries), "path", "entry ids")
    return tuple(entries)


def a_history(history: object) -> Sequence[Any] | None:
    """Return ``history`` if it is None or a list of messages, neutral or the provider's own."""
    if history is None:
        return None
    if isinstance(history, (str, bytes, bytearray)) or not isinstance(history, Sequence):
        raise InvalidInputError("history", "a list of messages, or None", history)
    for n, message in enumerate(history):
        if not isinstance(message, (Message, dict, Mapping)):
            raise InvalidInputError(
                f"history[{n}]", "a Message, or a provider's own as a mapping", type(message).__name__
            )
    return history


def functions(given: object, place: str) -> dict[Any, Callable[..., Any]]:
    """Return ``given``, a source's function by its name, as a new dict; None is none."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInputError(place, "functions by name, {'config': lambda holder: [...]}", given)
    for name, function in given.items():
        a_function(function, f"{place} {name!r}")
    return dict(given)


def a_function(function: object, place: str) -> None:
    """Refuse what cannot be called, or only be awaited."""
    if not callable(function) or inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInputError(place, "a function that is not asynchronous", function)


def a_ledger(ledger: object) -> Ledger:
    """Return ``ledger`` if it has the methods of the port."""
    named = [name for name in vars(Ledger) if not name.startswith("_")]
    if isinstance(ledger, type) or not all(callable(getattr(ledger, name, None)) for name in named):
        raise InvalidInputError("ledger", "a path of a SQLite file, or a Ledger", ledger)
    return cast("Ledger", ledger)


def records_of(records: tuple[object, ...]) -> tuple[Record, ...]:
    """Return ``records`` if they are some."""
    if not records or not all(isinstance(record, Record) for record in records):
        raise InvalidInputError("records", "one Record or more", records)
    return cast("tuple[Record, ...]", records)
