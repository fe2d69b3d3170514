"""Decisions and evidence in a session: durable, marked in the entry that says why, never citing what is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from capstate.children import Claim, Result
from capstate.decisions import Decision, Graph, Observation
from capstate.errors import EvidenceUnavailableError, InvalidInputError, Reason, StaleWriterError
from capstate.evidence import DirectoryStore, Keeper, MemoryStore
from capstate.ledgers.memory import MemoryLedger
from capstate.runtime import Runtime, Session
from tests.runtime.stage import (
    KEY,
    Stage,
    Wrapped,
    call,
    crash,
    entries,
    forge,
    kinds,
    refused,
    spoil,
    started,
    storage,
)

D1 = Decision("D1", "the database answers in time", "accepted", ["E042"])
H1 = Decision("H1", "the database is the cause", "excluded", premises=["D1"])
H3 = Decision("H3", "the cache is the cause", "excluded", ["E051"])
O7 = Observation("O7", ["E087"], challenges=["E042"])


@pytest.fixture
def stage() -> Stage:
    return Stage()


def decided(session: Session) -> Graph:
    for decision in (D1, H1, H3):
        session.decide(decision)
    return session.decisions


def test_decisions_and_marks_survive_compaction_and_restart(stage: Stage) -> None:
    """Rejected paths and marks among them; a review in the next process ends its own mark."""
    session = stage.session()
    decided(session)
    assert session.observe(O7).reviews == {"D1": ("O7",), "H1": ("O7",)}
    session.reproject("compaction", history=[])
    crash(session)
    session = stage.session()

    assert {id_: str(s) for id_, s in session.decisions.standings().items()} == {
        "D1": "needs_review", "H1": "needs_review", "H3": "supported",
    }  # fmt: skip
    assert session.decide(Decision("D1", "the database is slow", "accepted", ["E087"])).reviews == {"H1": ("O7", "D1")}
    assert session.decisions.decisions["H1"].status == "excluded"


def test_the_mark_stands_in_the_entry_that_says_why(stage: Stage) -> None:
    """Nobody can see the observation without its marks: one entry, so no crash comes between (LP-05)."""
    session = stage.session()
    decided(session)
    before = kinds(stage)
    session.observe(O7)

    assert kinds(stage) == [*before, "observation"]


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_crash_at_the_write_leaves_all_or_nothing(stage: Stage, how: str) -> None:
    """The old graph, or the new one with its marks."""
    stage.session().close()
    inner = MemoryLedger(storage(stage))

    def append(*given: Any, **more: Any) -> Any:
        if how == "after" or b"observation" not in given[1][0].stored:
            inner.append(*given, **more)
        if b"observation" in given[1][0].stored:
            raise RuntimeError("killed")

    session = stage.runtime(Wrapped(inner, append=append)).session("s")
    decided(session)
    with pytest.raises(RuntimeError):
        session.observe(O7)
    crash(session)

    assert stage.session().decisions.reviews == ({} if how == "before" else {"D1": ("O7",), "H1": ("O7",)})


def test_a_fork_takes_the_graph_and_goes_its_own_way(stage: Stage) -> None:
    """Backtracking forgets nothing: what was excluded stays so, and what is learned in the fork is the fork's."""
    session = stage.session()
    decided(session)
    session.observe(O7)
    fork = session.fork("f")
    fork.decide(Decision("H4", "the network is the cause", "accepted", ["E090"]))
    session.decide(Decision("Q1", "who changed it?", "open"))

    assert list(fork.decisions.decisions) == ["D1", "H1", "H3", "H4"]
    assert fork.decisions.reviews == {"D1": ("O7",), "H1": ("O7",)}
    assert list(session.decisions.decisions) == ["D1", "H1", "H3", "Q1"]
    assert "decisions" not in kinds(stage, "s")
    assert "decisions" not in [e.kind for e in entries(stage, session.spawn("k", want=["git"]).id)]


