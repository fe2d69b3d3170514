"""The frame of a request body: of which API it is, and which of its keys can make something callable.

Keys that carry no tool are listed, by API, as its SDK and its compatible hosts have them. Every other key is read, or
counted as unknown: whatever it is, nobody here can say that it makes nothing callable. Null is the same as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from capstate.errors import MalformedError
from capstate.providers._shape import listing, mapping

if TYPE_CHECKING:
    from capstate.providers._replay import Replay

ANTHROPIC = "anthropic-messages"
RESPONSES = "openai-responses"
CHAT = "openai-completions"

_SDK = frozenset({"extra_headers", "extra_query", "timeout"})
"""Arguments of the SDKs that are no part of the body; ``extra_body`` is, and is looked into."""
_PLAIN: Mapping[str, frozenset[str]] = {
    ANTHROPIC: _SDK | frozenset(
        """model max_tokens metadata stream stop_sequences temperature top_p top_k thinking tool_choice service_tier
        cache_control context_management compaction diagnostics output_config output_format inference_geo speed betas
        anthropic_version anthropic_beta billing_policy fallbacks fallback_credit_token user_profile_id
        workspace_id""".split()  # noqa: SIM905 - words, not a wall of quotes
    ),
    RESPONSES: _SDK | frozenset(
        """model instructions max_output_tokens temperature top_p top_logprobs stream stream_options store metadata
        include text text_format reasoning truncation tool_choice parallel_tool_calls max_tool_calls service_tier user
        safety_identifier prompt_cache_key prompt_cache_retention prompt_cache_options background background_options
        context_management moderation access_programs image""".split()  # noqa: SIM905 - as above
    ),
    CHAT: _SDK | frozenset(
        """model temperature top_p top_k min_p top_a n stop max_tokens max_completion_tokens stream stream_options store
        metadata seed logprobs top_logprobs logit_bias presence_penalty frequency_penalty repetition_penalty
        response_format reasoning reasoning_effort thinking enable_thinking thinking_budget verbosity modalities audio
        prediction service_tier user safety_identifier prompt_cache_key prompt_cache_retention prompt_cache_options
        moderation tool_choice function_call parallel_tool_calls cache_control""".split()  # noqa: SIM905 - as above
    ),
}  # fmt: skip
_READ: Mapping[str, frozenset[str]] = {
    ANTHROPIC: frozenset({"tools", "messages", "system", "mcp_servers"}),
    RESPONSES: frozenset({"tools", "input"}),
    CHAT: frozenset({"tools", "messages", "functions", "web_search_options"}),
}
_ELSEWHERE = frozenset({"thread", "container", "previous_response_id", "conversation", "prompt"})
"""State that the provider keeps: what is in it cannot be seen here."""
_HISTORY: Mapping[str, str] = {ANTHROPIC: "messages", RESPONSES: "input", CHAT: "messages"}

_SIGNS: Mapping[str, frozenset[str]] = {
    ANTHROPIC: frozenset({"system", "stop_sequences", "anthropic_version", "anthropic_beta"}),
    RESPONSES: frozenset({"input", "instructions", "max_output_tokens", "truncation"}),
    CHAT: frozenset(
        {"messages", "max_completion_tokens", "response_format", "functions", "function_call", "n", "stop"}
    ),
}
"""Keys that show an API, where another one does not have them."""
_CARRIERS = frozenset({"tools", "functions", "mcp_servers", "tool_changes", "tool_references"})


def judge(seen: Replay, body: Mapping[str, Any], api: str) -> None:
    """Count the keys of ``body`` that nobody here reads and that may carry tools.

    Without the key that holds the history a body is no request, but perhaps a response: then only state that the
    provider keeps is counted.
    """
    request = body.get(_HISTORY[api]) is not None
    for key, value in body.items():
        if value is None or key in _PLAIN[api] or key in _READ[api]:
            continue
        if key == "extra_body":
            for inner in mapping(value, key):
                if inner not in _PLAIN[api]:
                    seen.unknown[f"extra_body.{inner}"[:80]] += 1
        elif request or key in _ELSEWHERE:
            seen.unknown[str(key)[:80]] += 1


def stray(seen: Replay, held: Mapping[str, Any], what: str, *known: str) -> None:
    """Count lists of tools in a message, item or block of which this API says nothing."""
    for key in _CARRIERS & held.keys() - set(known):
        if held[key] is not None:
            seen.unknown[f"{key} of {what}"[:80]] += 1


def recognise(body: object, api: str) -> None:
    """Hold ``body`` to being a request of ``api``.

    Raises:
        MalformedError: it lacks the history, or something in it shows another API; the error names that.
    """
    body = mapping(body, "body")
    expected = f"a request of {api}"
    for other, keys in _SIGNS.items():
        for key in sorted(keys - _PLAIN[api] - _READ[api]):
            if other != api and body.get(key) is not None:
                raise MalformedError(key, expected, f"one of {other}")
    if body.get(_HISTORY[api]) is None:
        raise MalformedError(_HISTORY[api], expected, "nothing")
    for i, tool in enumerate(listing(body.get("tools"), "tools")):
        other_api = _tool_of(tool, api)
        if other_api is not None:
            raise MalformedError(f"tools[{i}]", expected, f"one of {other_api}")
    if api == ANTHROPIC and body.get("system") is None and _led_by_system(body) and detect(body) == CHAT:
        raise MalformedError("messages[0].role", expected, f"one of {CHAT}")
    history = body[_HISTORY[api]]
    for i, message in enumerate(history if isinstance(history, list | tuple) else ()):
        other_api = _message_of(message, api)
        if other_api is not None:
            raise MalformedError(f"{_HISTORY[api]}[{i}]", expected, f"one of {other_api}")


def _led_by_system(body: Mapping[str, Any]) -> bool:
    """Whether the first message is a system's: Chat has that, and Anthropic Messages refuses it."""
    first = next(iter(listing(body["messages"], "messages")), None)
    return isinstance(first, dict) and first.get("role") == "system"


