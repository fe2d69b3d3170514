"""Anthropic Messages, read: tools, references, additions and removals on the wire.

Decided where the contract is silent, each time so that more counts as callable:

- what stands before a compaction still counts, though the provider ignores it; a removal there does not;
- a typed removal counts only in a message of the system, by the reference that fits, or in the ``tool_changes`` of a
  signed block that leads the request; everywhere else the provider ignores or refuses it. An addition always counts;
- an addition that is to be cleared at the next user message still counts after it; a removal then no longer does;
- the signed block of a compaction is replayed with its ``tool_changes``;
- ``thread``, ``container`` and whatever else the provider keeps is not in the body: it is counted as unknown.

A definition of type ``custom``, or of none, is a plain one. Any other keeps its type. Tools that the provider runs are
callable under their name (``web_search``), a toolset that has none under its type; of a connected server, which lists
its tools itself, the whole is callable as ``mcp:SERVER``, one tool of it as ``mcp:SERVER.TOOL``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from capstate.providers._replay import SERVERS, LoadPoint, Replay, described, further
from capstate.providers._request import ANTHROPIC, judge, stray
from capstate.providers._request import recognise as _recognise
from capstate.providers._shape import blocks, listing, mapping, name, natives, prose, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from capstate.projection import OnWire

APIS = frozenset({"anthropic-messages"})

_ROLES = frozenset({"user", "assistant", "system"})
_BLOCKS = frozenset(
    """text image document search_result thinking redacted_thinking tool_use tool_result server_tool_use
    tool_search_tool_result web_search_tool_result web_fetch_tool_result code_execution_tool_result
    bash_code_execution_tool_result text_editor_code_execution_tool_result mcp_tool_use mcp_tool_result
    mcp_tool_listing container_upload compaction tool_addition tool_removal tool_reference advisor_tool_result
    fallback""".split()  # noqa: SIM905 - words, not a wall of quotes
)
_HOSTED = (
    "bash_", "text_editor_", "computer_", "web_search_", "web_fetch_", "code_execution_", "memory_",
    "tool_search_tool_", "computer_toolset_", "browser_toolset_", "advisor_",
)  # fmt: skip
_RESULT_BLOCKS = frozenset({"text", "image", "document", "search_result", "tool_reference"})
_NEUTRAL = frozenset(
    """name type description input_schema cache_control defer_loading strict eager_input_streaming""".split()  # noqa: SIM905 - as above
)
_CHANGES = frozenset({"tool_addition", "tool_removal"})


def recognise(body: object) -> None:
    """Raise MalformedError if ``body`` is no Messages request."""
    _recognise(body, ANTHROPIC)


def on_wire(body: Mapping[str, Any]) -> OnWire:
    """Return what ``body`` makes callable.

    Raises:
        MalformedError: ``body`` is not a Messages request.
    """
    body = mapping(body, "body")
    seen = Replay()
    for i, tool in enumerate(listing(body.get("tools"), "tools")):
        found, definition, deferred = tool_of(seen, tool, f"tools[{i}]")
        seen.offer(found, definition, deferred=deferred)
    servers = {f"mcp:{server}" for server in _servers(body)}
    toolsets = {name for name, sent in seen.result().definitions.items() if sent.get("type") in SERVERS}
    for found in sorted(servers - toolsets):
        seen.offer(found, {"type": "mcp_server"}, deferred=False)  # the older form: a server without a toolset
    judge(seen, body, ANTHROPIC)
    _system(seen, body.get("system"))
    _walk(seen, body.get("messages"))
    return seen.result()


def marks(messages: object) -> tuple[LoadPoint, ...]:
    """Return the load points of ``messages``, in order.

    Raises:
        MalformedError: they are not Messages messages.
    """
    seen = Replay()
    _walk(seen, messages)
    return tuple(seen.points)


def tool_of(seen: Replay, tool: object, place: str) -> tuple[str, Mapping[str, Any], bool]:
    """Return wire name, definition, and whether it is deferred, of one entry of ``tools``."""
    tool = mapping(tool, place)
    form = tool.get("type")
    if form == "mcp_toolset":
        server = name(tool.get("mcp_server_name"), f"{place}.mcp_server_name")
        configured = mapping(tool.get("default_config") or {}, f"{place}.default_config")
        return f"mcp:{server}", {"type": form}, configured.get("defer_loading") is True
    deferred = tool.get("defer_loading") is True
    if form is None or form == "custom":
        keys = further(seen, tool, _NEUTRAL)
        found = name(tool.get("name"), f"{place}.name")
        return found, described(tool.get("description"), tool.get("input_schema"), keys=keys), deferred
    if not text(form, f"{place}.type").startswith(_HOSTED):
        seen.unknown[form] += 1
    found = name(form if tool.get("name") is None else tool["name"], f"{place}.name")
    return found, described(tool.get("description"), tool.get("input_schema"), type=form), deferred


def _servers(body: Mapping[str, Any]) -> list[str]:
    found = []
    for i, server in enumerate(listing(body.get("mcp_servers"), "mcp_servers")):
        place = f"mcp_servers[{i}]"
        found.append(name(mapping(server, place).get("name"), f"{place}.name"))
    return found


def _walk(seen: Replay, messages: object) -> None:
    entries = list(natives(messages, APIS, "messages"))
    users = [n for n, (_, m) in enumerate(entries) if m.get("role") == "user"]
    last_user = users[-1] if users else -1
    for n, (i, message) in enumerate(entries):
        place = f"messages[{i}]"
        role = text(message.get("role"), f"{place}.role")
        if role not in _ROLES:
            seen.unknown[f"role {role}"] += 1
        stray(seen, message, "a message")
        content = message.get("content")
        removes = role == "system" and (message.get("clear_at") is None or n >= last_user)
        added: list[str] = []
        for k, (here, block) in enumerate(blocks(content, f"{place}.content")):
            if block.get("type") == "compaction":
                seen.restore()
                signed = isinstance(block.get("signature"), str) and block["signature"] != ""
                _changes(seen, block, i, here, added, removes=signed and n == k == 0)
            _block(seen, block, i, here, added, removes=removes)
        seen.point(i, "tool_addition", added, None, f"index {i}")
        if role == "system":
            seen.hear(prose(content, f"{place}.content"))


def _system(seen: Replay, system: object) -> None:
    for here, block in blocks(system, "system"):
        if text(block.get("type"), f"{here}.type") in _CHANGES:
            _block(seen, block, 0, here, [], removes=False)
        elif block["type"] != "text":
            seen.unknown[f"{block['type']} in system"[:80]] += 1


def _changes(seen: Replay, block: Mapping[str, Any], i: int, here: str, added: list[str], *, removes: bool) -> None:
    for where, change in blocks(block.get("tool_changes"), f"{here}.tool_changes"):
        if text(change.get("type"), f"{where}.type") in _CHANGES:
            _block(seen, change, i, where, added, removes=removes)
        else:
            seen.unknown["another tool_change"] += 1


def _block(seen: Replay, block: Mapping[str, Any], i: int, here: str, added: list[str], *, removes: bool) -> None:
    form = text(block.get("type"), f"{here}.type")
    own = {"compaction": "tool_changes", "mcp_tool_listing": "tools"}.get(form, "")
    stray(seen, block, form, own)
    if form not in _BLOCKS:
        seen.unknown[form] += 1
    elif form == "tool_reference":
        _loaded(seen, [block], i, None, here)
    elif form == "tool_result":
        _result(seen, block, i, here, added)
    elif form == "tool_search_tool_result":
        call = text(block.get("tool_use_id"), f"{here}.tool_use_id")
        found = mapping(block.get("content"), f"{here}.content")
        where = f"{here}.content.tool_references"
        _loaded(seen, [b for _, b in blocks(found.get("tool_references"), where)], i, call, where)
    elif form == "tool_addition":
        added.append(_change(seen, block, i, here))
    elif form == "tool_removal":
        _removal(seen, mapping(block.get("tool"), f"{here}.tool"), f"{here}.tool", removes=removes)


def _result(seen: Replay, block: Mapping[str, Any], i: int, here: str, added: list[str]) -> None:
    call = text(block.get("tool_use_id"), f"{here}.tool_use_id")
    here += ".content"
    inner = list(blocks(block.get("content"), here))
    _loaded(seen, [b for _, b in inner if b.get("type") == "tool_reference"], i, call, here)
    for where, other in inner:
        form = text(other.get("type"), f"{where}.type")
        if form in _CHANGES:
            _block(seen, other, i, where, added, removes=False)
        elif form not in _RESULT_BLOCKS:
            seen.unknown[f"{form} in a tool_result"[:80]] += 1


def _removal(seen: Replay, tool: Mapping[str, Any], here: str, *, removes: bool) -> None:
    found, form = _target(tool, here), tool["type"]
    if removes and form == "tool_reference" and tool.get("name") is not None:
        seen.remove(found)
    elif removes and form == "mcp_toolset_reference":
        seen.remove(found, server=True)


def _loaded(seen: Replay, references: list[Mapping[str, Any]], i: int, call: str | None, here: str) -> None:
    place = f"index {i}" if call is None else call
    names = [
        name(r.get("tool_name", r.get("name")), f"{here}: tool_name of reference {n}") for n, r in enumerate(references)
    ]
    for found in names:
        seen.load(found, place)
    seen.point(i, "tool_reference", names, call, place)


def _change(seen: Replay, block: Mapping[str, Any], i: int, here: str) -> str:
    tool = mapping(block.get("tool"), f"{here}.tool")
    if tool.get("type") == "tool_definition":
        found, definition, _ = tool_of(seen, tool.get("definition"), f"{here}.tool.definition")
        seen.add(found, definition, f"index {i}")
    else:
        found = _target(tool, f"{here}.tool")
        seen.load(found, f"index {i}")
    return found


def _target(tool: Mapping[str, Any], here: str) -> str:
    """Return the wire name that a reference in an addition or removal means."""
    form = text(tool.get("type"), f"{here}.type")
    if form in ("mcp_tool_reference", "mcp_toolset_reference"):
        server = name(tool.get("server_name"), f"{here}.server_name")
        return f"mcp:{server}" + (f".{name(tool.get('name'), f'{here}.name')}" if form == "mcp_tool_reference" else "")
    return name(tool.get("name", tool.get("tool_name")), f"{here}.name")
