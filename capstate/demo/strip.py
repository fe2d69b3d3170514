"""An audit's lines as a picture: columns are requests and boundaries, rows are tools, a mark says what each could do.

Pure: lines in, rows of marks out. How marks look is :mod:`capstate.terminal`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from attrs import field, frozen


class Mark(StrEnum):
    """What one tool was at one request."""

    NONE = "none"
    """Not in the request, and nothing is wrong with that."""
    COULD = "could call"
    LOST = "lost"
    """Loaded and permitted, and missing."""
    BACK = "came back"
    """Was permitted, was revoked, could be called again."""
    NEVER = "never granted"
    """Could be called, though never permitted, or never loaded."""
    REFUSED = "refused"
    """Was called, and the guard said no."""


@frozen
class Cell:
    """One tool at one request; ``ran``: it ran without permission, or though never loaded."""

    mark: Mark
    ran: bool = False


@frozen
class Column:
    """A request (``turn``), or a boundary before the next one (``boundary``)."""

    turn: int = 0
    boundary: str = ""
    cells: Mapping[str, Cell] = field(factory=dict, repr=False)

    def of(self, tool: str) -> Cell:
        """Return the cell of a tool."""
        return self.cells.get(tool, Cell(Mark.NONE))


@frozen
class Strip:
    """The picture. ``rows`` lists tools that fare alike together."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


def strip(lines: Iterable[Mapping[str, Any]]) -> Strip:
    """Return the picture of the lines of :func:`capstate.audit.audit_paths`, or of lines of the same form.

    A line may also have ``refused``: names that were called and did not run.
    """
    listed = list(lines)
    ran: dict[int, set[str]] = {}
    for line in listed:
        if "finding" in line and line.get("detail") == "ran" and line["turn"] is not None:
            ran.setdefault(line["turn"], set()).update(line["names"])
    columns: list[Column] = []
    once: set[str] = set()
    before: Mapping[str, Any] | None = None
    for line in listed:
        if line.get("kind") == "summary":
            columns.append(Column(boundary="compaction"))
        elif line.get("kind") == "turn":
            columns += boundaries(before, line)
            columns.append(_column(line, once, ran.get(line["turn"], set())))
            once |= set(line["authorised"] or ())
            before = line
    return Strip(tuple(columns), _rows(columns))


def boundaries(before: Mapping[str, Any] | None, line: Mapping[str, Any]) -> list[Column]:
    """Return what lies between two requests, compactions aside."""
    if before is None:
        return []
    found = []
    if before["process"] != line["process"]:
        found.append(Column(boundary="reopened"))
    if line["authorised"] is not None and set(before["authorised"] or ()) - set(line["authorised"]):
        found.append(Column(boundary="revoked"))
    return found


def _column(line: Mapping[str, Any], once: set[str], ran: set[str]) -> Column:
    wrong = {*(line["not_authorised"] or ()), *(line["never_loaded"] or ())}
    cells: dict[str, Cell] = {}
    for tool in line["callable"] or ():
        mark = Mark.COULD if tool not in wrong else Mark.BACK if tool in once else Mark.NEVER
        cells[tool] = Cell(mark, ran=tool in ran)
    for tool in line["lost"] or ():
        cells[tool] = Cell(Mark.LOST)
    for tool in line.get("refused", ()):
        cells[tool] = Cell(Mark.REFUSED)
    return Column(turn=line["turn"], cells=cells)


def _rows(columns: Sequence[Column]) -> tuple[tuple[str, ...], ...]:
    """Return the tools, those that fare alike in one row, in order of their first mark."""
    tools: dict[str, None] = {}
    for column in columns:
        tools.update(dict.fromkeys(column.cells))
    alike: dict[tuple[Cell, ...], list[str]] = {}
    for tool in tools:
        alike.setdefault(tuple(column.of(tool) for column in columns), []).append(tool)
    return tuple(tuple(sorted(names)) for names in alike.values())
