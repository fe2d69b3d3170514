"""A finished request body against the surface of now: what it makes callable beyond it. Pure.

What may carry tools and cannot be read is not taken for nothing: history that the provider keeps, and keys and items
of tomorrow. A definition is the authorised one only if it is the plain form of a tool with the same description and
schema, and nothing beside them that changes who may call it or what the model is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from capstate.digest import canonical
from capstate.errors import InvalidInputError, SurfaceExceededError

if TYPE_CHECKING:
    from capstate.capabilities import Definition
    from capstate.errors import Reason
    from capstate.projection import OnWire
    from capstate.surface import Surface


def exceeding(
    wire: OnWire, surface: Surface, why: Callable[[tuple[str, ...]], Mapping[str, tuple[Reason, str]]]
) -> SurfaceExceededError | None:
    """Return the error that says what ``wire`` holds beyond ``surface``; None if it holds nothing.

    Args:
        why: says of names beyond it why they are withheld.
    """
    beyond = tuple(sorted((wire.effective | set(wire.referenced)) - surface.wires.keys()))
    differing = tuple(
        sorted(
            name
            for name, sent in wire.definitions.items()
            if name in surface.wires and not _same(surface.wires[name].definition, sent)
        )
    )
    unknown = tuple(wire.unknown)
    if not (beyond or differing or unknown):
        return None
    return SurfaceExceededError(beyond, differing, unknown, why(beyond))


def _same(definition: Definition, sent: Mapping[str, Any]) -> bool:
    """Whether a definition on the wire is the one that is authorised."""
    tool, schema = definition.tool, sent.get("schema")
    if set(sent) - {"description", "schema"} or sent.get("description", "") != tool.description:
        return False
    try:
        return isinstance(schema, Mapping) and canonical(dict(schema)) == canonical(tool.schema)
    except InvalidInputError:  # what cannot be written down is not what was
        return False
