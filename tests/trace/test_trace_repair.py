"""Each kind of repair, by example; the laws are in ``test_trace_laws.py``."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from capstate.errors import InvalidInputError
from capstate.trace import Message, Outcome, Repair, RepairRow, Role, repair
from tests.trace.test_trace_check import trace


def mended(text: str, **known: Any) -> tuple[list[str], list[tuple[str, int, str]]]:
    """The ids of the trace after repair, and what was done: kind, index, call."""
    made = repair(trace(text), started=known.pop("started", None), **known)
    return [message.id for message in made.messages], [(row.what.value, row.index, row.call) for row in made.rows]


@pytest.mark.parametrize(
    ("text", "ids", "rows"),
    [
        ("u a:x x u", ["m0", "m1", "m2", "m3"], []),
        ("a:x,y u y x", ["m0", "m2", "m3", "m1"], [("moved", 2, "y"), ("moved", 3, "x")]),
        ("x u a:x", ["m1", "m2", "m0"], [("moved", 0, "x")]),
        ("x a:x x", ["m1", "m2"], [("orphan_dropped", 0, "x")]),
        ("x a:x x a:x#1", ["m1", "m2", "m3", "m3:x"], [("orphan_dropped", 0, "x"), ("synthesised", 3, "x")]),
        ("x a:x#1", ["m1", "m1:x"], [("orphan_dropped", 0, "x"), ("synthesised", 1, "x")]),
        ("a:x x u x", ["m0", "m1", "m2"], [("duplicate_dropped", 3, "x")]),
        ("a:x u", ["m0", "m0:x", "m1"], [("synthesised", 0, "x")]),
        ("a:x x a:x x", ["m0", "m1", "m2", "m3"], [("renumbered", 2, "x")]),
        ("a:x,x x x", ["m0", "m1", "m2"], [("renamed", 0, "x")]),
        ("y", [], [("orphan_dropped", 0, "y")]),
    ],
)
def test_each_fault_is_mended_in_its_own_way(text: str, ids: list[str], rows: list[tuple[str, int, str]]) -> None:
    """A real result is kept and moved; one is made only where there is none; each act is a row."""
    assert mended(text) == (ids, rows)


@pytest.mark.parametrize(
    ("started", "outcome"),
    [(None, Outcome.OUTCOME_UNKNOWN), ([("x", 0)], Outcome.OUTCOME_UNKNOWN), ([], Outcome.NOT_RUN)],
)
def test_what_is_not_known_is_not_guessed(started: list[tuple[str, int]] | None, outcome: Outcome) -> None:
    """That a call did not run is said only if the caller lists what started, and it is not there."""
    made = repair(trace("a:x"), started=started)

    assert [message.outcome for message in made.messages] == [None, outcome]
    assert made.rows == (RepairRow(Repair.SYNTHESISED, 0, "m0:x", "x", outcome=outcome),)


def test_a_call_that_runs_while_its_id_comes_again_makes_that_another_id() -> None:
    """The running call keeps its key, and its late result will find it."""
    made = repair(trace("a:x a:x#1 x"), started=None, running=[("x", 0)])

    assert made.running == {("x", 0)}
    assert [call.id for message in made.messages for call in message.calls] == ["x", "x~2"]
    assert made.messages[2].result_for == "x~2"


def test_a_changed_message_loses_its_native_form() -> None:
    """What it was read from says the old id; what is not changed keeps it."""
    history = [evolve(message, native={"n": message.id}, api="some") for message in trace("a:x,x x x")]
    made = repair(history, started=None)

    assert [message.native for message in made.messages] == [None, {"n": "m1"}, None]
    assert [message.api for message in made.messages] == [None, "some", None]


def test_messages_without_ids_get_results_without_ids() -> None:
    """Nothing is made up for a host that has no ids; where it has some, a fresh one is taken by no other."""
    assert repair([evolve(trace("a:x")[0], id="")], started=None).messages[1].id == ""
    taken = [Message("m0:x", Role.USER), *trace("a:x")]
    assert repair(taken, started=None).messages[2].id == "m0:x~2"


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"messages": [{"role": "tool"}]}, "messages[0]"),
        ({"started": ["c1"]}, "started"),
        ({"running": [("c1", True)]}, "running"),
    ],
    ids=["no message", "an id for a key", "no number"],
)
def test_what_is_no_message_and_no_key_is_refused(wrong: dict[str, Any], place: str) -> None:
    """One error that names the place."""
    given = {"messages": [], "started": None, **wrong}
    with pytest.raises(InvalidInputError) as caught:
        repair(given.pop("messages"), **given)
    assert caught.value.place == place