def _tool_of(tool: object, api: str) -> str | None:
    """Return the other API that the shape of one entry of ``tools`` shows."""
    form = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or form not in (None, "custom", "function"):
        return None
    if api == ANTHROPIC:
        return None if form != "function" else CHAT if isinstance(tool.get("function"), dict) else RESPONSES
    if "input_schema" in tool and form != "function":
        return ANTHROPIC
    nested = isinstance(tool.get("function"), dict)
    if api == CHAT:
        return RESPONSES if form == "function" and not nested else None
    return CHAT if nested and "name" not in tool else None


def _message_of(message: object, api: str) -> str | None:
    """Return the other API that the shape of one message shows."""
    if not isinstance(message, dict):
        return None
    if api == ANTHROPIC:
        return CHAT if message.get("role") in ("developer", "tool", "function") or "tool_calls" in message else None
    if api == RESPONSES and (message.get("role") == "tool" or "tool_calls" in message):
        return CHAT
    content = message.get("content")
    held = [b.get("type") for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    return ANTHROPIC if any(isinstance(form, str) and form in _ANTHROPIC_CALLS for form in held) else None


_ANTHROPIC_CALLS = frozenset({"tool_use", "tool_result", "tool_addition", "tool_removal", "server_tool_use"})


def detect(body: object) -> str | None:
    """Return the API of a bare request body, or None if it cannot be told. Raises nothing.

    Bodies without tools and calls can look alike in two APIs; small signs decide then, the model's name last.
    """
    if not isinstance(body, Mapping):
        return None
    if "input" in body or "previous_response_id" in body:
        return "openai-responses"
    messages = body.get("messages")
    if not isinstance(messages, list):
        return None
    signs = _signs(body, messages)
    if signs["anthropic-messages"] != signs["openai-completions"]:
        return max(signs, key=lambda api: signs[api])
    model = body.get("model")
    return "anthropic-messages" if isinstance(model, str) and "claude" in model else None


_ANTHROPIC_ONLY = {
    "system",
    "anthropic_version",
    "anthropic_beta",
    "thinking",
    "stop_sequences",
    "top_k",
    "context_management",
    "mcp_servers",
}
_CHAT_ONLY = {
    "max_completion_tokens",
    "stream_options",
    "n",
    "stop",
    "store",
    "response_format",
    "seed",
    "logprobs",
    "functions",
}
_ANTHROPIC_BLOCKS = {
    "tool_use",
    "tool_result",
    "tool_addition",
    "tool_removal",
    "thinking",
    "compaction",
    "server_tool_use",
}


def _signs(body: Mapping[str, Any], messages: list[Any]) -> dict[str, int]:
    anthropic_signs = len(_ANTHROPIC_ONLY & body.keys())
    chat_signs = len(_CHAT_ONLY & body.keys())
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            chat_signs += isinstance(tool.get("function"), dict)
            anthropic_signs += "input_schema" in tool
    for message in messages:
        if not isinstance(message, dict):
            continue
        content = message.get("content")
        held = [b.get("type") for b in content if isinstance(b, dict)] if isinstance(content, list) else []
        typed = sum(isinstance(form, str) and form in _ANTHROPIC_BLOCKS for form in held)
        anthropic_signs += typed
        chat_signs += message.get("role") in ("developer", "tool") or "tool_calls" in message
        chat_signs += message.get("role") == "system" and not typed
    return {"anthropic-messages": anthropic_signs, "openai-completions": chat_signs}
