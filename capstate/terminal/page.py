"""What every page of the command line shares: a console, its width, paragraphs."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.text import Text

WIDTH = 80
"""Everything is readable at this width."""


def console(file: IO[str] | None = None) -> Console:
    """Return a console that never asks the machine anything but its width; a pipe gets :data:`WIDTH`."""
    made = Console(file=file, highlight=False, emoji=False, markup=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = WIDTH
    return made


def plain(out: Console) -> bool:
    """Return whether the output takes no Unicode."""
    return not (out.encoding or "").lower().startswith("utf")


def say(out: Console, text: str = "", style: str = "", indent: int = 0) -> None:
    """Print a paragraph, wrapped and indented."""
    width = min(out.width, 100) - indent
    for line in Text(text, style=style).wrap(out, max(width, 20)):
        out.print(Text(" " * indent).append_text(line), no_wrap=True)
