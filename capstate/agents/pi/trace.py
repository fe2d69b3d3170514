"""Calls and results that do not belong together on one path.

Pi itself hides both: it sends "No result provided" for a call without a result, and a result without its call
as it is. An aborted or failed answer of the model is not sent again, so its calls need no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from capstate.agents.pi.entries import Entry


@frozen
class Broken:
    """A call without a result, or a result without its call; ``open`` at the end of a path is neither."""

    entry: Entry
    call: str
    tool: str
    missing: str
    """``"call"`` or ``"result"``."""


def broken_trace(path: Sequence[Entry]) -> Iterator[Broken]:
    """Yield what is broken on ``path``; calls that may still be running at its end are not. Raises nothing."""
    waiting: dict[str, tuple[Entry, str]] = {}
    for e in path:
        said = e.said
        if said is None or e.type != "message":
            continue
        if said.role == "toolResult":
            if waiting.pop(said.call, None) is None:
                yield Broken(e, said.call, said.tool, "call")
        elif said.role in ("assistant", "user"):
            yield from (Broken(asked, call, tool, "result") for call, (asked, tool) in waiting.items())
            waiting = {}
            if said.role == "assistant" and said.stop not in ("error", "aborted"):
                waiting = {c.id: (e, c.tool) for c in said.calls}
