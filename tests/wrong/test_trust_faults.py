"""Wrong implementations of what protects a session from whoever can write its ledger file, or from a caller's mistake.

Each is planted, and a named test must reject it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve

from capstate.runtime import facts, gated, live, opening, owned, pool, state, verdict
from capstate.runtime.state import State
from tests.runtime import test_approvals_end, test_forged, test_ids, test_replayed
from tests.runtime.stage import KEY, Stage
from tests.wrong import Plant, rejects


def asked() -> Stage:
    return test_approvals_end.stage.__wrapped__()  # type: ignore[attr-defined,no-any-return]  # the fixture's own function


def sealed() -> Stage:
    return Stage(key=KEY)


def in_file(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "agent.db", key=KEY)


def empty() -> Stage:
    return test_ids.stage.__wrapped__()  # type: ignore[attr-defined,no-any-return]  # as above


def test_job_by_its_token(plant: Plant, tmp_path: Path) -> None:
    """A grant until a job ends lives under whoever has its fencing token."""
    plant(live, "_lives", lambda g, until: g.until is None or (until is not None and g.token == until[0]))
    plant(
        State, "token", property(lambda _: 0, lambda _, __: None)
    )  # and what the entries say of tokens is not asked for when a new one is given
    rejects(test_replayed.test_a_token_set_back_revives_no_job, (sealed(), 1), (in_file(tmp_path), 1))


def test_row_compared_with_own_and_root_alone(plant: Plant) -> None:
    """What the other children used is in the row, and nobody asks them."""
    plant(pool.Tree, "_walk", lambda self, own: iter([s] if (s := self.folds.get(self.root)) and s != own else []))
    rejects(test_replayed.test_an_older_row_gives_nobody_another_call, (sealed(), "sibling", 1))


def test_tree_looked_at_once(plant: Plant) -> None:
    """The whole tree is compared at the first call, and not again."""
    right = pool.Tree._walk

    def walk(self: pool.Tree, own: State) -> Any:
        kept = vars(pool).setdefault("kept", {})
        return kept.setdefault(id(self), [evolve(s, used=dict(s.used)) for s in right(self, own)])

    plant(pool.Tree, "_walk", walk)
    rejects(test_replayed.test_an_older_row_gives_nobody_another_call, (sealed(), "root", 1))
    vars(pool).pop("kept")


def test_lost_birth_is_no_child(plant: Plant) -> None:
    """Children are those that an entry of the parent names."""
    right = pool.Tree._walk

    def walk(self: pool.Tree, own: State) -> Any:
        return right(evolve(self, ledger=Childless(self.ledger)), own)

    class Childless:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def chains(self) -> tuple[str, ...]:
            return ()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    plant(pool.Tree, "_walk", walk)
    rejects(test_replayed.test_a_child_whose_birth_was_lost_counts_all_the_same, ())


def test_forged_end_frees_a_slot(plant: Plant) -> None:
    """Whatever says that a call ended frees what it reserved."""
    right = State._settled

    def wrong(self: State, entry: Any, body: Any, adds: bool) -> None:
        right(self, entry, body, adds)
        self.reserved.pop(body["id"], None)

    for kind in ("settled", "reconciled"):
        plant_in(plant, kind, wrong)
        rejects(test_forged.test_a_forged_end_and_a_lost_row_free_no_reservation, (kind, True))


def test_forged_start_replaces_a_reservation(plant: Plant) -> None:
    """The last entry that starts an operation says what it reserved."""
    right = State._started

    def wrong(self: State, entry: Any, body: Any, adds: bool) -> None:
        right(self, entry, body, adds)
        if body["cost"] is not None:
            self.reserved[body["id"]] = [body["cost"]]

    plant_in(plant, "started", wrong)
    rejects(test_forged.test_a_forged_end_and_a_lost_row_free_no_reservation, ("started", True))


def test_forged_deny_takes_the_place_of_one(plant: Plant) -> None:
    """A deny that may not add stands under its id and its place, as text that an id may be."""
    right = State._grant

    def wrong(self: State, entry: Any, body: Any, adds: bool) -> None:
        right(self, entry, body, adds)
        if entry.sequence in self.grants:
            grant = self.grants.pop(entry.sequence)
            self.grants[f"{grant.id}@{entry.sequence}"] = grant

    plant_in(plant, "grant", wrong)
    rejects(test_forged.test_a_forged_entry_takes_away_at_most, *(("grant", n, True) for n in range(6)))


def test_forged_beginning_names_a_holder(plant: Plant) -> None:
    """What opens a holder's chain says whose it is, sealed or not."""
    right = facts.opening_from

    def wrong(chain: str, body: Any, *, adds: bool) -> Any:
        return right(chain, body, adds=adds or body["kind"] == "holder")

    plant(state, "opening_from", wrong)
    plant(live.Live, "authority", authority_of_any_opening)
    rejects(test_forged.test_a_forged_beginning_makes_a_session_nobodys, (False,), (True,))


