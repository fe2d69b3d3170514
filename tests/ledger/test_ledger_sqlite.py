"""The SQLite file: what is refused, what survives, what a broken disk or a stranger's file gives."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capstate.errors import (
    CapstateError,
    InvalidInputError,
    LedgerFormatError,
    LedgerUnavailableError,
    MalformedError,
    StaleWriterError,
)
from capstate.ledger import DamageKind, Head, Outcome, PoolChange, Record, blob_key, chain_entries, load, verify
from capstate.ledgers import lock_files
from capstate.ledgers.sqlite import SQLiteLedger
from tests.ledger.rows import KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger's path, with a name that a URI would trip over."""
    return tmp_path / "a ledger?mode=x#%41é.db"


def fill(path: Path, count: int = 20, *, key: bytes | None = None) -> Head:
    """Write a chain ``s`` of ``count`` entries and close."""
    with closing(SQLiteLedger(path)) as ledger, ledger.lock("s") as writer:
        records = [Record("opened", {"log": "l"}), *(Record("x", {"n": n}) for n in range(1, count))]
        head = None
        for record in records:
            rows = chain_entries("s", head, [record], at=1, token=writer.token, key=key)
            head = ledger.append("s", rows, expect=head, writer=writer)
        assert head is not None
        return head


def edit(path: Path, statement: str, *values: Any) -> None:
    """What an agent's shell may do to the file."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def test_files_are_private_and_beside_the_database(path: Path) -> None:
    """The database and its locks are for their owner alone, and any chain id has a lock file in the folder of locks."""
    with closing(SQLiteLedger(path)) as ledger, ledger.lock("../../etc/passwd"):
        names = sorted(entry.name for entry in path.parent.iterdir())
        locks = list(path.with_name(path.name + "-locks").iterdir())

    assert names == [path.name, path.name + "-locks", path.name + "-shm", path.name + "-wal"]
    assert len(locks) == 1
    assert {stat.S_IMODE(file.stat().st_mode) for file in (path, *locks)} == {0o600}


def test_each_commit_is_synced_in_a_write_ahead_log(path: Path) -> None:
    """The writing connection has ``synchronous=FULL`` and WAL: what an append promised survives a loss of power."""
    with closing(SQLiteLedger(path)) as ledger:
        db = ledger._writing
        assert db is not None
        assert [("wal",)] == db.execute("PRAGMA journal_mode").fetchall()
        assert [(2,)] == db.execute("PRAGMA synchronous").fetchall()


def test_another_process_dying_loses_nothing(path: Path) -> None:
    """What append returned for is there after the process was killed right then."""
    code = """
import os, signal, sys
from capstate.ledger import Record, chain_entries
from capstate.ledgers.sqlite import SQLiteLedger
ledger = SQLiteLedger(sys.argv[1]); writer = ledger.lock("s"); head = None
for n in range(7):
    rows = chain_entries("s", head, [Record("x", {})], at=1, token=writer.token)
    head = ledger.append("s", rows, expect=head, writer=writer)
print(head.digest, flush=True); os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", code, str(path)]
    died = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)

    assert -signal.SIGKILL == died.returncode
    with closing(SQLiteLedger(path)) as ledger:
        assert Head(6, died.stdout.strip()) == ledger.head("s")


def test_many_may_create_one_file_at_once(tmp_path: Path) -> None:
    """Whoever opens a file while another creates it gets the same ledger, for writing at once, for reading soon."""

    def open_and_post(path: Path) -> int:
        with closing(SQLiteLedger(path)) as ledger, closing(SQLiteLedger(path, read_only=True)):
            return ledger.post(
                "s", lambda head: chain_entries("s", head, [Record("d", {})], at=1, posted=True)
            ).sequence

    with ThreadPoolExecutor(6) as pool:
        for number in range(10):
            paths = [tmp_path / f"{number}.db"] * 6
            assert list(range(6)) == sorted(pool.map(open_and_post, paths))


