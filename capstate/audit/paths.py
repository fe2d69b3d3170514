"""Reads what an audit is about: session files, recorded folders, request bodies, observations of runs.

Only what is named is read, and each file once. A folder with sessions or a ``requests.jsonl`` is one recording, also
where they are in folders below it; any other folder is one of request bodies. ``requests:PATH`` says so for a file
whose kind its first line does not tell. A report calls each file by its path below the argument; where several are
given, below the folder that holds all of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import evolve

from capstate.agents.lines import Damage, DamageKind, is_folder, records
from capstate.agents.pi import Session, read_session
from capstate.agents.pi.session import is_session
from capstate.agents.requests import OBSERVED, Ran, Request, read_executed, read_requests
from capstate.audit.judge import Material, audit
from capstate.errors import InvalidInputError, MalformedError
from capstate.policy import Policy

_REQUESTS = "requests:"
_RECORDED = "requests.jsonl"
_OBSERVED = "observations.jsonl"
_TOLD = 3
EXPECTED = "a Pi session, a recorded folder, or request bodies"
"""What each path of an audit has to be."""
_BODIES = "a file or a folder of request bodies"
_EXECUTED = f"a file with {OBSERVED}"
_WORDS = {
    DamageKind.UNREADABLE: "cannot be read",
    DamageKind.NOT_UTF8: "no UTF-8",
    DamageKind.NOT_JSON: "no JSON",
    DamageKind.NOT_OBJECT: "no JSON object",
    DamageKind.BAD_ENTRY: "no complete record",
    DamageKind.BAD_BODY: "a request body that its API would refuse",
    DamageKind.UNKNOWN_API: "a request body of no API that is known here",
}
"""What an error says of damage; of the other kinds their names say it."""


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
        InvalidInputError: a path is not there, may not be read, or is empty, or no path was given.
    """
    yield from audit(gather(paths, requests=requests, executed=executed), policy if policy is not None else Policy())


def gather(
    paths: Sequence[Path | str],
    *,
    requests: Path | str | None = None,
    executed: Path | str | None = None,
    progress: Callable[[str], object] = lambda _file: None,
) -> Material:
    """Read all files of an audit; a file that is not what it should be is a row of damage. Raises as above.

    ``progress`` is told of each file, or folder of bodies, before it is read.
    """
    if not paths and requests is None:
        raise InvalidInputError("paths", EXPECTED, "nothing")
    given = [str(path) for path in paths]
    bodies = [text.removeprefix(_REQUESTS) for text in given if text.startswith(_REQUESTS)]
    others = [text for text in given if not text.startswith(_REQUESTS)]
    named = [*others, *bodies, *(str(path) for path in (requests, executed) if path is not None)]
    if "" in named:
        raise InvalidInputError("paths", EXPECTED, "an empty path")
    reader = _Reader(_root(named), progress)
    for text in given:
        with reader.argument(text, _BODIES if text.startswith(_REQUESTS) else EXPECTED):
            if text.startswith(_REQUESTS):
                reader.bodies(Path(text.removeprefix(_REQUESTS)))
            else:
                reader.any(Path(text))
    if requests is not None:
        with reader.argument(f"{_REQUESTS}{requests}", _BODIES):
            reader.bodies(Path(requests))
    if executed is not None:
        with reader.argument(str(executed), _EXECUTED):
            reader.executed(Path(executed))
    return reader.material()


def require(material: Material) -> Material:
    """Return ``material`` if every argument held something to judge.

    Raises:
        InvalidInputError: one held no session with an entry, no request, and nothing that ran.
    """
    for place, expected, got in material.barren:
        raise InvalidInputError(place, expected, got)
    return material


def _root(named: Sequence[str]) -> Path:
    """Return the folder below which everything that was named is."""
    found = [os.path.abspath(text) for text in named]  # noqa: PTH100 - a path that cannot be is said by its reader
    return Path(os.path.commonpath([p if is_folder(Path(p)) else os.path.dirname(p) for p in found]))  # noqa: PTH120


