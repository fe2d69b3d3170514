"""OpenAI's two APIs, read: tools, load points and withdrawals on the wire.

A definition of type ``function`` is a plain one. Any other keeps its type.
A function in a namespace is callable as ``NAMESPACE.NAME``: the dot is legal in no tool name, so it cannot be taken
for a tool at the top. Tools that the provider runs are callable under their own name (``$web_search``), else under
their type (``web_search``, ``tool_search``); of a connected server the whole is callable as ``mcp:LABEL``. What the
provider keeps (``previous_response_id``, ``conversation``, ``prompt``, an ``item_reference``) may hold further tools;
it is counted as unknown. Neither API has a typed removal, and a list of tools counts in whatever role it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from capstate.providers._replay import LoadPoint, Replay, described, further
from capstate.providers._request import CHAT as CHAT_API
from capstate.providers._request import RESPONSES as RESPONSES_API
from capstate.providers._request import judge, recognise, stray
from capstate.providers._shape import listing, mapping, name, natives, prose, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capstate.projection import OnWire

RESPONSES = frozenset({"openai-responses", "openai-codex-responses"})
CHAT = frozenset({"openai-completions"})

_ITEMS = frozenset(
    """message reasoning function_call function_call_output custom_tool_call custom_tool_call_output tool_search_call
    tool_search_output additional_tools compaction compaction_trigger configuration_update program program_output
    web_search_call file_search_call computer_call computer_call_output code_interpreter_call image_generation_call
    local_shell_call local_shell_call_output shell_call shell_call_output apply_patch_call apply_patch_call_output
    mcp_call mcp_list_tools mcp_approval_request mcp_approval_response""".split()  # noqa: SIM905 - words, not a wall of quotes
)
_HOSTED = frozenset(
    """web_search web_search_preview file_search code_interpreter computer computer_use_preview image_generation
    local_shell shell apply_patch tool_search programmatic_tool_calling""".split()  # noqa: SIM905 - words, not a wall of quotes
)
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})
_LISTS = frozenset({"tool_search_output", "additional_tools", "mcp_list_tools"})
_OUTER = frozenset({"type", "cache_control", "defer_loading"})
_NEUTRAL = _OUTER | frozenset({"name", "description", "parameters", "strict", "output_schema", "async"})


def responses(body: Mapping[str, Any]) -> OnWire:
    """Return what a Responses ``body`` makes callable. Raises MalformedError if it is none."""
    body = mapping(body, "body")
    seen = Replay()
    _offered(seen, body)
    judge(seen, body, RESPONSES_API)
    if not isinstance(body.get("instructions"), str | None):
        seen.unknown["instructions"] += 1
    if not isinstance(body.get("input"), str):
        _items(seen, body.get("input"))
    return seen.result()


def chat(body: Mapping[str, Any]) -> OnWire:
    """Return what a Chat Completions ``body`` makes callable. Raises MalformedError if it is none."""
    body = mapping(body, "body")
    seen = Replay()
    _offered(seen, body)
    for i, tool in enumerate(listing(body.get("functions"), "functions")):
        place = f"functions[{i}]"
        found = mapping(tool, place)
        seen.offer(name(found.get("name"), f"{place}.name"), _function(seen, found), deferred=False)
    if body.get("web_search_options") is not None:
        seen.offer("web_search", {"type": "web_search_options"}, deferred=False)
    judge(seen, body, CHAT_API)
    _messages(seen, body.get("messages"))
    return seen.result()


def responses_recognise(body: object) -> None:
    """Raise MalformedError if ``body`` is no Responses request."""
    recognise(body, RESPONSES_API)


def chat_recognise(body: object) -> None:
    """Raise MalformedError if ``body`` is no Chat request."""
    recognise(body, CHAT_API)


def responses_marks(history: object) -> tuple[LoadPoint, ...]:
    """Return the load points of Responses items. Raises MalformedError if they are none."""
    seen = Replay()
    _items(seen, history)
    return tuple(seen.points)


def chat_marks(history: object) -> tuple[LoadPoint, ...]:
    """Return the load points of Chat messages. Raises MalformedError if they are none."""
    seen = Replay()
    _messages(seen, history)
    return tuple(seen.points)


def tools_of(seen: Replay, tool: object, place: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Yield wire name, definition, and whether it is deferred, of all that one entry of ``tools`` makes callable."""
    tool = mapping(tool, place)
    form = text(tool.get("type"), f"{place}.type")
    if form == "namespace":
        space = name(tool.get("name"), f"{place}.name")
        for i, member in enumerate(listing(tool.get("tools"), f"{place}.tools")):
            for found, definition, deferred in _plain(seen, member, f"{place}.tools[{i}]"):
                yield f"{space}.{found}", definition, deferred
    else:
        yield from _plain(seen, tool, place)


