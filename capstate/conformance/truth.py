"""What should have been on the wire, from the steps of a script alone: sets of names, nothing of the core.

V = loaded on this path, and authorised now, and up. For a child: what it wants, cut by its parent as it is now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from capstate.conformance.play import Stage, shrunk
from capstate.conformance.world import ALLOWED, RESIDENT, names_of

if TYPE_CHECKING:
    from capstate.conformance.scenarios import Script, Step


@define
class Wish:
    """What one session has loaded, in order: the entry it stands at (None: everywhere), and the tools."""

    events: list[tuple[str | None, bool, frozenset[str]]] = field(factory=list)

    def on(self, path: list[str]) -> frozenset[str]:
        """Return the tools that are loaded on ``path``."""
        loaded: frozenset[str] = frozenset()
        for entry, adds, names in self.events:
            if entry is None or entry in path:
                loaded = loaded | names if adds else loaded - names
        return loaded


@define
class Expected:
    """What holds for one request: at its start, and before each call of its batch.

    Attributes:
        base: what the first request of a child or fork is compared with; None for any other.
        named: changes that the transcript itself names before this request, since the session's last one.
    """

    turn: int
    session: str
    callable: frozenset[str]
    loaded: frozenset[str]
    authorised: frozenset[str]
    at_calls: list[frozenset[str]] = field(factory=list)
    base: frozenset[str] | str | None = None
    named: set[tuple[str, str]] = field(factory=set)
    boundary: str | None = None
    first_kept: str | None = None


@define
class Truth:
    """Follows a script."""

    stage: Stage
    wishes: dict[str, Wish] = field(factory=lambda: {"main": Wish([(None, True, names_of([f"{RESIDENT}/*"]))])})
    allowed: set[str] = field(factory=lambda: set(ALLOWED))
    denied: dict[str, set[str]] = field(factory=dict)
    down: set[str] = field(factory=set)
    parents: dict[str, tuple[str, frozenset[str]]] = field(factory=dict)
    bases: dict[str, frozenset[str] | str] = field(factory=dict)
    named: dict[str, set[tuple[str, str]]] = field(factory=dict)
    boundaries: dict[str, str] = field(factory=dict)
    expected: list[Expected] = field(factory=list)

    def authorised(self, session: str) -> frozenset[str]:
        """Return what ``session`` may call now."""
        if session in self.parents:
            parent, want = self.parents[session]
            return want & self.authorised(parent)
        return names_of(self.allowed) - names_of(self.denied.get("person", ()))

    def callable(self, session: str) -> frozenset[str]:
        """Return what ``session`` can call now."""
        lost = names_of(f"{group}/*" for group in self.down)
        loaded = self.wishes[session].on(self.stage.lines[session].path)
        return loaded & self.authorised(session) - lost

    def follow(self, script: Script, *, ran: list[list[bool]]) -> list[Expected]:
        """Go through ``script``; ``ran`` says which loader calls came back, since only those load."""
        for step in script:
            if step.do == "turn":
                self._turn(step, ran[len(self.expected)] if len(self.expected) < len(ran) else [])
            else:
                self._happen(step)
                self.stage.happen(step)
        return self.expected

    def _turn(self, step: Step, ran: list[bool]) -> None:
        line = self.stage.begin(step)
        session = step.session
        now = Expected(
            self.stage.turn,
            session,
            self.callable(session),
            self.wishes[session].on(line.path),
            self.authorised(session),
            base=self.bases.pop(session, None),
            named=self.named.pop(session, set()),
            boundary=self.boundaries.pop(session, None),
        )
        if now.boundary in ("semantic", "native"):
            now.first_kept = line.shown[1].id  # behind the summary there is at least what the person just said
        self.expected.append(now)
        for n, (call, mark, happens) in enumerate(self.stage.answer(step)):
            if happens is not None:
                self._happen(happens)
            now.at_calls.append(self.callable(session))
            if call.tool in ("load_tools", "drop_tools") and n < len(ran) and ran[n]:
                names = names_of([f"{call.arguments['q']}/*"])
                adds = call.tool == "load_tools"
                self.wishes[session].events.append((mark.at, adds, names))
                self.named.setdefault(session, set()).update(("added" if adds else "removed", name) for name in names)

    def _happen(self, step: Step) -> None:
        if step.do == "shrink":
            self.allowed = shrunk(self.allowed, step.on)
        elif step.do == "deny":
            self.denied.setdefault("person", set()).update(step.on)
        elif step.do == "down":
            self.down.update(step.on)
        elif step.do == "up":
            self.down.difference_update(step.on)
        elif step.do == "spawn":
            want = names_of(step.on)
            self.parents[step.name] = (step.session, want)
            self.wishes[step.name] = Wish([(None, True, want)])
            self.bases[step.name] = want
            self.boundaries[step.name] = "child"
        elif step.do == "fork" and step.at is not None:
            line = self.stage.lines[step.session]
            before = line.path[: line.path.index(line.labels[step.at]) + 1]
            events = [e for e in self.wishes[step.session].events if e[0] is None or e[0] in before]
            self.wishes[step.name] = Wish(events)
            self.bases[step.name] = step.session
            self.boundaries[step.name] = "fork"
        elif step.do in ("compact", "switch", "move", "restart"):
            for session in self.stage.lines if step.do in ("switch", "restart") else (step.session,):
                self.boundaries[session] = step.how if step.do == "compact" else step.do
