"""What mutation testing puts in place of what stands in the core: one change a mutant, by the syntax tree.

Left alone: annotations, docstrings, decorators, ``repr=``, and text for people (f-strings, what a ``raise`` says).
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.Mod: ast.Mult, ast.Continue: ast.Break, ast.Break: ast.Continue,
}  # fmt: skip
CALLS = {"all": "any", "any": "all", "min": "max", "max": "min", "sorted": "list"}
NOT_RUN = {"annotation", "returns", "decorator_list", "type_params"}


class Mutant(NamedTuple):
    """``key`` (module, function, change, which of its kind) outlives edits elsewhere in the module."""

    module: str
    line: int
    key: str
    source: str


def changes(node: ast.AST, field: str) -> Iterator[ast.AST]:  # noqa: C901, PLR0912 - a table, one case a kind of node
    """Yield what may stand in place of ``node``, which is ``field`` of its parent."""

    def but(**fields: object) -> ast.AST:
        made = copy.copy(node)
        vars(made).update(fields)
        return made

    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                yield but(ops=[*node.ops[:i], SWAPS[type(op)](), *node.ops[i + 1 :]])
        case ast.BoolOp():
            yield but(op=SWAPS[type(node.op)]())
            for i in range(len(node.values)):
                yield but(values=node.values[:i] + node.values[i + 1 :]) if len(node.values) > 2 else node.values[1 - i]
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.expr() if field in {"test", "ifs"}:
            yield ast.UnaryOp(ast.Not(), node)
        case ast.BinOp() | ast.AugAssign() if type(node.op) in SWAPS:
            yield but(op=SWAPS[type(node.op)]())
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=str(value)):
            yield ast.Constant(value + "XX")
        case ast.Constant(value=bytes(value)):
            yield ast.Constant(value + b"XX")
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield but(func=ast.Name(CALLS[name]))
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Continue() | ast.Break():
            yield SWAPS[type(node)]()
    match node:
        case ast.Raise() | ast.AugAssign() | ast.Delete() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()


def places(node: ast.AST, scope: str = "") -> Iterator[tuple[str, str, ast.AST]]:
    """Yield (function, field, node) of what is changed."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            match child:
                case ast.JoinedStr() | ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    continue
                case ast.keyword(arg="repr"):
                    continue
                case ast.AST() if field not in NOT_RUN:
                    inner = f"{scope}.{name}".lstrip(".") if (name := getattr(child, "name", None)) else scope
                    yield inner, field, child
                    if not isinstance(child, ast.Raise):
                        yield from places(child, inner)


def mutants(module: str) -> Iterator[Mutant]:
    """Yield every mutant of ``module``, in the order of its text."""
    raw = (ROOT / "capstate" / f"{module}.py").read_bytes()
    starts, seen = [0], Counter[str]()
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for scope, field, node in places(ast.parse(raw)):
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        for new in changes(node, field):
            old, made = ast.unparse(node), ast.unparse(ast.fix_missing_locations(new))
            made = f"({made})" if isinstance(node, ast.expr) else made  # keeps its place among stronger operators
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            name = f"{module}.py {scope or 'module'}: {' '.join(old.split())} -> {' '.join(made.split())}"
            seen[name] += 1
            key = name if seen[name] == 1 else f"{name} #{seen[name]}"
            yield Mutant(module, node.lineno, key, (raw[:begin] + made.encode() + raw[end:]).decode())
