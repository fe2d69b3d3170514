"""Nine lifecycle scenarios, five designs, every provider profile: what was lost, what widened, what nothing explains.

A cell counts turns. It is counted from request bodies, read back by the adapter's ``on_wire``, and from tools that ran
or did not; a design's own state is never asked. What ought to be there comes from the script alone
(:mod:`capstate.conformance.truth`).

* lost: a tool that was loaded and authorised was not on the wire, or was on it and refused when called;
* widened: a tool was on the wire, or ran, that was not authorised, not up, or never loaded on that path;
* unexplained: what was on the wire changed, and neither the transcript nor a durable record names the tool.

Scripts are played in other processes. Where one restarts, each part is a process that begins with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import define, field, frozen

from capstate.conformance.designs import DESIGNS
from capstate.conformance.play import Job, Seen, Stage, jobs_json, play
from capstate.conformance.scenarios import SCENARIOS, Scenario, segments
from capstate.conformance.truth import Expected, Truth
from capstate.conformance.world import PROFILES
from capstate.errors import CapstateError, InvalidInputError

SECONDS = 300
"""The longest that one process may take."""


class ProcessFailedError(CapstateError):
    """A process that plays scripts ended badly."""


@frozen
class Turn:
    """One judged request: what was seen, what should have been, and the difference."""

    seen: Seen
    expected: Expected
    wire: frozenset[str]
    immediate: tuple[str, ...]
    deferred: dict[str, str]
    lost: frozenset[str]
    widened: frozenset[str]
    ran: frozenset[str]
    unexplained: frozenset[str]


@frozen
class Cell:
    """Turns of one design in one row under one profile, all its scripts together; ``shown`` names the first of each."""

    profile: str
    turns: int = 0
    lost: int = 0
    widened: int = 0
    unexplained: int = 0
    shown: tuple[str, ...] = ()

    @property
    def faults(self) -> int:
        """All three together."""
        return self.lost + self.widened + self.unexplained


@frozen
class Row:
    """One scenario: a cell for each design and each profile that the row applies to."""

    scenario: Scenario
    cells: dict[str, tuple[Cell, ...]]

    def worst(self, design: str) -> Cell | None:
        """Return the cell with the most faults among the profiles; None if the row applies to none of them."""
        return max(self.cells[design], key=lambda cell: cell.faults, default=None)


@define
class Result:
    """All rows, and all judged turns by (scenario, design, profile, script)."""

    rows: list[Row] = field(factory=list)
    turns: dict[tuple[str, str, str, int], list[Turn]] = field(factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the library lost nothing, widened nothing, and explained everything in every cell."""
        return not any(cell.faults for row in self.rows for cell in row.cells.get("B+C", ()))


