"""Spans and log records of OpenTelemetry are read as the requests that they are, or counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capstate.agents.lines import Damage
from capstate.agents.requests import Request, read_requests
from capstate.audit import audit_paths
from capstate.policy import parse

BODY = {
    "model": "claude-x",
    "system": "s",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"name": "a", "input_schema": {"type": "object"}}, {"name": "b", "input_schema": {}}],
}
MESSAGES = [
    {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "load", "arguments": {"group": "git"}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "ok"}]},
]
TOOLS = [{"type": "function", "name": "a", "description": "d", "parameters": {}}, {"type": "function", "name": "b"}]
WHOLE = {"gen_ai.request.body": BODY}
SAID = {"gen_ai.input.messages": MESSAGES, "gen_ai.tool.definitions": TOOLS, "gen_ai.request.model": "m"}


def typed(value: Any) -> dict[str, Any]:
    """A value as OTLP writes it."""
    if isinstance(value, dict):
        return {"kvlistValue": {"values": listed(value)}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [typed(v) for v in value]}}
    return {"stringValue": value}


def listed(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": k, "value": typed(v)} for k, v in values.items()]


def texts(values: dict[str, Any]) -> dict[str, Any]:
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}


def spans(*items: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(items)}]}]}


def logs(*items: dict[str, Any]) -> dict[str, Any]:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": list(items)}]}]}


def read(folder: Path, *rows: Any, name: str = "export.jsonl") -> tuple[list[Request], list[str], dict[str, int]]:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    damage: list[Damage] = []
    unknown: Counter[str] = Counter()
    found = list(read_requests(path, damage, unknown))
    return found, [d.kind.value for d in damage], dict(unknown)


FORMS: dict[str, Any] = {
    "an object": {"attributes": WHOLE},
    "a text": {"attributes": texts(WHOLE)},
    "without attributes": WHOLE,
    "typed in a span": spans({"attributes": listed(WHOLE)}),
    "a text in a span": spans({"attributes": listed(texts(WHOLE))}),
    "a log record's body": logs({"body": typed(BODY)}),
    "a log record's text": logs({"body": {"stringValue": json.dumps(BODY)}}),
    "beside an answer": {"attributes": {"http.response.body": {**BODY, "tools": []}, "http.request.body": BODY}},
}
GENAI: dict[str, Any] = {
    "objects": {"attributes": SAID},
    "texts": {"attributes": texts(SAID)},
    "without attributes": SAID,
    "typed in a span": spans({"attributes": listed(SAID)}),
    "texts in a span": spans({"attributes": listed(texts(SAID))}),
    "an event": spans({"attributes": [], "events": [{"name": "e", "attributes": listed(SAID)}]}),
    "a log record": logs({"attributes": listed(SAID)}),
    "a log record's body": logs({"body": typed(SAID)}),
}


@pytest.mark.parametrize("row", FORMS.values(), ids=list(FORMS))
def test_a_body_in_telemetry_is_read_by_its_own_api(tmp_path: Path, row: object) -> None:
    """Wherever the exporter put it, it is the body that was sent."""
    (found,), damage, unknown = read(tmp_path, row)

    assert found.wire is not None
    assert (found.api, found.wire.effective, found.recorded) == ("anthropic-messages", frozenset("ab"), False)
    assert (damage, unknown) == ([], {})


@pytest.mark.parametrize("row", GENAI.values(), ids=list(GENAI))
@pytest.mark.parametrize("name", ["export.jsonl", "export.json"])
def test_messages_and_definitions_stand_for_a_body(tmp_path: Path, row: object, name: str) -> None:
    """What was offered, and what the history loads, are known; it is a record and no body."""
    (found,), damage, unknown = read(tmp_path, row, name=name)

    assert found.wire is not None
    assert (found.wire.effective, found.api, found.recorded, found.model) == (frozenset("ab"), None, True, "m")
    assert [(s.role, s.tool, s.names) for s in found.history] == [
        ("user", "", ()), ("call", "load", ("git",)), ("result", "load", ()),
    ]  # fmt: skip
    assert (damage, unknown) == ([], {})


def test_each_span_of_an_export_is_a_request(tmp_path: Path) -> None:
    """They are numbered in their order; what asks no model is counted."""
    run = {"attributes": listed({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "a"})}
    agent = {"attributes": listed({**SAID, "gen_ai.operation.name": "invoke_agent"})}
    found, damage, unknown = read(tmp_path, spans({"attributes": listed(WHOLE)}, run, agent), spans(), logs({}))

    assert ([r.turn for r in found], damage) == ([1], [])
    assert unknown == {"span without a request body": 2, "log record without a request body": 1}


def test_without_definitions_what_could_be_called_is_unknown(tmp_path: Path) -> None:
    """Exporters leave them out by default: that is no request without tools."""
    said = {"gen_ai.input.messages": MESSAGES}
    (found,), damage, _ = read(tmp_path, spans({"attributes": listed(said)}))

    assert (found.wire, found.bare, damage) == (None, False, [])


@pytest.mark.parametrize("key", ["gen_ai.input.messages", "gen_ai.tool.definitions"])
def test_an_attribute_that_was_cut_off_is_damage(tmp_path: Path, key: str) -> None:
    """Exporters cut long attributes; what is left is no JSON."""
    said = texts(SAID)
    found, damage, _ = read(tmp_path, spans({"attributes": listed({**said, key: said[key][:-3]})}))

    assert (found, damage) == ([], ["body_truncated"])


def test_a_verdict_on_a_record_has_its_grade(tmp_path: Path) -> None:
    """What may not be called is told, as recorded and not as observed."""
    read(tmp_path, spans({"attributes": listed(SAID)}))
    lines = list(audit_paths([f"requests:{tmp_path / 'export.jsonl'}"], parse('allow = ["a"]')))

    assert [(f["finding"], f["names"], f["grade"]) for f in lines if "finding" in f] == [("CS201", ["b"], "recorded")]


@pytest.mark.parametrize(
    "row",
    [
        {"resourceSpans": 7},
        {"resourceSpans": [7, {"scopeSpans": [7, {"spans": [7, {"attributes": 7, "events": 7}]}]}]},
        spans({"attributes": [{"key": "gen_ai.input.messages", "value": {"arrayValue": 7}}]}),
        spans({"attributes": [{"key": "x", "value": {"kvlistValue": {"values": [{"key": 7}]}}}]}),
        {"attributes": {"gen_ai.input.messages": 7, "gen_ai.tool.definitions": {"a": 7}}},
        {"attributes": {"gen_ai.input.messages": [{"role": 7, "parts": [{"type": "text", "content": 7}, 7]}]}},
        {"attributes": {**SAID, "gen_ai.operation.name": ["chat"], "gen_ai.request.model": 7}},
        {"attributes": {**SAID, "gen_ai.tool.definitions": [7, {"name": 7}]}},
        {"attributes": {**SAID, "gen_ai.input.messages": [{"role": "assistant", "parts": [{"type": "tool_call"}]}]}},
    ],
    ids=range(9),
)
def test_telemetry_of_any_shape_is_a_row_or_damage(tmp_path: Path, row: object) -> None:
    """Wrong types anywhere give a request, damage or a count, and no error."""
    found, damage, unknown = read(tmp_path, row)

    assert len(found) + len(damage) + sum(unknown.values()) <= 2


def test_a_body_too_deep_is_not_called_cut_off(tmp_path: Path) -> None:
    """Depth is said as what it is: in a text, in a file, and in a last line without an end."""
    deep = "[" * 5000 + "]" * 5000
    text = json.dumps({"body": '{"messages": ' + deep + "}"})
    (tmp_path / "export.jsonl").write_text(text + "\n" + json.dumps(BODY) + "\n" + '{"body": ' + deep + "}")
    (tmp_path / "whole.json").write_text('{"body": ' + deep + "}")
    for name, kinds, requests in (
        ("export.jsonl", [("not_json", 1), ("not_json", 3)], 1),
        ("whole.json", [("not_json", 1)], 0),
    ):
        damage: list[Damage] = []
        found = list(read_requests(tmp_path / name, damage, Counter()))
        assert ([(d.kind.value, d.line) for d in damage], len(found)) == (kinds, requests)
