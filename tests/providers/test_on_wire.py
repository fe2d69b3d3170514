"""What a request body makes callable."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from capstate.errors import InvalidInputError, MalformedError
from capstate.providers import detect, for_api
from tests.providers.worlds import APIS, JSON, WIRE_JSON, documents, recorded

MODULES = {api: for_api(api) for api in APIS.values()}

# document: (immediate, deferred with place, unloaded)
EXPECTED: dict[str, tuple[set[str], dict[str, str], set[str]]] = {
    "anthropic/01_immediate_request.json": ({"read_file", "search_text"}, {}, set()),
    "anthropic/02_parallel_calls_response.json": (set(), {}, set()),
    "anthropic/03_parallel_results_request.json": ({"read_file", "search_text"}, {}, set()),
    "anthropic/04_deferred_hosted_request.json": (
        {"tool_search_tool_bm25", "read_file"}, {"deploy_run": "srvtoolu_01SEARCH"}, {"crm_lookup"},
    ),
    "anthropic/05_deferred_client_request.json": (
        {"find_tools", "read_file"}, {"crm_lookup": "toolu_01FIND"}, {"deploy_run"},
    ),
    "anthropic/06_tool_change_by_reference_request.json": ({"read_file"}, {"deploy_run": "index 3"}, set()),
    "anthropic/07_tool_change_by_value_request.json": ({"read_file"}, {"crm_lookup": "index 1"}, set()),
    "anthropic/08_compaction_request.json": ({"read_file"}, {"deploy_run": "index 1"}, set()),
    "anthropic/09_compaction_response.json": (set(), {}, set()),
    "anthropic/10_after_compaction_request.json": ({"read_file"}, {}, set()),
    "anthropic/11_threshold_compaction_replay_request.json": ({"read_file"}, {}, set()),
    "anthropic/invalid/all_deferred_request.json": (set(), {}, {"read_file", "deploy_run"}),
    "anthropic/invalid/foreign_call_id_request.json": ({"read_file"}, {}, set()),
    "anthropic/invalid/orphan_result_request.json": ({"read_file"}, {}, set()),
    "openai_responses/01_immediate_request.json": ({"read_file", "search_text"}, {}, set()),
    "openai_responses/02_parallel_calls_response.json": ({"read_file", "search_text"}, {}, set()),
    "openai_responses/03_parallel_results_request.json": ({"read_file", "search_text"}, {}, set()),
    "openai_responses/04_deferred_hosted_request.json": (
        {"tool_search", "read_file"}, {}, {"deploy_run", "crm.crm_lookup"},
    ),
    "openai_responses/05_deferred_hosted_replay_request.json": (
        {"tool_search", "read_file"}, {"crm.crm_lookup": "index 2"}, {"deploy_run"},
    ),
    "openai_responses/06_deferred_client_request.json": (
        {"tool_search", "read_file"}, {"deploy_run": "call_SEARCH"}, set(),
    ),
    "openai_responses/07_additional_tools_request.json": ({"read_file"}, {"deploy_run": "index 2"}, set()),
    "openai_responses/08_allowed_tools_request.json": ({"read_file", "search_text", "deploy_run"}, {}, set()),
    "openai_responses/09_compact_request.json": (set(), {"deploy_run": "index 1"}, set()),
    "openai_responses/10_compact_response.json": (set(), {}, set()),
    "openai_responses/11_after_compaction_request.json": ({"read_file", "deploy_run"}, {}, set()),
    "openai_responses/12_compaction_trigger_request.json": ({"read_file"}, {}, set()),
    "openai_responses/invalid/orphan_output_request.json": ({"read_file"}, {}, set()),
    "openai_responses/invalid/wrong_item_id_request.json": ({"read_file"}, {}, set()),
    "openai_chat/01_immediate_request.json": ({"read_file", "search_text"}, {}, set()),
    "openai_chat/02_parallel_calls_response.json": (set(), {}, set()),
    "openai_chat/03_parallel_results_request.json": ({"read_file", "search_text"}, {}, set()),
    "openai_chat/04_allowed_tools_request.json": ({"read_file", "search_text", "deploy_run"}, {}, set()),
    "openai_chat/05_fallback_after_compaction_request.json": ({"read_file", "deploy_run"}, {}, set()),
    "openai_chat/invalid/missing_result_request.json": ({"read_file", "search_text"}, {}, set()),
}  # fmt: skip


def test_every_document_is_read_as_its_author_meant_it() -> None:
    """Each document of the corpus makes callable exactly what it was written to; nothing in a request is unknown."""
    found = {}
    for name, api, body in documents():
        seen = MODULES[api].on_wire(body)
        assert "response" in name or dict(seen.unknown) == {}, name  # a response has keys that no request has
        found[name] = (set(seen.immediate), dict(seen.deferred), set(seen.unloaded))
    assert found == EXPECTED


def test_every_recorded_request_is_read_as_the_recorder_read_it() -> None:
    """On each recorded request the callable set, its split and its prose removals are those noted by the recorder.

    The recorder's ``immediate`` is the top-level list as sent; a name that a typed removal took away is still in it.
    Its placeholder for a list without tools is no tool.
    """
    for name, request in recorded():
        wire, seen = request["wire"], MODULES[request["api"]].on_wire(request["body"])
        effective = set(wire["effective"])
        loads: dict[str, None] = {}
        for point in wire["loadPoints"]:
            for tool in point["names"]:
                if point["item"] == "tool_removal":
                    loads.pop(tool, None)
                elif tool not in wire["immediate"] or tool not in effective:
                    loads[tool] = None
        assert seen.effective == effective, name
        assert list(seen.immediate) == [n for n in wire["immediate"] if n in effective], name
        assert list(seen.deferred) == list(loads), name
        assert set(wire["deferred"]) - {"__pi_deferred_placeholder__"} <= set(seen.deferred), name
        assert list(seen.withdrawn) == wire.get("textRemovals", []), name
        assert (dict(seen.unknown), seen.referenced, seen.unloaded) == ({}, (), ()), name


def test_every_recorded_request_shows_its_api() -> None:
    """The API of a bare recorded body is recognised."""
    assert {name: detect(r["body"]) for name, r in recorded()} == {name: r["api"] for name, r in recorded()}


@pytest.mark.parametrize(("name", "api", "body"), [pytest.param(*d, id=d[0]) for d in documents()])
def test_a_request_document_shows_its_api(name: str, api: str, body: dict[str, Any]) -> None:
    """The API of a request is recognised; a response is no request."""
    assert detect(body) == (None if name.endswith("_response.json") else api)


@pytest.mark.parametrize(
    "body", [None, 3, [], {}, {"messages": 1}, {"messages": [None, 3]}, {"tools": [[]], "messages": []}]
)
def test_what_is_no_request_has_no_api(body: object) -> None:
    """Anything else has no API and raises nothing."""
    assert detect(body) is None


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "d", "input_schema": {"type": "object"}, **more}


def result(*names: str, call: str = "c1") -> dict[str, Any]:
    references = [{"type": "tool_reference", "tool_name": n} for n in names]
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": references}]}


def change(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "tool": {"type": "tool_reference", "name": name}}


def anthropic(tools: list[Any], *messages: Any, **more: Any) -> Any:
    return MODULES["anthropic-messages"].on_wire({"tools": tools, "messages": list(messages), **more})


def test_removal_and_addition_are_replayed_in_order() -> None:
    """A removed tool is gone; added again, it is callable from its new place; a removal after that takes it again."""
    removed = {"role": "system", "content": [change("tool_removal", "a")]}
    added = {"role": "system", "content": [change("tool_addition", "a")]}
    assert anthropic([tool("a"), tool("b")], removed).effective == {"b"}
    assert dict(anthropic([tool("a"), tool("b")], removed, added).deferred) == {"a": "index 1"}
    assert anthropic([tool("a"), tool("b")], removed, added, removed).effective == {"b"}


def test_only_the_first_reference_is_the_place() -> None:
    """Later references to a loaded tool change nothing."""
    seen = anthropic([tool("a"), tool("b", defer_loading=True)], result("b"), result("b", call="c2"))
    assert dict(seen.deferred) == {"b": "c1"}


def test_reference_to_nothing_is_not_callable() -> None:
    """A name without a definition is listed as referenced, and is not callable."""
    seen = anthropic([tool("a")], result("ghost"))
    assert seen.referenced == ("ghost",)
    assert seen.effective == {"a"}


def test_placeholder_is_no_tool_and_no_hiding_place() -> None:
    """The placeholder is not callable while it is deferred and unused; offered or referenced like a tool it is one."""
    name = "__pi_deferred_placeholder__"
    assert anthropic([tool("a"), tool(name, defer_loading=True)]).effective == {"a"}
    assert name in anthropic([tool(name)]).effective
    assert name in anthropic([tool("a"), tool(name, defer_loading=True)], result(name)).effective
    for form in ("bash_20250124", "web_search_20250305"):
        hosted = {"type": form, "name": name, "defer_loading": True}
        assert name in anthropic([tool("a"), hosted]).effective
        assert name in anthropic([tool("a"), hosted, tool(name, defer_loading=True)]).effective
    assert name in anthropic([tool("a"), tool(name, defer_loading=True, allowed_callers=["x"])]).effective


def test_choice_is_a_hint() -> None:
    """``tool_choice`` takes no tool away."""
    assert anthropic([tool("a")], tool_choice={"type": "none"}).effective == {"a"}


def test_turn_scoped_changes_are_read_the_wider_way() -> None:
    """Cleared at the next user message, a removal no longer counts after it, and an addition still does."""
    scoped = {
        "role": "system",
        "clear_at": "next_user_message",
        "content": [change("tool_removal", "a"), change("tool_addition", "b")],
    }
    tools = [tool("a"), tool("b", defer_loading=True)]
    assert anthropic(tools, scoped).effective == {"b"}
    assert anthropic(tools, scoped, {"role": "user", "content": "next"}).effective == {"a", "b"}


def test_prose_withdraws_nothing_but_is_reported() -> None:
    """Names that system prose withdraws stay callable and are listed; a user's or a tool's prose is not heard."""
    prose = "The following tools are no longer available. Do not call them:\n- a\n- zzz\nBye\n- b"
    tools = [{"type": "function", "name": n} for n in "ab"]
    seen = for_api("openai-responses").on_wire({"tools": tools, "input": [{"role": "developer", "content": prose}]})
    assert seen.withdrawn == ("a",)
    assert seen.effective == {"a", "b"}
    seen = for_api("openai-responses").on_wire({"tools": tools, "input": [{"role": "user", "content": prose}]})
    assert seen.withdrawn == ()


def test_a_tool_withdrawn_in_prose_and_added_again_is_not_withdrawn() -> None:
    """What comes last counts, for prose as well."""
    prose = {"role": "developer", "content": "no longer available\n- a"}
    again = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "a"}]}
    assert for_api("openai-responses").on_wire({"input": [again, prose, again]}).withdrawn == ()


def test_hosted_and_connected_tools_are_never_dropped() -> None:
    """What the provider runs is callable by name or type, a server as ``mcp:NAME``; unknown kinds are counted too."""
    seen = for_api("openai-responses").on_wire(
        {
            "tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "docs"}, {"type": "teleport"}],
            "input": "hi",
        }
    )
    assert seen.effective == {"web_search", "mcp:docs", "teleport"}
    assert dict(seen.unknown) == {"teleport": 1}
    tools = [{"type": "web_search_20260209", "name": "web_search"}, {"type": "mcp_toolset", "mcp_server_name": "docs"}]
    seen = anthropic(tools, mcp_servers=[{"name": "docs"}, {"name": "old"}])
    assert seen.effective == {"web_search", "mcp:docs", "mcp:old"}


def test_history_kept_by_the_provider_is_counted_as_unknown() -> None:
    """What the body only points to may hold more tools; it is said."""
    seen = for_api("openai-responses").on_wire({"previous_response_id": "r", "conversation": "c", "input": []})
    assert dict(seen.unknown) == {"conversation": 1, "previous_response_id": 1}
    assert dict(anthropic([], thread={"type": "continue"}).unknown) == {"thread": 1}


def test_second_definition_of_a_callable_name_is_reported() -> None:
    """A name with two different definitions is callable once, by the last, and the doubt is counted."""
    seen = anthropic([tool("a"), tool("a", description="other")])
    assert seen.definitions["a"]["description"] == "other"
    assert dict(seen.unknown) == {"second definition of a": 1}
    assert dict(anthropic([tool("a"), tool("a")]).unknown) == {}


def test_legacy_functions_are_callable() -> None:
    """The old ``functions`` list of Chat counts."""
    assert for_api("openai-completions").on_wire({"functions": [{"name": "a"}], "messages": []}).immediate == ("a",)


def test_system_tools_carry_their_place() -> None:
    """A system message with ``tools`` loads them at its index."""
    later = {"role": "system", "tools": [{"type": "function", "function": {"name": "late"}}]}
    seen = for_api("openai-completions").on_wire({"messages": [{"role": "user", "content": "x"}, later]})
    assert dict(seen.deferred) == {"late": "index 1"}


@pytest.mark.parametrize("api", MODULES)
@pytest.mark.parametrize(
    ("body", "place"),
    [
        ([], "body"),
        ({"tools": {}}, "tools"),
        ({"tools": [1]}, "tools[0]"),
        ({"messages": [7], "input": [7]}, "[0]"),
        ({"messages": [{"role": 3}], "input": [{"role": 3}]}, "[0].role"),
    ],
    ids=["body", "tools", "tool", "message", "role"],
)
def test_malformed_bodies_are_refused_with_their_place(api: str, body: Any, place: str) -> None:
    """The error names where the body is wrong."""
    with pytest.raises(MalformedError) as refused:
        MODULES[api].on_wire(body)
    assert place in refused.value.place


@pytest.mark.parametrize("api", MODULES)
@given(body=JSON | WIRE_JSON)
def test_any_json_is_read_or_refused(api: str, body: Any) -> None:
    """Whatever JSON arrives: an answer, or a MalformedError, and nothing else."""
    try:
        seen = MODULES[api].on_wire(body)
    except MalformedError:
        return
    assert seen.effective <= set(seen.definitions)


@pytest.mark.parametrize("api", MODULES)
@given(tools=WIRE_JSON, messages=WIRE_JSON)
def test_any_parts_of_a_request_are_read_or_refused(api: str, tools: Any, messages: Any) -> None:
    """The same for bodies whose frame is right."""
    try:
        seen = MODULES[api].on_wire({"tools": [tools], "messages": [messages], "input": [messages]})
    except MalformedError:
        return
    assert seen.effective <= set(seen.definitions)


def test_deep_nesting_costs_nothing() -> None:
    """A schema nested deeper than Python's own limit is neither walked nor printed."""
    deep: Any = {}
    for _ in range(5_000):
        deep = {"a": deep}
    assert anthropic([tool("a", input_schema=deep)]).effective == {"a"}
    assert anthropic([tool("a", input_schema=deep), tool("a", input_schema=[deep])]).effective == {"a"}
    with pytest.raises(MalformedError):
        anthropic([tool("a")], {"role": "user", "content": [[deep]]})


def test_unknown_api_is_the_callers_mistake() -> None:
    """A name of no API is refused as input."""
    with pytest.raises(InvalidInputError):
        for_api("smoke-signals")
