"""What checks and predicates read alike: from requests, spies, ledgers and transcripts, never from a claim."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from capstate.trace import check as faults_of
from tests.scenarios import forms
from tests.scenarios.stage import Stage, UnsupportedError
from tests.scenarios.states import Look, State, items, walk

Fault = tuple[str, Any, Any]


def state_of(story: Stage, after: Any) -> State:
    """Return the state after an event, ``start`` or ``end``."""
    if after == "start":
        return story.states[0]
    if after == "end":
        return story.states[-1]
    return next(state for state in story.states if state.n == after)


def same(expected: Any, got: Any) -> bool:
    """Whether a value is the expected one, or any of those."""
    if isinstance(expected, dict) and set(expected) == {"any_of"}:
        return any(same(one, got) for one in expected["any_of"])
    if isinstance(expected, list) and isinstance(got, (list, set, tuple)):
        return expected == list(got)
    return bool(expected == got)


def look_of(state: State, session: str) -> Look:
    """Return the last request of a session."""
    if session not in state.looks:
        raise UnsupportedError(f"a look at session {session}, which was never open")
    return state.looks[session]


def changes_of(receipt: Mapping[str, Any], *actions: str) -> list[str]:
    """Return the tools to which a receipt says that one of ``actions`` happened."""
    return sorted({change[1] for change in receipt["tools"] if change[0] in actions})


def spies_of(state: State, call: str, session: str | None = None) -> list[dict[str, Any]]:
    """Return the runs of a call's own tool until then."""
    return [s for s in state.spies if s["call"] == call and "via" not in s and session in (None, s["session"])]


def product_operation(story: Stage, operation: str) -> str | None:
    """Return the product's id of a case's operation."""
    known = story.operations.get(operation)
    return known[2] if known is not None else None


def outcome_of(state: State, session: str, call: str) -> str | None:
    """Return how a call ended, by the ledger where that knows, else by the transcript."""
    chain = state.chains.get(session, {"operations": {}})
    known = [op for op in chain["operations"].values() if op["call"] == call]
    if known and known[-1]["settled"]:
        return str(known[-1]["outcome"])
    results = [m for m in state.entries.get(session, ()) if m.get("result_for") == call]
    if results:
        return str(results[-1].get("outcome"))
    return str(known[-1]["outcome"]) if known and known[-1]["outcome"] else None


def story_faults(view: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return (kind, call) of what the product's validator finds in a history."""
    return [(str(f.kind), f.call) for f in faults_of([forms.message_of(m) for m in view])]


def results_of(state: State, session: str, call: str) -> list[dict[str, Any]]:
    """Return the results of a call: in the history if the call is there, else of those ever written."""
    view = state.views[session]
    there = any(c["id"] == call for m in view for c in m.get("calls", ()))
    return [m for m in (view if there else state.entries[session]) if m.get("result_for") == call]


def split(state: State, session: str, id_: str) -> bool:
    """Whether a message is in the history without all of its results, or some of them without it."""
    unit = next((m for m in state.entries[session] if m["id"] == id_), None)
    if unit is None:
        return False
    calls = [c["id"] for c in unit.get("calls", ())]
    ever = [m["id"] for m in state.entries[session] if m.get("result_for") in calls]
    ids = {m["id"] for m in state.views[session]}
    return len({one in ids for one in (id_, *ever)}) > 1


def pairs_of(look: Look) -> int:
    """Return how many call and result pairs a request holds."""
    found = items(look)
    calls = [item.call for item in found if item.kind == "call"]
    return sum(item.kind == "result" and item.call in calls for item in found)


def sent_names(look: Look) -> list[str]:
    """Return every tool name in a request's tools part, in order, twice if it is there twice."""
    return [str(part["name"]) for part in walk(look.tools) if isinstance(part.get("name"), str) and (
        "input_schema" in part or "parameters" in part)]  # fmt: skip


def illegal_names(look: Look) -> list[str]:
    """Return the names in a request that its provider would refuse."""
    rule = look.profile.names
    called = [item.text for item in items(look) if item.kind == "call"]
    legal = re.compile(f"[{rule.chars}]{{1,{rule.limit}}}")
    return [name for name in (*sent_names(look), *called, *look.referenced) if legal.fullmatch(name) is None]


def illegal_ids(look: Look) -> list[str]:
    """Return the call ids in a request that its provider would refuse."""
    limit, chars = look.profile.call_id_limit, look.profile.call_id_chars
    ids = {item.call for item in items(look) if item.call}
    return sorted(
        id_
        for id_ in ids
        if (limit is not None and len(id_) > limit) or (chars is not None and re.fullmatch(f"[{chars}]+", id_) is None)
    )


def item_on_wire(look: Look, item: str) -> bool:
    """Whether an opaque item of the case is in a request."""
    return forms.mark_of({"id": item}) in json.dumps(look.request)


def uncallable_references(look: Look) -> set[str]:
    """Return the names that a request refers to although they cannot be called."""
    return {name for name in look.referenced if name not in look.names}


def covered(state: State, session: str, look: Look, id_: str) -> str | None:
    """Return what stands for a message in a request: its text, or its issuer's item; None if nothing does."""
    entries = {m["id"]: m for m in state.entries[session]}
    text = entries[id_].get("text", "")
    if text and json.dumps(text, ensure_ascii=False)[1:-1] in look.text:
        return "text"
    for entry in entries.values():
        if (
            entry["role"] == "opaque"
            and id_ in entry.get("covers", ())
            and entry["issuer"] == look.profile.issuer.id
            and item_on_wire(look, entry["id"])
        ):
            return "item"
    return None


def summary_has_schema(state: State, session: str) -> bool:
    """Whether the text of a summary, as it is sent, holds more than the summariser wrote, or a schema."""
    look = state.looks[session]
    texts = [m.get("text", "") for m in state.views[session] if m["role"] == "summary"]
    sent = [item.text for item in items(look) if item.kind in ("user", "system")]
    tools = [json.loads(definition)[1] for definition in look.definitions.values()]
    schemas = [json.dumps(tool["schema"]) for tool in tools if tool.get("schema", {}).get("properties")]

    def adds(text: str, item: str) -> bool:
        return len(item) > len(text) + 200 or "input_schema" in item or any(schema in item for schema in schemas)

    return any(text and text in item and adds(text, item) for text in texts for item in sent)


def call_ids(look: Look) -> list[str]:
    """Return the ids of the calls in a request, in order."""
    return [item.call for item in items(look) if item.kind == "call"]


def lost_results(state: State, session: str) -> list[str]:
    """Return the results of the history that the request does not hold."""
    view, look = state.views[session], state.looks[session]
    calls = [c["id"] for m in view for c in m.get("calls", ())]
    results = [m for m in view if m["role"] == "tool" and m.get("result_for") in calls]
    sent = [item for item in items(look) if item.kind == "result"]
    if len(sent) >= len(results):
        return []
    return [m["id"] for m in results if not any(m.get("text", "") in item.text for item in sent)] or ["a result"]


def child_record(state: State, child: str) -> dict[str, Any] | None:
    """Return what a parent's chain keeps of a child's result: status, reference, claims, who is waited for."""
    kept = [chain["results"][child] for chain in state.chains.values() if child in chain.get("results", {})]
    if not kept:
        return None
    claims = {id_: "supported" if held else "unsupported" for id_, held in kept[-1]["supported"].items()}
    told = kept[-1]["result"]
    return {
        "status": kept[-1]["status"],
        "trace_ref": told["trace_ref"],
        "claims": claims,
        "waiting_on": kept[-1]["waiting_on"],
        "told": [claim["id"] for claim in told["claims"]],
    }
