"""``capstate trace``: histories of every form judged and shortened, and whatever else a file may hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capstate.cli import run
from capstate.trace import Call, Message, Outcome, Role, check, from_json, to_json

SECRET = "s3cret"  # noqa: S105 - a text that must not be printed
DOCUMENTS = Path(__file__).parents[1] / "corpus" / "providers"
RECORDED = Path(__file__).parents[2] / "experiments" / "recorded" / "pi"
TRACE = [
    Message("u1", Role.USER, SECRET),
    Message("a1", Role.ASSISTANT, SECRET, (Call("c1", "bank/pay", {SECRET: SECRET}), Call("c2", "git/log"))),
    Message("t1", Role.TOOL, SECRET * 100, result_for="c1", outcome=Outcome.OUTCOME_UNKNOWN),
    Message("t2", Role.TOOL, SECRET * 100, result_for="c2", outcome=Outcome.OK),
    Message("a2", Role.ASSISTANT, "so it is"),
    Message("u2", Role.USER, "go on"),
]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object) -> tuple[int, str, str]:
        status = run(["trace", *(str(one) for one in arguments)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(value: object) -> Path:
        path = tmp_path / "history.json"
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        return path

    return write


# -- check


def anthropic(*messages: Any) -> dict[str, Any]:
    return {"model": "claude-x", "max_tokens": 9, "system": "x", "messages": list(messages)}


ANTHROPIC = [
    {"role": "user", "content": SECRET},
    {"role": "assistant", "content": [
        {"type": "tool_use", "id": "c1", "name": "pay", "input": {}},
        {"type": "tool_use", "id": "c2", "name": "log", "input": {}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": SECRET},
        {"type": "tool_result", "tool_use_id": "c9", "content": SECRET},
    ]},
]  # fmt: skip
RESPONSES = [
    {"role": "user", "content": SECRET},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{}"},
    {"type": "function_call", "call_id": "c2", "name": "log", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": SECRET},
    {"type": "function_call_output", "call_id": "c9", "output": SECRET},
]
CHAT = [
    {"role": "user", "content": SECRET},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "log", "arguments": "{}"}},
    ]},
    {"role": "tool", "tool_call_id": "c1", "content": SECRET},
    {"role": "tool", "tool_call_id": "c9", "content": SECRET},
]  # fmt: skip
NEUTRAL = to_json([*TRACE[:3], Message("t9", Role.TOOL, SECRET, result_for="c9")])


@pytest.mark.parametrize("named", [True, False], ids=["named", "recognised"])
@pytest.mark.parametrize(
    ("value", "form", "places"),
    [
        (anthropic(*ANTHROPIC), "anthropic", ["messages[1]", "messages[2]"]),
        (ANTHROPIC, "anthropic", ["messages[1]", "messages[2]"]),
        ({"model": "gpt-x", "input": RESPONSES}, "openai-responses", ["input[1-3]", "input[5]"]),
        (RESPONSES, "openai-responses", ["input[1-3]", "input[5]"]),
        ({"model": "gpt-x", "messages": CHAT}, "openai-chat", ["messages[1]", "messages[3]"]),
        (CHAT, "openai-chat", ["messages[1]", "messages[3]"]),
        (NEUTRAL, "neutral", ["messages[1]", "messages[3]"]),
        (NEUTRAL["messages"], "neutral", ["messages[1]", "messages[3]"]),
    ],
    ids=["anthropic body", "anthropic list", "responses body", "responses list", "chat body", "chat list", "neutral",
         "neutral list"],
)  # fmt: skip
def test_each_form_is_read_and_all_faults_are_placed(
    value: Any, form: str, places: list[str], *, named: bool, told: Any, file: Any
) -> None:
    """A call without a result and a result without a call: where in the file, and which call; never a text."""
    asked = ("check", file(value), *(("--format", form) if named else ()))
    status, out, err = told(*asked, "--json")
    found = json.loads(out)

    assert (status, err) == (1, "")
    assert found["format"] == form
    assert [(f["kind"], f["place"], f["call"]) for f in found["faults"]] == [
        ("missing_result", places[0], "c2"),
        ("orphan", places[1], "c9"),
    ]
    status, table, err = told(*asked)
    assert (status, err, len(table.splitlines())) == (1, "", 3)
    assert all(word in table for word in ("missing_result", "orphan", *places, "c2", "c9", "faults 2", form))
    assert SECRET not in out + table


def test_a_legal_history_is_good(told: Any, file: Any) -> None:
    """Status 0; one line."""
    assert told("check", file(to_json(TRACE))) == (0, "neutral: messages 6, calls 2, faults 0\n", "")
    status, out, _ = told("check", file([]), "--json")
    assert (status, json.loads(out)["messages"]) == (0, 0)


def test_messages_without_ids_get_those_of_their_places(told: Any, file: Any) -> None:
    """Else they could not be named as sources; an id that is taken is left to whom it belongs."""
    plain = [{"id": "", "role": "user", "text": "x" * 900} for _ in range(3)]
    plain[2]["id"] = "messages[0]"
    made = json.loads(told("compact", file(plain), "--budget", 1200, "--json")[1])
    assert made["compaction"]["sources"] == ["messages[0].1", "messages[1]"]
    results = [{"type": "tool_result", "tool_use_id": c, "content": "x" * 900} for c in ("c1", "c2")]
    asked = [*ANTHROPIC[:2], {"role": "user", "content": results}, {"role": "user", "content": "go on"}]
    made = json.loads(told("compact", file(anthropic(*asked)), "--budget", 900, "--json")[1])
    assert made["compaction"]["sources"] == ["messages[0]", "messages[1]", "messages[2]", "messages[2].1"]


@pytest.mark.parametrize("text", ["just words", [{"type": "input_text", "text": "words"}]], ids=["text", "blocks"])
def test_an_input_of_text_alone_is_one_message(text: Any, told: Any, file: Any) -> None:
    """Responses takes text for a list."""
    value = {"model": "gpt-x", "input": text if isinstance(text, str) else [{"role": "user", "content": text}]}
    assert told("check", file(value))[:2] == (0, "openai-responses: messages 1, calls 0, faults 0\n")


@pytest.mark.parametrize("content", [SECRET, [{"type": "text", "text": SECRET}]], ids=["text", "blocks"])
def test_what_nothing_tells_is_not_guessed(content: Any, told: Any, file: Any) -> None:
    """Words alone look the same in two forms; named, each reads them."""
    plain = file([{"role": "user", "content": content}])
    status, out, err = told("check", plain)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "--format" in err
    for form in ("anthropic", "openai-chat"):
        assert told("check", plain, "--format", form)[0] == 0


def test_a_form_that_is_named_is_held_to(told: Any, file: Any) -> None:
    """The file is not read as if it were another."""
    for value, form in ((CHAT, "anthropic"), (ANTHROPIC, "openai-chat"), (CHAT, "openai-responses"), (CHAT, "neutral"),
                        (NEUTRAL, "openai-chat"), (ANTHROPIC, "pi"), (anthropic(*ANTHROPIC), "neutral")):  # fmt: skip
        status, out, err = told("check", file(value), "--format", form)
        assert (status, out, err.count("\n")) == (2, "", 1), form
        assert SECRET not in err


def test_a_session_of_pi_is_read_as_its_model_sees_it(told: Any) -> None:
    """The summary in place of what it stands for; places are lines."""
    path = RECORDED / "s02-load-point-compacted" / "session.jsonl"
    status, out, _ = told("check", path, "--json")
    assert status == 0
    assert json.loads(out) == {"format": "pi", "messages": 9, "calls": 1, "damage": 0, "faults": []}


def pi(*messages: dict[str, Any]) -> bytes:
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "s"}]
    for n, message in enumerate(messages):
        entry = message if "type" in message else {"type": "message", "message": message}
        lines.append({"id": f"e{n}", "parentId": f"e{n - 1}" if n else None, **entry})
    return b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"


def said(*calls: str, stop: str = "toolUse") -> dict[str, Any]:
    blocks = [{"type": "toolCall", "id": id_, "name": "pay", "arguments": {"x": SECRET}} for id_ in calls]
    return {"role": "assistant", "content": [{"type": "text", "text": SECRET}, *blocks], "stopReason": stop}


def result(call: str) -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": call, "toolName": "pay", "content": SECRET, "isError": True}


@pytest.mark.parametrize(
    ("entries", "faults"),
    [
        ([said("c1", "c2"), result("c2")], [("missing_result", "line 2", "c1")]),
        ([said("c1"), result("c1"), result("c1")], [("duplicate_result", "line 4", "c1")]),
        ([said("c1", stop="aborted"), result("c1")], [("orphan", "line 3", "c1")]),
        ([said("c1", stop="error")], []),
        ([said("c1"), result("c1"), said("c1"), result("c1")], []),
        ([said("c1"), {"role": "bashExecution", "output": SECRET}, result("c1")], [("order", "line 4", "c1")]),
        ([said("c1"), result("c1"), {"type": "compaction", "summary": SECRET, "firstKeptEntryId": "e1"}],
         [("orphan", "line 3", "c1")]),
        ([said("c1"), {"type": "compaction", "summary": SECRET, "retainedTail": [result("c1")]}],
         [("orphan", "line 3", "c1")]),
        ([said("c1"), {"type": "custom_message", "content": SECRET}, {"type": "branch_summary", "summary": SECRET}],
         [("missing_result", "line 2", "c1")]),
        ([{"role": "branchSummary", "summary": SECRET}, {"type": "compaction", "summary": SECRET,
          "firstKeptEntryId": "e0", "systemMessage": {"role": "system", "content": SECRET}}], []),
    ],
    ids=["missing", "twice", "aborted", "failed", "id again", "order", "cut inside", "tail cut", "in between", "whole"],
)  # fmt: skip
def test_faults_of_a_pi_session_are_found(
    entries: list[dict[str, Any]], faults: list[tuple[str, str, str]], told: Any, file: Any
) -> None:
    """By the path of its leaf, as its model is sent it."""
    status, out, err = told("check", file(pi(*entries)), "--json")
    assert [(f["kind"], f["place"], f["call"]) for f in json.loads(out)["faults"]] == faults
    assert (status, err) == (1 if faults else 0, "")
    assert SECRET not in out


def test_a_session_of_the_first_version_has_no_ids(told: Any, file: Any) -> None:
    """Those of its lines are taken."""
    lines = [{"type": "session", "id": "s"}, *({"type": "message", "message": m} for m in (said("c1"), result("c2")))]
    text = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"
    status, out, _ = told("check", file(text), "--json")
    assert status == 1
    assert [(f["kind"], f["place"], f["message"]) for f in json.loads(out)["faults"]] == [
        ("missing_result", "line 2", "line-2"),
        ("orphan", "line 3", "line-3"),
    ]


@pytest.mark.parametrize("budget", [0, 700, 3000])
def test_every_recorded_session_can_be_compacted(budget: int, told: Any, file: Any) -> None:
    """What is printed is legal, holds the same outcomes, and is read again."""
    for path in sorted(RECORDED.glob("*/session.jsonl")):
        status, out, err = told("compact", path, "--budget", budget, "--json")
        made = json.loads(out)
        assert (status, err) == (int(made["compaction"]["over"] > 0), "")
        assert check(from_json(made)) == ()
        assert told("check", file(made))[0] == 0


def test_a_damaged_session_is_not_good(told: Any, file: Any) -> None:
    """What could not be read may have been a result."""
    status, out, _ = told("check", file(pi(said("c1"), result("c1")) + b"{torn\n"))
    assert (status, out.splitlines()[-1]) == (1, "places of the file that could not be read: 1")


# -- compact


def test_a_compacted_history_can_be_read_again(told: Any, file: Any) -> None:
    """Neutral JSON of a legal trace: outcomes kept, sources named; a second time nothing is left to do."""
    status, out, err = told("compact", file(to_json(TRACE)), "--budget", 800, "--json")
    made = json.loads(out)
    messages = from_json(made)

    assert (status, err) == (0, "")
    assert check(messages) == ()
    assert made["compaction"]["sources"] == ["u1", "a1", "t1", "t2"]
    assert made["compaction"]["after"] <= 800 < made["compaction"]["before"]
    assert [row.outcome for row in messages[0].rows] == [Outcome.OUTCOME_UNKNOWN, Outcome.OK]
    again = json.loads(told("compact", file(made), "--budget", 800, "--json")[1])
    assert again["messages"] == made["messages"]
    assert again["compaction"]["strategy"] == "none"


@pytest.mark.parametrize("value", [anthropic(*ANTHROPIC[:2]), {"input": RESPONSES[:5]}, CHAT[:3]], ids=["a", "r", "c"])
def test_native_forms_are_kept_and_an_open_unit_stays(value: Any, told: Any, file: Any) -> None:
    """A call without a result is not summarised away: it stays, is named, and the status says so."""
    status, out, _ = told("compact", file(value), "--budget", 0, "--json")
    made = json.loads(out)
    assert status == 1
    assert {row["why"] for row in made["compaction"]["kept"]} == {"missing_result"}
    assert any("native" in message for message in made["messages"])
    status, table, _ = told("compact", file(value), "--budget", 0)
    assert (status, SECRET in table) == (1, False)
    assert "missing_result" in table


def test_what_must_be_repaired_first_is_listed_and_not_compacted(told: Any, file: Any) -> None:
    """As check lists it."""
    for more in ((), ("--json",)):
        status, out, err = told("compact", file(CHAT), "--budget", 0, *more)
        assert (status, err, SECRET in out) == (1, "", False)
        assert "orphan" in out
        assert "strategy" not in out


def test_a_budget_that_cannot_be_kept_is_told(told: Any, file: Any) -> None:
    """The latest request stays, and what is over is said."""
    status, out, _ = told("compact", file(to_json(TRACE)), "--budget", 1)
    assert status == 1
    assert "over the budget by" in out
    status, out, _ = told("compact", file(to_json(TRACE)), "--budget", 100_000)
    assert (status, out.partition(":")[0]) == (0, "none")


# -- what else a file may hold


NO_HISTORY = [
        b"", b"{", b"\xff\xfe", b"null", b"3", b'"x"', b"NaN", b'{"messages": 3}', b'{"messages": {"role": 3}}',
        b'{"messages": [3]}', b'{"input": {"a": 1}}', b'{"input": [null]}', b'{"trace": 9, "messages": []}',
        b'{"trace": 1, "messages": [{"id": "m", "role": "user", "s3cret": 1}]}', b"[[]]", b"[" * 5000,
        b"[" * 900 + b"]" * 900, b'{"type": "session"}', b'{"messages": [{"role": ["tool"]}], "system": 1}',
        json.dumps({"role": "assistant", "content": [{"type": "text", "text": SECRET}]}).encode(),
        json.dumps([{"role": "tool", "tool_call_id": 3, "content": SECRET}]).encode(),
        json.dumps([{"role": "tool", "tool_call_id": "c", "content": {SECRET: 1}}]).encode(),
        pi({"role": SECRET}), pi({"role": "user", "content": 3}), pi({"role": "toolResult", "content": []}),
        pi({"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "t", "arguments": SECRET}]}),
        pi({"role": "assistant", "content": [{"type": "toolCall"}]}),
        pi({"role": "user", "content": [{"type": "text", "text": [SECRET]}]}),
        pi({"type": "compaction", "summary": 3}), pi({"type": "compaction", "summary": "", "retainedTail": [3]}),
]  # fmt: skip


@pytest.mark.parametrize("verb", [("check",), ("compact", "--budget", 10)], ids=["check", "compact"])
@pytest.mark.parametrize("number", range(len(NO_HISTORY)))
def test_what_is_no_history_is_one_line(number: int, verb: tuple[Any, ...], told: Any, file: Any) -> None:
    """Status 2, nothing on the output, and no text of the file in the error."""
    status, out, err = told(verb[0], file(NO_HISTORY[number]), *verb[1:])
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("capstate: ")
    assert SECRET not in err


def test_what_cannot_be_opened_is_one_line(tmp_path: Path, told: Any, file: Any) -> None:
    """A folder, a link, nothing, a budget that is none; a command that lacks one."""
    link = tmp_path / "link"
    link.symlink_to(file(to_json(TRACE)))
    for asked in (
        ("check", tmp_path),
        ("check", link),
        ("check", tmp_path / "gone"),
        ("check", ""),
        ("check", file([]), "--format", "xml"),
        ("compact", file([])),
        ("compact", file([]), "--budget", "-1"),
        ("compact", file([]), "--budget", "1.5"),
    ):
        status, out, err = told(*asked)
        assert (status, out) == (2, ""), asked
        assert err.count("\n") == 1, asked


def test_names_that_a_terminal_would_act_on_are_escaped(told: Any, file: Any) -> None:
    """Ids come from strangers' files."""
    odd = [Message("a", Role.ASSISTANT, calls=(Call("c\x1b[2J\n1", "t"),))]
    for asked in (("check", file(to_json(odd))), ("compact", file(to_json(odd)), "--budget", 0)):
        out = told(*asked)[1]
        assert "\x1b" not in out
        assert "\\u001b" in out


