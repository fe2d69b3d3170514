"""Each kind of entry, forged: without a seal, or as a post, it takes away at most; bodies that collide on purpose."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from capstate.authority import Effect, Grant, Lifetime, Limits
from capstate.children import Claim, Result, record
from capstate.decisions import Decision, Graph, Observation
from capstate.errors import InvalidInputError, Reason
from capstate.ledger import OPENED, Entry, Record, chain_entries
from capstate.runtime.state import _HANDLERS, State, check_entries
from capstate.trace import Message, Outcome, Role
from tests.runtime.stage import KEY, Stage, call, forge, refused, run, started, storage

OP = {
    "approval": None, "arguments": "a", "call": "c0", "cost": 7, "effect": "external", "id": "op",
    "occurrence": 0, "tool": "git/push", "used": {"calls": 1, "serial": 1, "spent": 0},
}  # fmt: skip
YES = {
    "arguments": "a", "by": "ann", "call": "c5", "definition": "d", "occurrence": 0, "reached": [],
    "seen": [["ann", 3]], "tool": "git/sync",
}  # fmt: skip
GRAPH = Graph().add(
    Decision("d1", "a", "accepted", ["E1"]),
    Decision("d2", "b", "excluded", premises=["d1"]),
    Decision("d3", "c", "open"),
)
KID = Result("k", "completed", claims=[Claim("q1", "done", ["E1"])])
TRUE: list[tuple[str, dict[str, Any]]] = [
    (OPENED, {"holder": "ann", "kind": "session", "limits": {"calls": 5}, "log": "l", "root": "s"}),
    ("load", {"at": None, "by": "user", "call": None, "definitions": {}, "on": ["git/*"]}),
    ("grant", Grant("git/push", Effect.DENY, id="no@30").to_json()),
    ("grant", Grant("git/log", Effect.ALLOW, id="yes").to_json()),
    ("grant", Grant("git/*", Effect.ASK, id="asked").to_json()),
    ("grant", Grant("git/x", Effect.ALLOW, None, "job", "j", Lifetime.UNTIL, "j", None, 3).to_json()),
    ("pin", {"id": "rule", "pin": [["git/log", "print"]], "source": "config"}),
    ("approved", YES),
    ("rejected", {**YES, "call": "c6"}),
    ("started", OP),
    ("started", {**OP, "arguments": "b", "call": "c1", "id": "done", "cost": None}),
    ("settled", {"evidence": None, "id": "done", "outcome": "ok", "used": {}}),
    ("epoch", {"digest": "x", "receipt": {"sources": [["config", "ok", 7, "d"]]}}),
    ("spawned", {"at": None, "call": None, "child": "k"}),
    ("prepared", {**OP, "arguments": "p", "call": "c2", "id": "ready"}),
    ("started", {**OP, "arguments": "o", "call": "c3", "id": "seen", "cost": None}),
    ("observed", {"evidence": "E1", "id": "seen", "outcome": "ok"}),
    ("child-result", {"child": "k", "record": record(KID, bool).to_json()}),
    *(("decision", {"decision": decision.to_json()}) for decision in GRAPH.decisions.values()),
    ("observation", {"observation": Observation("o1", challenges=["d2"]).to_json()}),
    ("expired", {"evidence": ["E9"]}),
    ("note", {"n": 1}),
]  # fmt: skip
FORGED: dict[str, list[dict[str, Any]]] = {
    OPENED: [{"holder": "root", "kind": "session", "limits": {"calls": 99}, "log": "", "root": "other"}],
    "load": [{"on": ["*"]}],
    "unload": [{"on": ["*"]}],
    "removal": [{"on": ["*"]}],
    "grant": [
        {"effect": "allow", "id": "x", "on": "*"},
        {"effect": "allow", "id": "no@30", "on": "git/push"},
        {"effect": "deny", "id": "no", "on": "git/nothing"},
        {"effect": "deny", "id": "no@30", "on": "git/nothing"},
        {"effect": "ask", "id": "no@30", "on": "git/push"},
        {"effect": "deny", "id": "yes", "on": "git/nothing"},
    ],
    "revoke": [{"by": "x", "id": "no@30"}, {"by": "x", "id": "asked"}, {"by": "x", "id": "yes"}],
    "pin": [
        {"id": "rule", "pin": [["git/push", "p"]], "source": "config"},
        {"id": "new", "pin": [["git/push", "p"]], "source": "config"},
    ],
    "approved": [{**YES, "call": "c9"}, {**YES, "seen": [["ann", 99], ["s", 99]]}],
    "rejected": [YES, {**YES, "call": "c6", "by": "x"}],
    "lapsed": [{"tools": ["git/sync"]}],
    "prepared": [
        OP,
        {**OP, "id": "done", "arguments": "b", "call": "c1"},
        {**OP, "arguments": "p", "call": "c2", "id": "ready"},
        {**OP, "arguments": "o", "call": "c3", "id": "seen"},
        {**OP, "id": "fresh", "arguments": "z"},
    ],
    "observed": [{"id": id_, "outcome": str(how)} for how in Outcome for id_ in ("op", "ready", "seen", "done")],
    "child-result": [
        {"child": "k", "record": record(KID, {"E1"}.__contains__).to_json()},
        {"child": "other", "record": record(KID, {"E1"}.__contains__).to_json()},
    ],
    "decision": [
        {"decision": Decision("d9", "z", "accepted", ["E1"]).to_json()},
        {"decision": Decision("d2", "b", "accepted", ["E1"]).to_json()},
        {"decision": Decision("d2", "b", "excluded", premises=["d1"]).to_json()},
    ],
    "decisions": [{"graph": GRAPH.to_json()}, {"graph": Graph().to_json()}],
    "observation": [{"observation": Observation("o2", challenges=["E1"]).to_json()}],
    "expired": [{"evidence": ["E1"]}, {"evidence": []}],
    "started": [
        {**OP, "arguments": "p", "call": "c2", "id": "ready"},
        {**OP, "arguments": "o", "call": "c3", "id": "seen"},
        {**OP, "cost": 0},
        {**OP, "cost": None},
        {**OP, "effect": "read"},
        {**OP, "tool": "git/log", "effect": "read", "cost": 0},
        {**OP, "id": "done", "arguments": "b", "call": "c1"},
        {**OP, "id": "op@30", "cost": 1},
        {**OP, "used": {"calls": 0, "serial": 99, "spent": 0}},
    ],
    "settled": [
        *({"id": id_, "outcome": str(how)} for how in Outcome for id_ in ("ready", "seen")),
        *({"id": "op", "outcome": str(how), "used": {"calls": 0, "serial": 99, "spent": 0}} for how in Outcome),
        {"id": "done", "outcome": "error"},
    ],
    "reconciled": [
        *({"by": "x", "id": id_, "outcome": "not_run"} for id_ in ("ready", "seen")),
        {"by": "x", "id": "op", "outcome": "ok"}, {"by": "x", "id": "op", "outcome": "cancelled"},
    ],
    "epoch": [{"digest": "y", "receipt": {"sources": [["config", "ok", 1, "d"]]}}, {"receipt": {"sources": []}}],
    "limits": [{"limits": {"calls": 99}}, {"limits": {"calls": None}}, {"limits": {"cost": 1}}],
    "retired": [{"by": "x", "name": "config"}],
    "job-ended": [{"job": "j"}],
    "closed": [{}],
    "spawned": [{"child": "other"}],
    "forked": [{"child": "other"}],
    "ended": [{}],
    "revisions": [{"sources": [["config", 1]]}, {"sources": [["config", 9], ["new", 0]]}, {"sources": []}],
    "accepted": [
        {"by": "x", "damage": [], "lost": []},
        {"by": "x", "damage": [[30, 30], [-1, 40]], "lost": [["config", "rule"]]},
    ],
    "repaired": [{"damage": ["rollback"]}, {"damage": []}],
    "note": [{"n": 2}],
}  # fmt: skip


def chain() -> list[Entry]:
    """Thirty entries of a writer, so that the forged one has sequence 30."""
    # Before the last notes, so that the forged one stands behind all that is true.
    padding: list[tuple[str, dict[str, Any]]] = [("note", {})] * (30 - len(TRUE))
    return list(chain_entries("s", None, [Record(*one) for one in (*TRUE, *padding)], at=5, token=3, key=KEY))


def folded(entries: list[Entry]) -> State:
    state = State("s")
    for entry in entries:
        state.apply(entry)
    return state


def forged(kind: str, body: dict[str, Any], *, posted: bool) -> Entry:
    made = chain_entries("s", chain()[-1].head, [Record(kind, body)], at=99, token=0 if posted else 77, posted=posted)
    from attrs import evolve

    return evolve(made[0], unsealed=True)


def cuts(state: State) -> set[Any]:
    """What holds a session back; it must not get less."""
    return (
        {("grant", g.id, g.on, str(g.effect)) for g in state.grants.values() if g.effect is not Effect.ALLOW}
        | {("restriction", g.id, g.on) for g in state.restrictions}
        | {("rejected", *key) for key in state.rejected}
        | {("open", op.tool, op.arguments) for op in state.open.values() if op.effect != "read"}
        | {("reserved", state.reserving, op, *costs) for op, costs in state.reserved.items()}
        | {("denied", *each) for each in state.denied}
        | {("lost", *each) for each in state.lost}
        | {("source", name) for name in state.sources}
        | {("child", child) for child in state.children}
        | {("review", id_, why) for id_, because in state.decisions.reviews.items() for why in because}
        | {("not checkable", id_) for id_ in state.decisions.expired}
        | ({"ended"} if state.ended else set())
        | ({"read only"} if state.read_only else set())
    )


def gains(state: State) -> set[Any]:
    """What lets a session do something; it must not get more."""
    return (
        {("allow", g.id, g.on, g.token) for g in state.grants.values() if g.effect is Effect.ALLOW}
        | {("ask", g.id, g.on) for g in state.grants.values() if g.effect is Effect.ASK}
        | {("approval", *a.key, a.seen) for a in state.approvals}
        | {("pin", *key, *sorted(pin)) for key, pin in state.pins.items()}
        | {("load", *load.on) for load in state.loads if load.do == "load"}
        | {("settled", op.id) for op in state.operations.values() if op.settled and op.effect != "read"}
        | {
            ("claim", child, *pair)
            for child, kept in state.results.items()
            for pair in kept.supported.items()
            if pair[1]
        }
        | {("startable", op.id) for op in state.operations.values() if op.state == "prepared" and op.token}
        | {("retired", name) for name in state.retired}
        | {("decided", id_, d.statement, str(d.status)) for id_, d in state.decisions.decisions.items()}
        | {("worth", id_) for id_, standing in state.decisions.standings().items() if standing in ("supported", "open")}
        | {("accepted", *span) for span in state.accepted}
    )


def numbers(state: State) -> tuple[int, ...]:
    """What only grows."""
    limits = state.limits or Limits()
    most = (-(most if most is not None else 2**60) for most in (limits.calls, limits.cost))
    return (*most, state.used["calls"], state.used["spent"], *(high or 0 for high in state.sources.values()))


CASES = [(kind, n) for kind, bodies in FORGED.items() for n in range(len(bodies))]


def test_every_kind_is_forged_here() -> None:
    """A new kind of entry needs a row."""
    assert FORGED.keys() == _HANDLERS.keys()


@pytest.mark.parametrize("posted", [False, True], ids=["appended", "posted"])
@pytest.mark.parametrize(("kind", "number"), CASES, ids=[f"{kind} {n}" for kind, n in CASES])
def test_a_forged_entry_takes_away_at_most(kind: str, number: int, posted: bool) -> None:
    """Whatever held the session back still does, and nothing new lets it do anything."""
    state = folded(chain())
    before = deepcopy(state)
    state.apply(forged(kind, FORGED[kind][number], posted=posted))

    assert cuts(before) <= cuts(state)
    assert gains(state) <= gains(before)
    assert all(now >= was for now, was in zip(numbers(state), numbers(before), strict=False))
    assert (state.opening, state.receipt, state.at, state.token) == (before.opening, before.receipt, 5, 3)
    assert state.used["serial"] == before.used["serial"]
    assert (state.holes == set()) is posted or kind == "repaired"


@pytest.mark.parametrize("kind", sorted(_HANDLERS))
def test_no_entry_is_written_that_would_be_damage(kind: str) -> None:
    """A body of the wrong kind is refused by the reader's own hand, and the error names the record."""
    bad = {"closed": None, "ended": None, "epoch": None, "note": None}.get(
        kind, {"id": 5, "on": 5, "tools": 5, "child": 5, "damage": 5, "name": 5, "job": 5, "kind": 5, "lost": 5,
               "limits": {"calls": "x"}, "source": 5, "sources": 5, "decision": 5, "graph": 5, "observation": 5,
               "evidence": 5},
    )  # fmt: skip
    if bad is None:
        return  # these say nothing that could be read wrongly
    entries = chain_entries("s", None, [Record(kind, bad)], at=1, token=1)
    with pytest.raises(InvalidInputError, match=f"record '{kind}'"):
        check_entries(entries)


