"""OpenAI Responses: requests rendered, histories and usage read.

Rules:

- deferral is ``tool_search`` (behind the result at the mark, a search as the client would have answered it, with the
  definitions) or ``additional_tools`` (a developer item there, with the definitions). ``tools`` holds the immediate
  ones alone, so it never changes when a group is loaded later;
- system text is a developer message, a summary is a user message;
- neighbouring items of one answer (reasoning, text, calls) are one neutral message. Item ids are the provider's own:
  they are kept in native items and never made;
- a client's search, and other items that only provide tools, have no neutral text: elsewhere they are left out, and
  the projection provides the tools;
- this API has no flag for a failed call: all but ok is said in the output.

Not here: ``store``, reasoning, caching and everything else of the request.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from capstate.capabilities import NameRule
from capstate.digest import Domain, fingerprint
from capstate.errors import InvalidInputError, MalformedError
from capstate.projection import Issuer, Profile
from capstate.providers import _outgoing as out
from capstate.providers._calls import parsed, written
from capstate.providers._openai_wire import RESPONSES, tools_of
from capstate.providers._openai_wire import responses as on_wire
from capstate.providers._openai_wire import responses_marks as marks
from capstate.providers._openai_wire import responses_recognise as recognise
from capstate.providers._replay import Replay
from capstate.providers._shape import listing, mapping, prose, strange, text
from capstate.providers._usage import of_total
from capstate.trace import Call, Message, Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from capstate.projection import Placed, Projection
    from capstate.usage import Usage

__all__ = ["marks", "on_wire", "profile", "read", "recognise", "render", "usage"]

API = "openai-responses"
_FORMS = ("", "tool_search", "additional_tools")
_LOADS = ("tool_search_output", "additional_tools")
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
_ANSWER = frozenset(
    """reasoning web_search_call file_search_call code_interpreter_call image_generation_call mcp_call mcp_list_tools
    local_shell_call shell_call apply_patch_call computer_call""".split()  # noqa: SIM905 - words, not a wall of quotes
)


def profile(
    model: str, *, account: str = "", provider: str = "openai", defers: str = "additional_tools", api: str = API
) -> Profile:
    """Return what ``model`` can do with tools.

    Args:
        model: its name; only part of who issued an opaque item.
        account: the organisation; encrypted items are bound to it.
        provider: who answers, if it is a compatible host.
        defers: ``additional_tools``, ``tool_search`` (gpt-5.4 and later), or ``""`` for neither.
        api: the name of the API, also of its variants.

    Raises:
        InvalidInputError: ``defers`` or ``api`` is another word.
    """
    if defers not in _FORMS:
        raise InvalidInputError("defers", "one of '', tool_search, additional_tools", defers)
    if api not in RESPONSES:
        raise InvalidInputError("api", "one of " + ", ".join(sorted(RESPONSES)), api)
    return Profile(
        issuer=Issuer(provider, api, model, account),
        adapter=sys.modules[__name__],
        defers=defers,
        names=NameRule(limit=64),
        call_id_limit=64,
        compacts=True,
        reports=frozenset({"read", "write", "uncached", "output"}),
    )


def usage(response: Mapping[str, Any]) -> Usage:
    """Return the tokens that ``response`` reports; ``input_tokens`` is here the total.

    Raises:
        MalformedError: ``response`` is not an object, or a count is not one.
    """
    return of_total(response, "input_tokens", "output_tokens")


# --- reading


def read(history: Sequence[Any]) -> list[Message]:
    """Return ``history`` (items of this API, neutral messages, also mixed) in neutral form.

    Raises:
        MalformedError: an entry is neither.
    """
    made: list[Message] = []
    answer: list[tuple[str, Mapping[str, Any]]] = []
    times: dict[str, int] = {}
    named: dict[str, str] = {}

    def close() -> None:
        if answer:
            made.append(_answer(answer, times))
            named.update((c.id, c.tool) for c in made[-1].calls)
            answer.clear()

    for i, item in enumerate(listing(history, "input")):
        here = f"input[{i}]"
        if isinstance(item, Message):
            close()
            made.append(item)
            named.update((c.id, c.tool) for c in item.calls)
            continue
        native = mapping(item, here)
        form = _form(native, here)
        if form in _ANSWER or form in _CALLS or (form == "message" and native.get("role") == "assistant"):
            answer.append((here, native))
        else:
            close()
            made.append(_other(form, native, here, named))
    close()
    return made


def _form(item: Mapping[str, Any], here: str) -> str:
    form = item.get("type")
    return "message" if form is None else text(form, f"{here}.type")


def _answer(items: list[tuple[str, Mapping[str, Any]]], times: dict[str, int]) -> Message:
    said: list[str] = []
    calls: list[Call] = []
    for here, item in items:
        form = _form(item, here)
        if form == "message":
            said.append(prose(item.get("content"), f"{here}.content"))
        elif form in _CALLS:
            call = text(item.get("call_id"), f"{here}.call_id")
            own = text(item.get("name"), f"{here}.name")
            space = item.get("namespace")
            tool = own if space is None else f"{text(space, f'{here}.namespace')}.{own}"
            arguments = parsed(item.get("arguments")) if form == "function_call" else {"input": item.get("input")}
            calls.append(Call(call, tool, arguments, times.get(call, 0)))
            times[call] = times.get(call, 0) + 1
    native = [item for _, item in items]
    return Message("", Role.ASSISTANT, "\n".join(s for s in said if s), tuple(calls), native=native, api=API)


def _other(form: str, item: Mapping[str, Any], here: str, named: Mapping[str, str]) -> Message:
    if form == "message":
        roles = {"user": Role.USER, "system": Role.SYSTEM, "developer": Role.SYSTEM}
        role = roles.get(text(item.get("role"), f"{here}.role"))
        if role is None:
            raise MalformedError(f"{here}.role", "user, assistant, system or developer", strange(item["role"]))
        return Message("", role, prose(item.get("content"), f"{here}.content"), native=item, api=API)
    if form in _RESULTS:
        call = text(item.get("call_id"), f"{here}.call_id")
        said = prose(item.get("output"), f"{here}.output")
        return Message("", Role.TOOL, said, result_for=call, tool=named.get(call), native=item, api=API)
    if form == "compaction":
        return Message("", Role.OPAQUE, native=item, api=API)
    names = tuple(wire for wire, _ in _loads(item) or ())
    return Message("", Role.SYSTEM, refers=names, native=item, api=API)


# --- rendering


def render(profile: Profile, projection: Projection, history: Sequence[Any]) -> dict[str, Any]:
    """Return ``tools`` and ``input`` of one request.

    Raises:
        MalformedError: a native item is not one of this API.
        InvalidInputError: the profile's name or call-id rule leaves no legal name, or arguments are not JSON.
    """
    found = out.entries(history, apis=RESPONSES, issuer=profile.issuer.id, read=read, passes=lambda _: True)
    points = out.native_points(found, _loads, _is_result)
    end = out.after_round(found)
    steps = list(out.walked(found, _loads, _is_result))
    last = out.last_steps(steps, _loads)
    plan = out.plan(
        profile, projection, found, points=points, place=lambda s: end(s) if s[1] == out.END else s, spots=last
    )
    made: list[Mapping[str, Any]] = []
    for n, (i, item, spot) in enumerate(steps):
        if item is None:
            made += _neutral(plan, i, found[i].read[0]) if found[i].read else []
        else:
            _native(plan, made, item, spot)
        if last.get(spot) == n:
            made += _load(plan, plan.inserts.get(spot, []))
    tools = [_tool(p) for p in plan.immediate]
    return ({"tools": tools} if tools else {}) | {"input": made}


def _tool(p: Placed) -> dict[str, Any]:
    tool = p.definition.tool
    described = {"description": tool.description} if tool.description else {}
    # Said, because this API takes an absent ``strict`` for true and would refuse most schemas.
    return {"type": "function", "name": p.wire, **described, "parameters": tool.schema, "strict": False}


def _load(plan: out.Plan, loaded: list[Placed]) -> list[dict[str, Any]]:
    if not loaded:
        return []
    if plan.profile.defers == "additional_tools":
        return [{"type": "additional_tools", "role": "developer", "tools": [_tool(p) for p in loaded]}]
    mark = loaded[0].mark
    parts = [] if mark is None else [mark.call or "", mark.at or ""]
    parts += [f"{p.wire} {p.definition.fingerprint}" for p in loaded]
    made = fingerprint(Domain.NAME, b"load point", *(p.encode("utf-8", "surrogatepass") for p in parts))
    shared = {"call_id": f"capstate_load_{made[3:35]}", "execution": "client", "status": "completed"}
    query = {"query": " ".join(p.wire for p in loaded), "limit": len(loaded)}
    return [
        {"type": "tool_search_call", **shared, "arguments": query},
        {"type": "tool_search_output", **shared, "tools": [{**_tool(p), "defer_loading": True} for p in loaded]},
    ]


def _loads(item: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]] | None:
    if item.get("type") == "tool_search_call":
        return []
    if item.get("type") not in _LOADS:
        return None
    tools = listing(item.get("tools"), "tools")
    return [
        (wire, definition) for n, t in enumerate(tools) for wire, definition, _ in tools_of(Replay(), t, f"tools[{n}]")
    ]


def _is_result(item: Mapping[str, Any]) -> bool:
    return item.get("type") in _RESULTS


def _native(plan: out.Plan, made: list[Mapping[str, Any]], item: Mapping[str, Any], spot: out.Spot) -> None:
    if item.get("type") not in _LOADS:
        made.append(item)
        return
    tools = listing(item.get("tools"), "tools")
    stays = [t for t in tools if all(plan.keeps(w, spot, d) for w, d, _ in tools_of(Replay(), t, "tools"))]
    if len(stays) == len(tools):
        made.append(item)
    elif stays:
        made.append({**item, "tools": stays})
    elif item.get("type") == "tool_search_output":
        asked = [
            n
            for n, m in enumerate(made)
            if m.get("type") == "tool_search_call" and m.get("call_id") == item.get("call_id")
        ]
        if asked:
            del made[asked[-1]]
    # An emptied item is left out, and so is the search that it answers: neither says anything any more.


def _neutral(plan: out.Plan, i: int, message: Message) -> list[dict[str, Any]]:
    role = {Role.ASSISTANT: "assistant", Role.SYSTEM: "developer"}.get(message.role, "user")
    said = message.text
    if message.role is Role.TOOL:
        if (i, 0) in plan.answers:
            return [{"type": "function_call_output", "call_id": plan.answers[i, 0], "output": out.said(message)}]
        said = out.orphan(message)
    made: list[dict[str, Any]] = [{"role": role, "content": said}] if said else []
    for call, call_id in zip(message.calls, plan.calls.get(i, ()), strict=True):
        call_item = {"type": "function_call", "call_id": call_id, "name": plan.wire(call.tool)}
        made.append({**call_item, "arguments": written(call.arguments)})
    return made
