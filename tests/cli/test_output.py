"""What comes out of a command: whole lines in a pipe, a full disk, rules as rules, numbers with their nouns."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

import capstate
from capstate import Group, Runtime, Tool, allow, ask, deny
from capstate.cli import FAULT, FINDING, GOOD, INTERRUPTED, OUTPUT, UNAVAILABLE, USAGE
from capstate.options import STATUSES
from capstate.terminal.page import ENDLESS, console, say, show
from tests.audit.recordings import ROOT as RECORDINGS
from tests.docs.pages import REFERENCE, table

HOME = Path(capstate.__file__).parents[1]
BACK = RECORDINGS / "s08b-revoke-then-reopen"
FULL = Path("/dev/full")


def line(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "capstate.cli", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR", "COLUMNS")}
    return {**clean, "PYTHONPATH": str(HOME), "PYTHONUTF8": "1", **more}


def command(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line(*arguments), capture_output=True, text=True, env=environment(**more), check=False)


LONG = "a_tool_whose_name_is_longer_than_any_column_of_a_table_has_ever_been_and_goes_on"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three epochs: all allowed, then a rule denies and a rule asks, then a person denies; a child that may less."""
    path = tmp_path_factory.mktemp("ledger") / "agent.db"
    rules = [allow("git/*")]
    git = Group("git", [Tool("log", effect="read"), Tool("push"), Tool(LONG, effect="read")])
    runtime = Runtime(path, catalog=lambda: [git], grants={"config": lambda _: rules})
    with runtime, runtime.session("s") as session:
        session.load("git")
        session.reproject("open")
        rules += [deny("git/push"), ask("git/log")]
        session.reproject("compaction")
        session.deny(f"git/{LONG}", by="alice")
        session.reproject("compaction")
        with session.spawn("s/child", want=["git"]) as child:
            child.reproject("child")
    return path


# ---- pipes


def test_a_pipe_gets_every_name_whole(ledger: Path) -> None:
    """Tables and lines: no name, place or digest is cut or divided, and a table's row is one line."""
    found = command("diff", ledger, "s", "0", "2")
    (row,) = [one for one in found.stdout.splitlines() if f"git/{LONG}" in one]
    assert f"granted: deny git/{LONG}, given by alice" in row
    told = command("explain", ledger, "s", f"git/{LONG}").stdout.splitlines()
    assert told[0].startswith(f"git/{LONG} in epoch 2 (compaction): not callable")
    assert told[0].endswith("given by alice")
    assert len(told) == 4


def test_the_table_of_an_audit_loses_nothing_in_a_pipe() -> None:
    """Each finding of the JSON has its names and its place on one line of the table."""
    arguments = ("audit", BACK, "--policy", BACK / "policy.toml")
    rows = command(*arguments).stdout.splitlines()
    found = [json.loads(one) for one in command(*arguments, "--json").stdout.splitlines() if '"finding"' in one]

    assert len(found) > 5
    for one in found:
        place = f"{one['file']}:{one['line']}"
        assert [
            row for row in rows if row.startswith(one["finding"]) and ", ".join(one["names"]) in row and place in row
        ]


@pytest.mark.parametrize("columns", ["40", "60", "200"])
def test_columns_is_heeded(ledger: Path, columns: str) -> None:
    """Where somebody says how wide, no line of a table is wider, and every letter is still there."""
    for arguments in (("diff", ledger, "s", "0", "2"), ("explain", ledger, "s", f"git/{LONG}")):
        out = command(*arguments, COLUMNS=columns).stdout
        assert max(map(len, out.splitlines())) <= int(columns)
        plain = re.sub(r"\s", "", out)
        assert columns == "200" or LONG not in out
        assert all(part in plain for part in ("callable", "alice")) if arguments[0] == "explain" else "alice" in out
    assert LONG in re.sub(r"\s", "", command("explain", ledger, "s", f"git/{LONG}", COLUMNS=columns).stdout)


@pytest.mark.parametrize("columns", ["", "0", "-1", "many", "9" * 30])
def test_columns_that_are_no_number_are_none(ledger: Path, columns: str) -> None:
    """The lines are those without it."""
    assert (
        command("diff", ledger, "s", "0", "2", COLUMNS=columns).stdout == command("diff", ledger, "s", "0", "2").stdout
    )