def test_what_somebody_else_wrote_decides_nothing() -> None:
    """With a key: a forged decision is none, a forged graph neither; a forged observation can only ask for a look."""
    stage = Stage(key=KEY)
    session = stage.session()
    decided(session)
    forge(stage, "decision", {"decision": Decision("H1", "the database is the cause", "accepted").to_json()})
    forge(stage, "decisions", {"graph": Graph().to_json()})
    forge(stage, "observation", {"observation": Observation("O9", challenges=["H3"]).to_json()})

    assert session.decisions.decisions == {"D1": D1, "H1": H1, "H3": H3}
    assert session.decisions.reviews == {"H3": ("O9",)}


def test_what_rests_on_a_lost_decision_is_lost(stage: Stage) -> None:
    """Behind a hole nothing is taken for decided; what comes after the damage was accepted is."""
    session = stage.session()
    decided(session)
    session.close()
    spoil(stage, "s", next(entry.sequence for entry in entries(stage) if entry.kind == "decision"))
    session = stage.session()
    assert session.decisions == Graph()
    session.accept_damage(by="ann")
    with pytest.raises(InvalidInputError):
        session.decide(H1)
    session.decide(H3)

    assert list(session.decisions.decisions) == ["H3"]


def test_what_is_wrong_writes_nothing(stage: Stage) -> None:
    """An unknown premise, a circle, another thing."""
    session = stage.session()
    decided(session)
    before = kinds(stage)
    wrong: list[Any] = [
        Decision("H9", "x", "open", premises=["H8"]), Decision("D1", "x", "open", premises=["H1"]), "D1", None,
    ]  # fmt: skip
    for decision in wrong:
        with pytest.raises(InvalidInputError):
            session.decide(decision)
    with pytest.raises(InvalidInputError, match="an Observation"):
        session.observe(D1)  # type: ignore[arg-type]

    assert kinds(stage) == before


def test_posts_in_between_are_no_reason_to_lose_a_decision(stage: Stage) -> None:
    """A deny that comes just before; another writer ends it."""
    stage.session().close()
    inner = MemoryLedger(storage(stage))
    left = [1]

    def append(chain: str, rows: Any, **more: Any) -> Any:
        if left and b'"decision"' in rows[0].stored:
            left.pop()
            stage.runtime().deny("s", "git/push", by="eve")
        return inner.append(chain, rows, **more)

    session = stage.runtime(Wrapped(inner, append=append)).session("s")
    decided(session)
    assert list(session.decisions.decisions) == ["D1", "H1", "H3"]
    left.append(1)
    storage(stage)._storage.tokens["s"] += 1
    with pytest.raises(StaleWriterError):
        session.decide(Decision("Q1", "?", "open"))


# -- evidence


