"""The pictures of the demo. Every mark says by its shape what it means; colour only repeats it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from capstate.demo.strip import Mark, Strip, strip
from capstate.terminal.page import plain, say, show

if TYPE_CHECKING:
    from rich.console import Console

    from capstate.demo.story import Story

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


def show_demo(out: Console, stories: Sequence[Story]) -> None:
    """Print all of the demo."""
    out.print(Text("Tools vanish, and tools come back.", style="bold"))
    say(
        out,
        "Two recorded sessions of one real, widely used coding agent. The permission lists and the scripted replies "
        "are ours; the agent was never told of the lists. No prompt is in the recordings, and nothing leaves this "
        "machine.",
    )
    out.print()
    show_legend(out)
    out.print()
    for number, story in enumerate(stories, 1):
        show_story(out, number, story)
    say(out, "Next:  capstate matrix   nine scenarios, five designs, every provider", "bold")
    say(out, "       capstate audit    finds your own Pi sessions, reads only what you name", "bold")


def show_story(out: Console, number: int, story: Story) -> None:
    """Print one story: the recording, then the same under capstate."""
    out.print(Text(f"{number}. {story.title}", style="bold"))
    say(out, story.told, indent=3)
    out.print()
    out.print(Text("   recorded", style="bold"))
    show_strip(out, strip(story.recorded))
    out.print()
    out.print(Text("   the same events under capstate, driven now", style="bold"))
    show_strip(out, strip(story.under))
    out.print()
    for turn, cause, changes in story.receipts:
        say(out, f"receipt at turn {turn}, {cause.replace('_', ' ')}: {_changes(changes)}", style="dim", indent=3)
    out.print()


def _changes(changes: Sequence[tuple[str, str, str, str]]) -> str:
    told: dict[tuple[str, str], list[str]] = {}
    for action, tool, reason, _ in changes:
        told.setdefault((action, reason.replace("_", " ")), []).append(tool.partition("/")[2])
    return "; ".join(f"{did} {', '.join(n)} ({why})" for (did, why), n in told.items()) or "nothing came or went"


def show_strip(out: Console, picture: Strip) -> None:
    """Print the picture."""
    ascii_only = plain(out)
    head = Text(" " * _NAMES)
    for column in picture.columns:
        letter = _BOUNDARIES[column.boundary] if column.boundary else ""
        head.append(f"{letter or column.turn:>2} ", style="bold blue" if letter else "dim")
    show(out, head)
    bar = "|" if ascii_only else "│"
    for names in picture.rows:
        row = Text(_label(names).rjust(_NAMES - 2) + "  ")
        for column in picture.columns:
            if column.boundary:
                row.append(f" {bar} ", style="blue")
                continue
            cell = column.of(names[0])
            shape, ascii_, style = _MARKS[cell.mark]
            row.append(f" {ascii_ if ascii_only else shape}", style=style)
            row.append(_RAN if cell.ran else " ", style="bold red")
        show(out, row)


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
    ascii_only = plain(out)
    rows = [
        Text(f" {_MARKS[m][ascii_only]} ", style=_MARKS[m][2]).append(t, style="default") for m, t in _MEANS.items()
    ]
    rows.append(Text(f" {_RAN} ", style="bold red").append("ran without permission", style="default"))
    for left, right in zip(rows[::2], rows[1::2], strict=True):
        left.pad_right(38 - len(left))
        show(out, left.append_text(right))
    bar = Text(f" {'|' if ascii_only else '│'} ", style="blue")
    bar.append("between requests: C compaction, N new process, R permission revoked", style="default")
    show(out, bar)
