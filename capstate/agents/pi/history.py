"""The messages of a Pi session as the model of a leaf is sent them, in neutral form, with their texts.

Everywhere else here texts are not kept; this is for the owner of a session who wants its trace. Rules:

- where the path was compacted, the summary comes first, then what was retained, then what came since;
- a failed or aborted answer is not sent again, so its calls are left out;
- what a person ran (``bashExecution``) and what an extension said are user messages, as Pi sends them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from capstate.agents.lines import records
from capstate.agents.pi.session import boundary
from capstate.errors import InvalidInputError, MalformedError
from capstate.trace import Call, Message, Outcome, Role

if TYPE_CHECKING:
    from capstate.agents.pi.entries import Entry
    from capstate.agents.pi.session import Session

_ROLES = {
    "user": Role.USER,
    "bashExecution": Role.USER,
    "custom": Role.USER,
    "assistant": Role.ASSISTANT,
    "toolResult": Role.TOOL,
    "system": Role.SYSTEM,
    "branchSummary": Role.SUMMARY,
    "compactionSummary": Role.SUMMARY,
}
_FAILED = ("error", "aborted")
_SAYS = ("message", "custom_message", "branch_summary")


def history(session: Session, leaf: str | None = None) -> list[tuple[str, Message]]:
    """Return the messages of a leaf (by default where Pi would go on), each with its place in the file.

    Raises:
        InvalidInputError: no entry has that id, or the file is not there any more.
        MalformedError: the file changed while it was read, or a message has a field of a wrong type.
    """
    path = session.walk(leaf)
    raw = _raw(session, {e.id for e in path})
    left = boundary(path)
    times: dict[str, int] = {}
    if left.compaction is None:
        return [_message(e, raw, times) for e in path if e.type in _SAYS and e.id in left.retained]
    at = path.index(left.compaction)
    kept = [e for e in path[:at] if e.type in _SAYS and e.id in left.retained]
    gone = tuple(e.id for e in path[:at] if e.type in _SAYS and e.id not in left.retained)
    made = list(_compacted(left.compaction, raw, gone, times))
    if left.compaction.tail is None:
        made += [_message(e, raw, times) for e in kept]
    return made + [_message(e, raw, times) for e in path[at + 1 :] if e.type in _SAYS and e.id in left.retained]


def _raw(session: Session, wanted: set[str]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for record in records(session.path, []):
        id_ = record.value.get("id")
        if not isinstance(id_, str) and session.version == 1:
            id_ = f"line-{record.line}"
        if isinstance(id_, str) and id_ in wanted:
            found[id_] = record.value
    if found.keys() != wanted:
        raise MalformedError(str(session.path), "the entries that were read before", "others")
    return found


def _compacted(
    e: Entry, raw: Mapping[str, Mapping[str, Any]], gone: tuple[str, ...], times: dict[str, int]
) -> Iterator[tuple[str, Message]]:
    value, place = raw[e.id], f"line {e.line}"
    checkpoint = value.get("systemMessage")
    if isinstance(checkpoint, Mapping):
        yield place, _said(checkpoint, f"{e.id}.system", f"{place}, systemMessage", times)
    yield place, Message(e.id, Role.SUMMARY, _text(value.get("summary", ""), f"{place}, summary"), covers=gone)
    tail = value.get("retainedTail")
    for n, message in enumerate(tail if isinstance(tail, list) else ()):
        yield place, _said(message, f"{e.id}.{n}", f"{place}, retainedTail[{n}]", times)


def _message(e: Entry, raw: Mapping[str, Mapping[str, Any]], times: dict[str, int]) -> tuple[str, Message]:
    value, place = raw[e.id], f"line {e.line}"
    if e.type == "branch_summary":
        return place, Message(e.id, Role.SUMMARY, _text(value.get("summary", ""), f"{place}, summary"))
    if e.type == "custom_message":
        return place, Message(e.id, Role.USER, _prose(value.get("content"), f"{place}, content"))
    return place, _said(value.get("message"), e.id, f"{place}, message", times)


def _said(message: object, id_: str, place: str, times: dict[str, int]) -> Message:
    if not isinstance(message, Mapping):
        raise MalformedError(place, "an object", "something else")
    role = _ROLES.get(_text(message.get("role"), f"{place}.role"))
    if role is None:
        raise MalformedError(f"{place}.role", f"one of {', '.join(_ROLES)}", "another role")
    if role is Role.SUMMARY:
        return Message(id_, role, _text(message.get("summary", ""), f"{place}.summary"))
    said = _prose(message.get("content"), f"{place}.content")
    if role is Role.TOOL:
        answered = _text(message.get("toolCallId"), f"{place}.toolCallId")
        tool = message.get("toolName")
        outcome = Outcome.ERROR if message.get("isError") is True else Outcome.OK
        return Message(id_, role, said, result_for=answered, tool=_text(tool, f"{place}.toolName"), outcome=outcome)
    calls = () if role is not Role.ASSISTANT or message.get("stopReason") in _FAILED else _calls(message, place, times)
    return Message(id_, role, said, tuple(calls))


def _calls(message: Mapping[str, Any], place: str, times: dict[str, int]) -> Iterator[Call]:
    for n, block in enumerate(_blocks(message.get("content"), f"{place}.content")):
        if block.get("type") == "toolCall":
            here = f"{place}.content[{n}]"
            call, tool = _text(block.get("id"), f"{here}.id"), _text(block.get("name"), f"{here}.name")
            times[call] = times.get(call, -1) + 1
            try:
                yield Call(call, tool, block.get("arguments") or {}, times[call])
            except InvalidInputError as error:
                raise MalformedError(f"{here}.arguments", "an object", "something else") from error


def _prose(content: object, place: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = [b for b in _blocks(content, place) if b.get("type") == "text"]
    return "\n".join(_text(block.get("text"), f"{place}, a text") for block in texts)


def _blocks(content: object, place: str) -> list[Mapping[str, Any]]:
    if content is None or isinstance(content, str):
        return []
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise MalformedError(place, "text, or a list of objects", "something else")
    return content


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise MalformedError(place, "a string", "something else")
    return value
