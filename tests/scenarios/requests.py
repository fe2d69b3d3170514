"""Checks on the request: its trace, and its tools part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from capstate.trace import FaultKind
from tests.scenarios.reading import (
    Fault,
    call_ids,
    covered,
    illegal_ids,
    illegal_names,
    item_on_wire,
    look_of,
    lost_results,
    pairs_of,
    results_of,
    sent_names,
    split,
    state_of,
    story_faults,
    summary_has_schema,
)
from tests.scenarios.stage import Stage, UnsupportedError
from tests.scenarios.states import Item, Look, State, items, wire_faults


def trace(story: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
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


def _kept(story: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
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


def wire(story: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    look = look_of(state, check["session"])
    for word, tell in WIRE.items():
        if word in check:
            yield from ((word, expected, got) for expected, got in tell(story, check[word], state, look, check))


def _placement(_: Stage, value: Any, __: State, look: Look, ___: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    for tool, place in value.items():
        if look.placement.get(tool) != place:
            yield f"{tool} {place}", look.placement


def _names(_: Stage, value: Any, __: State, look: Look, ___: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    sent = sent_names(look)
    if value == "injective" and (len(sent) != len(set(sent)) or len(set(look.wires.values())) != len(look.wires)):
        yield value, sent
    elif value != "injective":
        raise UnsupportedError(f"wire names {value}")


def _legal(_: Stage, value: Any, __: State, look: Look, check: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
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


def _labelled(story: Stage, label: str) -> Look:
    return story.labels[label][1]


def _same_bytes(story: Stage, value: Any, _: State, look: Look, __: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    if look.tools_bytes != _labelled(story, value).tools_bytes:
        yield _labelled(story, value).tools_bytes, look.tools_bytes


def _same_print(story: Stage, value: Any, _: State, look: Look, __: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    if look.fingerprint != _labelled(story, value).fingerprint:
        yield _labelled(story, value).fingerprint, look.fingerprint


def _differs(story: Stage, value: Any, _: State, look: Look, __: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    other = _labelled(story, value)
    if look.tools_bytes == other.tools_bytes or look.fingerprint == other.fingerprint:
        yield f"another tools part than {value}", look.fingerprint


def _prefix(story: Stage, value: Any, _: State, look: Look, __: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    first = [json.dumps(tool) for tool in _labelled(story, value).request.get("tools", [])]
    now = [json.dumps(tool) for tool in look.request.get("tools", [])]
    if now[: len(first)] != first:
        yield first, now


def _same_name(story: Stage, value: Any, _: State, look: Look, __: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    other = _labelled(story, value["label"])
    for tool in value["tools"]:
        if look.wires.get(tool) is None or look.wires[tool] != other.wires.get(tool):
            yield f"{tool}: {other.wires.get(tool)}", look.wires.get(tool)


def _excludes_items(_: Stage, value: Any, __: State, look: Look, ___: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    found = [item for item in value if item_on_wire(look, item)]
    if found:
        yield value, found


def _excludes_references(
    _: Stage, value: Any, __: State, look: Look, ___: Mapping[str, Any]
) -> Iterator[tuple[Any, Any]]:
    meant = {look.profile.names.name(d): d.qualified for d in _definitions(look)}
    found = sorted(meant.get(name, name) for name in look.referenced)
    if set(value) & set(found):
        yield value, found


def _definitions(look: Look) -> list[Any]:
    from capstate.capabilities import Group, Tool

    found = [q.partition("/") for q in look.definitions]
    return [Group(group, [Tool(name)]).definitions[name] for group, _, name in found]


def _readable(_: Stage, value: Any, state: State, look: Look, check: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    lost = [id_ for id_ in value if covered(state, check["session"], look, id_) is None]
    if lost:
        yield value, f"nothing for {lost}"


def _summary_schema(
    _: Stage, value: Any, state: State, __: Look, check: Mapping[str, Any]
) -> Iterator[tuple[Any, Any]]:
    if summary_has_schema(state, check["session"]) is not value:
        yield value, not value


def _notice(_: Stage, value: Any, state: State, look: Look, check: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    said = [m["text"] for m in state.views[check["session"]] if m.get("text")]
    added = [item.text for item in items(look) if not any(text in item.text for text in said)]
    missing = [tool for tool in value if not any(tool in text for text in added)]
    if missing:
        yield value, f"no notice of {missing}"


def _call_ids(_: Stage, value: Any, __: State, look: Look, ___: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    if value != "injective_per_occurrence":
        raise UnsupportedError(f"wire call_ids {value}")
    ids = call_ids(look)
    if len(ids) != len(set(ids)):
        yield value, ids


def _pairs(_: Stage, value: Any, state: State, look: Look, check: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    wrong = lost_results(state, check["session"])
    if bool(wrong or wire_faults(look)[0]) is bool(value):
        yield value, [*wrong, *wire_faults(look)[0]]


def _max_length(_: Stage, value: Any, __: State, look: Look, ___: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    long = [one for one in (*sent_names(look), *call_ids(look)) if len(one) > value]
    if long:
        yield value, long


WIRE: dict[str, Callable[[Stage, Any, State, Look, Mapping[str, Any]], Iterator[tuple[Any, Any]]]] = {
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
