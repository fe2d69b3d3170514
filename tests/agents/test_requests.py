from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capstate.agents.lines import Damage
from capstate.agents.requests import Request, asked, read_executed, read_requests
from capstate.audit import audit_paths
from capstate.errors import InvalidInputError, MalformedError
from capstate.policy import parse

TOOL = {"name": "a", "description": "", "input_schema": {"type": "object"}}
BODY = {
    "model": "claude-x",
    "max_tokens": 1,
    "system": "s",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [TOOL],
}

LISTED = {"key": "b", "value": {"stringValue": json.dumps(BODY)}}


def read(path: Path) -> tuple[list[Request], list[Damage], Counter[str]]:
    damage: list[Damage] = []
    unknown: Counter[str] = Counter()
    return list(read_requests(path, damage, unknown)), damage, unknown


def names(request: Request) -> set[str] | None:
    return None if request.wire is None else set(request.wire.effective)


def lines(folder: Path, *rows: Any, name: str = "bodies.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "row",
    [
        BODY,
        {"body": BODY},
        {"body": json.dumps(BODY)},
        {"request": BODY, "response": {"content": []}},
        {"request": {"method": "POST", "headers": {}, "body": BODY}},
        {"request": {"url": "u", "body": json.dumps(BODY)}},
        {"name": "span", "attributes": {"body": json.dumps(BODY), "model": "m"}},
        {"attributes": {"http.request.body": json.dumps(BODY)}},
        {"attributes": [{"key": "x", "value": {"intValue": 1}}, LISTED]},
        {"body": {"request": {"body": BODY}}},
    ],
)  # fmt: skip
def test_a_body_is_found_in_any_wrapper(tmp_path: Path, row: object) -> None:
    """Bare, or under body, request or attributes, as an object or as text, the body is read by its own API."""
    found, damage, unknown = read(lines(tmp_path, row))
    assert [(r.api, r.wire and r.wire.immediate, r.turn, r.kind) for r in found] == [
        ("anthropic-messages", ("a",), 1, "turn")
    ]
    assert (damage, unknown) == ([], {})


def test_each_api_is_told_by_its_body(tmp_path: Path) -> None:
    """Messages, Responses and Chat bodies are told apart without a label."""
    function = {"type": "function", "name": "a", "parameters": {}}
    responses = {"model": "g", "input": [{"role": "user", "content": "x"}], "tools": [function]}
    chat = {"model": "g", "messages": [], "tools": [{"type": "function", "function": {"name": "a", "parameters": {}}}]}
    found, damage, _ = read(lines(tmp_path, BODY, responses, chat))
    assert [r.api for r in found] == ["anthropic-messages", "openai-responses", "openai-completions"]
    assert [names(r) for r in found] == [{"a"}] * 3
    assert damage == []


def test_a_folder_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    """2.json stands before 10.json; files in folders below are read, links are not."""
    for name, model in (("10.json", "claude-10"), ("2.json", "claude-2")):
        (tmp_path / name).write_text(json.dumps({**BODY, "model": model}))
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "1.json").write_text(json.dumps([{**BODY, "model": "claude-b"}], indent=1))
    (tmp_path / "z.json").symlink_to(tmp_path / "2.json")
    (tmp_path / "readme.txt").write_text("no body")
    found, damage, _ = read(tmp_path)
    assert [(r.model, r.turn) for r in found] == [("claude-2", 1), ("claude-10", 2), ("claude-b", 3)]
    assert damage == []


def test_what_is_no_request_is_counted(tmp_path: Path) -> None:
    """Responses, settings and other rows are counted and named, not dropped and not damage."""
    found, damage, unknown = read(lines(tmp_path, {"id": "msg", "content": []}, {"request": "GET /"}, BODY))
    assert (len(found), damage, unknown) == (1, [], {"row without a request body": 2})


def test_a_truncated_body_is_damage(tmp_path: Path) -> None:
    """A log that cut the body off says so with its place."""
    found, damage, _ = read(lines(tmp_path, BODY, {"attributes": {"body": json.dumps(BODY)[:-9]}}))
    assert len(found) == 1
    assert [(d.kind.value, d.line) for d in damage] == [("body_truncated", 2)]


def test_a_body_that_its_api_would_refuse_is_damage(tmp_path: Path) -> None:
    """It stays a request, with nothing known about what could be called."""
    rows = [{**BODY, "tools": [{"input_schema": {}}]}, {"model": "m", "messages": [], "tools": [{"odd": 1}]}]
    found, damage, _ = read(lines(tmp_path, *rows))
    assert [r.wire for r in found] == [None, None]
    assert [d.kind.value for d in damage] == ["bad_body", "unknown_api"]


