"""Wrong implementations of what comes between two steps: each is planted, and a named test must reject it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
from attrs import evolve

from capstate.authority import Lifetime, rules_of
from capstate.ledger import Writer
from capstate.ledgers import lock_files, memory, sqlite_file
from capstate.providers import _outgoing
from capstate.providers._replay import Replay
from capstate.runtime import live, opening, sources, state, verdict
from capstate.runtime.gated import Gated
from capstate.runtime.given import Given
from capstate.runtime.owned import Owned
from tests.ledger import test_ledger_sqlite
from tests.providers import test_on_wire, test_render
from tests.providers.worlds import PROFILES
from tests.runtime import test_under_way
from tests.runtime.stage import Stage

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


def look_that_is_not_looked_at_again(patch: Patch) -> None:
    """What was posted while the host was asked is seen at the next call."""
    patch.setattr(live.Live, "look", lambda self, names, path: (self.folds.refresh(), self._once(names, path))[1])


def look_again_for_anything(patch: Patch) -> None:
    """Whatever grew is a reason to look again."""
    patch.setattr(
        live.Folds, "_versions", lambda self: {chain: head.sequence for chain, (head, _) in self._states.items()}
    )


def absent_chains_stay_absent(patch: Patch) -> None:
    """Only chains that had an entry are looked at again."""
    right = live.Folds.refresh

    def wrong(self: live.Folds) -> None:
        self._absent.clear()
        right(self)

    patch.setattr(live.Folds, "refresh", wrong)


def start_that_is_never_late(patch: Patch) -> None:
    """An append that went through is a start, whatever other chains said before it."""
    patch.setattr(Gated, "_late", lambda *_: False)


def id_checked_before_the_lock_alone(patch: Patch) -> None:
    """Whether an id is unused is found out once, before anything is locked."""

    @contextmanager
    def wrong(self: Any, id_: str, place: str, session: Any) -> Any:
        opening._check_unused(self.state(id_), id_, place, session)
        with self._locked(id_) as (writer, _):
            yield writer

    patch.setattr(opening.Opener, "_unused", wrong)


def holder_compared_before_the_lock(patch: Patch) -> None:
    """What the chain said before it was locked is what it says."""

    @contextmanager
    def wrong(self: Any, id_: str) -> Any:
        known = self.state(id_)
        writer = self.ledger.lock(id_)
        try:
            yield writer, known
        except BaseException:
            writer.close()
            raise

    patch.setattr(opening.Opener, "_locked", wrong)


def whatever_iterates_is_a_list(patch: Patch) -> None:
    """A future that iterates over nothing holds no rules, and no groups."""
    patch.setattr(sources, "_listed", lambda value, _: list(value))
    patch.setattr(sources, "_listable", lambda _: True)


def rules_without_a_time(patch: Patch) -> None:
    """When a rule of the host expires is the host's business."""
    patch.setattr(live, "_unexpired", lambda said, _: said)


def rules_of_any_lifetime(patch: Patch) -> None:
    """A source may say that a rule is a session's."""
    patch.setattr(
        sources,
        "rules_of",
        lambda raw, place: tuple(
            evolve(r, lifetime=Lifetime.PERSISTENT, until=None, token=None) for r in rules_of(raw, place)
        ),
    )


def acceptance_of_all_before_it(patch: Patch) -> None:
    """Whoever accepts, accepts all that is damaged before the entry, also later."""

    def wrong(self: state.State, entry: Any, _: Any, __: bool) -> None:
        self.accepted |= {(first, last) for first in range(-1, entry.sequence) for last in range(-1, entry.sequence)}

    patch.setitem(state._HANDLERS, "accepted", wrong)


def acceptance_of_what_the_session_saw_alone(patch: Patch) -> None:
    """Spans as a new reader finds them are not asked for."""
    patch.setattr(
        Given,
        "_accepted",
        lambda _, found, by, lost: {"by": by, "damage": sorted(map(list, found.accepted)), "lost": lost},
    )


def rollback_kept_to_oneself(patch: Patch) -> None:
    """What this process saw is in its memory."""
    patch.setattr(Owned, "_tell", lambda _: None)


