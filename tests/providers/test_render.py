"""Requests as they are rendered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capstate.errors import InvalidInputError, MalformedError
from capstate.projection import Mark, Profile, Projection
from capstate.providers import anthropic, for_api, openai_chat, openai_responses
from capstate.trace import Call, Message, Outcome, Role
from tests.providers.worlds import (
    DEFERRING,
    PROFILES,
    WIRE_JSON,
    World,
    messages_of,
    of_wire,
    placed,
    projection,
    recorded,
    without_ids,
    worlds,
)


def encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


def pairs(items: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, str]], list[str]]:
    """Calls (id, name) and answered ids on the wire, in order, for any API; the library is not asked."""
    calls: list[tuple[str, str]] = []
    answers: list[str] = []
    for item in items:
        if item.get("type") == "function_call":
            calls.append((item["call_id"], item["name"]))
        if item.get("type") == "function_call_output":
            answers.append(item["call_id"])
        calls += [(c["id"], c["function"]["name"]) for c in item.get("tool_calls") or ()]
        if item.get("role") == "tool":
            answers.append(item["tool_call_id"])
        for block in item["content"] if isinstance(item.get("content"), list) else ():
            if block["type"] == "tool_use":
                calls.append((block["id"], block["name"]))
            if block["type"] == "tool_result":
                answers.append(block["tool_use_id"])
    return calls, answers


def home(profile: Profile, items: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """Behind which tool result (counted from 0) the wire loads ``name``; of a round in Chat, its last."""
    results = -1
    for item in items:
        if item.get("type") == "function_call_output" or item.get("role") == "tool":
            results += 1
        elif item.get("type") in {"tool_search_output", "additional_tools"} or (
            item.get("role") == "system" and "tools" in item
        ):
            if name in {t["name"] if "name" in t else t["function"]["name"] for t in item["tools"]}:
                return results
        elif profile.defers == "tool_reference" and isinstance(item.get("content"), list):
            for block in item["content"]:
                if block["type"] == "tool_result":
                    results += 1
                    references = block["content"] if isinstance(block["content"], list) else []
                    if {"type": "tool_reference", "tool_name": name} in references:
                        return results
    return None


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@given(world=worlds())
def test_the_wire_shows_exactly_the_projection(profile: Profile, world: World) -> None:
    """Read back, a rendered body makes exactly the projection's tools callable, by their own definitions."""
    body = profile.adapter.render(profile, world.shown, world.history)
    seen = profile.adapter.on_wire(body)
    shown = [*world.shown.immediate, *world.shown.deferred]
    assert seen.effective == {p.wire for p in shown}
    assert (seen.unloaded, seen.referenced, seen.withdrawn, dict(seen.unknown)) == ((), (), (), {})
    assert all(seen.definitions[p.wire] == {"description": "d", "schema": p.definition.tool.schema} for p in shown)
    deferred = {p.wire for p in world.shown.deferred} if profile.defers else set()
    assert set(seen.deferred) == deferred


@pytest.mark.parametrize("native", [False, True], ids=["neutral", "native"])
@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@given(world=worlds(), kept=st.lists(st.booleans(), max_size=40), from_=st.integers(0, 12))
def test_whatever_was_cut_away_nothing_is_lost_or_added(
    profile: Profile, native: bool, world: World, kept: list[bool], from_: int
) -> None:
    """Messages taken out anywhere, a call whose result stays and a result whose call is gone among them."""
    history: list[Any] = list(world.history)
    if native:
        history = messages_of(profile.adapter.render(profile, world.shown, history))
    cut = [m for n, m in enumerate(history) if n >= from_ and (n >= len(kept) or kept[n])]
    body = profile.adapter.render(profile, world.shown, cut)

    assert profile.adapter.on_wire(body).effective == {p.wire for p in (*world.shown.immediate, *world.shown.deferred)}


@pytest.mark.parametrize("shown", [projection([]), projection([placed("load")])])
@pytest.mark.parametrize("search", [False, True])
def test_a_search_result_without_its_search_is_left_out(shown: Projection, search: bool) -> None:
    """As a history that was cut between the two holds it."""
    tools = [{"type": "function", "name": "gone", "parameters": {}}]
    asked = [{"type": "tool_search_call", "call_id": "t", "execution": "client", "arguments": {}}] if search else []
    history = [*asked, {"type": "tool_search_output", "call_id": "t", "execution": "client", "tools": tools}]
    for profile in PROFILES.values():
        if profile.issuer.api == "openai-responses":
            assert profile.adapter.render(profile, shown, history)["input"] == []


