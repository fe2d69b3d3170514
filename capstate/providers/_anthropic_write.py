"""Anthropic Messages, written: the messages of one request, with the projection's load points in them.

The rules stand in :mod:`capstate.providers.anthropic`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from capstate.providers import _outgoing as out
from capstate.providers._anthropic_wire import marks, tool_of
from capstate.providers._replay import Replay
from capstate.providers._shape import blocks, listing, mapping, text
from capstate.trace import Message, Outcome, Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from capstate.projection import Profile, Projection

_LOADS = ("tool_reference", "tool_addition", "tool_removal")
"""Of these a result may hold the first alone."""
_NOTHING = "[no tool is loaded here]"


def points(found: list[out.Entry]) -> Iterator[tuple[str, Mapping[str, Any] | None, out.Spot]]:
    for i, entry in enumerate(found):
        k = 0
        for native in entry.native:
            for here, block in blocks(native.get("content"), "content"):
                spot = (i, out.END)
                if block.get("type") == "tool_result":
                    spot, k = (i, k), k + 1
                for wire, definition in _named(block, here):
                    yield wire, definition, spot


def _named(block: Mapping[str, Any], here: str) -> list[tuple[str, Mapping[str, Any] | None]]:
    """Return what ``block`` loads, each with its definition if it is carried along."""
    if block.get("type") == "tool_addition":
        tool = mapping(block.get("tool"), f"{here}.tool")
        if tool.get("type") == "tool_definition":
            wire, definition, _ = tool_of(Replay(), tool.get("definition"), f"{here}.tool.definition")
            return [(wire, definition)]
    role = "system" if block.get("type") == "tool_addition" else "user"
    return [(wire, None) for p in marks([{"role": role, "content": [block]}]) for wire in p.names]


class Signed:
    """Whether a compaction block, which cannot be changed, says of the tools what the projection says."""

    def __init__(self, projection: Projection, profile: Profile) -> None:
        self._plan = out.plan(profile, projection, [], points=())

    def agrees(self, native: Mapping[str, Any]) -> bool:
        """Whether the message ``native`` may go as it is."""
        for here, block in blocks(native.get("content"), "content"):
            if block.get("type") != "compaction":
                continue
            for where, change in blocks(block.get("tool_changes"), f"{here}.tool_changes"):
                removal = change.get("type") == "tool_removal"
                asked = {**change, "type": "tool_addition"} if removal else change
                for wire, definition in _named(asked, where):
                    known = self._plan.callable(wire)
                    if removal is known or (definition is not None and not self._plan.keeps(wire, None, definition)):
                        return False
        return True


class Writer:
    """Writes the messages of one request, in order."""

    def __init__(self, plan: out.Plan, opaque: Signed) -> None:
        self.system: list[str] = []
        self.messages: list[Mapping[str, Any]] = []
        self._plan, self._opaque = plan, opaque
        self._results: list[Mapping[str, Any]] = []  # of the user message that is being collected
        self._texts: list[Mapping[str, Any]] = []

    def entry(self, i: int, entry: out.Entry) -> None:
        """Write one entry."""
        message = entry.read[0] if entry.read else None
        collects = message is not None and message.role is Role.TOOL and (entry.part or not entry.native)
        if collects and not entry.native and (i, 0) not in self._plan.answers:
            self.close()
            self._say("user", out.orphan(entry.read[0]))
        elif collects:
            self._collect(i, entry)
        elif entry.part and self._results and message is not None and message.role is Role.USER and _listed(entry):
            content = [b for native in entry.native for b in native["content"]]
            self._texts += self._changed(i, content)
        else:
            self.close()
            for native in entry.native:
                self._native(i, native)
            if not entry.native and message is not None:
                self._neutral(i, message)

    def close(self) -> None:
        """End the user message that is being collected."""
        if self._results:
            self.messages.append({"role": "user", "content": [*self._results, *self._texts]})
        self._results, self._texts = [], []

    def _collect(self, i: int, entry: out.Entry) -> None:
        if entry.native:
            found: list[Mapping[str, Any]] = [
                b for native in entry.native for _, b in blocks(native.get("content"), "content")
            ]
        else:
            message = entry.read[0]
            spoken = message.text if message.outcome is Outcome.ERROR else out.said(message)
            block: Mapping[str, Any] = {
                "type": "tool_result",
                "tool_use_id": self._plan.answers[i, 0],
                "content": spoken,
            }
            found = [{**block, "is_error": True} if message.outcome not in {None, Outcome.OK} else block]
        for block in self._changed(i, found):
            (self._results if block.get("type") == "tool_result" else self._texts).append(block)

    def _say(self, role: str, said: str) -> None:
        if said:  # the API refuses empty text
            self.messages.append({"role": role, "content": [{"type": "text", "text": said}]})

    def _neutral(self, i: int, message: Message) -> None:
        if message.role is Role.SYSTEM and not self.messages:
            self.system += [message.text] if message.text else []
        elif message.role is not Role.ASSISTANT:
            self._say("user", message.text)
        else:
            content: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text else []
            for call, made in zip(message.calls, self._plan.calls.get(i, ()), strict=True):
                name = self._plan.wire(call.tool)
                content.append({"type": "tool_use", "id": made, "name": name, "input": dict(call.arguments)})
            if content:
                self.messages.append({"role": "assistant", "content": content})

    def _native(self, i: int, native: Mapping[str, Any]) -> None:
        if not self._opaque.agrees(native):
            for here, block in blocks(native.get("content"), "content"):
                if block.get("type") == "compaction":
                    self._say("user", text(block.get("content") or "", f"{here}.content"))
        content = native.get("content")
        if not isinstance(content, list | tuple):
            self.messages.append(native)
            return
        changed = self._changed(i, content)
        if len(changed) == len(content) and all(a is b for a, b in zip(changed, content, strict=True)):
            self.messages.append(native)
        elif changed:
            self.messages.append({**native, "content": changed})

    def _changed(self, i: int, content: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the blocks of one message with the projection's load points, and without others'."""
        made: list[Mapping[str, Any]] = []
        moved: list[Mapping[str, Any]] = []
        k = last = 0
        for block in content:
            form = block.get("type")
            if form == "tool_result":
                made.append(self._loading(block, (i, k), moved))
                k, last = k + 1, len(made)
            elif form == "tool_search_tool_result":
                made.append(self._searched(block, (i, out.END)))
            elif form in ("tool_addition", "tool_reference"):
                made += [block] if all(self._plan.keeps(w, (i, out.END), d) for w, d in _named(block, "block")) else []
            elif form == "compaction":
                made += [block] if self._opaque.agrees({"content": [block]}) else []
            elif form != "tool_removal":
                made.append(block)
        return made[:last] + moved + made[last:]

    def _loading(self, block: Mapping[str, Any], spot: out.Spot, moved: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        content = block.get("content")
        inner = [b for _, b in blocks(content, "content")]
        stays = [b for b in inner if b.get("type") not in _LOADS or (b["type"] == _LOADS[0] and self._may(b, spot))]
        loaded = [{"type": "tool_reference", "tool_name": p.wire} for p in self._plan.inserts.get(spot, ())]
        if not loaded and len(stays) == len(inner):
            return block
        if not loaded:
            return {**block, "content": stays or _NOTHING}
        if not any(b.get("type") == "tool_reference" for b in stays):
            moved += [b for b in stays if b.get("type") != "text" or b.get("text")]
            stays = []
        return {**block, "content": [*stays, *loaded]}

    def _searched(self, block: Mapping[str, Any], spot: out.Spot) -> Mapping[str, Any]:
        found = mapping(block.get("content"), "content")
        references = listing(found.get("tool_references"), "content.tool_references")
        stays = [r for r in references if self._may(r, spot)]
        if len(stays) == len(references):
            return block
        return {**block, "content": {**found, "tool_references": stays}}

    def _may(self, reference: Mapping[str, Any], spot: out.Spot) -> bool:
        return all(self._plan.keeps(wire, spot) for wire, _ in _named(reference, "block"))


def _listed(entry: out.Entry) -> bool:
    return all(isinstance(native.get("content"), list | tuple) for native in entry.native)
