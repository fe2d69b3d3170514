"""Small conversations and projections to render."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from attrs import evolve, frozen
from hypothesis import strategies as st

from capstate.capabilities import Definition, Group, Tool
from capstate.projection import Block, Mark, OnWire, Placed, Profile, Projection
from capstate.providers import anthropic, openai_chat, openai_responses
from capstate.surface import View
from capstate.trace import Call, Message, Outcome, Role

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "experiments" / "recorded" / "pi"
DOCUMENTS = ROOT / "tests" / "corpus" / "providers"

APIS = {"anthropic": "anthropic-messages", "openai_responses": "openai-responses", "openai_chat": "openai-completions"}

PROFILES: dict[str, Profile] = {
    "anthropic": anthropic.profile("claude-x"),
    "anthropic-flat": anthropic.profile("claude-x", defers=False),
    "responses-search": openai_responses.profile("gpt-x", defers="tool_search"),
    "responses-additional": openai_responses.profile("gpt-x", defers="additional_tools"),
    "responses-flat": openai_responses.profile("gpt-x", defers=""),
    "chat-system": openai_chat.profile("kimi-x", defers=True),
    "chat-flat": openai_chat.profile("gpt-x"),
}
DEFERRING = {name: p for name, p in PROFILES.items() if p.defers}


def definition(
    name: str, *, group: str = "g", schema: Mapping[str, Any] | None = None, description: str = "d"
) -> Definition:
    tool = Tool(name, description=description, schema=schema, wire_name=name)
    return Group(group, [tool]).definitions[name]


def placed(name: str, mark: Mark | None = None, **more: Any) -> Placed:
    return Placed(definition(name, **more), name, mark)


def projection(immediate: Iterable[Placed], deferred: Iterable[Placed] = ()) -> Projection:
    now, later = tuple(immediate), tuple(deferred)
    block = Block(cast("View", None), (), now, later, "")
    return Projection({"all": block}, later, (), repr((now, later)))


def messages_of(body: Mapping[str, Any]) -> list[Any]:
    return cast("list[Any]", body["input"] if "input" in body else body["messages"])


def recorded() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every recorded request, with a name for it."""
    files = sorted(RECORDED.glob("*/requests.jsonl"))
    assert files, f"no recordings under {RECORDED.relative_to(ROOT)}"
    for file in files:
        for line in file.read_bytes().splitlines():
            request = json.loads(line)
            yield f"{file.parent.name} turn {request['turn']}", request


def documents() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every document of the corpus: its name, API and body."""
    for folder, api in APIS.items():
        for file in sorted((DOCUMENTS / folder).rglob("*.json")):
            yield str(file.relative_to(DOCUMENTS)), api, json.loads(file.read_bytes())


def of_wire(seen: OnWire, points: Sequence[Any]) -> Projection:
    """The projection that a recorded body shows."""

    def made(name: str, mark: Mark | None = None) -> Placed:
        told = seen.definitions[name]
        return placed(name, mark, description=told.get("description", ""), schema=told.get("schema"))

    marks = {name: Mark(0, None, point.call) for point in reversed(points) for name in point.names}
    return projection([made(n) for n in seen.immediate], [made(n, marks[n]) for n in seen.deferred])


@frozen
class World:
    history: list[Message]
    shown: Projection
    homes: dict[str, int]
    """Position among all tool results, by wire name of each deferred tool."""


ODD_IDS = ["t1", "t2", "a.b", "x" * 80, "", "é", "t1 "]


@st.composite
def worlds(draw: st.DrawFn, ids: Sequence[str] = tuple(ODD_IDS), *, repeats: bool = True) -> World:
    """Conversations in which some results load tools."""
    history = [Message("u0", Role.USER, "begin")]
    marks: list[tuple[Mark, int]] = []
    fresh = iter(range(10_000))
    results = 0
    for turn in range(draw(st.integers(1, 4))):
        calls = []
        for _ in range(draw(st.integers(1, 3))):
            call_id = draw(st.sampled_from(ids)) if repeats else f"call_{next(fresh)}"
            calls.append(Call(call_id, draw(st.sampled_from(["load", "g/gone", "no longer", "tool_0"])), {"n": turn}))
        history.append(Message(f"a{turn}", Role.ASSISTANT, draw(st.sampled_from(["", "so"])), tuple(calls)))
        for call in calls:
            entry = f"r{results}"
            outcome = draw(st.sampled_from([None, *Outcome]))
            history.append(
                Message(entry, Role.TOOL, draw(st.sampled_from(["", "done"])), result_for=call.id, outcome=outcome)
            )
            if draw(st.booleans()):
                marks.append((Mark(results, entry, call.id), results))
            results += 1
        if draw(st.booleans()):
            role = draw(st.sampled_from([Role.USER, Role.SUMMARY, Role.SYSTEM]))
            history.append(Message(f"m{turn}", role, draw(st.sampled_from(["", "go on"]))))
    deferred = [placed(f"tool_{n}", mark) for n, (mark, _) in enumerate(marks)]
    homes = {f"tool_{n}": home for n, (_, home) in enumerate(marks)}
    return World(history, projection([placed("load")], deferred), homes)


def without_ids(history: Iterable[Message]) -> list[Message]:
    return [evolve(m, id="") for m in history]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)

_WORDS = """type role content name tools tool_name tool_use_id call_id input output messages tool function tool_calls id
    arguments definition tool_references tool_changes defer_loading namespace server_name mcp_server_name usage
    parameters input_schema description clear_at mcp_servers functions iterations input_tokens input_tokens_details
    cached_tokens default_config server_label is_error custom tool_call_id compaction""".split()  # noqa: SIM905 - words
_VALUES = """tool_reference tool_result tool_use user assistant system tool developer function namespace tool_addition
    tool_removal tool_definition tool_search_output additional_tools tool_search_tool_result tool_search_call message
    mcp function_call function_call_output mcp_toolset mcp_tool_reference compaction text custom x""".split()  # noqa: SIM905

WIRE_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(_VALUES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=5),
    max_leaves=20,
)
"""JSON that is made of the APIs' own words, so that it gets far."""
