"""The turn loop of the how-to: its order, what no budget drops, and that a death at any step changes nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capstate.trace import Message, Policy, check
from tests.docs.snippets import blocks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "turn-loop.md"
ORDER = [
    "load", "select", "retrieve", "assemble", "propose", "authorise", "execute", "store", "extract", "commit", "append",
    "compact",
]  # fmt: skip
TURNS = 6


class DeathError(Exception):
    """The process ends here."""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page defines, in an empty folder; its last lines, which play it, are left out."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(block.text for block in blocks(PAGE) if block.lang == "python")
    namespace: dict[str, Any] = {"__name__": "turn_loop"}  # and it compacts in the last of the turns played here
    exec(compile(code.partition("\nworld = World()")[0], str(PAGE), "exec"), namespace)  # noqa: S102 - our own page
    namespace["POLICY"] = Policy(high=2_400, low=2_300, batch=4)
    return namespace


def test_the_steps_come_in_their_order(page: dict[str, Any]) -> None:
    """Every turn from loading to compaction, each step once; a turn of the page's table."""
    seen: list[str] = []
    page["play"](page["World"](), TURNS, seen.append)
    text = PAGE.read_text(encoding="utf-8")

    assert seen == ORDER * TURNS
    assert all(f"`{step}`" in text for step in ORDER)


def test_a_death_at_any_step_of_any_turn_changes_nothing(page: dict[str, Any], tmp_path: Path) -> None:
    """Gone on with, the transcript and the decisions are those of a run without a death; no act was done twice."""
    whole: list[str] = []
    world = page["World"]()
    transcript, decisions = page["play"](world, TURNS, whole.append)
    assert [m.role for m in transcript.messages].count("summary") == 1
    expected = [(m.id, m.role, m.outcome) for m in transcript.messages], decisions.decisions, len(world.done)
    for n in range(len(whole)):
        folder = tmp_path / f"died at {n}"
        folder.mkdir()
        page["FOLDER"] = folder
        page["keeper"]._store._path = folder / "evidence"
        page["keeper"]._store._path.mkdir()
        left = iter(range(n + 1))

        def at(step: str, left: Any = left, n: int = n) -> None:
            if next(left, None) == n:
                raise DeathError(step)

        world = page["World"]()
        with pytest.raises(DeathError):
            page["play"](world, TURNS, at)
        transcript, decisions = page["play"](world, TURNS)
        where = f"step {n}: {whole[n]}"
        assert len(world.done) == len(set(world.done)), where
        found = [(m.id, m.role, m.outcome) for m in transcript.messages], decisions.decisions, len(world.done)
        assert found[1:] == expected[1:], where
        assert Counter(role for _, role, _ in found[0])["user"] == 1, where
        assert check(transcript.messages) == (), where
        assert decisions.standing("H1") == "needs_review", where


def test_what_is_mandatory_is_never_cut(page: dict[str, Any]) -> None:
    """If it does not fit, the step stops with an error of its own; the newest units go first out of the rest."""
    must = [Message("u1", "user", "x" * 100)]
    page["BUDGET"] = 99
    with pytest.raises(page["Step"], match="1 characters more"):
        page["assemble"](must, [], [])
    page["BUDGET"] = 150
    recent = [Message("a", "user", "y" * 40), Message("b", "user", "z" * 30)]

    assert [m.id for m in page["assemble"](must, [], recent)] == ["u1", "b"]


def test_old_evidence_comes_back_with_its_place(page: dict[str, Any]) -> None:
    """What a review needs stands in the request, marked as older than what follows (LP-03, LP-04)."""
    requests: list[list[Message]] = []
    model = page["model"]

    def asked(number: int, history: list[Message], tools: list[str]) -> Any:
        requests.append(history)
        return model(number, history, tools)

    page["model"] = asked
    page["play"](page["World"](), 4)
    texts = [m.text for m in requests[3] if m.id.startswith("retrieved")]

    assert texts == ["[retrieved; first seen at a part that was compacted, before all that follows it] connect: 3 ms"]
    assert [m.id for m in requests[0] if m.id.startswith("retrieved")] == []
    assert "H1 (excluded, needs review)" in next(m.text for m in requests[3] if m.id == "state")


def test_an_act_that_nobody_can_tell_of_stops_the_loop(page: dict[str, Any]) -> None:
    """A world that cannot be asked: a person looks first."""
    world = page["World"]()
    world.find = lambda _: None

    def at(step: str) -> None:
        if step == "store" and world.done:
            raise DeathError(step)

    with pytest.raises(DeathError):
        page["play"](world, TURNS, at)
    with pytest.raises(page["Step"], match="a person must look"):
        page["play"](world, TURNS)
    assert len(world.done) == 1


def test_what_is_mandatory_is_the_same_after_the_process_is_gone(page: dict[str, Any]) -> None:
    """After every turn, compacted or not: built again from what is on the disk alone (ST-03, ST-04)."""
    world = page["World"]()
    seen: list[Any] = []
    for turns in range(1, TURNS + 1):
        page["play"](world, turns)
        seen.clear()
        for _ in range(2):
            with page["runtime"]() as opened, opened.session("s-1") as session:
                transcript = page["Transcript"]()
                seen.append(
                    (page["mandatory"](session, transcript), transcript.messages, sorted(session.surface.callable))
                )
        assert seen[0] == seen[1]
        assert [message.id for message in seen[0][0]] == ["u1", "state"]
    assert seen[0][1][1].role == "summary"  # and nothing of what it stands for is left anywhere in the transcript
    assert not {message.id for message in seen[0][1]} & set(seen[0][1][1].covers)
