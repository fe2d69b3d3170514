from __future__ import annotations

from pathlib import Path

import pytest

from capstate.agents.pi import find_sessions
from tests.agents.files import Story


def test_sessions_are_found_below_the_agents_folder(tmp_path: Path) -> None:
    """One folder a working directory; links, other files and deeper folders are left out."""
    below = tmp_path / "sessions" / "--c--"
    (below / "deep").mkdir(parents=True)
    first = Story().write(below, "2026-01-01_a.jsonl")
    second = Story().write(tmp_path / "sessions", "2026-01-02_b.jsonl")
    Story().write(below / "deep", "x.jsonl")
    (below / "notes.txt").write_text("")
    (below / "link.jsonl").symlink_to(first)
    (tmp_path / "sessions" / "linked").symlink_to(below)
    assert find_sessions({"PI_CODING_AGENT_DIR": str(tmp_path)}) == [first, second]


def test_a_flat_folder_wins(tmp_path: Path) -> None:
    """The session folder of the environment is flat and the only place."""
    flat = tmp_path / "flat"
    flat.mkdir()
    found = Story().write(flat)
    environ = {"PI_CODING_AGENT_SESSION_DIR": str(flat), "PI_CODING_AGENT_DIR": str(tmp_path)}
    assert find_sessions(environ) == [found]


def test_home_is_the_place_without_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without variables the folder below home counts; nothing there is nothing found."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_sessions({}) == []
    folder = tmp_path / ".pi" / "agent" / "sessions" / "--x--"
    folder.mkdir(parents=True)
    found = Story().write(folder)
    assert find_sessions({}) == [found]


def test_nothing_is_raised_for_places_that_are_none() -> None:
    """A place that cannot be read holds nothing."""
    assert find_sessions({"PI_CODING_AGENT_SESSION_DIR": "no\0place"}) == []
    assert find_sessions({"PI_CODING_AGENT_DIR": "/dev/null"}) == []