def rejection_of_a_definition(patch: Patch) -> None:
    """Another definition under the name was not rejected."""
    right = verdict._asked

    def wrong(found: Any, call: Any, own: Any, origins: Any) -> Any:
        for each in (own, *origins):
            for key, given in list(each.rejected.items()):
                if found.row is not None and given.definition != found.row.definition.fingerprint:
                    del each.rejected[key]
        return right(found, call, own, origins)

    patch.setattr(verdict, "_asked", wrong)


def rejection_that_stays_at_home(patch: Patch) -> None:
    """A fork was rejected nothing."""
    right = verdict._asked
    patch.setattr(verdict, "_asked", lambda found, call, own, _: right(found, call, own, []))


def revision_of_the_session_alone(patch: Patch) -> None:
    """Each session has seen for itself."""
    patch.setattr(sources.Revisions, "highest", lambda *_: -1)


def revision_that_no_entry_holds(patch: Patch) -> None:
    """A restart begins anew."""
    patch.setattr(sources.Sources, "unknown", lambda *_: [])


def token_from_the_row_alone(patch: Patch) -> None:
    """What the entries name is not asked for."""

    @contextmanager
    def wrong(self: Any, id_: str) -> Any:
        writer = self.ledger.lock(id_)
        try:
            yield writer, self.state(id_)
        except BaseException:
            writer.close()
            raise

    patch.setattr(opening.Opener, "_locked", wrong)


def owner_asked_by_taking(patch: Patch) -> None:
    """Whoever can be replaced is dead."""
    patch.setattr(memory.MemoryLedger, "owned", lambda *_: False)


def lock_that_outlives_its_file(patch: Patch) -> None:
    """A lock is a lock."""
    patch.setattr(lock_files.LockFile, "lost", False)
    patch.setattr(Writer, "closed", property(lambda self: self._release is None))


def schema_looked_at_once(patch: Patch) -> None:
    """When it was opened it was ours."""
    patch.setattr(sqlite_file, "check_schema", lambda *_: None)


def mark_at_a_place_that_nobody_writes(patch: Patch) -> None:
    """Wherever a mark stands, somebody will put the tool there."""
    right = _outgoing.plan
    patch.setattr(_outgoing, "plan", lambda *given, **more: right(*given, **{**more, "spots": None}))
    patch.setattr(_outgoing, "after_round", lambda _: lambda spot: spot)


def hosted_placeholder(patch: Patch) -> None:
    """The name alone makes the placeholder."""
    patch.setattr(Replay, "_is_plain", lambda *_: True)


def forged_place(patch: Patch) -> None:
    """Whoever wrote it, it stands where it says."""
    right = state.State._load

    def wrong(self: state.State, entry: Any, body: Any, adds: bool) -> None:
        right(self, entry, body, adds)
        self.loads = (*self.loads[:-1], evolve(self.loads[-1], at=body.get("at"), call=body.get("call")))

    patch.setitem(state._HANDLERS, "unload", wrong)


def lists(name: str) -> tuple[Callable[[], Any], ...]:
    return (Stage, lambda: name)


