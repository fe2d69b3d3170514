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

from typing import TYPE_CHECKING, Any

from capstate.capabilities import NameRule
from capstate.errors import MalformedError
from capstate.projection import Issuer, Profile
from capstate.providers import _outgoing as out
from capstate.providers._anthropic_wire import APIS, marks, on_wire, tool_of
from capstate.providers._replay import Replay
from capstate.providers._shape import blocks, listing, mapping, prose, text
from capstate.providers._usage import counted
from capstate.trace import Call, Message, Outcome, Role
from capstate.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from capstate.projection import Placed, Projection

__all__ = ["marks", "on_wire", "profile", "read", "render", "usage"]

API = "anthropic-messages"
_NOTHING = "[no tool is loaded here]"


def profile(model: str, *, account: str = "", provider: str = "anthropic", defers: bool = True) -> Profile:
    """Return what ``model`` can do with tools.

    Args:
        model: its name; only part of who issued an opaque item.
        account: tells accounts apart where opaque items are bound to one.
        provider: who answers, if it is a compatible host.
        defers: the model takes ``defer_loading`` and ``tool_reference`` (Sonnet, Opus and Haiku from 4.5 on, and later
            families).
    """
    from capstate.providers import anthropic  # noqa: PLC0415 - the adapter is this module

    return Profile(
        issuer=Issuer(provider, API, model, account),
        adapter=anthropic,
        defers="tool_reference" if defers else "",
        needs_immediate=True,
        names=NameRule(limit=64),
        call_id_limit=64,
        call_id_chars="A-Za-z0-9_-",
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
        raise MalformedError(f"{place}.role", "user, assistant or system", "another role")


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
    opaque = _Signed(projection, profile)
    found = out.entries(history, apis=APIS, issuer=profile.issuer.id, read=read, passes=opaque.agrees)
    plan = out.plan(profile, projection, found, points=_points(found), place=lambda s: None if s[1] == out.END else s)
    writer = _Writer(plan, opaque)
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


def _points(found: list[out.Entry]) -> Iterator[tuple[str, Mapping[str, Any] | None, out.Spot]]:
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


class _Signed:
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


class _Writer:
    """Writes the messages of one request, in order."""

    def __init__(self, plan: out.Plan, opaque: _Signed) -> None:
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
            found = [b for native in entry.native for _, b in blocks(native.get("content"), "content")]
        else:
            message = entry.read[0]
            spoken = message.text if message.outcome is Outcome.ERROR else out.said(message)
            block = {"type": "tool_result", "tool_use_id": self._plan.answers[i, 0], "content": spoken}
            found = [block | ({"is_error": True} if message.outcome not in (None, Outcome.OK) else {})]
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
        stays = [b for b in inner if b.get("type") != "tool_reference" or self._may(b, spot)]
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
