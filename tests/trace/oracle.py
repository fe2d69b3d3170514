"""Units and legality by brute force: written from docs/spec/trace.md, and slow. It shares no code with the library."""

from __future__ import annotations

from collections.abc import Sequence

from capstate.trace import Message

Place = tuple[int, int]
"""A call: index of its message, and its place there."""


def answers(messages: Sequence[Message]) -> dict[int, Place | None]:
    """What each result answers: a call, or None for one that answers none, or one that has its result."""
    found: dict[int, Place | None] = {}
    for n, message in enumerate(messages):
        if message.role == "tool":
            makers = [i for i in range(n) if any(c.id == message.result_for for c in messages[i].calls)]
            places = [(makers[-1], k) for k, c in enumerate(messages[makers[-1]].calls) if c.id == message.result_for] \
                if makers else []  # fmt: skip
            free = [place for place in places if place not in found.values()]
            found[n] = free[0] if free else None
    return found


def groups(messages: Sequence[Message]) -> list[set[int]]:
    """The indices of each unit: calls and their results."""
    taken = answers(messages)
    return [
        {n} | {result for result, place in taken.items() if place is not None and place[0] == n}
        for n, message in enumerate(messages)
        if message.calls
    ]


def faults(messages: Sequence[Message]) -> list[tuple[str, int, str]]:
    """Every fault, sorted: kind, index, call id."""
    taken = answers(messages)
    found = []
    for n, place in taken.items():
        id_ = messages[n].result_for or ""
        makers = [i for i in range(n) if any(c.id == id_ for c in messages[i].calls)]
        if not makers:
            found.append(("orphan", n, id_))
            continue
        if place is None:
            found.append(("duplicate_result", n, id_))
        if any(messages[i].role != "tool" for i in range(makers[-1] + 1, n)):
            found.append(("order", n, id_))
    calls = [(n, k, c) for n, message in enumerate(messages) for k, c in enumerate(message.calls)]
    for n, k, call in calls:
        if (n, k) not in taken.values():
            found.append(("missing_result", n, call.id))
        before = [(i, j, c) for i, j, c in calls if (i, j) < (n, k)]
        same_key = any((c.id, c.occurrence) == (call.id, call.occurrence) for _, _, c in before)
        here = any(i == n and c.id == call.id for i, _, c in before)
        earlier = [i for i, _, c in before if i < n and c.id == call.id]
        done = {place for result, place in taken.items() if result < n}
        unanswered = any(i == max(earlier, default=-1) and c.id == call.id and (i, j) not in done for i, j, c in before)
        if same_key or here or unanswered:
            found.append(("duplicate_call", n, call.id))
    return sorted(found)