@pytest.mark.parametrize("profile", DEFERRING.values(), ids=DEFERRING)
@given(world=worlds())
def test_deferred_tools_stand_at_their_mark(profile: Profile, world: World) -> None:
    """Each deferred tool is loaded behind the result at its mark, also when ids repeat; in Chat behind its round."""
    items = messages_of(profile.adapter.render(profile, world.shown, world.history))
    rounds, last = [m.role for m in world.history], {}
    results = -1
    for n, role in enumerate(rounds):
        if role is Role.TOOL:
            results += 1
            end = n
            while end + 1 < len(rounds) and rounds[end + 1] is Role.TOOL:
                end += 1
            last[results] = results + end - n
    for name, expected in world.homes.items():
        assert home(profile, items, name) == (last[expected] if profile.defers == "system_tools" else expected)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@given(world=worlds())
def test_call_ids_are_one_to_one_legal_and_answered(profile: Profile, world: World) -> None:
    """Every call has an id of its own that the provider takes, its result the same one, and no stored id changes."""
    before = [(m, m.calls) for m in world.history]
    calls, answers = pairs(messages_of(profile.adapter.render(profile, world.shown, world.history)))
    ids = [i for i, _ in calls]
    assert len(set(ids)) == len(ids) == sum(len(m.calls) for m in world.history)
    assert answers == ids
    assert all(0 < len(i) <= 64 for i in ids)
    if profile.issuer.api == "anthropic-messages":
        assert all(c.isascii() and (c.isalnum() or c in "_-") for i in ids for c in i)
    assert [(m, m.calls) for m in world.history] == before


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@given(world=worlds(), cut=st.integers(0, 20))
def test_a_longer_history_keeps_what_was_sent(profile: Profile, world: World, cut: int) -> None:
    """What follows later changes no message in front of it, ids included, as long as no load point is added."""
    bare = projection(world.shown.immediate)
    ends = [n + 1 for n, m in enumerate(world.history) if m.role in {Role.USER, Role.SUMMARY}]
    start = world.history[: ends[cut % len(ends)]]
    part = messages_of(profile.adapter.render(profile, bare, start))
    whole = messages_of(profile.adapter.render(profile, bare, world.history))
    assert whole[: len(part)] == part


@pytest.mark.parametrize("profile", DEFERRING.values(), ids=DEFERRING)
@given(world=worlds())
def test_a_group_loaded_later_leaves_the_tools_in_front_alone(profile: Profile, world: World) -> None:
    """Without the last mark the tools part is a prefix of the tools part with it."""
    deferred = world.shown.deferred
    fewer = projection(world.shown.immediate, deferred[:-1])
    less = profile.adapter.render(profile, fewer, world.history)["tools"]
    more = profile.adapter.render(profile, world.shown, world.history)["tools"]
    assert more[: len(less)] == less
    if profile.defers != "tool_reference":
        assert more == less


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@given(world=worlds(repeats=False))
def test_rendering_what_was_rendered_changes_nothing(profile: Profile, world: World) -> None:
    """A rendered list goes through again byte for byte: no load point twice, none changed."""
    once = messages_of(profile.adapter.render(profile, world.shown, world.history))
    again = profile.adapter.render(profile, world.shown, once)
    assert encoded(messages_of(again)) == encoded(once)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@given(world=worlds())
def test_equal_input_gives_equal_bytes(profile: Profile, world: World) -> None:
    """Rendering twice gives the same bytes, and so does the same history made again."""
    copied = [evolve(m) for m in world.history]
    first = profile.adapter.render(profile, world.shown, world.history)
    assert encoded(profile.adapter.render(profile, world.shown, copied)) == encoded(first)


