"""Wrong implementations of the stateful side: each is planted, and a named test must reject it.

A fault is a function that patches the product; the test beside it passes without the fault and fails with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from capstate import chains, effects, grants
from capstate.authority import Authority, Effect, Grant, Source
from capstate.errors import InvalidInputError, LedgerUnavailableError, Refused
from capstate.ledger import Outcome
from capstate.ledgers import memory
from capstate.projection import is_sent
from capstate.providers import _anthropic_wire, _outgoing
from capstate.providers._replay import Replay
from capstate.receipts import Rows
from capstate.runtime import (
    acts,
    given,
    guard,
    history,
    live,
    owned,
    recovering,
    session,
    state,
    verdict,
    wire,
)
from capstate.runtime.gated import Gated
from capstate.runtime.owned import Owned
from capstate.runtime.sources import Sources
from capstate.trace import Role
from tests.providers import test_render
from tests.runtime import (
    test_approvals,
    test_arguments,
    test_async_guard,
    test_check,
    test_children_and_forks,
    test_damage,
    test_guard,
    test_jobs,
    test_limits,
    test_operations,
    test_pins,
    test_reproject,
    test_sources,
)
from tests.runtime.stage import Stage

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


def cached_authority_on_resume(patch: Patch) -> None:
    """Authority is computed once for a chain, and remembered over restarts."""
    known: dict[str, Any] = {}
    right = live.Live.authority

    def wrong(self: live.Live, chain: str, below: tuple[str, ...] = ()) -> Any:
        return known.setdefault(chain, right(self, chain, below))

    patch.setattr(live.Live, "authority", wrong)


def guard_that_trusts_the_epoch(patch: Patch) -> None:
    """The guard asks the surface of the last look instead of deriving it again."""
    right = live.Live.look

    def wrong(self: live.Live, names: Any, path: Any) -> Any:
        if self._looked is None:
            return right(self, names, path)
        return self._looked[0][0], self._looked[0][1], self._looked[1]

    patch.setattr(live.Live, "look", wrong)


def surface_restored_from_the_last_receipt(patch: Patch) -> None:
    """What the last receipt shows as callable is granted at resume."""
    right = live.Live._make

    def wrong(self: live.Live, chain: str, state_: Any, *more: Any) -> Any:
        made = right(self, chain, state_, *more)
        restored = []
        for group, digest in state_.receipt[1]["groups"] if state_.receipt is not None else ():
            rows = Rows.from_bytes(group, self.folds.ledger.blob(digest) or b"[]").by_name().values()
            restored += [Grant(f"{group}/{row.name}", Effect.ALLOW, id=row.name) for row in rows if row.callable]
        pool = evolve(made.authority.pool, granted=(*made.authority.pool.granted, *restored))
        return made._replace(authority=Authority(pool, made.authority.ceilings, made.authority.parent))

    patch.setattr(live.Live, "_make", wrong)


def child_checked_only_at_spawn(patch: Patch) -> None:
    """The parent's authority is taken once."""
    right = live.Live._parent
    known: dict[tuple[int, str], Any] = {}

    def wrong(self: live.Live, parent: str, below: tuple[str, ...]) -> Any:
        key = (id(self), parent)
        if key not in known:
            known[key] = right(self, parent, below)
        return known[key]

    patch.setattr(live.Live, "_parent", wrong)


def append_without_expected_head(patch: Patch) -> None:
    """The storage takes an append whatever the head is by now."""
    right: Callable[..., None] = vars(memory)["check_writer"]

    def wrong(chain: str, writer: Any, token: int, *, expect: Any, head: Any) -> None:
        right(chain, writer, token, expect=head, head=head)
        del expect

    patch.setattr(memory, "check_writer", wrong)


def epoch_returned_before_it_is_durable(patch: Patch) -> None:
    """A receipt that could not be written is left for later."""
    right = Owned._append

    def wrong(self: Owned, *records: Any, **more: Any) -> None:
        try:
            right(self, *records, **more)
        except LedgerUnavailableError:
            if not more.get("blobs"):
                raise

    patch.setattr(Owned, "_append", wrong)


def source_that_raises_taken_as_before(patch: Patch) -> None:
    """While a source fails, what it returned last counts."""
    right = Sources.read

    def wrong(self: Sources, holder: str, seen: Any) -> list[Any]:
        return [
            slot.last[holder][2] if read.state == "error" and holder in slot.last else read
            for slot, read in zip(self._slots, right(self, holder, seen), strict=True)
        ]

    patch.setattr(Sources, "read", wrong)


