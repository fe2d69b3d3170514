"""The cases' JSON in the product's values and back: messages, providers, catalogs, configurations.

The files that the host's sources read again at every call are made and read here, and nothing else is shared
between the processes of a case but the ledger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, evolve

from capstate.authority import Grant, allow, ask, deny
from capstate.capabilities import Group, NameRule, Tool
from capstate.projection import Issuer, Profile
from capstate.providers import anthropic, openai_chat
from capstate.trace import Call, Message, Outcome, Risk, Role, Row

ANTHROPIC, CHAT = "anthropic-messages", "openai-completions"


def profile_of(given: Mapping[str, Any]) -> Profile:
    """Return the profile of a case's ``provider``."""
    provider, model, account = [*given["issuer"].split("/"), "", ""][:3]
    module: Any = anthropic if given["deferred_loading"] else openai_chat
    made: Profile = module.profile(model, account=account, provider=provider, defers=bool(given["deferred_loading"]))
    return evolve(
        made,
        names=NameRule(given.get("name_limit") or 128, given.get("name_chars") or "A-Za-z0-9_-"),
        call_id_limit=given.get("call_id_limit"),
        call_id_chars=given.get("call_id_chars"),
    )


def issuer_id(text: str, api: str) -> str:
    """Return the product's id of a case's issuer."""
    provider, model, account = [*text.split("/"), "", ""][:3]
    return Issuer(provider, api, model, account).id


# ---- messages


def message_to_json(message: Message) -> dict[str, Any]:
    """Return a message as JSON; fields at their default are left out."""
    out: dict[str, Any] = {"id": message.id, "role": str(message.role)}
    for name in ("text", "result_for", "tool", "evidence", "issuer", "item", "native", "api"):
        if getattr(message, name):
            out[name] = getattr(message, name)
    if message.outcome is not None:
        out["outcome"] = str(message.outcome)
    if message.calls:
        out["calls"] = [call_to_json(call) for call in message.calls]
    for name in ("covers", "refers"):
        if getattr(message, name):
            out[name] = list(getattr(message, name))
    if message.covered:
        out["covered"] = [message_to_json(m) for m in message.covered]
    if message.rows:
        out["rows"] = [
            {**asdict(row, value_serializer=_plain), "details": list(map(list, row.details))} for row in message.rows
        ]
    return out


def _plain(_: object, __: object, value: Any) -> Any:
    return str(value) if isinstance(value, Outcome | Risk) else value


def row_of(body: Mapping[str, Any]) -> Row:
    """Return the row that :func:`message_to_json` wrote."""
    outcome = Outcome(body["outcome"]) if body["outcome"] else None
    details = tuple((name, value) for name, value in body["details"])
    return Row(**{**body, "outcome": outcome, "risk": Risk(body["risk"]), "details": details})


def message_of(body: Mapping[str, Any]) -> Message:
    """Return the message that :func:`message_to_json` or a case wrote."""
    return Message(
        body.get("id", ""),
        Role(body["role"]),
        body.get("text", ""),
        tuple(call_of(call) for call in body.get("calls", ())),
        body.get("result_for"),
        body.get("tool"),
        Outcome(body["outcome"]) if body.get("outcome") else None,
        body.get("evidence"),
        body.get("issuer"),
        body.get("item"),
        tuple(body.get("covers", ())),
        tuple(message_of(m) for m in body.get("covered", ())),
        tuple(body.get("refers", ())),
        body.get("native"),
        body.get("api"),
        tuple(row_of(row) for row in body.get("rows", ())),
    )


def call_to_json(call: Call) -> dict[str, Any]:
    """Return a call as JSON."""
    return {"id": call.id, "tool": call.tool, "args": dict(call.arguments), "occurrence": call.occurrence}


def call_of(body: Mapping[str, Any]) -> Call:
    """Return the call that :func:`call_to_json` or a case wrote."""
    return Call(body["id"], body["tool"], body.get("args", {}), body.get("occurrence", 0))


# ---- the files that sources read


def write(path: Path, body: object) -> None:
    """Replace a file in one step, as a configuration management would."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(body), encoding="utf-8")
    os.replace(beside, path)  # noqa: PTH105 - atomic, as meant


def read(path: Path) -> Any:
    """Return what a file holds now."""
    return json.loads(path.read_text(encoding="utf-8"))


def group_of(body: Mapping[str, Any], resources: Mapping[str, str]) -> Group:
    """Return one group of the file ``world.json``."""
    resource = body.get("resource")
    up = resource is None or resources.get(resource, "up") == "up"
    return Group(body["id"], [tool_of(tool) for tool in body["tools"]], server=resource, up=up)


def tool_of(body: Mapping[str, Any]) -> Tool:
    """Return one tool. What reaches another one and only reads is a loader, the rest of them bridges."""
    return Tool(
        body["name"],
        description=body.get("description", ""),
        schema=body.get("schema"),
        effect=body.get("effect", "external"),
        idempotent=bool(body.get("idempotent")),
        reaches=body.get("reaches"),
        loads=bool(body.get("reaches")) and body.get("effect") == "read",
    )


def catalog_of(world: Mapping[str, Any]) -> list[Group]:
    """Return the catalog that ``world.json`` describes."""
    return [group_of(group, world["resources"]) for group in world["groups"]]


def rules_of(grants: Iterable[Mapping[str, Any]], holder: str) -> list[Grant]:
    """Return what a configuration file grants to ``holder``."""
    made = []
    for grant in grants:
        if grant["holder"] != holder:
            continue
        on, id_ = grant["on"], grant.get("id", "")
        if grant["effect"] == "allow":
            made.append(allow(on, pin=bool(grant.get("pin")), id=id_))
        else:
            made.append({"ask": ask, "deny": deny}[grant["effect"]](on, id=id_))
    return made


# ---- opaque items


def native_item(item: Mapping[str, Any], api: str, wires: Mapping[str, str]) -> Any:
    """Return an issuer's own bytes for an opaque item of a case. They hold :func:`mark_of` it."""
    mark, kind = mark_of(item), item["item"]
    if api != ANTHROPIC:
        reasoning = {"type": f"reasoning.{kind}", "data": mark}
        return [{"role": "assistant", "content": mark, "reasoning_details": [reasoning]}]
    if kind == "compaction":
        block: dict[str, Any] = {"type": "compaction", "content": f"an earlier part, {mark}", "signature": mark}
        return [{"role": "assistant", "content": [block]}]
    if kind == "tool_reference":
        references = [{"type": "tool_reference", "tool_name": wires.get(q, q)} for q in item.get("refers", ())]
        search = {"type": "server_tool_use", "id": mark, "name": "tool_search_tool_regex", "input": {"pattern": "."}}
        found = {"type": "tool_search_tool_search_result", "tool_references": references}
        result = {"type": "tool_search_tool_result", "tool_use_id": mark, "content": found}
        return [{"role": "assistant", "content": [search, result]}]
    return [{"role": "assistant", "content": [{"type": "thinking", "thinking": "...", "signature": mark}]}]


def mark_of(item: Mapping[str, Any]) -> str:
    """Return the text by which an opaque item is found in a request."""
    return f"srvtoolu_{item['id']}_opaque"
