"""Faults of the pure core."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from capstate import authority, capabilities, digest, epochs, loads, projection, rows, surface
from capstate.epochs import Epoch, Facts, reproject
from capstate.loads import Event, counting
from capstate.projection import Block, Mark, Placed
from capstate.receipts import Receipt
from capstate.surface import Load, LoadKind, View
from tests.core import (
    test_against_model,
    test_capabilities,
    test_digest,
    test_laws_authority,
    test_laws_epochs,
    test_lifecycle,
    test_projection,
    test_receipts,
    test_surface,
)
from tests.wrong import Plant, rejects, seeds


def lives(session: type[test_lifecycle.Session]) -> None:
    """The state machine of a session's life, for ``rejects``."""
    found = settings(max_examples=200, database=None, derandomize=True, deadline=None, phases=[Phase.generate])
    run_state_machine_as_test(session, settings=found)


# -- authority


def test_union_for_meet(plant: Plant) -> None:
    """Ceilings add: the greatest of the parts decides."""

    def greatest(self: Any, name: str, print_: str) -> Any:
        return max((part.result(name, print_) for part in self.parts), key=lambda result: result.rank)

    plant(authority.GroupAuthority, "_least", greatest)
    rejects(test_laws_authority.test_a_ceiling_is_a_meet, *seeds(2))


def test_names_instead_of_definitions(plant: Plant) -> None:
    """A pin covers whatever bears the name that it lists."""
    right = authority._Rule.verdict

    def by_name(self: Any, name: str, print_: str) -> int | None:
        verdict = right(self, name, print_)
        return 2 if verdict == 3 else verdict

    plant(authority._Rule, "verdict", by_name)
    rejects(test_against_model.test_the_table, *((row,) for row in test_against_model.TABLE))


def test_a_source_that_raises_is_as_before(plant: Plant) -> None:
    """The rules that it returned last still count while it fails."""
    plant(authority.Authority, "_pool_fixed", lambda _: None)
    rejects(test_laws_authority.test_a_source_that_fails_gives_nothing, *((seed, "error") for (seed,) in seeds(1)))


def test_a_child_brings_its_own_allows(plant: Plant) -> None:
    """Its configuration adds to its want."""

    def unfiltered(self: authority.Authority) -> Iterable[tuple[str, authority.Grant]]:
        wanted = [("want", authority.allow(on, id=on)) for on in self.pool.want or ()]
        return wanted + [(s.name, rule) for s in self.pool.sources for rule in s.rules]

    plant(authority.Authority, "_pool_rules", unfiltered)
    rejects(test_laws_authority.test_a_child_is_its_want_cut_by_its_parent, *seeds(1))


def test_an_ask_of_a_child_adds(plant: Plant) -> None:
    """In the pool, an ask makes callable what the child never wanted."""

    def pooled(self: authority.Authority) -> Iterable[tuple[str, authority.Grant]]:
        wanted = [("want", authority.allow(on, id=on)) for on in self.pool.want or ()]
        return wanted + [(source, rule) for source, rule in self._given() if rule.effect is not authority.Effect.ALLOW]

    plant(authority.Authority, "_pool_rules", pooled)
    rejects(test_laws_authority.test_a_child_is_its_want_cut_by_its_parent, *seeds(1))


def test_a_child_without_a_parent_is_free(plant: Plant) -> None:
    """A parent that cannot be asked is no ceiling."""
    plant(authority.Authority, "_above", lambda *_: None)
    rejects(test_laws_authority.test_without_a_parent_to_ask_a_child_has_nothing, *(("ended", *s) for s in seeds(1)))


# -- definitions


def test_a_digest_without_length_prefixes(plant: Plant) -> None:
    """Parts are joined as they are, so that borders between them mean nothing."""
    plant(digest, "_joined", b"".join)
    rejects(test_digest.test_borders_of_parts_are_part_of_a_fingerprint, ())


def test_a_laxer_namesake_shadows_a_stricter_tool(plant: Plant) -> None:
    """Of two definitions of one name one is taken."""
    right = capabilities.Group._fill

    def shadowed(self: Any, id_: str, server: str | None, up: bool, made: list[Any]) -> None:
        right(self, id_, server, up, list({d.tool.name: d for d in made}.values()))

    plant(capabilities.Group, "_fill", shadowed)
    rejects(test_capabilities.test_two_tools_of_one_name_are_a_conflict_in_any_order, ())


# -- loads and marks


