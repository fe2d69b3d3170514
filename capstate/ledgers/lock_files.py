"""The right to write one chain, as a kernel lock (``flock``) on a file of its own.

The kernel gives it back when the process ends, and only then. The lock is on the file, not on its name: whoever
deletes the file lets another process lock a new one, so a lock counts only while its file still bears the name.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from pathlib import Path

from attrs import frozen

_TRIES = 4
_PAUSE = 0.002  # seconds; whoever only asks whether a lock is held, holds it for less


@frozen
class LockFile:
    """A lock that is held.

    Attributes:
        path: the file's name.
        descriptor: what holds the lock, until it is closed.
    """

    path: Path
    descriptor: int

    @property
    def lost(self) -> bool:
        """Whether the file no longer bears the name: deleted, or another one put there."""
        try:
            held, named = os.fstat(self.descriptor), os.stat(self.path)  # noqa: PTH116 - both in one kind of result
        except OSError:
            return True
        return (held.st_dev, held.st_ino) != (named.st_dev, named.st_ino)

    def close(self) -> None:
        """Give the lock back."""
        os.close(self.descriptor)


def take(folder: Path, chain: str) -> LockFile | None:
    """Lock the file of ``chain``, made if it is missing; None if somebody else holds it.

    Raises:
        OSError: the system refuses.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE)
        held = _lock(_path(folder, chain), os.O_CREAT)
        if held is not None and not held.lost:
            return held
        if held is not None:
            held.close()  # deleted between the opening and the lock
    return None


def is_held(folder: Path, chain: str) -> bool:
    """Whether somebody holds the lock of ``chain``. Raises OSError if the system refuses."""
    try:
        held = _lock(_path(folder, chain), 0)
    except FileNotFoundError:
        return False
    if held is not None:
        held.close()
    return held is None


def _path(folder: Path, chain: str) -> Path:
    return folder / (hashlib.sha256(chain.encode()).hexdigest() + ".lock")


def _lock(path: Path, flag: int) -> LockFile | None:
    descriptor = os.open(path, os.O_RDWR | flag | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return LockFile(path, descriptor)
