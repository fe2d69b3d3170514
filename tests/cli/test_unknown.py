"""Nothing is green of which nothing is known, and nothing is taken that would have no effect."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from capstate import Group, Runtime, Tool, allow
from capstate.cli import run
from tests.agents.files import Story
from tests.audit.recordings import FOLDERS, ROOT

LOSES = ROOT / "s05a-reopen-start-policy-narrow"
BODY = {
    "model": "claude-x",
    "system": "s",
    "messages": [{"role": "user", "content": "x"}],
    "tools": [{"name": "a", "input_schema": {}}],
}

Here = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    """The command in this process: status, stdout, stderr."""

    def ran(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return ran


# ---- an audit


@pytest.mark.parametrize("as_json", [False, True], ids=["table", "json"])
def test_an_audit_of_nothing_is_one_error(here: Here, tmp_path: Path, as_json: bool) -> None:
    """Status 2, one line with the path and what was expected, and no zeros, also beside a path that holds something."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "one.json").write_text('{"a":1}')
    (tmp_path / "bad.jsonl").write_bytes(b"\xff\xfe\n")
    for name in ("empty", "one.json", "bad.jsonl"):
        for arguments in ([tmp_path / name], [LOSES, tmp_path / name], [f"requests:{tmp_path / name}"]):
            status, out, err = here("audit", *arguments, *(["--json"] if as_json else []))
            assert (status, out, err.count("\n")) == (2, "", 1)
            assert str(tmp_path / name) in err
            assert "expected" in err


def test_a_file_that_holds_no_observations_hides_no_run(here: Here) -> None:
    """Given for what ran, a file of something else is an error: it must not stand for nothing having run."""
    for wrong in (LOSES / "session.jsonl", LOSES, LOSES / "policy.toml"):
        status, out, err = here("audit", LOSES / "session.jsonl", "--executed", wrong)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert str(wrong) in err


def test_an_audit_that_allows_no_verdict_is_not_green(here: Here, tmp_path: Path) -> None:
    """A session without a record of its set, bodies without a policy: the lines are printed, the status is 2."""
    path = tmp_path / "bodies.jsonl"
    path.write_text(json.dumps(BODY) + "\n")
    for argument in (f"requests:{path}", LOSES / "session.jsonl"):
        status, out, err = here("audit", argument)
        assert (status, err.count("\n")) == (2, 1)
        assert "beyond authority: unknown" in out
        assert "0 beyond" not in out
        assert "0 with a lost tool" not in out
        status, out, err = here("audit", argument, "--json")
        assert json.loads(out.splitlines()[-1])["summary"]["grade"] == "unknown"
        assert (status, err.count("\n")) == (2, 1)


def test_what_is_unknown_in_part_is_said_and_changes_no_status(here: Here, tmp_path: Path) -> None:
    """With a list of who may, bodies without a session are good or not; that losses are unknown is in words."""
    path = tmp_path / "bodies.jsonl"
    path.write_text(json.dumps(BODY) + "\n")
    for rule, expected in (('allow = ["a"]', 0), ('deny = ["a"]', 1)):
        (tmp_path / "policy.toml").write_text(rule)
        status, out, err = here("audit", f"requests:{path}", "--policy", tmp_path / "policy.toml")
        assert (status, err) == (expected, "")
        assert "with a lost tool: unknown" in out
        assert f"{expected} beyond authority" in out
        assert "what ran: unknown" in out


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_a_recording_is_good_or_has_findings(here: Here, folder: Path) -> None:
    """Each recording with its policy ends with 1 exactly if a finding is printed."""
    status, out, err = here("audit", folder, "--policy", folder / "policy.toml", "--json")

    assert (status, err) == (int('"finding"' in out), "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "--policy", "x.toml"],
        ["audit", "--executed", "x.jsonl"],
        ["audit", ""],
        ["audit", "requests:"],
        ["audit", LOSES, "--policy", ""],
        ["audit", LOSES, "--requests", ""],
        ["audit", LOSES, "--executed", ""],
        ["project", "", "--policy", LOSES / "policy.toml"],
        ["project", LOSES / "session.jsonl", "--policy", ""],
        ["matrix", "--record", ""],
        ["matrix", "--places", "--json"],
        ["explain", "", "s", "git/log"],
        ["verify", ""],
        ["verify", "x.db", "--key-file", ""],
    ],
    ids=lambda a: " ".join(Path(x).name or "nothing" for x in a),
)
def test_what_would_have_no_effect_is_refused(
    here: Here, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 2, one line, nothing printed and nothing of the current folder read."""
    (tmp_path / "bodies.json").write_text(json.dumps(BODY))
    monkeypatch.chdir(tmp_path)
    status, out, err = here(*arguments)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert [p.name for p in tmp_path.iterdir()] == ["bodies.json"]


@pytest.mark.slow
def test_each_failing_cell_of_the_matrix_shows_a_place(here: Here) -> None:
    """The table alone names a turn for each count, and says how to see the others; ``--places`` names every turn."""
    status, first, _ = here("matrix", "--scenario", "8a", "--provider", "anthropic")
    _, every, _ = here("matrix", "--scenario", "8a", "--provider", "anthropic", "--places")
    _, found, _ = here("matrix", "--scenario", "8a", "--provider", "anthropic", "--json")
    cells = json.loads(found)["rows"][0]["designs"]

    assert status == 0
    assert "--places" in first
    for design, cell in cells.items():
        for what in ("lost", "widened", "unexplained"):
            lines = [line for line in every.splitlines() if line.startswith(f"   {design}: ") and f": {what} " in line]
            assert len(lines) == cell[what], (design, what)
            assert [line for line in first.splitlines() if line in lines] == lines[:1]


# ---- ledgers


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A session with a tool of a made wire name, one of a given one, and two of one bare name."""
    path = tmp_path / "agent.db"
    groups = [
        Group("git", [Tool("push"), Tool("a.b"), Tool("log", effect="read", wire_name="history")]),
        Group("web", [Tool("push")]),
    ]
    runtime = Runtime(path, catalog=lambda: groups, grants={"config": lambda _: [allow("git/*")]})
    with runtime, runtime.session("s") as session:
        session.load("git")
        session.reproject("open", history=[])
    return path


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("git/push", "git/push"),
        ("git__push", "git/push"),
        ("web__push", "web/push"),
        ("history", "git/log"),
        ("log", "git/log"),
        ("a.b", "git/a.b"),
    ],
)
def test_a_tool_is_named_as_the_model_sees_it(here: Here, ledger: Path, name: str, tool: str) -> None:
    """Qualified, by its wire name (made or given, callable or not), or by a name that only one group has."""
    status, out, err = here("explain", ledger, "s", name, "--json")

    assert (status, err) == (0, "")
    assert json.loads(out)["tool"] == tool


