"""Where the model sees each callable tool on one provider's wire.

A callable tool is *deferred* at its mark while the provider can defer, the mark's entry is retained, and the
definition is the one that was marked; otherwise it is *immediate*. Equal surfaces and marks give equal
projections, and rendering is a function of the projection (and the history) alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from attrs import field, frozen

from capstate.capabilities import Definition, NameRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capstate.trace import Message


@frozen
class Issuer:
    """Who made, and may get back, a native or opaque item."""

    provider: str
    api: str
    model: str
    account: str = ""

    @property
    def id(self) -> str:
        """One text for the whole binding."""
        return f"{self.provider}/{self.api}/{self.model}/{self.account}"


class Adapter(Protocol):
    """One API's wire form. A module of :mod:`capstate.providers` is one; nothing here does HTTP."""

    def render(self, profile: Profile, projection: Projection, history: Sequence[Any]) -> dict[str, Any]:
        """Return the request parts ``tools`` and the messages under the API's own key."""

    def read(self, history: Sequence[Any]) -> list[Message]:
        """Return ``history`` (native messages, or neutral ones, also mixed) in neutral form."""

    def on_wire(self, body: Mapping[str, Any]) -> OnWire:
        """Return what a request body really makes callable, read from the body alone."""


@frozen
class Profile:
    """What one provider, API and model can do with tools, as data (PA-08).

    Attributes:
        defers: the API's native deferral is used: ``""`` (none), ``"tool_reference"``, ``"tool_search"``,
            ``"additional_tools"``, ``"system_tools"``.
        needs_immediate: the API refuses a request whose every tool is deferred.
        call_id_limit: longest call id; None for any.
        call_id_chars: a regular-expression character set; None for any.
    """

    issuer: Issuer
    adapter: Adapter = field(eq=False, repr=False)
    defers: str = ""
    needs_immediate: bool = False
    names: NameRule = NameRule()
    call_id_limit: int | None = None
    call_id_chars: str | None = None


@frozen
class Mark:
    """At this transcript entry a definition was loaded.

    Attributes:
        load: sequence number of the load in the ledger (or in the file that was read).
        at: id of the transcript entry.
        call: id of the call whose result is that entry.
    """

    load: int
    at: str | None
    call: str | None


@frozen
class Placed:
    """A callable definition, its wire name, and where it stands: at ``mark``, or immediate (None)."""

    definition: Definition
    wire: str
    mark: Mark | None = None


@frozen
class OnWire:
    """What a request body makes callable, by wire name.

    Attributes:
        immediate: names in the top-level list, in order.
        deferred: names that the body loads at a later point, in order of their place, each with that place: the
            call id of the tool result or search output, or ``index N`` of the message or item that carries it.
        definitions: every definition on the wire by name: description and schema as sent.
        referenced: names that the body refers to although no definition of them is on the wire.
        unloaded: deferred definitions on the wire that nothing in the body has loaded yet.
        withdrawn: names that only prose withdraws: their definition is still there, so they count as callable.
        unknown: item and tool types that this version does not know, with their count.
    """

    immediate: tuple[str, ...]
    deferred: Mapping[str, str]
    definitions: Mapping[str, Mapping[str, Any]] = field(repr=False)
    referenced: tuple[str, ...] = ()
    unloaded: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    unknown: Mapping[str, int] = field(factory=dict)

    @property
    def effective(self) -> frozenset[str]:
        """Every name that the model can call by this body (a deferred definition that a search can load included)."""
        return frozenset(self.immediate) | frozenset(self.deferred) | frozenset(self.unloaded)


@frozen
class Projection:
    """The surface as one provider shows it.

    Attributes:
        immediate: in order of group, then name.
        deferred: in order of the place of their mark, then group and name.
    """

    immediate: tuple[Placed, ...]
    deferred: tuple[Placed, ...]
