"""The way out of a command: what it prints and writes, errors in one line, and a standard output that takes nothing.

Not here: how results look (:mod:`capstate.terminal`), and which status a command ends with (:mod:`capstate.cli`).
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

import click

from capstate.errors import InvalidInputError
from capstate.options import escaped

if TYPE_CHECKING:
    from pathlib import Path


class Noted:
    """A text stream that keeps in mind why it could not be written.

    What a stream could not write it forgets, and the error alone does not say which file it was.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failed: str | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write as the stream does, and note what it raises."""
        with self._noting():
            return self._stream.write(text)

    def flush(self) -> None:
        """Flush as the stream does, and note what it raises."""
        with self._noting():
            self._stream.flush()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failed = error.strerror or str(error)
            raise


@contextmanager
def standard_output() -> Iterator[Noted]:
    """Give the standard output, noted, for the time of one command; characters that it lacks are escaped.

    Where it was closed before the process began, what is printed goes nowhere.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    before: TextIO | None = sys.stdout
    noted = Noted(before if before is not None else io.StringIO())
    sys.stdout = noted  # as good as one
    try:
        yield noted
    finally:
        if noted.failed is not None:
            # Else python complains when it flushes at exit.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the process ends
        else:
            sys.stdout = before  # None again, if it was


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print ``value`` on one line, in ASCII."""
    click.echo(json.dumps(value, ensure_ascii=True))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file that the caller named.

    Raises:
        InvalidInputError: it cannot be written.
    """
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:
        raise InvalidInputError(str(path), "a file that can be written", error.strerror or str(error)) from error


def complain(text: str) -> None:
    """Say an error in one line on the standard error stream; where nobody can be told, the status alone says it."""
    with suppress(OSError):
        click.echo(f"capstate: {escaped(text)}", err=True)