def test_a_file_created_between_two_looks_is_a_ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes the ledger right after this one saw that the file has no owner: it is no stranger's."""
    real, others = sqlite3.connect, list[str]()

    class Interrupted(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "PRAGMA user_version" and not others:
                others.append(sql)
                monkeypatch.setattr(sqlite3, "connect", real)
                with suppress(LedgerUnavailableError):  # it may have to wait for us; then it comes too late
                    SQLiteLedger(path, wait=0.1).close()
            return super().execute(sql, *values)

    monkeypatch.setattr(sqlite3, "connect", partial(real, factory=Interrupted))
    with closing(SQLiteLedger(path)) as ledger:
        assert () == ledger.chains()
    assert others


@pytest.mark.parametrize("bad", ["", ":memory:", "file:x", "sqlite:///x", "a\0b", b"x"])
def test_what_is_no_path_is_refused(bad: Any) -> None:
    """A URL, SQLite's special names and bytes are the caller's error; nothing is created."""
    with pytest.raises(InvalidInputError):
        SQLiteLedger(bad)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_no_ledger_is_malformed_and_left_alone(path: Path, *, read_only: bool) -> None:
    """Text, random bytes and a stranger's database: not one byte of them changes."""
    edit(path, "CREATE TABLE other (x)")
    strangers = [b"#!/bin/sh\n" * 100, os.urandom(8192), path.read_bytes()]
    edit(path, "PRAGMA user_version = 1")
    strangers.append(path.read_bytes())
    edit(path, "PRAGMA application_id = 7")
    strangers.append(path.read_bytes())

    for content in strangers:
        path.write_bytes(content)
        with pytest.raises(MalformedError):
            SQLiteLedger(path, read_only=read_only)
        assert content == path.read_bytes()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_schema_is_its_own_error(path: Path, *, read_only: bool) -> None:
    """A later version's file is refused, not misread."""
    fill(path)
    edit(path, "PRAGMA user_version = 99")

    with pytest.raises(LedgerFormatError):
        SQLiteLedger(path, read_only=read_only)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
        "CREATE VIEW v AS SELECT 1",
        "ALTER TABLE entries RENAME TO hidden",
        "CREATE INDEX i ON entries (digest)",
    ],
)
def test_a_changed_schema_is_refused(path: Path, statement: str) -> None:
    """Triggers and views would run inside our transactions, so a file with other than our tables is no ledger."""
    fill(path)
    edit(path, statement)

    with pytest.raises(MalformedError):
        SQLiteLedger(path)


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    """A missing folder, a folder, a missing file read-only, a dangling link: unavailable, and nothing appears."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "x")
    before = sorted(tmp_path.rglob("*"))

    for bad, read_only in (("no/a.db", False), ("", False), ("a.db", True), ("link", False)):
        with pytest.raises(LedgerUnavailableError):
            SQLiteLedger(tmp_path / bad, read_only=read_only)
    assert before == sorted(tmp_path.rglob("*"))


def test_read_only_reads_and_follows_and_writes_nothing(path: Path) -> None:
    """An auditor's handle sees a live ledger grow, and refuses whatever would write."""
    head = fill(path)
    with closing(SQLiteLedger(path, read_only=True)) as auditor, closing(SQLiteLedger(path)) as owner:
        assert Outcome.CONSISTENT_WITH_ANCHOR == verify(auditor, "s", head=head).outcome
        seen = auditor.revision()
        with owner.lock("s") as writer:
            assert seen != auditor.revision()
            for act in (
                lambda: auditor.lock("s"),
                lambda: auditor.post("s", lambda head: chain_entries("s", head, [Record("d", {})], at=1, posted=True)),
                lambda: auditor.repair("s", writer=writer),
            ):
                with pytest.raises(LedgerUnavailableError, match="read-only"):
                    act()
            rows = chain_entries("s", head, [Record("x", {})], at=1, token=writer.token)
            new = owner.append("s", rows, expect=head, writer=writer)
        assert new == auditor.head("s")


