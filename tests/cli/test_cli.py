"""The real command in a process of its own: answers, exit statuses, one line for each error."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest

import capstate
from capstate import Group, Runtime, Tool, allow
from capstate.cli import capstate as verbs
from capstate.cli import run
from capstate.trace import Message, Role

ROOT = Path(__file__).parents[2]
PI = ROOT / "experiments" / "recorded" / "pi"
HOME = Path(capstate.__file__).parents[1]
LOSES = PI / "s05a-reopen-start-policy-narrow"
HOLDS = PI / "s01-load-point-retained"


def command(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR", "COLUMNS")}
    env = {**clean, "PYTHONPATH": str(HOME), "PYTHONUTF8": "1", **environment}
    line = [sys.executable, "-m", "capstate.cli", *map(str, arguments)]
    return subprocess.run(
        line, capture_output=True, text=True, env=env, timeout=300, check=False, stdin=subprocess.DEVNULL
    )


def answer(*arguments: str | Path, status: int = 0) -> Any:
    done = command(*arguments, "--json")
    assert (done.returncode, done.stderr) == (status, "")
    return json.loads(done.stdout)


Here = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    """The same command in this process: status, stdout, stderr."""

    def ran(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return ran


@pytest.fixture
def refused(here: Here) -> Callable[..., str]:
    """A command that must fail with one line on stderr, nothing on stdout; gives the line."""

    def ran(*arguments: str | Path, status: int = 2) -> str:
        got, out, err = here(*arguments)
        assert (got, out) == (status, "")
        assert err.count("\n") == 1
        assert err.startswith("capstate: ")
        return err

    return ran


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of three epochs: git loaded, then compacted, then push revoked."""
    path = tmp_path_factory.mktemp("ledger") / "agent.db"
    allowed = ["git/log", "git/push"]
    runtime = Runtime(
        path,
        catalog=lambda: [Group("git", [Tool("log", effect="read"), Tool("push")])],
        grants={"config": lambda _: [allow(on) for on in allowed]},
    )
    with runtime, runtime.session("s-42") as session:
        session.load("git")
        session.reproject("open", history=[])
        session.reproject("compaction", history=[Message("m", Role.SUMMARY, "A secret prompt text")])
        allowed.remove("git/push")
        session.reproject("turn")
    return path


# ---- help and version


def each_verb(group: click.Group = verbs, before: str = "") -> list[str]:
    """Every verb, and those below it."""
    found = []
    for name, one in group.commands.items():
        found += each_verb(one, f"{name} ") if isinstance(one, click.Group) else [f"{before}{name}"]
    return found


