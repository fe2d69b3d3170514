"""The wire forms: one module an API, each a :class:`capstate.projection.Adapter`. No HTTP.

>>> from capstate.providers import for_api
>>> for_api("anthropic-messages").on_wire({"tools": [{"name": "read", "input_schema": {}}]}).immediate
('read',)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from capstate.errors import InvalidInputError
from capstate.providers import anthropic, openai_chat, openai_responses
from capstate.providers._replay import LoadPoint

if TYPE_CHECKING:
    from capstate.projection import Adapter

__all__ = ["LoadPoint", "anthropic", "detect", "for_api", "openai_chat", "openai_responses"]

_APIS: dict[str, Any] = {
    "anthropic-messages": anthropic,
    "openai-responses": openai_responses,
    "openai-codex-responses": openai_responses,
    "openai-completions": openai_chat,
}


def for_api(api: str) -> Adapter:
    """Return the wire form of ``api``.

    Raises:
        InvalidInputError: no module here speaks it.
    """
    if api not in _APIS:
        raise InvalidInputError("api", "one of " + ", ".join(sorted(_APIS)), api)
    return cast("Adapter", _APIS[api])


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
