from __future__ import annotations

import pytest

from capstate.trace import Call, Fault, FaultKind, Message, Role, check

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


@pytest.mark.parametrize(
    "text", ["", "u", "u a: u", "u a:x x u", "a:x,y x y", "a:x,y y x u a:z z", "a:x x a:x#1 x"]
)
def test_a_legal_trace_has_no_fault(text: str) -> None:
    """One result for each call, in any order within the unit; an id may repeat later, as another occurrence."""
    assert check(trace(text)) == ()


@pytest.mark.parametrize(
    ("text", "faults"),
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
def test_each_fault_is_named_with_place_and_call(text: str, faults: list[tuple[FaultKind, int, str]]) -> None:
    """Kind, index of the message (of a missing result: of its call) and id of the call."""
    assert check(trace(text)) == tuple(Fault(*fault) for fault in faults)


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
