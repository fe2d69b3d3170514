"""A streamed call is a record only when its end was reported and its arguments are final (TT-10)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capstate.errors import InvalidInputError, MalformedError
from capstate.trace import Assembler, Call, Facts, Held, Message, Role, compact, extract

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
)


@given(st.dictionaries(st.text(), VALUES), st.lists(st.integers(0, 60)))
def test_arguments_arrive_in_any_pieces(arguments: dict[str, Any], cuts: list[int]) -> None:
    """The call is the same however its text was cut; before its end it is open, and no record."""
    text = json.dumps(arguments, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    stream, start = Assembler(), 0
    stream.feed("a1", "c1", name="git/")
    for end in ends:
        assert stream.feed("a1", "c1", arguments=text[start:end]) is None
        assert stream.open == {("c1", 0)}
        start = end
    call = stream.feed("a1", "c1", name="log", done=True)

    assert call == Call("c1", "git/log", arguments)
    assert stream.calls("a1") == (call,)
    assert stream.open == frozenset()


def test_two_streams_of_one_message_do_not_mix() -> None:
    """Parallel calls, interleaved; they stand in the order in which they began."""
    stream = Assembler()
    stream.feed("a1", "c1", name="git/log", arguments="{")
    stream.feed("a1", "c2", name="git/show", arguments='{"n"')
    stream.feed("a1", "c2", arguments=": 2}", done=True)
    with pytest.raises(InvalidInputError, match="call 'c1' of message 'a1': expected a call that has ended"):
        stream.calls("a1")
    stream.feed("a1", "c1", arguments="}", done=True)

    assert stream.calls("a1") == (Call("c1", "git/log"), Call("c2", "git/show", {"n": 2}))


def test_an_id_that_comes_again_is_another_occurrence() -> None:
    """In a later message, or after what the history has already."""
    stream = Assembler({"c1": 2})
    first = stream.feed("a1", "c1", name="git/log", done=True)
    second = stream.feed("a2", "c1", name="git/log", done=True)

    assert first is not None
    assert second is not None
    assert (first.key, second.key) == (("c1", 2), ("c1", 3))


@pytest.mark.parametrize(
    "text",
    ['{"a": 1', "[1]", "1", '"x"', "null", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 9007199254740993}', "{} {}", "x",
     '{"a": Infinity}', '{"a": "\\ud800"}', "[" * 100_000],
    ids=["cut off", "a list", "a number", "text", "null", "a name twice", "NaN", "too large", "two", "no JSON",
         "infinite", "half a character", "too deep"],
)  # fmt: skip
def test_malformed_arguments_are_an_error_and_never_a_call(text: str) -> None:
    """Nothing is guessed: the call is no record, its text stays readable, and it holds its unit for ever."""
    stream = Assembler()
    with pytest.raises(MalformedError, match="call 'c1' of message 'a1'"):
        stream.feed("a1", "c1", name="bank/pay", arguments=text, done=True)

    assert stream.failed == {("c1", 0): text}
    assert stream.open == {("c1", 0)}
    with pytest.raises(MalformedError, match="call 'c1' of message 'a1'"):
        stream.calls("a1")
    with pytest.raises(InvalidInputError, match="more after its end"):
        stream.feed("a1", "c1", arguments="}")


def test_a_call_without_a_name_is_malformed() -> None:
    """There is nothing to call."""
    with pytest.raises(MalformedError):
        Assembler().feed("a1", "c1", arguments="{}", done=True)


def test_no_text_is_a_call_without_arguments() -> None:
    """Providers send none."""
    assert Assembler().feed("a1", "c1", name="git/log", done=True) == Call("c1", "git/log")


def test_nothing_is_taken_of_a_part_that_is_no_text() -> None:
    """The stream goes on as if it had not come; what was not fed has no calls; a count is a count."""
    stream = Assembler()
    for wrong in ({"name": 3}, {"arguments": b"{}"}):
        with pytest.raises(InvalidInputError, match="expected text"):
            stream.feed("a1", "c1", **wrong)
    assert stream.open == frozenset()
    with pytest.raises(InvalidInputError, match="a message that was fed"):
        stream.calls("a1")
    counts: list[Any] = [-1, True, "1"]
    for count in counts:
        with pytest.raises(InvalidInputError, match="a whole number from 0"):
            Assembler({"c1": count})


def test_a_unit_that_streams_is_left_alone_until_it_ended() -> None:
    """What the assembler calls open is what a compaction must not take; afterwards it may."""
    stream = Assembler()
    stream.feed("a1", "c1", name="git/log", arguments='{"path": ')
    history = [
        Message("u1", Role.USER, "look"),
        Message("a1", Role.ASSISTANT, calls=(Call("c1", "git/log"),)),
        Message("t1", Role.TOOL, "x", result_for="c1"),
    ]
    made = compact(history, facts=Facts(stored=None, streaming=stream.open), summarise=extract, keep_last=0)
    assert [message.id for message in made.messages[1:]] == ["a1", "t1"]
    assert [kept.why for kept in made.kept] == [Held.STREAMING]

    stream.feed("a1", "c1", arguments='"src"}', done=True)
    made = compact(history, facts=Facts(stored=None, streaming=stream.open), summarise=extract, keep_last=0)
    assert made.sources == ("u1", "a1", "t1")
