"""Decisions: what an observation affects, exactly; marks that flip nothing; support that expires."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capstate.decisions import Decision, Graph, Observation, Standing
from capstate.digest import canonical
from capstate.errors import InvalidInputError
from tests.providers.worlds import JSON


def case() -> Graph:
    """The database was excluded as a cause, because it answers in time; and what was built on that."""
    return Graph().add(
        Decision("D1", "the database answers in time", "accepted", evidence=["E042"], turn=3),
        Decision("H1", "the database is the cause", "excluded", premises=["D1"], turn=4),
        Decision("H2", "the new time-out is the cause", "accepted", evidence=["E050"], premises=["H1"], turn=9),
        Decision("H3", "the cache is the cause", "excluded", evidence=["E051"], conditions=["cache:config"]),
        Decision("Q1", "who changed it?", "open"),
    )


def test_h1_is_not_flipped_but_marked() -> None:
    """New evidence against its premise: excluded stays excluded, and needs review; so does what was built on it."""
    before = case()
    after = before.observe(Observation("O7", evidence=["E087"], challenges=["E042"]))

    assert after.decisions == before.decisions
    assert after.decisions["H1"].status == "excluded"
    assert after.reviews == {"D1": ("O7",), "H1": ("O7",), "H2": ("O7",)}
    assert [after.standing(id_) for id_ in ("H1", "H3", "Q1")] == ["needs_review", "supported", "open"]
    assert before.reviews == {}


def test_what_to_look_at_again_is_named_by_id() -> None:
    """The original premises and their evidence, premises first."""
    found = case().material("H2")

    assert found.decisions == ("D1", "H1", "H2")
    assert found.evidence == ("E042", "E050")


def test_a_condition_and_an_id_affect_as_well() -> None:
    """What names the condition; what is challenged by its own id."""
    graph = case()
    assert graph.affected(Observation("O", conditions=["cache:config"])) == ("H3",)
    assert graph.affected(Observation("O", challenges=["H1"])) == ("H1", "H2")
    assert graph.affected(Observation("O", evidence=["E042"])) == ()


def test_a_review_ends_its_own_mark_alone() -> None:
    """Confirmed, it marks nothing; changed, it marks what rests on it, because of it."""
    graph = case().observe(Observation("O7", challenges=["E042"]))
    confirmed = graph.review(Decision("D1", "the database answers in time", "accepted", evidence=["E088"]))
    assert confirmed.reviews == {"H1": ("O7",), "H2": ("O7",)}
    changed = confirmed.review(Decision("H1", "the database is the cause", "accepted", premises=["D1"]))
    assert changed.reviews == {"H2": ("O7", "H1")}
    done = changed.review(Decision("H2", "the new time-out is the cause", "excluded", premises=["H1"]))
    assert done.reviews == {}
    assert list(done.decisions) == list(graph.decisions)


def test_rejected_paths_and_questions_are_content() -> None:
    """They come back from JSON as everything else does, in the same bytes."""
    graph = case().observe(Observation("O7", challenges=["E042"])).expire(["E051"])
    again = Graph.from_json(graph.to_json())

    assert again == graph
    assert canonical(again.to_json()) == canonical(graph.to_json())
    assert [d.id for d in again.decisions.values() if d.status != "accepted"] == ["H1", "H3", "Q1"]


def test_support_that_expired_is_said() -> None:
    """What cites it and what rests on it is not checkable; other evidence in a review makes it so again."""
    graph = case().expire(["E042"])
    assert {id_: str(s) for id_, s in graph.standings().items()} == {
        "D1": "not_checkable", "H1": "not_checkable", "H2": "not_checkable", "H3": "supported", "Q1": "open",
    }  # fmt: skip
    again = graph.review(Decision("D1", "the database answers in time", "accepted", evidence=["E090"]))

    assert set(again.standings("D1", "H1", "H2").values()) == {Standing.SUPPORTED}


def test_without_support_nothing_is_supported() -> None:
    """Nor what rests on it; a question needs none."""
    graph = case().add(
        Decision("G1", "it feels slow", "accepted"), Decision("G2", "so it is slow", "accepted", ["E1"], ["G1"])
    )

    assert [graph.standing(id_) for id_ in ("G1", "G2", "Q1")] == ["unsupported", "unsupported", "open"]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any acyclic graph, in which a review may name a later decision."""
    graph = Graph()
    count = draw(st.integers(0, 12))
    for n in range(count):
        earlier = [f"d{k}" for k in range(n)]
        graph = graph.add(_decision(draw, n, earlier))
    for _ in range(draw(st.integers(0, 4)) if count else 0):
        n = draw(st.integers(0, count - 1))
        above = closure(graph, {f"d{n}"})
        graph = graph.review(_decision(draw, n, [id_ for id_ in graph.decisions if id_ not in above]))
    return graph


