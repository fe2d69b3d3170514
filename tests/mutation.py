"""Mutation testing of the core: ``python -m tests.mutation [--sample N --seed S] [--tests PATH...] [MODULE...]``.

Each mutant changes one place of one core module in a copy of the package; the tests run on the copy in a process of
their own, derandomised, and a mutant that they accept survives if it does so again under the patient profile.
Survivors that change nothing anybody could see stand in ``mutation-survivors.toml``, each with a reason. Exit 0 if
``--floor`` percent of the others are killed and, in a full run, the list and the survivors are the same.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import multiprocessing
import os
import queue
import random
import resource
import shutil
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mutants import ROOT, Mutant, mutants

CORE = [
    "errors", "digest", "names", "capabilities", "grants", "authority", "loads", "surface", "projection", "rows",
    "receipts", "archive", "epochs",
]  # fmt: skip
LISTED = Path(__file__).with_name("mutation-survivors.toml")
MEMORY_LIMIT = 4 << 30  # bytes of address space; a mutant that grows without end dies of it
FORKS = multiprocessing.get_context("forkserver")


def run_tests(folder: str, profile: str, tests: list[str]) -> None:
    """In a process of its own: run ``tests`` on the copy in ``folder``; the exit status says whether they passed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    os.chdir(folder)
    sys.path[:] = [folder, *(path for path in sys.path if path and Path(path).resolve() != ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] in {"capstate", "tests"}]:
        del sys.modules[name]
    fixed = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    preloaded = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with Path(os.devnull).open("w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
        status = pytest.main([*fixed, *preloaded, f"--hypothesis-profile={profile}", *tests])
    os._exit(int(status))


class Quickest:
    """Lets the tests of single cases run before those of random ones: most mutants die of them."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(
            key=lambda item: (
                item.name == "runTest" or "worlds" in item.name or hasattr(getattr(item, "obj", None), "hypothesis")
            )
        )


class Workers:
    """Copies of the project, each used by one process at a time."""

    def __init__(self, folder: str, count: int, tests: list[str]) -> None:
        self.free: queue.Queue[Path] = queue.Queue()
        self.tests, self.limit, self.written = tests, 3600.0, 0
        for number in range(count):
            place = Path(folder, str(number))
            for name in ("capstate", "tests"):
                shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "pyproject.toml", place)
            self.free.put(place)

    def passes(self, place: Path, profile: str) -> bool:
        process = FORKS.Process(target=run_tests, args=(str(place), profile, self.tests))
        process.start()
        process.join(self.limit if profile == "quick" else 20 * self.limit)
        hangs = process.is_alive()
        process.kill()
        process.join()
        return not hangs and process.exitcode == 0

    def survives(self, mutant: Mutant) -> bool:
        place = self.free.get()
        module = place / "capstate" / f"{mutant.module}.py"
        original = module.read_text(encoding="utf-8")
        try:
            self.write(module, mutant.source)
            return self.passes(place, "quick") and self.passes(place, "patient")
        finally:
            self.write(module, original)
            self.free.put(place)

    def write(self, module: Path, source: str) -> None:
        """Write ``source`` with a time of its own: cached bytecode is told apart by whole seconds and size."""
        self.written += 1
        module.write_text(source, encoding="utf-8")
        os.utime(module, (self.written, self.written))


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(CORE)} (all)")
    parser.add_argument("--tests", nargs="+", default=["tests/core"])
    parser.add_argument("--sample", type=int, help="only so many mutants, drawn with --seed")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--floor", type=float, default=90.0, help="percent that must be killed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    modules = chosen.modules or [name for name in CORE if (ROOT / "capstate" / f"{name}.py").exists()]
    listed = {row["mutant"]: row["reason"] for row in tomllib.loads(LISTED.read_text()).get("survivor", [])}
    every = [mutant for module in modules for mutant in mutants(module)]
    drawn = every if chosen.sample is None else random.Random(chosen.seed).sample(every, min(chosen.sample, len(every)))
    os.environ["PYTHONHASHSEED"] = "0"
    FORKS.set_forkserver_preload(["pytest", "hypothesis", "attrs", "cattrs", "orjson", "rfc8785", "blake3"])
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(chosen.jobs) as pool:
        workers = Workers(folder, chosen.jobs, chosen.tests)
        began = time.monotonic()
        for place in list(workers.free.queue):
            if not workers.passes(place, "quick"):
                print(f"the unchanged core does not pass {' '.join(chosen.tests)}")
                return 2
        workers.limit = 10 + 3 * (time.monotonic() - began)
        survivors = []
        for number, (mutant, alive) in enumerate(zip(drawn, pool.map(workers.survives, drawn), strict=True), 1):
            if alive:
                survivors.append(mutant)
                show(mutant, listed.get(mutant.key))
            if number % 20 == 0 or number == len(drawn):
                print(f"{number}/{len(drawn)} mutants, {len(survivors)} survivors", flush=True)
    return judge(drawn, survivors, listed, modules, floor=chosen.floor, full=chosen.sample is None)


def show(mutant: Mutant, reason: str | None) -> None:
    old = (ROOT / "capstate" / f"{mutant.module}.py").read_text(encoding="utf-8").splitlines()
    diff = [row for row in difflib.ndiff(old, mutant.source.splitlines()) if row[0] in "+-"]
    head = f"capstate/{mutant.module}.py:{mutant.line}: survived" + (f", listed: {reason}" if reason else "")
    print("\n".join([head, f"  {mutant.key}", *(f"  {row}" for row in diff)]), flush=True)


def judge(
    drawn: list[Mutant],
    survivors: list[Mutant],
    listed: dict[str, str],
    modules: list[str],
    *,
    floor: float,
    full: bool,
) -> int:
    known = [mutant for mutant in survivors if mutant.key in listed]
    counted, killed = len(drawn) - len(known), len(drawn) - len(survivors)
    rate = 100 * killed / counted if counted else 0.0
    stale = {key for key in listed if key.partition(".py ")[0] in modules} - {mutant.key for mutant in survivors}
    for key in sorted(stale) if full else ():
        print(f"listed, but killed or gone: {key}")
    for key in sorted(key for key, reason in listed.items() if not reason.strip()):
        print(f"listed without a reason: {key}")
    print(f"killed {killed} of {counted} ({rate:.1f} %), {len(known)} more survive as listed; floor {floor} %")
    clean = not full or (not stale and len(known) == len(survivors))
    return 0 if rate >= floor and clean and all(reason.strip() for reason in listed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
