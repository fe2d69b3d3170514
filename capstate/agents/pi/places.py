"""Where Pi keeps its session files. Nothing is opened: the answer is only what is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def find_sessions(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return the session files in Pi's places, newest name last; links and unreadable folders are left out.

    ``PI_CODING_AGENT_SESSION_DIR`` is a flat folder; else they are below ``sessions`` of ``PI_CODING_AGENT_DIR``
    (by default ``~/.pi/agent``), one folder for each working directory. Raises nothing.
    """
    environ = os.environ if environ is None else environ
    flat = environ.get("PI_CODING_AGENT_SESSION_DIR")
    if flat:
        return _files(Path(flat).expanduser())
    root = Path(environ.get("PI_CODING_AGENT_DIR") or "~/.pi/agent").expanduser() / "sessions"
    folders = [root, *_below(root)]
    return sorted((file for folder in folders for file in _files(folder)), key=lambda p: (p.name, str(p)))


def _below(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as rows:
            return sorted(Path(r.path) for r in rows if r.is_dir(follow_symlinks=False))
    except (OSError, ValueError):
        return []


def _files(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as rows:
            return sorted(Path(r.path) for r in rows if r.name.endswith(".jsonl") and r.is_file(follow_symlinks=False))
    except (OSError, ValueError):
        return []