def test_a_body_without_tools_makes_nothing_callable(tmp_path: Path) -> None:
    """Where nothing tells the API and there are no tools, nothing is callable."""
    found, damage, _ = read(lines(tmp_path, {"model": "m", "messages": [{"role": "user", "content": "x"}]}))
    assert [names(r) for r in found] == [set()]
    assert damage == []


def test_only_the_named_fields_of_a_record_are_read(tmp_path: Path) -> None:
    """turn, process, kind, api, model and four fields of runtime; empty lists and null say nothing."""
    runtime = {"sessionId": "s", "leafId": "l", "registered": ["a"], "authorised": [], "active": ["b"]}
    row = {
        "turn": 7,
        "process": 2,
        "kind": "turn",
        "api": "anthropic-messages",
        "model": "m",
        "runtime": runtime,
        "body": BODY,
    }
    (found,), _, _ = read(lines(tmp_path, row))
    assert (found.turn, found.process, found.model, found.session, found.leaf) == (7, 2, "m", "s", "l")
    assert (found.registered, found.authorised) == (frozenset({"a"}), None)
    (bare,), _, _ = read(lines(tmp_path, {**row, "runtime": None, "kind": "summary"}))
    assert (bare.session, bare.leaf, bare.registered, bare.kind) == (None, None, None, "summary")


def test_texts_and_calls_become_tokens() -> None:
    """Three APIs give the same tokens for the same conversation."""
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "hi "}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "a", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}, {"type": "text", "text": "moved"}]},
    ]
    chat = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": "c1"}]},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
    ]
    responses = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1"},
    ]
    expected = asked({"messages": messages})
    assert expected[1:] == ("c c1", "r c1")
    assert asked({"messages": chat}) == asked({"input": responses}) == expected
    assert asked({"input": "hi"}) == expected[:1]
    assert asked({"messages": 7}) == ()


def test_only_executed_observations_are_runs(tmp_path: Path) -> None:
    """Other observations are passed over; an empty list of names says nothing."""
    path = lines(
        tmp_path,
        {"at": "session_start", "active": []},
        {"at": "executed:x", "sessionId": "s", "leafId": "l", "authorised": ["y"]},
        {"at": "executed:z", "authorised": []},
        {"at": 7},
    )
    found = read_executed(path, [])
    assert [(r.name, r.session, r.leaf, r.authorised) for r in found] == [
        ("x", "s", "l", {"y"}),
        ("z", None, None, None),
    ]


def test_links_and_missing_files_are_refused(tmp_path: Path) -> None:
    """A link is not followed; a file that is not there is the caller's mistake."""
    real = lines(tmp_path, BODY)
    (tmp_path / "link.jsonl").symlink_to(real)
    with pytest.raises(MalformedError):
        read(tmp_path / "link.jsonl")
    with pytest.raises(InvalidInputError):
        read(tmp_path / "missing.jsonl")


@pytest.mark.parametrize(
    "row",
    [
        {"body": {"messages": [7, None, {"role": 7, "content": [7, {"type": 7}]}], "tools": 7}},
        {"body": {"messages": {}, "input": 7}},
        {"request": [[[]]], "attributes": [7, {"key": 7, "value": 7}]},
        {"body": "{" * 50},
        {"turn": "x", "process": [], "kind": 7, "api": {}, "model": None, "runtime": [], "body": BODY},
        {"runtime": {"sessionId": 7, "leafId": [], "registered": {}, "authorised": [7, {"name": 8}]}, "body": BODY},
        {"model": "m", "input": [{"type": "function_call", "call_id": {}}, 7], "tools": [None]},
    ],
)
def test_rows_of_any_shape_are_judged_or_damage(tmp_path: Path, row: object) -> None:
    """Wrong types anywhere give rows, never another error."""
    lines_ = list(audit_paths(["requests:" + str(lines(tmp_path, row))], parse('allow = ["a"]')))
    assert json.loads(json.dumps(lines_[-1]))["summary"]["requests"] in (0, 1)


def test_bodies_alone_are_judged_by_a_policy(tmp_path: Path) -> None:
    """Without a session loads are unknown and null; what the list forbids is told, and a silent change too."""
    other = {**BODY, "tools": [TOOL, {**TOOL, "name": "b"}]}
    rows = list(audit_paths(["requests:" + str(lines(tmp_path, BODY, other))], parse('allow = ["a"]')))
    first, second = (r for r in rows if "callable" in r)
    assert (first["not_authorised"], first["never_loaded"], first["lost"], first["unexplained"]) == ([], None, None, [])
    assert (second["not_authorised"], second["unexplained"], second["authorised"]) == (["b"], ["b"], ["a"])
    assert [r["finding"] for r in rows if "finding" in r] == ["CS201"]
