"""Wrong implementations of the trace: validator, compaction, repair, streamed calls, and the files they are read from.

Each is planted, and a named test must reject it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import evolve

from capstate.agents.pi import Boundary
from capstate.agents.pi import history as pi
from capstate.trace import Call, Facts, Message, Outcome, Risk, Role, Row
from tests.trace import (
    test_trace_assemble,
    test_trace_check,
    test_trace_compact,
    test_trace_form,
    test_trace_injections,
    test_trace_laws,
    test_trace_naive,
    test_trace_recordings,
    test_trace_repair,
    test_trace_snapshot,
)
from tests.wrong import Plant, rejects, seeds

# The functions of these modules bear the modules' names.
check, compact, repair = (import_module(f"capstate.trace.{name}") for name in ("check", "compact", "repair"))
assemble, form, snapshot = (import_module(f"capstate.trace.{name}") for name in ("assemble", "form", "snapshot"))


# -- the validator


def test_first_fault_alone(plant: Plant) -> None:
    """Whoever mends a trace gets one fault at a time."""
    right = check._ordered
    plant(check, "_ordered", lambda faults: right(faults)[:1])
    rejects(test_trace_check.test_all_faults_of_a_trace_are_reported_in_order, ())
    rejects(test_trace_check.test_every_broken_history_is_judged_as_the_oracle_does, *seeds(1))


def test_membership_instead_of_order(plant: Plant) -> None:
    """A result belongs to its call wherever that stands."""
    right = check.units

    def units(messages: Sequence[Message]) -> Any:
        made, faults = right(messages)
        called = {call.id for message in messages for call in message.calls}
        return made, [f for f in faults if f.kind != "orphan" or f.call not in called]

    plant(check, "units", units)
    rejects(test_trace_injections.test_a_result_alone_is_an_orphan, ())
    rejects(test_trace_check.test_every_small_trace_is_judged_as_the_oracle_does, *((n,) for n in range(4)))


def test_equal_results_merged(plant: Plant) -> None:
    """A second result of a call is taken for the first again."""
    right = check.Unit.answer
    plant(check.Unit, "answer", lambda self, call, index: right(self, call, index) or True)
    rejects(test_trace_injections.test_two_results_of_one_call_are_a_duplicate, ())


def test_call_without_a_result_forgiven(plant: Plant) -> None:
    """Perhaps it still runs."""
    plant(check, "_missing", lambda _: iter(()))
    rejects(test_trace_injections.test_a_call_alone_is_a_missing_result, ())
    rejects(test_trace_recordings.test_every_request_is_legal_or_has_the_right_fault, *documents())


def documents() -> Iterator[tuple[str, bool]]:
    return ((name, named) for name in test_trace_recordings.REQUESTS for named in (True, False))


# -- compaction


def test_last_messages_as_they_come(plant: Plant) -> None:
    """The suffix begins where it was asked for."""
    plant(compact, "first_kept", lambda messages, *, keep_last, **_: max(0, len(messages) - (keep_last or 0)))
    rejects(test_trace_injections.test_a_suffix_that_starts_at_a_result_takes_its_call_along, ())
    rejects(test_trace_laws.test_a_compaction_obeys_every_law_at_every_cut, *cuts())
    rejects(test_trace_naive.test_a_naive_slice_leaves_orphans, (test_trace_naive.last,))


def cuts() -> list[tuple[int, int]]:
    return [(seed, seed % 12) for (seed,) in seeds(1, 200)]


def test_every_unit_may_go(plant: Plant) -> None:
    """Nobody asks whether it runs, waits, or is stored."""
    plant(compact, "holding", lambda *_: iter(()))
    for more, why in (({"running": {("c2", 0)}}, "running"), ({"stored": {("c1", 0)}}, "not_stored")):
        rejects(test_trace_compact.test_one_call_that_is_not_closed_holds_its_whole_unit, (more, why))
    rejects(test_trace_laws.test_a_compaction_obeys_every_law_at_every_cut, *cuts())
    rejects(test_trace_assemble.test_a_unit_that_streams_is_left_alone_until_it_ended, ())


def test_sources_of_the_last_time(plant: Plant) -> None:
    """A summary of a summary names that, and not what it stood for."""
    plant(compact, "sources_of", lambda gone: tuple(message.id for message in gone))
    rejects(test_trace_compact.test_nested_compaction_keeps_sources_and_rows, ())
    rejects(test_trace_laws.test_outcomes_and_sources_survive_any_number_of_compactions, *often())


def often() -> list[tuple[int, list[int]]]:
    return [(seed, [seed % 9, seed % 7, seed % 5]) for (seed,) in seeds(1)]


def test_unknown_told_as_done(plant: Plant) -> None:
    """It will have worked."""
    right = Facts.row

    def row(self: Facts, call: Call, message: Message, result: Message) -> Row:
        made = right(self, call, message, result)
        return evolve(made, outcome=Outcome.OK) if made.outcome is Outcome.OUTCOME_UNKNOWN else made

    plant(Facts, "row", row)
    rejects(test_trace_injections.test_an_unknown_outcome_survives_summary_and_recovery, ())
    rejects(test_trace_laws.test_outcomes_and_sources_survive_any_number_of_compactions, *often())


def test_rows_that_go_with_their_summary(plant: Plant) -> None:
    """A second compaction keeps rows of the calls that go now."""
    told(plant, lambda view, rows, unknown, now: (view, tuple(row for row in rows if row.message in now), unknown))
    rejects(test_trace_compact.test_nested_compaction_keeps_sources_and_rows, ())
    rejects(test_trace_injections.test_an_unknown_outcome_survives_summary_and_recovery, ())


def test_nothing_beside_the_summary(plant: Plant, tmp_path: Path) -> None:
    """Neither rows nor calls: what is unknown stands in the text, and a runtime does not read that."""
    told(plant, lambda *known: (known[0], (), ()))
    rejects(test_trace_laws.test_outcomes_and_sources_survive_any_number_of_compactions, *often())
    rejects(
        test_trace_naive.test_an_unknown_outcome_that_a_summary_retells_is_not_paid_twice,
        (test_trace_naive.says_failed, "another ledger", tmp_path),
    )


def told(plant: Plant, change: Any) -> None:
    """Change what a compaction tells: view, rows, calls beside the summary; and the ids that go now."""
    right = compact._Work._told

    def wrong(self: Any, gone: list[int]) -> Any:
        return change(*right(self, gone), {self.history.messages[n].id for n in gone})

    plant(compact._Work, "_told", wrong)


def test_everything_may_be_retold(plant: Plant) -> None:
    """The summariser gets every call and result as it is."""
    plant(Row, "free", property(lambda _: True))
    rejects(
        test_trace_compact.test_only_a_successful_read_is_given_to_be_retold,
        *((risk, outcome) for risk in Risk for outcome in Outcome),
    )
    rejects(
        test_trace_laws.test_a_summariser_sees_no_argument_and_no_word_of_what_it_may_not_retell,
        *((seed, 0) for (seed,) in seeds(1)),
    )


def test_arguments_shown_with_a_line(plant: Plant) -> None:
    """The result of what may not be retold is a line, and its call is as it was."""
    plant(compact, "_shown", lambda message, _: evolve(message, native=None, api=None))
    rejects(test_trace_compact.test_only_a_successful_read_is_given_to_be_retold, (Risk.IRREVERSIBLE, Outcome.OK))


def test_asked_until_it_fits(plant: Plant) -> None:
    """A summariser is a model, and costs."""
    plant(compact, "TRIES", 10**6)
    rejects(test_trace_laws.test_a_summariser_is_asked_a_bounded_number_of_times, (1, 0), (1000, 0), (100, 1))


def test_smallest_of_what_was_tried(plant: Plant) -> None:
    """Where nothing fits, the first that is smaller is taken: another compaction then finds more to do."""
    right = compact._Work.at

    def at(self: Any, place: int) -> Any:
        made = right(self, place)
        return right(self, place // 2) if place == len(self.history.messages) and made.summary is not None else made

    plant(compact._Work, "at", at)
    rejects(
        test_trace_laws.test_a_compaction_obeys_every_law_under_any_budget, *((s, s % 600) for (s,) in seeds(1, 400))
    )


# -- streamed calls, repair, snapshots


def test_arguments_mended(plant: Plant) -> None:
    """What is no object is none, and of two equal names the last counts."""
    right = assemble._arguments

    def mended(place: str, text: str) -> dict[str, Any]:
        try:
            return dict(right(place, text))
        except assemble.MalformedError:
            return {}

    plant(assemble, "_arguments", mended)
    rejects(test_trace_assemble.test_malformed_arguments_are_an_error_and_never_a_call, ('{"a": 1',), ("[1]",))


def test_last_name_counts(plant: Plant) -> None:
    """As Python reads JSON."""
    plant(assemble, "_once", dict)
    rejects(test_trace_assemble.test_malformed_arguments_are_an_error_and_never_a_call, ('{"a": 1, "a": 2}',))


def test_result_made_up_beside_the_real_one(plant: Plant) -> None:
    """A result that came before its call is an orphan, and the call gets another."""
    plant(repair._Work, "_adopt", lambda *_: None)
    rejects(
        test_trace_repair.test_each_fault_is_mended_in_its_own_way,
        ("x u a:x", ["m1", "m2", "m0"], [("moved", 0, "x")]),
    )


def test_not_run_for_all_that_is_missing(plant: Plant) -> None:
    """A call without a result did not run."""
    right = repair._Work._made

    def made(self: Any, start: int, was: Call, call: Call) -> Message:
        message: Message = right(self, start, was, call)
        return evolve(message, outcome=Outcome.NOT_RUN)

    plant(repair._Work, "_made", made)
    rejects(test_trace_repair.test_what_is_not_known_is_not_guessed, (None, Outcome.OUTCOME_UNKNOWN))


def test_dropped_without_a_word(plant: Plant) -> None:
    """What has no place in a legal trace is gone."""
    plant(repair._Work, "_drop", lambda *_: None)
    laws = test_trace_laws.test_a_repair_leaves_no_fault_loses_no_result_and_is_done_once
    rejects(laws, *((seed, "nobody knows") for (seed,) in seeds(1)))


def test_each_rule_of_a_snapshot_left_out(plant: Plant) -> None:
    """Ten rules, and a corruption for each."""
    rules = snapshot.RULES
    for left in range(len(rules)):
        plant(snapshot, "RULES", tuple(r if n != left else silent for n, r in enumerate(rules)))
        rejects(
            test_trace_snapshot.test_each_corruption_is_found_by_its_rule,
            *((name,) for name in test_trace_snapshot.CORRUPTIONS),
        )


def silent(*_: object) -> Iterator[tuple[str, str, str]]:
    return iter(())


# -- files


def test_error_that_shows_what_it_found(plant: Plant) -> None:
    """It helps, and prints what a user wrote."""
    plant(form, "_kind", repr)
    cases: list[tuple[Any, str]] = [(["secret"], "messages[0]")]
    rejects(test_trace_form.test_what_is_no_trace_is_refused_by_place, *cases)


def test_whole_path_for_what_is_sent(plant: Plant) -> None:
    """A session's history is all that it ever held, compacted or not."""
    plant(pi, "boundary", lambda path: Boundary(None, frozenset(e.id for e in path)))
    rejects(test_trace_recordings.test_a_session_is_read_as_its_model_was_sent_it, ())


def test_summary_behind_what_it_sums_up(plant: Plant) -> None:
    """It stands where the last message went, inside a unit if that is there."""
    plant(compact._History, "place", lambda _, first: first)
    rejects(test_trace_compact.test_a_summary_stands_inside_no_unit_that_stays, ())


def test_system_messages_that_go(plant: Plant) -> None:
    """They are old as well."""
    plant(compact, "Role", Loose)
    rejects(test_trace_laws.test_a_compaction_obeys_every_law_at_every_cut, *cuts())


class Loose:
    """Roles of which none is a system's."""

    SYSTEM = OPAQUE = None
    TOOL, USER, SUMMARY, ASSISTANT = Role.TOOL, Role.USER, Role.SUMMARY, Role.ASSISTANT
