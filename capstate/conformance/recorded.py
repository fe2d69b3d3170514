"""What one real agent did in each scenario: counted from recordings by the audit, and bundled as ``recorded.json``.

Made anew, from a clone, by::

    python -m capstate.conformance.recorded experiments/recorded/pi > capstate/conformance/recorded.json

A lost or widened turn is a request; ``ran`` counts tools that ran without authority, never loaded on that path, or not
in the request. The authority lists and the scripted replies of the recordings are their makers'; the agent was never
told of the lists. Which recording shows which scenario is :data:`capstate.conformance.scenarios.SCENARIOS`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from capstate.audit import audit_paths
from capstate.conformance.scenarios import SCENARIOS, Scenario
from capstate.errors import InvalidInputError, MalformedError
from capstate.policy import read_policy

_RUNS = frozenset(("CS120", "CS121", "CS202"))


@frozen
class Recorded:
    """One row's recordings together.

    Attributes:
        requests: how many requests were judged.
        shown: the first place of each kind.
    """

    requests: int
    lost: int
    widened: int
    ran: int
    shown: tuple[str, ...]


def count(root: Path) -> dict[str, Recorded]:
    """Audit every recording below ``root`` that a scenario names.

    Raises:
        InvalidInputError: a recording or its policy is not there.
    """
    return {id_: _row(scenario, root) for id_, scenario in SCENARIOS.items()}


def _row(scenario: Scenario, root: Path) -> Recorded:
    requests = 0
    places: dict[str, list[str]] = {"lost": [], "widened": [], "ran": []}
    for folder, turns in scenario.recorded.items():
        policy = read_policy(root / folder / "policy.toml")
        lines = list(audit_paths([root / folder], policy))
        requests += sum(_is_turn(line, turns) for line in lines)
        for what, found in _faults(lines, turns).items():
            places[what] += [f"{folder.partition('-')[0]} {one}" for one in found]
    counts = {what: len(found) for what, found in places.items()}
    shown = tuple(f"{what} in {found[0]}" for what, found in places.items() if found)
    return Recorded(requests, **counts, shown=shown)


def _is_turn(line: Mapping[str, Any], turns: tuple[int, ...] | None) -> bool:
    return line.get("kind") == "turn" and (turns is None or line["turn"] in turns)


def _faults(lines: Iterable[Mapping[str, Any]], turns: tuple[int, ...] | None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"lost": [], "widened": [], "ran": []}
    runs: dict[tuple[str, int], str] = {}
    for line in lines:
        if _is_turn(line, turns):
            widened = sorted({*(line["not_authorised"] or ()), *(line["never_loaded"] or ())})
            for what, names in (("lost", line["lost"] or ()), ("widened", widened)):
                if names:
                    found[what].append(f"turn {line['turn']}: {', '.join(names)}")
        elif line.get("finding") in _RUNS and line["detail"] == "ran" and (turns is None or line["turn"] in turns):
            runs[line["file"], line["line"]] = f"turn {line['turn']}: {', '.join(line['names'])}"
    found["ran"] = list(runs.values())
    return found


def bundled() -> dict[str, Recorded]:
    """Return what the package brings.

    Raises:
        MalformedError: the bundled file is damaged.
    """
    text = (files("capstate.conformance") / "recorded.json").read_text(encoding="utf-8")
    try:
        rows: dict[str, dict[str, Any]] = json.loads(text)["rows"]
        return {id_: Recorded(**{**row, "shown": tuple(row["shown"])}) for id_, row in rows.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedError("recorded.json", "rows of counts", str(error)) from error


def main(arguments: list[str]) -> str:
    """Return the text of ``recorded.json`` for the recordings in the one argument."""
    if len(arguments) != 1:
        raise InvalidInputError("arguments", "the folder of the recordings", " ".join(arguments) or "nothing")
    rows = {id_: asdict(row) for id_, row in count(Path(arguments[0])).items()}
    return json.dumps({"agent": "Pi", "rows": rows}, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
