"""Predicates on the request: its trace, its items, its names, its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.scenarios import reading
from tests.scenarios.stage import Stage
from tests.scenarios.states import Look, State, wire_faults
from tests.scenarios.times import Seen, looks, steps

# ---- the trace


def orphan(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in looks(story, never):
        wrong = [w for w in wire_faults(look)[0] if "answers no" in w]
        wrong += [call for kind, call in reading.story_faults(state.views[session]) if kind == "orphan"]
        if wrong:
            yield state.n, wrong


def open_summarised(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in looks(story, never):
        here = {c["id"] for m in state.views[session] for c in m.get("calls", ())}
        proposed = {c["id"] for m in state.entries[session] for c in m.get("calls", ())}
        answered = {m.get("result_for") for m in state.entries[session]}
        calls = [never["call"]] if "call" in never else sorted(proposed)
        gone = [call for call in calls if call in proposed - here - answered]
        if gone:
            yield state.n, gone


def group_split(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in looks(story, never):
        ids = [never["message"]] if "message" in never else [m["id"] for m in state.entries[session] if m.get("calls")]
        found = [id_ for id_ in ids if reading.split(state, session, id_)]
        if found:
            yield state.n, found


def results_more(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in looks(story, never):
        count = len(reading.results_of(state, session, never["call"]))
        again = [w for w in wire_faults(look)[0] if never["call"] in w]
        if count > never["count"] or again:
            yield state.n, [count, *again]


def summary_inside(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in looks(story, never):
        waiting: set[str] = set()
        for message in state.views[session]:
            if message["role"] == "summary" and waiting:
                yield state.n, message["id"]
            waiting |= {c["id"] for c in message.get("calls", ())}
            waiting.discard(message.get("result_for", ""))


def result_dropped(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in looks(story, never):
        lost = reading.lost_results(state, session)
        if lost:
            yield state.n, lost


def synthetic(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in looks(story, never):
        ran = {run["call"] for run in state.spies}
        given = {m["id"] for m in story.given.get("transcript", {}).get(session, ())}
        for message in state.views[session]:
            made = message["role"] == "tool" and message.get("outcome") == "ok" and message["id"] not in given
            call = message.get("result_for", "")
            if made and call not in ran and not call.startswith("load-"):
                yield state.n, message["id"]


def stored_id(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after, session in steps(story, never):
        kept = after.entries[session][: len(before.entries[session])]
        if kept != before.entries[session]:
            yield after.n, [m["id"] for m in kept]


def call_ids(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, _, look in looks(story, never):
        ids = reading.call_ids(look)
        if len(ids) != len(set(ids)):
            yield state.n, ids


def failed_compaction(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after, session in steps(story, never):
        if after.event["op"] == "compact" and after.event.get("result", "ok") != "ok":
            old, new = before.looks[session], after.looks[session]
            same = before.views[session] == after.views[session] and old.request == new.request
            if not same or before.chains[session]["operations"] != after.chains[session]["operations"]:
                yield after.n, session


def fork_bound(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after in pairwise(story.states):
        gone = after.event.get("session") if after.event["op"] == "end_session" else None
        for fork, origin in story.origins.items():
            if origin == gone and fork in before.looks and fork in after.fresh:
                if before.looks[fork].callable != after.looks[fork].callable:
                    yield after.n, after.looks[fork].callable
            elif origin == gone and fork in before.looks and fork in story.where and fork not in after.fresh:
                yield after.n, f"{fork} cannot be projected"
    for state, session, look in looks(story, never):
        if session in story.origins and wire_contains_opaque(state, look):
            yield state.n, "an item of its origin"


def wire_contains_opaque(state: State, look: Look) -> list[str]:
    """Return the opaque items of any transcript that a request holds."""
    entries = [m for session in state.entries.values() for m in session if m["role"] == "opaque"]
    return [m["id"] for m in entries if reading.item_on_wire(look, m["id"])]


def late_in_fork(story: Stage, _: Mapping[str, Any]) -> Iterator[Seen]:
    for before, after in pairwise(story.states):
        if after.event["op"] not in ("late_result", "finish", "reconcile"):
            continue
        for fork, origin in story.origins.items():
            if after.event.get("session", origin) == fork or fork not in before.views:
                continue
            if before.views[fork] != after.views[fork]:
                yield after.n, fork


# ---- the request


def foreign(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in looks(story, never):
        found = [
            m["id"]
            for m in state.entries[session]
            if m["role"] == "opaque" and m["issuer"] != look.profile.issuer.id and reading.item_on_wire(look, m["id"])
        ]
        if found:
            yield state.n, found


def cover_lost(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, look in looks(story, never):
        lost = [id_ for id_ in never["messages"] if reading.covered(state, session, look, id_) is None]
        if lost:
            yield state.n, lost


def uncallable_reference(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, _, look in looks(story, never):
        found = reading.uncallable_references(look)
        if found:
            yield state.n, sorted(found)


def illegal(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, _, look in looks(story, never):
        if reading.illegal_names(look):
            yield state.n, reading.illegal_names(look)


def name_collision(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, _, look in looks(story, never):
        names = reading.sent_names(look)
        if len(names) != len(set(names)):
            yield state.n, names


def summary_schema(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    for state, session, _ in looks(story, never):
        if reading.summary_has_schema(state, session):
            yield state.n, session


def unstable(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    known: dict[str, tuple[str, str]] = {}
    for state, _, look in looks(story, never):
        if known.setdefault(look.key, (look.tools_bytes, look.fingerprint)) != (look.tools_bytes, look.fingerprint):
            yield state.n, look.tools_bytes


def twins(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    """Another session in another process, which met groups and loads in the opposite order, shows the same bytes."""
    yield from unstable(story, {k: v for k, v in never.items() if k != "session"})
    for session, ours, theirs in story.twins:
        if never.get("session", session) == session and (
            ours.tools_bytes != theirs.tools_bytes or ours.wires != theirs.wires
            or ours.fingerprint != theirs.fingerprint
        ):  # fmt: skip
            yield story.states[-1].n, {"session": ours.tools, "twin": theirs.tools}
    if not story.twins:
        yield story.states[-1].n, "no other session to compare with"


def collision(story: Stage, never: Mapping[str, Any]) -> Iterator[Seen]:
    known: dict[str, str] = {}
    for state, _, look in looks(story, never):
        if known.setdefault(look.fingerprint, look.tools_bytes) != look.tools_bytes:
            yield state.n, look.fingerprint