IN = test_under_way
FAULTS: list[tuple[Fault, Callable[..., None], tuple[Callable[[], Any], ...]]] = [
    (
        look_that_is_not_looked_at_again,
        IN.test_a_deny_while_the_host_is_asked_holds,
        (Stage, lambda: "source", lambda: "s"),
    ),
    (absent_chains_stay_absent, IN.test_a_deny_while_the_host_is_asked_holds, (Stage, lambda: "source", lambda: "ann")),
    (look_again_for_anything, IN.test_a_busy_parent_is_no_reason_to_look_again, (Stage,)),
    (start_that_is_never_late, IN.test_a_deny_to_another_chain_before_the_start_is_durable_ends_it, (Stage,)),
    (id_checked_before_the_lock_alone, IN.test_an_id_that_somebody_takes_meanwhile_is_refused, lists("spawn")),
    (holder_compared_before_the_lock, IN.test_a_session_of_another_holder_that_begins_meanwhile_is_refused, (Stage,)),
    (whatever_iterates_is_a_list, IN.test_a_catalog_that_is_no_list_at_every_look_cannot_be_read, lists("awaitable")),
    (
        whatever_iterates_is_a_list,
        IN.test_what_is_no_list_at_every_look_is_an_error_of_the_source,
        (*lists("awaitable"), bool),
    ),
    (rules_without_a_time, IN.test_a_rule_of_the_host_expires, lists("sources")),
    (rules_without_a_time, IN.test_a_rule_of_the_host_expires, lists("ceilings")),
    (
        rules_of_any_lifetime,
        IN.test_a_rule_that_nobody_would_end_is_an_error_of_the_source,
        (Stage, lambda: IN.OF_A_SESSION),
    ),
    (acceptance_of_all_before_it, IN.test_what_is_damaged_after_an_acceptance_waits_again, (Stage,)),
    (acceptance_of_what_the_session_saw_alone, IN.test_what_is_damaged_after_an_acceptance_waits_again, (Stage,)),
    (
        rollback_kept_to_oneself,
        IN.test_a_rollback_that_was_seen_is_told_at_once,
        (Stage, lambda: "guard", lambda: "ann"),
    ),
    (rollback_kept_to_oneself, IN.test_a_rollback_that_was_seen_is_told_at_once, (Stage, lambda: "close", lambda: "s")),
    (rejection_of_a_definition, IN.test_a_rejection_outlives_the_definition, (Stage,)),
    (rejection_that_stays_at_home, IN.test_a_rejection_goes_with_the_fork, (Stage,)),
    (
        revision_of_the_session_alone,
        IN.test_a_revision_that_a_guard_saw_is_not_forgotten,
        (*lists("sources"), lambda: "session"),
    ),
    (
        revision_that_no_entry_holds,
        IN.test_a_revision_that_a_guard_saw_is_not_forgotten,
        (*lists("ceilings"), lambda: "restart"),
    ),
    (revision_that_no_entry_holds, IN.test_a_parents_revision_is_not_forgotten_either, (Stage,)),
    (token_from_the_row_alone, IN.test_a_token_that_was_set_back_is_raised_above_the_entries, (Stage,)),
    (owner_asked_by_taking, IN.test_the_slots_of_an_owner_that_lives_are_not_freed, (Stage,)),
    (forged_place, IN.test_what_was_forged_has_no_place, (lambda: "unload",)),
    (hosted_placeholder, test_on_wire.test_placeholder_is_no_tool_and_no_hiding_place, ()),
]


@pytest.mark.parametrize(
    ("fault", "test", "given"), FAULTS, ids=[f"{n} {fault.__name__}" for n, (fault, _, _) in enumerate(FAULTS)]
)
def test_the_fault_is_rejected(
    fault: Fault, test: Callable[..., None], given: tuple[Callable[[], Any], ...], monkeypatch: Patch
) -> None:
    """The named test passes on the product, and fails on the product with the fault."""
    test(*(make() for make in given))
    fault(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(*(make() for make in given))


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        (lock_that_outlives_its_file, test_ledger_sqlite.test_a_writer_whose_lock_file_is_gone_is_none_any_more),
        (schema_looked_at_once, test_ledger_sqlite.test_a_trigger_that_is_added_while_it_is_open_swallows_nothing),
    ],
)
def test_the_fault_of_a_file_is_rejected(
    fault: Fault, test: Callable[..., None], tmp_path: Any, monkeypatch: Patch
) -> None:
    """The same, with a ledger file."""
    more = (False,) if fault is lock_that_outlives_its_file else ()
    test(tmp_path / "right.db", *more)
    fault(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(tmp_path / "wrong.db", *more)


@pytest.mark.parametrize("name", ["responses-additional", "chat-system"])
def test_the_fault_of_a_mark_is_rejected(name: str, monkeypatch: Patch) -> None:
    """The same, with histories that were cut."""
    test = test_render.test_whatever_was_cut_away_nothing_is_lost_or_added
    test(PROFILES[name], False)
    mark_at_a_place_that_nobody_writes(monkeypatch)
    with pytest.raises((AssertionError, ExceptionGroup)):
        test(PROFILES[name], False)
