from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import evolve

from capstate.errors import InvalidInputError
from capstate.trace import (
    Call,
    Facts,
    Held,
    Message,
    Outcome,
    Risk,
    Role,
    Slots,
    Strategy,
    characters,
    check,
    compact,
    extract,
)
from capstate.trace.outcomes import FIELDS, Row

C1 = ("c1", 0)
KEEL = [
    Message("s", Role.SYSTEM, "Answer from evidence."),
    Message("u1", Role.USER, "Why did payments fail?"),
    Message("a1", Role.ASSISTANT, calls=(Call("c1", "search_incident", {"query": "payment"}),)),
    Message("t1", Role.TOOL, '{"ok": true}', result_for="c1", outcome=Outcome.OK, evidence="INC-42"),
    Message("a2", Role.ASSISTANT, "INC-42 shows recent timeouts."),
    Message("u2", Role.USER, "And today?"),
]


def facts(**more: Any) -> Facts:
    return Facts(**{"stored": None, "risks": {C1: Risk.READ}, **more})


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


def never(_: Sequence[Message]) -> str:
    raise AssertionError("the summariser was called")


def test_the_lesson_s_example_end_to_end() -> None:
    """Strategy, sources and order of the lesson's run: system, summary, latest conclusion, latest request (CP-01)."""
    made = compact(KEEL, facts=facts(), summarise=extract, keep_last=2, id="compaction-summary")

    assert made.strategy == "tool-trace-summary"
    assert made.sources == made.removed == ("u1", "a1", "t1")
    assert ids(made.messages) == ["s", "compaction-summary", "a2", "u2"]
    assert [message.role for message in made.messages] == ["system", "summary", "assistant", "user"]
    assert made.messages[1].covers == made.sources
    assert check(made.messages) == ()
    assert made.slots is not None
    assert made.slots.goal == "Why did payments fail?"
    assert made.slots.resources == ("INC-42",)
    (row,) = made.rows
    assert (row.key, row.tool, row.outcome, row.evidence) == (C1, "search_incident", Outcome.OK, "INC-42")
    assert (row.message, row.source, row.arguments) == ("a1", "t1", KEEL[2].calls[0].digest)


def test_a_suffix_that_begins_at_a_result_takes_its_call_along() -> None:
    """The lesson's two messages, a result and a request: the call stays with them (CP-04, XP-05)."""
    history = [*KEEL[:4], Message("u2", Role.USER, "go on")]
    made = compact(history, facts=facts(), summarise=extract, keep_last=2)

    assert ids(made.messages)[-3:] == ["a1", "t1", "u2"]
    assert made.sources == ("u1",)
    assert made.strategy is Strategy.MESSAGES


UNIT = [
    Message("u1", Role.USER, "look"),
    Message("a1", Role.ASSISTANT, calls=(Call("c1", "git/log"), Call("c2", "git/log"))),
    Message("t2", Role.TOOL, "b", result_for="c2", outcome=Outcome.OK),
    Message("t1", Role.TOOL, "a", result_for="c1", outcome=Outcome.OK),
    Message("u2", Role.USER, "go on"),
]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"streaming": {("c2", 0)}}, Held.STREAMING),
        ({"running": {("c2", 0)}}, Held.RUNNING),
        ({"waiting": {("c2", 0)}}, Held.NEEDS_APPROVAL),
        ({"stored": {("c1", 0)}}, Held.NOT_STORED),
        ({"pinned": {"t2"}}, Held.PINNED),
    ],
    ids=lambda value: value if isinstance(value, Held) else "",
)
def test_one_call_that_is_not_closed_holds_its_whole_unit(more: dict[str, Any], why: Held) -> None:
    """Each condition of CP-06 alone: the unit stays whole and in place, and the reason is told."""
    made = compact(UNIT, facts=Facts(**{"stored": None, **more}), summarise=extract, keep_last=1)

    assert ids(made.messages)[1:] == ["a1", "t2", "t1", "u2"]
    assert made.removed == ("u1",)
    assert [(kept.message, kept.call, kept.why) for kept in made.kept] == [("a1", ("c2", 0), why)]


def test_a_call_without_a_result_holds_its_unit_also_if_it_does_not_run() -> None:
    """Nobody knows how it ended; a repair says so, no summary does."""
    made = compact([*UNIT[:3], UNIT[4]], facts=Facts(stored=None), summarise=extract, keep_last=1)

    assert ids(made.messages)[1:] == ["a1", "t2", "u2"]
    assert [kept.why for kept in made.kept] == [Held.MISSING_RESULT]


