"""Five ways to keep an agent's tools across its boundaries: hosts over the public API, for comparison only.

=======  ====================================================================================================
A        a set of active tools in the process; nothing is kept
B-blind  a record of the last projection, kept and replayed as it is
B        the same record, cut at each boundary by authority and resources as they are then
C        derived again from loads, settings and resources at each request and call; nothing shows it afterwards
B+C      the library itself: derived again, with a receipt, and a guard
=======  ====================================================================================================

All of them render through the same adapters: they differ in *which* tools they hold, and in whether they look again
when a call comes. A, B-blind and B filter by the settings when they activate a tool, drop a tool at once when a person
denies it in their own process, and check a call against what is active. That is more than some agents do. What a
design says of itself is never asked: see :mod:`capstate.conformance.matrix`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from capstate.authority import Authority, Pool, Source, allow, deny
from capstate.capabilities import Catalog
from capstate.conformance.hosts import Body, Evidence, Host, Place, kept, prints
from capstate.conformance.world import ALLOWED, HOLDER, PROFILES, QUALIFIED, RESIDENT, Line, Mark, groups, names_of
from capstate.epochs import Cause, Facts, reproject
from capstate.errors import NeedsApproval, Refused
from capstate.ledger import load
from capstate.ledgers.sqlite import SQLiteLedger
from capstate.runtime import Runtime, Session
from capstate.surface import Load, LoadKind, derive

if TYPE_CHECKING:
    from pathlib import Path

    from capstate.projection import Profile
    from capstate.trace import Call


class ProcessLocal:
    """Design A: a set of active tools, in this process and nowhere else."""

    name: ClassVar[str] = "A"

    def __init__(self, place: Place, id_: str, active: dict[str, Mark] | None = None) -> None:
        self.id, self.place = id_, place
        self.active = active if active is not None else self.start()

    def start(self) -> dict[str, Mark]:
        """Return what is active in a new process."""
        return dict.fromkeys(sorted(names_of([f"{RESIDENT}/*"]) & self.place.settings.authorised), Mark(None, None))

    def request(self, line: Line, profile: Profile) -> Body:
        """Render whatever is active."""
        loads = [Load(n, LoadKind.LOAD, (q,), m.at, m.call, prints([q])) for n, (q, m) in enumerate(self._marked())]
        rules = Source("active", tuple(allow(q) for q, _ in self._marked()))
        facts = Facts(
            Catalog.of(groups()), Authority(Pool((rules,))), tuple(loads), None, kept(loads, line.shown), profile
        )
        return profile.adapter.render(profile, reproject(facts, None).projection, line.shown)

    def _marked(self) -> list[tuple[str, Mark]]:
        return [(QUALIFIED[name], mark) for name, mark in self.active.items()]

    def load(self, on: str, mark: Mark) -> None:
        """Activate what the settings allow now."""
        for name in sorted(names_of([on]) & self.place.settings.authorised - self.active.keys()):
            self.active[name] = mark

    def unload(self, on: str, mark: Mark) -> None:  # noqa: ARG002 - a set has no places
        """Drop it."""
        self.active = {name: mark for name, mark in self.active.items() if name not in names_of([on])}

    def boundary(self, cause: str) -> None:
        """Nothing happens to a set."""

    def deny(self, on: str) -> None:
        """Drop it at once, and write it to the settings."""
        now = self.place.settings.read()
        self.place.settings.write(deny=[*now["deny"], on])
        self.active = {name: mark for name, mark in self.active.items() if name not in names_of([on])}

    def dispatch(self, call: Call, run: Callable[[], None]) -> bool:
        """Run what is active."""
        if call.tool not in self.active:
            return False
        run()
        return True

    def fork(self, id_: str, at: str, line: Line) -> Host:  # noqa: ARG002 - a set has no places
        """Copy the set."""
        return type(self)(self.place, id_, dict(self.active))

    def child(self, id_: str, want: Sequence[str]) -> Host:
        """Start with what is wanted, as far as the settings allow it now."""
        wanted = sorted(names_of(want) & self.place.settings.authorised)
        return type(self)(self.place, id_, dict.fromkeys(wanted, Mark(None, None)))

    def close(self) -> None:
        """The set is gone."""

    def evidence(self) -> Evidence:
        """Nothing was written."""
        return []


class BlindRecord(ProcessLocal):
    """Design B-blind: the record of the last projection is replayed as it is at each boundary."""

    name: ClassVar[str] = "B-blind"

    def __init__(self, place: Place, id_: str, active: dict[str, Mark] | None = None) -> None:
        super().__init__(place, id_, active)
        records = self._records()
        if active is None and records:
            self.restore("reopen")
        else:
            self._write("start")

    def _records(self) -> list[dict[str, Any]]:
        path = self.place.file(self.id, "record")
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        return found

    def _write(self, cause: str) -> None:
        tools = {name: [mark.at, mark.call] for name, mark in self.active.items()}
        marked = prints(QUALIFIED[name] for name in self.active)
        record = {"cause": cause, "source": self.id, "fingerprints": marked, "tools": tools}
        self.place.file(self.id, "record").write_text(json.dumps([*self._records(), record]), encoding="utf-8")

    def restore(self, cause: str) -> None:
        """Take the last record for what is active."""
        self.active = self.recorded()
        self._write(cause)

    def recorded(self) -> dict[str, Mark]:
        """Return the tools of the last record."""
        return {name: Mark(*mark) for name, mark in self._records()[-1]["tools"].items()}

    def load(self, on: str, mark: Mark) -> None:
        """Activate, and record."""
        super().load(on, mark)
        self._write("load")

    def unload(self, on: str, mark: Mark) -> None:
        """Drop, and record."""
        super().unload(on, mark)
        self._write("unload")

    def boundary(self, cause: str) -> None:
        """Restore from the record: that is what it is for."""
        self.restore(cause)

    def fork(self, id_: str, at: str, line: Line) -> Host:  # noqa: ARG002 - a record has no places
        """Copy the record, and start from it."""
        self.place.file(id_, "record").write_text(json.dumps(self._records()), encoding="utf-8")
        return type(self)(self.place, id_)

    def evidence(self) -> Evidence:
        """Return how each record differs from the one before."""
        found: Evidence = []
        before: set[str] = set()
        for record in self._records():
            now = set(record["tools"])
            found += [("added", n) for n in sorted(now - before)] + [("removed", n) for n in sorted(before - now)]
            before = now
        return found


class CutRecord(BlindRecord):
    """Design B: the record, cut by authority and resources as they are at the boundary."""

    name: ClassVar[str] = "B"

    def recorded(self) -> dict[str, Mark]:
        """Return the tools of the last record that are still allowed and up."""
        settings = self.place.settings
        down = names_of(f"{group}/*" for group in settings.down)
        return {n: m for n, m in super().recorded().items() if n in settings.authorised and n not in down}


class Derived:
    """Design C: derived from loads, settings and resources each time; no receipt, so nothing shows what changed."""

    name: ClassVar[str] = "C"

    def __init__(self, place: Place, id_: str) -> None:
        self.id, self.place = id_, place
        self._path: tuple[str, ...] | None = None
        if not self._file.exists():
            self.begin(Load(0, LoadKind.LOAD, (f"{RESIDENT}/*",)))

    @property
    def _file(self) -> Path:
        return self.place.file(self.id, "state")

    def begin(self, *loads: Load, want: Sequence[str] | None = None, parent: str | None = None) -> None:
        """Write the first state of a session."""
        rows = [load.to_json() for load in loads]
        self._file.write_text(json.dumps({"loads": rows, "want": want, "parent": parent}), encoding="utf-8")

    def _loads(self) -> tuple[Load, ...]:
        rows = json.loads(self._file.read_text(encoding="utf-8"))["loads"]
        return tuple(
            Load(n, LoadKind(r["do"]), tuple(r["on"]), r["at"], r["call"], r["definitions"]) for n, r in enumerate(rows)
        )

    def _authority(self, id_: str) -> Authority:
        state = json.loads(self.place.file(id_, "state").read_text(encoding="utf-8"))
        now = self.place.settings.read()
        rules = (*(allow(on) for on in now["allow"]), *(deny(on) for on in now["deny"]))
        want = tuple(state["want"]) if state["want"] is not None else None
        parent = self._authority(state["parent"]) if state["parent"] is not None else None
        return Authority(Pool((Source("settings", rules),), want=want), parent=parent)

    def request(self, line: Line, profile: Profile) -> Body:
        """Derive, and render."""
        self._path = tuple(line.path)
        loads = self._loads()
        catalog = Catalog.of(groups(self.place.settings.down))
        facts = Facts(catalog, self._authority(self.id), loads, self._path, kept(loads, line.shown), profile)
        return profile.adapter.render(profile, reproject(facts, None).projection, line.shown)

    def _add(self, do: LoadKind, on: str, mark: Mark) -> None:
        loads = self._loads()
        found = prints(QUALIFIED[name] for name in names_of([on])) if do is LoadKind.LOAD else {}
        state = json.loads(self._file.read_text(encoding="utf-8"))
        state["loads"].append(Load(len(loads), do, (on,), mark.at, mark.call, found).to_json())
        self._file.write_text(json.dumps(state), encoding="utf-8")
        if mark.at is not None and self._path is not None:
            self._path = (*self._path, mark.at)

    def load(self, on: str, mark: Mark) -> None:
        """Keep the wish."""
        self._add(LoadKind.LOAD, on, mark)

    def unload(self, on: str, mark: Mark) -> None:
        """Keep that it was taken back."""
        self._add(LoadKind.UNLOAD, on, mark)

    def boundary(self, cause: str) -> None:
        """Each request is derived anyway."""

    def deny(self, on: str) -> None:
        """Write it to the settings, which are read again."""
        now = self.place.settings.read()
        self.place.settings.write(deny=[*now["deny"], on])

    def dispatch(self, call: Call, run: Callable[[], None]) -> bool:
        """Derive again, and run what is callable now."""
        catalog = Catalog.of(groups(self.place.settings.down))
        names = PROFILES["anthropic"].names  # every tool here brings its own name
        surface = derive(catalog, self._loads(), self._path, self._authority(self.id), names)
        if call.tool not in surface.wires:
            return False
        run()
        return True

    def fork(self, id_: str, at: str, line: Line) -> Host:
        """Take the loads on the path up to ``at``."""
        before = set(line.path[: line.path.index(at) + 1])
        Derived(self.place, id_).begin(*(load for load in self._loads() if load.at is None or load.at in before))
        return Derived(self.place, id_)

    def child(self, id_: str, want: Sequence[str]) -> Host:
        """Start with what is wanted; this session's authority is read at each call of the child."""
        made = Derived(self.place, id_)
        made.begin(Load(0, LoadKind.LOAD, tuple(want)), want=list(want), parent=self.id)
        return made

    def close(self) -> None:
        """Everything is on disk."""

    def evidence(self) -> Evidence:
        """Nothing says what changed: there are no receipts."""
        return []


