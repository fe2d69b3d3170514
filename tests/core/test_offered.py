"""What the modules of the core offer by name."""

from __future__ import annotations

import importlib

import pytest

NAMES = [
    "authority", "capabilities", "digest", "epochs", "errors", "grants", "loads", "names", "projection", "receipts",
    "rows", "surface", "archive",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_each_module_has_what_it_says_it_offers(name: str) -> None:
    """Every name of an ``__all__`` exists, once; a module without one hides what begins with an underscore."""
    module = importlib.import_module(f"capstate.{name}")
    offered = getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])

    assert offered
    assert len(set(offered)) == len(offered)
    assert all(hasattr(module, each) for each in offered)
