"""Each corruption of table R-2, put into a good candidate, is found by its own rule (CP-16)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capstate.capabilities import Group, Tool
from capstate.errors import InvalidInputError
from capstate.runtime import Runtime
from capstate.trace import (
    Call,
    Candidate,
    Choice,
    Cite,
    Facts,
    Known,
    Message,
    Outcome,
    Refers,
    Risk,
    Role,
    Row,
    Slots,
    characters,
    choose,
    compact,
    extract,
    violations,
)
from capstate.trace.contents import holds_schema, permissions
from tests.trace.histories import history as random_history

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
HASH = "a94a8fe5cc"
HISTORY = [
    Message("s", Role.SYSTEM, "Answer from evidence."),
    Message("u1", Role.USER, f"Deploy commit {HASH}, and pay the invoice. " + "Much more text. " * 60),
    Message("a1", Role.ASSISTANT, calls=(Call("c1", "git/log", {"n": 1}), Call("c2", "bank/pay", {"sum": 5}))),
    Message("t1", Role.TOOL, "log " * 200, result_for="c1", outcome=Outcome.OK, evidence="E1"),
    Message("t2", Role.TOOL, "timeout", result_for="c2", outcome=Outcome.OUTCOME_UNKNOWN),
    Message("a2", Role.ASSISTANT, f"Deployed {HASH}."),
    Message("u2", Role.USER, "And now?"),
]
FACTS = Facts(stored=None, risks={("c1", 0): Risk.READ}, pinned={"u2"})
KNOWN = Known(
    HISTORY,
    version=7,
    outcomes={("c1", 0): Outcome.OK, ("c2", 0): Outcome.OUTCOME_UNKNOWN},
    references={(Refers.EVIDENCE, "E1"): "d1", (Refers.DECISION, "D1"): "d2"},
    decisions={"D1": "active", "D2": "under_review"},
    pinned={"u2"},
    identifiers={HASH, "never there"},
    schemas=[SCHEMA],
    tools=["bank/pay", "git/log"],
)
MADE = compact(HISTORY, facts=FACTS, summarise=extract, keep_last=2, id="sum")
GOOD = Candidate.of(
    MADE,
    version=7,
    cites=[Cite(Refers.EVIDENCE, "E1", "d1"), Cite("decision", "D1")],
    decisions={"D1": "active", "D2": "under_review"},
)


def summary(candidate: Candidate, **changed: Any) -> Candidate:
    """The candidate with a changed summary."""
    return messages(candidate, lambda m: evolve(m, **changed) if m.id == "sum" else m)


def messages(candidate: Candidate, change: Callable[[Message], Message | None]) -> Candidate:
    return evolve(candidate, messages=tuple(filter(None, map(change, candidate.messages))))


def slots_without(name: str) -> dict[str, Any]:
    return {n: getattr(MADE.slots, n) for n in ("goal", "constraints", "hypotheses", "questions", "rejected",
            "decisions", "done", "pending", "left", "resources") if n != name}  # fmt: skip


def test_a_good_candidate_has_no_violation() -> None:
    """What a compaction made of the history, with what it cites."""
    assert violations(GOOD, KNOWN) == ()


def row(n: int, **changed: Any) -> tuple[Row, ...]:
    return tuple(evolve(one, **changed) if at == n else one for at, one in enumerate(MADE.rows))


EMPTY = Slots(**{**slots_without(""), "pending": ()})
CORRUPTIONS: dict[str, tuple[int, Candidate]] = {
    "an orphan": (1, evolve(GOOD, messages=(*GOOD.messages, HISTORY[3]))),
    "a call without a result": (1, evolve(GOOD, messages=(*GOOD.messages, HISTORY[2]))),
    "no slots": (2, evolve(GOOD, slots=None)),
    "a slot that is missing": (2, evolve(GOOD, slots=slots_without("rejected"))),
    "nothing pending although one is unknown": (2, evolve(GOOD, slots=EMPTY)),
    "nothing pending, from elsewhere": (2, evolve(GOOD, slots={**slots_without("pending"), "pending": []})),
    "an unknown end told as done": (3, summary(GOOD, rows=row(1, outcome=Outcome.OK))),
    "an end told as none": (3, summary(GOOD, rows=row(0, outcome=None))),
    "a row that is missing": (3, summary(GOOD, rows=MADE.rows[:1])),
    "a row twice": (3, summary(GOOD, rows=(*MADE.rows, MADE.rows[0]))),
    "a row of another call": (3, summary(GOOD, rows=row(0, call="c9"))),
    "evidence that nobody has": (4, evolve(GOOD, cites=(Cite(Refers.EVIDENCE, "E9"),))),
    "evidence that is another": (4, evolve(GOOD, cites=(Cite(Refers.EVIDENCE, "E1", "d9"),))),
    "a trace that nobody has": (4, evolve(GOOD, cites=(Cite(Refers.TRACE, "T1"),))),
    "a row's evidence that nobody has": (4, summary(GOOD, rows=row(0, evidence="E9"))),
    "a source that is missing": (5, evolve(summary(GOOD, covers=MADE.sources[1:]), sources=MADE.sources[1:])),
    "a source that is there": (5, evolve(summary(GOOD, covers=(*MADE.sources, "u2")), sources=(*MADE.sources, "u2"))),
    "a source twice": (5, evolve(summary(GOOD, covers=(*MADE.sources, "u1")), sources=(*MADE.sources, "u1"))),
    "other sources than the summary's": (5, evolve(GOOD, sources=MADE.sources[::-1])),
    "no summary": (5, messages(GOOD, lambda m: None if m.id == "sum" else m)),
    "a summary under an old id": (5, evolve(GOOD, summary="u1", messages=tuple(
        evolve(m, id="u1") if m.id == "sum" else m for m in GOOD.messages))),
    "another order": (5, evolve(GOOD, messages=(*GOOD.messages[:2], GOOD.messages[3], GOOD.messages[2]))),
    "a message that was never there": (5, evolve(GOOD, messages=(*GOOD.messages, Message("new", Role.USER, "x")))),
    "a message that was altered": (5, messages(GOOD, lambda m: evolve(m, text=HASH) if m.id == "a2" else m)),
    "a decision that is missing": (6, evolve(GOOD, decisions={"D1": "active"})),
    "a decision that was flipped": (6, evolve(GOOD, decisions={"D1": "active", "D2": "active"})),
    "a pinned message that is gone": (7, messages(GOOD, lambda m: None if m.id == "u2" else m)),
    "a pinned message that was altered": (7, messages(GOOD, lambda m: evolve(m, text="!") if m.id == "u2" else m)),
    "an identifier that lost a letter": (7, messages(summary(GOOD, text="x"), lambda m:
        evolve(m, text=HASH[:-1]) if m.id == "a2" else m)),
    "a schema": (8, summary(GOOD, text=f'{HASH} {{"properties": {{"path":{{"type":"string"}}}}}}')),
    "a permission": (8, summary(GOOD, text=f"{HASH}. The model may now call bank/pay.")),
    "an older version": (9, evolve(GOOD, version=6)),
    "more than it replaces": (10, summary(GOOD, text="x" * 5000)),
}  # fmt: skip


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_corruption_is_found_by_its_rule(name: str) -> None:
    """Rule, place, what was expected, and what was there."""
    rule, candidate = CORRUPTIONS[name]
    found = violations(candidate, KNOWN)

    assert rule in {one.rule for one in found}
    assert all(one.place and one.expected and one.got for one in found)
    assert [one.rule for one in found] == sorted(one.rule for one in found)


def test_every_rule_has_a_corruption() -> None:
    """Ten rules."""
    assert {rule for rule, _ in CORRUPTIONS.values()} == set(range(1, 11))


def test_every_violation_is_told() -> None:
    """The first hides none of the later ones."""
    wreck = evolve(GOOD, version=6, slots=None, decisions={}, sources=(), cites=(Cite(Refers.EVIDENCE, "E9"),))
    assert {one.rule for one in violations(wreck, KNOWN)} == {2, 4, 5, 6, 9}


def test_the_event_log_decides_how_a_call_ended() -> None:
    """A history that says ok, where the log knows better, makes no good candidate: neither in a row nor in place."""
    knows = evolve(KNOWN, outcomes={**KNOWN.outcomes, ("c1", 0): Outcome.ERROR})
    assert {one.rule for one in violations(GOOD, knows)} == {3}

    stays = Candidate.of(compact(HISTORY, facts=FACTS, summarise=extract, keep_last=5, id="sum"), version=7)
    told = [one for one in violations(stays, knows) if one.rule == 3]
    assert [(one.place, one.got) for one in told] == [("messages[3]", "ok")]


def test_a_call_that_runs_needs_no_result() -> None:
    """Only of that call, and only if the host says that it runs."""
    running = [*HISTORY, Message("a3", Role.ASSISTANT, calls=(Call("c3", "git/log"),))]
    made = compact(running, facts=FACTS, summarise=extract, keep_last=3, id="sum")
    candidate = evolve(GOOD, messages=made.messages)

    assert violations(candidate, evolve(KNOWN, messages=running, running={("c3", 0)})) == ()
    assert {one.rule for one in violations(candidate, evolve(KNOWN, messages=running))} == {1}


def test_what_the_target_refuses_is_a_violation() -> None:
    """The words are its adapter's."""
    found = violations(GOOD, evolve(KNOWN, refuses=lambda _: ["messages[0]: system comes first"]))
    assert [(one.rule, one.got) for one in found] == [(1, "messages[0]: system comes first")]


