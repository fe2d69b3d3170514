"""The file under :mod:`capstate.ledgers.sqlite`: opening, schema, and SQLite's errors in our words."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from capstate.errors import InvalidInputError, LedgerFormatError, LedgerUnavailableError, MalformedError
from capstate.ledger import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

APPLICATION_ID = 0x63617073  # "caps"; SQLite documentation, PRAGMA application_id
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE entries (
            chain TEXT NOT NULL,
            sequence INTEGER NOT NULL CHECK (typeof(sequence) = 'integer'),
            stored BLOB NOT NULL CHECK (typeof(stored) = 'blob'),
            digest TEXT NOT NULL,
            seal TEXT,
            PRIMARY KEY (chain, sequence)
        ) WITHOUT ROWID""",
        "CREATE TABLE blobs (digest TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE writers (chain TEXT NOT NULL PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID",
        """CREATE TABLE pools (
            root TEXT NOT NULL PRIMARY KEY,
            version INTEGER NOT NULL,
            value BLOB NOT NULL
        ) WITHOUT ROWID""",
    ),
)
"""Version n of the schema is the first n members, in order. Append; never edit."""
_PAUSE = 0.01  # seconds


def checked(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` as an absolute one.

    Raises:
        InvalidInputError: it is no path of a file, e.g. a URL or SQLite's ":memory:".
    """
    text: object = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text or text.startswith((":memory:", "file:", "sqlite:")):
        raise InvalidInputError("path", "the path of a file", text)
    return Path(text).absolute()


def unavailable(path: Path, error: sqlite3.Error | OSError) -> LedgerUnavailableError | MalformedError:
    """Return our error for one that SQLite or the system raised; malformed only if the file is no database at all."""
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        return MalformedError(str(path), "a capstate ledger", "no SQLite database")
    if os.path.isdir(path):  # noqa: PTH112 - pathlib raises for long names
        return LedgerUnavailableError(f"{path}: expected the path of a ledger file, got a folder")
    return LedgerUnavailableError(f"{path}: {getattr(error, 'strerror', None) or error}")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system raise into our errors.

    Raises:
        MalformedError: the file is no SQLite database.
        LedgerUnavailableError: anything else that failed.
    """
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise unavailable(path, error) from error


def identity(path: str) -> tuple[int, int]:
    """Return what makes the file itself, whatever its name (OSError if there is none)."""
    status = os.stat(path)  # noqa: PTH116 - as fast as it gets: this runs before each call of a tool
    return status.st_dev, status.st_ino


def stamp(path: Path) -> int:
    """Return a number that changes with the file, for a reader that SQLite does not tell of changes."""
    with translated(path):
        status = path.stat()
    return hash((status.st_mtime_ns, status.st_ctime_ns, status.st_size))


def open_writer(path: Path, wait: float) -> sqlite3.Connection:
    """Open for writing, create and migrate as needed; SQLite file rules are those of the module docstring.

    Raises:
        LedgerUnavailableError: the file cannot be opened, created or written.
        MalformedError: it is no ledger.
        LedgerFormatError: it is of a newer version.
    """
    with translated(path):
        _create(path)
        db = _connect(path, "mode=rw", wait)
        try:
            with _snapshot(db):  # before anything changes a file that may not be ours
                version = _version(db, path)
            _write_ahead(db, path, wait)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA fullfsync = ON")  # macOS: a plain fsync leaves data in the drive's cache
            if version < len(MIGRATIONS):
                db.execute("BEGIN IMMEDIATE")
                _migrate(db, _version(db, path))
                db.execute("COMMIT")
            check_schema(db, path)
        except BaseException:
            db.close()
            raise
    return db


def open_reader(path: Path, wait: float) -> tuple[sqlite3.Connection, bool]:
    """Open for reading; the flag says that SQLite treats the file as frozen (a folder where it may create nothing).

    Raises:
        LedgerUnavailableError: the file cannot be opened, or it needs its write-ahead log and cannot have it.
        MalformedError: it is no ledger.
        LedgerFormatError: it is of another version than this code knows.
    """
    with translated(path):
        path.stat()
        try:
            return _checked_reader(path, "mode=ro", wait), False
        except sqlite3.OperationalError as error:
            log = path.with_name(path.name + "-wal")
            cannot = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
            if error.sqlite_errorcode & 0xFF not in cannot or (log.exists() and log.stat().st_size):
                raise
        return _checked_reader(path, "mode=ro&immutable=1", wait), True


def _checked_reader(path: Path, mode: str, wait: float) -> sqlite3.Connection:
    db = _connect(path, mode, wait)
    try:
        with _snapshot(db):
            version = _version(db, path)
            if version == len(MIGRATIONS):
                check_schema(db, path)
        if version == len(MIGRATIONS):
            db.execute("PRAGMA query_only = ON")
            return db
    except BaseException:
        db.close()
        raise
    db.close()
    raise LedgerFormatError(f"{path} has an older schema than {len(MIGRATIONS)}; open it once for writing")


def _connect(path: Path, mode: str, wait: float) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path))}?{mode}"
    db = sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)
    db.text_factory = _text
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * MAX_BYTES)  # no row of a hostile file fills the memory
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    return db


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _create(path: Path) -> None:
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # else the file's name may not survive a loss of power, whatever its bytes do
        finally:
            os.close(folder)


def _write_ahead(db: sqlite3.Connection, path: Path, wait: float) -> None:
    """Switch to the write-ahead log. SQLite does not wait for others here, so this does."""
    until = time.monotonic() + wait
    mode = ""
    while not mode:
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_PAUSE)
    if mode != "wal":
        raise LedgerUnavailableError(f"{path}: its file system has no write-ahead log (journal mode {mode})")


@contextmanager
def _snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Read one state of the file, not half of it from before and half from after another process created it."""
    db.execute("BEGIN")
    yield
    db.execute("COMMIT")


def _version(db: sqlite3.Connection, path: Path) -> int:
    """Return the schema version; 0 for an empty file."""
    owner = db.execute("PRAGMA application_id").fetchall()[0][0]
    version: int = db.execute("PRAGMA user_version").fetchall()[0][0]
    if owner != APPLICATION_ID and (owner or version or db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()):
        raise MalformedError(str(path), "a capstate ledger", "another SQLite database")
    if version > len(MIGRATIONS):
        raise LedgerFormatError(f"{path} has schema {version}; this version of capstate knows {len(MIGRATIONS)}")
    return version


def _migrate(db: sqlite3.Connection, version: int) -> None:
    if version == len(MIGRATIONS):
        return
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def check_schema(db: sqlite3.Connection, path: Path) -> None:
    """Refuse added triggers and views: they would run inside our transactions.

    Raises:
        MalformedError: the schema is not exactly ours.
    """
    expected = {statement for statements in MIGRATIONS for statement in statements}
    found = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")}
    if found != expected:
        raise MalformedError(str(path), "the schema of a capstate ledger", "another schema")
