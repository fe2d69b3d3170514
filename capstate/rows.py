"""The rows of a receipt: each tool of the catalog with its definition, status and place; and how two sets differ.

Rows are stored a group at a time, as bytes under their digest. A difference is told per tool, with a reason; a
summary names whole groups where a whole group changed. Public names are imported from :mod:`capstate.receipts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import orjson
from attrs import field, frozen

from capstate.digest import Domain, encode, fingerprint
from capstate.errors import MalformedError, Reason

if TYPE_CHECKING:
    from capstate.projection import Block, Mark
    from capstate.surface import View

IMMEDIATE = "immediate"
"""Place of a callable tool that is not deferred."""
HELD = "held"
"""Place of a tool that is loaded and not callable."""
ABSENT = ""
"""Place of a tool that is neither."""
_NOT_CALLABLE = (HELD, ABSENT)


class Action(StrEnum):
    """What happened to one tool between two epochs."""

    ADDED = "added"
    REMOVED = "removed"
    REDEFINED = "redefined"
    """Callable before and after, by another definition."""
    MOVED = "moved"
    """Callable before and after, at another place on the wire."""
    WITHHELD = "withheld"
    """Loaded and not callable, and either is new or the reason is."""
    EFFECT = "effect"
    """Callable before and after, and now asked for or no longer."""


class Change(NamedTuple):
    """One tool's difference, and why: a :class:`~capstate.errors.Reason`, or the cause's own word."""

    action: Action
    tool: str
    reason: str
    decided_by: str = ""


class RowState(NamedTuple):
    """One tool of a receipt.

    ``status`` is ``allow``, ``ask`` or a reason; ``place`` is :data:`IMMEDIATE`, :data:`HELD`, :data:`ABSENT`, or the
    mark at which the tool is deferred, ``at ENTRY`` or ``call ID``.
    """

    name: str
    definition: str
    status: str
    decided_by: str
    place: str

    @property
    def callable(self) -> bool:
        """Whether a model may call the tool."""
        return self.place not in _NOT_CALLABLE


_FIELDS = len(RowState._fields)


@frozen(eq=False)
class Rows:
    """All rows of one group as stored: equal when the bytes are.

    Attributes:
        group: id of the group.
        encoded: the canonical bytes.
        digest: of those bytes.
    """

    group: str
    encoded: bytes = field(repr=False)
    digest: str
    _fields: Mapping[str, tuple[str, ...]] = field(repr=False)
    """By name; plain tuples, which are made and compared faster."""

    @classmethod
    def of(cls, view: View, block: Block | None) -> Rows:
        """Return the rows of a group and its placements."""
        deferred = block.deferred if block is not None else ()
        places = {p.definition.name: _place(p.mark) for p in deferred if p.mark is not None}
        return cls.holding(
            view.inputs.group.id,
            [
                (name, r.definition.fingerprint, r.effect or "", r.decided_by, places.get(name, IMMEDIATE))
                if r.reason is None
                else (name, r.definition.fingerprint, r.reason, r.decided_by, HELD if r.loaded else ABSENT)
                for name, r in view.rows.items()
            ],
        )

    @classmethod
    def holding(cls, group: str, fields: list[tuple[str, str, str, str, str]]) -> Rows:
        """Return rows of these fields, which stand in order of name."""
        encoded = encode(fields)
        return cls(group, encoded, fingerprint(Domain.BLOB, encoded), {row[0]: row for row in fields})

    @classmethod
    def from_bytes(cls, group: str, encoded: bytes) -> Rows:
        """Read stored rows.

        Raises:
            MalformedError: they are no rows.
        """
        place = f"rows of group {group!r}"
        try:
            listed = orjson.loads(encoded)
        except ValueError as error:
            raise MalformedError(place, "JSON", str(error)) from error
        if not isinstance(listed, list) or not all(
            isinstance(row, list) and len(row) == _FIELDS and all(type(text) is str for text in row) for row in listed
        ):
            raise MalformedError(place, "rows of five texts", "something else")
        fields = {row[0]: tuple(row) for row in listed}
        if encode(listed) != encoded or [row[0] for row in listed] != sorted(fields):
            raise MalformedError(place, "canonical bytes, each name once and in order", "another encoding")
        return cls(group, encoded, fingerprint(Domain.BLOB, encoded), fields)

    def by_name(self) -> Mapping[str, RowState]:
        """Return the rows by tool name, in order."""
        return {name: RowState._make(row) for name, row in self._fields.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and (self.group, self.digest) == (other.group, other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)


def diff(
    before: Mapping[str, Rows], after: Mapping[str, Rows], *, moved: str = "load", new: str = "list_changed"
) -> tuple[Change, ...]:
    """Return how the rows ``after`` differ from those ``before``.

    Args:
        before: rows by group.
        after: the same, later.
        moved: why places changed.
        new: why a tool is callable of which ``before`` says nothing.
    """
    return compare(before, after, moved=moved, new=new)[0]


def compare(
    before: Mapping[str, Rows], after: Mapping[str, Rows], *, moved: str, new: str
) -> tuple[tuple[Change, ...], list[list[str]]]:
    """Return the changes as :func:`diff` does, and again as [action, target, reason, decided by].

    In the second form whole groups are ``group/*``.
    """
    changes: list[Change] = []
    listed: list[list[str]] = []
    for group in sorted(before.keys() | after.keys()):
        old, current = before.get(group), after.get(group)
        if old is not current and old != current:
            was, now = old._fields if old else {}, current._fields if current else {}
            names = list(now) if was.keys() == now.keys() else sorted(was.keys() | now.keys())
            found: list[Change] = []
            for name in names:
                then, here = was.get(name), now.get(name)
                if then != here and (change := _change(f"{group}/{name}", then, here, moved, new)) is not None:
                    found.append(change)
            changes += found
            if len(found) == len(names) and len({(c.action, c.reason, c.decided_by) for c in found}) == 1:
                found = [found[0]._replace(tool=f"{group}/*")]
            listed.extend([str(c.action), c.tool, c.reason, c.decided_by] for c in found)
    return tuple(changes), listed


def _place(mark: Mark) -> str:
    return f"at {mark.at}" if mark.at is not None else f"call {mark.call}"


_BACK: dict[str, str] = {
    Reason.NOT_LOADED: "load",
    Reason.RESOURCE_UNAVAILABLE: "resource_back",
    Reason.NOT_AUTHORISED: "authority",
    Reason.POLICY_MISSING: "authority",
    Reason.SCHEMA_CHANGED: "authority",
}


def _change(tool: str, was: tuple[str, ...] | None, now: tuple[str, ...] | None, moved: str, new: str) -> Change | None:  # noqa: PLR0911 - a table, one return a row
    before = was is not None and was[4] not in _NOT_CALLABLE
    if now is None:
        return Change(Action.REMOVED, tool, "list_changed") if before else None
    _, definition, status, decided_by, place = now
    if place in _NOT_CALLABLE:
        if not before and (place == ABSENT or (was is not None and (was[2], was[4]) == (status, place))):
            return None
        return Change(Action.REMOVED if before else Action.WITHHELD, tool, _lost(status, decided_by), decided_by)
    if was is None:
        return Change(Action.ADDED, tool, new, decided_by)
    if not before:
        return Change(Action.ADDED, tool, _BACK.get(was[2], was[2]), decided_by)
    if was[1] != definition:
        return Change(Action.REDEFINED, tool, "list_changed", decided_by)
    if was[4] != place:
        return Change(Action.MOVED, tool, moved, decided_by)
    return Change(Action.EFFECT, tool, "authority", decided_by) if was[2] != status else None


def _lost(status: str, decided_by: str) -> str:
    """Return why a tool is not callable."""
    if status == Reason.NOT_AUTHORISED:
        return "parent_ceiling" if decided_by.startswith("parent") else "authority"
    return "unload" if status == Reason.NOT_LOADED else status
