"""How results look on a terminal: the strip of the demo, tables of matrix and audit. Names only, never text.

With ``NO_COLOR`` or in a pipe there is no colour, and every mark says by its shape what it means; where the output
takes no Unicode, marks are ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from capstate.demo.strip import Mark, Strip

if TYPE_CHECKING:
    from capstate.conformance.matrix import Cell as MatrixCell
    from capstate.conformance.matrix import Result
    from capstate.conformance.recorded import Recorded
    from capstate.demo.story import Story

WIDTH = 80
"""Everything is readable at this width."""

_MARKS: Mapping[Mark, tuple[str, str, str]] = {
    Mark.NONE: ("·", ".", "bright_black"),
    Mark.COULD: ("●", "o", "green"),
    Mark.LOST: ("○", "?", "bold yellow"),
    Mark.BACK: ("▲", "^", "bold red"),
    Mark.NEVER: ("■", "#", "bold magenta"),
    Mark.REFUSED: ("×", "x", "bold cyan"),  # noqa: RUF001 - a mark, not the letter
}
_RAN = "!"
_BOUNDARIES = {"compaction": "C", "reopened": "N", "revoked": "R"}
_NAMES = 24


def console(file: IO[str] | None = None) -> Console:
    """Return a console that never asks the machine anything but its width; a pipe gets :data:`WIDTH`."""
    made = Console(file=file, highlight=False, emoji=False, markup=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = WIDTH
    return made


def _plain(out: Console) -> bool:
    return not (out.encoding or "").lower().startswith("utf")


def say(out: Console, text: str = "", style: str = "", indent: int = 0) -> None:
    """Print a paragraph, wrapped and indented."""
    width = min(out.width, 100) - indent
    for line in Text(text, style=style).wrap(out, max(width, 20)):
        out.print(Text(" " * indent).append_text(line), no_wrap=True)


# ---- the demo


def show_story(out: Console, number: int, story: Story, strips: tuple[Strip, Strip]) -> None:
    """Print one story: the recording, then the same under capstate."""
    out.print(Text(f"{number}. {story.title}", style="bold"))
    say(out, story.told, indent=3)
    out.print()
    out.print(Text("   recorded", style="bold"))
    show_strip(out, strips[0])
    out.print()
    out.print(Text("   the same events under capstate, driven now", style="bold"))
    show_strip(out, strips[1])
    out.print()
    for turn, cause, changes in story.receipts:
        say(out, f"receipt at turn {turn}, {cause.replace('_', ' ')}: {_changes(changes)}", style="dim", indent=3)
    out.print()


def _changes(changes: Sequence[tuple[str, str, str, str]]) -> str:
    told: dict[tuple[str, str], list[str]] = {}
    for action, tool, reason, _ in changes:
        told.setdefault((action, reason.replace("_", " ")), []).append(tool.partition("/")[2])
    return "; ".join(f"{why}: {did} {', '.join(n)}" for (did, why), n in told.items()) or "nothing came or went"


def show_strip(out: Console, strip: Strip) -> None:
    """Print the picture."""
    plain = _plain(out)
    head = Text(" " * _NAMES)
    for column in strip.columns:
        letter = _BOUNDARIES[column.boundary] if column.boundary else ""
        head.append(f"{letter or column.turn:>2} ", style="bold blue" if letter else "dim")
    out.print(head, no_wrap=True)
    bar = "|" if plain else "│"
    for names in strip.rows:
        row = Text(_label(names).rjust(_NAMES - 2) + "  ")
        for column in strip.columns:
            if column.boundary:
                row.append(f" {bar} ", style="blue")
                continue
            cell = column.of(names[0])
            shape, ascii_, style = _MARKS[cell.mark]
            row.append(f" {ascii_ if plain else shape}", style=style)
            row.append(_RAN if cell.ran else " ", style="bold red")
        out.print(row, no_wrap=True)


def _label(names: Sequence[str]) -> str:
    names = sorted(names, key=lambda name: (len(name), name))
    for shown in range(len(names), 0, -1):
        rest = len(names) - shown
        text = ", ".join(names[:shown]) + (f" +{rest}" if rest else "")
        if len(text) <= _NAMES - 2:
            return text
    return names[0][: _NAMES - 3] + "~"


_MEANS = {
    Mark.COULD: "could call",
    Mark.LOST: "lost: loaded, permitted, gone",
    Mark.BACK: "came back after being revoked",
    Mark.NEVER: "never granted, yet callable",
    Mark.REFUSED: "called, and refused by the guard",
}


def show_legend(out: Console) -> None:
    """Print what the marks mean."""
    plain = _plain(out)
    rows = [Text(f" {_MARKS[m][plain]} ", style=_MARKS[m][2]).append(t, style="default") for m, t in _MEANS.items()]
    rows.append(Text(f" {_RAN} ", style="bold red").append("ran without permission", style="default"))
    for left, right in zip(rows[::2], rows[1::2], strict=True):
        left.pad_right(38 - len(left))
        out.print(left.append_text(right), no_wrap=True)
    bar = Text(f" {'|' if plain else '│'} ", style="blue")
    bar.append("between requests:  C compaction  N new process, reopened  R permission revoked", style="default")
    out.print(bar, no_wrap=True)


# ---- the matrix


def show_matrix(out: Console, result: Result, recorded: Mapping[str, Recorded], designs: Sequence[str]) -> None:
    """Print one row a scenario, one column a design, the recording first."""
    table = Table(box=None, padding=(0, 1), show_edge=False, header_style="bold", pad_edge=False)
    table.add_column("scenario", no_wrap=True, max_width=34)
    table.add_column("recorded Pi", justify="center", no_wrap=True)
    for design in designs:
        table.add_column(design, justify="center", no_wrap=True)
    for row in result.rows:
        seen = recorded[row.scenario.id]
        told = _counts(("lost", seen.lost), ("widened", seen.widened), ("ran", seen.ran))
        cells = [_cell(row.worst(design)) for design in designs]
        table.add_row(Text(f"{row.scenario.id:<3}{row.scenario.title}"), told, *cells)
    out.print(table)


def _cell(cell: MatrixCell | None) -> Text:
    if cell is None:
        return Text("n/a", style="dim")
    return _counts(("lost", cell.lost), ("widened", cell.widened), ("unexplained", cell.unexplained))


_STYLES = {"lost": "yellow", "widened": "red", "ran": "bold red", "unexplained": "cyan"}
_LETTERS = {"lost": "L", "widened": "W", "ran": "R", "unexplained": "U"}


def _counts(*counts: tuple[str, int]) -> Text:
    found = [(what, n) for what, n in counts if n]
    if not found:
        return Text("0", style="green")
    text = Text()
    for n, (what, count) in enumerate(found):
        text.append(" " if n else "").append(f"{_LETTERS[what]}{count}", style=_STYLES[what])
    return text


def show_places(out: Console, result: Result, recorded: Mapping[str, Recorded], designs: Sequence[str]) -> None:
    """Print, for each cell that is not 0, the turn that shows it."""
    for row in result.rows:
        lines = [f"recorded: {shown}" for shown in recorded[row.scenario.id].shown]
        for design in designs:
            cell = row.worst(design)
            lines += [f"{design}: {shown} [{cell.profile}]" for shown in cell.shown] if cell is not None else []
        if lines:
            out.print(Text(f"{row.scenario.id} {row.scenario.title}", style="bold"))
            for line in lines:
                say(out, line, indent=3)