@pytest.mark.parametrize("profile", DEFERRING.values(), ids=DEFERRING)
@given(world=worlds(repeats=False))
def test_marks_are_read_back(profile: Profile, world: World) -> None:
    """The load points of a rendered list name every deferred tool once."""
    api: Any = profile.adapter
    items = messages_of(api.render(profile, world.shown, world.history))
    names = [n for point in api.marks(items) for n in point.names]
    assert sorted(names) == sorted(world.homes)
    assert all(point.call is not None for point in api.marks(items))


@pytest.mark.parametrize("profile", DEFERRING.values(), ids=DEFERRING)
@given(world=worlds(repeats=False))
def test_a_mark_without_entry_ids_is_found_by_its_call(profile: Profile, world: World) -> None:
    """Where the host's messages have no ids, the call of the mark is enough."""
    with_ids = messages_of(profile.adapter.render(profile, world.shown, world.history))
    assert messages_of(profile.adapter.render(profile, world.shown, without_ids(world.history))) == with_ids


@pytest.mark.parametrize("profile", DEFERRING.values(), ids=DEFERRING)
def test_a_mark_that_the_history_lost_makes_the_tool_immediate(profile: Profile) -> None:
    """No tool is lost on the way: without its place it stands in front."""
    shown = projection([placed("load")], [placed("late", Mark(1, "gone", "gone"))])
    seen = profile.adapter.on_wire(profile.adapter.render(profile, shown, [Message("u", Role.USER, "hi")]))
    assert seen.immediate == ("load", "late")


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_no_tools_no_key(profile: Profile) -> None:
    """An empty tools part is left out."""
    body = profile.adapter.render(profile, projection([]), [Message("u", Role.USER, "hi")])
    assert "tools" not in body
    assert len(messages_of(body)) == 1


def rendered(name: str, history: list[Any], *now: str, **later: Mark) -> Any:
    profile = PROFILES[name]
    shown = projection([placed(n) for n in now], [placed(n, mark) for n, mark in later.items()])
    return messages_of(profile.adapter.render(profile, shown, history))


ROUND = [
    Message("a", Role.ASSISTANT, "", (Call("c1", "load"), Call("c2", "g/load"))),
    Message("r1", Role.TOOL, "one", result_for="c1", outcome=Outcome.OK),
    Message("r2", Role.TOOL, "two", result_for="c2", outcome=Outcome.DENIED),
]


def test_anthropic_form() -> None:
    """One user message holds all results; the mark's holds references, and its text follows all results."""
    assert rendered("anthropic", ROUND, "load", late=Mark(1, "r1", "c1")) == [
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "c1", "name": "load", "input": {}},
                {"type": "tool_use", "id": "c2", "name": "load", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "tool_reference", "tool_name": "late"}],
                },
                {"type": "tool_result", "tool_use_id": "c2", "content": "[outcome: denied]\ntwo", "is_error": True},
                {"type": "text", "text": "one"},
            ],
        },
    ]


def test_anthropic_definitions_are_immediate_then_deferred() -> None:
    """Deferred definitions stand behind the immediate ones and say so."""
    profile = PROFILES["anthropic"]
    shown = projection([placed("load")], [placed("late", Mark(1, "r1", "c1"))])
    assert profile.adapter.render(profile, shown, ROUND)["tools"] == [
        {"name": "load", "description": "d", "input_schema": {"type": "object", "properties": {}}},
        {
            "name": "late",
            "description": "d",
            "input_schema": {"type": "object", "properties": {}},
            "defer_loading": True,
        },
    ]


def test_responses_search_form() -> None:
    """Behind the mark's result stand a search and its output with the definition, under one stable id."""
    items = rendered("responses-search", ROUND, "load", late=Mark(1, "r1", "c1"))
    assert [i.get("type") for i in items] == [
        "function_call", "function_call", "function_call_output", "tool_search_call", "tool_search_output",
        "function_call_output",
    ]  # fmt: skip
    call, output = items[3:5]
    assert call["call_id"] == output["call_id"]
    assert len(call["call_id"]) <= 64
    assert (call["execution"], output["execution"], output["status"]) == ("client", "client", "completed")
    parameters = {"type": "object", "properties": {}}
    tool = {"type": "function", "name": "late", "description": "d", "parameters": parameters, "strict": False}
    assert output["tools"] == [{**tool, "defer_loading": True}]
    assert rendered("responses-additional", ROUND, "load", late=Mark(1, "r1", "c1"))[3] == {
        "type": "additional_tools", "role": "developer", "tools": [tool],
    }  # fmt: skip


