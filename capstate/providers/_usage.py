"""Token counts out of a response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capstate.errors import MalformedError
from capstate.providers._shape import kind, mapping
from capstate.usage import Usage


def counted(value: object, place: str) -> int | None:
    """Return a reported count, or None where there is none.

    Raises:
        MalformedError: it is not a whole number of at least zero.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise MalformedError(place, "a count", kind(value))
    return value


def of_total(response: object, total: str, output: str) -> Usage:
    """Return the usage of an API whose input total has the cached input in it.

    The uncached rest is known if the total and the read part are; a write part that is not reported is not taken off,
    because an API that does not separate writes bills them as plain input.

    Raises:
        MalformedError: ``response`` is not an object, a count is not one, or the parts are more than the total.
    """
    reported: Mapping[str, Any] = mapping(mapping(response, "response").get("usage") or {}, "usage")
    details = mapping(reported.get(f"{total}_details") or {}, f"usage.{total}_details")
    read = counted(details.get("cached_tokens"), f"usage.{total}_details.cached_tokens")
    write = counted(details.get("cache_write_tokens"), f"usage.{total}_details.cache_write_tokens")
    whole = counted(reported.get(total), f"usage.{total}")
    rest = None if whole is None or read is None else whole - read - (write or 0)
    if rest is not None and rest < 0:
        raise MalformedError(f"usage.{total}", "at least what was read and written", "less")
    return Usage(read=read, write=write, uncached=rest, output=counted(reported.get(output), f"usage.{output}"))
