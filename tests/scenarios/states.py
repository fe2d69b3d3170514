"""What was seen after each event: requests as bytes, lines of the spies, entries of the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field

from capstate.projection import OnWire, Profile
from capstate.providers import for_api
from tests.scenarios import forms


@define
class Look:
    """One request of one session, and what the product said when it was made."""

    provider: dict[str, Any]
    profile: Profile
    request: dict[str, Any]
    wires: dict[str, str]
    withheld: dict[str, str]
    fingerprint: str
    exceeded: str | None
    explained: list[str]
    definitions: dict[str, str]
    """By qualified id, the definition as the world's file had it then, in sorted JSON."""
    on_wire: OnWire

    @classmethod
    def of(cls, answer: Mapping[str, Any], provider: dict[str, Any], world: Mapping[str, Any]) -> Look:
        """Read the request back from its bytes."""
        profile = forms.profile_of(provider)
        definitions = {
            f"{group['id']}/{tool['name']}": json.dumps([group.get("resource"), tool], sort_keys=True)
            for group in world["groups"]
            for tool in group["tools"]
        }
        request = answer["request"]
        wire = for_api(profile.issuer.api).on_wire(request)
        return cls(
            provider, profile, request, answer["wires"], answer["withheld"], answer["fingerprint"],
            answer["exceeded"], answer["explained"], definitions, wire,
        )  # fmt: skip

    @property
    def names(self) -> dict[str, str]:
        """Qualified id by wire name, of what the product says is callable."""
        return {wire: qualified for qualified, wire in self.wires.items()}

    @property
    def callable(self) -> list[str]:
        """What the request's bytes make callable; a name that no tool has is shown as it is."""
        return sorted(self.names.get(name, f"wire name {name}") for name in self.on_wire.effective)

    @property
    def agreed(self) -> bool:
        """Whether bytes, surface and ``explain`` say the same."""
        return self.callable == sorted(self.wires) == self.explained and self.exceeded is None

    @property
    def placement(self) -> dict[str, str]:
        """Where each tool stands in the bytes."""
        places = dict.fromkeys(self.on_wire.immediate, "immediate")
        places |= dict.fromkeys(self.on_wire.deferred, "deferred")
        places |= dict.fromkeys(self.on_wire.unloaded, "unloaded")
        return {self.names.get(name, name): place for name, place in places.items()}

    @property
    def tools(self) -> list[Any]:
        """The tools part: the list, and behind it whatever the messages carry in definitions."""
        listed: list[Any] = list(self.request.get("tools", []))
        return listed + [m["tools"] for m in self.request["messages"] if isinstance(m.get("tools"), list)]

    @property
    def tools_bytes(self) -> str:
        """The tools part, as it would be sent."""
        return json.dumps(self.tools)

    @property
    def key(self) -> str:
        """What the tools part may depend on, by the case's own files."""
        loads = [self.names.get(name, name) for name in self.on_wire.deferred]
        api = (self.profile.issuer.api, self.profile.names.limit, self.profile.names.chars)
        rows = [[q, self.definitions.get(q), self.placement.get(q)] for q in sorted(self.wires)]
        return json.dumps([api, rows, loads])

    @property
    def text(self) -> str:
        """The messages part, as it would be sent."""
        return json.dumps([self.request.get("system"), self.request["messages"]], ensure_ascii=False)

    @property
    def referenced(self) -> set[str]:
        """Every name that the messages refer to as a tool to load."""
        found: set[str] = set(self.on_wire.referenced)
        for part in walk(self.request["messages"]):
            if part.get("type") == "tool_reference":
                found.add(str(part.get("tool_name", part.get("name"))))
        return found


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Give every object inside a JSON value."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


@define
class Item:
    """One piece of a request's messages, in order: text of a role, a call, or a result."""

    kind: str
    text: str
    message: int
    call: str = ""


def items(look: Look) -> list[Item]:
    """Return the messages of a request piece by piece, read from the bytes."""
    made: list[Item] = []
    for n, message in enumerate(look.request["messages"]):
        role, content = message["role"], message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
        if role == "tool":
            made.append(Item("result", str(content), n, message["tool_call_id"]))
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                made.append(Item("result", json.dumps(block.get("content")), n, block["tool_use_id"]))
            elif block["type"] == "tool_use":
                made.append(Item("call", block["name"], n, block["id"]))
            elif block["type"] == "text":
                made.append(Item(role, block["text"], n))
            else:
                made.append(Item("opaque", json.dumps(block), n))
        made += [Item("call", c["function"]["name"], n, c["id"]) for c in message.get("tool_calls") or ()]
    return made


def wire_faults(look: Look) -> tuple[list[str], list[str]]:
    """Return (faults, ids of calls without a result) of the messages in a request, by no code of the product."""
    faults: list[str] = []
    waiting: list[str] = []
    opened: list[str] = []
    at = -1
    for item in items(look):
        if item.kind == "call":
            if item.call in waiting:
                faults.append(f"call {item.call} twice")
            if waiting and item.message != at:
                opened += waiting
                waiting = []
            at = item.message
            waiting.append(item.call)
        elif item.kind == "result":
            if item.call in waiting:
                waiting.remove(item.call)
            else:
                faults.append(f"result for {item.call} answers no open call")
        elif waiting and item.message != at:
            opened += waiting
            waiting = []
    return faults, opened + waiting


@define
class State:
    """Everything seen after one event."""

    n: int
    event: dict[str, Any]
    looks: dict[str, Look]
    """The last request of each session."""
    fresh: set[str]
    """Sessions that were looked at after this event."""
    receipts: dict[str, list[dict[str, Any]]]
    """Written during this event."""
    error: str | None
    chains: dict[str, dict[str, Any]]
    views: dict[str, list[dict[str, Any]]]
    entries: dict[str, list[dict[str, Any]]]
    spies: list[dict[str, Any]]
    journal: dict[str, Any] = field(factory=dict)
    allowed: dict[str, set[str]] = field(factory=dict)
    """By session, what the case's live grants allow it: a small model of the rules, not the product's."""
