from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios import checks, never, stories
from tests.scenarios.hosts import ROOT
from tests.scenarios.runner import cases_in, run, run_case

CASES = Path(__file__).parent / "cases"
FILES = {file.name[:3]: file for file in cases_in([CASES])}
SHARED = ["H06", "H07", "H20"]
"""Cases of parents and children."""
WORLDS = pytest.mark.parametrize(
    ("ledger", "processes"),
    [("memory", False), ("sqlite", False), ("sqlite", True)],
    ids=["memory", "sqlite", "processes"],
)


def seen(verdict: Any) -> dict[str, Any]:
    return {"failures": verdict.failures, "unsupported": verdict.unsupported}


NOTHING: dict[str, Any] = {"failures": [], "unsupported": []}


@pytest.mark.parametrize("ledger", ["memory", "sqlite"])
@pytest.mark.parametrize("name", sorted(FILES))
def test_case_passes(name: str, ledger: str) -> None:
    """Every check of the case holds and nothing that must not happen does."""
    assert seen(run(FILES[name], ledger=ledger)) == NOTHING


@pytest.mark.parametrize("name", [*SHARED, "H02", "H09", "H10", "H12", "H16", "H18"])
def test_case_passes_with_each_session_in_its_own_process(name: str) -> None:
    """Parent, child and whoever revokes share only the ledger file and the files that sources read."""
    assert seen(run(FILES[name], processes=True)) == NOTHING


@WORLDS
@pytest.mark.parametrize("story", stories.ALL, ids=lambda story: story.__name__)
def test_story_passes(story: Callable[[], dict[str, Any]], ledger: str, processes: bool) -> None:
    """Words that the twenty cases do not use mean what their description says."""
    assert seen(run_case(story(), ledger=ledger, processes=processes)) == NOTHING


