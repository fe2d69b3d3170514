"""Requests inside telemetry: OpenTelemetry spans and log records, as OTLP JSON exports them or one at a time.

Rules:

- a span is one request, with the attributes of its events; a log record is one, with its body;
- a whole request body in any attribute is read by its own API (:mod:`capstate.agents.requests`);
- without one, the GenAI attributes ``gen_ai.input.messages`` and ``gen_ai.tool.definitions`` stand for it: they are
  the instrumentation's record of the request, not the request, and say nothing of how tools are deferred;
- without ``gen_ai.tool.definitions``, which exporters leave out by default, nobody knows what could be called;
- operations that ask no model (``execute_tool``, ``invoke_agent``, ...) are no requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from capstate.agents.lines import UNDECODED, decode

_EXPORTS = (
    ("resourceSpans", ("scopeSpans", "instrumentationLibrarySpans"), ("spans",), "span"),
    ("resourceLogs", ("scopeLogs", "instrumentationLibraryLogs"), ("logRecords", "logs"), "log record"),
)
_ASKS = ("chat", "generate_content", "text_completion")
_MESSAGES, _TOOLS = "gen_ai.input.messages", "gen_ai.tool.definitions"
FORM = "openai-completions"
"""The wire form that :func:`request` writes."""
_DEEP = 64
"""Levels of a typed value that are opened."""


def rows(value: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each span and log record of an OTLP export as a row, and what it is; of any other object, itself."""
    known = False
    for top, scopes, listed, what in _EXPORTS:
        known = known or isinstance(value.get(top), list)
        for resource in _objects(value.get(top)):
            for scope in (s for key in scopes for s in _objects(resource.get(key))):
                for item in (i for key in listed for i in _objects(scope.get(key))):
                    yield _row(item), what
    if not known:
        yield dict(value), "row"


def attributes(value: object) -> object:
    """Return attributes as an object, which OTLP writes as a list of keys and typed values; else ``value`` itself."""
    if not isinstance(value, list):
        return value
    return {row["key"]: _typed(row.get("value")) for row in _objects(value) if isinstance(row.get("key"), str)}


def request(row: Mapping[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """Return what the GenAI attributes of ``row`` say of a request, in the form of Chat Completions.

    ``tools`` is missing where they do not say. The flag says that an attribute is there and was cut off.
    """
    found = row if _MESSAGES in row else attributes(row.get("attributes"))
    if not isinstance(found, Mapping) or _MESSAGES not in found:
        return None, False
    if found.get("gen_ai.operation.name", "chat") not in _ASKS:
        return None, False
    messages, tools = (_opened(found.get(key)) for key in (_MESSAGES, _TOOLS))
    if messages is UNDECODED or tools is UNDECODED:
        return None, True
    body: dict[str, Any] = {"messages": [m for message in _objects(messages) for m in _messages(message)]}
    if isinstance(found.get("gen_ai.request.model"), str):
        body["model"] = found["gen_ai.request.model"]
    if isinstance(tools, list):
        body["tools"] = [_tool(tool) for tool in tools]
    return body, False


def _row(item: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in (item, *_objects(item.get("events"))):
        opened = attributes(part.get("attributes"))
        found.update(opened if isinstance(opened, dict) else {})
    body = _typed(item.get("body"))
    if isinstance(body, dict):
        found = {**body, **found}
    return {"attributes": found, "body": body}


def _typed(value: object, depth: int = _DEEP) -> Any:  # noqa: ANN401 - any JSON
    """Return what a typed value of OTLP holds; a value without a type is itself."""
    if not isinstance(value, dict) or depth == 0:
        return value
    for key in ("stringValue", "intValue", "boolValue", "doubleValue"):
        if key in value:
            return value[key]
    for key in ("arrayValue", "kvlistValue"):
        if isinstance(value.get(key), dict):
            inner = value[key].get("values")
            if key == "arrayValue":
                return [_typed(v, depth - 1) for v in inner] if isinstance(inner, list) else []
            pairs = [v for v in _objects(inner) if isinstance(v.get("key"), str)]
            return {pair["key"]: _typed(pair.get("value"), depth - 1) for pair in pairs}
    return value


def _opened(value: object) -> object:
    return decode(value.encode("utf-8", "replace")) if isinstance(value, str) else value


def _messages(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one message of the conventions as those of Chat Completions: each result is one of its own there."""
    role = message.get("role")
    parts = _objects(message.get("parts"))
    for part in parts:
        if part.get("type") == "tool_call_response":
            yield {"role": "tool", "tool_call_id": _text(part.get("id")), "content": ""}
    texts = [{"type": "text", "text": _text(p.get("content"))} for p in parts if p.get("type") == "text"]
    calls = [_call(part) for part in parts if part.get("type") == "tool_call"]
    if role == "assistant" and (texts or calls):
        yield {"role": "assistant", "content": None, **({"tool_calls": calls} if calls else {})}
    elif texts:
        yield {"role": role if role in ("user", "system", "developer") else "user", "content": texts}


def _call(part: dict[str, Any]) -> dict[str, Any]:
    function = {"name": _text(part.get("name")), "arguments": part.get("arguments")}
    return {"id": _text(part.get("id")), "type": "function", "function": function}


def _tool(tool: object) -> object:
    if not isinstance(tool, dict) or "function" in tool:
        return tool
    return {"type": "function", "function": {k: tool[k] for k in ("name", "description", "parameters") if k in tool}}


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
