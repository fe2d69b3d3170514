"""Four ways to give a model a thousand tools: what is sent, and how much of it a cache of blocks would know.

A task of thirty turns that needs three groups of ten. Bytes are counted, not tokens, and the cache is simulated
(:func:`capstate.usage.simulate`): no provider was asked. What is compared is the form of the request alone; how well
a model finds a tool is not. The gateway is modelled: its result holds the definitions, and nothing
is called through it.
"""

from __future__ import annotations

from typing import Any

import orjson

from benchmarks.core import arguments
from benchmarks.timing import Figure
from capstate.capabilities import Group, Tool
from capstate.ledgers.memory import MemoryLedger
from capstate.providers import openai_responses
from capstate.runtime import Runtime
from capstate.trace import Call, Message
from capstate.usage import simulate

TURNS, BLOCK = 30, 1024
NEEDED = {2: "g10", 9: "g50", 19: "g90"}
"""By turn, the group that is needed from then on."""
GROUPS = [Group(f"g{g}", [Tool(**arguments(n)) for n in range(10)]) for g in range(100)]
FIND = Tool("find", description="Finds tools and makes them callable.", effect="read", loads=True, reaches="names")
USE = Tool("use", description="Calls a tool by its name.", reaches="name", schema={"type": "object"})
PLAIN, DEFERRING = openai_responses.profile("m", defers=""), openai_responses.profile("m", defers="additional_tools")
"""Of an API that has a deferred definition where it was loaded, so that the bytes are what a model reads."""


def bodies(style: str) -> list[bytes]:
    """Return each request of the task, tools before messages, as a model reads them."""
    helper = {"resident": [], "gateway": [FIND, USE]}.get(style, [FIND])
    groups = [*GROUPS, Group("meta", helper)]
    runtime = Runtime(MemoryLedger(), catalog=lambda: groups, grants={"config": lambda _: ["*"]})
    profile = DEFERRING if style == "native" else PLAIN
    history: list[Message] = []
    made = []
    with runtime, runtime.session("s") as session:
        session.load("*" if style == "resident" else "meta", by="configuration")
        for turn in range(TURNS):
            history.append(Message(f"u{turn}", "user", f"Step {turn}: look at the next item and say what it holds."))
            group = NEEDED.get(turn)
            if group is not None and style != "resident":
                history += _found(turn, group, style)
                if style != "gateway":
                    session.load(group, at=f"t{turn}", call=f"c{turn}", by="model")
            parts: dict[str, Any] = dict(session.reproject("turn", provider=profile, history=history).request)
            made.append(orjson.dumps(parts.get("tools", [])) + orjson.dumps(parts["input"]))
            history.append(Message(f"a{turn}", "assistant", f"Item {turn} holds text."))
    return made


def _found(turn: int, group: str, style: str) -> list[Message]:
    """Return the call that found ``group``, and its result: behind a gateway that has to hold the definitions."""
    text = f"found {group}"
    if style == "gateway":
        text = orjson.dumps([arguments(n) for n in range(10)]).decode()
    call = Call(f"c{turn}", "meta/find", {"names": [group]})
    return [
        Message(f"f{turn}", "assistant", calls=[call]),
        Message(f"t{turn}", "tool", text, result_for=call.id, outcome="ok"),
    ]


def styles() -> list[Figure]:
    """Return what each style sends, against sending everything from the start."""
    sent = {style: bodies(style) for style in ("resident", "explicit", "gateway", "native")}
    floor = float(sum(map(len, sent["resident"])))
    figures = []
    for style, made in sent.items():
        hits = [simulate(made[n - 1 : n], made[n], BLOCK) for n in range(1, TURNS)]
        known, blocks = sum(hit.known for hit in hits), sum(hit.blocks for hit in hits)
        detail = {
            "simulated: blocks known to a cache, of all": known / blocks,
            "simulated: blocks that no cache knows": float(blocks - known),
            "bytes of the last request": float(len(made[-1])),
        }
        total = float(sum(map(len, made)))
        figures.append(Figure(f"{style} loading, {TURNS} turns", total, "all resident", floor, None, detail, "bytes"))
    return figures


BENCHMARKS = {"loading styles": styles}
