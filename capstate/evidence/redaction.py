"""What must not be kept, taken out before anything is stored (EV-05)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from capstate.errors import InvalidInputError

Redact = Callable[[bytes, str], bytes]
"""Takes bytes and their media type, and returns what may be kept. Whatever it raises, nothing is stored."""
REDACTED = "[redacted]"


def redact_fields(*names: str) -> Redact:
    """Return the redaction of these fields of JSON objects, at any depth; ``application/json`` and ``+json`` alone.

    The redaction raises InvalidInputError for bytes that claim to be JSON and are not: what cannot be read cannot be
    redacted.
    """
    wanted = {_name(name) for name in names}

    def redact(value: bytes, media: str) -> bytes:
        kind = media.partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            return value
        try:
            body = orjson.loads(value)
        except ValueError as error:
            raise InvalidInputError("evidence to redact", "JSON", str(error)) from error
        found = _without(body, wanted)
        return value if found is body else orjson.dumps(found)

    return redact


def redact_matches(*patterns: str) -> Redact:
    """Return the redaction of whatever these regular expressions match, in bytes of any media type.

    Raises:
        InvalidInputError: one is no regular expression, or matches nothing at all.
    """
    compiled = []
    for pattern in patterns:
        try:
            made = re.compile(pattern.encode())
        except (re.error, AttributeError, UnicodeEncodeError) as error:
            raise InvalidInputError("pattern to redact", "a regular expression", repr(pattern)) from error
        if made.fullmatch(b""):
            raise InvalidInputError("pattern to redact", "one that matches something", pattern)
        compiled.append(made)

    def redact(value: bytes, _: str) -> bytes:
        for pattern in compiled:
            value = pattern.sub(REDACTED.encode(), value)
        return value

    return redact


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidInputError("field to redact", "the name of a field", name)
    return name


def _without(body: Any, names: set[str]) -> Any:  # noqa: ANN401 - any JSON
    """Return ``body`` with the fields redacted; itself, if it has none. orjson limits how deep it can be."""
    if isinstance(body, dict):
        made = {key: REDACTED if key in names else _without(value, names) for key, value in body.items()}
        return made if any(made[key] is not value for key, value in body.items()) else body
    if isinstance(body, list):
        listed = [_without(one, names) for one in body]
        return listed if any(a is not b for a, b in zip(listed, body, strict=True)) else body
    return body