def failed_source_left_out(patch: Patch) -> None:
    """A source that fails is just not there; the others go on."""
    right = Sources.read

    def wrong(self: Sources, holder: str, seen: Any) -> list[Any]:
        return [s for s in right(self, holder, seen) if not isinstance(s, Source) or s.state == "ok"]

    patch.setattr(Sources, "read", wrong)


def pin_taken_anew_at_every_start(patch: Patch) -> None:
    """The configuration's pins are those of this start."""
    right = live.Live.unseen_pins
    taken: set[int] = set()

    def unseen(self: live.Live, catalog: Any) -> Any:
        if id(self) in taken:
            return
        taken.add(id(self))
        holder = self.folds.get(self.state.opening.holder) if self.state.opening is not None else None
        if holder is not None:
            holder.pins.clear()
            holder.version += 1
        yield from right(self, catalog)

    patch.setattr(live.Live, "unseen_pins", unseen)


def verify_without_a_head(patch: Patch) -> None:
    """An intact chain is taken for the chain that was seen before."""
    patch.setattr(chains, "_compare", lambda entries, head: (Outcome.INTACT_UNANCHORED, f"{len(entries)} {head}", None))


def native_item_replayed_to_another_issuer(patch: Patch) -> None:
    """Whoever made it, it goes as it is."""
    right = _outgoing._entry

    def wrong(message: Any, apis: Any, issuer: str, held: Any, passes: Any) -> Any:
        return right(evolve(message, issuer=issuer, api=next(iter(apis))), apis, issuer, held, passes)

    patch.setattr(_outgoing, "_entry", wrong)


def opaque_item_taken_for_a_mark(patch: Patch) -> None:
    """An item that stands for the entry of a load holds it."""
    right = history.retained

    def wrong(loads: Any, messages: Any) -> Any:
        more = [evolve(m, id=c) for m in messages if m.role is Role.OPAQUE for c in m.covers]
        return right(loads, [*messages, *more])

    patch.setattr(session, "retained", wrong)


def forged_entry_replaces_a_deny(patch: Patch) -> None:
    """What nobody sealed may add."""
    right = state.State.apply

    def wrong(self: state.State, entry: Any) -> None:
        right(self, evolve(entry, unsealed=False))

    patch.setattr(state.State, "apply", wrong)


def approval_by_call_id_alone(patch: Patch) -> None:
    """Arguments and definition of an approved call do not matter."""
    patch.setattr(verdict, "_matches", lambda approval, _, call: approval.call == call.id)


def approval_that_no_deny_ends(patch: Patch) -> None:
    """A deny holds while it stands, and leaves approvals alone."""
    right = state.State._grant

    def wrong(self: state.State, entry: Any, body: Any, adds: bool) -> None:
        kept = list(self.approvals)
        right(self, entry, body, adds)
        self.approvals = kept

    patch.setitem(state._HANDLERS, "grant", wrong)


def inner_tool_not_judged(patch: Patch) -> None:
    """A bridge is judged by its own name."""
    patch.setattr(verdict, "_reached", lambda *_: ())


def bridge_that_names_nothing_starts(patch: Patch) -> None:
    """What a bridge would reach is judged only if it can be told."""
    right = verdict._reached
    patch.setattr(verdict, "_reached", lambda *given: right(*given) or ())


def type_of_a_tool_ignored(patch: Patch) -> None:
    """A definition is its description and its schema, whatever runs it."""
    right = is_sent
    kept = ("description", "schema")
    patch.setattr(wire, "is_sent", lambda d, sent: right(d, {k: sent[k] for k in kept if k in sent}))


def last_definition_wins(patch: Patch) -> None:
    """Of two definitions of one name the second is compared alone."""

    def wrong(self: Replay, name: str, definition: Any) -> None:
        self._definitions[name] = definition

    patch.setattr(Replay, "_define", wrong)


def removal_heeded_anywhere(patch: Patch) -> None:
    """A typed removal takes a name away, whoever says it."""
    right = _anthropic_wire._removal
    patch.setattr(_anthropic_wire, "_removal", lambda *given, **_: right(*given, removes=True))


def what_is_not_known_is_nothing(patch: Patch) -> None:
    """Keys and items that the reader does not know carry no tools."""
    right = wire.exceeding
    patch.setattr(session, "exceeding", lambda read, *more: right(evolve(read, unknown={}), *more))


def observed_is_executing(patch: Patch) -> None:
    """What was seen to have ended is asked after again, and may run again."""
    right = acts.Acts._settled

    def wrong(self: Any, entry: Any, body: Any, adds: bool) -> None:
        if entry.kind != "observed":
            right(self, entry, body, adds)

    patch.setitem(state._HANDLERS, "observed", wrong)


