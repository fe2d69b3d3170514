"""What the commands share: their kinds of option, help with an example, progress on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    _Kind = click.ParamType[int]
else:
    _Kind = click.ParamType  # older ones take no type

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Path(click.Path):
    """A path; an empty one is refused, since it would mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the path. Raises click's error of a value that cannot be used."""
        if not os.fspath(value):
            self.fail("expected a path, got an empty text", param, ctx)
        if "\0" in os.fspath(value):
            self.fail("expected a path, got a text with NUL in it", param, ctx)
        return super().convert(value, param, ctx)


PATH = _Path(path_type=Path)
"""The kind of every argument and option that names a file or a folder."""


class _Number(_Kind):
    """A whole number from 0, in plain digits."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the number. Raises click's error of a text that is none."""
        text = str(value).strip()
        if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
            self.fail(f"expected a whole number from 0, got {value!r}", param, ctx)
        return int(text)


_DIGITS = 15
NUMBER = _Number()
"""The kind of every argument and option that is a number."""


def meant(text: str, known: Iterable[str]) -> str:
    """Return the one of ``known`` that ``text`` is, but for case and blanks around it; else ``text`` itself."""
    wanted = text.strip().lower()
    return next((name for name in known if name.lower() == wanted), text)


def json_option(function: _Function) -> _Function:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def key_option(function: _Function) -> _Function:
    """Add ``--key-file``."""
    return click.option("--key-file", type=PATH, help="File with the 32 bytes that seal the ledger's entries.")(
        function
    )


def example(line: str, title: str = "Example") -> str:
    """Return the end of a help text: one line to try."""
    return f"\b\n{title}:\n  {line}"


STATUSES = """\b
Exit status:
  0    good
  1    a finding
  2    usage: the command line, a file or a name cannot be used
  3    the ledger is not there or cannot be read
  70   a fault of capstate itself
  74   the output cannot be written
  130  interrupted"""
"""The end of the help of all commands."""


def print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    """Print the version and end."""
    if value:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - help needs none of it

        try:
            click.echo(f"capstate {version('capstate')}")
        except PackageNotFoundError:
            click.echo("capstate (not installed)")
        ctx.exit()


class Verbs(click.Group):
    """Verbs in the order of a first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the verbs as they were added."""
        return list(self.commands)


@contextmanager
def progress(word: str) -> Iterator[Callable[[str | None], None]]:
    """Show on a terminal how far a long run is; print nothing anywhere else."""
    shown = sys.stderr.isatty()
    count = 0

    def step(text: str | None) -> None:
        nonlocal count
        count += 1
        if shown and (text is not None or count % 50 == 0):
            click.echo(f"\r\x1b[K{word} {escaped(text or str(count))[:60]}", nl=False, err=True)

    try:
        yield step
    finally:
        if shown:
            click.echo("\r\x1b[K", nl=False, err=True)


def escaped(text: str) -> str:
    """Return one line that a terminal cannot act on."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in " ".join(text.split()))
