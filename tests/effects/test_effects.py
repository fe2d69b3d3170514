"""Operations: which state follows which, and what recovery does in every cell of its table."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capstate.effects import NOT_DONE, OUTCOMES, UNKNOWN, Action, Answer, Operation, OperationState, plan, step
from capstate.errors import InvalidInputError
from capstate.trace import Outcome

STATES = list(OperationState)
SAID = [None, *Outcome]
LEGAL = {
    ("prepared", "executing"),
    ("prepared", "committed"),
    ("executing", "executing"),
    ("executing", "observed"),
    ("executing", "committed"),
    ("observed", "committed"),
}
"""Copied by hand from the table of the specification."""


def operation(state: str = "executing", **more: Any) -> Operation:
    given: dict[str, Any] = {"outcome": "ok"} if state in ("observed", "committed") else {}
    return Operation("op", "s", "c", 0, "git/push", "b3:00", "external", state=state, **{**given, **more})


@pytest.mark.parametrize(("here", "there"), list(itertools.product(STATES, STATES)))
@pytest.mark.parametrize("outcome", SAID, ids=str)
def test_only_the_states_of_the_table_follow(here: OperationState, there: OperationState, outcome: str | None) -> None:
    """Each pair of states with each outcome: legal ones are taken as they are said, any other one is refused."""
    known = operation(here)
    legal = (here, there) in LEGAL
    if there in ("observed", "committed"):
        legal = legal and outcome is not None
    if (here, there) == ("prepared", "committed"):
        legal = legal and (outcome in NOT_DONE or outcome == UNKNOWN)
    if here == "observed":
        legal = legal and outcome == "ok"
    if not legal:
        with pytest.raises(InvalidInputError, match=f"operation 'op', {here}"):
            known.moved(there, outcome=outcome)
        return
    moved = known.moved(there, outcome=outcome)
    assert (moved.id, moved.outcome) == ("op", outcome)
    assert moved.state == ("executing" if outcome == UNKNOWN else there)
    assert moved.settled is (moved.state in ("observed", "committed"))


@given(st.lists(st.tuples(st.sampled_from(STATES), st.sampled_from(SAID)), max_size=12))
def test_nothing_leads_out_of_committed_or_back_to_prepared(moves: list[tuple[OperationState, str | None]]) -> None:
    """Any sequence of moves: once over it is over, once begun it is never unbegun, and the id stays."""
    known = operation("prepared")
    seen = [known.state]
    for there, outcome in moves:
        try:
            known = known.moved(there, outcome=outcome)
        except InvalidInputError:
            continue
        seen.append(known.state)
    assert known.id == "op"
    assert OperationState.PREPARED not in seen[1:]
    assert OperationState.COMMITTED not in seen[:-1]


def test_evidence_is_kept_through_states() -> None:
    """What was cited once stays cited, unless something newer is."""
    observed = operation().moved(OperationState.OBSERVED, outcome="ok", evidence="E1")

    assert observed.moved(OperationState.COMMITTED, outcome="ok").evidence == "E1"
    assert observed.moved(OperationState.COMMITTED, outcome="ok", evidence="E2").evidence == "E2"


def test_every_outcome_that_says_nothing_happened_is_one_of_the_trace() -> None:
    """The words are those of the trace."""
    assert set(Outcome) == OUTCOMES > NOT_DONE | {UNKNOWN}
    assert NOT_DONE.isdisjoint({Outcome.OK, Outcome.ERROR, Outcome.OUTCOME_UNKNOWN})


TABLE = [
    ("prepared", None, False, Action.START),
    ("prepared", "ok", True, Action.START),
    ("observed", None, False, Action.COMMIT),
    ("observed", "not_run", True, Action.COMMIT),
    ("executing", "ok", False, Action.COMMIT),
    ("executing", "error", True, Action.COMMIT),
    ("executing", "not_run", False, Action.RETRY),
    ("executing", "cancelled", True, Action.RETRY),
    ("executing", None, True, Action.RETRY),
    ("executing", UNKNOWN, True, Action.RETRY),
    ("executing", None, False, Action.WAIT),
    ("executing", UNKNOWN, False, Action.WAIT),
    ("committed", None, False, Action.NONE),
    ("committed", UNKNOWN, True, Action.NONE),
]


@pytest.mark.parametrize(("state", "says", "idempotent", "action"), TABLE)
def test_recovery_follows_its_table(state: str, says: str | None, idempotent: bool, action: Action) -> None:
    """Ledger first, the tool's side second, then the decision; and always with a reason."""
    made = step(operation(state), Answer(says) if says is not None else None, idempotent=idempotent)

    assert made.action is action
    assert made.why


