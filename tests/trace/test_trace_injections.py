"""The five failures that one injects by hand, each with its named result (XP-02 to XP-06)."""

from __future__ import annotations

import json

from capstate.trace import (
    Call,
    Facts,
    Fault,
    FaultKind,
    Message,
    Outcome,
    Repair,
    Risk,
    Role,
    check,
    compact,
    extract,
    from_json,
    repair,
    to_json,
)

ASK = Message("u1", Role.USER, "Why did payments fail?")
CALL = Message("a1", Role.ASSISTANT, calls=(Call("c1", "search_incident", {"query": "payment"}),))
RESULT = Message("t1", Role.TOOL, "INC-42", result_for="c1", outcome=Outcome.OK)
GO_ON = Message("u2", Role.USER, "And today?")


def test_a_call_alone_is_a_missing_result() -> None:
    """XP-02: with the id of the call; repaired, it is said that it may have happened."""
    assert check([ASK, CALL]) == (Fault(FaultKind.MISSING_RESULT, 1, "c1"),)
    (row,) = repair([ASK, CALL], started=None).rows
    assert (row.what, row.outcome) == (Repair.SYNTHESISED, Outcome.OUTCOME_UNKNOWN)


def test_a_result_alone_is_an_orphan() -> None:
    """XP-03: with its place, and the id that nobody called; also where the call comes after it."""
    assert check([ASK, RESULT]) == (Fault(FaultKind.ORPHAN, 1, "c1"),)
    assert check([RESULT, CALL])[0] == Fault(FaultKind.ORPHAN, 0, "c1")


def test_two_results_of_one_call_are_a_duplicate() -> None:
    """XP-04: equal or not; they are never merged."""
    for text in ("INC-42", "INC-43"):
        second = Message("t2", Role.TOOL, text, result_for="c1", outcome=Outcome.OK)
        assert check([CALL, RESULT, second]) == (Fault(FaultKind.DUPLICATE_RESULT, 2, "c1"),)


def test_a_suffix_that_starts_at_a_result_takes_its_call_along() -> None:
    """XP-05: asked for two messages, it keeps three."""
    made = compact([ASK, CALL, RESULT, GO_ON], facts=Facts(stored=None), summarise=extract, keep_last=2)

    assert [message.id for message in made.messages[1:]] == ["a1", "t1", "u2"]
    assert check(made.messages) == ()


def test_an_unknown_outcome_survives_summary_and_recovery() -> None:
    """XP-06: through two compactions, with a restart and a repair in between; in the text, the row and beside it."""
    pay = Call("c1", "bank/pay", {"sum": 5})
    history = [
        ASK,
        Message("a1", Role.ASSISTANT, calls=(pay,)),
        Message("t1", Role.TOOL, "timeout", result_for="c1", outcome=Outcome.OUTCOME_UNKNOWN),
        GO_ON,
    ]
    facts = Facts(stored=None, risks={pay.key: Risk.READ}, operations={pay.key: "op-7"})
    now, summary = history, ASK
    for more in ("u3", "u4"):
        made = compact(now, facts=facts, summarise=lambda _: "Everything was paid.", keep_last=1)
        stored = from_json(json.loads(json.dumps(to_json(made.messages))))
        now = [*repair(stored, started=[pay.key]).messages, Message(more, Role.USER, "Go on.")]
        summary = now[0]

        assert [(row.key, row.outcome, row.operation) for row in summary.rows] == [
            (pay.key, Outcome.OUTCOME_UNKNOWN, "op-7")
        ]
        assert summary.text.splitlines()[-1].startswith('- "bank/pay" "c1": outcome_unknown, read, operation "op-7"')
        assert [(m.calls, m.outcome, m.text) for m in summary.covered] == [
            ((pay,), None, ""),
            ((), Outcome.OUTCOME_UNKNOWN, ""),
        ]
    assert summary.covers == ("u1", "a1", "t1", "u2")