AS_NOBODY = """
import os, sys
from capstate.errors import *
from capstate.ledger import *
from capstate.ledgers.sqlite import SQLiteLedger
if os.getuid() == 0:  # root may write everywhere
    os.setgid(65534); os.setuid(65534)
path = sys.argv[1]
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that any user may reach, unlike pytest's own."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def as_nobody(folder: Path, code: str, path: Path) -> str:
    """Run code as somebody who may read ``folder`` and nothing more."""
    for file in folder.iterdir():
        file.chmod(0o555 if file.is_dir() else 0o444)
    folder.chmod(0o555)
    try:
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY + code, str(path)], capture_output=True, text=True, check=False, cwd=HERE
        )
    finally:
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_read_only_disk_is_unavailable_for_writers_and_open_to_auditors(folder: Path) -> None:
    """In a folder where nothing may be written, an owner gets our error and an auditor gets the verdict."""
    path = folder / "a.db"
    fill(path)
    code = """
try:
    SQLiteLedger(path).lock("s")
except LedgerUnavailableError:
    print("unavailable")
ledger = SQLiteLedger(path, read_only=True)
print(verify(ledger, "s").outcome, ledger.revision() == ledger.revision())
"""

    assert "unavailable\nintact-unanchored True" == as_nobody(folder, code, path)


def test_a_read_only_disk_with_an_unfinished_log_is_unavailable(path: Path, folder: Path) -> None:
    """If entries wait in a write-ahead log that cannot be used, an auditor is told, and not shown an older state."""
    with closing(SQLiteLedger(path)) as ledger:
        ledger.post("s", lambda head: chain_entries("s", head, [Record("d", {})], at=1, posted=True))
        copies = {name: path.with_name(path.name + name).read_bytes() for name in ("", "-wal")}
    for name, content in copies.items():
        (folder / f"a.db{name}").write_bytes(content)
    code = """
try:
    print(SQLiteLedger(path, read_only=True).head("s"))
except LedgerUnavailableError:
    print("unavailable")
"""

    assert "unavailable" == as_nobody(folder, code, folder / "a.db")


def test_a_full_disk_is_unavailable_and_nothing_is_half_written(path: Path) -> None:
    """When the file may not grow, appends and posts raise ours; afterwards rows, blobs and pool are as before."""
    head = fill(path)
    code = f"""
import resource, signal, sys
from capstate.errors import LedgerUnavailableError
from capstate.ledger import *
from capstate.ledgers.sqlite import SQLiteLedger
ledger = SQLiteLedger(sys.argv[1]); writer = ledger.lock("s"); head = ledger.head("s")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({200_000}, resource.RLIM_INFINITY))
value = b"x" * 1_000_000
rows = chain_entries("s", head, [Record("x", {{}}), Record("y", {{}})], at=1, token=writer.token)
try:
    more = {{"blobs": {{blob_key(value): value}}, "pool": PoolChange("s", 0, b"1")}}
    ledger.append("s", rows, expect=head, writer=writer, **more)
except LedgerUnavailableError as error:
    print("unavailable", ledger.head("s") == head, ledger.blob(blob_key(value)), ledger.pool("s"))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(ledger.append("s", rows, expect=head, writer=writer).sequence)
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, cwd=HERE)

    assert "unavailable True None None\n21\n" == done.stdout
    with closing(SQLiteLedger(path)) as ledger:
        assert Outcome.CONSISTENT_WITH_ANCHOR == verify(ledger, "s", head=head).outcome


def test_a_database_that_another_keeps_locked_is_unavailable_after_the_wait(path: Path) -> None:
    """Somebody else's transaction that does not end: our error after ``wait`` seconds; reading still works."""
    head = fill(path)
    with closing(SQLiteLedger(path, wait=0.2)) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with pytest.raises(LedgerUnavailableError, match="locked"):
            ledger.lock("s")
        assert 0.1 < time.monotonic() - started < 5
        assert head == ledger.head("s")
        other.execute("ROLLBACK")
        ledger.lock("s")