def test_chat_form() -> None:
    """Behind all results of the round stands a system message with ``tools`` and no content."""
    items = rendered("chat-system", ROUND, "load", late=Mark(1, "r1", "c1"))
    assert [i["role"] for i in items] == ["assistant", "tool", "tool", "system"]
    function = {"name": "late", "description": "d", "parameters": {"type": "object", "properties": {}}}
    assert items[3] == {"role": "system", "tools": [{"type": "function", "function": function}]}
    assert items[0]["content"] is None
    assert items[2]["content"] == "[outcome: denied]\ntwo"


@pytest.mark.parametrize("name", PROFILES)
def test_results_are_moved_behind_their_calls(name: str) -> None:
    """A neutral message between a call and its result goes behind the result."""
    mixed = [ROUND[0], ROUND[1], Message("u", Role.USER, "between"), ROUND[2]]
    assert rendered(name, mixed) == rendered(name, [*ROUND, Message("u", Role.USER, "between")])


@pytest.mark.parametrize("name", PROFILES)
def test_a_result_without_its_call_is_told_as_text(name: str) -> None:
    """An orphan is refused by every provider; its text is sent as the user's."""
    items = rendered(name, [Message("r", Role.TOOL, "lonely", result_for="c9")])
    assert [i["role"] for i in items] == ["user"]
    assert "lonely" in json.dumps(items)
    assert pairs(items) == ([], [])


@pytest.mark.parametrize("name", PROFILES)
def test_a_neutral_result_answers_a_native_call(name: str) -> None:
    """A host may answer a provider's own call with a neutral message (a refusal): the id is the provider's."""
    profile = PROFILES[name]
    native = rendered(name, [Message("a", Role.ASSISTANT, "", (Call("c1", "load"),))])
    items = messages_of(
        profile.adapter.render(
            profile, projection([placed("load")]), [*native, Message("", Role.TOOL, "no", result_for="c1")]
        )
    )
    assert items[: len(native)] == native
    assert pairs(items)[1] == ["c1"]


@pytest.mark.parametrize("name", PROFILES)
def test_names_of_tools_that_are_gone_stay_legal_and_apart(name: str) -> None:
    """Calls of tools that are not callable keep a legal name, one to one."""
    tools = ["g/gone", "g/gone.x", "g/gone_x", "bare name", "plain", "/", "*"]
    calls = tuple(Call(f"c{n}", tool) for n, tool in enumerate(tools))
    names = [n for _, n in pairs(rendered(name, [Message("a", Role.ASSISTANT, "", calls)]))[0]]
    assert len(set(names)) == len(tools)
    assert all(PROFILES[name].names.legal(n) for n in names)
    assert names[0] == "g__gone"
    assert names[4] == "plain"


@pytest.mark.parametrize("name", PROFILES)
def test_broken_arguments_survive_the_way(name: str) -> None:
    """A model's broken JSON is kept as it was written."""
    item = {"type": "function_call", "call_id": "c", "name": "x", "arguments": '{"a": '}
    (message,) = openai_responses.read([item])
    assert rendered(name, [evolve(message, native=None)])
    again = rendered("chat-flat", [evolve(message, native=None)])
    assert again[0]["tool_calls"][0]["function"]["arguments"] == '{"a": '


# --- opaque items

SECRET = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}


def opaque(issuer: str, **more: Any) -> Message:
    covered = (Message("m1", Role.USER, "covered text"),)
    return Message(
        "o", Role.OPAQUE, issuer=issuer, native=SECRET, api="openai-responses", covers=("m1",), covered=covered, **more
    )


def test_opaque_item_goes_to_its_issuer_alone_and_as_it_is() -> None:
    """Its issuer gets the very item and none of what it covers; anyone else gets what it covers and no byte of it."""
    own = PROFILES["responses-additional"]
    assert rendered("responses-additional", [opaque(own.issuer.id)]) == [SECRET]
    for name in PROFILES:
        for issuer in ("openai/openai-responses/gpt-x/other", "", own.issuer.id):
            if name.startswith("responses") and issuer == own.issuer.id:
                continue
            said = json.dumps(rendered(name, [opaque(issuer)]))
            assert "gAAAA" not in said
            assert said.count("covered text") == 1