def test_a_true_start_behind_a_hole_still_reserves() -> None:
    """Nobody else could seal it; what ends behind a hole frees nothing."""
    entries = chain()
    more = [
        Record("started", {**OP, "id": "op2", "arguments": "c", "cost": 9}),
        Record("settled", {"id": "op", "outcome": "ok"}),
    ]
    state = folded(entries)
    state.damaged(30)
    for entry in chain_entries("s", entries[-1].head, more, at=6, token=3, key=KEY):
        state.apply(entry)

    assert state.reserved == {"op": [7], "op2": [9]}


def test_what_a_repeat_reserves_counts_beside_the_first() -> None:
    """Two running calls under one operation hold two slots; one that ends frees one; a new writer's free all."""
    state = folded(chain())
    head = chain()[-1].head
    again = [Record("started", {**OP, "cost": 2})]
    for entry in chain_entries("s", head, [*again, Record("settled", {"id": "op", "outcome": "ok"})], at=6, token=3):
        state.apply(entry)
    assert state.reserved == {"op": [7]}
    for entry in chain_entries("s", head, again, at=6, token=4):
        state.apply(entry)

    assert (state.reserving, state.reserved) == (4, {"op": [2]})


# -- through a session


@pytest.mark.parametrize("posted", [False, True], ids=["appended", "posted"])
@pytest.mark.parametrize("fake", ["settled", "started", "reconciled"])
def test_a_forged_end_and_a_lost_row_free_no_reservation(fake: str, posted: bool) -> None:
    """The slot of a running call stays taken, and its cost reserved."""
    stage = Stage(key=KEY)
    session = stage.session(limits=Limits(concurrency=1, cost=10))
    permit = started(session, "git/log", cost=8)
    body: dict[str, Any] = {"by": "x", "evidence": None, "id": permit.operation, "outcome": "ok", "used": {}}
    start = next(e.body for e in reversed(chain_of(stage)) if e.kind == "started")
    post(stage, fake, {**start, "cost": 0} if fake == "started" else body, posted=posted)
    del storage(stage)._storage.pools["s"]
    storage(stage)._storage.changes += 1

    assert refused(session, call("git/log", "c2")) is Reason.LIMIT_EXCEEDED
    assert session.used["cost"] == 8
    permit.settle(cost=3)
    assert refused(session, call("git/log", "c2")) is None
    assert session.used == {"calls": 2, "cost": 3}


