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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from capstate.conformance.designs import DESIGNS
from capstate.conformance.play import Job, Seen, Stage, jobs_json, play
from capstate.conformance.scenarios import SCENARIOS, Scenario, segments
from capstate.conformance.truth import Expected, Truth
from capstate.conformance.world import PROFILES
from capstate.errors import CapstateError, InvalidInputError

if TYPE_CHECKING:
    from capstate.conformance.recorded import Recorded

SECONDS = 300
"""The longest that one process may take."""
SHARE = 48
"""Scripts that one process plays, each with hosts and a folder of its own."""


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

    def places(self, row: Row, design: str) -> tuple[str, ...]:
        """Return every turn that a design's worst cell of a row counts."""
        cell = row.worst(design)
        if cell is None:
            return ()
        key = row.scenario.id, design, cell.profile
        turns = [turn for found, of in self.turns.items() if found[:3] == key for turn in of]
        return tuple(_shown(what, turn) for what, some in _faulty(turns).items() for turn in some)


def run(
    scenarios: Sequence[str] = (),
    profiles: Sequence[str] = (),
    designs: Sequence[str] = (),
    *,
    processes: bool = True,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Result:
    """Play and judge; each argument empty means all.

    Args:
        processes: False plays everything in this process; at a restart a design's objects go, the process stays.
        progress: told how many parts of scripts are played, of how many.

    Raises:
        InvalidInputError: a name is unknown.
        ProcessFailedError: a process that plays scripts ended badly.
    """
    rows = _chosen("scenario", scenarios, SCENARIOS)
    compared = _chosen("design", designs, DESIGNS)
    under = _chosen("provider", profiles, PROFILES)
    with tempfile.TemporaryDirectory(prefix="capstate-matrix-") as folder:
        jobs = [job for id_ in rows for job in _jobs(SCENARIOS[id_], compared, under, Path(folder))]
        seen = _played(jobs, processes=processes, progress=progress)
    result = Result()
    cells: dict[str, dict[str, dict[str, list[Turn]]]] = {id_: {d: {} for d in compared} for id_ in rows}
    for job, found in zip(jobs, seen, strict=True):
        turns = judge(job, found)
        result.turns[job.scenario, job.design, job.profile, job.variant] = turns
        cells[job.scenario][job.design].setdefault(job.profile, []).extend(turns)
    for id_ in rows:
        counted = {d: tuple(_cell(p, turns) for p, turns in by.items()) for d, by in cells[id_].items()}
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
                place = folder / f"{scenario.id}-{design}-{profile}-{variant}"
                place.mkdir()
                yield Job(scenario.id, variant, design, profile, str(place))


def _played(jobs: Sequence[Job], *, processes: bool, progress: Callable[[int, int], None]) -> list[list[Seen]]:
    """Play all jobs, part by part: no part begins before every process of the part before has ended."""
    seen: list[list[Seen]] = [[] for _ in jobs]
    parts = [len(segments(job.script)) for job in jobs]
    total, done = sum(parts), 0
    for part in range(max(parts, default=0)):
        due = [n for n, count in enumerate(parts) if part < count]
        shares = [due[n : n + SHARE] for n in range(0, len(due), SHARE)]
        play_share = partial(_share, jobs, part, processes=processes)
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1) if processes else 1) as pool:
            for share, found in zip(shares, pool.map(play_share, shares), strict=True):
                for n, more in zip(share, found, strict=True):
                    seen[n].extend(more)
                done += len(share)
                progress(done, total)
    return seen


def _share(jobs: Sequence[Job], part: int, share: Sequence[int], *, processes: bool) -> list[list[Seen]]:
    mine = [jobs[n] for n in share]
    return _process(mine, part) if processes else [play(job, part) for job in mine]


def _process(jobs: Sequence[Job], part: int) -> list[list[Seen]]:
    command = [sys.executable, "-m", "capstate.conformance.play"]
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, a module of ours
            command, input=jobs_json(jobs, part), capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ProcessFailedError(
            f"a process that began with scenario {jobs[0].scenario} took more than {SECONDS} s"
        ) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ProcessFailedError(
            f"a process that began with scenario {jobs[0].scenario} ended with {done.returncode}: {last}"
        )
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
    found = _faulty(turns)
    shown = tuple(_shown(what, some[0]) for what, some in found.items() if some)
    counts = {what: len(some) for what, some in found.items()}
    return Cell(profile, len(turns), **counts, shown=shown)


def _faulty(turns: Sequence[Turn]) -> dict[str, list[Turn]]:
    return {
        "lost": [t for t in turns if t.lost],
        "widened": [t for t in turns if t.widened or t.ran],
        "unexplained": [t for t in turns if t.unexplained],
    }


def _shown(what: str, turn: Turn) -> str:
    where = f"turn {turn.seen.turn}" + (f" of {turn.seen.session}" if turn.seen.session != "main" else "")
    names = {"lost": turn.lost, "widened": turn.widened | turn.ran, "unexplained": turn.unexplained}[what]
    ran = f" (ran: {', '.join(sorted(turn.ran))})" if what == "widened" and turn.ran else ""
    return f"{where}: {what} {', '.join(sorted(names))}{ran}"


def row_json(row: Row, recorded: Recorded) -> dict[str, Any]:
    """Return one row as JSON: a design's counts are those of the profile with the most faults."""
    designs = {}
    for design in row.cells:
        cell = row.worst(design) or Cell("")
        designs[design] = {
            "lost": cell.lost,
            "widened": cell.widened,
            "unexplained": cell.unexplained,
            "turns": cell.turns,
            "profile": cell.profile or None,
            "shown": list(cell.shown),
        }
    seen = {"lost": recorded.lost, "widened": recorded.widened, "ran": recorded.ran}
    return {
        "scenario": row.scenario.id,
        "title": row.scenario.title,
        "recorded": {**seen, "requests": recorded.requests, "shown": list(recorded.shown)},
        "designs": designs,
    }
