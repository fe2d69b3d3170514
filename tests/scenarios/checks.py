"""What must hold after an event: each check of ``then.checks`` is one function over what was seen.

A function gives (what, expected, got) for each thing that does not hold. Nothing rests on the product's word
alone: sets and places are read from the request's bytes, runs from the spies, states from the ledger.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from capstate.trace import FaultKind
from capstate.trace import check as faults_of
from tests.scenarios import forms
from tests.scenarios.states import Item, Look, State, items, walk, wire_faults
from tests.scenarios.story import Story, UnsupportedError

Fault = tuple[str, Any, Any]
_ASIDE = {"after", "check", "session", "note", "soft", "event", "text", "call", "calls", "operation", "child", "about"}


def evaluate(story: Story, check: Mapping[str, Any]) -> list[Fault]:
    """Return what does not hold of one check.

    Raises:
        UnsupportedError: the check, or a word in it, is unknown.
    """
    name = check["check"]
    function = _CHECKS.get(name)
    if function is None:
        raise UnsupportedError(f"check {name}")
    known, tell = function
    unknown = set(check) - _ASIDE - known
    if unknown:
        raise UnsupportedError(f"check {name}: {', '.join(sorted(unknown))}")
    return list(tell(story, check, state_of(story, check["after"])))


def state_of(story: Story, after: Any) -> State:
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


# ---- the surface


def _callable(_: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    look = look_of(state, check["session"])
    got = look.callable
    if look.exceeded is not None:
        yield "request exceeds the surface", None, look.exceeded
    if not look.agreed:
        yield "bytes, surface and explain agree", got, [sorted(look.wires), look.explained]
    withheld = [q for q, reason in look.withheld.items() if reason == check.get("unless")]
    if "exactly" in check and sorted(check["exactly"]) != sorted({*got, *(set(withheld) & set(check["exactly"]))}):
        yield "exactly", sorted(check["exactly"]), got
    if "subset_of" in check and not set(got) <= set(check["subset_of"]):
        yield "subset_of", sorted(check["subset_of"]), got
    if set(check.get("excludes", ())) & set(got):
        yield "excludes", check["excludes"], got


def changes_of(receipt: Mapping[str, Any], *actions: str) -> list[str]:
    """Return the tools to which a receipt says that one of ``actions`` happened."""
    return sorted({change[1] for change in receipt["tools"] if change[0] in actions})


_RECEIPT: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "added": lambda r: changes_of(r, "added"),
    "removed": lambda r: changes_of(r, "removed"),
    "placement_changed": lambda r: changes_of(r, "moved"),
    "redefined": lambda r: changes_of(r, "redefined"),
    "withheld": lambda r: changes_of(r, "withheld"),
    "items": lambda r: sorted(r["dropped"]),
    "cause": lambda r: r["cause"],
}


def _receipt_fits(receipt: Mapping[str, Any], check: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in which a receipt is not the one of the check."""
    wrong: dict[str, Any] = {}
    if check.get("kind") is not None and check["kind"] not in receipt["kinds"]:
        wrong["kind"] = receipt["kinds"]
    if "reason" in check and not _among(check["reason"], receipt["reasons"]):
        wrong["reason"] = receipt["reasons"]
    if "tools" in check:
        tools = changes_of(receipt, "added", "removed", "redefined", "moved", "withheld")
        if not set(check["tools"]) <= set(tools):
            wrong["tools"] = tools
    for word, read in _RECEIPT.items():
        if word not in check:
            continue
        got, expected = read(receipt), check[word]
        if not same(sorted(expected) if isinstance(expected, list) else expected, got):
            wrong[word] = got
    return wrong


def _among(expected: Any, reasons: list[str]) -> bool:
    wanted = (
        expected["any_of"] if isinstance(expected, dict) else expected if isinstance(expected, list) else [expected]
    )
    return bool(set(wanted) & set(reasons))