@given(st.integers(0, 2**32), st.integers(0, 20))
def test_what_a_compaction_made_is_a_good_candidate(seed: int, keep: int) -> None:
    """Of any random history: no rule but those of its own faults and of the size speaks against it."""
    before, facts = random_history(seed)
    made = compact(before, facts=facts, summarise=extract, keep_last=keep)
    if made.summary is None:
        return
    cites = {(Refers.EVIDENCE, row.evidence): "d" for row in made.rows if row.evidence is not None}
    known = Known(before, version=1, outcomes={}, references=cites, pinned=facts.pinned)

    assert {one.rule for one in violations(Candidate.of(made, version=1), known)} <= {1, 10}
    assert sum(map(characters, made.messages)) > 0


# -- choosing


def never() -> Candidate:
    raise AssertionError("it was made although a good one was there")


def failed() -> Candidate:
    return Candidate.of(compact(HISTORY, facts=FACTS, summarise=lambda _: "", keep_last=2), version=7)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corrupted_candidate_is_passed_over_for_a_good_one(name: str) -> None:
    """The fall-back is taken, and what spoke against the first is told; without one nothing is taken."""
    rule, wrong = CORRUPTIONS[name]
    made = choose([lambda: wrong, lambda: GOOD, never], KNOWN)
    assert made.candidate is GOOD
    assert rule in {one.rule for one in made.refused[0]}

    none = choose([lambda: wrong], KNOWN)
    assert none.candidate is None
    assert none.refused == made.refused
    assert choose([], KNOWN) == Choice(None)


