"""Histories and usage, read into neutral form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st

from capstate.errors import MalformedError
from capstate.providers import LoadPoint, anthropic, for_api, openai_chat, openai_responses
from capstate.trace import Call, Message, Outcome, Role
from capstate.usage import Usage
from tests.providers.worlds import (
    APIS,
    DOCUMENTS,
    JSON,
    PROFILES,
    WIRE_JSON,
    documents,
    messages_of,
    projection,
    recorded,
)

MODULES: dict[str, Any] = {api: for_api(api) for api in APIS.values()}


def document(name: str) -> Any:
    return json.loads((DOCUMENTS / name).read_bytes())


def shape(messages: list[Message]) -> list[tuple[Any, ...]]:
    return [
        (m.role, m.text, tuple((c.id, c.tool, dict(c.arguments), c.occurrence) for c in m.calls), m.result_for, m.tool)
        for m in messages
    ]


PARALLEL = [
    (Role.USER, "Why does the payment job time out?", (), None, None),
    (
        Role.ASSISTANT, "",
        (
            ("call_READ", "read_file", {"path": "jobs/payment.yaml"}, 0),
            ("call_GREP", "search_text", {"needle": "timeout"}, 0),
        ),
        None, None,
    ),
    (Role.TOOL, "retries: 3\ntimeout_s: 5", (), "call_READ", "read_file"),
    (Role.TOOL, '{"error":"index unavailable"}', (), "call_GREP", "search_text"),
]  # fmt: skip


def test_parallel_calls_are_one_message_in_each_api() -> None:
    """Parallel calls are calls of one assistant message; each result names its call and tool."""
    items = document("openai_responses/03_parallel_results_request.json")["input"]
    assert shape(openai_responses.read(items)) == PARALLEL
    items = document("openai_chat/03_parallel_results_request.json")["messages"]
    assert shape(openai_chat.read(items))[1:] == PARALLEL
    read = anthropic.read(document("anthropic/03_parallel_results_request.json")["messages"])
    assert [m.role for m in read] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.USER]
    assert [m.outcome for m in read] == [None, None, Outcome.OK, Outcome.ERROR, None]
    assert [m.tool for m in read] == [None, None, "read_file", "search_text", None]
    assert read[4].text == "Answer from what you have."


def test_what_was_read_goes_back_unchanged() -> None:
    """Neutral messages keep what they were read from: for the same API the recorded list comes back."""
    for name, request in recorded():
        api, profile = MODULES[request["api"]], next(p for p in PROFILES.values() if p.issuer.api == request["api"])
        items = messages_of(request["body"])
        told = {point["item"] for point in request["wire"]["loadPoints"]}
        if told or any(item.get("type") == "compaction" for item in items):
            continue  # load points follow the projection, opaque items their issuer: other tests
        assert messages_of(profile.adapter.render(profile, projection([]), api.read(items))) == items, name


def test_neutral_messages_pass_through_and_mix() -> None:
    """What is neutral already is the same message; names of its calls serve the native results behind it."""
    call = Message("a", Role.ASSISTANT, "", (Call("c", "load"),))
    mixed = {
        anthropic: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
        openai_responses: {"type": "function_call_output", "call_id": "c", "output": "x"},
        openai_chat: {"role": "tool", "tool_call_id": "c", "content": "x"},
    }
    for module, item in mixed.items():
        api: Any = module
        first, second = api.read([call, item])
        assert first is call
        assert (second.role, second.result_for, second.tool, second.text) == (Role.TOOL, "c", "load", "x")


def test_repeated_call_ids_are_told_apart() -> None:
    """The second call of one id is its second occurrence."""
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "x", "input": {}}]}
    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}
    read = anthropic.read([call, answer, call, answer])
    assert [c.occurrence for m in read for c in m.calls] == [0, 1]


def test_compaction_is_opaque_with_its_readable_text() -> None:
    """Anthropic's block covers its own readable text; OpenAI's has none. Nobody is named as the issuer."""
    (block,) = anthropic.read(
        [{"role": "assistant", "content": document("anthropic/09_compaction_response.json")["content"]}]
    )
    assert (block.role, block.issuer) == (Role.OPAQUE, None)
    assert [m.role for m in block.covered] == [Role.SUMMARY]
    assert "run 812" in block.covered[0].text
    read = openai_responses.read(document("openai_responses/11_after_compaction_request.json")["input"])
    assert [m.role for m in read] == [Role.USER, Role.OPAQUE, Role.USER]
    assert read[1].native["encrypted_content"] == "gAAAAfixtureonlycompaction"


def test_items_that_only_provide_tools_have_no_text() -> None:
    """A load point is a message without text that names its tools; another API leaves it out."""
    read = openai_responses.read(document("openai_responses/07_additional_tools_request.json")["input"])
    assert [(m.role, m.text, m.refers) for m in read][2] == (Role.SYSTEM, "", ("deploy_run",))
    profile = PROFILES["chat-flat"]
    assert len(profile.adapter.render(profile, projection([]), read)["messages"]) == len(read) - 1


def test_calls_in_a_namespace_carry_it() -> None:
    """The name of a call in a namespace is the one that the body makes callable."""
    body = document("openai_responses/05_deferred_hosted_replay_request.json")
    (call,) = (c for m in openai_responses.read(body["input"]) for c in m.calls)
    assert call.tool in openai_responses.on_wire(body).deferred


@pytest.mark.parametrize(("name", "api", "body"), [pytest.param(*d, id=d[0]) for d in documents()])
def test_every_document_is_read(name: str, api: str, body: dict[str, Any]) -> None:
    """Each request of the corpus is read, and nothing that a person or model said is lost."""
    if "input" not in body and "messages" not in body:
        assert name.endswith("_response.json")
        return
    read = MODULES[api].read(messages_of(body))
    said = " ".join(text for m in read for text in (m.text, *(c.text for c in m.covered)))
    for item in messages_of(body):
        if isinstance(item.get("content"), str):
            assert item["content"] in said


@pytest.mark.parametrize("api", MODULES)
@given(history=JSON | st.lists(WIRE_JSON, max_size=4))
def test_any_history_is_read_or_refused(api: str, history: Any) -> None:
    """Whatever JSON stands for a history: messages and load points, or a MalformedError, and nothing else."""
    for act, made in ((MODULES[api].read, Message), (MODULES[api].marks, LoadPoint)):
        try:
            found = act(history)
        except MalformedError:
            continue
        assert all(isinstance(m, made) for m in found)


# --- usage


def test_anthropic_counts_uncached_input_by_itself() -> None:
    """``input_tokens`` is what was neither read nor written."""
    told = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7, "output_tokens": 9}
    assert anthropic.usage({"usage": told}) == Usage(read=100, write=7, uncached=5, output=9)


def test_compaction_on_demand_reports_its_cost_in_iterations() -> None:
    """Figures of zero at the top stand for those of the rounds."""
    found = anthropic.usage(document("anthropic/09_compaction_response.json"))
    assert found == Usage(read=0, write=0, uncached=644, output=120)


@pytest.mark.parametrize(("name", "module"), [
    ("openai_responses/02_parallel_calls_response.json", openai_responses),
    ("openai_responses/10_compact_response.json", openai_responses),
])  # fmt: skip
def test_openai_totals_hold_the_cached_part(name: str, module: Any) -> None:
    """Uncached is the total without what was read and written."""
    assert module.usage(document(name)) == Usage(read=1024, write=320, uncached=46, output=80)


def test_chat_totals_hold_the_cached_part() -> None:
    """The same under the names of Chat."""
    found = openai_chat.usage(document("openai_chat/02_parallel_calls_response.json"))
    assert found == Usage(read=1024, write=320, uncached=46, output=60)


@pytest.mark.parametrize("api", MODULES)
def test_what_is_not_reported_is_none(api: str) -> None:
    """Absent is not zero; and without the cached part the rest of a total is not known."""
    assert MODULES[api].usage({}) == Usage(None, None, None, None)
    total = {"input_tokens": 9, "prompt_tokens": 9}
    assert MODULES[api].usage({"usage": total}).read is None
    assert MODULES[api].usage({"usage": total}).uncached == (9 if api == "anthropic-messages" else None)


def test_parts_above_the_total_are_refused() -> None:
    """A report that contradicts itself is no observation."""
    with pytest.raises(MalformedError):
        openai_chat.usage({"usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}}})


@pytest.mark.parametrize("api", MODULES)
@given(response=JSON | WIRE_JSON)
def test_any_response_is_counted_or_refused(api: str, response: Any) -> None:
    """Whatever JSON stands for a response: counts of at least zero, or a MalformedError."""
    try:
        found = MODULES[api].usage(response)
    except MalformedError:
        return
    assert all(n is None or n >= 0 for n in (found.read, found.write, found.uncached, found.output))


@pytest.mark.parametrize("folder", ["anthropic", "openai_chat", "openai_responses"])
def test_a_profile_says_what_its_api_reports_and_whether_it_compacts(folder: str) -> None:
    """As the documents of the corpus have it: every figure that some response has, and an item of its own."""
    files = [name for name, _, _ in documents() if name.startswith(f"{folder}/")]
    bodies = [document(name) for name in files]
    module = {"anthropic": anthropic, "openai_chat": openai_chat, "openai_responses": openai_responses}[folder]
    found = [module.usage(body) for body in bodies if isinstance(body, dict) and body.get("usage")]
    profile = module.profile("m")

    assert profile.reports == {name for one in found for name, count in asdict(one).items() if count is not None}
    assert profile.compacts is ('"type":"compaction"' in json.dumps(bodies, separators=(",", ":")))