@pytest.mark.parametrize("verb", each_verb())
def test_each_verb_helps_with_an_example(verb: str) -> None:
    """``--help`` says what the verb does, every option, and one line to try."""
    done = command(*verb.split(), "--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert f"Example:\n    capstate {verb}" in done.stdout
    assert "--json" in done.stdout


def test_version_and_no_verb() -> None:
    """``--version`` is one line; without a verb the help is printed and the status is that of a usage error."""
    assert command("--version").stdout.startswith("capstate ")
    assert command().returncode == 2


def test_help_loads_neither_database_nor_tables() -> None:
    """Each verb imports what it needs: help brings in neither sqlite3 nor rich."""
    code = (
        "import sys; before = set(sys.modules); from capstate.cli import run; run(['--help'])\n"
        "print(*{'sqlite3', 'rich'} & (set(sys.modules) - before))"  # coverage may have loaded one
    )
    env = {**os.environ, "PYTHONPATH": str(HOME)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)

    assert done.stdout.splitlines()[-1] == ""


# ---- demo, rule, audit, project


def test_demo_needs_no_clone_and_holds(tmp_path: Path) -> None:
    """From an empty folder, with an empty home, it prints both stories and ends with 0; as JSON too."""
    done = command("demo", HOME=str(tmp_path))
    found = answer("demo")

    assert (done.returncode, done.stderr) == (0, "")
    assert "The reopen that loses" in done.stdout
    assert [story["title"] for story in found["stories"]] == ["The reopen that loses", "The revocation that comes back"]
    assert list(tmp_path.iterdir()) == []


def test_colour_is_for_terminals_that_want_it() -> None:
    """A pipe gets none; forced colour gives some, and NO_COLOR takes it away again."""
    assert "\x1b[" not in command("demo").stdout
    assert "\x1b[3" in command("demo", FORCE_COLOR="1", TERM="xterm-256color").stdout
    assert "\x1b[3" not in command("demo", FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1").stdout


def test_a_pipe_that_closes_is_no_error() -> None:
    """When the reader goes after one line, the command ends with 0 and says nothing."""
    env = {**os.environ, "PYTHONPATH": str(HOME), "PYTHONUTF8": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "capstate.cli", "audit", str(LOSES), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        status = process.wait(timeout=60)

    assert (said, status) == (b"", 0)


def test_rule_explains_one_and_lists_all() -> None:
    """One id gives title and text, none gives all ids."""
    assert answer("rule", "CS102")["title"] == "Gone after reopen"
    assert {"CS101", "CS601"} <= {rule["id"] for rule in answer("rule")["rules"]}
    assert "Gone after reopen" in command("rule", "CS102").stdout


def test_audit_ends_with_one_if_it_found_something() -> None:
    """A lossy recording gives 1 and its findings; a good one 0 and its summary; the lines are those of the library."""
    bad = command("audit", LOSES, "--policy", LOSES / "policy.toml", "--json")
    lines = [json.loads(line) for line in bad.stdout.splitlines()]
    good = command("audit", HOLDS, "--policy", HOLDS / "policy.toml", "--json")

    assert (bad.returncode, good.returncode) == (1, 0)
    assert [line["finding"] for line in lines if "finding" in line] == ["CS102"]
    assert lines[-1]["summary"]["lost_turns"] == 2
    assert [line["lost"] for line in lines if line.get("kind") == "turn" and line["turn"] == 9] == [
        ["git_blame", "git_log", "web_fetch", "web_search"]
    ]
    assert "CS102" in command("audit", LOSES, "--policy", LOSES / "policy.toml").stdout


def test_audit_prints_no_text_of_the_conversation() -> None:
    """Neither prompts nor replies nor arguments of the recording stand in either form of the output."""
    record = json.loads((LOSES / "requests.jsonl").read_text(encoding="utf-8").splitlines()[0])
    prompt = record["body"]["messages"][0]["content"][0]["text"]
    printed = command("audit", LOSES).stdout + command("audit", LOSES, "--json").stdout

    assert len(prompt) > 100
    assert prompt[:40] not in printed


def test_audit_without_arguments_reads_nothing(tmp_path: Path) -> None:
    """It lists where Pi keeps sessions, says that none was read, and reads only what is named."""
    folder = tmp_path / ".pi" / "agent" / "sessions" / "project"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text("this is no session and would be damage if it were read\n")
    done = command("audit", HOME=str(tmp_path))
    listed = json.loads(command("audit", "--json", HOME=str(tmp_path)).stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert "1 Pi session file, none of them read" in done.stdout
    assert listed == {"found": [str(folder / "a.jsonl")]}
    assert "No Pi sessions" in command("audit", HOME=str(tmp_path / "nobody")).stdout


def test_project_says_what_belongs_on_the_wire() -> None:
    """Immediate, deferred and withheld tools of one leaf, from the transcript's loads."""
    found = answer("project", LOSES / "session.jsonl", "--policy", LOSES / "policy.toml")
    plain = command("project", LOSES / "session.jsonl", "--policy", LOSES / "policy.toml")

    assert set(found) >= {"immediate", "deferred", "withheld", "loaded", "loads_from", "damage"}
    assert {"git_log", "web_fetch"} <= {*found["immediate"], *found["deferred"]}
    assert "git_log" in plain.stdout


# ---- matrix


@pytest.mark.slow
def test_matrix_prints_a_row_and_writes_the_record(tmp_path: Path) -> None:
    """``8`` means 8a to 8c; the JSON has the promised form; B+C is 0, so the status is 0; the manifest comes first."""
    record = tmp_path / "run.jsonl"
    found = answer("matrix", "--scenario", "8", "--provider", "chat", "--record", record)
    lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]

    assert [row["scenario"] for row in found["rows"]] == ["8a", "8b", "8c"]
    for row in found["rows"]:
        assert {"lost", "widened", "ran"} <= row["recorded"].keys()
        assert list(row["designs"]) == ["A", "B-blind", "B", "C", "B+C"]
        assert all({"lost", "widened", "unexplained"} <= cell.keys() for cell in row["designs"].values())
        own = row["designs"]["B+C"]
        assert own["lost"] == own["widened"] == own["unexplained"] == 0
        assert row["designs"]["B-blind"]["widened"] > 0
    assert list(lines[0]) == ["manifest"]
    assert lines[0]["manifest"]["scenarios"] == ["8a", "8b", "8c"]


@pytest.mark.slow
def test_matrix_shows_the_turn_of_each_count() -> None:
    """The table fits eighty columns; ``--places`` names turn, tools and profile."""
    done = command("matrix", "--scenario", "8a", "--provider", "anthropic", "--places")

    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "A: turn 4: widened web_search (ran: web_search) [anthropic]" in done.stdout
    assert "B+C: 0 in every cell" in done.stdout


# ---- ledgers


def test_explain_says_why_and_since_when(ledger: Path) -> None:
    """A tool was callable in epoch 1 and is not in 2: the reason, the decider, and the epochs where that changed."""
    before = answer("explain", ledger, "s-42", "git/push", "--epoch", "1")
    now = answer("explain", ledger, "s-42", "push")

    assert (before["callable"], before["effect"], before["cause"]) == (True, "allow", "compaction")
    assert (now["callable"], now["reason"], now["decided_by"]) == (False, "not_authorised", "pool")
    assert [(line["epoch"], line["callable"]) for line in now["history"]] == [(0, True), (2, False)]
    assert "not callable: not authorised" in command("explain", ledger, "s-42", "push").stdout


def test_diff_names_what_changed_between_two_epochs(ledger: Path) -> None:
    """Between 0 and 2 push was removed for authority; between 0 and 1 no tool fares differently."""
    found = answer("diff", ledger, "s-42", "0", "2")

    assert [(c["action"], c["tool"], c["reason"]) for c in found["changes"]] == [("removed", "git/push", "authority")]
    assert "authority" in found["facts"]
    assert answer("diff", ledger, "s-42", "0", "1")["changes"] == []
    assert "git/push" in command("diff", ledger, "s-42", "0", "2").stdout


def test_verify_recomputes_every_epoch_and_knows_a_head(ledger: Path) -> None:
    """Intact without an anchor, consistent with an earlier head, rolled back against a later one."""
    [chain] = answer("verify", ledger)["chains"]
    sequence, _, digest = chain["head"].partition(":")

    assert (chain["outcome"], chain["epochs"], chain["epochs_wrong"]) == ("intact-unanchored", 3, [])
    [anchored] = answer("verify", ledger, "s-42", "--head", chain["head"])["chains"]
    assert anchored["outcome"] == "consistent-with-anchor"
    [rolled] = answer("verify", ledger, "s-42", "--head", f"{int(sequence) + 1}:{digest}", status=1)["chains"]
    assert rolled["outcome"] == "rolled-back"
    assert "can grant" in command("verify", ledger).stdout


def test_verify_names_a_child_whose_chain_is_gone(tmp_path: Path) -> None:
    """The parent's chain still says that it was started."""
    path = tmp_path / "family.db"
    with Runtime(path, catalog=list) as runtime, runtime.session("s") as session:
        for child in ("kept", "gone"):
            session.spawn(child, want=["*"]).close()
        session.fork("copy").close()
    assert [row["missing"] for row in answer("verify", path)["chains"]] == [[]] * 4
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM entries WHERE chain IN ('gone', 'copy')")
    rows = {row["session"]: row for row in answer("verify", path)["chains"]}

    assert (rows["s"]["missing"], rows["kept"]["missing"], rows["s"]["good"]) == (["copy", "gone"], [], True)
    assert "started and not in this ledger: copy, gone" in command("verify", path).stdout


def test_looking_changes_nothing(ledger: Path) -> None:
    """After explain, diff and verify the file is the same to the byte."""
    before = ledger.read_bytes()
    command("explain", ledger, "s-42", "git/log")
    command("diff", ledger, "s-42", "0", "1")
    command("verify", ledger)

    assert ledger.read_bytes() == before


def test_an_epoch_that_does_not_follow_from_its_facts_is_found(tmp_path: Path) -> None:
    """A writer that lies in a receipt, in a chain that is correct otherwise, is found by recomputing, with status 1."""
    from capstate.ledger import Record, chain_entries
    from capstate.ledgers.sqlite import SQLiteLedger

    path = tmp_path / "lie.db"
    group = Group("git", [Tool("log", effect="read")])
    runtime = Runtime(path, catalog=lambda: [group], grants={"config": lambda _: [allow("git/log")]})
    with runtime, runtime.session("s") as session:
        session.load("git")
        epoch = session.reproject("open", history=[])
    body = {**dict(epoch.receipt.body), "epoch": 1, "previous": epoch.receipt.digest, "cause": "authority"}
    storage = SQLiteLedger(path)
    with storage.lock("s") as writer:
        head = storage.head("s")
        record = Record("epoch", {"digest": epoch.receipt.digest, "receipt": body})
        storage.append("s", chain_entries("s", head, [record], at=0, token=writer.token), expect=head, writer=writer)
    storage.close()
    [chain] = answer("verify", path, status=1)["chains"]

    assert chain["outcome"] == "intact-unanchored"
    assert [row["sequence"] for row in chain["epochs_wrong"]] == [head.sequence + 1 if head else 0]


# ---- bad input


def test_bad_usage_is_one_line(refused: Callable[..., str], ledger: Path, tmp_path: Path) -> None:
    """Unknown verbs, options, ids, names, epochs, heads, keys and files: status 2, one line, what was expected."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('alow = ["git/*"]\n')
    key = tmp_path / "key"
    key.write_bytes(b"short")

    assert "CS101" in refused("rule", "CS999")
    assert "No such command" in refused("frobnicate")
    assert "--policy" in refused("project", LOSES / "session.jsonl")
    assert "alow" in refused("audit", LOSES, "--policy", wrong)
    assert "missing.jsonl" in refused("audit", tmp_path / "missing.jsonl")
    assert "scenario" in refused("matrix", "--scenario", "12")
    assert "provider" in refused("matrix", "--provider", "nobody")
    assert "no folder" in refused("matrix", "--record", tmp_path / "no folder" / "file")
    assert "epoch from 0 to 2" in refused("explain", ledger, "s-42", "git/log", "--epoch", "9")
    assert "tool" in refused("explain", ledger, "s-42", "git/gone")
    assert "'s-42'" in refused("explain", ledger, "nobody", "git/log")
    assert "SEQUENCE:DIGEST" in refused("verify", ledger, "s-42", "--head", "x")
    assert "session" in refused("verify", ledger, "--head", f"1:b3:{'0' * 64}")
    assert "32 bytes" in refused("verify", ledger, "--key-file", key)
    assert "key" in refused("verify", ledger, "--key-file", tmp_path / "no key")


def test_an_unavailable_ledger_is_status_three(refused: Callable[..., str], tmp_path: Path) -> None:
    """No file, a folder, a file that is no ledger, an empty one: 3, one line, and the file is not touched."""
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"\x00\xff" * 4096)

    for path in (tmp_path / "missing.db", tmp_path, garbage):
        refused("verify", path, status=3)
        refused("explain", path, "s", "git/log", status=3)
    assert garbage.read_bytes() == b"\x00\xff" * 4096


HOSTILE = {
    "empty": b"",
    "zeros": b"\x00" * 5000,
    "no UTF-8": b"\xff\xfe{}\n" * 100,
    "deep": b"[" * 100_000 + b"\n",
    "one long line": b'{"type":"session","version":3,"id":"' + b"a" * 3_000_000 + b'"}\n',
    "a name that steers a terminal": (
        b'{"type":"session","version":3,"id":"s"}\n{"type":"message","id":"a","parentId":"s","message":'
        b'{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"\\u001b[2J\\u202eevil\\ud800","arguments":{}}]}}\n'
    ),
    "numbers for texts": b'{"type":1,"id":2,"parentId":3,"message":4}\n' * 50,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_files_give_an_answer_or_one_line(content: bytes, here: Here, tmp_path: Path) -> None:
    """Whatever a session file or a folder of bodies holds: no traceback, no control character on the terminal."""
    file = tmp_path / "session.jsonl"
    file.write_bytes(content)
    policy = tmp_path / "policy.toml"
    policy.write_text('resident = ["read"]\n')

    for arguments in (
        ["audit", file],
        ["audit", f"requests:{file}"],
        ["audit", file, "--json"],
        ["project", file, "--policy", policy],
        ["audit", LOSES, "--policy", file],
    ):
        status, out, err = here(*arguments)
        assert status in (0, 1, 2)
        assert len(err.splitlines()) == (status == 2)
        assert [c for c in out + err if not c.isprintable() and c != "\n"] == []


def test_errors_of_a_real_process_are_one_line(tmp_path: Path) -> None:
    """In a process of its own as well: status 2 and 3, one line, nothing on stdout."""
    for done, status in ((command("rule", "CS999"), 2), (command("verify", tmp_path / "missing.db"), 3)):
        assert (done.returncode, done.stdout) == (status, "")
        assert done.stderr.startswith("capstate: ")
        assert done.stderr.count("\n") == 1


def test_a_fault_of_capstate_itself_is_one_line(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody foresaw has a status of its own and names its place; no traceback is printed."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("capstate.findings.rule", broken)
    status, out, err = here("rule", "CS101")

    assert (status, out, err.count("\n")) == (70, "", 1)
    assert "ZeroDivisionError at test_cli.py:" in err


@pytest.mark.slow
def test_progress_is_for_terminals() -> None:
    """On a terminal a long run says how far it is, on stderr, and wipes it; the answer on stdout is the same."""
    ours, theirs = os.openpty()
    env = {**os.environ, "PYTHONPATH": str(HOME), "PYTHONUTF8": "1"}
    line = [sys.executable, "-m", "capstate.cli", "matrix", "--scenario", "1", "--provider", "chat", "--json"]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=theirs, env=env, check=True, timeout=120)
    os.close(theirs)
    said = os.read(ours, 4096).decode()
    os.close(ours)

    assert "played 5 of 5" in said
    assert said.endswith("\x1b[K")
    assert json.loads(done.stdout)["rows"][0]["scenario"] == "1"