def test_a_pinned_call_message_holds_its_results() -> None:
    """Pinning any message of a unit pins the unit; a plain pinned message stays alone."""
    made = compact(UNIT, facts=Facts(stored=None, pinned={"a1"}), summarise=extract, keep_last=0)
    assert [message.id for message in made.messages if message.role is not Role.SUMMARY] == ["a1", "t2", "t1"]

    made = compact(UNIT, facts=Facts(stored=None, pinned={"u1", "elsewhere"}), summarise=extract, keep_last=1)
    assert ids(made.messages)[0] == "u1"
    assert made.removed == ("a1", "t2", "t1")


def test_evidence_is_stored_only_if_somebody_says_so() -> None:
    """There is no default: a caller that forgets to say keeps its results."""
    with pytest.raises(TypeError, match="stored"):
        Facts()  # type: ignore[call-arg]
    assert compact(UNIT[:4], facts=Facts(stored=()), summarise=extract, keep_last=0).removed == ("u1",)


# -- what the summariser gets


def seen(risk: Risk | None, outcome: Outcome | None, **details: str) -> tuple[list[Message], Any]:
    """The messages that a summariser gets of one unit, and the row."""
    got: list[Message] = []

    def summarise(messages: Sequence[Message]) -> str:
        got.extend(messages)
        return "some work"

    unit = [
        Message("a1", Role.ASSISTANT, calls=(Call("c1", "any/tool", {"key": "SECRET"}),), native={"raw": "SECRET"}),
        Message("t1", Role.TOOL, "SECRET", result_for="c1", outcome=outcome, evidence="E1", native="SECRET", api="x"),
    ]
    known = Facts(
        stored=None,
        risks={} if risk is None else {C1: risk},
        operations={C1: "op-1"},
        details={C1: details} if details else {},
    )
    made = compact(unit, facts=known, summarise=summarise, keep_last=0)
    return got, made


@pytest.mark.parametrize("risk", list(Risk))
@pytest.mark.parametrize("outcome", [*Outcome, None])
def test_only_a_successful_read_is_given_to_be_retold(risk: Risk, outcome: Outcome | None) -> None:
    """Of any other class or outcome the summariser gets the fixed line: no argument, no text, no native form."""
    got, made = seen(risk, outcome)
    free = risk in (Risk.READ, Risk.READ_ONCE) and outcome in (Outcome.OK, None)

    assert (got[1].text == "SECRET") is free
    assert ("SECRET" in repr([(message, message.native) for message in got])) is free
    assert [message.native for message in got] == [None, None]
    if not free:
        assert got[1].text == made.rows[0].line
        assert got[0].calls[0].arguments == {}
        assert "SECRET" not in made.summary.text
    assert made.rows[0].outcome is outcome
    assert got[1].outcome is outcome


def test_a_class_that_nobody_gave_is_irreversible() -> None:
    """What might have an effect is not given away."""
    got, made = seen(None, Outcome.OK)

    assert made.rows[0].risk is Risk.IRREVERSIBLE
    assert "SECRET" not in repr(got)


@pytest.mark.parametrize("risk", list(Risk))
def test_each_class_keeps_its_fixed_fields_in_text_and_row(risk: Risk) -> None:
    """Table R-1: operation, evidence and outcome of every class, and the fields of its own."""
    details = {name: f"value of {name}" for name in FIELDS[risk]}
    _, made = seen(risk, Outcome.OK, **details)
    (row,) = made.rows

    assert dict(row.details) == details
    assert (row.operation, row.evidence) == ("op-1", "E1")
    for value in ("ok", '"op-1"', '"E1"', *details.values()):
        assert value in made.summary.text
    assert (row.arguments is None) is (risk is Risk.SENSITIVE)


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.OK}))
def test_a_bad_end_keeps_its_state_in_any_class(outcome: Outcome) -> None:
    """The last known state and what reconciliation said are told; of a success they are no fields of a read."""
    _, made = seen(Risk.READ, outcome, state="sent", reconciliation="asked twice")
    assert 'state "sent"' in made.summary.text
    assert outcome.value in made.summary.text

    with pytest.raises(InvalidInputError, match="details of call 'c1', read"):
        seen(Risk.READ, Outcome.OK, state="sent")


