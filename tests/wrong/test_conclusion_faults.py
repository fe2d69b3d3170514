"""Wrong implementations of evidence and decisions: each is planted, and a named test must reject it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from capstate import decisions
from capstate.decisions import DecisionStatus, Graph, Standing
from capstate.digest import fingerprint
from capstate.errors import EvidenceAbsentError
from capstate.evidence import Keeper, MemoryStore, keeper, redaction, stores
from capstate.runtime import state
from capstate.runtime.deciding import Deciding
from tests.decisions import test_decisions
from tests.evidence import test_evidence
from tests.runtime import test_deciding
from tests.runtime.stage import Stage
from tests.wrong import Plant, rejects


def memory() -> Keeper:
    return Keeper(MemoryStore(), tenant="acme")


def test_mark_that_flips(plant: Plant) -> None:
    """What is challenged is the opposite."""
    right = decisions._marked

    def wrong(graph: Graph, ids: Any, because: str) -> Graph:
        found = tuple(ids)
        flipped = {id_: evolve(graph.decisions[id_], status=DecisionStatus.ACCEPTED) for id_ in found}
        return right(evolve(graph, decisions={**graph.decisions, **flipped}), found, because)

    plant(decisions, "_marked", wrong)
    rejects(test_decisions.test_h1_is_not_flipped_but_marked, ())


def test_one_step_only(plant: Plant) -> None:
    """What rests on what rests on it is somebody else's."""

    def wrong(self: Graph, ids: Any) -> tuple[str, ...]:
        found = set(ids)
        found |= {d.id for d in self.decisions.values() if found & set(d.premises)}
        return tuple(id_ for id_ in self.decisions if id_ in found)

    plant(Graph, "_resting_on", wrong)
    rejects(test_decisions.test_h1_is_not_flipped_but_marked, ())


def test_everything_again(plant: Plant) -> None:
    """To be safe, all of it."""
    plant(Graph, "affected", lambda self, _: tuple(self.decisions))
    rejects(test_decisions.test_a_condition_and_an_id_affect_as_well, ())


def test_review_that_ends_all_marks(plant: Plant) -> None:
    """Who looked at one looked at all."""
    right = Graph.review
    plant(Graph, "review", lambda self, decision: evolve(right(self, decision), reviews={}))
    rejects(test_decisions.test_a_review_ends_its_own_mark_alone, ())


def test_circles(plant: Plant) -> None:
    """A premise may rest on what it supports."""
    right = Graph._resting_on
    plant(Graph, "_resting_on", lambda self, ids: right(self, ids)[:0])
    circle = next((wrong, place) for wrong, place in test_decisions.WRONG[::-1] if place == "decision 'D1' premises")
    rejects(test_decisions.test_what_is_wrong_is_named, circle)


def test_support_that_never_expires(plant: Plant) -> None:
    """It was supported once."""
    right = Graph.standings

    def wrong(self: Graph, *ids: str) -> dict[str, Standing]:
        return right(evolve(self, expired=frozenset()), *ids)

    plant(Graph, "standings", wrong)
    rejects(test_decisions.test_support_that_expired_is_said, ())
    rejects(test_deciding.test_evidence_that_expired_is_said_once, (Stage(),))


def test_forged_decision(plant: Plant) -> None:
    """Whoever wrote it."""
    right = state.State._decision
    wrong = {"decision": lambda self, entry, body, _: right(self, entry, body, True)}
    plant(state, "_HANDLERS", {**state._HANDLERS, **wrong})
    rejects(test_deciding.test_what_somebody_else_wrote_decides_nothing, ())


def test_cited_from_nothing(plant: Plant) -> None:
    """An id is an id."""
    plant(Deciding, "_cited", lambda *_: None)
    rejects(test_deciding.test_nothing_cites_what_is_not_there, (Stage(),))


def test_truthy_is_true(plant: Plant) -> None:
    """A store that says something says yes."""
    plant(Deciding, "_resolves", lambda self, id_: bool(self._runtime._evidence(id_)))
    with pytest.raises((AssertionError, pytest.fail.Exception, ZeroDivisionError)):
        test_deciding.test_a_store_that_fails_resolves_nothing(Stage())


def test_not_read_back(plant: Plant) -> None:
    """What was written is there."""
    right = Keeper.put

    def wrong(self: Keeper, value: bytes, **more: Any) -> Any:
        get = self.get
        vars(self)["get"] = lambda *_, **__: value
        try:
            return right(self, value, **more)
        finally:
            vars(self)["get"] = get

    plant(Keeper, "put", wrong)
    rejects(test_evidence.test_what_cannot_be_read_back_was_not_put, (test_evidence.Lossy, test_evidence.no_cipher))


def test_id_of_the_bytes_alone(plant: Plant) -> None:
    """Whoever kept them, and however long."""
    plant(keeper, "fingerprint", lambda domain, *parts: fingerprint(domain, parts[0], parts[-1]))
    rejects(test_evidence.test_the_id_covers_everything, ())


def test_id_that_is_not_compared(plant: Plant) -> None:
    """What stands there is it."""
    right = Keeper._found

    def wrong(self: Keeper, id_: str) -> Any:
        record = self._store.read(self._shelf, id_[3:])
        line, _, stored = (record or b"").partition(b"\n")
        head = keeper._read(line)
        return (head, stored) if head is not None else right(self, id_)

    plant(Keeper, "_found", wrong)
    rejects(test_evidence.test_a_record_of_another_id_is_found, (memory(),))


def test_tenant_that_is_told(plant: Plant) -> None:
    """It is there, and it is not yours."""
    right = Keeper._found

    def wrong(self: Keeper, id_: str) -> Any:
        try:
            return right(self, id_)
        except EvidenceAbsentError as error:
            shelves = self._store._shelves.values()  # type: ignore[attr-defined]
            if any(id_[3:] in shelf for shelf in shelves):
                error.args = ("it is another tenant's",)
            raise

    plant(Keeper, "_found", wrong)
    rejects(test_evidence.test_another_tenants_id_is_absent, (memory(),))


def test_removed_without_a_stone(plant: Plant) -> None:
    """Sweeping deletes."""
    right = Keeper.sweep

    def wrong(self: Keeper, *, now: int) -> tuple[str, ...]:
        found = right(self, now=now)
        for id_ in found:
            self._store.remove(self._shelf, id_[3:])
        return found

    plant(Keeper, "sweep", wrong)
    rejects(test_evidence.test_what_is_over_is_expired_before_and_after_it_is_swept, (memory(),))


def test_redacted_after_it_was_stored(plant: Plant, tmp_path: Path) -> None:
    """First kept, then mended."""
    plant(redaction, "_without", lambda body, _: body)
    rejects(test_evidence.test_fields_are_redacted_at_any_depth, (tmp_path,))


def test_name_that_leads_out(plant: Plant) -> None:
    """A name is a name."""
    plant(stores, "_safe", lambda name: name)
    rejects(test_evidence.test_no_name_leads_out_of_the_store, (MemoryStore(), ".."))