def test_an_ambiguous_name_lists_what_it_may_mean(here: Here, ledger: Path) -> None:
    """Two groups have it: both are named; what nobody has says how tools are named."""
    assert "git/push, web/push" in here("explain", ledger, "s", "push")[2]
    assert "wire name" in here("explain", ledger, "s", "nothing")[2]


def _copy_without_log(path: Path) -> None:
    source = path.with_name("open.db")
    runtime = Runtime(source, catalog=list)
    with runtime, runtime.session("s"):
        shutil.copy(source, path)


def _newer(path: Path) -> None:
    Runtime(path, catalog=list).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


def _other(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (a)")
    db.close()


def _blank(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (a)")
        db.execute("DROP TABLE t")
    db.close()


NO_LEDGER: dict[str, tuple[Callable[[Path], object], str]] = {
    "copied without its log": (_copy_without_log, "agent.db-wal is not beside it"),
    "empty": (Path.touch, "an empty file"),
    "a folder": (Path.mkdir, "a folder"),
    "newer": (_newer, "schema 99"),
    "no SQLite": (lambda path: path.write_text("hello"), "no SQLite database"),
    "another database": (_other, "another SQLite database"),
    "a blank database": (_blank, "an empty SQLite database"),
    "cut off": (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(20)), "agent.db"),
    "missing": (Path.exists, "no such ledger"),
}


@pytest.mark.parametrize(("make", "told"), NO_LEDGER.values(), ids=list(NO_LEDGER))
def test_what_is_no_ledger_is_called_what_it_is(
    here: Here, tmp_path: Path, make: Callable[[Path], object], told: str
) -> None:
    """Explain, diff and verify end with 3 and one line; none of them is called older than it is."""
    path = tmp_path / "agent.db"
    make(path)
    for arguments in (["verify", path], ["explain", path, "s", "git/log"], ["diff", path, "s", "0", "1"]):
        status, out, err = here(*arguments)
        assert (status, out, err.count("\n")) == (3, "", 1)
        assert told in err
        assert "older schema" not in err


def test_a_ledger_without_a_session_is_not_verified(here: Here, tmp_path: Path) -> None:
    """There is nothing to verify, and that is no good outcome."""
    Runtime(tmp_path / "agent.db", catalog=list).close()
    status, out, err = here("verify", tmp_path / "agent.db")

    assert (status, out) == (2, "")
    assert "session to verify" in err


def test_a_place_in_the_table_names_the_folder(here: Here, tmp_path: Path) -> None:
    """Two recordings in one run: the place of a finding begins with its folder."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        story = Story({"type": "session", "version": 3, "id": name})
        story.call("read", f"c-{name}")
        story.user()
        story.answer()
        story.write(tmp_path / name)
    out = here("audit", tmp_path)[1]

    assert "one/s.jsonl:2" in out
    assert "two/s.jsonl:2" in out
