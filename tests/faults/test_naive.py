"""What hosts do that go by their transcript alone: first the failure, then the same story with the runtime's own state.

FM-11, a second act after a crash, is ``test_turn_87.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from capstate.capabilities import Tool
from capstate.decisions import Decision, Graph, Observation, Standing
from capstate.errors import InvalidInputError, MalformedError
from capstate.evidence import Answer, DirectoryStore, Keeper
from capstate.providers import anthropic, openai_chat
from capstate.trace import Call, Facts, Message, compact
from capstate.usage import Comparison, Prefix, Reading, Usage, compare, prefix
from tests.runtime.stage import Stage, call, run

CANARY = b"patient 4711: positive"


def test_backtracking_is_no_rollback() -> None:
    """FM-12: on the branch nothing says that the release was pushed; the operation is there all the same."""
    path = [
        Message("u1", "user", "release it"),
        Message("a1", "assistant", calls=[Call("c1", "git/push", {"tag": "v2"})]),
        Message("t1", "tool", "pushed", result_for="c1", outcome="ok"),
    ]

    def done(history: list[Message]) -> list[str]:
        """What a host believes that reads its effects off the transcript."""
        return [each.tool for message in history for each in message.calls]

    assert done(path) == ["git/push"]
    assert done(path[:1]) == []  # back at the first message: as if it had never been pushed

    stage = Stage()
    session = stage.session()
    session.reproject(history=path[:1])
    run(session, call("git/push", "c1", tag="v2"))
    back = session.fork("branch", at="u1")
    assert [(op.tool, op.outcome, op.session) for op in back.operations] == [("git/push", "ok", "s")]


def test_a_conclusion_is_not_used_after_its_premise_fell() -> None:
    """FM-13: the summary goes on saying it; the graph says that it must be looked at first."""
    summary = Message("s1", "summary", "The database answers in time, so it is not the cause. Mend the cache.")
    new = Observation("o7", evidence=["E087"], challenges=["E042"])
    history = [summary, Message("t9", "tool", "p99 of the database: 1841 ms", result_for="c9", evidence="E087")]
    assert "not the cause" in history[0].text  # nothing takes it back

    graph = Graph().add(
        Decision("D1", "the database answers in time", "accepted", ["E042"]),
        Decision("H1", "the database is the cause", "excluded", premises=["D1"]),
        Decision("P1", "mend the cache", "accepted", premises=["H1"]),
    )
    usable = {id_ for id_, standing in graph.observe(new).standings().items() if standing is Standing.SUPPORTED}
    assert usable == set()


def test_one_overturn_is_not_the_whole_investigation_again() -> None:
    """FM-14: of a hundred conclusions, those that rest on what fell, and no other."""
    graph = Graph().add(
        *(Decision(f"D{n}", f"service {n} is well", "accepted", [f"E{n}"]) for n in range(90)),
        *(Decision(f"H{n}", f"{n} is not the cause", "excluded", premises=[f"D{n}"]) for n in range(10)),
    )
    new = Observation("o1", evidence=["E200"], challenges=["E7"])
    again = list(graph.decisions)  # who cannot tell what is affected does all of it again
    assert len(again) == 100

    assert graph.observe(new).reviews.keys() == {"D7", "H7"}


def test_what_was_sensitive_is_not_kept_for_ever(tmp_path: Path) -> None:
    """FM-15: a folder of raw results has it still; a keeper has a stone, and says that it expired."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "c1.txt").write_bytes(CANARY)
    keeper = Keeper(DirectoryStore(tmp_path / "kept"), tenant="clinic")
    kept = keeper.put(CANARY, now=0, until=30)
    assert keeper.get(kept.id, now=29) == CANARY
    keeper.sweep(now=30)

    holding = [p.parent.name for p in tmp_path.rglob("*") if p.is_file() and CANARY in p.read_bytes()]
    assert holding == ["raw"]
    assert keeper.answer(kept.id, now=30) is Answer.EXPIRED


def test_a_reference_of_another_provider_is_not_sent_along() -> None:
    """FM-07: whoever sends the native messages on sends a reference that nobody there can read; it is refused here.

    The library makes the request anew: the tool is in the list of the new provider.
    """
    stage = Stage()
    session = stage.session(on="git/log")
    session.load("git", at="t1", call="c1", by="model")
    history = [
        Message("u1", "user", "what changed?"),
        Message("a1", "assistant", calls=[Call("c1", "find", {})]),
        Message("t1", "tool", "found", result_for="c1", outcome="ok"),
    ]
    first = session.reproject("turn", provider=anthropic.profile("claude-x"), history=history).request
    assert "tool_reference" in str(first["messages"])

    naive = {"model": "gpt-x", "messages": first["messages"], "tools": []}
    with pytest.raises(MalformedError, match="one of anthropic-messages"):
        openai_chat.recognise(naive)
    again = session.reproject("provider_switch", provider=openai_chat.profile("gpt-x"), history=history).request
    openai_chat.recognise({"model": "gpt-x", **again})
    assert openai_chat.on_wire(again).effective == {"git__log", "git__push", "git__sync"}


def test_nothing_is_presumed_of_a_cache() -> None:
    """FM-09: who takes every compaction for a cold start is wrong as soon as the provider says what it read."""
    before = Reading(0, Usage(read=900, write=0, uncached=10), tools="T", head="H")
    after = Reading(1, Usage(read=600, write=0, uncached=40), tools="T", head="S")

    def naive(_: Reading, now: Reading) -> str:
        return "cold" if now.span else "warm"

    assert naive(before, after) == "cold"
    assert after.usage.read == 600  # as reported

    assert compare(before, after) is Comparison.NOT_COMPARABLE
    assert prefix(before, after) is Prefix.HISTORY  # and not laid to the tools, which are the same


def test_no_schema_goes_into_a_summary() -> None:
    """FM-10: who writes the definitions into the summary to have them back sends them with every request."""
    schema = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(40)}}
    tool = Tool("stats", description="Shows figures.", schema=schema)
    history = [Message(f"m{n}", "user", "go on") for n in range(6)]

    def naive(_: object) -> str:
        return f"stats is loaded: {tool.encoded.decode()}"

    made = compact(history, facts=Facts(stored=None), summarise=naive, keep_last=1)
    assert made.summary is not None
    assert len(made.summary.text) > 10 * sum(len(message.text) for message in history)

    with pytest.raises(InvalidInputError, match="text without a full tool schema"):
        compact(history, facts=Facts(stored=None), summarise=naive, keep_last=1, schemas=[tool.schema])
