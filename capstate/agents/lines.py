"""Bounded reading of files that somebody else wrote, and the damage that was found on the way.

Not here: what the lines mean. Rules: a symbolic link is not followed, only regular files are opened, a line
longer than :data:`LINE_LIMIT` is skipped in pieces and reported, JSON that nests too deeply is not JSON, and
nothing but :class:`MalformedError` (or :class:`InvalidInputError` for a file that is not there) leaves.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import stat
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

import orjson
from attrs import evolve, frozen

from capstate.errors import InvalidInputError, MalformedError

if TYPE_CHECKING:
    from pathlib import Path

LINE_LIMIT = 32 * 1024 * 1024
"""Longest line that is decoded, in bytes; a session line may carry images."""
_PIECE = 1 << 20
_STARTS = re.compile(rb'\{\s*"(?:type|kind)"\s*:')
_SURROGATES = re.compile("[\ud800-\udfff]")
_TRIES = 64
"""How often an object is looked for inside one broken line, fewer in a long one: a hostile line costs linear time."""


class DamageKind(StrEnum):
    """What is wrong with a place of a file."""

    UNREADABLE = "unreadable"
    """The whole file is not what it should be."""
    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    """No JSON, or more deeply nested than is read."""
    NOT_OBJECT = "not_object"
    LINE_TOO_LONG = "line_too_long"
    TORN_TAIL = "torn_tail"
    """The last line has no end and is not complete."""
    GLUED = "glued"
    """A line that holds more than one record, or a piece of one and another; what is whole was read."""
    BAD_ENTRY = "bad_entry"
    """A record without the fields that every record has, or with fields of a wrong type."""
    DUPLICATE_ID = "duplicate_id"
    SECOND_HEADER = "second_header"
    BROKEN_CHAIN = "broken_chain"
    """The parent of an entry is not in the file: everything above it is out of reach."""
    CYCLE = "cycle"
    """Entries that are their own ancestors."""
    BROKEN_BOUNDARY = "broken_boundary"
    """A compaction keeps its tail from an entry that is not on its own path."""
    BODY_TRUNCATED = "body_truncated"
    """A log holds a request body that was cut off."""
    UNKNOWN_API = "unknown_api"
    """A request body of no API that is known here."""
    BAD_BODY = "bad_body"
    """A request body that its own API would refuse."""


@frozen
class Damage:
    """One damaged place. ``line`` counts from 1, ``offset`` and ``length`` are bytes; 0 where there is no line."""

    kind: DamageKind
    file: str = ""
    line: int = 0
    offset: int = 0
    length: int = 0
    entry: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the row of a report."""
        return {
            "kind": self.kind.value,
            "file": self.file,
            "line": self.line,
            "offset": self.offset,
            "length": self.length,
            "entry": self.entry,
        }


@frozen
class Record:
    """One JSON object and where it stands."""

    value: dict[str, Any]
    line: int
    offset: int
    length: int


