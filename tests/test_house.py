"""The rules of the house that no linter knows: what an import may load, and what no file of the project may hold."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import capstate

ROOT = Path(__file__).parents[1]
PACKAGE = Path(capstate.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

CORE = [
    "errors", "digest", "names", "capabilities", "grants", "authority", "loads", "surface", "projection", "rows",
    "receipts", "archive", "epochs",
]  # fmt: skip
CORE_MODULES = [PACKAGE / f"{name}.py" for name in CORE if (PACKAGE / f"{name}.py").exists()]
CORE_MAY_IMPORT = {
    "__future__", "abc", "attrs", "base64", "bisect", "blake3", "capstate", "collections", "enum", "functools", "hmac",
    "itertools", "operator", "orjson", "re", "rfc8785", "types", "typing",
}  # fmt: skip
CORE_MAY_NOT_CALL = {"__import__", "breakpoint", "compile", "eval", "exec", "id", "input", "open", "print"}

IMPORT_MAY_LOAD = {"attr", "attrs", "blake3", "capstate", "cattr", "cattrs", "orjson", "rfc8785", "typing_extensions"}
IMPORT_MAY_NOT_LOAD = {"click", "http.client", "multiprocessing", "rich", "socketserver", "sqlite3", "ssl", "unittest"}

PUBLIC_NAMES_LIMIT = 24
LINES_LIMIT = 400
LONG_MODULES: dict[str, str] = {}
"""Path in the package of a longer module, and why it is one thing all the same."""

RECORDED = ("experiments/recorded", "tests/corpus", "tests/vectors", "tests/scenarios/cases", "capstate/demo")
"""Folders of bytes that others wrote."""
OURS = ("capstate", "tests", "docs", "experiments", "benchmarks", ".ci")
MACHINE = re.compile(r"(?<![\w.:/-])/(?:home|work|root|Users)(?![\w-])")
HOSTS = re.compile("|".join(re.escape(host) for host in ("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org")))


def named(path: Path) -> str:
    return str(path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT))


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_bytes()))


def project_files() -> list[Path]:
    """Every text that the project wrote itself."""
    places = [path for name in OURS for path in (ROOT / name).rglob("*")] + list(ROOT.iterdir())
    return sorted(
        path
        for path in places
        if path.is_file()
        and path.suffix not in {".pyc", ".png", ".whl"}
        and not path.name.startswith(".coverage")
        and path.name != ".git"
        and not str(path.relative_to(ROOT)).startswith(RECORDED)
    )


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that measures no coverage, since that itself imports much."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=clean, text=True, capture_output=True, check=True)


# -- what an import loads


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    return set(start("-c", code).stdout.split())


def test_import_loads_only_what_deciding_needs() -> None:
    """``import capstate`` brings in no command line, no database, no extra: of strangers only the listed ones."""
    loaded = loaded_by("import capstate")
    strangers = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)

    assert "capstate" in loaded
    assert {name for name in strangers if not name.startswith("_")} <= IMPORT_MAY_LOAD
    assert IMPORT_MAY_NOT_LOAD & loaded == set()


def test_the_import_check_sees_what_is_loaded() -> None:
    """The same look at a statement that does load a database and the command line's libraries finds them."""
    assert {"sqlite3", "click", "rich"} <= loaded_by("import sqlite3, click, rich")


# -- the public face


def test_public_names_are_listed_and_nothing_else_is_public() -> None:
    """``__all__`` is sorted, short, documented, and the same as the public names that the package really has."""
    listed = list(getattr(capstate, "__all__", []))
    public = {n for n, v in vars(capstate).items() if not n.startswith("_") and not isinstance(v, ModuleType)}

    assert listed == sorted(set(listed))
    assert public - {"annotations"} == {n for n in listed if not n.startswith("_")}
    assert len(listed) <= PUBLIC_NAMES_LIMIT
    assert [n for n in listed if not n.startswith("_") and not getattr(capstate, n).__doc__] == []


