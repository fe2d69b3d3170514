"""Random histories: parallel calls, results in any order and apart, failures, unknowns, repeated ids, summaries."""

from __future__ import annotations

import random
from typing import Any

from attrs import evolve

from capstate.trace import Call, Facts, Message, Outcome, Risk, Role, Row

TOOLS = ["git/log", "bank/pay", "ci/test", "vault/read"]
RISKS = dict(zip(TOOLS, [Risk.READ, Risk.IRREVERSIBLE, Risk.VERIFICATION, Risk.SENSITIVE], strict=True))


def history(seed: int) -> tuple[list[Message], Facts]:  # noqa: C901, PLR0912, PLR0915 - one story told in order
    """A history whose only faults are results that stand apart and calls that have none, and what is known of it."""
    rng = random.Random(seed)
    made: list[Message] = []
    times: dict[str, int] = {}
    open_ids: set[str] = set()
    facts: dict[str, Any] = {name: set() for name in ("stored", "streaming", "running", "waiting")}
    risks: dict[tuple[str, int], Risk] = {}
    late: list[Message] = []

    def add(role: Role, **more: Any) -> Message:
        message = Message(f"m{len(made)}", role, **more)
        made.append(message)
        return message

    if rng.random() < 0.7:
        add(Role.SYSTEM, text="Be brief.")
    if rng.random() < 0.3:
        row = Row("old", 0, "bank/pay", rng.choice(list(Outcome)), Risk.IRREVERSIBLE, message="o2", source="o3")
        add(Role.SUMMARY, text="Earlier work.", covers=("o1", "o2", "o3"), rows=(row,))
    for _ in range(rng.randrange(1, 9)):
        kind = rng.random()
        if kind < 0.25:
            add(Role.USER, text=f"request {rng.randrange(99)} " + "x" * rng.randrange(40))
            continue
        if kind < 0.4:
            add(Role.ASSISTANT, text=f"said {rng.randrange(99)}", native={"raw": "said"}, api="some")
            continue
        if kind < 0.45:
            add(Role.OPAQUE, issuer="p/a/m", native={"blob": 1})
            continue
        calls: list[Call] = []
        for _ in range(rng.randrange(1, 4)):
            id_ = rng.choice(["r1", "r2", f"c{len(times)}"])
            if id_ in open_ids or id_ in {call.id for call in calls}:
                continue
            calls.append(Call(id_, rng.choice(TOOLS), {"secret": f"s-{id_}", "n": rng.randrange(5)}, times.get(id_, 0)))
            times[id_] = times.get(id_, 0) + 1
        if not calls:
            continue
        add(Role.ASSISTANT, calls=tuple(calls), text="calling")
        order = list(calls)
        rng.shuffle(order)
        for call in order:
            risks[call.key] = RISKS[call.tool]
            for name, chance in (("streaming", 0.04), ("running", 0.04), ("waiting", 0.04)):
                if rng.random() < chance:
                    facts[name].add(call.key)
            if rng.random() < 0.95:
                facts["stored"].add(call.key)
            result: dict[str, Any] = {
                "result_for": call.id,
                "text": f"raw-{call.id}-{call.occurrence} " + "y" * rng.randrange(60),
                "tool": call.tool,
                "outcome": rng.choice([*Outcome, Outcome.OK, Outcome.OK, None]),
                "evidence": f"E-{call.id}-{call.occurrence}" if rng.random() < 0.5 else None,
            }
            chance = rng.random()
            if chance < 0.08:
                open_ids.add(call.id)  # it never gets one
            elif chance < 0.2:
                open_ids.add(call.id)
                late.append(Message("", Role.TOOL, **result))
            else:
                add(Role.TOOL, **result)
        if late and rng.random() < 0.5:
            add(Role.USER, text="meanwhile")
            while late:
                message = late.pop()
                made.append(evolve(message, id=f"m{len(made)}"))
                open_ids.discard(message.result_for or "")
    ids = [message.id for message in made]
    pinned = {id_ for id_ in ids if rng.random() < 0.05}
    return made, Facts(**facts, risks=risks, pinned=pinned)


def broken(seed: int) -> list[Message]:
    """A history after losses, repetitions and shuffling."""
    rng = random.Random(seed)
    messages, _ = history(seed)
    for _ in range(rng.randrange(6)):
        if not messages:
            break
        n = rng.randrange(len(messages))
        what = rng.random()
        if what < 0.35:
            del messages[n]
        elif what < 0.6:
            messages.insert(rng.randrange(len(messages) + 1), evolve(messages[n], id=f"again{rng.randrange(10**6)}"))
        elif what < 0.9:
            messages.insert(rng.randrange(len(messages)), messages.pop(n))
        elif messages[n].calls:
            calls = messages[n].calls
            messages[n] = evolve(messages[n], calls=(*calls, evolve(calls[0], occurrence=rng.randrange(2))))
    return messages