def test_a_field_that_is_no_text_or_of_another_class_is_refused() -> None:
    """One error names call, class and what is allowed."""
    with pytest.raises(InvalidInputError, match=r"details of call 'c1', reversible.*at, resources, state.*approval"):
        seen(Risk.REVERSIBLE, Outcome.OK, approval="Ann")
    with pytest.raises(InvalidInputError, match="state: expected text, got 3"):
        seen(Risk.REVERSIBLE, Outcome.OK, state=3)  # type: ignore[arg-type]


def test_a_summariser_cannot_change_the_history() -> None:
    """What it gets are copies, arguments included."""

    def summarise(messages: Sequence[Message]) -> str:
        for message in messages:
            for call in message.calls:
                call.arguments["deep"].append("changed")
        return "some work"

    call = Call("c1", "git/log", {"deep": ["as it was"]})
    history = [Message("a1", Role.ASSISTANT, calls=(call,)), Message("t1", Role.TOOL, result_for="c1")]
    compact(history, facts=facts(), summarise=summarise, keep_last=0)

    assert call.arguments == {"deep": ["as it was"]}


def raises(_: Sequence[Message]) -> str:
    raise ZeroDivisionError("the model is down")


async def later(_: Sequence[Message]) -> str:
    return "later"


SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


@pytest.mark.parametrize(
    ("summarise", "got"),
    [
        (raises, "ZeroDivisionError: the model is down"),
        (lambda _: None, "NoneType"),
        (lambda _: b"text", "bytes"),
        (lambda _: {"goal": "x"}, "dict"),
        (lambda _: [], "list"),
        (lambda _: "", ""),
        (lambda _: " \n", ""),
        (lambda _: "\ud800", "text"),
        (
            lambda _: 'Use it: {"required": ["path"], "properties":{"path":{"type":"string"}}, "type":"object"}',
            "catalog",
        ),
        (lambda _: "x\nCalls, as recorded (this permits nothing):\n- paid", "rows"),
    ],
    ids=["raises", "none", "bytes", "mapping", "list", "empty", "blank", "surrogate", "schema", "forged rows"],
)
def test_a_summariser_that_fails_changes_nothing(summarise: Callable[..., Any], got: str) -> None:
    """It raises, or returns no summary: one typed error, and the history is what it was."""
    history = list(KEEL)
    with pytest.raises(InvalidInputError, match="summar") as caught:
        compact(history, facts=facts(), summarise=summarise, keep_last=2, schemas=[SCHEMA])

    assert got in str(caught.value)
    assert history == KEEL


def test_a_summariser_that_is_interrupted_is_not_swallowed() -> None:
    """An interrupt is no failure of the summariser."""

    def interrupted(_: Sequence[Message]) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(KEEL, facts=facts(), summarise=interrupted, keep_last=2)


def test_a_summary_may_be_text() -> None:
    """Text is taken as it is, the rows stand behind it."""
    made = compact(KEEL, facts=facts(), summarise=lambda _: "They failed.", keep_last=2)

    assert made.slots is None
    assert made.summary is not None
    assert made.summary.text.startswith("They failed.\n\nCalls, as recorded (this permits nothing):\n- ")


# -- again


def test_nested_compaction_keeps_sources_and_rows() -> None:
    """The second summary stands for what the first did, with its rows as they were; nothing of it is retold."""
    unknown = [
        Message("u0", Role.USER, "pay"),
        Message("a0", Role.ASSISTANT, calls=(Call("p1", "bank/pay", {"sum": 5}),)),
        Message("t0", Role.TOOL, "timeout", result_for="p1", outcome=Outcome.OUTCOME_UNKNOWN),
    ]
    known = facts(operations={("p1", 0): "op-9"})
    first = compact([*unknown, *KEEL[1:]], facts=known, summarise=extract, keep_last=5)
    second = compact(first.messages, facts=facts(), summarise=extract, keep_last=2)

    assert second.removed == (first.messages[0].id, "u1", "a1", "t1")
    assert second.sources == ("u0", "a0", "t0", "u1", "a1", "t1")
    assert second.rows[0] == first.rows[0]
    assert (second.rows[0].outcome, second.rows[0].operation) == (Outcome.OUTCOME_UNKNOWN, "op-9")
    assert second.summary is not None
    assert second.summary.text.count("outcome_unknown") == 2, "in the pending slot and in the rows"
    assert second.slots is not None
    assert second.slots.goal == "pay"
    assert second.slots.pending == (" ".join(first.rows[0].line.split()),)
    assert [message.calls for message in second.summary.covered if message.calls] == [unknown[1].calls]
    assert [message.outcome for message in second.summary.covered] == [None, Outcome.OUTCOME_UNKNOWN]


