"""What can be shown afterwards: the receipt of an epoch, and the difference between two of them.

A receipt is evidence, never authority: nothing in it adds a tool. It names whole groups where a whole group
changed and single tools only where a group changed in part; the rows of a group are a blob under their digest,
so its size grows with groups and exceptions. No schema and no argument is in it.

Fields and kinds are ``docs/spec/receipts.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple

import orjson
from attrs import field, frozen

from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import MalformedError, Reason
from capstate.projection import Block, Placed
from capstate.surface import View

FORMAT = 1
"""Version of the receipt body."""

IMMEDIATE = "immediate"
"""Place of a callable tool that is not deferred."""
WITHHELD = ""
"""Place of a tool that is not callable."""


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


class Action(StrEnum):
    """What happened to one tool between two epochs."""

    ADDED = "added"
    REMOVED = "removed"
    REDEFINED = "redefined"
    """Callable before and after, by another definition."""
    MOVED = "moved"
    """Callable before and after, at another place on the wire."""
    WITHHELD = "withheld"
    """Not callable before and after, for another reason."""


class Change(NamedTuple):
    """One tool's difference, and why: a :class:`~capstate.errors.Reason`, or the cause's own word."""

    action: Action
    tool: str
    reason: str
    decided_by: str = ""


class RowState(NamedTuple):
    """One tool of a receipt.

    ``status`` is ``allow``, ``ask`` or a reason; ``place`` is :data:`IMMEDIATE`, :data:`WITHHELD`, or the mark
    at which the tool is deferred, ``at ENTRY`` or ``call ID``.
    """

    name: str
    definition: str
    status: str
    decided_by: str
    place: str

    @property
    def callable(self) -> bool:
        """Whether a model may call the tool."""
        return self.place != WITHHELD


@frozen(eq=False)
class Rows:
    """All rows of one group as stored: equal when the bytes are."""

    group: str
    encoded: bytes = field(repr=False)
    digest: str

    @classmethod
    def of(cls, view: View, block: Block | None) -> Rows:
        """Return the rows of a group and its placements."""
        places = {p.definition.name: _place(p) for p in block.deferred} if block is not None else {}
        rows = [
            (name, r.definition.fingerprint, r.effect or "", r.decided_by, places.get(name, IMMEDIATE))
            if r.reason is None
            else (name, r.definition.fingerprint, r.reason, r.decided_by, WITHHELD)
            for name, r in view.rows.items()
        ]
        encoded = canonical(rows)
        return cls(view.group.id, encoded, fingerprint(Domain.BLOB, encoded))

    @classmethod
    def from_bytes(cls, group: str, encoded: bytes) -> Rows:
        """Read stored rows.

        Raises:
            MalformedError: they are no rows.
        """
        rows = cls(group, encoded, fingerprint(Domain.BLOB, encoded))
        rows.by_name()
        return rows

    def by_name(self) -> dict[str, RowState]:
        """Return the rows by tool name. Raises MalformedError."""
        try:
            rows = [RowState(*row) for row in orjson.loads(self.encoded)]
        except (ValueError, TypeError) as error:
            raise MalformedError(f"rows of group {self.group!r}", "rows of five fields", str(error)) from error
        if not all(type(value) is str for row in rows for value in row):
            raise MalformedError(f"rows of group {self.group!r}", "text only", "something else")
        return {row.name: row for row in rows}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and (self.group, self.digest) == (other.group, other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)


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
        try:
            body = orjson.loads(encoded)
        except orjson.JSONDecodeError as error:
            raise MalformedError("receipt", "canonical JSON", str(error)) from error
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise MalformedError("receipt", f"an object of format {FORMAT}", type(body).__name__)
        if canonical(body, place="receipt") != encoded:
            raise MalformedError("receipt", "canonical bytes", "another encoding")
        rows: dict[str, Rows] = {}
        groups = body.get("groups")
        if not isinstance(groups, list):
            raise MalformedError("receipt.groups", "a list", groups)
        for pair in groups:
            if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
                raise MalformedError("receipt.groups", "[group, digest] pairs", pair)
            found = blob(pair[1])
            if found is None or fingerprint(Domain.BLOB, found) != pair[1]:
                raise MalformedError(
                    f"rows of group {pair[0]!r}", pair[1], "nothing" if found is None else "other bytes"
                )
            rows[pair[0]] = Rows.from_bytes(pair[0], found)
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


def diff(before: Mapping[str, Rows], after: Mapping[str, Rows], moved: str = "") -> tuple[Change, ...]:
    """Return how the rows ``after`` differ from those ``before``; ``moved`` says why places changed."""
    changes: list[Change] = []
    for group in sorted(before.keys() | after.keys()):
        old, new = before.get(group), after.get(group)
        if old == new:
            continue
        was = old.by_name() if old is not None else {}
        now = new.by_name() if new is not None else {}
        for name in sorted(was.keys() | now.keys()):
            change = _change(f"{group}/{name}", was.get(name), now.get(name), moved)
            if change is not None:
                changes.append(change)
    return tuple(changes)


def _place(placed: Placed) -> str:
    mark = placed.mark
    if mark is None:
        return IMMEDIATE
    return f"at {mark.at}" if mark.at is not None else f"call {mark.call}"


_BACK: dict[str, str] = {
    Reason.NOT_LOADED: "load",
    Reason.RESOURCE_UNAVAILABLE: "resource_back",
    Reason.NOT_AUTHORISED: "authority",
    Reason.POLICY_MISSING: "authority",
    Reason.SCHEMA_CHANGED: "authority",
}


def _change(tool: str, was: RowState | None, now: RowState | None, moved: str) -> Change | None:
    if was == now:
        return None
    before, after = was is not None and was.callable, now is not None and now.callable
    if before and after and was is not None and now is not None:
        if was.definition != now.definition:
            return Change(Action.REDEFINED, tool, "list_changed", now.decided_by)
        if was.place != now.place:
            return Change(Action.MOVED, tool, moved or "load", now.decided_by)
        return Change(Action.WITHHELD, tool, "authority", now.decided_by) if was.status != now.status else None
    if after and now is not None:
        return Change(Action.ADDED, tool, _BACK.get(was.status, was.status) if was else "list_changed", now.decided_by)
    why, by = (_lost(now), now.decided_by) if now is not None else ("list_changed", "")
    if before:
        return Change(Action.REMOVED, tool, why, by)
    return Change(Action.WITHHELD, tool, why, by)


def _lost(now: RowState) -> str:
    if now.status == Reason.NOT_AUTHORISED:
        return "parent_ceiling" if now.decided_by.startswith("parent") else "authority"
    return "unload" if now.status == Reason.NOT_LOADED else now.status


def summary(changes: Iterable[Change], rows: Mapping[str, Rows], before: Mapping[str, Rows]) -> list[list[str]]:
    """Return ``changes`` as [action, target, reason, decided by], whole groups as ``group/*``."""
    out: list[list[str]] = []
    for group, found in groupby(changes, key=lambda change: change.tool.partition("/")[0]):
        listed = list(found)
        first = listed[0]
        members = {name for side in (rows.get(group), before.get(group)) if side is not None for name in side.by_name()}
        if len(listed) == len(members) and all(c._replace(tool="") == first._replace(tool="") for c in listed):
            listed = [first._replace(tool=f"{group}/*")]
        out.extend([str(c.action), c.tool, c.reason, c.decided_by] for c in listed)
    return out


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
