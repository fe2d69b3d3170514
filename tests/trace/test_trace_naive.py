"""What a plain loop does to a trace: each naive way is first seen to fail, then the library's not to (FM-01 to FM-03).

A naive way is right where it can be: it passes histories without calls. So it is the calls that it fails on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from capstate.capabilities import Group, Tool
from capstate.errors import Reason, Refused
from capstate.runtime import Runtime, Session
from capstate.trace import (
    Call,
    Facts,
    FaultKind,
    Message,
    Outcome,
    Role,
    Summarise,
    check,
    compact,
    extract,
    first_kept,
)
from tests.trace.histories import history

Shorten = Callable[[list[Message], int], list[Message]]
ROUNDS: list[Message] = [Message("u", Role.USER, "find the leak")]
for n in range(6):
    calls = tuple(Call(f"c{n}{k}", "git/log") for k in range(1 + n % 3))
    ROUNDS += [Message(f"a{n}", Role.ASSISTANT, "looking", calls)]
    ROUNDS += [Message(f"t{c.id}", Role.TOOL, "x" * 90, result_for=c.id, outcome=Outcome.OK) for c in calls]
TALK = [Message(f"m{n}", Role.USER if n % 2 else Role.ASSISTANT, "words") for n in range(12)]


def last(messages: list[Message], keep: int) -> list[Message]:
    """The last so many messages."""
    return messages[len(messages) - keep :]


def summary_and_last(messages: list[Message], keep: int) -> list[Message]:
    """A summary, and the last so many messages."""
    return [Message("s", Role.SUMMARY, "earlier work"), *last(messages, keep)]


def without_the_longest(messages: list[Message], keep: int) -> list[Message]:
    """What is long goes first: that is the results."""
    long = sorted(range(len(messages)), key=lambda n: -len(messages[n].text))[: len(messages) - keep]
    return [message for n, message in enumerate(messages) if n not in long]


def without_old_results(messages: list[Message], keep: int) -> list[Message]:
    """Old results go, what was said stays."""
    border = len(messages) - keep
    return [message for n, message in enumerate(messages) if n >= border or message.role is not Role.TOOL]


def first(messages: list[Message], keep: int) -> list[Message]:
    """What fits from the beginning."""
    return messages[:keep]


def library(messages: list[Message], keep: int) -> list[Message]:
    facts = Facts(stored=None)
    return list(compact(messages, facts=facts, summarise=extract, keep_last=keep).messages)


def suffix(messages: list[Message], keep: int) -> list[Message]:
    return messages[first_kept(messages, keep_last=keep) :]


def found(shorten: Shorten, messages: list[Message], kind: FaultKind) -> list[int]:
    """The lengths at which shortening makes a fault of that kind."""
    return [
        keep for keep in range(len(messages) + 1) if any(fault.kind is kind for fault in check(shorten(messages, keep)))
    ]


@pytest.mark.parametrize("naive", [last, summary_and_last], ids=["last", "summary and last"])
def test_a_naive_slice_leaves_orphans(naive: Shorten) -> None:
    """FM-01: a window of messages begins at a result, whose call is gone."""
    assert check(ROUNDS) == ()
    assert found(naive, TALK, FaultKind.ORPHAN) == []
    assert len(found(naive, ROUNDS, FaultKind.ORPHAN)) > 5
    assert found(suffix, ROUNDS, FaultKind.ORPHAN) == []
    assert found(library, ROUNDS, FaultKind.ORPHAN) == []


@pytest.mark.parametrize(
    "naive", [without_the_longest, without_old_results, first], ids=["longest", "old results", "first"]
)
def test_a_naive_pruning_leaves_calls_without_results(naive: Shorten) -> None:
    """FM-02: a call dangles, and reads to the model as a tool that never came back."""
    assert found(naive, TALK, FaultKind.MISSING_RESULT) == []
    assert len(found(naive, ROUNDS, FaultKind.MISSING_RESULT)) > 5
    assert found(suffix, ROUNDS, FaultKind.MISSING_RESULT) == []
    assert found(library, ROUNDS, FaultKind.MISSING_RESULT) == []


@given(st.integers(0, 2**32))
def test_no_cut_of_any_history_makes_an_orphan_or_a_dangling_call(seed: int) -> None:
    """What the naive ways do on one history, the library does on none."""
    messages, facts = history(seed)
    for kind in (FaultKind.ORPHAN, FaultKind.MISSING_RESULT):
        was = sum(fault.kind is kind for fault in check(messages))
        for keep in range(len(messages) + 1):
            made = compact(messages, facts=facts, summarise=extract, keep_last=keep)
            assert sum(fault.kind is kind for fault in check(made.messages)) <= was


# -- an unknown outcome, told as something else


@define
class Bank:
    """The outside world: it takes each payment that reaches it, and its first answer is lost on the way."""

    paid: list[int] = field(factory=list)

    def pay(self, amount: int) -> str:
        self.paid.append(amount)
        if len(self.paid) == 1:
            raise TimeoutError
        return "paid"


@define
class Model:
    """A model that wants the invoice paid: unless its history says that it is, it calls again, under a new id."""

    ids: count[int] = field(factory=lambda: count(1))

    def next(self, messages: Sequence[Message]) -> Call | None:
        if any("paid" in message.text.split() for message in messages):
            return None
        return Call(f"c{next(self.ids)}", "bank/pay", {"amount": 100})


def says_failed(_: Sequence[Message]) -> str:
    """What a model writes of a time-out."""
    return "The payment failed with a timeout."


def says_nothing(_: Sequence[Message]) -> str:
    """What is written of a detail that seems not to matter."""
    return "Worked on the invoice."


def naive_compaction(messages: list[Message], summarise: Summarise) -> list[Message]:
    """The text alone stands for what went."""
    text = summarise(messages)
    return [Message("s1", Role.SUMMARY, text if isinstance(text, str) else text.text), messages[-1]]


def library_compaction(messages: list[Message], summarise: Summarise) -> list[Message]:
    return list(compact(messages, facts=Facts(stored=None), summarise=summarise, keep_last=1).messages)


BANK = Group("bank", [Tool("pay")])


def opened(ledger: Path, name: str) -> Session:
    runtime = Runtime(ledger, catalog=lambda: [BANK], grants={"config": lambda _: ["bank/*"]})
    session = runtime.session(name)
    session.load("bank", by="configuration")
    return session


def unguarded(bank: Bank, call: Call) -> Message:
    try:
        return Message(f"t-{call.id}", Role.TOOL, bank.pay(call.arguments["amount"]), result_for=call.id, outcome="ok")
    except TimeoutError:
        return Message(f"t-{call.id}", Role.TOOL, "timeout", result_for=call.id, outcome="outcome_unknown")


def turn(bank: Bank, model: Model, messages: list[Message], session: Session | None) -> list[Message]:
    """One turn of a loop: what the model calls is run, through the guard if there is one."""
    call = model.next(messages)
    if call is None:
        return messages
    asked = [*messages, Message(f"a-{call.id}", Role.ASSISTANT, calls=(call,))]
    if session is None:
        return [*asked, unguarded(bank, call)]
    try:
        with session.guard(call) as permit:
            result = unguarded(bank, call)
            permit.settle(outcome=result.outcome or Outcome.OUTCOME_UNKNOWN)
    except Refused as no:
        result = no.result if no.reason is Reason.OUTCOME_UNKNOWN else Message("", Role.TOOL)
    return [*asked, result]


def paid_twice(shorten: Callable[[list[Message], Summarise], list[Message]], summarise: Summarise) -> Bank:
    """A loop without a guard: pay, time-out, compaction, and the model's next turn."""
    bank, model = Bank(), Model()
    messages = turn(bank, model, [Message("u1", Role.USER, "Settle the invoice.")], None)
    messages = shorten([*messages, Message("u2", Role.USER, "Go on.")], summarise)
    turn(bank, model, messages, None)
    return bank


