from __future__ import annotations

import doctest
import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.snippets import Block, blocks, run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ALL = [block for document in DOCUMENTS for block in blocks(document)]


def where(block: Block) -> str:
    return f"{block.path.relative_to(ROOT)}:{block.line}"


def documented_modules() -> Iterator[str]:
    """The modules of capstate whose docstrings hold examples."""
    spec = importlib.util.find_spec("capstate")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for path in sorted(package.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            yield ".".join((package.name, *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_example_of_a_document_does_what_it_says(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, in an empty folder: no python block raises, and each command prints what stands below it."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(document):
        run(block, tmp_path, namespace)


@pytest.mark.parametrize(
    "document", sorted((ROOT / "docs" / "tutorial").glob("*.md")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_tutorial_can_be_done_again(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same folder, from its start: what a first try left behind is in nobody's way."""
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        namespace: dict[str, object] = {"__name__": "__main__"}
        for block in blocks(document):
            run(block, tmp_path, namespace)


@pytest.mark.parametrize("block", [b for b in ALL if b.word == "not run"], ids=where)
def test_a_block_that_is_not_run_says_why(block: Block) -> None:
    """Each is listed as skipped, with its place and its reason."""
    assert block.what
    pytest.skip(f"{where(block)}: {block.what}")


@pytest.mark.parametrize("name", list(documented_modules()))
def test_the_examples_in_docstrings_hold(name: str) -> None:
    """A doctest in a module of capstate passes."""
    outcome = doctest.testmod(importlib.import_module(name))

    assert outcome.attempted > 0
    assert outcome.failed == 0


GOOD = """
Text.

<!-- file: policy.toml -->
```toml
allow = ["git/*"]
```

```python
from pathlib import Path
found = Path("policy.toml").read_text()
```

```python
assert "git" in found
```

<!-- not run: needs a network -->
```python
raise SystemExit
```
"""


def test_blocks_share_a_namespace_and_find_written_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later block sees the names of an earlier one and the file before it; what is marked stays unrun."""
    document = tmp_path / "good.md"
    document.write_text(GOOD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in blocks(document):
        run(block, tmp_path, namespace)

    assert namespace["found"] == 'allow = ["git/*"]\n'
    assert [(b.lang, b.line, b.word) for b in blocks(document)] == [
        ("toml", 6, "file"),
        ("python", 10, None),
        ("python", 15, None),
        ("python", 20, "not run"),
    ]


def test_a_wrong_example_is_found_at_its_line(tmp_path: Path) -> None:
    """The traceback of a failing block names the line of the document."""
    document = tmp_path / "bad.md"
    document.write_text("# Bad\n\n```python\nx = 1\nx.missing\n```\n", encoding="utf-8")

    with pytest.raises(AttributeError) as raised:
        run(blocks(document)[0], tmp_path, {})
    assert raised.traceback[-1].lineno == 5 - 1


def test_a_command_of_another_program_must_be_marked(tmp_path: Path) -> None:
    """The runner starts nothing but capstate."""
    document = tmp_path / "other.md"
    document.write_text("```console\n$ rm -r everything\n```\n", encoding="utf-8")

    with pytest.raises(AssertionError, match=r"other\.md:2: only capstate is run"):
        run(blocks(document)[0], tmp_path, {})


@pytest.mark.parametrize(
    ("expected", "same"), [("usage...end", True), ("usage: a\nend", True), ("usage: b\nend", False), ("", False)]
)
def test_output_is_compared_with_gaps(
    expected: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three points stand for anything, and everything else is compared as it is."""
    monkeypatch.setattr("tests.docs.snippets._RUN", ["printf", "usage: a\nend\n"])
    document = tmp_path / "console.md"
    document.write_text(f"```console\n$ capstate\n{expected}\n```\n", encoding="utf-8")
    block = blocks(document)[0]
    if same:
        run(block, tmp_path, {})
    else:
        with pytest.raises(AssertionError, match=r"\$ capstate"):
            run(block, tmp_path, {})
