"""Real sessions and the documents of three APIs: each is legal or has the right fault, and stays so when compacted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capstate.agents.pi import read_session
from capstate.agents.pi.history import history
from capstate.errors import InvalidInputError, MalformedError
from capstate.histories import read_history
from capstate.providers import for_api
from capstate.trace import Facts, Message, Risk, Role, Strategy, check, compact, extract, first_kept
from tests.providers.worlds import (
    APIS,
    DOCUMENTS,
    PROFILES,
    RECORDED,
    messages_of,
    of_wire,
    placed,
    projection,
    recorded,
)
from tests.trace.test_trace_laws import obeys

MANIFEST = json.loads((DOCUMENTS / "manifest.json").read_bytes())["fixtures"]
HERE = {one["file"]: one for one in MANIFEST if one["file"].partition("/")[0] in APIS}
REQUESTS = [name for name, one in HERE.items() if one["direction"] == "request"]
RESPONSES = [name for name, one in HERE.items() if one["direction"] == "response"]
SESSIONS = [str(path.relative_to(RECORDED)) for path in sorted(RECORDED.glob("*/session*.jsonl"))]

REJECTED = {
    "anthropic/invalid/orphan_result_request.json": [("orphan", "messages[0]", "toolu_01READ")],
    "openai_responses/invalid/orphan_output_request.json": [("orphan", "input[0]", "call_READ")],
    "openai_chat/invalid/missing_result_request.json": [("missing_result", "messages[1]", "call_GREP")],
    "anthropic/invalid/all_deferred_request.json": [],
    "anthropic/invalid/foreign_call_id_request.json": [],
    "openai_responses/invalid/wrong_item_id_request.json": [],
}
"""The faults of each document that its provider refuses. Where there are none, calls and results are in order: the
validator is the least that every provider needs, and what else one refuses is not its matter (TT-08)."""
DAMAGED = {"s09d-clone-loses-kept-range-at-label/session-clone.jsonl": 1}
"""Sessions of which not all can be read: the compaction keeps from an entry that the clone has lost."""
PAIRING = "pairing"


def form_of(name: str) -> str:
    return name.partition("/")[0].replace("_", "-")


def known_of(messages: list[Message], risk: Risk) -> Facts:
    keys = [call.key for message in messages for call in message.calls]
    return Facts(stored=set(keys), risks=dict.fromkeys(keys, risk))


def cuts(messages: list[Message]) -> Iterator[int]:
    """Every cut that a caller can wish, once for each border that it moves to."""
    seen = set()
    for keep in range(len(messages) + 1):
        at = first_kept(messages, keep_last=keep, running=())
        if at not in seen:
            seen.add(at)
            yield keep


# -- documents


def test_every_document_of_the_manifest_is_looked_at() -> None:
    """Requests and responses of three APIs, and each that is refused has its row."""
    files = {str(path.relative_to(DOCUMENTS)) for path in DOCUMENTS.glob("*/**/*.json")}

    assert set(REQUESTS) | set(RESPONSES) == files == set(HERE)
    assert {name for name, one in HERE.items() if one["expect"] == "api_reject"} == set(REJECTED)
    for name, faults in REJECTED.items():
        assert bool(faults) == (PAIRING in HERE[name]["rule"]), "a pairing that is refused is a fault, and nothing else"


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("named", [True, False], ids=["named", "recognised"])
def test_every_request_is_legal_or_has_the_right_fault(name: str, named: bool) -> None:
    """By the table; every other document has none."""
    found = read_history(DOCUMENTS / name, form_of(name) if named else None)

    assert found.form == form_of(name)
    assert found.damage == 0
    faults = [(fault.kind.value, found.place(fault), fault.call) for fault in check(found.messages)]
    assert faults == REJECTED.get(name, [])


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_is_no_history(name: str) -> None:
    """It is one message, and is not taken for a whole trace."""
    with pytest.raises(MalformedError):
        read_history(DOCUMENTS / name)


def profiles_of(api: str) -> dict[str, Any]:
    return {name: profile for name, profile in PROFILES.items() if profile.issuer.api == api}


@pytest.mark.parametrize("risk", [Risk.READ, Risk.IRREVERSIBLE])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_document_stays_valid_for_its_provider_at_every_cut(name: str, risk: Risk) -> None:
    """Rendered again for its API it is a request of that, reads back without a new fault, and shows the same tools."""
    found = read_history(DOCUMENTS / name)
    if any(fault.kind == "orphan" for fault in check(found.messages)):
        with pytest.raises(ValueError, match="a trace that was repaired"):
            compact(found.messages, facts=Facts(stored=None), summarise=extract, keep_last=1)
        return
    body = json.loads((DOCUMENTS / name).read_bytes())
    api = APIS[name.partition("/")[0]]
    source: Any = for_api(api)
    shown = of_wire(source.on_wire(body), source.marks(messages_of(body)))
    stays_valid(list(found.messages), known_of(list(found.messages), risk), api, shown)


def stays_valid(messages: list[Message], facts: Facts, api: str, shown: Any) -> None:
    """Compact at every legal cut, and ask the API's own reader."""
    for keep in cuts(messages):
        made = compact(messages, facts=facts, summarise=extract, keep_last=keep)
        obeys(messages, facts, made)
        was = {(fault.kind, fault.call) for fault in check(messages)}
        assert {(fault.kind, fault.call) for fault in check(made.messages)} <= was
        for profile in profiles_of(api).values():
            body = profile.adapter.render(profile, shown, made.messages)
            profile.adapter.recognise(body)
            read = profile.adapter.read(messages_of(body))
            assert {(fault.kind, fault.call) for fault in check(read)} <= was
            assert [c.tool for m in read for c in m.calls] == [c.tool for m in made.messages for c in m.calls]
            seen = profile.adapter.on_wire(body)
            assert seen.effective == {placed.wire for placed in (*shown.immediate, *shown.deferred)}
            if made.summary is not None:
                assert made.summary.text.split("\n")[0] in json.dumps(body, ensure_ascii=False)


