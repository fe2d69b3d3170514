"""What a script asks of a design, and where a design lives: nothing here knows how one answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen

from capstate.capabilities import Catalog
from capstate.conformance.world import Line, Mark, Settings, groups
from capstate.trace import Call, Message, Role

if TYPE_CHECKING:
    from capstate.projection import Profile
    from capstate.surface import Load

Body = dict[str, Any]
Evidence = list[tuple[str, str]]
"""(``added`` or ``removed``, wire name) pairs that something durable names."""


@frozen
class Place:
    """Where a host lives: a folder that outlasts its process, and the settings that everybody reads."""

    folder: Path
    settings: Settings

    def file(self, session: str, what: str) -> Path:
        """Return a file of a session."""
        return self.folder / f"{session}.{what}.json"


class Host(Protocol):
    """What a script can ask of a design. One host is one session in one process."""

    id: str

    def request(self, line: Line, profile: Profile) -> Body:
        """Return the request parts for the next turn."""

    def load(self, on: str, mark: Mark) -> None:
        """A loader's call came back: the group is wished for."""

    def unload(self, on: str, mark: Mark) -> None:
        """An unloader's call came back."""

    def boundary(self, cause: str) -> None:
        """The history was cut, or the leaf moved, or another model answers."""

    def deny(self, on: str) -> None:
        """The person denied a tool, in this process."""

    def dispatch(self, call: Call, run: Callable[[], None]) -> bool:
        """Run the call's tool, or refuse; return whether it ran."""

    def fork(self, id_: str, at: str, line: Line) -> Host:
        """Return a copy of the session up to the entry ``at``."""

    def child(self, id_: str, want: Sequence[str]) -> Host:
        """Start a child that wants these tools."""

    def close(self) -> None:
        """The process ends."""

    def evidence(self) -> Evidence:
        """Return what durable records say came and went so far, read from disk."""


def kept(loads: Iterable[Load], shown: Sequence[Message]) -> tuple[int, ...]:
    """Return the loads whose entry, or whose call's result, is among ``shown``, in order of their place."""
    entries = {m.id: n for n, m in enumerate(shown)}
    results = {m.result_for: n for n, m in enumerate(shown) if m.role is Role.TOOL}
    places = []
    for load in loads:
        place = entries.get(load.at) if load.at is not None else None
        if place is None and load.call is not None:
            place = results.get(load.call)
        if place is not None:
            places.append((place, load.sequence))
    return tuple(sequence for _, sequence in sorted(places))


def prints(qualified: Iterable[str]) -> dict[str, str]:
    """Return the fingerprints of these tools."""
    catalog = Catalog.of(groups())
    found = {q: catalog.find(q) for q in qualified}
    return {q: d.fingerprint for q, d in found.items() if d is not None}