def run(
    scenarios: Sequence[str] = (),
    profiles: Sequence[str] = (),
    designs: Sequence[str] = (),
    *,
    processes: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """Play and judge; each argument empty means all.

    Args:
        processes: False plays everything in this process; at a restart a design's objects go, the process stays.
        progress: told the scenario that begins.

    Raises:
        InvalidInputError: a name is unknown.
        ProcessFailedError: a process that plays scripts ended badly.
    """
    chosen = _chosen("scenario", scenarios, SCENARIOS), _chosen("design", designs, DESIGNS)
    under = _chosen("provider", profiles, PROFILES)
    result = Result()
    for id_ in chosen[0]:
        progress(id_)
        with tempfile.TemporaryDirectory(prefix="capstate-matrix-") as folder:
            jobs = list(_jobs(SCENARIOS[id_], chosen[1], under, Path(folder)))
            seen = _played(jobs, processes=processes)
        cells: dict[str, dict[str, list[Turn]]] = {design: {} for design in chosen[1]}
        for job, found in zip(jobs, seen, strict=True):
            turns = judge(job, found)
            result.turns[id_, job.design, job.profile, job.variant] = turns
            cells[job.design].setdefault(job.profile, []).extend(turns)
        counted = {d: tuple(_cell(p, turns) for p, turns in by.items()) for d, by in cells.items()}
        result.rows.append(Row(SCENARIOS[id_], counted))
    return result


def _chosen(what: str, names: Sequence[str], known: Iterable[str]) -> list[str]:
    for name in names:
        if name not in known:
            raise InvalidInputError(what, "one of " + ", ".join(known), name)
    return [name for name in known if not names or name in names]


def _jobs(scenario: Scenario, designs: Sequence[str], profiles: Sequence[str], folder: Path) -> Iterator[Job]:
    for design in designs:
        for profile in profiles:
            for variant in range(len(scenario.scripts(profile))):
                place = folder / f"{design}-{profile}-{variant}"
                place.mkdir()
                yield Job(scenario.id, variant, design, profile, str(place))


def _played(jobs: Sequence[Job], *, processes: bool) -> list[list[Seen]]:
    seen: list[list[Seen]] = [[] for _ in jobs]
    for part in range(len(segments(jobs[0].script)) if jobs else 0):
        found = _elsewhere(jobs, part) if processes else [play(job, part) for job in jobs]
        for rows, more in zip(seen, found, strict=True):
            rows.extend(more)
    return seen


def _elsewhere(jobs: Sequence[Job], part: int) -> list[list[Seen]]:
    """Play one part of all jobs in processes that begin with it and end behind it, a few jobs in each."""
    hands = max(1, min(4, os.cpu_count() or 1, len(jobs) // 8))
    with ThreadPoolExecutor(hands) as pool:
        shares = list(pool.map(lambda n: _process(jobs[n::hands], part), range(hands)))
    found: list[list[Seen]] = [[] for _ in jobs]
    for n, share in enumerate(shares):
        found[n::hands] = share
    return found


def _process(jobs: Sequence[Job], part: int) -> list[list[Seen]]:
    command = [sys.executable, "-m", "capstate.conformance.play"]
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, a module of ours
            command, input=jobs_json(jobs, part), capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ProcessFailedError(f"a process of scenario {jobs[0].scenario} took more than {SECONDS} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ProcessFailedError(f"a process of scenario {jobs[0].scenario} ended with {done.returncode}: {last}")
    return [[Seen.from_json(row) for row in rows] for rows in json.loads(done.stdout)]


# ---- judging


def judge(job: Job, seen: Sequence[Seen]) -> list[Turn]:
    """Compare what was seen with what the script says should have been."""
    ran = [[did for _, did in one.calls] for one in seen]
    expected = Truth(Stage(job.profile)).follow(job.script, ran=ran)
    turns: list[Turn] = []
    last: dict[str, tuple[frozenset[str], int]] = {}
    for one, due in zip(seen, expected, strict=True):
        wire = PROFILES[one.profile].adapter.on_wire(one.body)
        now = wire.effective
        before, told = last.get(one.session, (None, 0))
        if before is None and due.base is not None:
            before = last[due.base][0] if isinstance(due.base, str) else due.base
        changed = (
            set() if before is None else {("added", n) for n in now - before} | {("removed", n) for n in before - now}
        )
        explained = due.named | set(one.evidence[told:])
        last[one.session] = now, len(one.evidence)
        calls = list(zip(one.calls, due.at_calls, strict=True))
        turns.append(
            Turn(
                one,
                due,
                now,
                wire.immediate,
                dict(wire.deferred),
                due.callable - now | {tool for (tool, did), may in calls if tool in may & now and not did},
                now - due.callable,
                frozenset(tool for (tool, did), may in calls if did and tool not in may),
                frozenset(name for _, name in changed - explained),
            )
        )
    return turns


def _cell(profile: str, turns: Sequence[Turn]) -> Cell:
    found: dict[str, list[Turn]] = {
        "lost": [t for t in turns if t.lost],
        "widened": [t for t in turns if t.widened or t.ran],
        "unexplained": [t for t in turns if t.unexplained],
    }
    shown = tuple(_shown(what, some[0]) for what, some in found.items() if some)
    counts = {what: len(some) for what, some in found.items()}
    return Cell(profile, len(turns), **counts, shown=shown)


def _shown(what: str, turn: Turn) -> str:
    where = f"turn {turn.seen.turn}" + (f" of {turn.seen.session}" if turn.seen.session != "main" else "")
    names = {"lost": turn.lost, "widened": turn.widened | turn.ran, "unexplained": turn.unexplained}[what]
    ran = f" (ran: {', '.join(sorted(turn.ran))})" if what == "widened" and turn.ran else ""
    return f"{where}: {what} {', '.join(sorted(names))}{ran}"