def recovery_repeats_what_it_cannot_tell(patch: Patch) -> None:
    """Whatever may have happened is run again."""
    right = effects.step
    patch.setattr(effects, "step", lambda operation, answer, **_: right(operation, answer, idempotent=True))


def prepared_is_nobodys(patch: Patch) -> None:
    """A prepared operation does not stand in the way of an equal call."""
    right = acts.Acts._put

    def wrong(self: Any, operation: Any) -> None:
        right(self, operation)
        if operation.state == "prepared":
            self.open.pop(operation.id)

    patch.setattr(acts.Acts, "_put", wrong)


def job_grant_of_any_process(patch: Patch) -> None:
    """A grant until a job ends lives while the ledger holds it."""
    patch.setattr(live, "_lives", lambda *_: True)


def limits_by_the_row_alone(patch: Patch) -> None:
    """The pool's row is believed."""
    right = Gated._usage

    def wrong(self: Gated) -> Any:
        row = self._runtime.ledger.pool(self._root())
        found = guard_usage(row) if row is not None else None
        return found if found is not None else evolve(right(self), calls=0, spent=0, running={})

    def guard_usage(row: Any) -> Any:
        from capstate.runtime.pool import Usage

        return Usage.read(row.value, row.version, "", None)

    patch.setattr(Gated, "_usage", wrong)


def settled_on_the_loop(patch: Patch) -> None:
    """Settling within ``async with`` writes at once, on the event loop's thread."""
    right = guard.Gate.__aenter__

    async def wrong(self: guard.Gate) -> Any:
        permit = await right(self)
        permit._later = False
        return permit

    patch.setattr(guard.Gate, "__aenter__", wrong)


def refusal_that_says_too_much(patch: Patch) -> None:
    """The result repeats what was called and why it was refused."""
    right = verdict.refusal

    def wrong(call: Any, found: Any) -> Any:
        no = right(call, found)
        if isinstance(no, Refused):
            no.result = evolve(no.result, text=f"{call.tool}: {found.decided_by}")
        return no

    patch.setattr("capstate.runtime.gated.refusal", wrong)


def config_stage(made: Stage, *default: Any) -> Stage:
    made.default = list(default)
    return made


def asked() -> Stage:
    return test_approvals.stage.__wrapped__()  # type: ignore[attr-defined,no-any-return]  # the fixture's own function


def sealed_rewrite() -> None:
    test_pins.test_a_forged_pin_is_none_and_stays_none()


def lost_row() -> None:
    test_limits.test_a_row_that_was_tampered_with_gives_nothing_back("deleted", None)


def evidence_written_as_it_comes(patch: Patch) -> None:
    """What a reconciliation cites goes into the entry unchecked, and the chain does not read back."""
    patch.setattr(recovering, "an_id_or_none", lambda value, _: value)
    patch.setattr(owned, "check_entries", lambda _: None)


def selector_with_any_wildcard(patch: Patch) -> None:
    """A deny of ``git/pu*`` is taken, and denies nothing."""
    patch.setattr(grants, "is_selector", lambda value: value == "*" or ("/" in value and "" not in value.split("/")))


def grant_that_pins_nothing(patch: Patch) -> None:
    """An allow of what does not exist is given, and covers nothing for good."""
    right = given.Given._given

    def wrong(self: given.Given, on: str, effect: Effect, by: str, lifetime: Any, **more: Any) -> Grant:
        try:
            return right(self, on, effect, by, lifetime, **more)
        except InvalidInputError:
            return Grant(on, effect, frozenset(), giver=by, lifetime=lifetime, until=more.get("until"))

    patch.setattr(given.Given, "_given", wrong)


def bridged() -> Stage:
    return test_guard.bridged.__wrapped__(Stage())  # type: ignore[attr-defined,no-any-return]


def bypass(name: str) -> tuple[Callable[[], Any], ...]:
    return Stage, lambda: "anthropic", lambda: name


def config_put() -> Stage:
    return test_operations.stage.__wrapped__()  # type: ignore[attr-defined,no-any-return]


