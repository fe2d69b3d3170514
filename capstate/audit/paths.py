"""Reads what an audit is about: session files, recorded folders, request bodies, observations of runs.

Only what is named is read, and each file once. A folder with sessions or a ``requests.jsonl`` is one recording, also
where they are in folders below it; any other folder is one of request bodies. ``requests:PATH`` says so for a file
whose kind its first line does not tell.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from capstate.agents.lines import Damage, DamageKind, is_folder, records
from capstate.agents.pi import Session, read_session
from capstate.agents.pi.session import is_session
from capstate.agents.requests import Ran, Request, read_executed, read_requests
from capstate.audit.judge import Material, audit
from capstate.errors import InvalidInputError, MalformedError
from capstate.policy import Policy

_REQUESTS = "requests:"
_RECORDED = "requests.jsonl"
_OBSERVED = "observations.jsonl"


def audit_paths(
    paths: Sequence[Path | str],
    policy: Policy | None = None,
    requests: Path | str | None = None,
    executed: Path | str | None = None,
) -> Iterator[dict[str, Any]]:
    """Read ``paths`` and yield the lines of :func:`capstate.audit.audit`.

    Args:
        paths: session files, recorded folders, ``requests:PATH``.
        policy: None for none: then residents are taken from the first request, and who may from the record.
        requests: a further file or folder of request bodies.
        executed: a further file of ``executed:NAME`` observations.

    Raises:
        InvalidInputError: a path is not there, may not be read, or no path was given.
    """
    yield from audit(gather(paths, requests=requests, executed=executed), policy if policy is not None else Policy())


def gather(
    paths: Sequence[Path | str], *, requests: Path | str | None = None, executed: Path | str | None = None
) -> Material:
    """Read all files of an audit; a file that is not what it should be is a row of damage. Raises as above."""
    reader = _Reader()
    for path in paths:
        text = str(path)
        if text.startswith(_REQUESTS):
            reader.bodies(Path(text.removeprefix(_REQUESTS)))
        else:
            reader.any(Path(path))
    if requests is not None:
        reader.bodies(Path(requests))
    if executed is not None:
        reader.executed(Path(executed))
    if not paths and requests is None:
        raise InvalidInputError("paths", "a session file, a recorded folder, or requests:PATH", "nothing")
    return reader.material()


class _Reader:
    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.requests: list[Request] = []
        self.runs: list[Ran] | None = None
        self.damage: list[Damage] = []
        self.unknown: Counter[str] = Counter()
        self._read: set[str] = set()

    def material(self) -> Material:
        runs = None if self.runs is None else tuple(self.runs)
        return Material(tuple(self.sessions), tuple(self.requests), runs, tuple(self.damage), dict(self.unknown))

    def any(self, path: Path) -> None:
        if not is_folder(path):
            self._file(path)
            return
        files = _files(path)
        if not any(p.name == _RECORDED or _is_session(p) for p in files):
            self.bodies(path)
            return
        for p in files:
            if p.name == _OBSERVED:
                self.executed(p)
            else:
                self._file(p)

    def bodies(self, path: Path) -> None:
        if self._again(path):
            return
        try:
            self.requests.extend(read_requests(path, self.damage, self.unknown))
        except MalformedError:
            self._unreadable(path)

    def executed(self, path: Path) -> None:
        if self._again(path):
            return
        try:
            found = read_executed(path, self.damage)
        except MalformedError:
            self._unreadable(path)
        else:
            self.runs = [*(self.runs or []), *found]

    def _file(self, path: Path) -> None:
        named = path.suffix == ".jsonl" and path.name != _RECORDED
        if _is_session(path) or (named and not _holds_bodies(path)):
            self._session(path)
        else:
            self.bodies(path)

    def _session(self, path: Path) -> None:
        if self._again(path):
            return
        try:
            self.sessions.append(read_session(path))
        except MalformedError:
            self._unreadable(path)

    def _again(self, path: Path) -> bool:
        """Whether the file was read before: a path may be named beside the folder that holds it."""
        real = os.path.realpath(path)
        known = real in self._read
        self._read.add(real)
        return known

    def _unreadable(self, path: Path) -> None:
        self.damage.append(Damage(DamageKind.UNREADABLE, path.name))


def _files(folder: Path) -> list[Path]:
    """Return the files of JSON lines in a folder, else those in the folders below it, as Pi keeps its sessions."""
    found = sorted(p for p in folder.glob("*.jsonl") if not p.is_symlink())
    return found or [p for below in sorted(folder.glob("*/")) if is_folder(below) for p in _files(below)]


def _is_session(path: Path) -> bool:
    first = _first(path)
    return first is not None and is_session(first)


def _holds_bodies(path: Path) -> bool:
    first = _first(path)
    return first is not None and not is_session(first) and not first.keys() & {"parentId", "seq"}


def _first(path: Path) -> dict[str, Any] | None:
    try:
        found = next(records(path, []), None)
    except MalformedError:
        return None
    return None if found is None else found.value
