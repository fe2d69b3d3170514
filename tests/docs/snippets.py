"""Reads the fenced blocks of a document, and runs them as a reader would.

``python`` blocks share one namespace a document. ``console`` blocks hold ``$ capstate ...`` commands with the output
that they print; ``...`` in it stands for anything. Both run in one empty folder a document. Before a block may stand
``<!-- file: NAME -->`` (it is written there for later blocks) or ``<!-- not run: REASON -->``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import capstate

_BLOCK = re.compile(
    r"^(?:<!-- (?P<word>file|not run):(?P<what>.*?)-->\s*)?"
    r"^(?P<fence>```+)(?P<lang>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
_RUN = [sys.executable, "-c", "from capstate.cli import main; main()"]
_PLAIN = {
    **os.environ,
    "COLUMNS": "80",  # as a reader's terminal; a pipe would have lines without end
    "NO_COLOR": "1",
    "PYTHONPATH": str(Path(capstate.__file__).parents[1]),  # the capstate of this run, from any folder
}


class Block(NamedTuple):
    """One fenced block; ``line`` is that of its first line of text."""

    path: Path
    line: int
    lang: str
    text: str
    word: str | None
    what: str


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(
            path, text.count("\n", 0, m.start("text")) + 1, m["lang"], m["text"], m["word"], (m["what"] or "").strip()
        )
        for m in _BLOCK.finditer(text)
    ]


def run(block: Block, folder: Path, namespace: dict[str, object]) -> None:
    """Run or write ``block`` in ``folder``, the current one. AssertionError: a command prints something else."""
    if block.word == "file":
        (folder / block.what).write_text(block.text, encoding="utf-8")
    if block.word != "not run" and block.lang == "python":
        padded = "\n" * (block.line - 1) + block.text  # so that a traceback names the line of the document
        exec(compile(padded, block.path, "exec"), namespace)  # noqa: S102 - our own documents
    if block.word != "not run" and block.lang == "console":
        for command, expected in re.findall(r"^\$ ([^\n]*)\n?((?:(?!\$ )[^\n]*\n?)*)", block.text, re.MULTILINE):
            words = shlex.split(command)
            assert words[0] == "capstate", f"{block.path}:{block.line}: only capstate is run; say <!-- not run: why -->"
            argv = [*_RUN, *words[1:]]
            done = subprocess.run(argv, cwd=folder, env=_PLAIN, text=True, capture_output=True, check=False)
            pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
            got = (done.stdout + done.stderr).strip()
            assert re.fullmatch(pattern, got, re.DOTALL), f"{block.path}:{block.line}: $ {command}\n{got}"
