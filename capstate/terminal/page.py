"""What every page of the command line shares: a console, its width, paragraphs, numbers with their nouns.

On a terminal everything fits its width. In a pipe or a file no line is cut and no word is divided, so that the next
program finds names and places whole; who wants columns there says so with ``COLUMNS``.
"""

from __future__ import annotations

import os
import re
from typing import IO, Any

from rich.console import Console
from rich.text import Text

WIDTH = 80
"""Everything is readable at this width; paragraphs have it where nobody says another."""

ENDLESS = 1_000_000
"""Characters in a line of a pipe: more than any name or place has."""


_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


class _Console(Console):
    """Raises when the reader of a pipe has gone, so that the command can end as it should."""

    def on_broken_pipe(self) -> None:
        """Say so to the caller; the library would end the process with the status of a finding."""
        raise BrokenPipeError


def console(file: IO[str] | None = None) -> Console:
    """Return a console that asks the machine for its width alone; in a pipe that is ``COLUMNS``, else no line ends."""
    made = _Console(file=file, highlight=False, emoji=False, markup=False, soft_wrap=False)
    if not made.is_terminal:
        columns = os.environ.get("COLUMNS", "").strip()
        made.width = min(int(columns), ENDLESS) if _NUMBER.fullmatch(columns) else ENDLESS
    return made


def plain(out: Console) -> bool:
    """Return whether the output takes no Unicode."""
    return not (out.encoding or "").lower().startswith("utf")


def say(out: Console, text: str = "", style: str = "", indent: int = 0) -> None:
    """Print a paragraph, wrapped and indented."""
    endless = out.width >= ENDLESS
    width = (WIDTH if endless else min(out.width, 100)) - indent
    for line in Text(text, style=style, overflow="ignore" if endless else "fold").wrap(out, max(width, 20)):
        show(out, Text(" " * indent).append_text(line))


def show(out: Console, line: Text) -> None:
    """Print one line as it is: one that is too long goes on in the next, rather than being cut."""
    out.print(line, no_wrap=True, overflow="ignore", crop=False)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def clean(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return ``value`` with every character escaped that a terminal might act on: names come from strangers' files."""
    if isinstance(value, str):
        return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in value)
    if isinstance(value, dict):
        return {clean(name): clean(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(inner) for inner in value]
    return value
