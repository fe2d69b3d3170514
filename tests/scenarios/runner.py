"""From a file to a verdict."""

from __future__ import annotations

import json
import tempfile
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import define, field

from tests.scenarios import checks, never
from tests.scenarios.stage import UnsupportedError
from tests.scenarios.story import Story


@define
class Verdict:
    """What one case came to."""

    id: str
    kind: str
    failures: list[dict[str, Any]] = field(factory=list)
    unsupported: list[str] = field(factory=list)
    wanted: list[dict[str, Any]] = field(factory=list)
    """Checks that were only wanted, and failed."""

    @property
    def passed(self) -> bool:
        """Whether everything required holds and every word was known."""
        return not self.failures and not self.unsupported

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the cases' README."""
        return {
            "id": self.id,
            "kind": self.kind,
            "passed": self.passed,
            "failures": self.failures,
            "unsupported": self.unsupported,
        }

    def text(self) -> str:
        """Return the line for people, and one line more for each failure."""
        if self.passed:
            return f"{self.id} pass"
        lines = [f"{self.id} FAIL"]
        for one in self.failures:
            what = f"  after {one['event']}, {one['check']}: expected {json.dumps(one['expected'])}"
            lines.append(f"{what}, got {json.dumps(one['got'])}")
        return "\n".join([*lines, *(f"  unsupported: {word}" for word in self.unsupported)])


def cases_in(paths: Iterable[str | Path]) -> list[Path]:
    """Return the case files that are named or lie in a named folder.

    Raises:
        FileNotFoundError: there is nothing at a path.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"nothing at {path}")
        found += sorted(path.rglob("*.json")) if path.is_dir() else [path]
    return found


def run(file: Path, *, ledger: str = "sqlite", processes: bool = False) -> Verdict:
    """Run the case in a file."""
    try:
        case = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        return Verdict(file.stem, "", [_failure("start", "the file", "JSON", str(error))])
    return run_case(case, ledger=ledger, processes=processes)


def run_case(case: dict[str, Any], *, ledger: str = "sqlite", processes: bool = False) -> Verdict:
    """Run one case: whatever it does ends in a verdict."""
    verdict = Verdict(str(case.get("id", "?")), str(case.get("kind", "")))
    story: Story | None = None
    with tempfile.TemporaryDirectory(prefix="scenario-") as folder:
        try:
            story = Story(case, Path(folder), ledger=ledger, processes=processes)
            story.run()
        except UnsupportedError as word:
            verdict.unsupported.append(str(word))
            return verdict
        except Exception as error:  # noqa: BLE001 - a failed case, not a failed run
            where = traceback.extract_tb(error.__traceback__)[-1]
            got = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            verdict.failures.append(_failure(story.n if story is not None else "start", "run", "an answer", got))
            return verdict
        _judge(story, case, verdict)
    return verdict


def _judge(story: Story, case: dict[str, Any], verdict: Verdict) -> None:
    for check in case["then"].get("checks", ()):
        try:
            faults = checks.evaluate(story, check)
        except UnsupportedError as word:
            verdict.unsupported.append(str(word))
            continue
        listed = verdict.wanted if check.get("soft") else verdict.failures
        listed += [
            _failure(check["after"], f"{check['check']} {what}", expected, got) for what, expected, got in faults
        ]
    for one in case["then"].get("never", ()):
        try:
            seen = never.evaluate(story, one)
        except UnsupportedError as word:
            verdict.unsupported.append(str(word))
            continue
        verdict.failures += [_failure(n, f"never {one['predicate']}", one.get("text"), got) for n, got in seen]


def _failure(event: Any, check: str, expected: Any, got: Any) -> dict[str, Any]:
    return {"event": event, "check": check, "expected": expected, "got": json.loads(json.dumps(got, default=str))}