right_authority = live.Live.authority


def authority_of_any_opening(self: live.Live, chain: str, below: tuple[str, ...] = ()) -> Any:
    found = self.folds.get(chain)
    if found is not None and found.opening is not None and found.opening.kind == "holder":
        found.opening = evolve(found.opening, kind="session")
    return right_authority(self, chain, below)


def test_moment_of_denial_forgotten(plant: Plant) -> None:
    """Only an epoch ends approvals; what the guard sees denied in between comes back."""
    plant(gated, "lapsed", lambda *_: [])
    rejects(test_approvals_end.test_what_only_the_guard_saw_denied_ends_it, (asked(), "config", "the call"))
    rejects(test_approvals_end.test_a_deny_of_what_a_bridge_reaches_ends_it, (asked(),))


def test_denies_of_the_holder_alone(plant: Plant) -> None:
    """What ends an approval stands in the holder's chain, or in the session's own."""
    right = verdict.outlived
    plant(gated, "outlived", lambda approval, others: right(approval, [s for s in others if s.chain == "ann"]))
    for chain in ("root", "parent", "origin"):
        rejects(
            test_approvals_end.test_a_deny_anywhere_above_ends_it_although_nobody_looked, (asked(), chain, "git/push")
        )


def test_line_without_the_origins(plant: Plant) -> None:
    """What an ancestor was forked from is past."""
    right = live.Live.line

    def line(self: live.Live) -> Any:
        return (s for s in right(self) if s.chain != "origin")

    plant(live.Live, "line", line)
    rejects(test_approvals_end.test_a_deny_anywhere_above_ends_it_although_nobody_looked, (asked(), "origin", "git/*"))


def test_approval_written_behind_a_deny(plant: Plant) -> None:
    """Whatever was posted since the person looked, the approval is appended."""
    right = owned.Owned._append

    def wrong(self: Any, *records: Any, derived: bool = False, **more: Any) -> None:
        right(self, *records, derived=derived and records[0].kind != "approved", **more)

    plant(owned.Owned, "_append", wrong)
    rejects(test_approvals_end.test_a_deny_that_comes_while_a_person_approves_comes_before, ())


def test_holders_chain_taken_over(plant: Plant) -> None:
    """A chain that no session was opened in is free for one."""
    plant(opening, "_only_posts", lambda found: found.opening is not None and found.opening.kind == "holder")
    for how in ("spawn", "fork", "session"):
        rejects(test_ids.test_a_holders_chain_is_taken_over_by_nobody, (empty(), how))


def test_holder_by_its_name_alone(plant: Plant) -> None:
    """Whatever chain bears the name of the holder is the holder's."""
    plant(live, "shares", lambda *_: True)
    rejects(test_ids.test_a_session_that_is_not_its_own_holder_is_nobodys, (empty(), "child"))


def test_entries_written_unread(plant: Plant) -> None:
    """What a caller gives is appended; how it reads shows later."""
    plant(owned, "check_entries", lambda _: None)
    plant(opening, "check_entries", lambda _: None)
    for name in ("record of the host", "append as the owner"):
        rejects(test_ids.test_no_argument_makes_a_session_read_only, (test_ids.WRONG[name], None))


def test_plain_clock(plant: Plant, tmp_path: Path) -> None:
    """Entries outside a session bear the time of the machine."""
    plant(opening.Opener, "_now", lambda self, latest: min(self._clock(), latest or self._clock()))
    for how in ("post", "append"):
        rejects(test_replayed.test_no_entry_is_written_behind_the_chain, (sealed(), how))
    rejects(test_replayed.test_no_entry_is_written_behind_the_chain, (in_file(tmp_path), "post"))


def test_time_of_anybody(plant: Plant) -> None:
    """The latest time in a chain is the latest, whoever wrote it."""
    right = State.apply

    def wrong(self: State, entry: Any) -> None:
        right(self, entry)
        self.at = max(self.at, entry.at)

    plant(State, "apply", wrong)
    rejects(test_replayed.test_a_forged_time_is_not_taken_over, (sealed(),))


def test_loss_that_nobody_is_told(plant: Plant) -> None:
    """A rollback of another chain is the business of its own session."""
    plant(owned.Owned, "_tell", lambda _: None)
    rejects(test_replayed.test_a_rollback_that_only_a_descendant_saw_is_kept_where_it_was, (0,))


def test_damage_of_the_parent_alone(plant: Plant) -> None:
    """What lies further up is the parent's business."""
    right = live.Live.line
    plant(live.Live, "line", lambda self: (s for s in right(self) if s.chain in (self.chain, "k1")))
    rejects(test_replayed.test_damage_of_an_ancestor_makes_the_line_below_wait, (1,))


def plant_in(plant: Plant, kind: str, wrong: Any) -> None:
    """Exchange the handler of one kind of entry."""
    plant(state, "_HANDLERS", {**state._HANDLERS, kind: wrong})
