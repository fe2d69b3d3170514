"""One entry of a Pi session, reduced to what tools depend on.

Every format is read into :class:`Entry`: names, calls, marks, boundaries, and digests of user text (to find the
request that a body was). Prompt text, results and images are not kept, so a session of gigabytes stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from capstate.agents.lines import Record, words

if TYPE_CHECKING:
    from collections import Counter

KNOWN_TYPES = frozenset(
    {
        "message", "model_change", "thinking_level_change", "compaction", "branch_summary", "custom", "custom_message",
        "label", "session_info", "usage", "context_edit", "active_tools_change", "leaf",
    }
)  # fmt: skip
_ROLES = frozenset(
    {"user", "assistant", "toolResult", "system", "bashExecution", "custom", "branchSummary", "compactionSummary"}
)


class BadEntryError(Exception):
    """A record that is no entry. Never leaves :mod:`capstate.agents.pi`."""


@frozen
class CallSeen:
    """A call that the model made: its words are the short texts inside the arguments."""

    id: str
    tool: str
    words: tuple[str, ...] = ()


@frozen
class Said:
    """One message.

    Attributes:
        added: names that a tool result (``addedToolNames``) or a system message (``toolsAdded``) carries.
        definitions: of a system message, what it says about the added tools.
        removed: names in ``toolsRemoved``.
        texts: digests of the texts of a user message.
        stamp: the message's own time stamp, to find copies of one message.
    """

    role: str
    call: str = ""
    tool: str = ""
    is_error: bool = False
    calls: tuple[CallSeen, ...] = ()
    added: tuple[str, ...] = ()
    definitions: Mapping[str, Mapping[str, Any]] = field(factory=dict, hash=False, repr=False)
    removed: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    api: str = ""
    provider: str = ""
    model: str = ""
    stop: str = ""
    stamp: str = ""


@frozen
class Entry:
    """One entry of the tree.

    Attributes:
        kept: of a compaction, the first kept entry (``firstKeptEntryId``).
        tail: of a compaction, the retained messages themselves (``retainedTail``).
        checkpoint: of a compaction, the names in its ``systemMessage``; None without one.
        active: of an ``active_tools_change``, the whole set.
        target: of a label, ``context_edit`` or ``leaf``.
        dropped: a ``context_edit`` that removes its target.
    """

    id: str
    parent: str | None
    type: str
    line: int = 0
    offset: int = 0
    length: int = 0
    lane: str = "main"
    said: Said | None = None
    kept: str | None = None
    tail: tuple[Said, ...] | None = None
    checkpoint: Said | None = None
    active: tuple[str, ...] | None = None
    target: str | None = None
    dropped: bool = False
    provider: str = ""
    model: str = ""


def entry(record: Record, unknown: Counter[str], *, before: str | None, legacy: bool, by_index: list[str]) -> Entry:
    """Read one entry.

    Args:
        record: the line.
        unknown: counts types and roles that are not known here.
        before: id of the entry before this one; the parent where a version-1 file names none.
        legacy: the file is of version 1, whose entries have neither ids nor parents.
        by_index: ids by position in the file, the header included, for ``firstKeptEntryIndex``.

    Raises:
        BadEntryError: it has no type or id, or a field of a wrong type.
    """
    value = record.value
    kind = _text(value.get("type"))
    found = value.get("id")
    if not isinstance(found, str) and legacy:
        found = f"line-{record.line}"
    if not kind or not isinstance(found, str) or not found:
        raise BadEntryError
    parent = value.get("parentId", before if legacy else None)
    if parent is not None and not isinstance(parent, str):
        raise BadEntryError
    if kind not in KNOWN_TYPES:
        unknown[f"type {kind[:80]}"] += 1
    message = value.get("message")
    if kind == "message" and not isinstance(message, dict):
        raise BadEntryError
    compacts = kind == "compaction"
    tail = value.get("retainedTail") if compacts else None
    checkpoint = value.get("systemMessage") if compacts else None
    return Entry(
        id=found,
        parent=parent,
        type=kind,
        line=record.line,
        offset=record.offset,
        length=record.length,
        lane=_text(value.get("lane")) or "main",
        said=said(message, unknown) if isinstance(message, dict) else None,
        kept=_kept(value, by_index) if compacts else None,
        tail=tuple(said(m, unknown) for m in tail if isinstance(m, dict)) if isinstance(tail, list) else None,
        checkpoint=said(checkpoint, unknown) if isinstance(checkpoint, dict) else None,
        active=names(value.get("activeToolNames")) if kind == "active_tools_change" else None,
        target=_text(value.get("targetId")) or None,
        dropped=kind == "context_edit" and "replacement" in value and value["replacement"] is None,
        provider=_text(value.get("provider")),
        model=_text(value.get("modelId")),
    )


def said(message: dict[str, Any], unknown: Counter[str]) -> Said:
    """Reduce one message. Raises nothing: what has a wrong type is left out."""
    role = _text(message.get("role"))
    if role not in _ROLES:
        unknown[f"role {role[:80] or 'none'}"] += 1
    content = message.get("content")
    blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    definitions = _definitions(message.get("toolsAdded")) if role == "system" else {}
    texts = [content] if isinstance(content, str) else [_text(b.get("text")) for b in blocks if b.get("type") == "text"]
    return Said(
        role=role,
        call=_text(message.get("toolCallId")),
        tool=_text(message.get("toolName")),
        is_error=message.get("isError") is True,
        calls=tuple(
            CallSeen(_text(b.get("id")), _text(b.get("name")), words(b.get("arguments")))
            for b in blocks
            if b.get("type") == "toolCall"
        )
        if role == "assistant"
        else (),
        added=tuple(definitions) if role == "system" else names(message.get("addedToolNames")),
        definitions=definitions,
        removed=names(message.get("toolsRemoved")) if role == "system" else (),
        texts=tuple(digest(t) for t in texts if t) if role == "user" else (),
        api=_text(message.get("api")),
        provider=_text(message.get("provider")),
        model=_text(message.get("model")),
        stop=_text(message.get("stopReason")),
        stamp=str(message.get("timestamp", ""))[:64],
    )


def digest(text: str) -> str:
    """Return a short digest, so that texts can be compared without being kept."""
    return blake2b(text.strip().encode("utf-8", "replace"), digest_size=12).hexdigest()


def names(value: object) -> tuple[str, ...]:
    """Return the tool names of a list of names or of objects with ``name``, each once, in order."""
    found: dict[str, None] = {}
    for item in value if isinstance(value, list) else ():
        name = item.get("name") if isinstance(item, dict) else item
        if isinstance(name, str) and name:
            found[name] = None
    return tuple(found)


def _definitions(tools: object) -> dict[str, dict[str, Any]]:
    found = {}
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("name"), str) and tool["name"]:
            found[tool["name"]] = {"description": _text(tool.get("description")), "schema": tool.get("parameters")}
        elif isinstance(tool, str) and tool:
            found[tool] = {}
    return found


def _kept(value: dict[str, Any], by_index: list[str]) -> str | None:
    found = value.get("firstKeptEntryId")
    if isinstance(found, str):
        return found
    index = value.get("firstKeptEntryIndex")
    if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < len(by_index):
        return by_index[index] or None
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