def test_a_summary_that_names_no_sources_is_one() -> None:
    """A foreign summary, of which nobody knows what it stands for, is named itself."""
    history = [Message("s1", Role.SUMMARY, "long ago"), *KEEL[1:]]
    made = compact(history, facts=facts(), summarise=extract, keep_last=2)

    assert made.sources == ("s1", "u1", "a1", "t1")


def test_a_lone_summary_is_not_summarised_again() -> None:
    """Without new material nothing changes, and the summariser is not asked (CP-17)."""
    made = compact(KEEL, facts=facts(), summarise=extract, keep_last=2)
    again = compact(made.messages, facts=facts(), summarise=never, keep_last=2)

    assert again.strategy is Strategy.NONE
    assert again.messages == made.messages
    assert again.summary is None
    assert again.rows == ()


def test_a_summary_stands_inside_no_unit_that_stays() -> None:
    """A message between a call and its late result may go; its summary stands before the unit."""
    history = [
        Message("a1", Role.ASSISTANT, calls=(Call("c1", "git/log"),)),
        Message("u1", Role.USER, "meanwhile"),
        Message("t1", Role.TOOL, result_for="c1"),
        Message("u2", Role.USER, "go on"),
    ]
    made = compact(history, facts=Facts(stored=()), summarise=extract, keep_last=1, id="sum")

    assert ids(made.messages) == ["sum", "a1", "t1", "u2"]
    assert check(made.messages) == ()


def test_what_is_no_text_for_everybody_stays() -> None:
    """System messages and one issuer's items are never summarised."""
    history = [Message("u1", Role.USER, "x"), Message("o1", Role.OPAQUE, issuer="i"), Message("s1", Role.SYSTEM, "y")]
    made = compact(history, facts=facts(), summarise=extract, keep_last=0)

    assert ids(made.messages)[1:] == ["o1", "s1"]


# -- budgets


def long_history(rounds: int) -> list[Message]:
    made = [Message("s", Role.SYSTEM, "Be brief."), Message("u", Role.USER, "Find it.")]
    for n in range(rounds):
        made.append(Message(f"a{n}", Role.ASSISTANT, calls=(Call(f"c{n}", "git/log"),)))
        made.append(Message(f"t{n}", Role.TOOL, "x" * 200, result_for=f"c{n}", outcome=Outcome.OK))
    return made


READS = Facts(stored=None, risks={(f"c{n}", 0): Risk.READ for n in range(40)})


@pytest.mark.parametrize("budget", [0, 1, 700, 1500, 2500, 4000, 8000, 10_000])
def test_a_budget_takes_whole_units_and_leaves_the_latest_request(budget: int) -> None:
    """What remains fits, or what is over is told; units are whole, and the user's request is there (CP-05)."""
    history = long_history(40)
    made = compact(history, facts=READS, summarise=lambda _: "Looked.", budget=budget)
    size = sum(map(characters, made.messages))

    assert check(made.messages) == ()
    assert made.over == max(0, size - budget)
    assert "u" in ids(made.messages)
    assert size <= budget or made.over > 0
    assert (budget > 1000) <= (made.over == 0)
    if made.strategy is not Strategy.NONE:
        assert size < sum(map(characters, history))


def test_no_more_goes_than_a_budget_asks_for() -> None:
    """With one unit less taken away it would not fit."""
    history = long_history(40)
    made = compact(history, facts=READS, summarise=lambda _: "Looked.", budget=4000)
    kept = sum(message.role is Role.TOOL for message in made.messages)
    more = compact(history, facts=READS, summarise=lambda _: "Looked.", keep_last=2 * (kept + 1))

    assert sum(map(characters, made.messages)) <= 4000 < sum(map(characters, more.messages))


def test_a_budget_is_counted_as_the_caller_counts() -> None:
    """With a counting function of messages alone, so many messages remain."""
    made = compact(long_history(40), facts=READS, summarise=extract, budget=11, count=lambda _: 1)

    assert len(made.messages) == 11
    with pytest.raises(InvalidInputError, match="count: expected a function"):
        compact(long_history(2), facts=READS, summarise=extract, budget=1, count=lambda _: -1)
    with pytest.raises(InvalidInputError, match="count: expected a function"):
        compact(long_history(2), facts=READS, summarise=extract, budget=1, count=lambda _: 0.5)  # type: ignore[arg-type,return-value]