def test_a_summariser_that_failed_is_passed_over_as_well() -> None:
    """Its error is the reason; what is no candidate at all is the caller's mistake."""
    no_candidate: Any = lambda: "x"  # noqa: E731 - of any type
    made = choose([failed, lambda: GOOD], KNOWN)
    assert made.candidate is GOOD
    assert [(one.rule, one.place) for one in made.refused[0]] == [(0, "summarise")]
    with pytest.raises(InvalidInputError, match=r"makers\[0\]: expected a function that gives a Candidate, got str"):
        choose([no_candidate], KNOWN)


def test_only_a_good_candidate_begins_an_epoch(tmp_path: Path) -> None:
    """The host's few lines: a refused one leaves epoch and history as they were."""
    bank = Group("bank", [Tool("pay")])
    with Runtime(tmp_path / "a.db", catalog=lambda: [bank], grants={"config": lambda _: ["bank/*"]}) as runtime:
        session = runtime.session("s")
        session.reproject("open", history=HISTORY)
        history = list(HISTORY)
        for wrong, begun in ((CORRUPTIONS["an unknown end told as done"][1], 0), (GOOD, 1)):
            made = choose([lambda one=wrong: one], KNOWN)  # type: ignore[misc]
            if made.candidate is not None:
                history = list(made.candidate.messages)
                session.reproject("compaction", history=history)
            assert session.receipt is not None
            assert (session.receipt.epoch, len(history)) == (begun, len(GOOD.messages if begun else HISTORY))


# -- what no summary says


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}', True),
        ('{"required":["path"],"properties":{"path":{"type":"string"}},"type":"object"}', True),
        ('say {"x": [{"properties": {"path": {"type": "string"}}}]}', True),
        ('{"path": {"type": "string"}}', True),
        ('\'{\\"path\\": {\\"type\\": \\"string\\"}}\'', True),
        ("it takes a path, which is a string", False),
        ('{"path": "string"} and {broken', False),
        ('{"n": 12345678901234567890123}', False),
        ("{" * 3000, False),
    ],
    ids=["as it is", "another order", "inside", "its properties", "escaped", "prose", "other JSON", "huge", "deep"],
)
def test_a_full_schema_is_found_however_it_is_written(text: str, found: bool) -> None:
    """As JSON in any order and spacing, escaped, or by its properties (CP-10)."""
    assert holds_schema(text, [SCHEMA]) is found
    assert not holds_schema(text, [])
    assert not holds_schema(text, [{"type": "object"}])


def test_a_schema_must_be_one() -> None:
    """Else nothing would be looked for."""
    with pytest.raises(ValueError, match=r"schemas\[0\]: expected a mapping"):
        holds_schema("", ["text"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("You may call bank/pay.", 1),
        ("bank/pay is allowed. bank/pay was used.", 1),
        ("It is authorised to run v1.2 of bank/pay! Done.", 1),
        ("Permission for bank/payments was granted.", 0),
        ("bank/pay failed.", 0),
        ("You may call anything.", 0),
    ],
)
def test_a_permission_is_a_sentence_that_names_a_tool(text: str, said: int) -> None:
    """Of a tool of the catalog, whole; other wordings are not found, and grant nothing either."""
    assert len(permissions(text, ["bank/pay"])) == said
    assert permissions(text, []) == ()
