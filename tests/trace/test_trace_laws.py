"""Laws of compaction and repair over random histories: parallel groups, results apart, failures, unknowns, ids again.

The units and faults that they are held to are the oracle's, which shares no code with the library.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capstate.trace import (
    Accepts,
    Call,
    Compaction,
    Facts,
    Message,
    Outcome,
    Repair,
    Role,
    Slots,
    Strategy,
    Summarise,
    characters,
    check,
    check_accepted,
    compact,
    extract,
    repair,
)
from tests.trace.histories import broken, history
from tests.trace.oracle import answers, faults, groups

SEEDS = st.integers(0, 2**32)
CUTS = st.integers(0, 30)
ACCEPTS = [
    Accepts("any"),
    Accepts("patient", open_tail=True),
    Accepts("single", parallel_calls=False),
    Accepts("strict", repeated_ids=False),
]
Occurred = dict[tuple[str, int, str], Outcome | None]
"""Outcome by call id, occurrence and id of the message with the result."""


def brief(messages: Sequence[Message]) -> str:
    return f"{len(messages)} messages"


SUMMARISERS: list[Summarise] = [extract, brief]


def occurred(messages: Sequence[Message]) -> Occurred:
    """How every call of a history ended: by its results, and by the rows of its summaries."""
    found: Occurred = {}
    for message in messages:
        found.update({(row.call, row.occurrence, row.source): row.outcome for row in message.rows})
    for n, place in answers(messages).items():
        if place is not None:
            call = messages[place[0]].calls[place[1]]
            found[call.id, call.occurrence, messages[n].id] = messages[n].outcome
    return found


def stood_for(messages: Sequence[Message]) -> list[str]:
    """The ids that messages stand for: their own, and of a summary those that it names."""
    return [id_ for m in messages for id_ in (m.covers if m.role is Role.SUMMARY and m.covers else (m.id,))]


def obeys(before: Sequence[Message], facts: Facts, made: Compaction) -> None:
    """Hold one compaction to every law that needs no second one."""
    stays = [message for message in made.messages if message is not made.summary]
    assert [m for m in before if m.id in {s.id for s in stays}] == stays, "what stays is what was there, in its order"
    gone = [message for message in before if message not in stays]
    assert [message.id for message in gone] == list(made.removed)
    assert (made.summary is None) == (gone == []) == (made.strategy is Strategy.NONE)

    assert sorted(made.sources) == sorted(stood_for(gone))
    assert len(set(made.sources)) == len(made.sources)
    assert made.summary is None or made.summary.covers == made.sources
    assert not set(made.sources) & {message.id for message in made.messages}

    assert not [m for m in gone if m.role in (Role.SYSTEM, Role.OPAQUE) or m.id in facts.pinned]
    for group in groups(before):
        left = {n for n in group if before[n] in stays}
        assert left in (set(), group), "a unit leaves together or stays together"
        calls = [call for n in group for call in before[n].calls]
        held = any(call.key in facts.streaming | facts.running | facts.waiting for call in calls)
        held |= len(group) - 1 < len(calls) or any(call.key not in (facts.stored or ()) for call in calls)
        assert left == group or not held, "a unit that is not closed stays"

    assert occurred(made.messages) == occurred(before), "no outcome is lost, made or changed"
    was = {(kind, before[n].id, call) for kind, n, call in faults(before)}
    assert {(kind, made.messages[n].id, call) for kind, n, call in faults(made.messages)} <= was, "no fault is made"
    for accepts in ACCEPTS:
        assert check_accepted(before, accepts) or not check_accepted(made.messages, accepts), accepts.name


@given(SEEDS, CUTS)
def test_a_compaction_obeys_every_law_at_every_cut(seed: int, keep: int) -> None:
    """Validity, sources, whole units, outcomes, profiles; and again is once (CP-02, CP-05, TT-06, TT-09)."""
    messages, facts = history(seed)
    for summarise in SUMMARISERS:
        made = compact(messages, facts=facts, summarise=summarise, keep_last=keep)
        obeys(messages, facts, made)
        again = compact(made.messages, facts=facts, summarise=summarise, keep_last=keep)
        assert again.messages == made.messages


@given(SEEDS, st.integers(0, 1200))
def test_a_compaction_obeys_every_law_under_any_budget(seed: int, budget: int) -> None:
    """What fits is left alone; what does not is told; the latest request stays; again is once (CP-05)."""
    messages, facts = history(seed)
    before = sum(map(characters, messages))
    for summarise in SUMMARISERS:
        made = compact(messages, facts=facts, summarise=summarise, budget=budget)
        obeys(messages, facts, made)
        size = sum(map(characters, made.messages))
        assert made.over == max(0, size - budget)
        assert size < before or made.strategy is Strategy.NONE
        asked = [message for message in messages if message.role is Role.USER][-1:]
        assert all(message in made.messages for message in asked)
        again = compact(made.messages, facts=facts, summarise=summarise, budget=budget)
        assert again.messages == made.messages
        assert again.over == made.over


@given(SEEDS, st.lists(CUTS, min_size=2, max_size=5))
def test_outcomes_and_sources_survive_any_number_of_compactions(seed: int, cuts: list[int]) -> None:
    """Histories that go on after each compaction: all that ever went is named, every outcome is what it was (CP-08)."""
    now: list[Message] = []
    ever: dict[str, None] = {}
    told: Occurred = {}
    stored: set[tuple[str, int]] = set()
    for turn, keep in enumerate(cuts):
        more, facts = history(seed + turn)
        fresh = [renamed(message, turn) for message in more if message.role is not Role.SUMMARY]
        now += fresh
        ever.update(dict.fromkeys(message.id for message in fresh))
        told |= occurred(fresh)
        stored |= {(f"{turn}-{call}", n) for call, n in facts.stored or ()}
        known = Facts(stored=stored)
        made = compact(now, facts=known, summarise=extract, keep_last=keep)
        obeys(now, known, made)
        now = list(made.messages)
        assert occurred(now) == told
        assert sorted(stood_for(now)) == sorted(ever)
        unknown = {key for key, outcome in told.items() if outcome is Outcome.OUTCOME_UNKNOWN}
        beside = {
            (call.id, call.occurrence)
            for message in now
            for one in (message, *message.covered)
            for call in one.calls
        }  # fmt: skip
        assert {key[:2] for key in unknown} <= beside, "an equal call can still be refused"


def renamed(message: Message, turn: int) -> Message:
    """The message in a history of its own ids."""
    calls = tuple(Call(f"{turn}-{c.id}", c.tool, c.arguments, c.occurrence) for c in message.calls)
    answered = None if message.result_for is None else f"{turn}-{message.result_for}"
    return evolve(message, id=f"{turn}-{message.id}", calls=calls, result_for=answered)


@given(SEEDS, CUTS)
def test_a_summariser_sees_no_argument_and_no_word_of_what_it_may_not_retell(seed: int, keep: int) -> None:
    """Only of successful reads (CP-07); whatever it says of the others, the rows say what was."""
    messages, facts = history(seed)

    shown: list[str] = []

    def lies(seen: Sequence[Message]) -> str:
        shown.append(repr([(m, m.native) for m in seen]))
        return "Everything was done, and all of it succeeded."

    made = compact(messages, facts=facts, summarise=lies, keep_last=keep)
    assert occurred(made.messages) == occurred(messages)
    for call in (call for message in messages for call in message.calls):
        ends = [outcome for (id_, n, _), outcome in occurred(messages).items() if (id_, n) == call.key]
        free = call.tool == "git/log" and all(outcome in (None, Outcome.OK) for outcome in ends)
        alone = sum(one.id == call.id for message in messages for one in message.calls) == 1
        if alone and not free:
            assert not [view for view in shown if f"s-{call.id}'" in view or f"raw-{call.id}-" in view]


@given(SEEDS, st.sampled_from(["nobody knows", "all", "none"]))
def test_a_repair_leaves_no_fault_loses_no_result_and_is_done_once(seed: int, known: str) -> None:
    """Every real result is there or in a row, with its outcome; none is made up where one is (section 9)."""
    messages = broken(seed)
    keys = {call.key for message in messages for call in message.calls}
    started = {"nobody knows": None, "all": keys, "none": set()}[known]
    mended = repair(messages, started=started)

    assert faults(mended.messages) == []
    assert check(mended.messages) == ()
    again = repair(mended.messages, started=started)
    assert (again.messages, again.rows) == (mended.messages, ())

    real = sorted(told(m) for m in messages if m.role is Role.TOOL)
    dropped = [r for r in mended.rows if r.what in (Repair.ORPHAN_DROPPED, Repair.DUPLICATE_DROPPED)]
    made = [r for r in mended.rows if r.what is Repair.SYNTHESISED]
    kept = [told(m) for m in mended.messages if m.role is Role.TOOL]
    assert sorted([*kept, *((r.message, str(r.outcome)) for r in dropped)]) == sorted(
        [*real, *((r.message, str(r.outcome)) for r in made)]
    )
    assert {r.outcome for r in made} <= {Outcome.NOT_RUN if known == "none" else Outcome.OUTCOME_UNKNOWN}
    taken = answers(messages)
    waits = {(n, k) for n, m in enumerate(messages) for k in range(len(m.calls))} - set(taken.values())
    moved = sum(taken.get(r.index) is None for r in mended.rows if r.what is Repair.MOVED)
    assert len(made) == len(waits) - moved, "a result is made only for a call that has none"
    others = [m.id for m in messages if m.role is not Role.TOOL]
    assert [m.id for m in mended.messages if m.role is not Role.TOOL] == others


def told(message: Message) -> tuple[str, str]:
    return message.id, str(message.outcome)


@given(SEEDS)
def test_a_repair_leaves_running_calls_open(seed: int) -> None:
    """No result is made up for them; they are named as they are now, and that too is done once."""
    messages = broken(seed)
    rng = random.Random(seed)
    running = {call.key for message in messages for call in message.calls if rng.random() < 0.5}
    mended = repair(messages, started=None, running=running)
    again = repair(mended.messages, started=None, running=mended.running)

    assert {kind for kind, _, _ in faults(mended.messages)} <= {"missing_result"}
    assert {id_ for _, _, id_ in faults(mended.messages)} == {id_ for id_, _ in mended.running}
    assert (again.messages, again.rows, again.running) == (mended.messages, (), mended.running)


@given(SEEDS, CUTS)
def test_what_was_repaired_can_be_compacted(seed: int, keep: int) -> None:
    """Any wreck, repaired, then compacted at any cut, is a legal trace; outcomes are those after the repair."""
    mended = repair(unique(broken(seed)), started=None).messages
    facts = Facts(stored=None)
    made = compact(mended, facts=facts, summarise=extract, keep_last=keep)

    assert check(made.messages) == ()
    assert occurred(made.messages) == occurred(mended)
    assert repair(made.messages, started=None).rows == ()


def unique(messages: Sequence[Message]) -> list[Message]:
    return [evolve(message, id=f"{n}.{message.id}") for n, message in enumerate(messages)]


@given(SEEDS, CUTS)
def test_a_compaction_changes_nothing_that_it_was_given(seed: int, keep: int) -> None:
    """History and facts are what they were, also where the summariser fails at its end."""
    messages, facts = history(seed)
    before = list(messages)

    def fails(seen: Sequence[Message]) -> str | Slots:
        for message in seen:
            for call in message.calls:
                dict(call.arguments).clear()
        raise OSError

    compact(messages, facts=facts, summarise=extract, keep_last=keep)
    if compact(messages, facts=facts, summarise=brief, keep_last=keep).strategy is not Strategy.NONE:
        with pytest.raises(ValueError, match="OSError"):
            compact(messages, facts=facts, summarise=fails, keep_last=keep)
    assert messages == before == history(seed)[0]
    assert facts == history(seed)[1]


@pytest.mark.parametrize("over", [1, 9, 100, 1000])
@pytest.mark.parametrize("grows", [-1, 0, 1, 2])
def test_a_summariser_is_asked_a_bounded_number_of_times(over: int, grows: int) -> None:
    """Also where the line that stays of each unit is about as long as the unit: every try frees next to nothing."""
    calls = [Call(f"c{n:03}", "bank/pay") for n in range(300)]
    line = len(Facts(stored=None).row(calls[0], Message("a", "assistant"), Message("t", "tool", outcome="ok")).line)
    messages: list[Message] = []
    for n, call in enumerate(calls):
        messages.append(Message(f"a{n}", Role.ASSISTANT, calls=(call,)))
        text = "x" * (line + 1 - grows - characters(messages[-1]))
        messages.append(Message(f"t{n}", Role.TOOL, text, result_for=call.id, outcome=Outcome.OK))
    budget = sum(map(characters, messages)) - over
    asked = 0

    def counts(_: Sequence[Message]) -> str:
        nonlocal asked
        asked += 1
        return "Paid."

    made = compact(messages, facts=Facts(stored=None), summarise=counts, budget=budget)
    assert 0 < asked <= 16
    obeys(messages, Facts(stored={call.key for m in messages for call in m.calls}), made)


def test_a_summary_that_stays_alone_does_not_end_the_search() -> None:
    """It is large enough to free what is asked for, but only together with what comes behind it can it go."""
    messages = [
        Message("s1", Role.SUMMARY, "x" * 500, covers=("o1",)),
        Message("a1", Role.ASSISTANT, "y" * 100),
        Message("u1", Role.USER, "go on"),
    ]
    made = compact(messages, facts=Facts(stored=None), summarise=brief, budget=400)

    assert made.removed == ("s1", "a1")
    assert made.over == 0
