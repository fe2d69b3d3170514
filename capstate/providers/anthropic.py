"""Anthropic Messages: requests rendered, histories and usage read.

Rules:

- deferral is ``tool_reference``: the definition stands in ``tools`` behind the immediate ones, with
  ``defer_loading``; the result at the mark holds the references, and what it said follows as text behind all results
  of its message, which is where this API wants text;
- system messages that lead the history become ``system``; later ones, and summaries, are user text, because not every
  model takes the role ``system`` in the list;
- typed removals in native messages are taken out: what is not callable has no definition in ``tools``, and the
  provider refuses a reference to nothing;
- a signed compaction block cannot be changed. If its ``tool_changes`` disagree with the projection, what it
  covers, or its own text, is sent instead;
- ``is_error`` is too coarse for how a call ended: all but ok and error say it in words too.

Not here: beta headers, ``cache_control``, and everything else of the request.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from capstate.capabilities import NameRule
from capstate.errors import MalformedError
from capstate.projection import Issuer, Profile
from capstate.providers import _outgoing as out
from capstate.providers._anthropic_wire import APIS, marks, on_wire, recognise
from capstate.providers._anthropic_write import Signed, Writer, points
from capstate.providers._shape import blocks, listing, mapping, prose, strange, text, yes_or_no
from capstate.providers._usage import counted
from capstate.trace import Call, Message, Outcome, Role
from capstate.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from capstate.projection import Placed, Projection

__all__ = ["marks", "on_wire", "profile", "read", "recognise", "render", "usage"]

API = "anthropic-messages"


def profile(model: str, *, account: str = "", provider: str = "anthropic", defers: bool = True) -> Profile:
    """Return what ``model`` can do with tools.

    Args:
        model: its name; only part of who issued an opaque item.
        account: tells accounts apart where opaque items are bound to one.
        provider: who answers, if it is a compatible host.
        defers: the model takes ``defer_loading`` and ``tool_reference`` (Sonnet, Opus and Haiku from 4.5 on, and later
            families).

    Raises:
        InvalidInputError: ``defers`` is neither True nor False.
    """
    yes_or_no(defers, "defers")
    return Profile(
        issuer=Issuer(provider, API, model, account),
        adapter=sys.modules[__name__],
        defers="tool_reference" if defers else "",
        needs_immediate=True,
        names=NameRule(limit=64),
        call_id_limit=64,
        call_id_chars="A-Za-z0-9_-",
        compacts=True,
        reports=frozenset({"read", "write", "uncached", "output"}),
    )


def usage(response: Mapping[str, Any]) -> Usage:
    """Return the tokens that ``response`` reports; ``input_tokens`` is here only what was neither read nor written.

    With compaction on demand the figures at the top are zero and the cost is in ``iterations``: those are added up.

    Raises:
        MalformedError: ``response`` is not an object, or a count is not one.
    """
    reported = mapping(mapping(response, "response").get("usage") or {}, "usage")
    rounds = [
        mapping(r, f"usage.iterations[{i}]")
        for i, r in enumerate(listing(reported.get("iterations"), "usage.iterations"))
    ]
    keys = ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens", "output_tokens")
    top = [counted(reported.get(key), f"usage.{key}") for key in keys]
    if rounds and not any(top):
        top = []
        for key in keys:
            values = [counted(r.get(key), f"usage.iterations[{i}].{key}") for i, r in enumerate(rounds)]
            known = [v for v in values if v is not None]
            top.append(sum(known) if len(known) == len(values) else None)
    return Usage(*top)


# --- reading


def read(history: Sequence[Any]) -> list[Message]:
    """Return ``history`` (messages of this API, neutral ones, also mixed) in neutral form.

    A user message with tool results is one neutral message for each result and one for what follows them.

    Raises:
        MalformedError: an entry is neither.
    """
    made: list[Message] = []
    times: dict[str, int] = {}
    named: dict[str, str] = {}
    for i, item in enumerate(listing(history, "messages")):
        if isinstance(item, Message):
            found = [item]
        else:
            found = list(_read(mapping(item, f"messages[{i}]"), f"messages[{i}]", times, named))
        for message in found:
            named.update((c.id, c.tool) for c in message.calls)
        made.extend(found)
    return made


def _read(native: Mapping[str, Any], place: str, times: dict[str, int], named: dict[str, str]) -> Iterator[Message]:
    role = text(native.get("role"), f"{place}.role")
    content = native.get("content")
    parts = list(blocks(content, f"{place}.content"))
    for here, block in parts:
        text(block.get("type"), f"{here}.type")
    if role == "assistant":
        yield from _assistant(native, parts, place, times)
    elif role == "system":
        names = [n for p in marks([native]) for n in p.names]
        yield Message("", Role.SYSTEM, prose(content, f"{place}.content"), refers=tuple(names), native=native, api=API)
    elif role == "user":
        results = [(here, b) for here, b in parts if b["type"] == "tool_result"]
        rest = [b for _, b in parts if b["type"] != "tool_result"]
        for here, block in results:
            call = text(block.get("tool_use_id"), f"{here}.tool_use_id")
            names = [n for p in marks([{"role": "user", "content": [block]}]) for n in p.names]
            yield Message(
                "",
                Role.TOOL,
                prose(block.get("content"), f"{here}.content"),
                result_for=call,
                tool=named.get(call),
                outcome=Outcome.ERROR if block.get("is_error") is True else Outcome.OK,
                refers=tuple(names),
                native={"role": "user", "content": [block]},
                api=API,
            )
        if rest or not results:
            kept = native if not results else {"role": "user", "content": rest}
            yield Message("", Role.USER, prose(kept.get("content"), f"{place}.content"), native=kept, api=API)
    else:
        raise MalformedError(f"{place}.role", "user, assistant or system", strange(role))


def _assistant(
    native: Mapping[str, Any], parts: list[tuple[str, Mapping[str, Any]]], place: str, times: dict[str, int]
) -> Iterator[Message]:
    compacted = [(here, b) for here, b in parts if b["type"] == "compaction"]
    rest = [(here, b) for here, b in parts if b["type"] != "compaction"]
    for here, block in compacted:
        summary = text(block.get("content") or "", f"{here}.content")
        yield Message(
            "",
            Role.OPAQUE,
            covered=(Message("", Role.SUMMARY, summary),) if summary else (),
            native={"role": "assistant", "content": [block]},
            api=API,
        )
    calls = []
    for here, block in rest:
        if block["type"] == "tool_use":
            call = text(block.get("id"), f"{here}.id")
            arguments = mapping(block.get("input") or {}, f"{here}.input")
            calls.append(Call(call, text(block.get("name"), f"{here}.name"), arguments, times.get(call, 0)))
            times[call] = times.get(call, 0) + 1
    if rest or not compacted:
        kept = native if not compacted else {"role": "assistant", "content": [b for _, b in rest]}
        said = prose(kept.get("content"), f"{place}.content")
        yield Message("", Role.ASSISTANT, said, tuple(calls), native=kept, api=API)


# --- rendering


def render(profile: Profile, projection: Projection, history: Sequence[Any]) -> dict[str, Any]:
    """Return ``tools`` and ``messages`` (and ``system``, if the history leads with it) of one request.

    Raises:
        MalformedError: a native message is not one of this API.
        InvalidInputError: the profile's name or call-id rule leaves no legal name.
    """
    opaque = Signed(projection, profile)
    found = out.entries(history, apis=APIS, issuer=profile.issuer.id, read=read, passes=opaque.agrees)
    plan = out.plan(profile, projection, found, points=points(found), place=lambda s: None if s[1] == out.END else s)
    writer = Writer(plan, opaque)
    for i, entry in enumerate(found):
        writer.entry(i, entry)
    writer.close()
    tools = [_tool(p) for p in plan.immediate] + [{**_tool(p), "defer_loading": True} for p in plan.deferred]
    parts: dict[str, Any] = {"tools": tools} if tools else {}
    if writer.system:
        parts["system"] = [{"type": "text", "text": said} for said in writer.system]
    return {**parts, "messages": writer.messages}


def _tool(p: Placed) -> dict[str, Any]:
    tool = p.definition.tool
    described = {"description": tool.description} if tool.description else {}
    return {"name": p.wire, **described, "input_schema": tool.schema}
