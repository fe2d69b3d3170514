"""Calls on their way to a provider and back: ids, names, arguments.

A call keeps its id while the provider takes it and no earlier call of the request has it. Any other gets one made from
id and occurrence. Stored ids are not touched.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

import orjson

from capstate.capabilities import Definition, Tool
from capstate.digest import Domain, fingerprint
from capstate.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from capstate.projection import Profile
    from capstate.trace import Call

UNREADABLE = "unreadable_arguments"
"""The one argument of a call whose arguments are no JSON object: what the model wrote, as text."""


def parsed(written: object) -> dict[str, Any]:
    """Return call arguments that a provider holds as JSON text. Raises nothing: models write broken JSON."""
    try:
        found = orjson.loads(written) if isinstance(written, str) and written else {}
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {UNREADABLE: written}


def written(arguments: Mapping[str, Any]) -> str:
    """Return call arguments as JSON text, the same for equal arguments.

    Raises:
        InvalidInputError: they are not JSON.
    """
    if list(arguments) == [UNREADABLE] and isinstance(arguments[UNREADABLE], str):
        return str(arguments[UNREADABLE])
    try:
        return json.dumps(dict(arguments), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError("call arguments", "JSON", type(error).__name__) from error


class CallIds:
    """The call ids of one request: one to one, legal, and the same on both sides."""

    def __init__(self, profile: Profile) -> None:
        self._limit = profile.call_id_limit
        self._chars = None if profile.call_id_chars is None else re.compile(f"[{profile.call_id_chars}]+")
        self._used: set[str] = set()
        self._open: list[tuple[str, str, int]] = []
        self._turn = 0

    def keep(self, calls: Iterable[Call]) -> None:
        """Note the calls of a native message."""
        self._turn += 1
        for call in calls:
            self._used.add(call.id)
            self._open.append((call.id, call.id, self._turn))

    def open(self, calls: Iterable[Call]) -> list[str]:
        """Return the ids that the calls of one message get."""
        self._turn += 1
        made = []
        for call in calls:
            made.append(self._fresh(call))
            self._open.append((call.id, made[-1], self._turn))
        return made

    def close(self, call_id: str | None) -> str | None:
        """Return the id of the call that a result answers, or None: the last message that makes it, in order."""
        same = [o for o in self._open if o[0] == call_id]
        if not same:
            return None
        last = same[-1][2]
        found = next(o for o in same if o[2] == last)
        self._open.remove(found)
        return found[1]

    def _fresh(self, call: Call) -> str:
        made, n = call.id, 0
        while made in self._used or (n == 0 and (call.occurrence > 0 or not self._legal(made))):
            parts = (
                b"call id",
                call.id.encode("utf-8", "surrogatepass"),
                str(call.occurrence).encode(),
                str(n).encode(),
            )
            digest = bytes.fromhex(fingerprint(Domain.NAME, *parts)[3:])
            made = base64.b32encode(digest[:15]).decode().lower()[: self._limit]
            n += 1
            if not self._legal(made):
                raise InvalidInputError("profile.call_id_chars", "a set that holds a-z and 2-7", made)
        self._used.add(made)
        return made

    def _legal(self, made: str) -> bool:
        fits = bool(made) and (self._limit is None or len(made) <= self._limit)
        return fits and (self._chars is None or self._chars.fullmatch(made) is not None)


def past_name(profile: Profile, tool: str) -> str:
    """Return a legal name for a tool that is not callable (any more): itself, else the name that it would have.

    A tool that can have no name of its own was called all the same: the call must stay in the history.

    Raises:
        InvalidInputError: the rule leaves no name at all.
    """
    if profile.names.legal(tool):
        return tool
    group, slash, own = tool.partition("/")
    if not (group and slash and own and own != "*"):
        group, own = "", tool if tool not in ("", "*") else "tool"
    made = profile.names.name(Definition(group, None, Tool(own), ""))
    if made is None:
        digest = bytes.fromhex(fingerprint(Domain.NAME, b"past", tool.encode("utf-8", "surrogatepass"))[3:])
        made = base64.b32encode(digest[:15]).decode().lower()[: profile.names.limit]
    if not profile.names.legal(made):
        raise InvalidInputError("profile.names", "a rule under which a call can have a name", tool)
    return made