def test_what_fits_is_left_alone() -> None:
    """Nobody is asked for a summary."""
    made = compact(KEEL, facts=facts(), summarise=never, budget=10_000)

    assert (made.strategy, made.messages, made.over) == (Strategy.NONE, tuple(KEEL), 0)


def test_a_summary_that_is_no_smaller_is_not_used() -> None:
    """A budget that only a longer history could meet changes nothing, and says by how much it is over."""
    made = compact(KEEL, facts=facts(), summarise=lambda _: "x" * 10_000, budget=50)

    assert made.strategy is Strategy.NONE
    assert made.messages == tuple(KEEL)
    assert made.over == sum(map(characters, KEEL)) - 50


# -- bad input


@pytest.mark.parametrize(
    ("wish", "place"),
    [
        ({}, "compaction"),
        ({"keep_last": 1, "budget": 3}, "compaction"),
        ({"keep_last": 1, "keep_from": "u1"}, "compaction"),
        ({"keep_last": -1}, "keep_last"),
        ({"keep_last": True}, "keep_last"),
        ({"keep_last": 1.5}, "keep_last"),
        ({"budget": -1}, "budget"),
        ({"keep_from": "gone"}, "keep_from"),
        ({"keep_last": 2, "id": "s"}, "id"),
        ({"keep_last": 2, "id": "u1"}, "id"),
        ({"keep_last": 2, "id": ""}, "id"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value),
)
def test_a_wish_that_means_nothing_is_refused(wish: dict[str, Any], place: str) -> None:
    """No wish, two, none that counts, or an id that is taken: one error that names the argument."""
    with pytest.raises(InvalidInputError) as caught:
        compact(KEEL, facts=facts(), summarise=extract, **wish)
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("history", "place"),
    [
        ([*KEEL[:2], KEEL[3], *KEEL[4:]], "messages[2]"),
        ([*KEEL[:4], evolve(KEEL[3], id="t2"), *KEEL[4:]], "messages[4]"),
        ([*KEEL[:3], evolve(KEEL[2], id="a9"), *KEEL[3:]], "messages[3]"),
        ([*KEEL[:3], {"role": "tool"}], "messages[3]"),
        ([KEEL[0], evolve(KEEL[1], id=""), *KEEL[2:]], "messages[1].id"),
        ([*KEEL, evolve(KEEL[1], text="again")], "messages[6].id"),
        ([Message("s0", Role.SUMMARY, "x", covers=("u2",)), *KEEL[1:]], "covers of a summary"),
    ],
    ids=["orphan", "duplicate result", "duplicate call", "no message", "no id", "id twice", "covers what is there"],
)
def test_a_history_whose_sources_cannot_be_told_is_refused(history: list[Any], place: str) -> None:
    """A broken trace is repaired first; a source has an id of its own."""
    with pytest.raises(InvalidInputError) as caught:
        compact(history, facts=facts(), summarise=never, keep_last=2)
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"running": {"c1"}}, "facts.running"),
        ({"stored": [["c1", 0]]}, "facts"),
        ({"waiting": {("c1", True)}}, "facts.waiting"),
        ({"risks": {"c1": Risk.READ}}, "facts.risks"),
        ({"risks": {C1: "harmless"}}, "facts.risks[('c1', 0)]"),
        ({"operations": {("c1",): "op"}}, "facts.operations"),
        ({"pinned": "u1"}, "facts.pinned"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_facts_that_would_hold_nothing_are_refused(wrong: dict[str, Any], place: str) -> None:
    """A bare call id would protect no call: keys are pairs of id and occurrence."""
    with pytest.raises(InvalidInputError) as caught:
        Facts(**{"stored": None, **wrong})
    assert caught.value.place == place


def test_arguments_that_are_no_json_do_not_hold_a_unit_for_ever() -> None:
    """Their row has no digest."""
    odd = Call("c1", "git/log", {"n": float("nan")})
    history = [Message("a1", Role.ASSISTANT, calls=(odd,)), Message("t1", Role.TOOL, result_for="c1")]

    assert compact(history, facts=facts(), summarise=lambda _: "x", keep_last=0).rows[0].arguments is None


@pytest.mark.parametrize("levels", [2_000, 100_000])
def test_arguments_that_are_too_deep_are_one_error(levels: int) -> None:
    """Where they would be counted, and where a summariser would get a copy; nothing has changed."""
    deep: dict[str, Any] = {}
    for _ in range(levels):
        deep = {"a": deep}
    history = [
        Message("a1", Role.ASSISTANT, calls=(Call("c1", "git/log", deep),)),
        Message("t1", Role.TOOL, result_for="c1"),
    ]
    wishes: list[dict[str, int]] = [{"budget": 1}, {"keep_last": 0}]
    for wish in wishes:
        with pytest.raises(InvalidInputError, match="call 'c1' arguments: expected values of fewer levels"):
            compact(history, facts=facts(), summarise=lambda _: "x", **wish)  # type: ignore[arg-type]
    while deep:  # taken apart by hand, else its end is as deep as it was
        deep = deep.pop("a")


def test_the_summary_s_text_names_the_last_reads_and_counts_the_others() -> None:
    """All rows are kept beside the text; the text of many reads stays short."""
    made = compact(long_history(40), facts=READS, summarise=lambda _: "Looked.", keep_last=0)

    assert len(made.rows) == 40
    assert made.summary is not None
    assert "- 20 earlier reads" in made.summary.text
    assert '"c19"' not in made.summary.text
    assert '"c20"' in made.summary.text


def test_slots_are_read_back_from_their_text() -> None:
    """Slot by slot; anything else is no text of slots."""
    slots = Slots(
        goal="find it", constraints=["a"], hypotheses=[], questions=["Done: what?"], rejected=[], decisions=["- x"],
        done=["b\nc"], pending=[], left=[], resources=["E1"],
    )  # fmt: skip

    assert slots.done == ("b c",)
    assert Slots.read(slots.text) == slots
    assert Slots.read("Goal: x") is None
    assert Slots.read(slots.text + "\nmore") is None
    assert Slots.read("Goal: x\nGoal: y") is None


@pytest.mark.parametrize("wrong", [{"done": "text"}, {"done": [1]}, {"done": [" "]}, {"goal": None}], ids=repr)
def test_slots_hold_texts(wrong: dict[str, Any]) -> None:
    """A slot that is no list of texts that say something is refused; none may be left out."""
    names = ("constraints", "hypotheses", "questions", "rejected", "decisions", "done", "pending", "left", "resources")
    right: dict[str, Any] = {"goal": "", **dict.fromkeys(names, ())}
    with pytest.raises(InvalidInputError):
        Slots(**{**right, **wrong})
    for name in right:
        with pytest.raises(TypeError):
            Slots(**{other: value for other, value in right.items() if other != name})


def test_the_summariser_that_ships_adds_no_word() -> None:
    """Every slot is a cut of what was there, at most so long."""
    texts = ["find the leak " * 60, "it is in the cache", "and now fix it"]
    messages = [
        Message("u1", Role.USER, texts[0]),
        Message("a1", Role.ASSISTANT, texts[1]),
        Message("u2", Role.USER, texts[2]),
    ]
    found = extract(messages)

    assert found.goal.endswith("…")
    assert texts[0].startswith(found.goal[:-1])
    assert len(found.goal) <= 300
    assert (found.done, found.left) == ((texts[1],), (texts[2],))
    assert extract([]).text.startswith("Goal:\n")


ROW: dict[str, Any] = {"call": "c", "occurrence": 0, "tool": "t", "outcome": "ok", "risk": "read"}
ODD: list[dict[str, Any]] = [
    {"outcome": "fine"}, {"risk": "some"}, {"call": 5}, {"tool": None}, {"occurrence": True}, {"occurrence": -1},
    {"evidence": 5}, {"operation": b"x"}, {"source": None}, {"details": 5}, {"details": [["a"]]},
    {"details": {"x": "y"}}, {"risk": "verification", "details": {"verdict": 5}}, {"details": {5: "x"}},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=[f"{n} {next(iter(one))}" for n, one in enumerate(ODD)])
def test_a_row_of_another_kind_is_an_error(odd: dict[str, Any]) -> None:
    """Words are read as what they name, so that a row may come back from JSON; anything else is named."""
    assert Row(**ROW).line == Row(**{**ROW, "outcome": Outcome.OK, "risk": Risk.READ}).line
    with pytest.raises(InvalidInputError, match=r"^(row|details)"):
        Row(**{**ROW, **odd})
