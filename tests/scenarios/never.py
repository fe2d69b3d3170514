"""What must not happen at any time: each predicate of ``then.never`` is one function over every state.

A function gives (event, what was seen) for each time that it happened. Evidence is what was on the wire, what the
spies wrote, what stands in the ledger and in receipts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.scenarios import forms, never_wire, reading
from tests.scenarios.stage import Stage, UnsupportedError
from tests.scenarios.times import Seen, during, looks, runs_in, steps


def evaluate(story: Stage, never: Mapping[str, Any]) -> list[Seen]:
    """Return every time that it happened.

    Raises:
        UnsupportedError: the predicate is unknown.
    """
    function = _PREDICATES.get(never["predicate"])
    if function is None:
        raise UnsupportedError(f"predicate {never['predicate']}")
    return list(function(story, never))


# ---- the surface


def _callable(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state in during(story, never):
        look = state.looks.get(never["session"])
        if look is None:
            continue
        views = [never["tool"] in look.callable, never["tool"] in look.wires, never["tool"] in look.explained]
        if any(view is not never["must_be"] for view in views):
            yield state.n, look.callable


def _silent_change(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after, session in steps(story, never):
        old, new = before.looks[session], after.looks[session]
        if old is new:
            continue
        told = [change for r in after.receipts.get(session, ()) for change in r["tools"]]
        named = {change[1] for change in told}
        changed = {
            q for q in old.placement.keys() | new.placement.keys() if old.placement.get(q) != new.placement.get(q)
        }
        changed |= {q for q in old.wires.keys() & new.wires.keys() if old.definitions.get(q) != new.definitions.get(q)}
        if changed - named:
            yield after.n, sorted(changed - named)


def _silent_drop(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in looks(story, never):
        lost = {q for q, reason in look.withheld.items() if reason in ("name_conflict", "name_unrepresentable")}
        told = {
            row[0] for s in story.states if s.n <= state.n for r in s.receipts.get(session, ()) for row in r["withheld"]
        }
        silent = [q for q in lost if q not in told and q.partition("/")[0] + "/*" not in told]
        allowed = state.allowed[session]
        gone = [q for q in allowed & set(look.definitions) if q not in look.wires and q not in look.withheld]
        if gone or [q for q in silent if q in allowed]:
            yield state.n, sorted({*gone, *silent})


def _silent_recovery(story: Stage, _: Mapping[str, Any]) -> Iterator[Seen]:
    reported: set[str] = set()
    for state in story.states:
        if not state.journal:
            continue
        reported |= set(state.journal["reported"])
        opened = story.journal.chain in state.fresh
        if opened and _was_damaged(story) and not reported:
            yield state.n, "damage without a receipt"
            return


def _was_damaged(story: Stage) -> bool:
    lines = story.given.get("journal", [])
    numbers = []
    for line in lines:
        try:
            numbers.append(json.loads(line)["n"])
        except (ValueError, KeyError, TypeError):
            return True
    return numbers != list(range(1, len(numbers) + 1))


def _text_authority(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in looks(story, never):
        beyond = set(look.callable) - state.allowed[session]
        if beyond:
            yield state.n, sorted(beyond)
    yield from _ran_beyond(story, never)


def _ran_beyond(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    """Runs of the named tools at a time when no live grant allowed them, neither before nor after the event."""
    states = {state.n: state for state in story.states}
    for run in runs_in(story, never):
        after = states.get(run["event"])
        before = max((s for s in story.states if s.n < run["event"]), key=lambda s: s.n, default=None)
        allowed = [s.allowed.get(run["session"], set()) for s in (before, after) if s is not None]
        if allowed and not any(run["tool"] in tools for tools in allowed):
            yield run["event"], f"{run['tool']} ran"


def _child_exceeds(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in looks(story, never):
        parent = story.parents.get(session)
        if parent is None:
            continue
        beyond = set(look.callable) - state.allowed.get(parent, set())
        if beyond or set(look.callable) - state.allowed[session]:
            yield state.n, sorted(beyond | (set(look.callable) - state.allowed[session]))
    yield from _ran_beyond(story, never)


def _leaks(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for call in never.get("calls", story.refusals):
        for refusal in story.refusals.get(call, ()):
            state = max((s for s in story.states if s.n < refusal["event"]), key=lambda s: s.n, default=story.states[0])
            look = state.looks.get(refusal["session"])
            if look is None:
                continue
            own = story.transcript(refusal["session"]).call(call) or {"tool": ""}
            rule = look.profile.names
            hidden = [d for d in forms_definitions(story) if d.qualified not in look.wires]
            names = [
                n for d in hidden for n in (d.qualified, rule.name(d)) if n and own["tool"] not in (d.qualified, n)
            ]
            found = [name for name in names if name in refusal["text"]]
            if found:
                yield refusal["event"], found


def forms_definitions(story: Stage) -> list[Any]:
    """Every definition that the world's file holds at the end."""
    return [d for g in forms.catalog_of(story.world) for d in g.definitions.values()]