class Library:
    """B+C: a session of the library. A configuration grants everything; the settings are a ceiling over it."""

    name: ClassVar[str] = "B+C"

    def __init__(self, place: Place, id_: str, session: Session | None = None) -> None:
        self.id, self.place = id_, place
        self._runtime: Runtime | None = None
        if session is None:
            self._runtime = Runtime(
                self._file,
                catalog=lambda: groups(place.settings.down),
                grants={"configuration": lambda _: [allow(on) for on in ALLOWED]},
                ceilings={"settings": lambda _: [allow(on) for on in place.settings.read()["allow"]]},
            )
            session = self._runtime.session(id_, holder=HOLDER)
            session.load(RESIDENT, by="configuration")
        self.session = session
        self._cause = Cause.TURN
        self._receipts: list[dict[str, Any]] = []
        self._told: set[str] = set()
        self.evidence()
        self.new_receipts()

    @property
    def _file(self) -> Path:
        return self.place.folder / "ledger.db"

    def request(self, line: Line, profile: Profile) -> Body:
        """Reproject; the receipt is durable when this returns."""
        path = None if line.legacy else line.path
        epoch = self.session.reproject(self._cause, provider=profile, history=line.shown, path=path)
        self._cause = Cause.TURN
        return epoch.request

    def load(self, on: str, mark: Mark) -> None:
        """Record the wish and its place."""
        self.session.load(on, at=mark.at, call=mark.call, by="model")

    def unload(self, on: str, mark: Mark) -> None:
        """Record that it was taken back."""
        self.session.unload(on, at=mark.at, call=mark.call, by="model")

    def boundary(self, cause: str) -> None:
        """Name the cause at the next reprojection."""
        self._cause = Cause(cause)

    def deny(self, on: str) -> None:
        """Record the person's decision."""
        self.session.deny(on, by=HOLDER)

    def dispatch(self, call: Call, run: Callable[[], None]) -> bool:
        """Put the call through the guard."""
        try:
            with self.session.guard(call) as permit:
                run()
                permit.settle()
        except (Refused, NeedsApproval):
            return False
        return True

    def fork(self, id_: str, at: str, line: Line) -> Host:
        """Fork the session."""
        return Library(self.place, id_, self.session.fork(id_, at=at, path=line.path))

    def child(self, id_: str, want: Sequence[str]) -> Host:
        """Spawn a child of the session."""
        return Library(self.place, id_, self.session.spawn(id_, want=want))

    def close(self) -> None:
        """Close the session, and the runtime with the session that opened it."""
        self.session.close()
        if self._runtime is not None:
            self._runtime.close()

    def evidence(self) -> Evidence:
        """Return what the receipts say came and went, read from the ledger's file."""
        ledger = SQLiteLedger(self._file, read_only=True)
        try:
            entries = load(ledger, self.id).entries
        finally:
            ledger.close()
        self._receipts = [{"digest": e.body["digest"], **e.body["receipt"]} for e in entries if e.kind == "epoch"]
        return [
            (action, name)
            for receipt in self._receipts
            for action, target, _, _ in receipt["changes"]
            if action in ("added", "removed")
            for name in sorted(names_of([target]))
        ]

    def new_receipts(self) -> list[dict[str, Any]]:
        """Return the receipts that :meth:`evidence` read and that were not returned before."""
        found = [r for r in self._receipts if r["digest"] not in self._told]
        self._told.update(r["digest"] for r in found)
        return found


DESIGNS: Mapping[str, type[ProcessLocal | Derived | Library]] = {
    design.name: design for design in (ProcessLocal, BlindRecord, CutRecord, Derived, Library)
}
"""The designs by the name that ``--design`` takes."""
