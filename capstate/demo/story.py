"""What happened in a recording, told again under capstate: the same loads, boundaries and permissions, driven live.

Each recorded request becomes one reprojection, each process of the recording opens the session anew, and each tool that
ran without permission is called again, through the guard. The lines have the form of an audit's, so that both can be
drawn alike; what is callable is read back from the request body.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from capstate.audit import audit_paths
from capstate.authority import Grant, allow
from capstate.capabilities import Group, Tool
from capstate.demo.bundle import FOLDERS
from capstate.demo.strip import boundaries
from capstate.epochs import Cause
from capstate.errors import NeedsApproval, Refused
from capstate.policy import Policy, read_policy
from capstate.providers import anthropic
from capstate.runtime import Runtime, Session
from capstate.trace import Call, Message, Role


@frozen
class Story:
    """A recording, and the same events under capstate.

    Attributes:
        recorded: the audit's lines.
        under: lines of the same form from the live run.
        receipts: (turn, cause, changes) of each receipt of the live run that changed something or marks a boundary.
    """

    title: str
    told: str
    recorded: tuple[Mapping[str, Any], ...] = field(repr=False)
    under: tuple[Mapping[str, Any], ...] = field(repr=False)
    receipts: tuple[tuple[int, str, tuple[tuple[str, str, str, str], ...]], ...]


_TOLD = {
    FOLDERS[0]: """The reopen that loses
Two groups were loaded, and the session was saved and reopened. Both are still permitted, the transcript still says that
they are loaded, and the model can call neither. Nothing in the file says that they went.""",
    FOLDERS[1]: """The revocation that comes back
git_blame was revoked before turn 7. Reopened with its own stored record, the agent offered it again, and it ran.
Reopened without one, it offered everything, and deploy_prod ran. Only a fixed list held.""",
}


def stories() -> Iterator[Story]:
    """Tell both bundled recordings. Needs a folder for temporary files, and nothing else of the machine."""
    with as_file(files("capstate.demo") / "recordings") as root:
        for folder in FOLDERS:
            title, _, told = _TOLD[folder].partition("\n")
            yield story(root / folder, title, " ".join(told.split()))


def story(recording: Path, title: str = "", told: str = "") -> Story:
    """Audit one recording, and play its events under capstate.

    Raises:
        InvalidInputError: there is no recording with a policy.
    """
    policy = read_policy(recording / "policy.toml")
    lines = tuple(audit_paths([recording], policy))
    with tempfile.TemporaryDirectory(prefix="capstate-demo-") as folder:
        live = Live(policy, Path(folder) / "agent.db", _tools(lines))
        try:
            under = tuple(live.play(lines))
        finally:
            live.close()
    return Story(title, told, lines, under, tuple(live.receipts))


def _tools(lines: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(name for line in lines if line.get("kind") == "turn" for name in line["callable"] or ())


@define
class Live:
    """The second telling."""

    policy: Policy
    ledger: Path
    tools: frozenset[str]
    receipts: list[tuple[int, str, tuple[tuple[str, str, str, str], ...]]] = field(factory=list)
    _allowed: frozenset[str] = frozenset()
    _history: list[Message] = field(factory=list)
    _loaded: set[str] = field(factory=set)
    _open: list[tuple[Runtime, Session]] = field(factory=list)
    _seen: str = ""

    def play(self, lines: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Give one line a request."""
        wanted = _runs(lines)
        before: Mapping[str, Any] | None = None
        cause = Cause.TURN
        for line in lines:
            if line.get("kind") == "summary":
                cause = Cause.COMPACTION
                self._history = [Message(f"summary-{line['turn']}", Role.SUMMARY, "earlier work")]
                yield {"kind": "summary"}
            elif line.get("kind") == "turn":
                if any(column.boundary == "reopened" for column in boundaries(before, line)):
                    self.close()
                self._allowed = frozenset(line["authorised"] or ())
                yield self._turn(line, cause, wanted.get(line["turn"], []))
                cause, before = Cause.TURN, line

    def _turn(self, line: Mapping[str, Any], cause: Cause, wanted: Sequence[str]) -> dict[str, Any]:
        session, turn = self._session(), int(line["turn"])
        self._history.append(Message(f"user-{turn}", Role.USER, "go on"))
        self._load(session, line, turn)
        epoch = session.reproject(cause, provider=_PROFILE, history=self._history)
        if epoch.receipt.digest != self._seen:
            self._seen = epoch.receipt.digest
            changes = tuple((a, t, r, by) for a, t, r, by in epoch.receipt.body["changes"] if a in ("added", "removed"))
            if turn > 1:
                self.receipts.append((turn, epoch.receipt.cause, changes))
        callable_ = _PROFILE.adapter.on_wire(epoch.request).effective
        refused = [name for n, name in enumerate(wanted) if not self._calls(session, name, f"call-{turn}-{n}")]
        loaded = self._loaded | set(self.policy.resident or ())
        due = loaded & self._allowed
        return {
            "kind": "turn",
            "turn": turn,
            "process": line["process"],
            "callable": sorted(callable_),
            "authorised": sorted(self._allowed),
            "not_authorised": sorted(callable_ - self._allowed),
            "never_loaded": sorted(callable_ - loaded),
            "lost": sorted(due - callable_),
            "refused": refused,
        }

    def _session(self) -> Session:
        if not self._open:
            runtime = Runtime(self.ledger, catalog=self._catalog, grants={"permissions": self._grants})
            session = runtime.session("demo")
            session.load("base", by="configuration")
            self._open.append((runtime, session))
        return self._open[0][1]

    def _catalog(self) -> list[Group]:
        grouped = {name for names in self.policy.groups.values() for name in names}
        resident = set(self.policy.resident or ())
        others = self.tools - grouped - resident
        members = {"base": sorted(resident), **self.policy.groups, "other": sorted(others)}
        return [Group(id_, [Tool(n, wire_name=n) for n in names]) for id_, names in members.items()]

    def _grants(self, _: str) -> list[Grant]:
        found = [d for group in self._catalog() for d in group.definitions.values()]
        return [allow(d.qualified) for d in found if d.name in self._allowed]

    def _load(self, session: Session, line: Mapping[str, Any], turn: int) -> None:
        """Load the groups that the recording first shows as loaded at this request."""
        should = {*line["should"]["immediate"], *line["should"]["deferred"]} - set(self.policy.resident or ())
        for group, names in self.policy.groups.items():
            if should & set(names) - self._loaded:
                call = Call(f"load-{group}", "load_tools", {"group": group})
                result = Message(f"loaded-{turn}-{group}", Role.TOOL, "loaded", result_for=call.id, tool="load_tools")
                self._history += [Message(f"ask-{turn}-{group}", Role.ASSISTANT, "", (call,)), result]
                session.load(group, at=result.id, call=call.id, by="model")
                self._loaded |= set(names)

    def _calls(self, session: Session, name: str, id_: str) -> bool:
        try:
            with session.guard(Call(id_, name)) as permit:
                permit.settle()
        except (Refused, NeedsApproval):
            return False
        return True

    def close(self) -> None:
        """The process ends."""
        for runtime, session in self._open:
            session.close()
            runtime.close()
        self._open.clear()


_PROFILE = anthropic.profile("claude-native")


def _runs(lines: Iterable[Mapping[str, Any]]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for line in lines:
        if line.get("detail") == "ran" and "finding" in line and line["turn"] is not None:
            names = found.setdefault(line["turn"], [])
            names += [name for name in line["names"] if name not in names]
    return found