@pytest.mark.parametrize("put_back", [False, True])
def test_a_writer_whose_lock_file_is_gone_is_none_any_more(path: Path, put_back: bool) -> None:
    """Another process can have the lock then, also while the row of the token is set back; two never write."""
    head = fill(path)
    with closing(SQLiteLedger(path)) as ledger, closing(SQLiteLedger(path)) as other:
        writer = ledger.lock("s")
        assert other.owned("s")
        (file,) = Path(f"{path}-locks").iterdir()
        file.unlink()
        if put_back:
            file.touch()
        assert not other.owned("s")
        newer = other.lock("s")
        edit(path, "UPDATE writers SET token = ?", writer.token)
        rows = chain_entries("s", head, [Record("x", {})], at=1, token=writer.token)
        with pytest.raises(StaleWriterError) as stale:
            ledger.append("s", rows, expect=head, writer=writer)

        assert (stale.value.owner, writer.closed) == (False, True)
        with pytest.raises(StaleWriterError):
            ledger.repair("s", writer=writer)
        writer.close()
        assert other.owned("s")
        newer.close()


def test_whoever_asks_for_a_moment_does_not_refuse_a_writer(path: Path) -> None:
    """Asking whether somebody owns a chain locks it for an instant; a writer tries again."""
    folder = Path(f"{path}-locks")
    with closing(SQLiteLedger(path)) as ledger:
        ledger.lock("s").close()
        asking = lock_files.take(folder, "s")
        assert asking is not None
        timer = threading.Timer(0.003, asking.close)
        timer.start()
        ledger.lock("s").close()
        timer.join()


def test_a_trigger_that_is_added_while_it_is_open_swallows_nothing(path: Path) -> None:
    """Every change looks at the schema: a deny that a trigger would drop is an error, and reads go on."""
    head = fill(path)
    with closing(SQLiteLedger(path)) as ledger, ledger.lock("s") as writer:
        edit(path, "CREATE TRIGGER drops BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END")
        rows = chain_entries("s", head, [Record("x", {})], at=1, token=writer.token)
        for act in (
            lambda: ledger.append("s", rows, expect=head, writer=writer),
            lambda: ledger.post("s", lambda now: chain_entries("s", now, [Record("d", {})], at=1, posted=True)),
            lambda: ledger.lock("t"),
            lambda: ledger.repair("s", writer=writer),
        ):
            with pytest.raises(MalformedError, match="another schema"):
                act()
        assert head == ledger.head("s")
        edit(path, "DROP TRIGGER drops")
        assert ledger.append("s", rows, expect=head, writer=writer).sequence == head.sequence + 1


def test_a_failed_append_leaves_nothing(path: Path) -> None:
    """Whichever statement of an append fails, rows, blobs and pool are as before, and the next append works."""
    head = fill(path)
    with closing(SQLiteLedger(path)) as ledger, ledger.lock("s") as writer:
        rows = chain_entries("s", head, [Record("x", {}), Record("y", {})], at=1, token=writer.token)
        value = b"value"
        db = ledger._writing
        assert db is not None
        before = (head, None, None)
        for table in ("entries", "blobs", "pools"):

            def deny(action: int, name: str | None, *_: Any, table: str = table) -> int:
                return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_INSERT and name == table else sqlite3.SQLITE_OK

            db.set_authorizer(deny)
            with pytest.raises(LedgerUnavailableError):
                ledger.append(
                    "s", rows, expect=head, writer=writer, blobs={blob_key(value): value}, pool=PoolChange("s", 0, b"1")
                )
            db.set_authorizer(None)
            assert before == (ledger.head("s"), ledger.blob(blob_key(value)), ledger.pool("s"))
        assert 21 == ledger.append("s", rows, expect=head, writer=writer).sequence


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_removed_or_replaced_under_an_owner_is_noticed(path: Path, how: str) -> None:
    """The guard's read, and every other use, raises instead of going on in a file that no other process sees."""
    head = fill(path)
    with closing(SQLiteLedger(path)) as ledger, ledger.lock("s") as writer:
        path.rename(path.with_name("moved"))
        path.with_name(path.name + "-locks").rename(path.with_name("moved-locks"))
        if how == "replaced":
            fill(path)
        rows = chain_entries("s", head, [Record("x", {})], at=1, token=writer.token)
        for act in (
            ledger.revision, ledger.chains, lambda: ledger.head("s"), lambda: ledger.lock("t"),
            lambda: ledger.append("s", rows, expect=head, writer=writer),
        ):  # fmt: skip
            with pytest.raises(LedgerUnavailableError):
                act()


