"""Traces: ten times the messages take ten times as long, whatever is done to them."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.timing import Figure, Prepared, medians
from capstate.trace import (
    Call,
    Facts,
    Message,
    Outcome,
    Risk,
    Role,
    check,
    compact,
    extract,
    from_json,
    repair,
    to_json,
)

SMALL, LARGE = 10_000, 100_000
Trace = tuple[list[Message], Facts]


def trace(size: int) -> Trace:
    """So many messages: a request, two parallel calls, their results the other way round, an answer; ids repeat."""
    made: list[Message] = []
    risks: dict[tuple[str, int], Risk] = {}
    for turn in range(size // 5):
        calls = tuple(Call(f"c{n}", "git/log", {"path": "src", "n": turn}, turn) for n in range(2))
        made += [
            Message(f"u{turn}", Role.USER, f"look at {turn}"),
            Message(f"a{turn}", Role.ASSISTANT, calls=calls),
            Message(f"t{turn}", Role.TOOL, "nothing", result_for="c1", outcome=Outcome.OK),
            Message(
                f"s{turn}", Role.TOOL, "a line", result_for="c0", outcome=Outcome.OK if turn % 50 else Outcome.ERROR
            ),
            Message(f"b{turn}", Role.ASSISTANT, f"looked at {turn}"),
        ]
        risks.update((call.key, Risk.READ) for call in calls)
    return made, Facts(stored=None, risks=risks)


def wreck(size: int) -> Trace:
    """The same with every seventh message gone."""
    messages, facts = trace(size)
    return [message for n, message in enumerate(messages) if n % 7], facts


def shorter(made: Trace) -> object:
    return compact(made[0], facts=made[1], summarise=extract, keep_last=10)


def within(made: Trace) -> object:
    return compact(made[0], facts=made[1], summarise=extract, budget=len(made[0]) * 10)


WORK: dict[str, tuple[Callable[[int], Trace], Callable[[Trace], object]]] = {
    "check": (trace, lambda made: check(made[0])),
    "check, every seventh message gone": (wreck, lambda made: check(made[0])),
    "repair, every seventh message gone": (wreck, lambda made: repair(made[0], started=None)),
    "compact, keeping ten messages": (trace, shorter),
    "compact to a fifth of its characters": (trace, within),
    "write and read": (trace, lambda made: from_json(to_json(made[0]))),
}


def linear() -> list[Figure]:
    """100,000 messages against 10,000."""
    inputs = {(kind, size): kind(size) for kind in (trace, wreck) for size in (SMALL, LARGE)}
    work: dict[str, Prepared] = {}
    for name, (kind, run) in WORK.items():
        for size in (SMALL, LARGE):
            work[f"{name} {size}"] = (lambda held=inputs[kind, size]: held, run)
    took = medians(work, repeats=3)
    return [
        Figure(f"{name}, 100,000 messages", took[f"{name} {LARGE}"], "10,000", took[f"{name} {SMALL}"], limit=25)
        for name in WORK
    ]


BENCHMARKS = {"trace": linear}