def test_covered_messages_that_the_history_holds_are_said_once() -> None:
    """A covered message that is in the history anyway is not sent a second time."""
    items = rendered("chat-flat", [Message("m1", Role.USER, "covered text"), opaque("someone")])
    assert json.dumps(items).count("covered text") == 1


def test_native_messages_of_another_issuer_are_made_afresh() -> None:
    """A native message that names another issuer is sent in neutral form, without its signatures."""
    native = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "", "signature": "sig"}, {"type": "text", "text": "hi"}],
    }
    message = Message("a", Role.ASSISTANT, "hi", native=native, api="anthropic-messages")
    assert rendered("anthropic", [message]) == [native]
    foreign = evolve(message, issuer="anthropic/anthropic-messages/claude-x/other")
    assert rendered("anthropic", [foreign]) == [{"role": "assistant", "content": [{"type": "text", "text": "hi"}]}]


def signed(kind: str, name: str) -> dict[str, Any]:
    changes = [{"type": kind, "tool": {"type": "tool_reference", "name": name}}]
    block = {"type": "compaction", "content": "what was said", "signature": "sig", "tool_changes": changes}
    return {"role": "assistant", "content": [block]}


@pytest.mark.parametrize(("kind", "name", "passes"), [
    ("tool_addition", "load", True),
    ("tool_addition", "revoked", False),
    ("tool_removal", "load", False),
    ("tool_removal", "revoked", True),
])  # fmt: skip
def test_signed_block_that_contradicts_the_projection_is_said_in_words(kind: str, name: str, *, passes: bool) -> None:
    """The block cannot be edited: it goes whole while it agrees with the projection, else its text goes instead."""
    block = signed(kind, name)
    items = rendered("anthropic", [block], "load")
    assert items == ([block] if passes else [{"role": "user", "content": [{"type": "text", "text": "what was said"}]}])
    held = Message("o", Role.OPAQUE, issuer=PROFILES["anthropic"].issuer.id, native=block, api="anthropic-messages",
                   covered=(Message("s", Role.SUMMARY, "what was said"),))  # fmt: skip
    assert rendered("anthropic", [held], "load") == items


# --- native histories


def result(*names: str) -> list[Any]:
    references = [{"type": "tool_reference", "tool_name": n} for n in names]
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "load", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": references}]},
    ]


def test_references_to_uncallable_tools_are_taken_out() -> None:
    """A revoked name leaves the reference list; an emptied list becomes a text that names no tool."""
    mark = Mark(1, None, "c1")
    assert rendered("anthropic", result("late", "revoked"), "load", late=mark) == result("late")
    emptied = rendered("anthropic", result("revoked"), "load")
    assert "revoked" not in json.dumps(emptied)
    assert isinstance(emptied[1]["content"][0]["content"], str)


def test_typed_changes_of_an_old_history_do_not_speak_against_the_projection() -> None:
    """Removals and additions by value that the projection does not hold are taken out, an emptied message with them."""
    addition = {
        "type": "tool_addition",
        "tool": {"type": "tool_definition", "definition": {"name": "revoked", "input_schema": {}}},
    }
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "load"}}
    system = {"role": "system", "content": [addition, removal]}
    user = {"role": "user", "content": "hi"}
    assert rendered("anthropic", [user, system], "load") == [user]
    noted = {"role": "system", "content": [removal, {"type": "text", "text": "note"}]}
    assert rendered("anthropic", [user, noted], "load") == [user, {"role": "system", "content": [noted["content"][1]]}]


def carried(name: str, description: str = "d") -> dict[str, Any]:
    schema = {"type": "object", "properties": {}}
    return {"type": "function", "name": name, "description": description, "parameters": schema}


