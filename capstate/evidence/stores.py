"""Where records of artefacts are kept: bytes in, bytes out, by two names that are safe in a path."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from capstate.errors import EvidenceUnavailableError, InvalidInputError

_SAFE = re.compile(r"[0-9a-f]{1,128}")


class Store(Protocol):
    """The storage port. ``shelf`` and ``name`` are hexadecimal digits. Safe to use from many threads.

    Every method raises :class:`~capstate.errors.EvidenceUnavailableError` when the storage fails.
    """

    def write(self, shelf: str, name: str, value: bytes) -> None:
        """Store ``value``, in place of what was there; all of it or nothing, durable on return."""

    def read(self, shelf: str, name: str) -> bytes | None:
        """Return what is stored; None if nothing is."""

    def remove(self, shelf: str, name: str) -> None:
        """Take away what is stored, if there is something; durable on return."""

    def names(self, shelf: str) -> list[str]:
        """Return every name of a shelf, in order."""


class MemoryStore:
    """A :class:`Store` in memory, for tests and for hosts that keep nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shelves: dict[str, dict[str, bytes]] = {}

    def write(self, shelf: str, name: str, value: bytes) -> None:
        """See :class:`Store`."""
        with self._lock:
            self._shelves.setdefault(_safe(shelf), {})[_safe(name)] = bytes(value)

    def read(self, shelf: str, name: str) -> bytes | None:
        """See :class:`Store`."""
        with self._lock:
            return self._shelves.get(_safe(shelf), {}).get(_safe(name))

    def remove(self, shelf: str, name: str) -> None:
        """See :class:`Store`."""
        with self._lock:
            self._shelves.get(_safe(shelf), {}).pop(_safe(name), None)

    def names(self, shelf: str) -> list[str]:
        """See :class:`Store`."""
        with self._lock:
            return sorted(self._shelves.get(_safe(shelf), {}))


class DirectoryStore:
    """A :class:`Store` in a folder: a folder a shelf, a file a record, for their owner alone.

    A file is written beside its place, made durable, then moved there: who reads sees the old one or the new.

    Args:
        path: made if it is missing; its parent must exist.

    Raises:
        EvidenceUnavailableError: it cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).absolute()
        try:
            self._path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise _unavailable(self._path, error) from error

    def write(self, shelf: str, name: str, value: bytes) -> None:
        """See :class:`Store`."""
        folder = self._path / _safe(shelf)
        target = folder / _safe(name)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            descriptor, beside = tempfile.mkstemp(prefix=".", dir=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(value)
                    file.flush()
                    os.fsync(file.fileno())
                Path(beside).replace(target)
            except BaseException:
                with suppress(OSError):
                    Path(beside).unlink()
                raise
            _keep(folder)
            _keep(self._path)
        except OSError as error:
            raise _unavailable(target, error) from error

    def read(self, shelf: str, name: str) -> bytes | None:
        """See :class:`Store`."""
        target = self._path / _safe(shelf) / _safe(name)
        try:
            return target.read_bytes()
        except FileNotFoundError:
            if self._path.is_dir():
                return None
            raise EvidenceUnavailableError(f"{self._path}: the folder is gone") from None
        except OSError as error:
            raise _unavailable(target, error) from error

    def remove(self, shelf: str, name: str) -> None:
        """See :class:`Store`."""
        folder = self._path / _safe(shelf)
        try:
            (folder / _safe(name)).unlink()
            _keep(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unavailable(folder, error) from error

    def names(self, shelf: str) -> list[str]:
        """See :class:`Store`."""
        folder = self._path / _safe(shelf)
        try:
            # A name that begins with a dot is a write that stopped half-way.
            return sorted(name for name in os.listdir(folder) if _SAFE.fullmatch(name))  # noqa: PTH208 - names alone
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable(folder, error) from error


def _keep(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _safe(name: object) -> str:
    if not isinstance(name, str) or not _SAFE.fullmatch(name):
        raise InvalidInputError("name in a store", "up to 128 hexadecimal digits", name)
    return name


def _unavailable(path: Path, error: OSError) -> EvidenceUnavailableError:
    return EvidenceUnavailableError(f"{path}: {error.strerror or error}")