def test_a_torn_last_row_is_cut_and_reported(path: Path) -> None:
    """Half a row at the end: load says tail, repair cuts exactly it, and the chain goes on from the entry before."""
    fill(path)
    edit(path, "UPDATE entries SET stored = substr(stored, 1, 40) WHERE sequence = 19")
    with closing(SQLiteLedger(path)) as ledger, ledger.lock("s") as writer:
        assert [DamageKind.TAIL] == [damage.kind for damage in load(ledger, "s").damage]
        cut = ledger.repair("s", writer=writer)
        assert (19, 40) == (cut and cut.sequence, cut and len(cut.stored))
        head = ledger.head("s")
        assert head is not None
        rows = chain_entries("s", head, [Record("x", {})], at=1, token=writer.token)
        assert 19 == ledger.append("s", rows, expect=head, writer=writer).sequence
        assert () == load(ledger, "s").damage


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET stored = CAST(replace(CAST(stored AS TEXT), ':7', ':8') AS BLOB) WHERE sequence = 7",
        "UPDATE entries SET digest = 'é' WHERE sequence = 7",
        "UPDATE entries SET digest = CAST(x'ff' AS TEXT) WHERE sequence = 7",
        "UPDATE entries SET chain = 't' WHERE sequence = 7",
        "UPDATE entries SET sequence = 99 WHERE sequence = 7",
        "UPDATE entries SET sequence = -1 WHERE sequence = 19",
        "UPDATE entries SET sequence = 'last' WHERE sequence = 19",
        "UPDATE entries SET sequence = 7.5 WHERE sequence = 7",
        "UPDATE entries SET stored = 'text' WHERE sequence = 7",
        "UPDATE entries SET stored = 7 WHERE sequence = 7",
        "UPDATE entries SET seal = CAST(x'ff' AS TEXT) WHERE sequence = 7",
        "UPDATE entries SET seal = 7 WHERE sequence = 7",
        "UPDATE entries SET seal = NULL WHERE sequence = 7",
        "DELETE FROM entries WHERE sequence = 7",
        "DELETE FROM entries WHERE sequence < 7",
        "INSERT INTO entries SELECT 't', sequence, stored, digest, seal FROM entries WHERE chain = 's'",
    ],
)
def test_what_a_shell_does_to_the_rows_is_found(path: Path, statement: str) -> None:
    """Every edit, of whatever type, is broken for who has the key; nothing but our errors comes out of reading."""
    fill(path, key=KEY)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute(statement)

    with closing(SQLiteLedger(path)) as ledger:
        assert Outcome.BROKEN in {verify(ledger, chain, KEY).outcome for chain in ledger.chains()}
        ledger.head("s")


def test_a_cut_tail_and_an_old_copy_take_a_head_kept_elsewhere(path: Path) -> None:
    """Deleting the last rows, or putting back an older file, is rolled back against the head, and invisible without."""
    head = fill(path, key=KEY)
    edit(path, "DELETE FROM entries WHERE sequence > 15")

    with closing(SQLiteLedger(path)) as ledger:
        assert Outcome.INTACT_UNANCHORED == verify(ledger, "s", KEY).outcome
        assert Outcome.ROLLED_BACK == verify(ledger, "s", KEY, head=head).outcome