def test_a_forged_start_hides_no_call_that_a_history_leaves_open() -> None:
    """The call of the history becomes an unsettled operation, whatever bears its id already."""
    stage = Stage(key=KEY)
    session = stage.session()
    made = call("git/push", "c9")
    harmless = {**OP, "arguments": "x", "call": "c9", "cost": None, "effect": "read", "id": "x", "tool": "git/log"}
    post(stage, "started", harmless, posted=True)
    history = [
        Message("m1", Role.ASSISTANT, calls=(made,)),
        Message("m2", Role.TOOL, result_for="c9", outcome=Outcome.OUTCOME_UNKNOWN),
    ]
    for _ in range(2):
        session.reproject(history=history)

    assert refused(session, call("git/push", "c10")) is Reason.OUTCOME_UNKNOWN
    assert [e.kind for e in chain_of(stage)].count("started") == 2


def test_a_start_forged_ahead_does_not_take_the_place_of_the_true_one() -> None:
    """Its id can be computed beforehand; the true operation bears it, and is settled under it."""
    stage = Stage(key=KEY)
    session = stage.session()
    true = run(session, "git/push")
    again = Stage(key=KEY)
    session = again.session()
    start = next(e.body for e in chain_of(stage) if e.kind == "started")
    post(again, "started", {**start, "effect": "read", "tool": "git/log"}, posted=True)
    permit = started(session, "git/push")
    assert permit.operation == true.operation
    assert refused(session, call("git/push", "c2")) is Reason.OUTCOME_UNKNOWN
    permit.settle()

    assert refused(session, call("git/push", "c2")) is None