def _plain(seen: Replay, tool: object, place: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    tool = mapping(tool, place)
    form = text(tool.get("type"), f"{place}.type")
    deferred = tool.get("defer_loading") is True
    inner = tool.get(form)
    if form in ("function", "custom") and isinstance(inner, Mapping):
        yield name(inner.get("name"), f"{place}.{form}.name"), _function(seen, inner, form), deferred
        rest = {key: value for key, value in tool.items() if key != form}
        if further(seen, rest, _OUTER) is not None:  # read by the other API's form as well
            own = tool.get("name", inner["name"])
            yield name(own, f"{place}.name"), _function(seen, tool, form), deferred
    elif form in ("function", "custom"):
        yield name(tool.get("name"), f"{place}.name"), _function(seen, tool, form), deferred
    elif form == "mcp":
        yield f"mcp:{name(tool.get('server_label'), f'{place}.server_label')}", {"type": form}, deferred
    else:
        if form not in _HOSTED:
            seen.unknown[form] += 1
        held = tool.get("function")
        own = tool.get("name") or (held.get("name") if isinstance(held, Mapping) else None)
        yield own if isinstance(own, str) and own else name(form, f"{place}.type"), {"type": form}, deferred


def _function(seen: Replay, tool: Mapping[str, Any], form: str = "function") -> dict[str, Any]:
    if form != "function":
        return described(tool.get("description"), tool.get("parameters", tool.get("format")), type=form)
    keys = further(seen, tool, _NEUTRAL)
    return described(tool.get("description"), tool.get("parameters"), keys=keys)


def _offered(seen: Replay, body: Mapping[str, Any]) -> None:
    for i, tool in enumerate(listing(body.get("tools"), "tools")):
        for found, definition, deferred in tools_of(seen, tool, f"tools[{i}]"):
            seen.offer(found, definition, deferred=deferred)


def _carried(seen: Replay, item: Mapping[str, Any], here: str, place: str) -> list[str]:
    names = []
    for n, tool in enumerate(listing(item.get("tools"), f"{here}.tools")):
        for found, definition, _ in tools_of(seen, tool, f"{here}.tools[{n}]"):
            seen.add(found, definition, place)
            names.append(found)
    return names


def _items(seen: Replay, items: object) -> None:
    answered: str | None = None  # the call whose result, or further load point, stands directly before
    for i, item in natives(items, RESPONSES, "input"):
        here = f"input[{i}]"
        form = item.get("type")
        if form is None:
            form = "message" if "role" in item or "id" not in item else "item_reference"
        if text(form, f"{here}.type") not in _ITEMS:
            seen.unknown[form] += 1
        stray(seen, item, form, *(("tools",) if form in _LISTS else ()))
        if form in _RESULTS:
            answered = text(item.get("call_id"), f"{here}.call_id")
        elif form in ("tool_search_output", "additional_tools"):
            own = item.get("call_id")
            place = text(own, f"{here}.call_id") if own is not None else f"index {i}"
            seen.point(i, form, _carried(seen, item, here, place), answered, place)
        elif form != "tool_search_call":
            answered = None
        if form == "message":
            role = text(item.get("role"), f"{here}.role")
            if role not in _ROLES:
                seen.unknown[f"role {role}"] += 1
            if role in ("system", "developer"):
                seen.hear(prose(item.get("content"), f"{here}.content"))


def _messages(seen: Replay, messages: object) -> None:
    answered: str | None = None
    for i, message in natives(messages, CHAT, "messages"):
        here = f"messages[{i}]"
        role = text(message.get("role"), f"{here}.role")
        if role not in _ROLES:
            seen.unknown[f"role {role}"] += 1
        stray(seen, message, "a message", "tools")
        if role == "tool":
            answered = text(message.get("tool_call_id"), f"{here}.tool_call_id")
        if message.get("tools") is not None:
            seen.point(i, "system_tools", _carried(seen, message, here, f"index {i}"), answered, f"index {i}")
        elif role != "tool":
            answered = None
        if role in ("system", "developer"):
            seen.hear(prose(message.get("content"), f"{here}.content"))