# -- recordings


@pytest.mark.parametrize("name", SESSIONS)
def test_every_recorded_session_is_legal(name: str) -> None:
    """Pi kept whole units at all of its compactions; what could not be read is told."""
    found = read_history(RECORDED / name)

    assert (found.form, found.damage) == ("pi", DAMAGED.get(name, 0))
    assert check(found.messages) == ()
    assert len({message.id for message in found.messages}) == len(found.messages) > 0


@pytest.mark.parametrize("name", SESSIONS)
def test_a_recorded_session_stays_valid_for_every_provider_at_every_cut(name: str) -> None:
    """Its messages go to any API, and so do those that are left."""
    messages = list(read_history(RECORDED / name).messages)
    for api in APIS.values():
        stays_valid(messages, known_of(messages, Risk.READ), api, projection([placed("read")]))


def test_a_session_is_read_as_its_model_was_sent_it() -> None:
    """At each recorded request: the calls and results of its leaf, in their order, as the body has them."""
    compared = compacted = 0
    for name, request in recorded():
        leaf = (request.get("runtime") or {}).get("leafId")
        folder = RECORDED / name.partition(" ")[0]
        for path in sorted(folder.glob("session*.jsonl")):
            session = read_session(path)
            if leaf not in session.entries or session.id != request["runtime"].get("sessionId"):
                continue
            source: Any = for_api(request["api"])
            sent = source.read(messages_of(request["body"]))
            held = [message for _, message in history(session, leaf)]
            assert pairs(held) == pairs(sent), f"{name} {path.name}"
            compared += 1
            compacted += any(message.role is Role.SUMMARY for message in held)
    assert compared > 100
    assert compacted > 50


def pairs(messages: list[Message]) -> list[tuple[str, ...]]:
    """Calls, and results, by the first half of their ids: Responses has two ids a call, and elsewhere one is made."""
    return [
        tuple(bare(call.id) for call in m.calls) if m.calls else (bare(m.result_for or ""),)
        for m in messages
        if m.calls or m.role is Role.TOOL
    ]


def bare(id_: str) -> str:
    return id_.partition("|")[0].partition("_fc_")[0]


@pytest.mark.parametrize("name", sorted({Path(name).parent.name for name in SESSIONS}))
def test_recorded_bodies_are_legal_histories(name: str) -> None:
    """Each request that an agent really sent, read by its API, has no fault, and can be compacted."""
    for told, request in recorded():
        if told.partition(" ")[0] != name:
            continue
        source: Any = for_api(request["api"])
        messages = source.read(messages_of(request["body"]))
        assert check(messages) == (), told
        numbered = [
            Message(f"m{n}", m.role, m.text, m.calls, m.result_for, m.tool, m.outcome) for n, m in enumerate(messages)
        ]
        made = compact(numbered, facts=known_of(numbered, Risk.READ), summarise=extract, keep_last=1)
        assert check(made.messages) == ()
        assert made.strategy is not Strategy.NONE or len(messages) < 3


def test_a_session_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    """Its entries are not those that were read before; and a form that is none is the caller's mistake."""
    path = tmp_path / "session.jsonl"
    path.write_bytes((RECORDED / SESSIONS[0]).read_bytes())
    session = read_session(path)
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(MalformedError, match="the entries that were read before"):
        history(session)
    with pytest.raises(InvalidInputError, match="format: expected one of neutral, anthropic"):
        read_history(path, "xml")
