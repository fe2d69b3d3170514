"""The fields of every public value are documented where an editor shows them: in the docstring, or below the field."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

import capstate

OWN = {
    "capstate.conformance": "how the suites work; its one public module is capstate.conformance.ledgers",
    "capstate.demo": "what one command shows",
    "capstate.agents": "what the audit reads; its lines are documented in docs/reference/audit.md",
    "capstate.audit": "as above",
    "capstate.runtime.acts": "the base of State, which is for looking only",
    "capstate.runtime.facts": "what entries say; for looking only",
    "capstate.runtime.live": "the inside of a session",
    "capstate.runtime.pool": "the inside of a session",
    "capstate.runtime.verdict": "the inside of a session",
}
"""Modules whose values no host holds in its hands, and why."""


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(capstate.__path__, "capstate."):
        parts = found.name.split(".")
        if not any(part.startswith("_") for part in parts) and not any(
            found.name == own or found.name.startswith(f"{own}.") for own in OWN
        ):
            yield importlib.import_module(found.name)


def declared(module: ModuleType) -> Iterator[tuple[type[Any], ast.ClassDef]]:
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield getattr(module, node.name), node


def undocumented(kind: type[Any], node: ast.ClassDef) -> set[str]:
    """Fields that neither the docstring lists nor a text below them explains."""
    names, told = _own(node), _listed(kind)
    for field, below in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            told.add(ast.unparse(field.target))
    return names - told


def _own(node: ast.ClassDef) -> set[str]:
    named = {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
    return {name for name in named if not name.startswith("_")}


def _listed(kind: type[Any]) -> set[str]:
    """Names under "Attributes:" or "Args:" of the docstring."""
    parts = re.findall(r"^(?:Attributes|Args):\n((?: .*\n?)+)", inspect.getdoc(kind) or "", re.MULTILINE)
    return {name for part in parts for name in re.findall(r"^    (\w+): \S", part, re.MULTILINE)}


PUBLIC = [(kind, node) for module in modules() for kind, node in declared(module) if attrs.has(kind)]


@pytest.mark.parametrize(("kind", "node"), PUBLIC, ids=[f"{kind.__module__}.{kind.__name__}" for kind, _ in PUBLIC])
def test_every_field_of_a_public_value_is_documented(kind: type[Any], node: ast.ClassDef) -> None:
    """Each field has a text, and no text is of a field that is not there."""
    assert undocumented(kind, node) == set()
    known = {field.name for field in attrs.fields(kind)} | set(inspect.signature(kind).parameters)
    assert _listed(kind) <= known


def test_the_values_of_the_package_are_among_them() -> None:
    """What hosts import from ``capstate`` is looked at, and every module that is left out exists."""
    shown = {kind for kind, _ in PUBLIC}

    assert {value for name in capstate.__all__ if attrs.has(value := getattr(capstate, name))} <= shown
    assert len(shown) > 50
    assert [importlib.import_module(name).__name__ for name in OWN] == list(OWN)
    assert all(OWN.values())


def test_a_field_without_a_text_is_found() -> None:
    """Each way to document one counts, and nothing else does: not a mention in passing, nor an error's line."""
    source = '''
class Value:
    """About ``passing``.

    Attributes:
        listed: has a text,
            over two lines.
        empty:

    Raises:
        raised: no field.
    """

    listed: int
    passing: int
    empty: int
    raised: int
    below: int
    """Has a text."""
    _own: int
'''
    space: dict[str, Any] = {}
    exec(source, space)  # noqa: S102 - the text above
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)

    assert undocumented(space["Value"], node) == {"passing", "empty", "raised"}
