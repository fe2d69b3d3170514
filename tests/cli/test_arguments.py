"""What is given to a command: digests, numbers, ids and files that are not whole are usage errors, never findings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from capstate import Group, Runtime, Tool, allow
from capstate.cli import run
from capstate.errors import InvalidInputError
from capstate.examine import opened, verify
from capstate.ledger import Head
from capstate.policy import read_policy
from tests.audit.recordings import ROOT

LOSES = ROOT / "s05a-reopen-start-policy-narrow"
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


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of two epochs."""
    path = tmp_path_factory.mktemp("ledger") / "agent.db"
    git = Group("git", [Tool("log", effect="read")])
    runtime = Runtime(path, catalog=lambda: [git], grants={"config": lambda _: [allow("git/*")]})
    with runtime, runtime.session("s") as session:
        session.load("git")
        session.reproject("open")
        session.reproject("compaction")
    return path


@pytest.fixture(scope="module")
def head(ledger: Path) -> str:
    """The head of the session, as verify prints it."""
    with opened(ledger) as read:
        return str(verify(read, "s")[0]["head"])


WHOLE = "3:b3:" + "0" * 64
MALFORMED = {
    "nothing": "",
    "a blank": " ",
    "no digest": "3:",
    "a blank digest": "3: ",
    "no number": WHOLE[1:],
    "cut": WHOLE[:-1],
    "too long": WHOLE + "0",
    "upper case": WHOLE.replace("b3", "B3"),
    "no hex": WHOLE[:-1] + "g",
    "another algorithm": WHOLE.replace("b3", "b2"),
    "a seal": WHOLE.replace("b3", "b3k"),
    "digits of another script": WHOLE.replace("3:", "٣:", 1),
    "a sign": "-" + WHOLE,
    "two lines": WHOLE + "\n" + WHOLE,
    "a blank inside": WHOLE.replace(":", ": ", 1),
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=list(MALFORMED))
def test_a_head_that_no_chain_can_have_is_no_fork(here: Here, ledger: Path, text: str) -> None:
    """Cut, blank or malformed: status 2 and one line that shows the form; "forked" would be a false alarm."""
    status, out, err = here("verify", ledger, "s", "--head", text)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "SEQUENCE:DIGEST" in err


def test_blanks_around_a_head_do_not_count(here: Here, ledger: Path, head: str) -> None:
    """What was copied with its line end is the head that it is."""
    status, out, _ = here("verify", ledger, "s", "--head", f"  {head}\n", "--json")

    assert (status, json.loads(out)["chains"][0]["outcome"]) == (0, "consistent-with-anchor")


@pytest.mark.parametrize("wrong", [Head(3, ""), Head(3, "b3:00"), Head(-1, "b3:" + "0" * 64)], ids=["no", "cut", "-1"])
def test_the_library_refuses_such_a_head_as_well(ledger: Path, wrong: Head) -> None:
    """A value that was built by hand is looked at like one that was read."""
    with opened(ledger) as read, pytest.raises(InvalidInputError, match="SEQUENCE:DIGEST"):
        verify(read, "s", head=wrong)


