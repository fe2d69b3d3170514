"""Tasks, results and records of children: what is required, what counts, what survives being written down."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capstate.children import ChildRecord, Claim, RecordStatus, Result, Stage, Status, Task, Verification, record
from capstate.errors import InvalidInputError

WHOLE = Result(
    "t1",
    "completed",
    "Published.",
    "verified",
    [Claim("q1", "written", ["E1"], {"E1": "line 3"}), Claim("q2", "uploaded", ["E1", "E2"])],
    ["ftp"],
    ["who reads it?"],
    "run-7",
    [Stage("look", 0, 3), Stage("write", 3, 9)],
)
PARTS: dict[str, Any] = {
    "facts": ["it is in git"], "excluded": [], "tools": ["git/log"], "constraints": [], "output": "a list",
}  # fmt: skip
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
CLAIMS = st.lists(
    st.builds(Claim, TEXTS, TEXTS, st.lists(TEXTS, max_size=3)), max_size=4, unique_by=lambda claim: claim.id
)
RESULTS = st.builds(
    Result, TEXTS, st.sampled_from(Status), st.just("x"), st.sampled_from(Verification), CLAIMS,
    st.lists(TEXTS, max_size=2), st.lists(TEXTS, max_size=2), st.none() | TEXTS,
)  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_a_task_is_required(part: str) -> None:
    """Five parts, an empty list where there is nothing to say; no default says it for the parent."""
    assert Task(**PARTS).to_json() == PARTS
    with pytest.raises(TypeError):
        Task(**{name: value for name, value in PARTS.items() if name != part})
    for wrong in ("text", 5, None, [5], [""], ["\ud800"]):
        if (part, wrong) != ("output", "text"):
            with pytest.raises(InvalidInputError, match=f"task {part}"):
                Task(**{**PARTS, part: wrong})


@pytest.mark.parametrize(
    ("build", "place"),
    [
        (lambda: Result("", "completed"), "result task"),
        (lambda: Result("t", "done"), "result status"),
        (lambda: Result("t", "completed", 5), "result text"),  # type: ignore[arg-type]
        (lambda: Result("t", "completed", verification="sure"), "result verification"),
        (lambda: Result("t", "completed", claims="q"), "result claims"),  # type: ignore[arg-type]
        (lambda: Result("t", "completed", claims=["q"]), r"result claims\[0\]"),  # type: ignore[list-item]
        (lambda: Result("t", "completed", claims=[Claim("a", "x"), Claim("a", "y")]), "result claims"),
        (lambda: Result("t", "completed", rejected=[""]), r"result rejected\[0\]"),
        (lambda: Result("t", "completed", trace_ref=""), "result trace_ref"),
        (lambda: Result("t", "completed", stages=[Stage("a", 0, 3), Stage("b", 2, 4)]), "result stages"),
        (lambda: Result("t", "completed", stages=[Stage("a", 0, 3), Stage("a", 3, 4)]), "result stages"),
        (lambda: Stage("a", 3, 2), "stage 'a'"),
        (lambda: Stage("a", -1, 2), "stage 'a'"),
        (lambda: Stage("a", 0, True), "stage 'a'"),
        (lambda: Claim("", "x"), "claim id"),
        (lambda: Claim("q", ""), "claim 'q'"),
        (lambda: Claim("q", "x", "E1"), "claim 'q' evidence"),
        (lambda: Claim("q", "x", ["E1"], {"E2": "there"}), "claim 'q' places"),
        (lambda: Claim("q", "x", ["E1"], {"E1": ""}), "claim 'q' places"),
        (lambda: Claim("q", "x", ["E1"], 5), "claim 'q' places"),  # type: ignore[arg-type]
        (lambda: record("done", bool), "child result"),  # type: ignore[arg-type]
        (lambda: record(WHOLE, bool, "kid"), "waiting_on"),
    ],
    ids=range(22),
)
def test_a_wrong_part_is_named(build: Callable[[], object], place: str) -> None:
    """One error with the place, what was expected and what was got."""
    with pytest.raises(InvalidInputError, match=place):
        build()


def test_a_claim_counts_if_all_that_it_cites_resolves() -> None:
    """None at all, one that does not, and a store that raises: unsupported. The result is kept as it came."""

    def store(id_: str) -> bool:
        if id_ == "E3":
            raise RuntimeError("the store is down")
        return id_ == "E1"

    claims = [
        Claim("one", "x", ["E1"]),
        Claim("none", "x"),
        Claim("some", "x", ["E1", "E2"]),
        Claim("down", "x", ["E3"]),
    ]
    made = record(Result("t", "completed", verification="verified", claims=claims), store)

    assert made.supported == {"one": True, "none": False, "some": False, "down": False}
    assert made.unsupported == ("none", "some", "down")
    assert made.status is RecordStatus.COMPLETED_UNVERIFIED
    assert made.result.claims == tuple(claims)


def test_a_store_that_answers_something_else_has_nothing() -> None:
    """Only a plain yes is one."""
    assert record(WHOLE, lambda _: "yes").unsupported == ("q1", "q2")  # type: ignore[arg-type,return-value]


def test_a_later_record_may_say_more_or_less() -> None:
    """To look again is to make another record; the first stays what it was."""
    first = record(WHOLE, {"E1"}.__contains__)
    later, expired = record(first.result, {"E1", "E2"}.__contains__), record(first.result, lambda _: False)

    assert (first.unsupported, later.unsupported, expired.unsupported) == (("q2",), (), ("q1", "q2"))
    assert later.status is RecordStatus.COMPLETED


TABLE = {
    (status, verification, whole, waiting): (
        str(status)
        if status is not Status.COMPLETED
        else "incomplete"
        if waiting or verification == "incomplete"
        else "completed"
        if whole and verification == "verified"
        else "completed_unverified"
    )
    for status, verification, whole, waiting in itertools.product(Status, Verification, (False, True), (False, True))
}


def test_the_status_of_a_record_follows_its_table() -> None:
    """Run, verification, support and waiting: every combination; completed alone never means verified."""
    for (status, verification, whole, waiting), expected in TABLE.items():
        result = evolve(WHOLE, status=status, verification=verification)
        made = record(result, {"E1", "E2"}.__contains__ if whole else set[str]().__contains__, ["grand"] * waiting)
        assert made.status.value == expected
        if made.status is RecordStatus.COMPLETED:
            assert (verification, made.unsupported, made.waiting_on) == (Verification.VERIFIED, (), ())


@given(RESULTS, st.sets(TEXTS), st.lists(TEXTS, max_size=3))
def test_a_record_reads_back_as_it_was_written(result: Result, known: set[str], waiting: list[str]) -> None:
    """Through JSON bytes; whoever is waited for is named once, in order."""
    made = record(result, known.__contains__, waiting)

    assert ChildRecord.from_json(orjson.loads(orjson.dumps(made.to_json()))) == made
    assert made.waiting_on == tuple(dict.fromkeys(waiting))
    assert made.supported == {c.id: bool(c.evidence) and set(c.evidence) <= known for c in result.claims}


def damaged(body: Any) -> list[Any]:
    """The body with each part taken away, or exchanged for something of another kind, at every depth."""
    found: list[Any] = [None, 5, [], "x"]
    if isinstance(body, dict):
        for key in body:
            found.append({k: v for k, v in body.items() if k != key})
            found += [{**body, key: wrong} for wrong in damaged(body[key])]
        found.append({**body, "more": 1})
    elif isinstance(body, list):
        for n, part in enumerate(body):
            found += [[*body[:n], wrong, *body[n + 1 :]] for wrong in damaged(part)]
    return found


def test_a_damaged_body_gives_our_error_or_another_record() -> None:
    """Whatever stands in a file: never another exception, and never a claim supported that was not written so."""
    body = record(WHOLE, {"E1"}.__contains__, ["grand"]).to_json()
    refused = 0
    for wrong in damaged(body):
        try:
            read = ChildRecord.from_json(wrong)
        except InvalidInputError:
            refused += 1
            continue
        assert not read.supported.get("q2", False)
    assert refused > 100


def test_a_stage_is_a_bounded_part_of_the_trace() -> None:
    """To look again at one is to read its span alone; an unknown one is an error that names those there are."""
    assert WHOLE.stage("write") == Stage("write", 3, 9)
    with pytest.raises(InvalidInputError, match=r"look.*write"):
        WHOLE.stage("upload")


def test_what_the_parent_keeps_does_not_grow_with_the_childs_trace() -> None:
    """Ten messages or a million: the span is two numbers."""
    sizes = {
        len(orjson.dumps(record(evolve(WHOLE, stages=[Stage("all", 10**6, 10**6 + n)]), bool).to_json()))
        for n in (10, 100_000, 999_999)
    }
    assert len(sizes) == 1
