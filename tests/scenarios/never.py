"""What must not happen at any time: each predicate of ``then.never`` is one function over every state.

A function gives (event, what was seen) for each time that it happened. Evidence is what was on the wire, what the
spies wrote, what stands in the ledger and in receipts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.scenarios import checks, forms
from tests.scenarios.states import Look, State, wire_faults
from tests.scenarios.story import Story, UnsupportedError

Seen = tuple[int, Any]


def evaluate(story: Story, never: Mapping[str, Any]) -> list[Seen]:
    """Return every time that it happened.

    Raises:
        UnsupportedError: the predicate is unknown.
    """
    function = _PREDICATES.get(never["predicate"])
    if function is None:
        raise UnsupportedError(f"predicate {never['predicate']}")
    return list(function(story, never))


def _during(story: Story, never: Mapping[str, Any]) -> list[State]:
    first, last = never.get("from_event", -1), never.get("to_event", story.states[-1].n)
    return [state for state in story.states if first <= state.n <= last]


def _sessions(state: State, never: Mapping[str, Any]) -> list[str]:
    return [s for s in state.looks if never.get("session", s) == s]


def _looks(story: Story, never: Mapping[str, Any]) -> Iterator[tuple[State, str, Look]]:
    """Every request that was made, once."""
    for state in _during(story, never):
        for session in _sessions(state, never):
            if session in state.fresh:
                yield state, session, state.looks[session]


def _steps(story: Story, never: Mapping[str, Any]) -> Iterator[tuple[State, State, str]]:
    """Every session before and after an event."""
    for before, after in pairwise(_during(story, never)):
        for session in _sessions(before, never):
            if session in after.fresh:
                yield before, after, session


def _runs(story: Story, never: Mapping[str, Any]) -> list[dict[str, Any]]:
    last = _during(story, never)[-1]
    return [run for run in last.spies if run["event"] >= never.get("from_event", -1)]


# ---- the surface


def _callable(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state in _during(story, never):
        look = state.looks.get(never["session"])
        if look is None:
            continue
        views = [never["tool"] in look.callable, never["tool"] in look.wires, never["tool"] in look.explained]
        if any(view is not never["must_be"] for view in views):
            yield state.n, look.callable


def _silent_change(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after, session in _steps(story, never):
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


def _silent_drop(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in _looks(story, never):
        lost = {q for q, reason in look.withheld.items() if reason in ("name_conflict", "name_unrepresentable")}
        told = {
            row[0] for s in story.states if s.n <= state.n for r in s.receipts.get(session, ()) for row in r["withheld"]
        }
        silent = [q for q in lost if q not in told and q.partition("/")[0] + "/*" not in told]
        allowed = state.allowed[session]
        gone = [q for q in allowed & set(look.definitions) if q not in look.wires and q not in look.withheld]
        if gone or [q for q in silent if q in allowed]:
            yield state.n, sorted({*gone, *silent})


def _silent_recovery(story: Story, _: Mapping[str, Any]) -> Iterator[Seen]:
    reported: set[str] = set()
    for state in story.states:
        if not state.journal:
            continue
        reported |= set(state.journal["reported"])
        opened = story.journal.chain in state.fresh
        if opened and _was_damaged(story) and not reported:
            yield state.n, "damage without a receipt"
            return


def _was_damaged(story: Story) -> bool:
    lines = story.given.get("journal", [])
    numbers = []
    for line in lines:
        try:
            numbers.append(json.loads(line)["n"])
        except (ValueError, KeyError, TypeError):
            return True
    return numbers != list(range(1, len(numbers) + 1))


def _text_authority(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in _looks(story, never):
        beyond = set(look.callable) - state.allowed[session]
        if beyond:
            yield state.n, sorted(beyond)
    yield from _ran_beyond(story, never)


def _ran_beyond(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    """Runs of the named tools at a time when no live grant allowed them, neither before nor after the event."""
    states = {state.n: state for state in story.states}
    for run in _runs(story, never):
        after = states.get(run["event"])
        before = max((s for s in story.states if s.n < run["event"]), key=lambda s: s.n, default=None)
        allowed = [s.allowed.get(run["session"], set()) for s in (before, after) if s is not None]
        if allowed and not any(run["tool"] in tools for tools in allowed):
            yield run["event"], f"{run['tool']} ran"


def _child_exceeds(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in _looks(story, never):
        parent = story.parents.get(session)
        if parent is None:
            continue
        beyond = set(look.callable) - state.allowed.get(parent, set())
        if beyond or set(look.callable) - state.allowed[session]:
            yield state.n, sorted(beyond | (set(look.callable) - state.allowed[session]))
    yield from _ran_beyond(story, never)


def _leaks(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
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


def forms_definitions(story: Story) -> list[Any]:
    """Every definition that the world's file holds at the end."""
    return [d for g in forms.catalog_of(story.world) for d in g.definitions.values()]


