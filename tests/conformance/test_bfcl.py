"""The replay of BFCL's cases finds nothing on the product, and something on each host that does it wrong."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from capstate.capabilities import Group, Tool

FILE = Path(__file__).parents[2] / "experiments" / "bfcl" / "replay.py"
NEEDED = pytest.mark.skipif(
    importlib.util.find_spec("bfcl_eval") is None, reason="bfcl-eval is not installed: make bfcl runs all of it"
)


@pytest.fixture
def replay() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bfcl_replay", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bfcl_replay"] = module
    spec.loader.exec_module(module)
    return module


def case(replay: ModuleType) -> Any:
    """A case of our own, in the form of theirs."""
    disk, late = Group("Disk", [Tool("ls"), Tool("cat")]), Group("late", [Tool("sort")])
    calls: Any = ((("Disk/ls", {}),), (), (("late/sort", {"file": "a"}), ("Disk/cat", {"file": "a"})))
    return replay.Case("ours", (disk, late), "late/sort", 1, ("list", "", "sort it"), calls)


def counts(table: dict[str, Any]) -> dict[str, int]:
    return {name: sum(row[name] for row in table["events"].values()) for name in ("invalid", "lost", "widened")}


def test_every_event_before_every_turn(replay: ModuleType) -> None:
    """Nothing invalid, lost or widened; what was revoked is refused, and nothing else."""
    table = replay.replay([case(replay)])

    assert counts(table) == {"invalid": 0, "lost": 0, "widened": 0}
    assert {event: (row["runs"], row["refused"]) for event, row in table["events"].items()} == {
        "none": (1, 0), "compaction": (3, 0), "restart": (3, 0), "switch": (3, 0), "revocation": (3, 3),
    }  # fmt: skip


def test_a_policy_that_never_shrinks_is_counted(replay: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that asks its policy once: the revoked tool stays on the wire, and runs."""
    monkeypatch.setattr(replay.Play, "rules", lambda self: [f"{group.id}/*" for group in self.case.groups])

    assert counts(replay.replay([case(replay)]))["widened"] > 0


def test_a_load_that_a_restart_forgets_is_counted(replay: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that keeps what is loaded in its process."""
    right = replay.Play.opened

    def wrong(self: Any) -> Any:
        session = right(self)
        session.unload("late")
        return session

    monkeypatch.setattr(replay.Play, "opened", wrong)

    assert counts(replay.replay([case(replay)]))["lost"] > 0


def test_a_history_cut_between_call_and_result_is_counted(replay: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that keeps the last messages."""
    right = replay.Play.happen

    def wrong(self: Any, session: Any) -> Any:
        if self.event == "compaction":
            self.history = self.history[-2:]
            return session
        return right(self, session)

    monkeypatch.setattr(replay.Play, "happen", wrong)

    assert counts(replay.replay([case(replay)]))["invalid"] > 0


@NEEDED
def test_some_of_theirs(replay: ModuleType) -> None:
    """Five of the two hundred, forty apart."""
    found = list(replay.cases(replay.data_folder()))
    assert len(found) == 200

    assert counts(replay.replay(found[::40])) == {"invalid": 0, "lost": 0, "widened": 0}


def test_the_recorded_table_says_nothing_went_wrong() -> None:
    """What ``make bfcl`` printed last is what the page says of it."""
    import json

    table = json.loads(FILE.with_name("results.json").read_text(encoding="utf-8"))

    assert table["cases"] == 200
    assert counts(table) == {"invalid": 0, "lost": 0, "widened": 0}
