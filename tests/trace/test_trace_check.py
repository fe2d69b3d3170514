from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capstate.errors import InvalidInputError
from capstate.trace import Accepts, Call, Fault, FaultKind, Message, Role, check, check_accepted, first_kept
from tests.trace.histories import broken
from tests.trace.oracle import faults

ORPHAN, AGAIN, MISSING, TWICE, ORDER = (
    FaultKind.ORPHAN,
    FaultKind.DUPLICATE_RESULT,
    FaultKind.MISSING_RESULT,
    FaultKind.DUPLICATE_CALL,
    FaultKind.ORDER,
)


def trace(text: str) -> list[Message]:
    """``u`` a user message, ``a:x,y`` an assistant's with calls, ``x`` alone the result of call x."""
    made = []
    for n, word in enumerate(text.split()):
        if word == "u":
            made.append(Message(f"m{n}", Role.USER, "..."))
        elif word.startswith("a"):
            ids = [one.partition("#") for one in word[2:].split(",") if one]
            calls = tuple(Call(id_, "g/t", occurrence=int(times or 0)) for id_, _, times in ids)
            made.append(Message(f"m{n}", Role.ASSISTANT, calls=calls))
        else:
            made.append(Message(f"m{n}", Role.TOOL, result_for=word))
    return made


@pytest.mark.parametrize("text", ["", "u", "u a: u", "u a:x x u", "a:x,y x y", "a:x,y y x u a:z z", "a:x x a:x#1 x"])
def test_a_legal_trace_has_no_fault(text: str) -> None:
    """One result for each call, in any order within the unit; an id may repeat later, as another occurrence."""
    assert check(trace(text)) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", [(ORPHAN, 0, "x")]),
        ("u a:x y x", [(ORPHAN, 2, "y")]),
        ("a:x x x", [(AGAIN, 2, "x")]),
        ("a:x", [(MISSING, 0, "x")]),
        ("a:x,y y", [(MISSING, 0, "x")]),
        ("u a:x u", [(MISSING, 1, "x")]),
        ("a:x u x", [(ORDER, 2, "x")]),
        ("a:x,y x a:z y z", [(ORDER, 3, "y")]),
        ("a:x x a:x x", [(TWICE, 2, "x")]),
        ("a:x a:x#1 x", [(MISSING, 0, "x"), (TWICE, 1, "x")]),
        ("a:x,x#1 x x", [(TWICE, 0, "x")]),
        ("a:x,y y a:x#1 x", [(MISSING, 0, "x"), (TWICE, 2, "x")]),
        ("a:x x a:x#1 x a:x#1 x", [(TWICE, 4, "x")]),
        ("a:x x u x", [(AGAIN, 3, "x"), (ORDER, 3, "x")]),
    ],
)
def test_each_fault_is_named_with_place_and_call(text: str, expected: list[tuple[FaultKind, int, str]]) -> None:
    """Kind, index of the message (of a missing result: of its call) and id of the call."""
    assert check(trace(text)) == tuple(Fault(*fault) for fault in expected)


def test_all_faults_of_a_trace_are_reported_in_order() -> None:
    """The first fault hides none of the later ones."""
    found = check(trace("x a:y,z y y u z a:y y a:w"))

    assert [(f.kind, f.index, f.call) for f in found] == [
        (ORPHAN, 0, "x"),
        (AGAIN, 3, "y"),
        (ORDER, 5, "z"),
        (TWICE, 6, "y"),
        (MISSING, 8, "w"),
    ]


WORDS = ["u", "a:x", "a:x#1", "a:x,y", "a:y,y#1", "x", "y"]


def told(messages: list[Message]) -> list[tuple[str, int, str]]:
    return sorted((fault.kind.value, fault.index, fault.call) for fault in check(messages))


@pytest.mark.parametrize("length", range(5))
def test_every_small_trace_is_judged_as_the_oracle_does(length: int) -> None:
    """All traces of seven words: the same faults at the same places as by brute force."""
    for words in product(WORDS, repeat=length):
        messages = trace(" ".join(words))
        assert told(messages) == faults(messages), words


@given(st.integers(0, 2**32))
def test_every_broken_history_is_judged_as_the_oracle_does(seed: int) -> None:
    """Parallel groups, lost, repeated and shuffled messages."""
    messages = broken(seed)

    assert told(messages) == faults(messages)


def test_faults_stand_in_the_order_of_their_messages() -> None:
    """Also the missing results, whose place is the call's."""
    assert [fault.index for fault in check(trace("a:x u a:y u z x x"))] == [2, 4, 5, 6, 6]


ANY, PATIENT = Accepts("any"), Accepts("patient", open_tail=True)
SINGLE, STRICT = Accepts("single", parallel_calls=False), Accepts("strict", repeated_ids=False)


@pytest.mark.parametrize(
    ("text", "accepts", "expected"),
    [
        ("u a:x", ANY, [(MISSING, 1, "x")]),
        ("u a:x", PATIENT, []),
        ("a:x,y y", PATIENT, []),
        ("a:x u", PATIENT, [(MISSING, 0, "x")]),
        ("a:x a:y y", PATIENT, [(MISSING, 0, "x")]),
        ("a:x x", PATIENT, []),
        ("", PATIENT, []),
        ("a:x,y x y", SINGLE, [(FaultKind.PARALLEL_CALLS, 0, "y")]),
        ("a:x x a:x#1 x", STRICT, [(FaultKind.REPEATED_ID, 2, "x")]),
    ],
)
def test_a_profile_is_asked_by_name(text: str, accepts: Accepts, expected: list[tuple[FaultKind, int, str]]) -> None:
    """A profile that takes an open tail passes only there; a legal trace may fail a named profile (TT-05, TT-08)."""
    assert check_accepted(trace(text), accepts) == tuple(Fault(*fault) for fault in expected)


def test_a_long_trace_and_a_wide_one_take_one_pass() -> None:
    """A hundred thousand messages, and one message of fifty thousand calls answered backwards, are judged at once."""
    long = trace("u " + "a:x x " * 3)[:1] + [
        Message(f"m{n}", Role.ASSISTANT, calls=(Call(f"c{n}", "g/t"),))
        if n % 2 == 0
        else Message(f"m{n}", Role.TOOL, result_for=f"c{n - 1}")
        for n in range(100_000)
    ]
    calls = tuple(Call(f"c{n}", "g/t") for n in range(50_000))
    results = [Message(f"t{n}", Role.TOOL, result_for=f"c{n}") for n in reversed(range(50_000))]
    assert check(long) == ()
    assert check([Message("a", Role.ASSISTANT, calls=calls), *results]) == ()


def test_only_an_assistant_calls() -> None:
    """Calls that no validator would see are refused where the message is made."""
    for role in set(Role) - {Role.ASSISTANT}:
        with pytest.raises(InvalidInputError, match="calls of message 'm'"):
            Message("m", role, calls=(Call("c1", "g/t"),))


def test_what_is_no_message_is_refused_by_place() -> None:
    """A message of a provider is read first."""
    for judge in (check, lambda found: check_accepted(found, ANY), lambda found: first_kept(found, keep_last=1)):
        with pytest.raises(InvalidInputError, match=r"messages\[1\]: expected a Message, got dict"):
            judge([Message("u", Role.USER), {"role": "tool"}])  # type: ignore[list-item]