def records(path: Path, damage: list[Damage], *, limit: int = LINE_LIMIT) -> Iterator[Record]:
    """Yield the JSON objects of a file of JSON lines; what cannot be read is added to ``damage``.

    Raises:
        InvalidInputError: nothing is there, or it may not be read.
        MalformedError: it is no regular file, or a symbolic link.
    """
    for line in _lines(path, limit):
        where = Damage(DamageKind.NOT_JSON, str(path), line.number, line.offset, line.length)
        if line.raw is None:
            damage.append(evolve(where, kind=DamageKind.LINE_TOO_LONG))
            continue
        raw = line.raw.strip()
        if not raw:
            continue
        if line.number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        value = decode(raw)
        if isinstance(value, dict):
            yield Record(value, line.number, line.offset, line.length)
        elif value is not UNDECODED:
            damage.append(evolve(where, kind=DamageKind.NOT_OBJECT))
        else:
            found = [] if too_deep(raw) else _salvage(raw)
            kind = _kind(raw, whole=line.ended, salvaged=bool(found))
            damage.append(evolve(where, kind=kind, entry=_first_id(found)))
            for value in found:
                yield Record(value, line.number, line.offset, line.length)


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder and no link to one. Raises nothing."""
    return os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114 - pathlib raises for long names


def whole(path: Path, *, limit: int = LINE_LIMIT) -> bytes:
    """Return all bytes of a small file.

    Raises:
        InvalidInputError: nothing is there, or it may not be read.
        MalformedError: it is no regular file, or longer than ``limit``.
    """
    with open(_descriptor(path), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise MalformedError(str(path), f"at most {limit} bytes", "more")
    return data


UNDECODED = object()
"""What :func:`decode` answers for bytes that are no JSON."""


def decode(raw: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON value of ``raw``, or :data:`UNDECODED`. Raises nothing.

    JavaScript writes lone surrogates as escapes, which strict decoders refuse; they become U+FFFD.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        if b"\\ud" not in raw and b"\\uD" not in raw:
            return UNDECODED
    try:
        return _clean(json.loads(raw.decode("utf-8"), parse_constant=_refuse))
    except (ValueError, RecursionError):
        return UNDECODED


def too_deep(raw: bytes) -> bool:
    """Whether :func:`decode` gave up on ``raw`` for its depth, not for what it is. Raises nothing."""
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return "depth" in str(error)
    return False


def words(value: object, *, limit: int = 256) -> tuple[str, ...]:
    """Return the short texts inside a JSON value, in order, at most ``limit`` of them."""
    found: list[str] = []
    waiting = [value]
    while waiting and len(found) < limit:
        item = waiting.pop()
        if isinstance(item, str):
            if len(item) <= limit * 16:
                found.append(item)
        elif isinstance(item, dict):
            waiting.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            waiting.extend(reversed(item))
    return tuple(found)


@frozen
class _Line:
    raw: bytes | None
    number: int
    offset: int
    length: int
    ended: bool


def _lines(path: Path, limit: int) -> Iterator[_Line]:
    offset = number = 0
    with open(_descriptor(path), "rb") as file:
        while raw := file.readline(limit + 1):
            number += 1
            length, ended = len(raw), raw.endswith(b"\n")
            kept: bytes | None = raw
            if not ended and length > limit:
                kept = None
                while not ended and (raw := file.readline(_PIECE)):
                    length, ended = length + len(raw), raw.endswith(b"\n")
            yield _Line(kept, number, offset, length, ended)
            offset += length


def _descriptor(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise MalformedError(str(path), "a regular file", "a symbolic link") from error
        raise InvalidInputError(str(path), "a file that can be read", error.strerror or str(error)) from error
    except ValueError as error:
        raise InvalidInputError(repr(str(path)), "a file name", str(error)) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise MalformedError(str(path), "a regular file", "a folder" if stat.S_ISDIR(mode) else "no regular file")
    return descriptor


def _kind(raw: bytes, *, whole: bool, salvaged: bool) -> DamageKind:
    if salvaged:
        return DamageKind.GLUED
    if not whole and not too_deep(raw):
        return DamageKind.TORN_TAIL
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return DamageKind.NOT_UTF8
    return DamageKind.NOT_JSON


def _salvage(raw: bytes) -> list[dict[str, Any]]:
    """Return the whole records of a line that holds several, or a torn one and a whole one behind it.

    Inside a record an object follows a colon, a comma or a bracket, and quotes inside texts are escaped; so a
    start behind anything else is where two records meet.
    """
    starts = [m.start() for m in _STARTS.finditer(raw)]
    meet = [start for start in starts if start == 0 or raw[start - 1 : start] not in (b":", b",", b"[", b" ")]
    found = [_record(raw[start:end]) for start, end in itertools.pairwise([*meet, len(raw)])]
    if not any(found):
        tries = max(1, min(_TRIES, LINE_LIMIT // len(raw)))
        found = [next(filter(None, (_record(raw[start:]) for start in starts[:tries])), None)]
    return [value for value in found if value is not None]


def _record(raw: bytes) -> dict[str, Any] | None:
    value = decode(raw.strip())
    return value if isinstance(value, dict) and _is_record(value) else None


def _is_record(value: dict[str, Any]) -> bool:
    if value.get("type") == "session" or value.get("kind") == "header":
        return isinstance(value.get("id"), str)
    return isinstance(value.get("id"), str) and ("parentId" in value or "seq" in value)


def _first_id(found: list[dict[str, Any]]) -> str | None:
    return next((v["id"] for v in found if isinstance(v.get("id"), str)), None)


def _clean(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    return [_clean(v) for v in value] if isinstance(value, list) else value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