def test_the_package_says_that_it_is_typed() -> None:
    """``py.typed`` stands beside the package's modules, in the wheel as well."""
    assert (PACKAGE / "py.typed").exists()


# -- the core


@pytest.mark.parametrize("path", CORE_MODULES, ids=named)
def test_the_core_imports_only_what_cannot_reach_the_world(path: Path) -> None:
    """Every import of a core module, also inside a function or for types, is on the short list."""
    imported = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in nodes(path) if isinstance(node, ast.ImportFrom)}

    assert {name.partition(".")[0] for name in imported} - CORE_MAY_IMPORT == set()


@pytest.mark.parametrize("path", CORE_MODULES, ids=named)
def test_the_core_calls_no_builtin_that_reaches_the_world(path: Path) -> None:
    """No file, no terminal, no code from text, and no address of an object as a value."""
    called = {node.func.id for node in nodes(path) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}

    assert called & CORE_MAY_NOT_CALL == set()


@pytest.mark.parametrize("path", CORE_MODULES, ids=named)
def test_the_core_keeps_no_state_in_a_module(path: Path) -> None:
    """No ``global`` statement, and no empty list, dict or set under a module's name: memos stand on values."""
    tree = ast.parse(path.read_bytes())
    made = [node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value]

    assert [node for node in ast.walk(tree) if isinstance(node, ast.Global)] == []
    assert [
        ast.unparse(value) for value in made if ast.unparse(value) in {"[]", "{}", "set()", "dict()", "list()"}
    ] == []


def test_the_contracts_cover_every_core_module() -> None:
    """The import-linter contract on the pure core names each core module that exists."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {contract["id"]: contract for contract in settings["tool"]["importlinter"]["contracts"]}

    assert set(contracts["pure"]["source_modules"]) == {f"capstate.{path.stem}" for path in CORE_MODULES}


# -- the package's text


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_no_rule_hangs_on_an_assert(path: Path) -> None:
    """``python -O`` drops asserts, so capstate has none."""
    assert [node.lineno for node in nodes(path) if isinstance(node, ast.Assert)] == []


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    """It starts with a docstring."""
    assert ast.get_docstring(ast.parse(path.read_bytes()))


def test_modules_can_be_held_in_the_head() -> None:
    """None is longer than the limit without being listed with a reason, and nothing is listed that is not."""
    long = {named(path) for path in MODULES if len(path.read_text(encoding="utf-8").splitlines()) > LINES_LIMIT}

    assert long == set(LONG_MODULES)
    assert all(LONG_MODULES.values())


def test_no_module_is_a_drawer() -> None:
    """A helper without a home lacks a concept: no module is called utils, helpers, common or misc."""
    drawers = re.compile(r"_?(utils?|helpers?|commons?|misc|tools?_?box)")

    assert [named(path) for path in [*MODULES, *TESTS] if drawers.fullmatch(path.stem)] == []


# -- the tests' text


def test_every_test_says_what_is_true() -> None:
    """Each test function has a docstring."""
    silent = [
        f"{named(path)}:{node.lineno} {node.name}"
        for path in TESTS
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]

    assert silent == []


# -- all text


@pytest.mark.parametrize(("pattern", "what"), [(MACHINE, "a path of one machine"), (HOSTS, "a registry's host")])
def test_project_text_names_no_machine(pattern: re.Pattern[str], what: str) -> None:
    """Outside recordings, no file holds a home folder or work folder, or the host of a package registry."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {what}: {line.strip()[:80]}"
        for path in project_files()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("in /home/ann/x", True),
        ("cd /work", True),
        ("'/root/.config'", True),
        ("https://example.org/home/page", False),
        ("src/work/x", False),
        ("/workers", False),
    ],
)
def test_machine_paths_are_told_from_others(text: str, found: bool) -> None:
    """The pattern finds absolute paths of a machine, and no part of an address or a relative path."""
    assert bool(MACHINE.search(text)) is found