def test_a_flipped_byte_of_the_file_is_found_or_changes_no_row(path: Path) -> None:
    """Bytes all over the file: our error, a verdict that is not intact, or rows that are exactly what was written."""
    head = fill(path)
    with closing(SQLiteLedger(path)) as ledger:
        good = list(ledger.read("s"))
    content = path.read_bytes()
    counts = {"error": 0, "found": 0, "same": 0}
    copy = path.with_name("copy.db")
    for at in range(0, len(content), 29):
        copy.write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])
        try:
            with closing(SQLiteLedger(copy, wait=0.1)) as ledger:
                outcome = verify(ledger, "s", head=head).outcome
                rows = list(ledger.read("s"))
        except CapstateError:
            counts["error"] += 1
        else:
            counts["same" if rows == good else "found"] += 1
            assert (outcome is Outcome.CONSISTENT_WITH_ANCHOR) == (rows == good)
    assert min(counts.values()) > 0, counts


def test_no_false_alarm_on_honest_files(tmp_path: Path) -> None:
    """Forty files written with a key, by two owners and a poster: consistent, nothing unsealed."""
    for number in range(40):
        head = fill(tmp_path / f"{number}.db", count=1 + number % 7, key=KEY)
        with closing(SQLiteLedger(tmp_path / f"{number}.db")) as ledger, ledger.lock("s") as writer:
            assert writer.token == 2
            ledger.post("s", lambda head: chain_entries("s", head, [Record("d", {})], at=1, key=KEY, posted=True))
            verdict = verify(ledger, "s", KEY, head=head, log="l")
            assert (Outcome.CONSISTENT_WITH_ANCHOR, ()) == (verdict.outcome, verdict.unsealed)


def test_a_spoilt_blob_is_mended_by_putting_it_again(path: Path) -> None:
    """Its key is the digest of its bytes, so an append that carries it restores it."""
    head = fill(path)
    with closing(SQLiteLedger(path)) as ledger, ledger.lock("s") as writer:
        for _ in range(2):
            rows = chain_entries("s", head, [Record("x", {})], at=1, token=writer.token)
            head = ledger.append("s", rows, expect=head, writer=writer, blobs={blob_key(b"v"): b"v"})
            assert b"v" == ledger.blob(blob_key(b"v"))
            edit(path, "UPDATE blobs SET value = x'00'")


def test_a_deleted_lock_file_gives_no_second_writer(path: Path) -> None:
    """Who deletes lock files can have a second owner appointed, but then the first one writes nothing any more."""
    head = fill(path)
    with closing(SQLiteLedger(path)) as one, closing(SQLiteLedger(path)) as two:
        old = one.lock("s")
        for file in path.with_name(path.name + "-locks").iterdir():
            file.unlink()
        new = two.lock("s")
        for ledger, writer in ((two, new), (one, old)):
            rows = chain_entries("s", head, [Record("x", {})], at=1, token=writer.token)
            if writer is old:
                with pytest.raises(StaleWriterError):
                    ledger.append("s", rows, expect=head, writer=writer)
            else:
                head = ledger.append("s", rows, expect=head, writer=writer)


def test_what_an_append_costs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed, not judged: the time of an append (one sync each) and of the guard's look at the revision."""
    with closing(SQLiteLedger(path)) as ledger, ledger.lock("s") as writer:
        head, started = None, time.perf_counter()
        for _ in range(200):
            rows = chain_entries("s", head, [Record("x", {"text": "t" * 400})], at=1, token=writer.token, key=KEY)
            head = ledger.append("s", rows, expect=head, writer=writer)
        append = (time.perf_counter() - started) / 200
        started = time.perf_counter()
        for _ in range(5000):
            ledger.revision()
        revision = (time.perf_counter() - started) / 5000
    with capsys.disabled():
        print(f"\nSQLite ledger: append {append * 1e6:.0f} us, revision {revision * 1e6:.1f} us")  # noqa: T201
    assert head is not None


def test_a_folder_is_called_a_folder(tmp_path: Path) -> None:
    """A runtime on a folder says what is wrong with the path, and writes nothing into it."""
    from capstate.runtime import Runtime

    with pytest.raises(LedgerUnavailableError, match="path of a ledger file, got a folder"):
        Runtime(tmp_path, catalog=list)
    assert list(tmp_path.iterdir()) == []
