"""What the commands share: their kinds of option, help with an example, progress on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Path(click.Path):
    """A path; an empty one is refused, since it would mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the path. Raises click's error of a value that cannot be used."""
        if not os.fspath(value):
            self.fail("expected a path, got an empty text", param, ctx)
        return super().convert(value, param, ctx)


PATH = _Path(path_type=Path)
"""The kind of every argument and option that names a file or a folder."""


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
