"""What every page of the command line shares: a console, its width, paragraphs."""

from __future__ import annotations

from typing import IO, Any

from rich.console import Console
from rich.text import Text

WIDTH = 80
"""Everything is readable at this width."""


class _Console(Console):
    """Raises when the reader of a pipe has gone, so that the command can end as it should."""

    def on_broken_pipe(self) -> None:
        """Say so to the caller; the library would end the process with the status of a finding."""
        raise BrokenPipeError


def console(file: IO[str] | None = None) -> Console:
    """Return a console that never asks the machine anything but its width; a pipe gets :data:`WIDTH`."""
    made = _Console(file=file, highlight=False, emoji=False, markup=False, soft_wrap=False)
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


def clean(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return ``value`` with every character escaped that a terminal might act on: names come from strangers' files."""
    if isinstance(value, str):
        return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in value)
    if isinstance(value, dict):
        return {clean(name): clean(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(inner) for inner in value]
    return value