@pytest.mark.parametrize("text", ["", " ", "x", "1_0", "1.0", "+1", "٣", "1" * 400, "0x1"], ids=ascii)
def test_a_number_is_plain_digits(here: Here, ledger: Path, text: str) -> None:
    """Wherever a command takes a number: status 2, one line, the text in it."""
    for arguments in (
        ("explain", ledger, "s", "git/log", "--epoch", text),
        ("diff", ledger, "s", text, "1"),
        ("diff", ledger, "s", "0", text),
    ):
        status, out, err = here(*arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "whole number" in err


BLANKS = ["", " ", "\t"]


@pytest.mark.parametrize("blank", BLANKS, ids=ascii)
def test_a_blank_is_no_id(here: Here, ledger: Path, blank: str) -> None:
    """Sessions, tools, entries, rules, scenarios, designs, providers: each refuses it by its own name, and shows it."""
    session, policy = LOSES / "session.jsonl", LOSES / "policy.toml"
    for place, arguments in (
        ("session", ("verify", ledger, blank)),
        ("session", ("effects", ledger, blank)),
        ("session", ("diff", ledger, blank, "0", "1")),
        ("session", ("explain", ledger, blank, "git/log")),
        ("tool", ("explain", ledger, "s", blank)),
        ("leaf", ("project", session, "--policy", policy, "--leaf", blank)),
        ("provider", ("project", session, "--policy", policy, "--provider", blank)),
        ("rule", ("rule", blank)),
        ("scenario", ("matrix", "--scenario", blank)),
        ("provider", ("matrix", "--provider", blank)),
        ("design", ("matrix", "--design", blank)),
    ):
        status, out, err = here(*arguments)
        assert (status, out, err.count("\n")) == (2, "", 1), arguments
        assert err.startswith(f"capstate: {place}: expected "), arguments
        assert f"got {blank!r}" in err, arguments


def test_ids_of_ours_may_be_written_in_any_case(here: Here) -> None:
    """Rules, scenarios, designs, profiles and providers, with blanks around them; each is shown as it is written."""
    assert here("rule", " cs101 ")[1] == here("rule", "CS101")[1]
    status, out, _ = here("matrix", "--scenario", "7C", "--design", "b", "--provider", "CHAT", "--json")
    assert (status, list(json.loads(out)["rows"][0]["designs"])) == (0, ["B"])
    project = ("project", LOSES / "session.jsonl", "--policy", LOSES / "policy.toml", "--provider")
    assert here(*project, " Anthropic ")[1] == here(*project, "anthropic")[1]


def test_the_column_of_a_design_in_another_case_is_shown(here: Here) -> None:
    """The table has the design that was asked for."""
    assert "B-blind" in here("matrix", "--scenario", "7c", "--design", "b-BLIND", "--provider", "chat")[1]


# ---- files


def _wrong_files(folder: Path) -> dict[str, tuple[Path, str]]:
    link, pipe, text, empty = (folder / name for name in ("link", "pipe", "text", "empty.jsonl"))
    text.write_text("hello\n")
    link.symlink_to(text)
    os.mkfifo(pipe)
    empty.touch()
    return {
        "folder": (folder, "a folder"),
        "link": (link, "a symbolic link"),
        "pipe": (pipe, "no regular file"),
        "text": (text, "line 1: no JSON"),
        "missing": (folder / "missing", "No such file"),
    }


@pytest.mark.parametrize("kind", ["folder", "link", "pipe", "text", "missing"])
def test_a_file_of_what_ran_is_told_what_it_should_be(here: Here, tmp_path: Path, kind: str) -> None:
    """``--executed`` expects observations, not a session, and says in words what is there instead."""
    path, got = _wrong_files(tmp_path)[kind]
    status, out, err = here("audit", LOSES, "--executed", path)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert got in err
    assert kind == "missing" or 'lines {"at": "executed:NAME"} of observations' in err
    assert not any(wrong in err for wrong in ("Pi session", "unreadable", "not_json", "something else"))


@pytest.mark.parametrize("kind", ["link", "pipe", "text", "missing"])
def test_other_files_are_told_what_they_should_be(here: Here, tmp_path: Path, kind: str) -> None:
    """Bodies, sessions, the session of ``project``: no word of the code stands for what is wrong."""
    path, got = _wrong_files(tmp_path)[kind]
    for expected, arguments in (
        ("request bodies", ("audit", f"requests:{path}")),
        ("request bodies", ("audit", LOSES, "--requests", path)),
        ("a Pi session", ("audit", path)),
        ("", ("project", path, "--policy", LOSES / "policy.toml")),
    ):
        status, out, err = here(*arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert kind == "missing" or expected in err
        assert arguments[0] == "project" or got in err
        assert not any(wrong in err for wrong in ("unreadable", "not_json", "something else"))


@pytest.mark.parametrize("path", [None, 3, "", "a\0b", b"x"], ids=ascii)
def test_what_is_no_path_of_a_policy_is_one_error(path: object) -> None:
    """Nothing but the error for bad input leaves the reader."""
    with pytest.raises(InvalidInputError):
        read_policy(path)  # type: ignore[arg-type]  # wrong on purpose


def test_a_policy_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Some editors write one; a folder in place of the file is called that."""
    (tmp_path / "policy.toml").write_bytes(b'\xef\xbb\xbfallow = ["read"]\n')

    assert read_policy(tmp_path / "policy.toml").allow == ("read",)
    with pytest.raises(InvalidInputError, match="got a folder"):
        read_policy(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        ["explain", "a\0b", "s", "t"], ["verify", "a\0b"], ["effects", "a\0b"], ["diff", "a\0b", "s", "0", "1"],
        ["project", "a\0b", "--policy", "p"], ["matrix", "--record", "a\0b"], ["trace", "check", "a\0b"],
        ["trace", "compact", "a\0b", "--budget", "9"], ["verify", "a", "--key-file", "a\0b"],
    ],
    ids=lambda line: " ".join(line[:2]).replace("\0", "NUL"),
)  # fmt: skip
def test_a_path_with_nul_is_a_usage_error(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever calls the commands from a program can pass one; no file has such a name."""
    from capstate.cli import run

    assert run(line) == 2
    assert "NUL" in capsys.readouterr().err
