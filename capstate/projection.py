"""Where the model sees each callable tool on one provider's wire.

A callable tool is *deferred* at its mark while the provider can defer, the mark's entry is retained, and the
definition is the one that was marked; otherwise it is *immediate*. Equal surfaces and marks give equal
projections, and rendering is a function of the projection (and the history) alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from attrs import field, frozen

from capstate.capabilities import Definition, NameRule
from capstate.digest import Domain, canonical, check_text, encode, fingerprint
from capstate.errors import InvalidInputError
from capstate.surface import Surface, View

if TYPE_CHECKING:
    from capstate.trace import Message


@frozen
class Issuer:
    """Who made, and may get back, a native or opaque item. Raises InvalidInputError: a part of it is no text.

    Attributes:
        provider: who answers.
        api: the API's name.
        model: the model's name.
        account: whose account it is, where that matters; empty for any.
    """

    provider: str
    api: str
    model: str
    account: str = ""

    def __attrs_post_init__(self) -> None:
        for name in ("provider", "api", "model", "account"):
            check_text(getattr(self, name), f"issuer.{name}")

    @property
    def id(self) -> str:
        """One text for the whole binding; no two issuers share one."""
        parts = (self.provider, self.api, self.model, self.account)
        return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


class Adapter(Protocol):
    """One API's wire form. A module of :mod:`capstate.providers` is one; nothing here does HTTP."""

    def render(self, profile: Profile, projection: Projection, history: Sequence[Any]) -> dict[str, Any]:
        """Return the request parts ``tools`` and the messages under the API's own key."""

    def read(self, history: Sequence[Any]) -> list[Message]:
        """Return ``history`` (native messages, or neutral ones, also mixed) in neutral form."""

    def on_wire(self, body: Mapping[str, Any]) -> OnWire:
        """Return what a request body really makes callable, read from the body alone."""

    def recognise(self, body: object) -> None:
        """Raise MalformedError if ``body`` is no request of this API."""


@frozen
class Profile:
    """What one provider, API and model can do with tools, as data (PA-08).

    Attributes:
        issuer: provider, API, model and account.
        adapter: what renders and reads the API's form.
        defers: the API's native deferral is used: ``""`` (none), ``"tool_reference"``, ``"tool_search"``,
            ``"additional_tools"``, ``"system_tools"``.
        needs_immediate: the API refuses a request whose every tool is deferred.
        names: which wire names are legal.
        call_id_limit: longest call id; None for any.
        call_id_chars: a regular-expression character set; None for any.
        compacts: the API can compact by itself, into an opaque item.
        reports: which tokens it reports, as the fields of :class:`capstate.usage.Usage` are called.
    """

    issuer: Issuer
    adapter: Adapter = field(eq=False, repr=False)
    defers: str = ""
    needs_immediate: bool = False
    names: NameRule = NameRule()
    call_id_limit: int | None = None
    call_id_chars: str | None = None
    compacts: bool = False
    reports: frozenset[str] = frozenset()


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


