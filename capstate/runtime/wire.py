"""What of a finished request body is not authorised now. Pure.

The rule is ``docs/spec/guard.md``, section 9: nothing callable beyond the surface, every definition of a callable name
the authorised one, and nothing in the body of which nobody can say what it makes callable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from capstate.errors import SurfaceExceededError
from capstate.ledger import Record
from capstate.projection import is_sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from capstate.errors import Reason
    from capstate.projection import OnWire
    from capstate.surface import Surface


def exceeding(
    wire: OnWire, surface: Surface, why: Callable[[tuple[str, ...]], Mapping[str, tuple[Reason, str]]]
) -> SurfaceExceededError | None:
    """Return the error that says in what ``wire`` exceeds ``surface``; None if in nothing.

    Args:
        why: says of names beyond it why they are withheld.
    """
    beyond = tuple(sorted((wire.effective | set(wire.referenced)) - surface.wires.keys()))
    differing = sorted(
        name
        for name, last in wire.definitions.items()
        if name in surface.wires
        and not all(is_sent(surface.wires[name].definition, sent) for sent in (last, *wire.others.get(name, ())))
    )
    if not (beyond or differing or wire.unknown):
        return None
    return SurfaceExceededError(beyond, tuple(differing), tuple(sorted(wire.unknown)), why(beyond))


def finding(error: SurfaceExceededError) -> Record:
    """Return the entry that keeps ``error``."""
    found = {"beyond": error.names, "differing": error.differing, "unknown": error.unknown}
    return Record("finding", {kind: _storable(names) for kind, names in found.items()})


def _storable(names: Iterable[str]) -> list[str]:
    """Return foreign text as a ledger can hold it: lone surrogates are escaped."""
    return [name.encode("utf-8", "backslashreplace").decode() for name in names]