@pytest.mark.slow
def test_a_narrow_matrix_cuts_nothing() -> None:
    """The scenario's title and every column stand in few columns, divided and not cut."""
    narrow, wider = (
        command("matrix", "--scenario", "7c", "--provider", "chat", COLUMNS=columns).stdout for columns in ("24", "40")
    )
    for out, columns in ((narrow, 24), (wider, 40)):
        assert "…" not in out
        assert max(map(len, out.splitlines())) <= columns
    assert all(word in wider for word in ("plain", "any", "other", "B-blind", "B+C"))


def test_lines_and_paragraphs_lose_no_letter() -> None:
    """A line that must not wrap goes on beyond a narrow edge; a long word is whole in a pipe, divided in columns."""
    long = "x" * 200
    for width, lines in ((ENDLESS, [long]), (40, ["x" * 40] * 5)):
        file = io.StringIO()
        out = console(file)
        out.width = width
        say(out, long)
        assert file.getvalue().splitlines() == lines
    file = io.StringIO()
    out = console(file)
    out.width = 40
    show(out, Text(long))
    assert file.getvalue() == f"{long}\n"


# ---- an output that takes nothing


@pytest.mark.skipif(not FULL.exists(), reason="the system has no full device")
@pytest.mark.parametrize(
    "arguments",
    [
        ["rule", "CS101"],
        ["rule"],
        ["rule", "--json"],
        ["demo"],
        ["demo", "--json"],
        ["audit", str(BACK)],
        ["--help"],
        ["rule", "--help"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_a_full_disk_is_said_in_one_line(arguments: list[str]) -> None:
    """Status 74, the reason, no fault of capstate; whether the words come at once or with the last flush."""
    for more in ({}, {"PYTHONIOENCODING": "ascii"}):
        with FULL.open("w") as full:
            done = subprocess.run(
                line(*arguments), stdout=full, stderr=subprocess.PIPE, text=True, env=environment(**more), check=False
            )
        assert done.returncode == 74
        assert done.stderr.startswith("capstate: standard output: ")
        assert "No space left" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not FULL.exists(), reason="the system has no full device")
def test_where_nobody_can_be_told_the_status_says_it() -> None:
    """An error that cannot be printed is no other error."""
    with FULL.open("w") as full:
        done = subprocess.run(
            line("rule", "CS999"), stdout=subprocess.PIPE, stderr=full, env=environment(), check=False
        )
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_closed_output_is_none(ledger: Path) -> None:
    """Started without a standard output the command works as ever; what it found is its status."""
    for arguments, status in ((("rule", "CS101"), 0), (("verify", ledger), 0), (("rule", "CS999"), 2)):
        closed = ["sh", "-c", '"$@" >&-', "sh", *line(*arguments)]
        done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, env=environment(), check=False)
        assert done.returncode == status, done.stderr
        assert done.stderr.count("\n") == (status != 0)


def test_every_exit_status_is_in_the_help_and_in_the_reference() -> None:
    """The same numbers in the code, in ``--help`` and in the table."""
    known = sorted({GOOD, FINDING, USAGE, UNAVAILABLE, FAULT, OUTPUT, INTERRUPTED})

    assert [int(number) for number in re.findall(r"^  (\d+) ", STATUSES, re.MULTILINE)] == known
    assert [int(number) for number in table(REFERENCE / "audit.md", "exit status")] == known
    out = command("--help").stdout
    assert all(re.search(rf"^ +{number} +\w", out, re.MULTILINE) for number in known)


# ---- rules


def explained(ledger: Path, session: str, tool: str, *more: str) -> tuple[dict[str, Any], str]:
    found = json.loads(command("explain", ledger, session, tool, *more, "--json").stdout)
    return found, command("explain", ledger, session, tool, *more).stdout


def test_the_rule_that_decided_is_shown_as_a_rule(ledger: Path) -> None:
    """Selector, effect, source and giver, of each line of the history; its id is in the JSON."""
    found, out = explained(ledger, "s", "git/push")

    assert found["rule"] == {"source": "config", "on": "git/push", "effect": "deny", "giver": ""}
    assert [one["rule"]["effect"] for one in found["history"]] == ["allow", "deny"]
    assert "not callable: not authorised, by config: deny git/push" in out
    assert "callable (allow, by config: allow git/*), immediate" in out
    assert "#" not in out
    found, out = explained(ledger, "s", "git/log")
    assert "callable (ask, by config: ask git/log), immediate" in out


def test_the_rule_of_a_parent_is_shown_as_the_parents(ledger: Path) -> None:
    """What a child lacks because its parent does."""
    found, out = explained(ledger, "s/child", f"git/{LONG}")

    assert found["decided_by"].startswith("parent: granted#")
    assert f"by parent: granted: deny git/{LONG}, given by alice" in out
    assert "config: deny git/push" in explained(ledger, "s/child", "git/push")[1]
    assert "#" not in out


def test_the_rules_of_a_difference_are_shown_as_rules(ledger: Path) -> None:
    """In the table and in the JSON."""
    rows = {c["tool"]: c for c in json.loads(command("diff", ledger, "s", "0", "2", "--json").stdout)["changes"]}
    out = command("diff", ledger, "s", "0", "2").stdout

    assert rows["git/push"]["rule"]["on"] == "git/push"
    assert rows[f"git/{LONG}"]["rule"] == {"source": "granted", "on": f"git/{LONG}", "effect": "deny", "giver": "alice"}
    assert "config: deny git/push" in out
    assert "config: ask git/log" in out
    assert "#" not in out


def test_where_no_rule_decided_there_is_none(tmp_path: Path) -> None:
    """No rule speaks of the tool; a source failed; a tool that the receipt does not name. Each has every key."""
    path, groups = tmp_path / "agent.db", [Group("git", [Tool("log", effect="read")])]
    failing: list[int] = []

    def source(_: str) -> list[Any]:
        if failing:
            raise OSError
        return []

    runtime = Runtime(path, catalog=lambda: groups, grants={"config": source})
    with runtime, runtime.session("s") as session:
        session.load("git")
        session.reproject("open")
        failing.append(1)
        session.reproject("compaction")
        groups.clear()
        session.reproject("compaction")
    found, out = explained(path, "s", "git/log")

    assert [one["decided_by"] for one in found["history"]] == ["pool", "config!error", ""]
    assert all(one["rule"] is None for one in found["history"])
    assert {frozenset(one) for one in found["history"]} == {frozenset(found["history"][0])}
    assert "by pool: no rule speaks of it" in out
    assert "by config!error" in out


def test_the_keys_of_the_json_are_in_the_reference(ledger: Path) -> None:
    """Of ``explain`` and ``diff``: each key has a row, and each row is a key; each place of a tool is explained."""
    text = (REFERENCE / "audit.md").read_text(encoding="utf-8")
    for name, found in (
        ("explain", explained(ledger, "s", "git/push")[0]),
        ("diff", json.loads(command("diff", ledger, "s", "0", "2", "--json").stdout)),
    ):
        part = text.partition(f"`{name}` says ")[2].partition("| key | value |")[2].partition("\n\n")[0]
        told = {key for row in part.splitlines() for key in re.findall(r"`(\w+)`", row.strip("|").partition("|")[0])}
        assert told == set(found), name
    assert list(table(REFERENCE / "audit.md", "place")) == ["immediate", "at ENTRY", "call ID", "held", "empty"]
    assert {name for name in found["facts"] if f"`{name}`" not in text} == set()


# ---- numbers and errors


def test_one_is_no_plural(tmp_path: Path) -> None:
    """One entry, one epoch, one damaged place, one request."""
    path = tmp_path / "agent.db"
    with Runtime(path, catalog=list) as runtime, runtime.session("s"):
        pass
    assert "1 entry, and no head" in command("verify", path, "s").stdout
    with Runtime(path, catalog=list) as runtime, runtime.session("s") as session:
        session.reproject("open")
    assert "1 epoch recomputed" in command("verify", path, "s").stdout
    bodies = tmp_path / "bodies.jsonl"
    body = {
        "model": "m",
        "system": "s",
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"name": "a", "input_schema": {}}],
    }
    bodies.write_text(json.dumps(body) + "\n{torn")
    (tmp_path / "policy.toml").write_text('allow = ["a"]')
    out = command("audit", f"requests:{bodies}", "--policy", tmp_path / "policy.toml").stdout
    assert "1 request; " in out
    assert "1 damaged place." in out


def test_an_error_says_where_blanks_are() -> None:
    """What is given with a blank at its end is quoted: else nobody sees why it is not the name that it looks like."""
    for given in ("git ", " git", "\n"):
        error = capstate.InvalidInputError("name", "a name", given)
        assert str(error).endswith(f"got {given!r}")
