"""Real processes that share the ledger file and the file that their sources read, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parents[2]
CONFIG: dict[str, Any] = {
    "groups": {"git": {"log": {"effect": "read"}, "push": {}, "sync": {"idempotent": True}}},
    "grants": {"s": [["allow", "git/*"]], "ann": [["allow", "git/*"]]},
}


class Process:
    """One process, by its pipes."""

    def __init__(self, ledger: Path, config: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.actor", str(ledger), str(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE,
            env={**os.environ, "PYTHONPATH": str(HERE)},
        )

    def tell(self, do: str, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())["is"]

    def __call__(self, do: str, **more: Any) -> Any:
        self.tell(do, **more)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()


class World:
    """The two files, and the processes."""

    def __init__(self, folder: Path) -> None:
        self.ledger, self.file = folder / "agent.db", folder / "config.json"
        self.config: dict[str, Any] = json.loads(json.dumps(CONFIG))
        self.write()
        self.processes: list[Process] = []

    def write(self) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.config), encoding="utf-8")
        new.replace(self.file)

    def start(self) -> Process:
        self.processes.append(Process(self.ledger, self.file))
        return self.processes[-1]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for process in made.processes:
        process.close()


def test_parent_child_and_revoker_are_three_processes(world: World) -> None:
    """What the parent loses, by its file, by a post, or by its end, the child loses at its next call."""
    parent, child, revoker = world.start(), world.start(), world.start()
    parent("open", id="s")
    parent("spawn", parent="s", id="k", want=["*"])
    assert child("open", id="k") == ["git/log", "git/push", "git/sync"]
    revoker("deny", chain="s", on="git/push")
    assert child("run", id="k", tool="git/push") == "not_authorised"
    assert parent("run", id="s", tool="git/push") == "not_authorised"
    world.config["grants"]["s"] = [["allow", "git/log"]]
    world.write()
    assert child("surface", id="k") == parent("surface", id="s") == ["git/log"]
    assert child("reproject", id="k")["cause"] == "child"
    revoker("end", id="s")

    assert child("run", id="k", tool="git/log") == "not_authorised"
    assert parent("surface", id="s") == []


def test_a_killed_parent_has_not_ended_and_its_jobs_have(world: World) -> None:
    """The child goes on by the parent's sources and entries; what a job gave the parent is gone, also on its return."""
    world.config["grants"]["s"] = [["allow", "git/log"]]
    world.write()
    parent, child = world.start(), world.start()
    parent("open", id="s")
    parent("spawn", parent="s", id="k", want=["*"])
    parent("job", id="s", name="j", on=["git/push"])
    assert parent("surface", id="s") == ["git/log", "git/push"]
    child("open", id="k")
    parent.kill()
    assert child("surface", id="k") == ["git/log"]

    assert world.start()("open", id="s") == ["git/log"]


def test_a_revocation_during_a_running_call(world: World) -> None:
    """The call that runs may end; the next does not start; nothing is lost."""
    owner, revoker = world.start(), world.start()
    owner("open", id="s")
    owner("start", id="s", tool="git/push", call="c1")
    revoker("deny", chain="s", on="git/*")
    owner("settle", call="c1")

    assert owner("run", id="s", tool="git/push", call="c2") == "not_authorised"
    assert [settled for _, _, settled in owner("operations", id="s")] == [True]


def test_a_killed_process_leaves_an_unknown_outcome(world: World) -> None:
    """The next owner may repeat an idempotent call under its operation id, and no other."""
    first = world.start()
    first("open", id="s")
    push = first("start", id="s", tool="git/push", call="c1")
    sync = first("start", id="s", tool="git/sync", call="c2")
    first.kill()
    second = world.start()
    second("open", id="s")

    assert second("run", id="s", tool="git/push", call="c9") == "outcome_unknown"
    assert second("start", id="s", tool="git/sync", call="c9") == sync
    second("settle", call="c9")
    assert {(id_, settled) for id_, _, settled in second("operations", id="s")} == {(push, False), (sync, True)}


def test_one_owner_at_a_time(world: World) -> None:
    """A second process is refused while the first lives, and welcome when it was killed."""
    first, second = world.start(), world.start()
    first("open", id="s")
    assert second("open", id="s") == "SessionLockedError"
    first.kill()

    assert second("open", id="s") == ["git/log", "git/push", "git/sync"]


def test_limits_over_processes_are_never_exceeded_by_one(world: World) -> None:
    """Four processes of one tree run as fast as they can; the sum is the limit, and a killed one's slots are freed."""
    root = world.start()
    root("open", id="s", limits={"calls": 60, "concurrency": 2})
    others = [world.start() for _ in range(3)]
    for n, other in enumerate(others):
        root("spawn", parent="s", id=f"k{n}", want=["*"])
        other("open", id=f"k{n}")
    root.tell("many", id="s", tool="git/log", count=25)
    for n, other in enumerate(others):
        other.tell("many", id=f"k{n}", tool="git/log", count=25)
    ran = sum(process.answer() for process in (root, *others))
    assert root("used", id="s") == {"calls": ran, "cost": ran}
    assert ran <= 60
    left = root("many", id="s", tool="git/log", count=60)
    assert ran + left == 60

    assert others[0]("run", id="k0", tool="git/log") == "limit_exceeded"


def test_the_slots_of_a_killed_process_are_freed(world: World) -> None:
    """Nobody waits for it, and nobody takes the slots of one that is merely slow."""
    root, other = world.start(), world.start()
    root("open", id="s", limits={"concurrency": 1})
    root("spawn", parent="s", id="k", want=["*"])
    other("open", id="k")
    other("start", id="k", tool="git/log")
    assert root("run", id="s", tool="git/log") == "limit_exceeded"
    other.kill()

    assert root("run", id="s", tool="git/log") == "ran"


def test_approvals_survive_a_killed_process(world: World) -> None:
    """By their identity, for one start."""
    world.config["grants"]["s"] = [["allow", "git/*"], ["ask", "git/push"]]
    world.write()
    first = world.start()
    first("open", id="s")
    first("approve", id="s", tool="git/push")
    first.kill()
    second = world.start()
    second("open", id="s")

    assert [second("run", id="s", tool="git/push") for _ in range(2)] == ["ran", "needs_approval"]


def test_two_processes_project_the_same_bytes(world: World) -> None:
    """Another hash seed, another session: the same wire."""
    wires = set()
    for n in range(3):
        process = world.start()
        process("open", id=f"x{n}", holder="ann")
        wires.add(process("reproject", id=f"x{n}")["wire"])

    assert len(wires) == 1


@pytest.mark.parametrize(
    "spoil", [lambda _: "{", lambda text: text.replace("git/*", "git")], ids=["no JSON", "no rule"]
)
def test_a_configuration_that_breaks_is_nothing(world: World, spoil: Callable[[str], str]) -> None:
    """While the file cannot be read nothing may be called, and nothing is taken as before."""
    process = world.start()
    process("open", id="s")
    good = world.file.read_text(encoding="utf-8")
    world.file.write_text(spoil(good), encoding="utf-8")
    assert process("run", id="s", tool="git/log") in ("not_authorised", "CatalogUnavailableError")
    world.file.write_text(good, encoding="utf-8")

    assert process("run", id="s", tool="git/log") == "ran"
