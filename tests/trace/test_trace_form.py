"""The trace written down and read back (TT-01), and what is no message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capstate.errors import InvalidInputError, MalformedError
from capstate.trace import (
    Call,
    Facts,
    Message,
    Outcome,
    Risk,
    Role,
    compact,
    extract,
    from_json,
    repair,
    to_json,
)
from capstate.trace.outcomes import Row
from tests.trace.histories import broken, history


@given(st.integers(0, 2**32), st.integers(0, 20))
def test_every_trace_is_read_back_as_it_was(seed: int, keep: int) -> None:
    """Whole histories, wrecks, what was compacted and what was repaired, through JSON text."""
    messages, facts = history(seed)
    made = compact(messages, facts=facts, summarise=extract, keep_last=keep).messages
    for trace in (messages, broken(seed), list(made), list(repair(messages, started=None).messages)):
        assert from_json(json.loads(json.dumps(to_json(trace)))) == trace


def test_every_field_of_a_message_is_written() -> None:
    """One message with all of them, each with another value than the default."""
    inner = Message("m0", Role.TOOL, "x", result_for="c1", outcome=Outcome.OUTCOME_UNKNOWN)
    row = Row("c1", 1, "bank/pay", Outcome.ERROR, Risk.IRREVERSIBLE, "op", "E1", "a1", "t1", "b3:x", {"state": "sent"})
    full = Message(
        "m1", Role.ASSISTANT, "said", (Call("c1", "bank/pay", {"sum": [5]}, 2),), "c0", "git/log", Outcome.OK, "E1",
        "i", "x", ("m0",), (inner,), ("git/log",), {"raw": [1]}, "some", (row,),
    )  # fmt: skip
    written = to_json([full])["messages"][0]

    assert len(written) == 16
    assert from_json([written]) == [full]
    assert from_json({"trace": 1, "messages": [written]}) == [full]
    assert to_json([Message("", Role.USER)])["messages"] == [{"id": "", "role": "user"}]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (None, "messages"),
        ({"messages": []}, "trace"),
        ({"trace": 2, "messages": []}, "trace"),
        ({"trace": True, "messages": []}, "trace"),
        ({"trace": 1}, "messages"),
        ({"trace": 1, "messages": {}}, "messages"),
        (["secret"], "messages[0]"),
        ([{"id": "m"}], "messages[0]"),
        ([{"id": "m", "role": "user", "secret": 1}], "messages[0]"),
        ([{"id": 1, "role": "user"}], "messages[0].id"),
        ([{"id": "m", "role": "secret"}], "messages[0], message role"),
        ([{"id": "m", "role": "user", "text": ["secret"]}], "messages[0].text"),
        ([{"id": "m", "role": "user", "text": None}], "messages[0], message text"),
        ([{"id": "m", "role": "user", "calls": {"secret": 1}}], "messages[0].calls"),
        ([{"id": "m", "role": "user", "covers": [1]}], "messages[0], message covers[0]"),
        ([{"id": "m", "role": "assistant", "calls": [{"id": "c"}]}], "messages[0].calls[0]"),
        ([{"id": "m", "role": "assistant", "calls": [{"id": "c", "tool": "t", "arguments": "secret"}]}],
         "messages[0].calls[0].arguments"),
        ([{"id": "m", "role": "assistant", "calls": [{"id": "c", "tool": "t", "occurrence": 1.5}]}],
         "messages[0].calls[0].occurrence"),
        ([{"id": "m", "role": "assistant", "calls": [{"id": "c", "tool": "t", "occurrence": True}]}],
         "messages[0].calls[0].occurrence"),
        ([{"id": "m", "role": "user", "calls": [{"id": "c", "tool": "t"}]}], "messages[0], calls of message 'm'"),
        ([{"id": "m", "role": "tool", "outcome": "secret"}], "messages[0], message outcome"),
        ([{"id": "m", "role": "summary", "rows": [{"call": "c"}]}], "messages[0].rows[0]"),
        ([{"id": "m", "role": "summary", "rows": [{"call": "c", "occurrence": 0, "tool": "t", "outcome": None,
          "risk": "secret"}]}], "messages[0].rows[0], row.risk"),
        ([{"id": "m", "role": "summary", "rows": [{"call": "c", "occurrence": 0, "tool": "t", "outcome": None,
          "risk": "read", "details": {"secret": "x"}}]}], "messages[0].rows[0], details of call 'c', read"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_by_place(value: Any, place: str) -> None:
    """One error that names the place, and holds nothing of what stands there."""
    with pytest.raises(MalformedError) as caught:
        from_json(value)
    assert caught.value.place == place
    assert "secret" not in str(caught.value)
    with pytest.raises(MalformedError, match=r"^file: "):
        from_json(value, "file: ")


def test_messages_that_cover_others_without_end_are_refused() -> None:
    """The stack is not the limit that decides."""
    message: dict[str, Any] = {"id": "m", "role": "opaque"}
    for _ in range(100_000):
        message = {"id": "m", "role": "opaque", "covered": [message]}
    with pytest.raises(MalformedError, match="a few levels"):
        from_json([message])
    while message.get("covered"):  # taken apart by hand, else its end is as deep as it was
        message = message.pop("covered")[0]


GOOD = Message("m", Role.ASSISTANT, calls=(Call("c", "t"),))


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 1}, {"text": b"x"}, {"role": "nobody"}, {"outcome": "fine"}, {"result_for": 1}, {"tool": 1},
        {"evidence": 1}, {"calls": "c"}, {"calls": ["c"]}, {"calls": 3}, {"covers": "m0"}, {"covered": [1]},
        {"rows": [{}]}, {"refers": {"t": 1}}, {"role": "user"},
    ],
    ids=str,
)  # fmt: skip
def test_a_message_of_another_kind_is_refused_where_it_is_made(wrong: dict[str, Any]) -> None:
    """One error, and no message."""
    with pytest.raises(InvalidInputError):
        evolve(GOOD, **wrong)


@pytest.mark.parametrize(
    "wrong", [{"id": 1}, {"tool": None}, {"arguments": [1]}, {"occurrence": -1}, {"occurrence": True}], ids=str
)
def test_a_call_of_another_kind_is_refused_where_it_is_made(wrong: dict[str, Any]) -> None:
    """One error, and no call."""
    with pytest.raises(InvalidInputError):
        evolve(GOOD.calls[0], **wrong)


def test_facts_of_a_stored_trace_are_those_of_the_trace() -> None:
    """After a restart the next compaction goes on as it would have: same sources, same outcomes (XP-06)."""
    messages, facts = history(11)
    once = list(compact(messages, facts=facts, summarise=extract, keep_last=6).messages)
    stored = from_json(json.loads(json.dumps(to_json(once))))
    here = compact(once, facts=Facts(stored=None), summarise=extract, keep_last=1)
    there = compact(stored, facts=Facts(stored=None), summarise=extract, keep_last=1)

    assert here == there


@pytest.mark.parametrize(
    "wrong",
    [{"call": 1}, {"tool": None}, {"message": 1}, {"source": b""}, {"operation": 1}, {"evidence": 1}, {"arguments": 1},
     {"occurrence": -1}, {"occurrence": "0"}, {"outcome": "fine"}, {"risk": "none"}, {"details": {"state": "x"}}],
    ids=str,
)  # fmt: skip
def test_a_row_of_another_kind_is_refused_where_it_is_made(wrong: dict[str, Any]) -> None:
    """One error, and no row."""
    with pytest.raises(InvalidInputError):
        evolve(Row("c1", 0, "git/log", "ok", "read"), **wrong)