# ---- calls


def _executed(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for run in _runs(story, never):
        if run["call"] in never["calls"] and "via" not in run:
            yield run["event"], run["call"]


def _executed_more(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    runs = checks.spies_of(story.states[-1], never["call"])
    if len(runs) > never["count"]:
        yield runs[-1]["event"], len(runs)


def _executed_after_crash(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    crash = next((e["n"] for e in story.case["when"] if e["op"] == "crash"), 0)
    for run in story.states[-1].spies:
        if run["call"] in never["calls"] and run["event"] > crash:
            yield run["event"], run["call"]


def _body_reached(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    tools = {never.get("tool"), *never.get("tools", ())}
    calls = never.get("calls")
    for run in _runs(story, never):
        if (run["tool"] in tools or tools == {None}) and (calls is None or run["call"] in calls):
            yield run["event"], run["tool"]


def _started_more(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    runs = [run for run in _runs(story, never) if "via" not in run]
    if len(runs) > never["count"]:
        yield runs[-1]["event"], len(runs)


def _limit_reset(story: Story, _: Mapping[str, Any]) -> Iterator[Seen]:
    root = story.given.get("limits", {}).get("root", "main")
    for before, after in pairwise(story.states):
        pools = [state.chains.get(root, {}).get("pool") for state in (before, after)]
        used = [(pool or {"calls": 0, "cost": 0})["calls"] for pool in pools]
        runs = len([run for run in after.spies if "via" not in run])
        if used[1] < used[0] or used[1] < runs:
            yield after.n, used


def _misdispatch(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    issued: dict[tuple[str, str], set[str]] = {}
    for _, session, look in _looks(story, never):
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


def _asked(story: Story) -> list[dict[str, Any]]:
    return [run for run in story.states[-1].spies if run.get("asked")]


def _approvals(story: Story, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        e
        for e in story.case["when"]
        if e["op"] == "approve" and e["decision"] != "reject" and e["call"] == run["call"]
        and e["session"] == run["session"] and e["n"] <= run["event"]
    ]  # fmt: skip


def _misrouted(story: Story, _: Mapping[str, Any]) -> Iterator[Seen]:
    for run in _asked(story):
        if not _approvals(story, run):
            yield run["event"], f"{run['call']} ran in {run['session']} without an approval of its own"


def _reused(story: Story, _: Mapping[str, Any]) -> Iterator[Seen]:
    counts: dict[tuple[str, str], int] = {}
    for run in _asked(story):
        key = run["session"], run["call"]
        counts[key] = counts.get(key, 0) + 1
        if counts[key] > len(_approvals(story, run)):
            yield run["event"], f"{run['call']} ran {counts[key]} times"


def _unapproved_args(story: Story, _: Mapping[str, Any]) -> Iterator[Seen]:
    for run in _asked(story):
        call = story.transcript(run["session"]).call(run["call"])
        if call is not None and call["args"] != run["args"]:
            yield run["event"], run["args"]


def _outcome_becomes(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    call = never["call"]
    for state in _during(story, never):
        for session in state.entries:
            got = checks.outcome_of(state, session, call)
            sent = [m.get("outcome") for m in state.entries[session] if m.get("result_for") == call]
            if never.get("session", session) == session and ({got, *sent} & set(never["forbidden"])):
                yield state.n, [got, *sent]


def _summary_overrides(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after, session in _steps(story, never):
        if after.event["op"] != "compact":
            continue
        for call in {c["id"] for m in before.entries[session] for c in m.get("calls", ())}:
            was, now = (checks.outcome_of(s, session, call) for s in (before, after))
            if was != now:
                yield after.n, f"{call}: {was} became {now}"


def _operation_reused(story: Story, _: Mapping[str, Any]) -> Iterator[Seen]:
    meant: dict[str, str] = {}
    for run in story.states[-1].spies:
        if run.get("operation") is None or "via" in run:
            continue
        what = json.dumps([run["tool"], run["args"]], sort_keys=True)
        if meant.setdefault(run["operation"], what) != what:
            yield run["event"], run["operation"]


def _operation_changed(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    session, call, known = story.operations[never["operation"]]
    for run in checks.spies_of(story.states[-1], call["id"], session):
        if run["operation"] != known:
            yield run["event"], run["operation"]


# ---- the trace


def _orphan(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in _looks(story, never):
        wrong = [w for w in wire_faults(look)[0] if "answers no" in w]
        wrong += [call for kind, call in checks.story_faults(state.views[session]) if kind == "orphan"]
        if wrong:
            yield state.n, wrong


def _open_summarised(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in _looks(story, never):
        here = {c["id"] for m in state.views[session] for c in m.get("calls", ())}
        proposed = {c["id"] for m in state.entries[session] for c in m.get("calls", ())}
        answered = {m.get("result_for") for m in state.entries[session]}
        calls = [never["call"]] if "call" in never else sorted(proposed)
        gone = [call for call in calls if call in proposed - here - answered]
        if gone:
            yield state.n, gone


def _group_split(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in _looks(story, never):
        ids = [never["message"]] if "message" in never else [m["id"] for m in state.entries[session] if m.get("calls")]
        found = [id_ for id_ in ids if checks.split(state, session, id_)]
        if found:
            yield state.n, found


def _results_more(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in _looks(story, never):
        count = len(checks.results_of(state, session, never["call"]))
        again = [w for w in wire_faults(look)[0] if never["call"] in w]
        if count > never["count"] or again:
            yield state.n, [count, *again]


def _summary_inside(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in _looks(story, never):
        waiting: set[str] = set()
        for message in state.views[session]:
            if message["role"] == "summary" and waiting:
                yield state.n, message["id"]
            waiting |= {c["id"] for c in message.get("calls", ())}
            waiting.discard(message.get("result_for", ""))


def _result_dropped(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in _looks(story, never):
        lost = checks.lost_results(state, session)
        if lost:
            yield state.n, lost


def _synthetic(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in _looks(story, never):
        ran = {run["call"] for run in state.spies}
        given = {m["id"] for m in story.given.get("transcript", {}).get(session, ())}
        for message in state.views[session]:
            made = message["role"] == "tool" and message.get("outcome") == "ok" and message["id"] not in given
            call = message.get("result_for", "")
            if made and call not in ran and not call.startswith("load-"):
                yield state.n, message["id"]


def _stored_id(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after, session in _steps(story, never):
        kept = after.entries[session][: len(before.entries[session])]
        if kept != before.entries[session]:
            yield after.n, [m["id"] for m in kept]


def _call_ids(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, _, look in _looks(story, never):
        ids = checks.call_ids(look)
        if len(ids) != len(set(ids)):
            yield state.n, ids


def _failed_compaction(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after, session in _steps(story, never):
        if after.event["op"] == "compact" and after.event.get("result", "ok") != "ok":
            old, new = before.looks[session], after.looks[session]
            same = before.views[session] == after.views[session] and old.request == new.request
            if not same or before.chains[session]["operations"] != after.chains[session]["operations"]:
                yield after.n, session


def _fork_bound(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after in pairwise(story.states):
        gone = after.event.get("session") if after.event["op"] == "end_session" else None
        for fork, origin in story.origins.items():
            if origin == gone and fork in before.looks and fork in after.fresh:
                if before.looks[fork].callable != after.looks[fork].callable:
                    yield after.n, after.looks[fork].callable
            elif origin == gone and fork in before.looks and fork in story.where and fork not in after.fresh:
                yield after.n, f"{fork} cannot be projected"
    for state, session, look in _looks(story, never):
        if session in story.origins and wire_contains_opaque(state, look):
            yield state.n, "an item of its origin"


def wire_contains_opaque(state: State, look: Look) -> list[str]:
    """Return the opaque items of any transcript that a request holds."""
    entries = [m for session in state.entries.values() for m in session if m["role"] == "opaque"]
    return [m["id"] for m in entries if checks.item_on_wire(look, m["id"])]


def _late_in_fork(story: Story, _: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after in pairwise(story.states):
        if after.event["op"] not in ("late_result", "finish", "reconcile"):
            continue
        for fork, origin in story.origins.items():
            if after.event.get("session", origin) == fork or fork not in before.views:
                continue
            if before.views[fork] != after.views[fork]:
                yield after.n, fork


# ---- the request


def _foreign(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in _looks(story, never):
        found = [
            m["id"]
            for m in state.entries[session]
            if m["role"] == "opaque" and m["issuer"] != look.profile.issuer.id and checks.item_on_wire(look, m["id"])
        ]
        if found:
            yield state.n, found


def _cover_lost(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in _looks(story, never):
        lost = [id_ for id_ in never["messages"] if checks.covered(state, session, look, id_) is None]
        if lost:
            yield state.n, lost


def _uncallable_reference(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, _, look in _looks(story, never):
        found = checks.uncallable_references(look)
        if found:
            yield state.n, sorted(found)


def _illegal(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, _, look in _looks(story, never):
        if checks.illegal_names(look):
            yield state.n, checks.illegal_names(look)


def _name_collision(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, _, look in _looks(story, never):
        names = checks.sent_names(look)
        if len(names) != len(set(names)):
            yield state.n, names


def _summary_schema(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in _looks(story, never):
        if checks.summary_has_schema(state, session):
            yield state.n, session


def _unstable(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    known: dict[str, tuple[str, str]] = {}
    for state, _, look in _looks(story, never):
        if known.setdefault(look.key, (look.tools_bytes, look.fingerprint)) != (look.tools_bytes, look.fingerprint):
            yield state.n, look.tools_bytes


def _twins(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    """Another session in another process, which met groups and loads in the opposite order, shows the same bytes."""
    yield from _unstable(story, {k: v for k, v in never.items() if k != "session"})
    for session, ours, theirs in story.twins:
        if never.get("session", session) == session and (
            ours.tools_bytes != theirs.tools_bytes or ours.wires != theirs.wires
            or ours.fingerprint != theirs.fingerprint
        ):  # fmt: skip
            yield story.states[-1].n, {"session": ours.tools, "twin": theirs.tools}
    if not story.twins:
        yield story.states[-1].n, "no other session to compare with"


def _collision(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    known: dict[str, str] = {}
    for state, _, look in _looks(story, never):
        if known.setdefault(look.fingerprint, look.tools_bytes) != look.tools_bytes:
            yield state.n, look.fingerprint


# ---- pins, journal, processes


def _repinned(story: Story, _: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after in pairwise(story.states):
        for session, chain in before.chains.items():
            now = after.chains.get(session, {"pins": {}})["pins"]
            changed = [id_ for id_, pin in chain["pins"].items() if now.get(id_, pin) != pin]
            if changed:
                yield after.n, changed


def _false_change(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    tool = never["tool"]
    for before, after in pairwise(story.states):
        for session, look in after.looks.items():
            old = before.looks.get(session)
            if old is None or old.definitions.get(tool) != look.definitions.get(tool):
                continue
            told = [c for r in after.receipts.get(session, ()) for c in r["tools"] if c[1] == tool]
            if any(c[2] == "schema_changed" or c[0] == "redefined" for c in told):
                yield after.n, told


def _record_lost(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    number = never["record"]
    written = [state.n for state in story.states if state.journal and number in state.journal["readable"]]
    for state in story.states:
        if state.journal and written and state.n >= written[0] and number not in state.journal["readable"]:
            yield state.n, state.journal["readable"]
    if not written:
        yield story.states[-1].n, "never readable"


def _records_ignored(story: Story, _: Mapping[str, Any]) -> Iterator[Seen]:
    good = {n for n in story.journal.records if n not in story.journal.spoilt}
    for state in story.states:
        if state.journal and state is story.states[-1] and not good <= set(state.journal["readable"]):
            yield state.n, sorted(good - set(state.journal["readable"]))


def _gap(story: Story, _: Mapping[str, Any]) -> Iterator[Seen]:
    for state in story.states:
        if state.journal and state.journal["sequence"] != "contiguous":
            yield state.n, state.journal["damage"]


def _stolen(story: Story, never: Mapping[str, Any]) -> Iterator[Seen]:
    owner: str | None = None
    for state in story.states:
        event = state.event
        if event["op"] == "open_writer" and state.error is None:
            if owner == never["process"]:
                yield state.n, event["process"]
            owner = event["process"]
        elif event["op"] in ("kill", "close") and event["process"] == owner:
            owner = None


_PREDICATES: dict[str, Callable[[Story, Mapping[str, Any]], Iterator[Seen]]] = {
    "approval_misrouted": _misrouted,
    "approval_reused": _reused,
    "authority_from_text": _text_authority,
    "body_reached": _body_reached,
    "call_id_collision": _call_ids,
    "callable": _callable,
    "changed_by_failed_compaction": _failed_compaction,
    "child_exceeds_parent": _child_exceeds,
    "cover_lost": _cover_lost,
    "executed": _executed,
    "executed_after_crash": _executed_after_crash,
    "executed_more_than": _executed_more,
    "executed_unapproved_args": _unapproved_args,
    "false_schema_change": _false_change,
    "fingerprint_collision": _collision,
    "fork_bound_to_origin": _fork_bound,
    "group_split": _group_split,
    "illegal_name": _illegal,
    "late_result_in_fork": _late_in_fork,
    "leaks_names": _leaks,
    "limit_reset": _limit_reset,
    "lock_stolen_from_live": _stolen,
    "misdispatch": _misdispatch,
    "name_collision": _name_collision,
    "open_call_summarised": _open_summarised,
    "operation_id_changed": _operation_changed,
    "operation_reused": _operation_reused,
    "order_dependent_names": _twins,
    "orphan_result": _orphan,
    "outcome_becomes": _outcome_becomes,
    "record_lost": _record_lost,
    "records_ignored": _records_ignored,
    "reference_to_uncallable": _uncallable_reference,
    "repinned_by_restart": _repinned,
    "result_dropped": _result_dropped,
    "results_more_than": _results_more,
    "sequence_gap": _gap,
    "silent_change": _silent_change,
    "silent_drop": _silent_drop,
    "silent_recovery": _silent_recovery,
    "started_more_than": _started_more,
    "stored_id_changed": _stored_id,
    "summary_contains_schema": _summary_schema,
    "summary_inside_group": _summary_inside,
    "summary_overrides_outcome": _summary_overrides,
    "synthetic_result": _synthetic,
    "unstable_projection": _unstable,
    "volatile_in_definition": _twins,
    "wire_contains_foreign": _foreign,
}
