"""Reads the Markdown pages of the project: their tables, headings and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = [p for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md") if (p := ROOT / name).exists()]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^(```+).*?^\1 *$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def tables(path: Path, *, raw: bool = False) -> Iterator[list[list[str]]]:
    """Yield each table: its head, then its rows; code marks around a whole cell are left out unless ``raw``."""
    table: list[list[str]] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            table.append(cells if raw else [_bare(cell) for cell in cells])
        elif table:
            yield [table[0], *table[2:]]
            table = []


def table(path: Path, first: str) -> dict[str, list[str]]:
    """Return the rows of the one table whose first column is headed ``first``, by their first cell, in order."""
    (found,) = [one for one in tables(path) if one[0][0] == first]
    rows = {row[0]: row[1:] for row in found[1:]}
    assert len(rows) == len(found) - 1, f"{path}: a row of {first!r} stands twice"
    return rows


def links(path: Path) -> list[str]:
    """Return the targets of a page's links, those in code left out."""
    return _LINK.findall(_CODE.sub("", path.read_text(encoding="utf-8")))


def anchors(path: Path) -> set[str]:
    """Return the names that headings get."""
    text = _CODE.sub(lambda m: "" if m[1] else m[0], path.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def _bare(cell: str) -> str:
    return cell[1:-1] if re.fullmatch(r"`[^`]*`", cell) else cell
