"""OpenAI Chat Completions, and what compatible hosts add: requests rendered, histories and usage read.

Rules:

- deferral is ``system_tools``, which only some hosts have (Kimi's): a system message that holds ``tools`` and no
  content, behind all results of the round in which the mark stands. ``tools`` holds the immediate ones alone;
- a summary is a user message;
- this API has no flag for a failed call: all but ok is said in the content.

Not here: everything else of the request.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from capstate.capabilities import NameRule
from capstate.errors import MalformedError
from capstate.projection import Issuer, Profile
from capstate.providers import _outgoing as out
from capstate.providers._calls import parsed, written
from capstate.providers._openai_wire import CHAT, tools_of
from capstate.providers._openai_wire import chat as on_wire
from capstate.providers._openai_wire import chat_marks as marks
from capstate.providers._openai_wire import chat_recognise as recognise
from capstate.providers._replay import Replay
from capstate.providers._shape import listing, mapping, prose, strange, text, yes_or_no
from capstate.providers._usage import of_total
from capstate.trace import Call, Message, Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from capstate.projection import Placed, Projection
    from capstate.usage import Usage

__all__ = ["marks", "on_wire", "profile", "read", "recognise", "render", "usage"]

API = "openai-completions"
_ROLES = {
    "assistant": Role.ASSISTANT, "developer": Role.SYSTEM, "function": Role.USER, "system": Role.SYSTEM,
    "tool": Role.TOOL, "user": Role.USER,
}  # fmt: skip


def profile(model: str, *, account: str = "", provider: str = "openai", defers: bool = False) -> Profile:
    """Return what ``model`` can do with tools.

    Args:
        model: its name; only part of who issued an opaque item.
        account: tells accounts apart where opaque items are bound to one.
        provider: who answers, if it is a compatible host.
        defers: the host takes system messages with ``tools``. OpenAI does not.

    Raises:
        InvalidInputError: ``defers`` is neither True nor False.
    """
    yes_or_no(defers, "defers")
    return Profile(
        issuer=Issuer(provider, API, model, account),
        adapter=sys.modules[__name__],
        defers="system_tools" if defers else "",
        names=NameRule(limit=64),
        call_id_limit=64,
        reports=frozenset({"read", "write", "uncached", "output"}),
    )


def usage(response: Mapping[str, Any]) -> Usage:
    """Return the tokens that ``response`` reports; ``prompt_tokens`` is the total.

    Raises:
        MalformedError: ``response`` is not an object, or a count is not one.
    """
    return of_total(response, "prompt_tokens", "completion_tokens")


# --- reading


def read(history: Sequence[Any]) -> list[Message]:
    """Return ``history`` (messages of this API, neutral ones, also mixed) in neutral form.

    Raises:
        MalformedError: an entry is neither.
    """
    made: list[Message] = []
    times: dict[str, int] = {}
    named: dict[str, str] = {}
    for i, item in enumerate(listing(history, "messages")):
        made.append(
            item
            if isinstance(item, Message)
            else _read(mapping(item, f"messages[{i}]"), f"messages[{i}]", times, named)
        )
        named.update((c.id, c.tool) for c in made[-1].calls)
    return made


def _read(native: Mapping[str, Any], here: str, times: dict[str, int], named: Mapping[str, str]) -> Message:
    role = _ROLES.get(text(native.get("role"), f"{here}.role"))
    if role is None:
        raise MalformedError(f"{here}.role", "a role of this API", strange(text(native.get("role"), f"{here}.role")))
    said = prose(native.get("content"), f"{here}.content")
    if role is Role.TOOL:
        call = text(native.get("tool_call_id"), f"{here}.tool_call_id")
        return Message("", role, said, result_for=call, tool=named.get(call), native=native, api=API)
    calls = []
    for n, made in enumerate(listing(native.get("tool_calls"), f"{here}.tool_calls")):
        calls.append(_call(made, f"{here}.tool_calls[{n}]", times))
    refers = tuple(wire for wire, _ in _loads(native) or ())
    return Message("", role, said, tuple(calls), refers=refers, native=native, api=API)


def _call(made: object, here: str, times: dict[str, int]) -> Call:
    made = mapping(made, here)
    call = text(made.get("id"), f"{here}.id")
    form = "custom" if made.get("type") == "custom" else "function"
    inner = mapping(made.get(form), f"{here}.{form}")
    arguments = parsed(inner.get("arguments")) if form == "function" else {"input": inner.get("input")}
    times[call] = times.get(call, -1) + 1
    return Call(call, text(inner.get("name"), f"{here}.{form}.name"), arguments, times[call])


# --- rendering


def render(profile: Profile, projection: Projection, history: Sequence[Any]) -> dict[str, Any]:
    """Return ``tools`` and ``messages`` of one request.

    Raises:
        MalformedError: a native message is not one of this API.
        InvalidInputError: the profile's name or call-id rule leaves no legal name, or arguments are not JSON.
    """
    found = out.entries(history, apis=CHAT, issuer=profile.issuer.id, read=read, passes=lambda _: True)
    points = out.native_points(found, _loads, _is_result)
    steps = list(out.walked(found, _loads, _is_result))
    last = out.last_steps(steps, _loads)
    plan = out.plan(profile, projection, found, points=points, place=out.after_round(found), spots=last)
    made: list[Mapping[str, Any]] = []
    for n, (i, item, spot) in enumerate(steps):
        if item is None:
            made += _neutral(plan, i, found[i].read[0]) if found[i].read else []
        elif (loads := _loads(item)) is None:
            made.append({k: v for k, v in item.items() if k != "tools"} if "tools" in item else item)
        else:
            made += _native(plan, item, spot, loads)
            continue
        if last.get(spot) == n and (inserted := plan.inserts.get(spot)):
            made.append({"role": "system", "tools": [_tool(p) for p in inserted]})
    tools = [_tool(p) for p in plan.immediate]
    return ({"tools": tools} if tools else {}) | {"messages": made}


def _tool(p: Placed) -> dict[str, Any]:
    tool = p.definition.tool
    described = {"description": tool.description} if tool.description else {}
    return {"type": "function", "function": {"name": p.wire, **described, "parameters": tool.schema}}


def _loads(message: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]] | None:
    if message.get("role") == "tool" or message.get("tools") is None:
        return None
    tools = listing(message.get("tools"), "tools")
    return [
        (wire, definition) for n, t in enumerate(tools) for wire, definition, _ in tools_of(Replay(), t, f"tools[{n}]")
    ]


def _is_result(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "tool"


def _native(
    plan: out.Plan, message: Mapping[str, Any], spot: out.Spot, loads: list[tuple[str, Mapping[str, Any]]]
) -> list[Mapping[str, Any]]:
    if all(plan.keeps(wire, spot, definition) for wire, definition in loads):
        return [message]
    stays = [
        t for t in message["tools"] if all(plan.keeps(wire, spot, d) for wire, d, _ in tools_of(Replay(), t, "tools"))
    ]
    if stays:
        return [{**message, "tools": stays}]
    rest = {key: value for key, value in message.items() if key != "tools"}
    return [rest] if rest.get("content") or rest.get("tool_calls") else []


def _neutral(plan: out.Plan, i: int, message: Message) -> list[dict[str, Any]]:
    said = message.text
    if message.role is Role.TOOL:
        if (i, 0) in plan.answers:
            return [{"role": "tool", "tool_call_id": plan.answers[i, 0], "content": out.said(message)}]
        said = out.orphan(message)
    if message.calls:
        calls = [
            {
                "id": made,
                "type": "function",
                "function": {"name": plan.wire(c.tool), "arguments": written(c.arguments)},
            }
            for c, made in zip(message.calls, plan.calls.get(i, ()), strict=True)
        ]
        return [{"role": "assistant", "content": said or None, "tool_calls": calls}]
    role = {Role.ASSISTANT: "assistant", Role.SYSTEM: "system"}.get(message.role, "user")
    return [{"role": role, "content": said}] if said else []