# ---- calls


def _executed(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for run in runs_in(story, never):
        if run["call"] in never["calls"] and "via" not in run:
            yield run["event"], run["call"]


def _executed_more(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    runs = reading.spies_of(story.states[-1], never["call"])
    if len(runs) > never["count"]:
        yield runs[-1]["event"], len(runs)


def _executed_after_crash(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    crash = next((e["n"] for e in story.case["when"] if e["op"] == "crash"), 0)
    for run in story.states[-1].spies:
        if run["call"] in never["calls"] and run["event"] > crash:
            yield run["event"], run["call"]


def _body_reached(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    tools = {never.get("tool"), *never.get("tools", ())}
    calls = never.get("calls")
    for run in runs_in(story, never):
        if (run["tool"] in tools or tools == {None}) and (calls is None or run["call"] in calls):
            yield run["event"], run["tool"]


def _started_more(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    runs = [run for run in runs_in(story, never) if "via" not in run]
    if len(runs) > never["count"]:
        yield runs[-1]["event"], len(runs)


def _limit_reset(story: Stage, _: Mapping[str, Any]) -> Iterator[Seen]:
    root = story.given.get("limits", {}).get("root", "main")
    for before, after in pairwise(story.states):
        pools = [state.chains.get(root, {}).get("pool") for state in (before, after)]
        used = [(pool or {"calls": 0, "cost": 0})["calls"] for pool in pools]
        runs = len([run for run in after.spies if "via" not in run])
        if used[1] < used[0] or used[1] < runs:
            yield after.n, used


def _misdispatch(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    issued: dict[tuple[str, str], set[str]] = {}
    for _, session, look in looks(story, never):
        for qualified, wire in look.wires.items():
            issued.setdefault((session, wire), set()).add(qualified)
    for (session, wire), tools in issued.items():
        if len(tools) > 1:
            yield 0, f"{session}: {wire} was {sorted(tools)}"
    for run in story.states[-1].spies:
        call = story.transcript(run["session"]).call(run["call"])
        meant = issued.get((run["session"], call["tool"])) if call is not None and "via" not in run else None
        if meant is not None and run["tool"] not in meant:
            yield run["event"], f"{call['tool'] if call else ''} reached {run['tool']}"


def _asked(story: Stage) -> list[dict[str, Any]]:
    return [run for run in story.states[-1].spies if run.get("asked")]


def _approvals(story: Stage, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        e
        for e in story.case["when"]
        if e["op"] == "approve" and e["decision"] != "reject" and e["call"] == run["call"]
        and e["session"] == run["session"] and e["n"] <= run["event"]
    ]  # fmt: skip


def _misrouted(story: Stage, _: Mapping[str, Any]) -> Iterator[Seen]:
    for run in _asked(story):
        if not _approvals(story, run):
            yield run["event"], f"{run['call']} ran in {run['session']} without an approval of its own"


def _reused(story: Stage, _: Mapping[str, Any]) -> Iterator[Seen]:
    counts: dict[tuple[str, str], int] = {}
    for run in _asked(story):
        key = run["session"], run["call"]
        counts[key] = counts.get(key, 0) + 1
        if counts[key] > len(_approvals(story, run)):
            yield run["event"], f"{run['call']} ran {counts[key]} times"


def _unapproved_args(story: Stage, _: Mapping[str, Any]) -> Iterator[Seen]:
    for run in _asked(story):
        call = story.transcript(run["session"]).call(run["call"])
        if call is not None and call["args"] != run["args"]:
            yield run["event"], run["args"]


def _outcome_becomes(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    call = never["call"]
    for state in during(story, never):
        for session in state.entries:
            got = reading.outcome_of(state, session, call)
            sent = [m.get("outcome") for m in state.entries[session] if m.get("result_for") == call]
            if never.get("session", session) == session and ({got, *sent} & set(never["forbidden"])):
                yield state.n, [got, *sent]


def _summary_overrides(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after, session in steps(story, never):
        if after.event["op"] != "compact":
            continue
        for call in {c["id"] for m in before.entries[session] for c in m.get("calls", ())}:
            was, now = (reading.outcome_of(s, session, call) for s in (before, after))
            if was != now:
                yield after.n, f"{call}: {was} became {now}"


def _operation_reused(story: Stage, _: Mapping[str, Any]) -> Iterator[Seen]:
    meant: dict[str, str] = {}
    for run in story.states[-1].spies:
        if run.get("operation") is None or "via" in run:
            continue
        what = json.dumps([run["tool"], run["args"]], sort_keys=True)
        if meant.setdefault(run["operation"], what) != what:
            yield run["event"], run["operation"]


def _operation_changed(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    session, call, known = story.operations[never["operation"]]
    for run in reading.spies_of(story.states[-1], call["id"], session):
        if run["operation"] != known:
            yield run["event"], run["operation"]


# ---- pins, journal, processes


def _repinned(story: Stage, _: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after in pairwise(story.states):
        for session, chain in before.chains.items():
            now = after.chains.get(session, {"pins": {}})["pins"]
            changed = [id_ for id_, pin in chain["pins"].items() if now.get(id_, pin) != pin]
            if changed:
                yield after.n, changed


def _false_change(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    tool = never["tool"]
    for before, after in pairwise(story.states):
        for session, look in after.looks.items():
            old = before.looks.get(session)
            if old is None or old.definitions.get(tool) != look.definitions.get(tool):
                continue
            told = [c for r in after.receipts.get(session, ()) for c in r["tools"] if c[1] == tool]
            if any(c[2] == "schema_changed" or c[0] == "redefined" for c in told):
                yield after.n, told


def _record_lost(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    number = never["record"]
    written = [state.n for state in story.states if state.journal and number in state.journal["readable"]]
    for state in story.states:
        if state.journal and written and state.n >= written[0] and number not in state.journal["readable"]:
            yield state.n, state.journal["readable"]
    if not written:
        yield story.states[-1].n, "never readable"


def _records_ignored(story: Stage, _: Mapping[str, Any]) -> Iterator[Seen]:
    good = {n for n in story.journal.records if n not in story.journal.spoilt}
    for state in story.states:
        if state.journal and state is story.states[-1] and not good <= set(state.journal["readable"]):
            yield state.n, sorted(good - set(state.journal["readable"]))


def _gap(story: Stage, _: Mapping[str, Any]) -> Iterator[Seen]:
    for state in story.states:
        if state.journal and state.journal["sequence"] != "contiguous":
            yield state.n, state.journal["damage"]


def _stolen(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    owner: str | None = None
    for state in story.states:
        event = state.event
        if event["op"] == "open_writer" and state.error is None:
            if owner == never["process"]:
                yield state.n, event["process"]
            owner = event["process"]
        elif event["op"] in ("kill", "close") and event["process"] == owner:
            owner = None


def _claim_becomes(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state in during(story, never):
        kept = reading.child_record(state, never["child"])
        if kept is None:
            continue
        for claim in never["claims"]:
            if kept["claims"].get(claim) in never["forbidden"]:
                yield state.n, [claim, kept["claims"][claim]]


def _child_result_lost(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    returned = [
        n for n, e in enumerate(story.case["when"], 1) if (e["op"], e.get("child")) == ("child_result", never["child"])
    ]
    for state in during(story, never):
        if returned and state.n >= returned[0] and reading.child_record(state, never["child"]) is None:
            yield state.n, "no record"


_PREDICATES: dict[str, Callable[[Stage, Mapping[str, Any]], Iterator[Seen]]] = {
    "approval_misrouted": _misrouted,
    "approval_reused": _reused,
    "authority_from_text": _text_authority,
    "body_reached": _body_reached,
    "call_id_collision": never_wire.call_ids,
    "callable": _callable,
    "changed_by_failed_compaction": never_wire.failed_compaction,
    "child_exceeds_parent": _child_exceeds,
    "child_result_lost": _child_result_lost,
    "claim_becomes": _claim_becomes,
    "cover_lost": never_wire.cover_lost,
    "executed": _executed,
    "executed_after_crash": _executed_after_crash,
    "executed_more_than": _executed_more,
    "executed_unapproved_args": _unapproved_args,
    "false_schema_change": _false_change,
    "fingerprint_collision": never_wire.collision,
    "fork_bound_to_origin": never_wire.fork_bound,
    "group_split": never_wire.group_split,
    "illegal_name": never_wire.illegal,
    "late_result_in_fork": never_wire.late_in_fork,
    "leaks_names": _leaks,
    "limit_reset": _limit_reset,
    "lock_stolen_from_live": _stolen,
    "misdispatch": _misdispatch,
    "name_collision": never_wire.name_collision,
    "open_call_summarised": never_wire.open_summarised,
    "operation_id_changed": _operation_changed,
    "operation_reused": _operation_reused,
    "order_dependent_names": never_wire.twins,
    "orphan_result": never_wire.orphan,
    "outcome_becomes": _outcome_becomes,
    "record_lost": _record_lost,
    "records_ignored": _records_ignored,
    "reference_to_uncallable": never_wire.uncallable_reference,
    "repinned_by_restart": _repinned,
    "result_dropped": never_wire.result_dropped,
    "results_more_than": never_wire.results_more,
    "sequence_gap": _gap,
    "silent_change": _silent_change,
    "silent_drop": _silent_drop,
    "silent_recovery": _silent_recovery,
    "started_more_than": _started_more,
    "stored_id_changed": never_wire.stored_id,
    "summary_contains_schema": never_wire.summary_schema,
    "summary_inside_group": never_wire.summary_inside,
    "summary_overrides_outcome": _summary_overrides,
    "synthetic_result": never_wire.synthetic,
    "unstable_projection": never_wire.unstable,
    "volatile_in_definition": never_wire.twins,
    "wire_contains_foreign": never_wire.foreign,
}
