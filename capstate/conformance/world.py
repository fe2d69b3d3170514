"""The small world in which designs are compared: sixteen turns' worth of tools, a settings file, spies, a transcript.

Every design gets the same settings file (who may, and which groups are down), the same transcript and the same
tools. A tool is a spy: it does nothing but note that it ran.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from capstate.capabilities import Group, Tool
from capstate.providers import anthropic, openai_chat, openai_responses
from capstate.trace import Message, Role

if TYPE_CHECKING:
    from capstate.projection import Profile

TOOLS: Mapping[str, tuple[str, ...]] = {
    "base": ("read", "load_tools", "drop_tools"),
    "git": ("git_log", "git_blame"),
    "web": ("web_fetch", "web_search"),
    "deploy": ("deploy_prod",),
}
"""Wire names by group; a tool has its wire name as its name."""

QUALIFIED: Mapping[str, str] = {name: f"{group}/{name}" for group, names in TOOLS.items() for name in names}
RESIDENT = "base"
"""The group that configuration loads."""

ALLOWED = tuple(f"{group}/*" for group in TOOLS)
"""What the settings allow at the start."""

HOLDER = "alice"
"""Who every session of a script acts for, and whose denies the settings file keeps."""

_SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}


def names_of(selectors: Iterable[str]) -> frozenset[str]:
    """Return the wire names that selectors (``*``, ``group/*``, ``group/name``) mean in this world."""
    chosen = set(selectors)
    return frozenset(name for name, q in QUALIFIED.items() if chosen & {"*", q, q.partition("/")[0] + "/*"})


def groups(down: Iterable[str] = ()) -> list[Group]:
    """Return the catalog; groups in ``down`` are known and cannot be used."""
    lost = set(down)
    return [_group(group, up=group not in lost) for group in TOOLS]


@cache
def _group(id_: str, *, up: bool) -> Group:
    tools = [
        Tool(
            name,
            description=f"{name} of the group {id_}",
            schema=_SCHEMA,
            effect="external" if id_ == "deploy" else "read",
            loads=name == "load_tools",
            wire_name=name,
        )
        for name in TOOLS[id_]
    ]
    return Group(id_, tools, up=up)


@define
class Settings:
    """The configuration file that every design reads, in whatever process it runs.

    ``deny`` is what the person decided in a session and the application wrote down, as agents do in their settings.
    """

    path: Path

    def read(self) -> dict[str, list[str]]:
        """Return ``allow``, ``deny`` and ``down``, read now."""
        found: dict[str, list[str]] = json.loads(self.path.read_text(encoding="utf-8"))
        return found

    def write(self, **changed: Iterable[str]) -> None:
        """Replace some of the lists."""
        now = self.read() if self.path.exists() else {"allow": [], "deny": [], "down": []}
        now.update({name: sorted(set(values)) for name, values in changed.items()})
        self.path.write_text(json.dumps(now), encoding="utf-8")

    @property
    def authorised(self) -> frozenset[str]:
        """Wire names that the file allows now and does not deny."""
        now = self.read()
        return names_of(now["allow"]) - names_of(now["deny"])

    @property
    def down(self) -> frozenset[str]:
        """Groups that cannot be used now."""
        return frozenset(self.read()["down"])


PROFILES: Mapping[str, Profile] = {
    "anthropic": anthropic.profile("claude-native"),
    "anthropic-plain": anthropic.profile("claude-plain", defers=False),
    "responses": openai_responses.profile("gpt-additional"),
    "responses-search": openai_responses.profile("gpt-search", defers="tool_search"),
    "responses-plain": openai_responses.profile("gpt-plain", defers=""),
    "chat": openai_chat.profile("chat-plain"),
    "chat-system": openai_chat.profile("chat-system", provider="compatible", defers=True),
}
"""Provider profiles by the id that ``--provider`` takes; the model names are ours."""


def opaque(profile: Profile, id_: str, refers: Iterable[str]) -> Message:
    """Return what a provider's own compaction leaves: an item of its own that only its issuer can read.

    Chat Completions has no such compaction; there the item is one that another API left in the history.
    """
    issuer, api = profile.issuer, profile.issuer.api
    native: dict[str, Any] = {"type": "compaction", "id": id_, "encrypted_content": "b3BhcXVl"}
    if api == anthropic.API:
        native = {"role": "assistant", "content": [{"type": "compaction", "content": "earlier work"}]}
    elif api != openai_responses.API:
        issuer, api = PROFILES["responses"].issuer, openai_responses.API
    covered = (Message("", Role.SUMMARY, "earlier work"),)
    return Message(id_, Role.OPAQUE, issuer=issuer.id, refers=tuple(refers), covered=covered, native=native, api=api)


@frozen
class Mark:
    """Where the transcript shows a load: the entry, or the call whose result it is."""

    at: str | None
    call: str | None


@define
class Line:
    """One session's transcript.

    Attributes:
        path: ids from root to leaf, summarised ones included.
        shown: the messages of the next request.
        legacy: the format names no entries to hold on to: only calls.
    """

    path: list[str] = field(factory=list)
    shown: list[Message] = field(factory=list)
    labels: dict[str, str] = field(factory=dict)
    """By label of a turn, the id of its last entry."""
    paths: dict[str, list[str]] = field(factory=dict)
    """By label of a turn, the path up to its last entry."""
    starts: dict[str, str] = field(factory=dict)
    """By label of a turn, the id of its first entry."""
    held: dict[str, Message] = field(factory=dict)
    legacy: bool = False

    def add(self, message: Message) -> None:
        """Append an entry."""
        self.path.append(message.id)
        self.shown.append(message)
        self.held[message.id] = message

    def cut(self, keep: str | None, first: Message) -> None:
        """Put ``first`` in place of everything before the turn ``keep`` (None: of everything)."""
        ids = [m.id for m in self.shown]
        tail = self.shown[ids.index(self.starts[keep]) :] if keep is not None else []
        self.path.append(first.id)
        self.held[first.id] = first
        self.shown = [first, *tail]

    def end(self, label: str) -> None:
        """The turn ``label`` ends here."""
        self.labels[label] = self.path[-1]
        self.paths[label] = list(self.path)

    def at(self, label: str) -> Line:
        """Return the transcript with its leaf at the end of the turn ``label``; nothing of it is summarised."""
        path = list(self.paths[label])
        return Line(
            path,
            [self.held[id_] for id_ in path],
            dict(self.labels),
            dict(self.paths),
            dict(self.starts),
            dict(self.held),
            self.legacy,
        )