def _decision(draw: st.DrawFn, n: int, premises: list[str]) -> Decision:
    some = st.lists(st.sampled_from(["E1", "E2", "E3"]), max_size=2, unique=True)
    return Decision(
        f"d{n}",
        draw(st.sampled_from(["a", "b"])),
        draw(st.sampled_from(["accepted", "excluded", "open"])),
        draw(some),
        draw(st.lists(st.sampled_from(premises), max_size=3, unique=True)) if premises else [],
        draw(st.lists(st.sampled_from(["c1", "c2"]), max_size=1)),
    )


def closure(graph: Graph, ids: set[str]) -> set[str]:
    """By brute force: again and again, until nothing comes in."""
    found = set(ids)
    while True:
        more = {d.id for d in graph.decisions.values() if found & set(d.premises)} | found
        if more == found:
            return found
        found = more


OBSERVATIONS = st.builds(
    Observation,
    st.sampled_from(["o1", "o2"]),
    challenges=st.lists(st.sampled_from(["E1", "E2", "d0", "d3", "unknown"]), max_size=2),
    conditions=st.lists(st.sampled_from(["c1", "c9"]), max_size=1),
)


@given(graphs(), OBSERVATIONS)
def test_the_affected_are_exactly_those_of_the_closure(graph: Graph, observation: Observation) -> None:
    """No more and no fewer than by brute force; and nothing but marks differs."""
    direct = {
        d.id
        for d in graph.decisions.values()
        if d.id in observation.challenges
        or set(d.evidence) & set(observation.challenges)
        or set(d.conditions) & set(observation.conditions)
    }
    after = graph.observe(observation)

    assert set(graph.affected(observation)) == closure(graph, direct)
    assert {id_ for id_, because in after.reviews.items() if observation.id in because} >= closure(graph, direct)
    untouched = graph.decisions.keys() - closure(graph, direct)
    assert all(after.standing(id_) == graph.standing(id_) for id_ in untouched)
    assert (after.decisions, after.expired) == (graph.decisions, graph.expired)
    assert after.observe(observation) == after


@given(graphs(), st.lists(st.sampled_from(["E1", "E2", "E3"]), max_size=2))
def test_what_expired_reaches_what_rests_on_it(graph: Graph, gone: list[str]) -> None:
    """By brute force as well; and bytes come back."""
    after = graph.expire(gone)
    cites = {d.id for d in graph.decisions.values() if set(d.evidence) & set(gone)}
    marked = {id_ for id_ in graph.decisions if id_ in after.reviews}

    not_checkable = {id_ for id_, standing in after.standings().items() if standing is Standing.NOT_CHECKABLE}
    assert not_checkable == closure(graph, cites) - marked
    assert Graph.from_json(after.to_json()) == after


@given(graphs())
def test_material_is_all_that_it_rests_on_premises_first(graph: Graph) -> None:
    """Each once, and none before its premises."""
    for id_ in graph.decisions:
        found = graph.material(id_).decisions
        assert set(found) == {other for other in graph.decisions if id_ in closure(graph, {other})}
        assert len(set(found)) == len(found)
        for n, one in enumerate(found):
            assert set(graph.decisions[one].premises) <= set(found[:n])


def test_a_hundred_thousand_steps_are_no_recursion() -> None:
    """A chain of premises as long as a month."""
    count = 100_000
    graph = Graph().add(
        Decision("d0", "begin", "accepted", ["E1"]),
        *(Decision(f"d{n}", "so", "accepted", premises=[f"d{n - 1}"]) for n in range(1, count)),
    )

    assert len(graph.observe(Observation("o", challenges=["E1"])).reviews) == count
    assert graph.standing(f"d{count - 1}") is Standing.SUPPORTED
    assert graph.expire(["E1"]).standing(f"d{count - 1}") is Standing.NOT_CHECKABLE