class _Reader:
    def __init__(self, root: Path, progress: Callable[[str], object]) -> None:
        self.root, self.progress = root, progress
        self.barren: list[tuple[str, str, str]] = []
        self.why: dict[str, str] = {}
        self.sessions: list[Session] = []
        self.requests: list[Request] = []
        self.runs: list[Ran] | None = None
        self.damage: list[Damage] = []
        self.unknown: Counter[str] = Counter()
        self.again = False
        self._read: set[tuple[str, str]] = set()

    def material(self) -> Material:
        runs = None if self.runs is None else tuple(self.runs)
        return Material(
            tuple(self.sessions),
            tuple(self.requests),
            runs,
            tuple(self.damage),
            dict(self.unknown),
            tuple(self.barren),
        )

    @contextmanager
    def argument(self, text: str, expected: str) -> Iterator[None]:
        """Note whether one argument held anything to judge; what was read before counts."""
        held, damaged, rows = self._held(), len(self.damage), self.unknown.copy()
        files, self.again = len(self._read), False
        yield
        if self._held() != held or self.again:
            return
        wrong = [self._told(d, text) for d in self.damage[damaged:]]
        empty = [f"{count} {what}" for what, count in (self.unknown - rows).items()]
        got = "; ".join([*wrong[:_TOLD], *empty]) or ("nothing of that" if len(self._read) > files else "no such file")
        self.barren.append((text, expected, got))

    def _told(self, row: Damage, text: str) -> str:
        """Return what is wrong with a place of an argument; the argument itself is not named again."""
        what = self.why.get(row.file) if row.kind is DamageKind.UNREADABLE else None
        what = what or _WORDS.get(row.kind) or row.kind.value.replace("_", " ")
        file = "" if row.file == self._place(text.removeprefix(_REQUESTS)) else row.file
        at = f"line {row.line}" if row.line and not file else f"{file}:{row.line}" if row.line else file
        return f"{at}: {what}" if at else what

    def _held(self) -> tuple[int, int, bool]:
        return sum(bool(s.order) for s in self.sessions), len(self.requests), self.runs is not None

    def _place(self, path: Path | str) -> str:
        return Path(os.path.relpath(path, self.root)).as_posix()

    def _placed(self, damage: Iterable[Damage]) -> None:
        self.damage.extend(evolve(row, file=self._place(row.file)) for row in damage)

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
        if self._again("bodies", path):
            return
        damage: list[Damage] = []
        try:
            found = [evolve(r, file=self._place(r.file)) for r in read_requests(path, damage, self.unknown)]
        except MalformedError as error:
            self._unreadable(path, error)
        else:
            self.requests.extend(found)
        self._placed(damage)

    def executed(self, path: Path) -> None:
        if self._again("runs", path):
            return
        damage: list[Damage] = []
        try:
            found = read_executed(path, damage)
        except MalformedError as error:
            self._unreadable(path, error)
        else:
            self.runs = [*(self.runs or []), *(evolve(ran, file=self._place(ran.file)) for ran in found)]
        self._placed(damage)

    def _file(self, path: Path) -> None:
        named = path.suffix == ".jsonl" and path.name != _RECORDED
        if _is_session(path) or (named and not _holds_bodies(path)):
            self._session(path)
        else:
            self.bodies(path)

    def _session(self, path: Path) -> None:
        if self._again("session", path):
            return
        try:
            found = read_session(path)
        except MalformedError as error:
            self._unreadable(path, error)
            return
        file = self._place(path)
        self.sessions.append(evolve(found, file=file, damage=tuple(evolve(d, file=file) for d in found.damage)))

    def _again(self, role: str, path: Path) -> bool:
        """Whether the file was read as that before: a path may be named beside the folder that holds it."""
        real = role, os.path.realpath(path)
        known = real in self._read
        self._read.add(real)
        if not known:
            self.progress(self._place(path))
        self.again = self.again or known
        return known

    def _unreadable(self, path: Path, error: MalformedError) -> None:
        self.why[self._place(path)] = str(error.got)
        self.damage.append(Damage(DamageKind.UNREADABLE, self._place(path)))


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
