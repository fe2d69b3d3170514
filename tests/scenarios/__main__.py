"""``python -m tests.scenarios PATH... [--json] [--ledger memory|sqlite] [--processes]``: run cases, print verdicts."""

from __future__ import annotations

import argparse
import json
import sys

from tests.scenarios.runner import cases_in, run


def main() -> int:
    """Run what the command line names; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description="Run cases, one verdict a line.")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a case, or a folder of cases")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--ledger", choices=["memory", "sqlite"], default="sqlite")
    parser.add_argument("--processes", action="store_true", help="each session in a process of its own")
    options = parser.parse_args()
    try:
        files = cases_in(options.paths)
    except FileNotFoundError as error:
        parser.error(str(error))
    passed = True
    for file in files:
        verdict = run(file, ledger=options.ledger, processes=options.processes)
        passed = passed and verdict.passed
        print(json.dumps(verdict.to_json()) if options.json else verdict.text(), flush=True)
    return 0 if passed and files else 1


if __name__ == "__main__":
    sys.exit(main())
