"""``capstate effects``: which operations of a ledger are not over, and what recovery would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capstate.capabilities import Group, Tool
from capstate.cli import run
from capstate.runtime import Runtime
from capstate.trace import Call

GIT = Group("git", [Tool("push"), Tool("put", idempotent=True)])


def opened(path: Path) -> Runtime:
    return Runtime(path, catalog=lambda: [GIT], grants={"config": lambda _: ["git/*"]})


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A session that left an operation in each state; another one in which all is over; one without an epoch."""
    path = tmp_path / "agent.db"
    with opened(path) as runtime:
        with runtime.session("s") as session:
            session.load("git")
            session.reproject("open")
            session.prepare(Call("c0", "git/push", {"secret": "prepared"}))
            for tool, call in (("git/push", "c1"), ("git/put", "c2")):
                with session.guard(Call(call, tool, {"secret": call})):
                    pass
            with session.guard(Call("c3", "git/push", {"secret": "c3"})) as permit:
                permit.settle()
        with runtime.session("over") as session:
            session.load("git")
            with session.guard(Call("c1", "git/push", {"n": 1})) as permit:
                permit.settle()
        with runtime.session("young") as session:
            session.load("git")
            with session.guard(Call("c1", "git/put", {"n": 2})):
                pass
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = run([str(one) for one in ("effects", *arguments)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_each_operation_is_listed_with_its_step(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """State, outcome so far, whether a repeat does harm, and what recovery would do; status 1, there is work."""
    status, out, _ = told(capsys, ledger, "--json")
    rows: list[dict[str, Any]] = json.loads(out)["operations"]

    assert status == 1
    assert [(r["session"], r["call"], r["state"], r["idempotent"], r["step"]) for r in rows] == [
        ("s", "c0", "prepared", False, "start"),
        ("s", "c1", "executing", False, "wait"),
        ("s", "c2", "executing", True, "retry"),
        ("young", "c1", "executing", None, "wait"),
    ]


def test_arguments_are_never_printed(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names and ids only, in the table as in JSON."""
    table, machine = told(capsys, ledger)[1], told(capsys, ledger, "--json")[1]

    assert "secret" not in table + machine
    assert all(word in table for word in ("git/push", "prepared", "executing", "wait", "start", "retry"))


def test_where_all_is_over_the_status_is_good(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One session alone; and nothing is written."""
    before = ledger.read_bytes()
    assert told(capsys, ledger, "over") == (0, "Every operation is over.\n", "")
    assert json.loads(told(capsys, ledger, "over", "--json")[1]) == {"operations": []}
    assert ledger.read_bytes() == before


def test_what_cannot_be_read_is_one_line(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A session that is not there is the caller's input, a ledger that is not there is none."""
    for arguments, status, word in (((ledger, "nobody"), 2, "nobody"), ((ledger.with_name("x.db"),), 3, "x.db")):
        got, out, err = told(capsys, *arguments)
        assert (got, out, err.count("\n")) == (status, "", 1)
        assert word in err