@pytest.mark.parametrize("posted", [False, True], ids=["appended", "posted"])
def test_a_forged_beginning_makes_a_session_nobodys(posted: bool) -> None:
    """A holder's chain made up for a session to come does not say for whom the session acts."""
    stage = Stage(key=KEY)
    stage.default = []
    stage.grants["root"] = ["git/*"]
    post(stage, OPENED, {"holder": "root", "kind": "holder", "log": "", "root": "root"}, posted=posted)
    session = stage.session()
    if not posted:
        session.accept_damage(by="ann")
    session.load("git")

    assert session.holder == "s"
    assert refused(session, "git/log") in (Reason.NOT_AUTHORISED, Reason.POLICY_MISSING)
    assert session.reproject().surface.callable == {}


def chain_of(stage: Stage) -> tuple[Entry, ...]:
    from tests.runtime.stage import entries

    return entries(stage)


def post(stage: Stage, kind: str, body: dict[str, Any], *, posted: bool) -> None:
    if not posted:
        forge(stage, kind, body)
        return
    rows = storage(stage)._storage.rows.setdefault("s", [])
    made: Callable[..., Any] = chain_entries
    rows += made("s", rows[-1].head if rows else None, [Record(kind, body)], at=2_000, posted=True)
    storage(stage)._storage.changes += 1