def test_no_process_is_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that fails half-way, with a stopped process, has ended all of them all the same."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remember(*args: Any, **kwargs: Any) -> Any:
        started.append(popen(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)
    case = json.loads(FILES["H18"].read_text())
    case["when"][4] = {"n": 5, "op": "no such word"}

    verdict = run_case(case)

    assert verdict.unsupported == ["op no such word"]
    assert len(started) >= 4
    assert [one for one in started if one.poll() is None] == []


# ---- the runner notices


def spoilt(what: str) -> dict[str, Any]:
    """H06 with one wrong answer."""
    case = json.loads(FILES["H06"].read_text())
    wrong = {
        "callable": {"after": 1, "check": "callable", "session": "kid1", "exactly": ["files/read", "web/fetch"]},
        "receipt": {"after": 1, "check": "receipt", "session": "kid1", "kind": "widened"},
        "no_receipt": {"after": 1, "check": "no_receipt", "session": "kid1", "kind": "narrowed"},
        "executed": {"after": "end", "check": "executed", "call": "c2", "times": 2},
        "refused": {"after": "end", "check": "refused", "call": "c2", "error": "not_authorised"},
        "limit": {"after": "end", "check": "started_among", "calls": ["c1", "c2"], "count": 2},
        "error": {"after": 1, "check": "error", "event": 1, "error": "session_locked"},
        "outcome": {"after": "end", "check": "outcome", "session": "kid1", "call": "c1", "is": "ok"},
        "trace": {"after": "end", "check": "trace", "session": "kid1", "results_for": {"c1": 2}},
        "wire": {"after": "end", "check": "wire", "session": "main", "placement": {"files/read": "deferred"}},
    }
    case["then"] = {"checks": [wrong[what]], "never": []}
    return case  # type: ignore[no-any-return]  # JSON


@pytest.mark.parametrize(
    "what", ["callable", "receipt", "no_receipt", "executed", "refused", "limit", "error", "outcome", "trace", "wire"]
)
def test_a_wrong_answer_fails(what: str) -> None:
    """A check that does not hold is reported with event, check, expected and got."""
    verdict = run_case(spoilt(what), ledger="memory")

    assert [set(one) for one in verdict.failures] == [{"event", "check", "expected", "got"}]
    assert verdict.failures[0]["check"].startswith(("callable", what, "started_among"))


@pytest.mark.parametrize(
    "happened",
    [
        {"predicate": "executed", "calls": ["c1"]},
        {"predicate": "executed_more_than", "call": "c1", "count": 0},
        {"predicate": "started_more_than", "count": 0},
        {"predicate": "body_reached", "tool": "notes/read"},
        {"predicate": "callable", "session": "main", "tool": "notes/read", "must_be": False},
        {"predicate": "callable", "session": "main", "tool": "lab/run", "must_be": True, "from_event": 1},
        {"predicate": "outcome_becomes", "call": "c2", "forbidden": ["denied"]},
        {"predicate": "results_more_than", "session": "main", "call": "c3", "count": 0},
    ],
    ids=lambda happened: happened["predicate"] + str(happened.get("must_be", "")),
)
def test_what_did_happen_is_seen(happened: dict[str, Any]) -> None:
    """A predicate that came true fails the case, with the event at which it did."""
    case = json.loads(FILES["H02"].read_text())
    case["then"] = {"checks": [], "never": [{"text": "it happened", **happened}]}

    found = run_case(case, ledger="memory").failures

    assert {one["check"] for one in found} == {f"never {happened['predicate']}"}


def test_unknown_words_are_listed_and_fail_the_case() -> None:
    """A word that the runner does not know is never passed over: check, part of a check, predicate, event."""
    case = json.loads(FILES["H02"].read_text())
    case["then"]["checks"].append({"after": "end", "check": "weather"})
    case["then"]["checks"].append({"after": "end", "check": "callable", "session": "main", "colour": "blue"})
    case["then"]["never"].append({"text": "...", "predicate": "rain"})
    silent = deepcopy(case)
    silent["when"].append({"n": 2, "op": "dance"})

    assert run_case(case, ledger="memory").unsupported == ["check weather", "check callable: colour", "predicate rain"]
    assert run_case(silent, ledger="memory").unsupported == ["op dance"]


def test_a_wish_that_is_only_soft_fails_nothing() -> None:
    """H04 wants a notice in the request, and passes without."""
    verdict = run(FILES["H04"], ledger="memory")

    assert verdict.passed
    assert [one["check"] for one in verdict.wanted] == ["wire notice_about"]


def test_every_word_of_the_cases_is_known() -> None:
    """Each check and predicate that the twenty cases use is one of the runner's."""
    cases = [json.loads(file.read_text()) for file in FILES.values()]
    used = {check["check"] for case in cases for check in case["then"]["checks"]}
    predicates = {one["predicate"] for case in cases for one in case["then"]["never"]}

    assert used - checks._CHECKS.keys() == set()
    assert predicates - never._PREDICATES.keys() == set()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.scenarios", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_command_prints_one_line_a_case_and_says_so_by_its_status(tmp_path: Path) -> None:
    """0 only if all passed; with --json one object a line, with the fields of the README."""
    good = command(str(FILES["H02"]), "--ledger", "memory")
    other = tmp_path / "strange.json"
    other.write_text(json.dumps({**json.loads(FILES["H02"].read_text()), "when": [{"n": 1, "op": "teleport"}]}))
    bad = command(str(FILES["H02"]), str(other), "--json", "--ledger", "memory")
    other.unlink()
    (tmp_path / "broken.json").write_text("{")
    broken = command(str(tmp_path), "--json")
    told = [json.loads(line) for line in bad.stdout.splitlines()]

    assert (good.returncode, good.stdout) == (0, "H02 pass\n")
    assert (bad.returncode, [t["passed"] for t in told]) == (1, [True, False])
    assert all(list(t) == ["id", "kind", "passed", "failures", "unsupported"] for t in told)
    assert (broken.returncode, json.loads(broken.stdout)["passed"]) == (1, False)
    assert command(str(tmp_path / "nothing")).returncode == 2