NOT_TEXT: Any = 4
NO_DECISION: Any = "D1"


WRONG: list[tuple[Any, str]] = [
        (lambda: Decision("", "x", "open"), "decision id"),
        (lambda: Decision("d", "", "open"), "decision 'd' statement"),
        (lambda: Decision("d", "x", "perhaps"), "decision status"),
        (lambda: Decision("d", "x", "open", evidence="E1"), "decision 'd' evidence"),
        (lambda: Decision("d", "x", "open", evidence=[""]), "decision 'd' evidence[0]"),
        (lambda: Decision("d", "x", "open", premises=["d"]), "decision 'd' premises"),
        (lambda: Decision("d", "x", "open", premises=[NOT_TEXT]), "decision 'd' premises[0]"),
        (lambda: Decision("d", "x", "open", turn=-1), "decision 'd' turn"),
        (lambda: Decision("d", "x", "open", epoch=True), "decision 'd' epoch"),
        (lambda: Decision("d", "\ud800", "open"), "decision 'd' statement"),
        (lambda: Observation("", challenges=["E"]), "observation id"),
        (lambda: Observation("o", conditions={"a"}), "observation 'o' conditions"),
        (lambda: case().add(Decision("D1", "again", "open")), "decision 'D1'"),
        (lambda: case().add(NO_DECISION), "decision"),
        (lambda: case().add(Decision("D9", "x", "open", premises=["D8"])), "decision 'D9' premises[0]"),
        (lambda: case().review(Decision("D9", "x", "open")), "decision"),
        (lambda: case().review(NO_DECISION), "decision"),
        (lambda: case().review(Decision("D1", "x", "open", premises=["D8"])), "decision 'D1' premises[0]"),
        (lambda: case().review(Decision("D1", "x", "open", premises=["H2"])), "decision 'D1' premises"),
        (lambda: case().standing("D9"), "decision id"),
        (lambda: case().material("D9"), "decision id"),
        (lambda: case().expire([""]), "evidence[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "place"), WRONG, ids=[f"{n} {place}" for n, (_, place) in enumerate(WRONG)])
def test_what_is_wrong_is_named(wrong: Any, place: str) -> None:
    """One error that says where; nothing changed, since a graph is a value."""
    with pytest.raises(InvalidInputError) as error:
        wrong()

    assert error.value.place == place


def damaged() -> list[tuple[str, Any]]:
    body = case().observe(Observation("O", challenges=["D1"])).to_json()
    first, second, *rest = body["decisions"]
    cycle = [{**first, "premises": ["H2"]}, second, *rest]
    return [
        ("nothing", None),
        ("a key less", {k: v for k, v in body.items() if k != "expired"}),
        ("a key more", {**body, "more": 1}),
        ("decisions of another kind", {**body, "decisions": {}}),
        ("a decision of another kind", {**body, "decisions": [first, 4]}),
        ("one id twice", {**body, "decisions": [first, first]}),
        ("an unknown premise", {**body, "decisions": [second]}),
        ("a cycle", {**body, "decisions": cycle}),
        ("a review of nothing", {**body, "reviews": [["D9", ["O"]]]}),
        ("a review without a cause", {**body, "reviews": [["D1", []]]}),
        ("a review twice", {**body, "reviews": [["D1", ["O"]], ["D1", ["O"]]]}),
        ("a review of another shape", {**body, "reviews": [["D1"]]}),
        ("a review by a number", {**body, "reviews": [["D1", [5]]]}),
        ("expired numbers", {**body, "expired": [5]}),
    ]


@pytest.mark.parametrize(("body"), [body for _, body in damaged()], ids=[name for name, _ in damaged()])
def test_damaged_json_is_refused(body: Any) -> None:
    """Never anything but our error."""
    with pytest.raises(InvalidInputError):
        Graph.from_json(body)


@given(JSON)
def test_any_json_is_read_or_refused(body: Any) -> None:
    """For all three."""
    for kind in (Graph, Decision, Observation):
        with pytest.raises(InvalidInputError):
            kind.from_json(body)


def test_each_comes_back_from_its_json() -> None:
    """Decisions and observations."""
    decision = case().decisions["H2"]
    observation = Observation("O7", ["E087"], ["E042"], ["cache:config"])

    assert Decision.from_json(decision.to_json()) == decision
    assert Observation.from_json(observation.to_json()) == observation
