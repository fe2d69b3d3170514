"""What can be shown afterwards: the receipt of an epoch, and the difference between two of them.

A receipt is evidence, never authority: nothing in it adds a tool. It names whole groups where a whole group
changed and single tools only where a group changed in part; the rows of a group are a blob under their digest,
so its size grows with groups and exceptions. No schema and no argument is in it.

Fields and kinds are ``docs/spec/receipts.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import orjson
from attrs import field, frozen

from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import InvalidInputError, MalformedError, Reason
from capstate.rows import ABSENT, HELD, IMMEDIATE, Action, Change, Rows, RowState, compare, diff

__all__ = [
    "ABSENT",
    "FORMAT",
    "HELD",
    "IMMEDIATE",
    "Action",
    "Change",
    "Kind",
    "Receipt",
    "RowState",
    "Rows",
    "compare",
    "diff",
    "kinds",
]

FORMAT = 1
"""Version of the receipt body."""


class Kind(StrEnum):
    """What a receipt reports; it may report several."""

    REDERIVED = "rederived"
    NARROWED = "narrowed"
    WIDENED = "widened"
    CHANGED = "changed"
    DEGRADED = "degraded"
    SCHEMA_CHANGED = "schema_changed"
    RECOVERED_TAIL = "recovered_tail"
    RECOVERED_HOLE = "recovered_hole"


@frozen(eq=False)
class Receipt:
    """The record of one epoch.

    Attributes:
        encoded: the canonical body, as stored.
        digest: covers all of ``encoded``.
        body: the same, parsed.
        rows: by group, every tool of the catalog then.
        changes: against the receipt before.
    """

    encoded: bytes = field(repr=False)
    digest: str
    body: Mapping[str, Any] = field(repr=False)
    rows: Mapping[str, Rows] = field(repr=False)
    changes: tuple[Change, ...] = field(repr=False)

    @classmethod
    def of(cls, body: Mapping[str, Any], rows: Mapping[str, Rows], changes: tuple[Change, ...]) -> Receipt:
        """Encode and fingerprint ``body``."""
        encoded = canonical(body, place="receipt")
        return cls(encoded, fingerprint(Domain.RECEIPT, encoded), body, rows, changes)

    @classmethod
    def from_bytes(cls, encoded: bytes, blob: Callable[[str], bytes | None]) -> Receipt:
        """Read a stored receipt; ``blob`` looks up the rows it names. Its ``changes`` are left empty.

        Raises:
            MalformedError: the bytes are no receipt, are not canonical, or rows are missing or altered.
        """
        body = _body(encoded)
        rows: dict[str, Rows] = {}
        for group, digest in body["groups"]:
            found = blob(digest)
            if found is None or fingerprint(Domain.BLOB, found) != digest:
                got = "nothing" if found is None else "other bytes"
                raise MalformedError(f"rows of group {group!r}", digest, got)
            rows[group] = Rows.from_bytes(group, found)
        return cls(encoded, fingerprint(Domain.RECEIPT, encoded), body, rows, ())

    def to_json(self) -> dict[str, Any]:
        """Return the copy for compaction metadata: body and digest. For audit alone; reading it restores nothing."""
        return {"digest": self.digest, "receipt": dict(self.body)}

    @property
    def cause(self) -> str:
        """The epoch's cause."""
        return str(self.body["cause"])

    @property
    def epoch(self) -> int:
        """Number of the epoch in its session, from 0."""
        return int(self.body["epoch"])

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the receipt reports, of :class:`Kind`."""
        return tuple(self.body["kinds"])

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, each reason once."""
        return tuple(self.body["reasons"])

    def tools(self, action: str) -> list[str]:
        """Return the tools to which ``action`` happened, in order."""
        return sorted(change.tool for change in self.changes if change.action == action)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipt) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _body(encoded: bytes) -> dict[str, Any]:
    """Return the parsed body, checked as far as this library reads it. Raises MalformedError."""
    try:
        body = orjson.loads(encoded)
    except orjson.JSONDecodeError as error:
        raise MalformedError("receipt", "canonical JSON", str(error)) from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise MalformedError("receipt", f"an object of format {FORMAT}", type(body).__name__)
    for name, (expected, good) in _SHAPES.items():
        if name not in body or not good(body[name]):
            raise MalformedError(f"receipt.{name}", expected, body.get(name))
    try:
        again = canonical(body, place="receipt")
    except InvalidInputError as error:
        raise MalformedError("receipt", error.expected, error.got) from error
    if again != encoded:
        raise MalformedError("receipt", "canonical bytes", "another encoding")
    return body


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object, length: int | None = None) -> bool:
    return isinstance(value, list) and length in (None, len(value)) and all(map(_is_text, value))


def _is_pairs(value: object) -> bool:
    if not isinstance(value, list) or not all(_is_texts(pair, 2) for pair in value):
        return False
    return len({pair[0] for pair in value}) == len(value)


_SHAPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "cause": ("text", _is_text),
    "dropped": ("a list of text", _is_texts),
    "epoch": ("a whole number from 0", lambda value: type(value) is int and value >= 0),
    "groups": ("[group, digest] pairs, each group once", _is_pairs),
    "issuer": ("provider, API, model, account", lambda value: _is_texts(value, 4)),
    "kinds": ("a list of text", _is_texts),
    "reasons": ("a list of text", _is_texts),
    "session": ("text", _is_text),
    "state": ("[component, digest] pairs, each component once", _is_pairs),
}
"""What this library reads of an older receipt."""


def kinds(changes: Iterable[Change], *, boundary: bool, degraded: bool, damage: Iterable[str]) -> list[str]:
    """Return what these changes make a receipt (``docs/spec/receipts.md`` section 3)."""
    actions = {change.action for change in changes}
    reasons = {change.reason for change in changes if change.action in (Action.REMOVED, Action.WITHHELD)}
    found = {Kind.REDERIVED} if boundary else set()
    if Action.ADDED in actions:
        found.add(Kind.WIDENED)
    if Action.REMOVED in actions:
        found.add(Kind.NARROWED)
    if Action.REDEFINED in actions or {Action.ADDED, Action.REMOVED} <= actions:
        found.add(Kind.CHANGED)
    if Reason.SCHEMA_CHANGED in reasons:
        found.add(Kind.SCHEMA_CHANGED)
    if degraded:
        found.add(Kind.DEGRADED)
    found |= {Kind.RECOVERED_TAIL if kind == "tail" else Kind.RECOVERED_HOLE for kind in damage}
    return sorted(map(str, found)) or [str(Kind.REDERIVED)]