@pytest.mark.parametrize("depth", [50, 150, 250, 900, 1000])
@pytest.mark.parametrize("make", ["neutral", "anthropic", "chat"])
def test_deep_arguments_are_read_or_refused(depth: int, make: str, told: Any, file: Any) -> None:
    """However deep they nest, there is an answer, and it is no fault of capstate."""
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    shapes = {
        "neutral": b'[{"id":"a","role":"assistant","calls":[{"id":"c","tool":"t","arguments":%s}]}]',
        "anthropic": b'[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"t","input":%s}]}]',
        "chat": b'[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"t","arguments":%s}}]}]',
    }
    text = json.dumps(deep.decode()).encode() if make == "chat" else deep
    for verb in (("check",), ("compact", "--budget", 0), ("compact", "--budget", 0, "--json")):
        status, _, err = told(verb[0], file(shapes[make] % text), *verb[1:])
        assert status == (1 if depth < 200 else 2)
        assert err.count("\n") == (status == 2)


KEYS = ["role", "content", "type", "id", "call_id", "tool_call_id", "tool_use_id", "tool_calls", "function", "name",
        "arguments", "input", "messages", "trace", "text", "calls", "tool", "result_for", "covers", "rows",
        "output"]  # fmt: skip
WORDS = ["user", "assistant", "tool", "system", "summary", "tool_use", "tool_result", "function_call",
         "function_call_output", "message", "reasoning", "compaction", "text", "c1", "", "ok"]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)
ITEMS = st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=6), max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=ITEMS | JSON | st.fixed_dictionaries({"messages": ITEMS}) | st.fixed_dictionaries({"input": ITEMS}),
    form=st.sampled_from(["auto", "neutral", "anthropic", "openai-responses", "openai-chat", "pi"]),
)
def test_no_json_is_a_fault_of_capstate(value: Any, form: str, told: Any, file: Any) -> None:
    """Whatever stands in the file, and whatever it is taken for: a verdict, or one line."""
    path = file(value)
    for verb in (("check",), ("compact", "--budget", "40"), ("compact", "--budget", "0", "--json")):
        status, out, err = told(verb[0], path, "--format", form, *verb[1:])
        assert status in (0, 1, 2), err
        assert (status == 2) == (out == "") == (err.count("\n") == 1)
