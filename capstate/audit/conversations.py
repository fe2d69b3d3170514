"""Which request bodies belong to one conversation, where no session says so: those that share a call.

Later bodies of a conversation may have lost its beginning to a compaction. What was loaded is carried along, so that
a tool that an earlier body loaded is not called never loaded; nothing more is concluded from it. Behind a body without
tools, which may have asked for a summary, a body that shares no call with an earlier one may go on from that summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capstate.agents.bodies import Step


class Conversation:
    """What is carried from body to body.

    Attributes:
        loaded: what the body before had loaded.
        partial: its first body may not have shown all that was loaded; None before that.
    """

    def __init__(self) -> None:
        self.loaded: frozenset[str] = frozenset()
        self.partial: bool | None = None


class Conversations:
    """Finds the conversation of a body; remembers the calls of each."""

    def __init__(self) -> None:
        self._by_call: dict[tuple[str, str], Conversation] = {}
        self._interrupted: set[str] = set()

    def interrupt(self, lineage: str) -> None:
        """Note that what comes in ``lineage`` may go on from a summary."""
        self._interrupted.add(lineage)

    def of(self, lineage: str, history: Sequence[Step]) -> Conversation:
        """Return the conversation in ``lineage`` that the newest known call belongs to; else a new one."""
        calls = [(lineage, step.call) for step in history if step.role == "call" and step.call]
        found = next((self._by_call[c] for c in reversed(calls) if c in self._by_call), None) or Conversation()
        self._by_call.update(dict.fromkeys(calls, found))
        if found.partial is None:
            found.partial = lineage in self._interrupted or any(step.role == "hidden" for step in history)
        return found