@pytest.mark.parametrize("ledger", ["the same ledger", "another ledger"])
@pytest.mark.parametrize("summarise", [says_failed, says_nothing, extract], ids=["failed", "nothing", "extract"])
def test_an_unknown_outcome_that_a_summary_retells_is_not_paid_twice(
    summarise: Summarise, ledger: str, tmp_path: Path
) -> None:
    """FM-03: a plain loop pays twice; here the equal call is refused, by the ledger or by the history alone."""
    assert paid_twice(naive_compaction, summarise).paid == [100, 100]

    bank, model = Bank(), Model()
    with opened(tmp_path / "a.db", "s") as session:
        messages = turn(bank, model, [Message("u1", Role.USER, "Settle the invoice.")], session)
    messages = library_compaction([*messages, Message("u2", Role.USER, "Go on.")], summarise)
    assert "outcome_unknown" in messages[0].text
    assert messages[0].rows[0].outcome is Outcome.OUTCOME_UNKNOWN
    name = tmp_path / ("a.db" if ledger == "the same ledger" else "b.db")
    with opened(name, "s") as session:
        session.reproject("compaction", history=messages)
        messages = turn(bank, model, messages, session)

    assert bank.paid == [100]
    assert messages[-1].outcome is Outcome.NOT_RUN
    assert check(messages) == ()


def test_it_is_the_record_beside_the_summary_that_refuses(tmp_path: Path) -> None:
    """A ledger that knows nothing, and a summary of text alone: the guard lets the second payment pass."""
    bank, model = Bank(), Model()
    messages = turn(bank, model, [Message("u1", Role.USER, "Settle the invoice.")], None)
    messages = naive_compaction([*messages, Message("u2", Role.USER, "Go on.")], says_failed)
    with opened(tmp_path / "b.db", "s") as session:
        session.reproject("compaction", history=messages)
        turn(bank, model, messages, session)

    assert bank.paid == [100, 100]