@pytest.mark.parametrize("says", SAID, ids=str)
def test_a_repeat_needs_a_reason(says: str | None) -> None:
    """Not idempotent and not known to be undone: never repeated, whatever else the tool's side says."""
    made = step(operation(), Answer(says) if says is not None else None, idempotent=False)

    assert (made.action is Action.RETRY) is (says in NOT_DONE)
    assert (made.action is Action.WAIT) is (says in (None, UNKNOWN))


def test_a_doubted_operation_is_as_if_it_ran() -> None:
    """Whatever state stands in the entry that does not count."""
    doubted = evolve(operation("committed"), doubted=True)

    assert not doubted.settled
    assert step(doubted, idempotent=False).action is Action.WAIT
    assert step(doubted, Answer("ok", "E1"), idempotent=False).action is Action.COMMIT


def test_the_tools_side_is_asked_only_where_its_answer_counts() -> None:
    """Once each for what may have happened, and for nothing else; an error is no answer."""
    asked: list[str] = []

    def ask(one: Operation) -> Answer:
        asked.append(one.id)
        if one.id == "raises":
            raise RuntimeError("the tool's side is down")
        return Answer("ok", "E5")

    known = [evolve(operation(state), id=state) for state in STATES] + [evolve(operation(), id="raises")]
    made = {one.operation.id: one for one in plan(known, lambda _: False, ask)}

    assert asked == ["executing", "raises"]
    assert {id_: one.action for id_, one in made.items()} == {
        "prepared": Action.START,
        "executing": Action.COMMIT,
        "observed": Action.COMMIT,
        "raises": Action.WAIT,
    }
    assert made["executing"].answer == Answer("ok", "E5")
    assert "the tool's side is down" in made["raises"].why


@pytest.mark.parametrize("said", ["ok", True, {"outcome": "ok"}], ids=repr)
def test_an_answer_of_another_kind_is_an_error(said: Any) -> None:
    """Nothing is guessed from it."""
    with pytest.raises(InvalidInputError, match="operation 'op'"):
        plan([operation()], lambda _: True, lambda _: said)


@pytest.mark.parametrize(("outcome", "evidence"), [("done", None), (None, None), ("ok", ""), ("ok", 5)])
def test_an_answer_has_an_outcome_and_perhaps_evidence(outcome: Any, evidence: Any) -> None:
    """Words of the trace, and an id."""
    with pytest.raises(InvalidInputError, match="answer"):
        Answer(outcome, evidence)


def test_without_anybody_to_ask_only_the_tool_itself_decides() -> None:
    """Idempotent tools are repeated under the same id, the others wait."""
    known = [evolve(operation(), id=id_) for id_ in ("put", "make")]

    assert [one.action for one in plan(known, lambda op: op.id == "put")] == [Action.RETRY, Action.WAIT]


@pytest.mark.parametrize("state", STATES)
def test_only_what_is_recorded_stands_in_nobodys_way(state: OperationState) -> None:
    """A known end that the history does not show yet does: whoever asks again has not seen it."""
    assert operation(state).open is (state is not OperationState.COMMITTED)
    assert evolve(operation(state), doubted=True).open
