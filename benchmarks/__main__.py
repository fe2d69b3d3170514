"""The command: ``python -m benchmarks [--json] [NAME...]``."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from typing import TYPE_CHECKING

from benchmarks import core, guard, loading, trace

if TYPE_CHECKING:
    from benchmarks.timing import Figure

BENCHMARKS = {**core.BENCHMARKS, **guard.BENCHMARKS, **trace.BENCHMARKS, **loading.BENCHMARKS}


def table(name: str, figures: list[Figure]) -> None:
    print(name)
    for figure in figures:
        promise = (
            "" if figure.limit is None else f"  (promised <= {figure.limit:g}: {'kept' if figure.kept else 'NOT KEPT'})"
        )
        print(f"  {figure.what}: {figure.ratio:.2f} x {figure.floor}{promise}")
        scale, unit = (1e6, "us") if figure.unit == "seconds" else (1, figure.unit)
        print(f"    {figure.seconds * scale:,.1f} {unit} against {figure.floor_seconds * scale:,.1f} {unit}")
        for key, value in figure.detail.items():
            print(f"    {key}: {value:,.6g}")


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)} (all)")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.names) - BENCHMARKS.keys())
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}")
    found: dict[str, list[Figure]] = {}
    for name in chosen.names or BENCHMARKS:
        found[name] = BENCHMARKS[name]()
        if not chosen.json:
            table(name, found[name])
    if chosen.json:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
        figures = {name: [figure.to_json() for figure in figures] for name, figures in found.items()}
        print(json.dumps({"machine": machine, "benchmarks": figures}, indent=1))
    return 0 if all(figure.kept for figures in found.values() for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