FAULTS: list[tuple[Fault, Callable[..., None], tuple[Callable[[], Any], ...]]] = [
    (cached_authority_on_resume, test_reproject.test_a_resumed_session_is_compared_with_its_last_receipt, (Stage,)),
    (
        guard_that_trusts_the_epoch,
        test_reproject.test_denies_revokes_and_ends_from_outside_are_seen_at_the_next_call,
        (Stage,),
    ),
    (
        surface_restored_from_the_last_receipt,
        test_reproject.test_a_resumed_session_is_compared_with_its_last_receipt,
        (Stage,),
    ),
    (
        child_checked_only_at_spawn,
        test_children_and_forks.test_a_parent_that_shrinks_shrinks_its_line_at_once,
        (Stage,),
    ),
    (append_without_expected_head, test_reproject.test_a_post_between_judging_and_starting_is_judged_again, (Stage,)),
    (epoch_returned_before_it_is_durable, test_reproject.test_an_append_that_fails_returns_no_epoch, (Stage,)),
    (
        source_that_raises_taken_as_before,
        test_sources.test_a_source_that_raised_for_a_moment_is_not_taken_as_before,
        (Stage,),
    ),
    (failed_source_left_out, test_sources.test_a_source_that_raises_takes_the_whole_pool_along, (Stage,)),
    (pin_taken_anew_at_every_start, test_pins.test_a_restart_does_not_take_it_anew, (test_pins.stage.__wrapped__,)),  # type: ignore[attr-defined]
    (verify_without_a_head, test_damage.test_a_head_kept_elsewhere_shows_a_rollback, (Stage,)),
    (native_item_replayed_to_another_issuer, test_render.test_opaque_item_goes_to_its_issuer_alone_and_as_it_is, ()),
    (opaque_item_taken_for_a_mark, test_reproject.test_an_opaque_item_is_no_mark, (Stage,)),
    (forged_entry_replaces_a_deny, sealed_rewrite, ()),
    (approval_by_call_id_alone, test_approvals.test_another_definition_leaves_it_untouched, (asked,)),
    (approval_that_no_deny_ends, test_approvals.test_a_later_deny_ends_it, (asked,)),
    (inner_tool_not_judged, test_guard.test_what_a_bridge_reaches_is_judged_too, (bridged,)),
    (
        bridge_that_names_nothing_starts,
        test_guard.test_a_bridge_behind_a_bridge_cannot_be_told,
        (bridged, lambda: {"to": "git/log"}),
    ),
    (
        type_of_a_tool_ignored,
        test_check.test_a_body_that_may_make_more_callable_is_refused,
        bypass("hosted shell in disguise"),
    ),
    (
        last_definition_wins,
        test_check.test_a_body_that_may_make_more_callable_is_refused,
        bypass("second definition before"),
    ),
    (removal_heeded_anywhere, test_check.test_a_removal_counts_only_where_the_provider_heeds_it, (Stage,)),
    (
        what_is_not_known_is_nothing,
        test_check.test_a_body_that_may_make_more_callable_is_refused,
        bypass("kept history"),
    ),
    (observed_is_executing, test_operations.test_an_operation_goes_through_its_states_under_one_id, (config_put,)),
    (
        recovery_repeats_what_it_cannot_tell,
        test_operations.test_a_tool_that_is_no_longer_idempotent_is_not_repeated,
        (config_put,),
    ),
    (prepared_is_nobodys, test_operations.test_a_prepared_call_starts_once_and_nobody_elses, (config_put,)),
    (job_grant_of_any_process, test_jobs.test_another_token_is_nothing, (lambda: config_stage(Stage()), lambda: 99)),
    (limits_by_the_row_alone, lost_row, ()),
    (settled_on_the_loop, test_async_guard.test_settling_within_the_block_does_not_touch_the_ledger, (Stage,)),
    (
        evidence_written_as_it_comes,
        test_arguments.test_no_odd_argument_of_a_session_hurts,
        (lambda: "reconcile.evidence",),
    ),
    (
        selector_with_any_wildcard,
        test_arguments.test_a_slip_in_a_selector_is_refused_everywhere,
        (lambda: "git/pu*",),
    ),
    (grant_that_pins_nothing, test_arguments.test_a_pin_on_nothing_is_refused_and_an_open_grant_is_not, ()),
    (refusal_that_says_too_much, test_guard.test_a_refusal_is_one_result_that_names_no_tool, (Stage,)),
]


@pytest.mark.parametrize(("fault", "test", "given"), FAULTS, ids=[fault.__name__ for fault, _, _ in FAULTS])
def test_the_fault_is_rejected(
    fault: Fault, test: Callable[..., None], given: tuple[Callable[[], Any], ...], monkeypatch: Patch
) -> None:
    """The named test passes on the product, and fails on the product with the fault."""
    test(*(make() for make in given))
    fault(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(*(make() for make in given))
