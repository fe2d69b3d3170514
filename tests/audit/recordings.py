"""The recordings and what their notes say, read without anything of capstate."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2] / "experiments" / "recorded" / "pi"
FOLDERS = sorted(p for p in ROOT.iterdir() if (p / "requests.jsonl").is_file())
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "expected.toml").read_text())

PLACEHOLDER = "__pi_deferred_placeholder__"
_ADDS = ("tool_reference", "tool_addition", "tool_search_output", "system.tools", "additional_tools")


def table(path: Path, first: str) -> list[dict[str, str]]:
    """The rows of the Markdown table whose first column is named ``first``."""
    lines = path.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    heads = [cell.strip() for cell in lines[start].strip("|").split("|")]
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(heads, (cell.strip() for cell in line.strip("|").split("|")), strict=True)))
    return rows


def names(cell: str) -> set[str]:
    return set() if cell == "-" else set(cell.split(", "))


def callable_by_notes(row: dict[str, str]) -> set[str]:
    """What a row of notes.md shows as callable: top level, then each load point in order."""
    found = (names(row["immediate"]) | names(row["deferred"])) - {PLACEHOLDER}
    for point in [] if row["load points"] == "-" else row["load points"].split(", "):
        form, _, listed = point.partition(": ")
        tools = set(listed.split("+"))
        if form == "tool_removal":
            found -= tools
        else:
            assert form in _ADDS, form
            found |= tools
    return found


def ran_not_authorised(folder: Path) -> int:
    return len(re.findall(r"^- .* ran \(not authorised\)", (folder / "notes.md").read_text(), re.MULTILINE))


def baseline() -> dict[str, dict[str, str]]:
    return {row["folder"]: row for row in table(ROOT / "README.md", "folder")}


def said(cell: str) -> bool | None:
    """What a cell of the baseline says: yes, no, or nothing (``-``, and remarks of another kind)."""
    words = set(re.findall(r"[a-z]+", cell.lower()))
    if "yes" in words or cell == "on reopen":
        return True
    return False if words & {"no"} else None
