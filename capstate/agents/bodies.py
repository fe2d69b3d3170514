"""What the history inside a request body says of tools: calls, results, load points and removals, in order.

It is read for bodies that no session stands behind, and as the path of a session would be (:func:`path`), so that
one reader of events does for both. Rules:

- what stands directly behind a result, or in it, is what that call loaded;
- an API without a flag for failed calls does not tell a failed loader from a good one;
- history that the provider keeps, or that is opaque, is *hidden*: what it loaded nobody knows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from capstate.agents.lines import UNDECODED, decode, words
from capstate.agents.pi.entries import CallSeen, Entry, Said
from capstate.errors import MalformedError
from capstate.providers import for_api

if TYPE_CHECKING:
    from capstate.providers import LoadPoint

_ELSEWHERE = ("previous_response_id", "conversation", "prompt", "thread")
_UNANSWERED = "No result provided"
"""What Pi sends for a call that has no result; only some APIs could say that it is no good one."""


class Step(NamedTuple):
    """One thing in a body's history.

    Attributes:
        role: ``call``, ``result``, ``point`` (what a result loaded), ``system``, ``user`` or ``hidden``.
        at: the place, as in :attr:`capstate.projection.OnWire.deferred`.
        names: of a call its words, of a point or a system message the tools that it adds.
    """

    role: str
    at: str = ""
    call: str = ""
    tool: str = ""
    names: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    failed: bool = False


_USER = Step("user")
_HIDDEN = Step("hidden")


def steps(api: str, body: Mapping[str, Any]) -> tuple[Step, ...]:
    """Return the history of a body that its API accepts. Raises nothing: what has a wrong type is left out."""
    history = body.get("input" if "input" in body else "messages")
    items = history if isinstance(history, list) else []
    points: dict[int, list[LoadPoint]] = defaultdict(list)
    try:
        for point in cast("Any", for_api(api)).marks(items):
            points[point.index].append(point)
    except MalformedError:
        return ()
    found = [_HIDDEN] if any(body.get(key) is not None for key in _ELSEWHERE) else []
    tools: dict[str, str] = {}
    for i, item in enumerate(items):
        if isinstance(item, dict):
            for step in _steps(item, i, points.get(i, []), tools):
                if step.role == "call":
                    tools[step.call] = step.tool
                found.append(step)
    return tuple(found)


def path(history: Sequence[Step]) -> tuple[Entry, ...]:
    """Return the history as a path of entries; ids are the places, made unique."""
    found: list[Entry] = []
    marks = {step.at for step in history if step.role in ("point", "system")}
    used = {""}
    for n, step in enumerate(history):
        if step.role == "hidden":
            continue
        taken = step.at in used or (step.role == "result" and step.at in marks)
        at = f"step {n}" if taken else step.at
        used.add(at)
        found.append(Entry(at, found[-1].id if found else None, "message", said=_said(step)))
    return tuple(found)


def _said(step: Step) -> Said:
    if step.role == "call":
        return Said("assistant", calls=(CallSeen(step.call, step.tool, step.names),))
    if step.role == "result":
        return Said("toolResult", call=step.call, tool=step.tool, is_error=step.failed)
    if step.role == "point":
        # Without its tool: the result itself has said what a loader's arguments name.
        return Said("toolResult", call=step.call, is_error=True, added=step.names)
    return Said(step.role, added=step.names, removed=step.removed)


def _steps(item: dict[str, Any], i: int, points: list[LoadPoint], tools: Mapping[str, str]) -> Iterator[Step]:
    form, role = item.get("type"), item.get("role")
    blocks = [b for b in item.get("content") or () if isinstance(b, dict)] if _is_list(item.get("content")) else []
    covers = form == "compaction" or any(b.get("type") == "compaction" for b in blocks)
    if covers:
        yield _HIDDEN
    called = list(_calls(item, form, blocks))
    yield from called
    answers = list(_results(item, form, role, blocks, tools))
    yield from answers
    for point in points:
        if point.call is not None or covers:
            yield Step("point", point.place, point.call or "", names=point.names)
    added = tuple(n for p in points if p.call is None and not covers for n in p.names)
    removed = tuple(_removed(blocks)) if role == "system" else ()
    if added or removed:
        yield Step("system", f"index {i}", names=added, removed=removed)
    elif role in ("user", "assistant") and not called and not answers:
        yield _USER


def _calls(item: dict[str, Any], form: object, blocks: list[dict[str, Any]]) -> Iterator[Step]:
    for block in blocks:
        if block.get("type") == "tool_use":
            yield _call(block.get("id"), block.get("name"), block.get("input"))
    if form in ("function_call", "custom_tool_call"):
        yield _call(item.get("call_id"), item.get("name"), item.get("arguments", item.get("input")))
    for call in item.get("tool_calls") or () if _is_list(item.get("tool_calls")) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield _call(call.get("id"), function.get("name"), function.get("arguments"))


def _call(call: object, tool: object, arguments: object) -> Step:
    if isinstance(arguments, str) and arguments.lstrip().startswith(("{", "[")):
        decoded = decode(arguments.encode("utf-8", "replace"))
        arguments = arguments if decoded is UNDECODED else decoded
    return Step("call", "", _text(call), _text(tool), words(arguments))


def _results(
    item: dict[str, Any], form: object, role: object, blocks: list[dict[str, Any]], tools: Mapping[str, str]
) -> Iterator[Step]:
    for block in blocks:
        if block.get("type") == "tool_result":
            yield _result(block.get("tool_use_id"), block.get("content"), tools, failed=block.get("is_error") is True)
    if form in ("function_call_output", "custom_tool_call_output"):
        yield _result(item.get("call_id"), item.get("output"), tools)
    elif role == "tool":
        yield _result(item.get("tool_call_id"), item.get("content"), tools)


def _result(call: object, content: object, tools: Mapping[str, str], *, failed: bool = False) -> Step:
    called = _text(call)
    return Step("result", called, called, tools.get(called, ""), failed=failed or content == _UNANSWERED)


def _removed(blocks: list[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        tool = block.get("tool") if block.get("type") == "tool_removal" else None
        if isinstance(tool, dict):
            yield from filter(None, (_text(tool.get("name", tool.get("tool_name"))),))


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