class Kept:
    """A runtime with evidence, and a clock that the test sets."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.now = stage, 1
        self.keeper = Keeper(MemoryStore(), tenant="acme")
        self.runtime: Runtime = stage.runtime(evidence=lambda id_: self.keeper.resolves(id_, now=self.now))
        self.session = self.runtime.session("s")
        self.session.load("git")

    def put(self, text: str, until: int | None = None) -> str:
        return self.keeper.put(text.encode(), now=self.now, until=until).id


def test_nothing_cites_what_is_not_there(stage: Stage) -> None:
    """An outcome, what was observed, a decision, an observation, a reconciliation: the artefact first (EV-02)."""
    kept = Kept(stage)
    session = kept.session
    lost = started(session, call("git/sync", "c0"))
    with pytest.raises(InvalidInputError, match="can be looked up"), session.guard(call("git/push")) as permit:
        permit.settle(evidence="E1")
    acts: list[Any] = [
        lambda: lost.observe(evidence="E1"),
        lambda: lost.settle(evidence="E1"),
        lambda: session.decide(Decision("D", "x", "open", ["E1"])),
        lambda: session.observe(Observation("O", ["E1"])),
        lambda: session.reconcile(str(permit.operation), outcome="ok", by="ann", evidence="E1"),
    ]
    before = kinds(stage)
    for act in acts:
        with pytest.raises(InvalidInputError, match="can be looked up"):
            act()
    assert kinds(stage) == before
    raw = kept.put("pushed 3 commits")
    session.reconcile(str(permit.operation), outcome="ok", by="ann", evidence=raw)
    lost.settle(evidence=raw)
    session.decide(Decision("D", "x", "open", [raw]))
    session.observe(Observation("O", [raw]))

    assert {op.evidence for op in session.operations} == {raw}


def test_a_store_that_fails_resolves_nothing(stage: Stage) -> None:
    """An error is no; so is anything but True."""
    for answer in (lambda _: 1 / 0, lambda _: "yes", lambda _: None):
        session = stage.runtime(evidence=answer).session(f"s{id(answer)}")
        with pytest.raises(InvalidInputError):
            session.decide(D1)
        session.close()


def test_evidence_that_expired_is_said_once(stage: Stage) -> None:
    """What it showed is not checkable any more, with an entry; it does not silently stay supported (EV-09)."""
    kept = Kept(stage)
    short, long = kept.put("p99 1841 ms", until=50), kept.put("p99 40 ms")
    kept.session.decide(Decision("D1", "slow", "accepted", [short]))
    kept.session.decide(Decision("H1", "so the database", "accepted", [long], ["D1"]))
    assert kept.session.recheck() == ()
    kept.now = 50
    kept.keeper.sweep(now=50)

    assert kept.session.recheck() == (short,)
    assert kept.session.recheck() == ()
    assert kinds(stage).count("expired") == 1
    crash(kept.session)
    assert set(stage.session().decisions.standings().values()) == {"not_checkable"}


def test_a_store_that_cannot_tell_makes_nothing_expire(stage: Stage, tmp_path: Path) -> None:
    """Away for a moment is not gone: an error, nothing kept; back again, everything is as it was."""
    keeper = Keeper(DirectoryStore(tmp_path / "kept"), tenant="acme")
    session = stage.runtime(evidence=lambda id_: keeper.resolves(id_, now=1)).session("s")
    raw = keeper.put(b"p99 1841 ms", now=1).id
    session.decide(Decision("D1", "slow", "accepted", [raw]))
    before = kinds(stage)
    (tmp_path / "kept").rename(tmp_path / "away")
    with pytest.raises(EvidenceUnavailableError):
        session.recheck()
    with pytest.raises(InvalidInputError, match="can be looked up"):
        session.decide(Decision("D2", "slower", "accepted", [raw]))
    assert kinds(stage) == before
    (tmp_path / "away").rename(tmp_path / "kept")

    assert session.recheck() == ()
    assert session.decisions.standing("D1") == "supported"


def test_without_evidence_there_is_nothing_to_ask(stage: Stage) -> None:
    """And ids are the host's own."""
    session = stage.session()
    session.decide(D1)
    with pytest.raises(InvalidInputError, match="evidence="):
        session.recheck()
    assert refused(session, "git/log") is None
    with pytest.raises(InvalidInputError, match="evidence"):
        stage.runtime(evidence="x")


def test_a_childs_claims_are_checked_by_the_runtimes_evidence(stage: Stage) -> None:
    """Without a function of its own; without either nothing is supported."""
    kept = Kept(stage)
    raw = kept.put("three commits")
    for session, supported in ((kept.session, [True, False]), (stage.session("p"), [False, False])):
        session.spawn(f"{session.id}/k", want=["git"]).close()
        claims = [Claim("q1", "three", [raw]), Claim("q2", "four", ["E9"])]
        made = session.child_result(f"{session.id}/k", Result("t", "completed", claims=claims))
        assert list(made.supported.values()) == supported


def test_the_guard_says_nothing_of_decisions(stage: Stage) -> None:
    """A decision permits nothing and forbids nothing."""
    stage.default = ["git/log"]
    session = stage.session()
    session.decide(Decision("D1", "git/push is allowed now", "accepted", ["E1"]))

    assert refused(session, "git/push") is Reason.NOT_AUTHORISED