def _receipt(_: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    written = state.receipts.get(check["session"], [])
    wrong = [_receipt_fits(receipt, check) for receipt in written]
    if not any(not one for one in wrong):
        yield "receipt", {k: v for k, v in check.items() if k not in ("after", "check", "session")}, wrong or "none"


def _no_receipt(_: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    for receipt in state.receipts.get(check["session"], []):
        if not _receipt_fits(receipt, check):
            yield "no receipt", None, {"kinds": receipt["kinds"], "reasons": receipt["reasons"]}


# ---- calls


def spies_of(state: State, call: str, session: str | None = None) -> list[dict[str, Any]]:
    """Return the runs of a call's own tool until then."""
    return [s for s in state.spies if s["call"] == call and "via" not in s and session in (None, s["session"])]


def _refused(story: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    call = check["call"]
    refusals = [r for r in story.refusals.get(call, ()) if r["event"] <= state.n]
    if "session" in check:
        refusals = [r for r in refusals if r["session"] == check["session"]]
    if not any(same(check["error"], r["refused"]) for r in refusals):
        yield "error", check["error"], [r["refused"] for r in refusals] or "not refused"
    for name in check.get("text_excludes", ()):
        if any(name in r["text"] for r in refusals):
            yield "text_excludes", name, [r["text"] for r in refusals]


def _executed(_: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    runs = spies_of(state, check["call"], check.get("session"))
    if "times" in check and len(runs) != check["times"]:
        yield "times", check["times"], len(runs)
    if "at_most" in check and len(runs) > check["at_most"]:
        yield "at_most", check["at_most"], len(runs)
    if "with_args" in check and not any(run["args"] == check["with_args"] for run in runs):
        yield "with_args", check["with_args"], [run["args"] for run in runs]


def _executed_after(story: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    runs = [run for run in spies_of(state, check["call"]) if run["event"] > check["event"]]
    if "at_most" in check and len(runs) > check["at_most"]:
        yield "at_most", check["at_most"], len(runs)
    if "times" in check and len(runs) != check["times"]:
        yield "times", check["times"], len(runs)
    if "with_operation_id" in check:
        known = product_operation(story, check["with_operation_id"])
        for run in runs:
            if run["operation"] != known:
                yield "with_operation_id", known, run["operation"]


def product_operation(story: Story, operation: str) -> str | None:
    """Return the product's id of a case's operation."""
    known = story.operations.get(operation)
    return known[2] if known is not None else None


def _body_reached(_: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    runs = [run for run in state.spies if run["tool"] == check["tool"]]
    if not same(check["times"], len(runs)):
        yield "times", check["times"], len(runs)


def _inner_refused(story: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    yield from _refused(story, check, state)
    reached = [run["tool"] for run in state.spies if run["call"] == check["call"] and "via" in run]
    if reached:
        yield "inner tool", "not reached", reached


def _started_among(_: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    started = [call for call in check["calls"] if spies_of(state, call)]
    if len(started) != check["count"]:
        yield "count", check["count"], started


def _refused_among(story: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    refused = [
        call
        for call in check["calls"]
        if any(
            r["event"] <= state.n and same(check.get("error", r["refused"]), r["refused"])
            for r in story.refusals.get(call, ())
        )
    ]
    if len(refused) != check["count"]:
        yield "count", check["count"], refused


def _dispatched(_: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    tools = [run["tool"] for run in spies_of(state, check["call"])]
    if set(tools) != {check["tool"]}:
        yield "tool", check["tool"], tools


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


def _outcome(_: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    got = outcome_of(state, check["session"], check["call"])
    if not same(check["is"], got):
        yield "is", check["is"], got


def _ledger(story: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    id_ = product_operation(story, check["operation"])
    known = [chain["operations"][id_] for chain in state.chains.values() if id_ in chain["operations"]]
    if not known:
        yield "operation", check["operation"], "not in the ledger"
        return
    operation = known[0]
    for word in ("state", "settled", "owner"):
        if word in check and not same(check[word], operation[word]):
            yield word, check[word], operation[word]
    if "evidence" in check and check["evidence"] != [operation["evidence"]]:
        yield "evidence", check["evidence"], operation["evidence"]


def _error(story: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    if "about" in check:
        id_ = product_operation(story, check["about"])
        known = [chain["operations"][id_] for chain in state.chains.values() if id_ in chain["operations"]]
        got = None if known and known[0]["settled"] else "outcome_unknown"
    else:
        got = state_of(story, check.get("event", check["after"])).error
    if not same(check["error"], got):
        yield "error", check["error"], got


def _limit(story: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    root = check.get("session", story.given.get("limits", {}).get("root", "main"))
    chain = state.chains[root]
    used = (chain["pool"] or {"calls": 0})["calls"]
    runs = [run for run in state.spies if "via" not in run]
    if not same(check.get("used", used), used):
        yield "used", check["used"], used
    if used != len(runs):
        yield "used, by the runs", len(runs), used
    most = (chain["limits"] or {}).get("calls")
    if not same(check.get("max", most), most):
        yield "max", check["max"], most


# ---- the trace


def _trace(story: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    session = check["session"]
    if "valid" in check:
        yield from _valid(check, state)
    for call, count in check.get("results_for", {}).items():
        got = results_of(state, session, call)
        if len(got) != count:
            yield f"results_for {call}", count, [m["id"] for m in got]
    yield from _kept(story, check, state)
    for word, got in _counted(check, state):
        if check[word] != got and (word != "summaries_at_most" or check[word] < got):
            yield word, check[word], got
    for pair in check.get("adjacent", ()):
        first, second = (_place(state, session, id_) for id_ in pair)
        if first is None or second is None or abs(first - second) != 1:
            yield "adjacent", pair, [first, second]


def _kept(story: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    session = check["session"]
    view = state.views[session]
    ids = [m["id"] for m in view]
    if not set(check.get("kept_includes", ())) <= set(ids):
        yield "kept_includes", check["kept_includes"], ids
    for id_ in check.get("group_atomic", ()):
        if split(state, session, id_):
            yield "group_atomic", id_, ids
    if "same_as_event" in check:
        before = state_of(story, check["same_as_event"])
        if before.views[session] != view or before.looks[session].text != look_of(state, session).text:
            yield "same_as_event", [m["id"] for m in before.views[session]], ids


def _valid(check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    session = check["session"]
    found = story_faults(state.views[session])
    faults = [f for f in found if f[0] != FaultKind.MISSING_RESULT]
    missing = [f[1] for f in found if f[0] == FaultKind.MISSING_RESULT]
    wrong, waiting = wire_faults(look_of(state, session)) if session in state.looks else ([], missing)
    if faults or wrong:
        yield "valid", check["valid"], [*faults, *wrong]
    expected = sorted(check.get("open_calls", [])) if check["valid"] == "open" else []
    if sorted(missing) != expected or len(waiting) != len(expected):
        yield "open_calls", expected, [missing, waiting]


def _counted(check: Mapping[str, Any], state: State) -> Iterator[tuple[str, Any]]:
    view = state.views[check["session"]]
    if "summaries_at_most" in check:
        yield "summaries_at_most", sum(m["role"] == "summary" for m in view)
    if "occurrences" in check:
        yield "occurrences", pairs_of(look_of(state, check["session"]))
    if "evidence_order" in check:
        yield "evidence_order", [m["evidence"] for m in view if m.get("evidence")]


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


def _place(state: State, session: str, id_: str) -> int | None:
    """Return where a message of the history stands in the request, counting texts, calls' messages and results."""
    look, view = look_of(state, session), state.views[session]
    flat: list[Item] = []
    for item in items(look):
        if item.kind == "call" and flat and flat[-1].message == item.message:
            flat[-1] = Item("call", flat[-1].text, item.message, item.call)  # one message, however many calls
            continue
        flat.append(item)
    at = 0
    for message in view:
        kind = {"tool": "result", "assistant": "call" if message.get("calls") else "assistant"}.get(message["role"])
        text = message.get("text", "")
        for n in range(at, len(flat)):
            found = flat[n].kind == kind if kind in ("call", "result") else text != "" and text in flat[n].text
            if found:
                at = n + 1
                if message["id"] == id_:
                    return n
                break
    return None


# ---- the request


def _wire(story: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    look = look_of(state, check["session"])
    for word, tell in _WIRE.items():
        if word in check:
            yield from ((word, expected, got) for expected, got in tell(story, check[word], state, look, check))


def _placement(_: Story, value: Any, __: State, look: Look, ___: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    for tool, place in value.items():
        if look.placement.get(tool) != place:
            yield f"{tool} {place}", look.placement


def _names(_: Story, value: Any, __: State, look: Look, ___: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    sent = sent_names(look)
    if value == "injective" and (len(sent) != len(set(sent)) or len(set(look.wires.values())) != len(look.wires)):
        yield value, sent
    elif value != "injective":
        raise UnsupportedError(f"wire names {value}")


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


def _legal(_: Story, value: Any, __: State, look: Look, check: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    wrong = [*illegal_names(look), *illegal_ids(look)]
    limit = look.provider.get("tool_limit")
    if limit is not None and len(sent_names(look)) > limit:
        wrong.append(f"{len(sent_names(look))} tools")
    if bool(wrong) is bool(value):
        yield value, wrong
    if "or_withheld" in check:
        for tool in check.get("tools", ()):
            if tool not in look.wires and look.withheld.get(tool) != check["or_withheld"]:
                yield f"{tool}, or withheld as {check['or_withheld']}", look.withheld.get(tool)


def _labelled(story: Story, label: str) -> Look:
    return story.labels[label][1]


def _same_bytes(story: Story, value: Any, _: State, look: Look, __: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    if look.tools_bytes != _labelled(story, value).tools_bytes:
        yield _labelled(story, value).tools_bytes, look.tools_bytes


def _same_print(story: Story, value: Any, _: State, look: Look, __: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    if look.fingerprint != _labelled(story, value).fingerprint:
        yield _labelled(story, value).fingerprint, look.fingerprint


def _differs(story: Story, value: Any, _: State, look: Look, __: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    other = _labelled(story, value)
    if look.tools_bytes == other.tools_bytes or look.fingerprint == other.fingerprint:
        yield f"another tools part than {value}", look.fingerprint


def _prefix(story: Story, value: Any, _: State, look: Look, __: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    first = [json.dumps(tool) for tool in _labelled(story, value).request.get("tools", [])]
    now = [json.dumps(tool) for tool in look.request.get("tools", [])]
    if now[: len(first)] != first:
        yield first, now


def _same_name(story: Story, value: Any, _: State, look: Look, __: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    other = _labelled(story, value["label"])
    for tool in value["tools"]:
        if look.wires.get(tool) is None or look.wires[tool] != other.wires.get(tool):
            yield f"{tool}: {other.wires.get(tool)}", look.wires.get(tool)


def item_on_wire(look: Look, item: str) -> bool:
    """Whether an opaque item of the case is in a request."""
    return forms.mark_of({"id": item}) in json.dumps(look.request)


def _excludes_items(_: Story, value: Any, __: State, look: Look, ___: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    found = [item for item in value if item_on_wire(look, item)]
    if found:
        yield value, found


def uncallable_references(look: Look) -> set[str]:
    """Return the names that a request refers to although they cannot be called."""
    return {name for name in look.referenced if name not in look.names}


def _excludes_references(
    _: Story, value: Any, __: State, look: Look, ___: Mapping[str, Any]
) -> Iterator[tuple[Any, Any]]:
    meant = {look.profile.names.name(d): d.qualified for d in _definitions(look)}
    found = sorted(meant.get(name, name) for name in look.referenced)
    if set(value) & set(found):
        yield value, found


def _definitions(look: Look) -> list[Any]:
    from capstate.capabilities import Group, Tool

    found = [q.partition("/") for q in look.definitions]
    return [Group(group, [Tool(name)]).definitions[name] for group, _, name in found]


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


def _readable(_: Story, value: Any, state: State, look: Look, check: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    lost = [id_ for id_ in value if covered(state, check["session"], look, id_) is None]
    if lost:
        yield value, f"nothing for {lost}"


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


def _summary_schema(
    _: Story, value: Any, state: State, __: Look, check: Mapping[str, Any]
) -> Iterator[tuple[Any, Any]]:
    if summary_has_schema(state, check["session"]) is not value:
        yield value, not value


def _notice(_: Story, value: Any, state: State, look: Look, check: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    said = [m["text"] for m in state.views[check["session"]] if m.get("text")]
    added = [item.text for item in items(look) if not any(text in item.text for text in said)]
    missing = [tool for tool in value if not any(tool in text for text in added)]
    if missing:
        yield value, f"no notice of {missing}"


def call_ids(look: Look) -> list[str]:
    """Return the ids of the calls in a request, in order."""
    return [item.call for item in items(look) if item.kind == "call"]


def _call_ids(_: Story, value: Any, __: State, look: Look, ___: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    if value != "injective_per_occurrence":
        raise UnsupportedError(f"wire call_ids {value}")
    ids = call_ids(look)
    if len(ids) != len(set(ids)):
        yield value, ids


def _pairs(_: Story, value: Any, state: State, look: Look, check: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    wrong = lost_results(state, check["session"])
    if bool(wrong or wire_faults(look)[0]) is bool(value):
        yield value, [*wrong, *wire_faults(look)[0]]


def lost_results(state: State, session: str) -> list[str]:
    """Return the results of the history that the request does not hold."""
    view, look = state.views[session], state.looks[session]
    calls = [c["id"] for m in view for c in m.get("calls", ())]
    results = [m for m in view if m["role"] == "tool" and m.get("result_for") in calls]
    sent = [item for item in items(look) if item.kind == "result"]
    if len(sent) >= len(results):
        return []
    return [m["id"] for m in results if not any(m.get("text", "") in item.text for item in sent)] or ["a result"]


def _max_length(_: Story, value: Any, __: State, look: Look, ___: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    long = [one for one in (*sent_names(look), *call_ids(look)) if len(one) > value]
    if long:
        yield value, long


_WIRE: dict[str, Callable[[Story, Any, State, Look, Mapping[str, Any]], Iterator[tuple[Any, Any]]]] = {
    "placement": _placement,
    "names": _names,
    "legal": _legal,
    "same_bytes_as": _same_bytes,
    "same_fingerprint_as": _same_print,
    "differs_from": _differs,
    "tools_prefix_of": _prefix,
    "same_name_as": _same_name,
    "excludes_items": _excludes_items,
    "excludes_references_to": _excludes_references,
    "readable_cover_of": _readable,
    "summary_contains_schema": _summary_schema,
    "notice_about": _notice,
    "call_ids": _call_ids,
    "pairs_preserved": _pairs,
    "max_length": _max_length,
}


# ---- the stored session


def _journal(_: Story, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    told = state.journal
    for word in ("readable_records", "damaged", "sequence", "line"):
        if word in check and not same(check[word], told[word]):
            yield word, check[word], told[word]
    if not set(check.get("contains", ())) <= set(told["ids"]):
        yield "contains", check["contains"], told["ids"]
    if set(check.get("excludes", ())) & set(told["ids"]):
        yield "excludes", check["excludes"], told["ids"]


_Tell = Callable[[Story, Mapping[str, Any], State], Iterator[Fault]]
_CHECKS: dict[str, tuple[set[str], _Tell]] = {
    "callable": ({"exactly", "subset_of", "excludes", "unless"}, _callable),
    "refused": ({"error", "text_excludes"}, _refused),
    "executed": ({"times", "at_most", "with_args"}, _executed),
    "executed_after": ({"times", "at_most", "with_operation_id"}, _executed_after),
    "body_reached": ({"tool", "times"}, _body_reached),
    "inner_refused": ({"error", "text_excludes", "inner", "tool"}, _inner_refused),
    "started_among": ({"count"}, _started_among),
    "refused_among": ({"count", "error"}, _refused_among),
    "dispatched": ({"tool"}, _dispatched),
    "outcome": ({"is"}, _outcome),
    "ledger": ({"state", "settled", "owner", "evidence"}, _ledger),
    "error": ({"error"}, _error),
    "limit": ({"used", "max"}, _limit),
    "receipt": ({"kind", "reason", "tools", *_RECEIPT}, _receipt),
    "no_receipt": ({"kind", "reason", "tools", *_RECEIPT}, _no_receipt),
    "trace": ({"valid", "open_calls", "results_for", "kept_includes", "group_atomic", "same_as_event", "adjacent",
               "occurrences", "evidence_order", "summaries_at_most"}, _trace),
    "wire": ({*_WIRE, "or_withheld", "tools"}, _wire),
    "journal": ({"readable_records", "damaged", "sequence", "line", "contains", "excludes"}, _journal),
}  # fmt: skip