class Placed(NamedTuple):
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
        definitions: the last definition on the wire by name: ``description`` and ``schema`` as sent; ``type`` if it
            is another than the API's plain function; ``keys``, the others that may change what it makes callable.
        others: further definitions of a name that has more than one, in order.
        referenced: names that the body refers to although no definition of them is on the wire.
        unloaded: deferred definitions on the wire that nothing in the body has loaded yet.
        withdrawn: names that only prose withdraws: their definition is still there, so they count as callable.
        unknown: what this version does not know, or cannot see, and what may make something callable: types of
            items and tools, keys, state that the provider keeps; with their count.
    """

    immediate: tuple[str, ...]
    deferred: Mapping[str, str]
    definitions: Mapping[str, Mapping[str, Any]] = field(repr=False)
    referenced: tuple[str, ...] = ()
    unloaded: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    unknown: Mapping[str, int] = field(factory=dict)
    others: Mapping[str, tuple[Mapping[str, Any], ...]] = field(factory=dict, repr=False)

    @property
    def effective(self) -> frozenset[str]:
        """Every name that the model can call by this body (a deferred definition that a search can load included)."""
        return frozenset(self.immediate) | frozenset(self.deferred) | frozenset(self.unloaded)


def is_sent(definition: Definition, sent: Mapping[str, Any]) -> bool:
    """Whether ``sent``, as in :attr:`OnWire.definitions`, is ``definition``: a plain function, the same to the byte."""
    schema, tool = sent.get("schema"), definition.tool
    if not isinstance(schema, Mapping) or sent.keys() - {"description", "schema"}:
        return False
    try:
        return sent.get("description", "") == tool.description and canonical(dict(schema)) == canonical(tool.schema)
    except InvalidInputError:  # no JSON, and so none of ours
        return False


@frozen(eq=False)
class Block:
    """The placements of one group, and what they follow from.

    Attributes:
        view: the group's part of the surface.
        immediate: tools at the top of the request, in order.
        deferred: tools at their marks.
    """

    view: View = field(repr=False)
    live: tuple[int, ...]
    """Loads that are marks of this group and are honoured now."""
    immediate: tuple[Placed, ...]
    deferred: tuple[Placed, ...]
    digest: str
    """Covers wire name and definition of each immediate tool, in order."""


@frozen(eq=False)
class Projection:
    """The surface as one provider shows it. Equal when the wire fingerprint is.

    Attributes:
        blocks: by group.
        dropped: ids of the history's opaque items that another issuer made: they are not sent.
        fingerprint: covers everything that rendering the tools part depends on; no session, no sequence number.
    """

    blocks: Mapping[str, Block] = field(repr=False)
    deferred: tuple[Placed, ...] = field(repr=False)
    """In order of the place of their mark, then of group and name."""
    dropped: tuple[str, ...]
    fingerprint: str

    @property
    def immediate(self) -> tuple[Placed, ...]:
        """Tools of the top-level list, in order of group, then name."""
        return tuple(chain.from_iterable(block.immediate for block in self.blocks.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Projection) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def project(
    surface: Surface,
    retained: tuple[int, ...],
    profile: Profile,
    opaque: tuple[tuple[str, str], ...] = (),
    previous: Projection | None = None,
) -> Projection:
    """Return where ``profile`` shows each callable tool (``docs/spec/surface.md`` section 5).

    Args:
        surface: what may be called.
        profile: the provider, and what it can do.
        retained: sequence numbers of the loads whose entry the history holds, in order of their place.
        opaque: (message id, issuer) of each opaque item in the history.
        previous: saves work and changes nothing.
    """
    place = {load: n for n, load in reversed(list(enumerate(retained)))} if profile.defers else {}
    blocks = _blocks(surface, place, previous)
    if profile.needs_immediate and not any(block.immediate for block in blocks.values()):
        blocks = _blocks(surface, {}, previous)
    marked = [(place[p.mark.load], p) for b in blocks.values() for p in b.deferred if p.mark is not None]
    marked.sort(key=lambda pair: pair[0])
    ranks = {n: rank for rank, n in enumerate(dict.fromkeys(n for n, _ in marked))}
    body = (
        (profile.issuer.api, profile.defers),
        [block.digest for block in blocks.values() if block.immediate],
        [(ranks[n], placed.wire, placed.definition.fingerprint) for n, placed in marked],
    )
    deferred = tuple(placed for _, placed in marked)
    dropped = tuple(id_ for id_, issuer in opaque if issuer != profile.issuer.id)
    return Projection(blocks, deferred, dropped, fingerprint(Domain.WIRE, encode(body)))


def _blocks(surface: Surface, place: Mapping[int, int], previous: Projection | None) -> dict[str, Block]:
    before = previous.blocks if previous is not None else {}
    blocks: dict[str, Block] = {}
    for id_, view in surface.views.items():
        if not view.fingerprint:
            continue
        live = tuple(load for load in view.marks if load in place) if view.marks else ()
        old = before.get(id_)
        if old is not None and old.view is view and old.live == live:
            blocks[id_] = old
        else:
            blocks[id_] = _block(view, live)
    return blocks


def _block(view: View, live: tuple[int, ...]) -> Block:
    immediate: list[Placed] = []
    deferred: list[Placed] = []
    honoured = frozenset(live)
    for wire, row in view.wires.items():
        mark, definition = row.mark, row.definition
        if (
            mark is not None
            and mark.sequence in honoured
            and mark.definitions[definition.qualified] == definition.fingerprint
        ):
            deferred.append(Placed(definition, wire, Mark(mark.sequence, mark.at, mark.call)))
        else:
            immediate.append(Placed(definition, wire))
    digest = fingerprint(Domain.WIRE, encode([(p.wire, p.definition.fingerprint) for p in immediate]))
    return Block(view, live, tuple(immediate), tuple(deferred), digest)