@pytest.mark.parametrize("name", ["responses-search", "responses-additional"])
def test_definitions_carried_by_old_items_are_kept_only_if_they_are_the_projections(name: str) -> None:
    """A carried definition of a revoked or changed tool is taken out; an emptied item goes, its search too."""
    call = {"type": "tool_search_call", "call_id": "s", "execution": "client", "status": "completed", "arguments": {}}
    output = {"type": "tool_search_output", "call_id": "s", "execution": "client", "status": "completed"}
    user = {"role": "user", "content": "hi"}

    def with_tools(*tools: Any) -> list[Any]:
        return [user, call, {**output, "tools": list(tools)}]

    late = Mark(1, "elsewhere", "elsewhere")
    kept = with_tools(carried("late"))
    assert rendered(name, kept, "load", late=late) == kept
    assert rendered(name, with_tools(carried("late"), carried("revoked")), "load", late=late) == kept
    assert rendered(name, with_tools(carried("late", "changed")), "load", late=late) == [user]
    assert rendered(name, with_tools(carried("revoked")), "load") == [user]


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_recordings_go_back_unchanged(profile: Profile) -> None:
    """A recorded list, rendered by the projection that its own body shows, is the same list: no byte added or lost.

    Not for lists with typed removals, which the projection has already carried out, and for load points in
    another form or model than the profile's.
    """
    checked = 0
    for name, request in recorded():
        api: Any = profile.adapter
        if request["api"] != profile.issuer.api:
            continue
        seen, items = api.on_wire(request["body"]), messages_of(request["body"])
        shown = of_wire(seen, api.marks(items))
        made = messages_of(api.render(profile, shown, items))
        removed = any(p["item"] == "tool_removal" for p in request["wire"]["loadPoints"])
        if (profile.defers or not seen.deferred) and not removed:
            assert encoded(made) == encoded(items), name
            checked += 1
        assert api.on_wire(api.render(profile, shown, items)).effective == seen.effective, name
    assert checked > 0


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_recordings_can_move_to_any_provider(profile: Profile) -> None:
    """Any recorded history, read, renders for any provider: calls answered one to one, the callable set unchanged."""
    for name, request in recorded():
        source: Any = for_api(request["api"])
        items = messages_of(request["body"])
        shown = of_wire(source.on_wire(request["body"]), source.marks(items))
        body = profile.adapter.render(profile, shown, source.read(items))
        calls, answers = pairs(messages_of(body))
        assert [n for _, n in calls] == [n for _, n in pairs(items)[0]], name
        assert sorted(answers) == sorted(i for i, _ in calls), name
        assert profile.adapter.on_wire(body).effective == source.on_wire(request["body"]).effective, name


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@given(history=st.lists(WIRE_JSON, max_size=4))
def test_hostile_histories_are_rendered_or_refused(profile: Profile, history: list[Any]) -> None:
    """Native messages of any shape: a body that shows no tool beyond the projection, or a MalformedError."""
    shown = projection([placed("load")], [placed("late", Mark(1, None, "x"))])
    try:
        body = profile.adapter.render(profile, shown, history)
        seen = profile.adapter.on_wire(body)
    except (MalformedError, InvalidInputError):
        return
    assert seen.effective == {"load", "late"}


def test_a_history_of_another_api_is_told_as_that() -> None:
    """Whoever mixes up two APIs sees which one the message is of; an invented role is not repeated."""
    for profile, role, told in (
        (PROFILES["anthropic"], "tool", "a role of OpenAI Chat (tool)"),
        (PROFILES["anthropic"], "developer", "a role of OpenAI (developer)"),
        (PROFILES["responses-flat"], "function", "a role of OpenAI Chat (function)"),
        (PROFILES["chat-flat"], "<secret>", "another role"),
    ):
        with pytest.raises(MalformedError) as error:
            profile.adapter.read([{"role": role, "content": "x", "tool_call_id": "c"}])
        assert error.value.got == told


@pytest.mark.parametrize("made", [anthropic.profile, openai_chat.profile], ids=["anthropic", "chat"])
@pytest.mark.parametrize("defers", ["yes", "", 1, None, "tool_reference"])
def test_whether_it_defers_is_yes_or_no(made: Any, defers: Any) -> None:
    """A word is not taken for yes."""
    with pytest.raises(InvalidInputError, match=r"^defers: expected True or False"):
        made("m", defers=defers)


def test_profiles_refuse_words_they_do_not_know() -> None:
    """A deferral or API of another name is the caller's mistake."""
    with pytest.raises(InvalidInputError):
        openai_responses.profile("m", defers="wish")
    with pytest.raises(InvalidInputError):
        openai_responses.profile("m", api="openai-completions")