def test_a_mark_older_than_a_removal_is_honoured(plant: Plant) -> None:
    """A removal ends no mark."""
    right = surface.fold

    def fold(events: Iterable[Event], name: str, qualified: str) -> tuple[bool, Load | None]:
        return right([event for event in events if event.load.do is not LoadKind.REMOVAL], name, qualified)

    plant(surface, "fold", fold)
    rejects(test_against_model.test_random_worlds, *((part, False) for part in range(8)))
    plant(test_surface, "fold", fold)
    rejects(test_surface.test_a_tool_is_loaded_by_the_last_word_on_it, ("LR", (True, None)))


def test_a_mark_of_another_definition_is_honoured(plant: Plant) -> None:
    """A tool is deferred wherever its name was loaded."""

    def block(view: View, live: tuple[int, ...]) -> Block:
        able = [(wire, row, row.mark) for wire, row in view.wires.items()]
        deferred = [
            Placed(row.definition, wire, Mark(mark.sequence, mark.at, mark.call))
            for wire, row, mark in able
            if mark is not None and mark.sequence in live
        ]
        marked = {placed.wire for placed in deferred}
        immediate = [Placed(row.definition, wire) for wire, row, _ in able if wire not in marked]
        return Block(view, live, tuple(immediate), tuple(deferred), str(len(immediate)))

    plant(projection, "_block", block)
    rejects(test_projection.test_a_mark_of_another_definition_is_not_honoured, ())


def test_the_leaf_moves_and_nothing_happens(plant: Plant) -> None:
    """Loads of abandoned branches count as well."""

    def all_of_them(listed: Iterable[Load], _: tuple[str, ...] | None) -> list[Load]:
        return counting(listed, None)

    plant(loads, "counting", all_of_them)
    rejects(lives, (test_lifecycle.Session,))


def test_compaction_unloads(plant: Plant) -> None:
    """A load whose entry left the history is forgotten."""
    right = epochs._derive

    def forgetful(facts: Facts, last: Epoch | None) -> Any:
        kept = tuple(load for load in facts.loads if load.at is None or load.sequence in facts.retained)
        return right(evolve(facts, loads=kept), last)

    plant(epochs, "_derive", forgetful)
    rejects(lives, (test_lifecycle.Session,))


# -- the wire


def test_a_withheld_tool_is_still_rendered(plant: Plant) -> None:
    """Every tool that has a wire name is placed, callable or not."""
    right = projection._block

    def block(view: View, live: tuple[int, ...]) -> Block:
        named = {row.wire: row for row in view.rows.values() if row.wire is not None and row.loaded}
        return right(evolve(view, wires=named), live)

    plant(projection, "_block", block)
    rejects(test_laws_epochs.test_what_is_placed_is_what_is_callable, *seeds(1))


# -- receipts


def test_a_receipt_without_its_session(plant: Plant) -> None:
    """It could be shown for any other session."""
    right = epochs._body

    def unbound(*arguments: Any) -> dict[str, Any]:
        return {**right(*arguments), "session": ""}

    plant(epochs, "_body", unbound)
    rejects(test_laws_epochs.test_a_receipt_holds_its_facts, *seeds(1))


def test_the_surface_is_restored_from_the_last_receipt(plant: Plant) -> None:
    """What the receipt before says was callable is callable."""

    def restored(facts: Facts, previous: Epoch | Receipt | None) -> Epoch:
        epoch = reproject(facts, previous)
        if not isinstance(previous, Epoch):
            return epoch
        return evolve(epoch, surface=previous.surface, projection=previous.projection)

    plant(test_laws_epochs, "reproject", restored)
    rejects(test_laws_epochs.test_no_receipt_adds_a_tool, *seeds(2))


def test_a_receipt_says_nothing_of_moves(plant: Plant) -> None:
    """A tool that became immediate is no change."""
    right = rows._change

    def silent(tool: str, *sides: Any) -> Any:
        change = right(tool, *sides)
        return None if change is not None and change.action == "moved" else change

    plant(rows, "_change", silent)
    rejects(test_laws_epochs.test_each_change_of_what_is_seen_is_explained_once, *seeds(1))


def test_rows_are_believed_without_their_digest(plant: Plant) -> None:
    """Whatever the store returns under a digest, or does not return, is taken for the rows of that receipt."""
    one = test_receipts.epoch()

    def believing(encoded: bytes, _: Any) -> Receipt:
        return Receipt.from_bytes(encoded, lambda digest: one.blobs[digest])

    class Believing:
        from_bytes = staticmethod(believing)

    plant(test_receipts, "Receipt", Believing)
    rejects(test_receipts.test_altered_rows_are_found, ())


def test_the_gallery_sees_a_test_that_accepts() -> None:
    """Without a fault nothing is rejected, and ``rejects`` says so."""
    with pytest.raises(pytest.fail.Exception, match="accepts the fault"):
        rejects(test_digest.test_borders_of_parts_are_part_of_a_fingerprint, ())
