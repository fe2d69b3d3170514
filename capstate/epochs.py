"""The one function: ``reproject(facts, previous) -> Epoch``.

Pure: no clock, no I/O, no global. Same facts, same bytes. ``previous`` may be an Epoch, a Receipt or None; an
Epoch only saves work. With a boundary's cause there is always a receipt; with :attr:`Cause.TURN` and nothing
changed the previous epoch comes back, and if facts changed, the cause is what changed.

>>> from capstate.authority import Authority, Pool, Source, allow
>>> from capstate.capabilities import Catalog, Group, Tool
>>> from capstate.surface import LoadKind
>>> catalog = Catalog.of([Group("git", [Tool("log"), Tool("push")])])
>>> authority = Authority(Pool((Source("config", (allow("git/log"),)),)))
>>> load = Load(0, LoadKind.LOAD, ("git/*",))
>>> epoch = reproject(Facts(catalog=catalog, authority=authority, loads=(load,)), None)
>>> list(epoch.surface.callable)
['git/log']
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from attrs import evolve, field, frozen

from capstate.archive import PARTS, Archive, Groups
from capstate.authority import Authority
from capstate.capabilities import Catalog
from capstate.grants import Ceiling, Pool, Source
from capstate.projection import Issuer, Profile, Projection, project
from capstate.receipts import FORMAT, IMMEDIATE, Action, Receipt, Rows, compare, kinds
from capstate.surface import Load, Surface, derive

CauseName = Literal[
    "turn", "open", "compaction", "native_compaction", "reopen", "restart", "branch", "fork", "child", "model_switch",
    "provider_switch", "authority", "resource", "list_changed", "load", "history",
]  # fmt: skip
"""The values of :class:`Cause` as an editor completes them."""


class Cause(StrEnum):
    """What forces the capability state to be projected again (EP-01)."""

    TURN = "turn"
    """No boundary: the next request of an epoch."""
    OPEN = "open"
    """A new session."""
    COMPACTION = "compaction"
    """Semantic: a readable summary in place of older messages."""
    NATIVE_COMPACTION = "native_compaction"
    """By the provider: an opaque item."""
    REOPEN = "reopen"
    RESTART = "restart"
    BRANCH = "branch"
    """The leaf moved within one session."""
    FORK = "fork"
    CHILD = "child"
    """A child started."""
    MODEL_SWITCH = "model_switch"
    PROVIDER_SWITCH = "provider_switch"
    AUTHORITY = "authority"
    RESOURCE = "resource"
    LIST_CHANGED = "list_changed"
    LOAD = "load"
    """Something was loaded or unloaded."""
    HISTORY = "history"
    """Entries left the history although nobody named a boundary."""


@frozen
class Boundary:
    """Where the history was cut, as the host said (MS-11).

    Attributes:
        first_kept: id of the first entry that stayed.
        leaf: id of the entry where the path ends now.
    """

    first_kept: str | None = None
    kept: int | None = None
    """Number of messages in the retained span."""
    leaf: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the boundary as JSON."""
        return {"first_kept": self.first_kept, "kept": self.kept, "leaf": self.leaf}


NO_PROFILE = Profile(Issuer("", "", ""), adapter=None)  # type: ignore[arg-type]  # nothing renders under it
"""A provider that can do nothing special: for sessions that never render."""


@frozen
class Facts:
    """Everything that an epoch rests on, read now.

    Attributes:
        catalog: what exists.
        authority: who may.
        loads: what was wished for, in order of the ledger.
        path: entry ids from root to leaf; only those that a load names need be listed. None: a linear history.
        retained: sequence numbers of the loads whose entry, or whose call's result, the history holds, in order.
        profile: what the provider can do.
        opaque: (message id, issuer) of each opaque item in the history.
        cause: why the epoch is made.
        session: id of the session, for the receipt.
        ledger: id of its log, for the receipt.
        boundary: where the history was cut, for the receipt.
        used: limits used so far, for the receipt.
        audit: outcome of verifying the chain before, for the receipt.
        damage: kinds of damage (``tail``, ``hole``) found since the last receipt.
        fork: origin, entry and head that a fork started from.
    """

    catalog: Catalog
    authority: Authority
    loads: tuple[Load, ...] = ()
    path: tuple[str, ...] | None = None
    retained: tuple[int, ...] = ()
    profile: Profile = NO_PROFILE
    opaque: tuple[tuple[str, str], ...] = ()
    cause: Cause = field(default=Cause.TURN, eq=False)
    session: str = field(default="", eq=False)
    ledger: str = field(default="", eq=False)
    boundary: Boundary | None = field(default=None, eq=False)
    used: Mapping[str, int] = field(factory=dict, eq=False)
    audit: str = field(default="", eq=False)
    damage: tuple[str, ...] = field(default=(), eq=False)
    fork: Mapping[str, Any] | None = field(default=None, eq=False)


@frozen(eq=False)
class Epoch:
    """A stretch between two forced projections. Equal when the receipts are.

    Attributes:
        facts: what it rests on.
        surface: what may be called, and why the rest may not.
        projection: where the provider shows it.
        receipt: the record of it; on a quiet turn the one before.
        state: digest by component of the facts; what changed is what differs.
        blobs: bytes by digest that the ledger needs to recompute this epoch and does not have from ``previous``.
        groups: by group, its fingerprint and the digest of the blob that holds it.
        request: the request parts that the adapter rendered; empty without an adapter.
    """

    facts: Facts = field(repr=False)
    surface: Surface = field(repr=False)
    projection: Projection = field(repr=False)
    receipt: Receipt
    state: Mapping[str, str] = field(repr=False)
    blobs: Mapping[str, bytes] = field(repr=False)
    groups: Groups = field(repr=False)
    request: dict[str, Any] = field(factory=dict, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Epoch) and self.receipt == other.receipt

    def __hash__(self) -> int:
        return hash(self.receipt)


def reproject(facts: Facts, previous: Epoch | Receipt | None) -> Epoch:
    """Return the epoch that follows from ``facts``; see the module.

    Args:
        facts: everything that it rests on, read now.
        previous: the session's last epoch or receipt; for a fork's first epoch its origin's receipt.
    """
    last = previous if isinstance(previous, Epoch) else None
    receipt = previous.receipt if isinstance(previous, Epoch) else previous
    own = receipt is not None and receipt.body["session"] == facts.session
    may_stay = own and facts.cause is Cause.TURN and not facts.damage
    if last is not None:
        if may_stay and facts == last.facts:
            return last
        facts = _memoised(facts, last.facts)
    archive = _archive(facts, last)
    surface, projection = _derive(facts, last)
    rows, made = _rows(surface, projection, last)
    archive.keep_rows(made)
    if receipt is None or not may_stay or dict(receipt.body["state"]) != archive.state:
        receipt = _receipt(facts, receipt, (surface, projection, rows), archive.state)
    return Epoch(facts, surface, projection, receipt, archive.state, archive.blobs, archive.groups)


_BOUNDARIES = frozenset(Cause) - {Cause.TURN, Cause.AUTHORITY, Cause.RESOURCE, Cause.LIST_CHANGED, Cause.LOAD}


def _memoised(facts: Facts, before: Facts) -> Facts:
    """Return ``facts`` with the parts that are equal to those before exchanged for them: they carry their memo."""
    same = {n: getattr(before, n) for n in ("catalog", "authority", "loads") if getattr(facts, n) == getattr(before, n)}
    return evolve(facts, **same)


def _named(facts: Facts) -> tuple[str, ...] | None:
    """Return the path cut down to the entries that a load names: the others change nothing."""
    named = {load.at for load in facts.loads}
    return None if facts.path is None else tuple(entry for entry in facts.path if entry in named)


def _archive(facts: Facts, last: Epoch | None) -> Archive:
    archive = Archive(last.groups if last is not None else {})
    archive.keep_catalog(facts.catalog)
    for name in PARTS:
        value = _named(facts) if name == "path" else getattr(facts, name)
        if last is not None and name != "path" and getattr(last.facts, name) == value:
            archive.state[name] = last.state[name]
        else:
            archive.keep(name, value)
    return archive


def _derive(facts: Facts, last: Epoch | None) -> tuple[Surface, Projection]:
    surface = derive(
        facts.catalog,
        facts.loads,
        _named(facts),
        facts.authority,
        facts.profile.names,
        previous=last.surface if last is not None else None,
    )
    before = last.projection if last is not None else None
    return surface, project(surface, facts.retained, facts.profile, facts.opaque, previous=before)


def _receipt(
    facts: Facts,
    receipt: Receipt | None,
    made: tuple[Surface, Projection, Mapping[str, Rows]],
    state: Mapping[str, str],
) -> Receipt:
    """Return the receipt of a new epoch, after ``receipt``."""
    surface, projection, rows = made
    cause = _cause(facts, state, receipt)
    before = receipt.rows if receipt is not None else _wanted(facts, rows)
    degraded, moved = _moved(facts, cause, receipt, projection)
    changes, listed = compare(before, rows, moved=moved, new="load" if receipt is None else "list_changed")
    degraded = degraded or any(c.action is Action.MOVED and c.reason == "provider_incompatible" for c in changes)
    body = _body(facts, cause, receipt, surface, projection)
    body["state"] = sorted(map(list, state.items()))
    body["groups"] = [[group, r.digest] for group, r in rows.items()]
    body["changes"] = listed
    body["kinds"] = kinds(changes, boundary=cause in _BOUNDARIES, degraded=degraded, damage=facts.damage)
    body["reasons"] = sorted({c.reason for c in changes} | _reasons(cause, degraded=degraded))
    return Receipt.of(body, rows, changes)


def _cause(facts: Facts, state: Mapping[str, str], receipt: Receipt | None) -> Cause:
    if facts.cause is not Cause.TURN:
        return facts.cause
    if receipt is None or receipt.body["session"] != facts.session:
        return Cause.OPEN
    was = dict(receipt.body["state"])
    if was.get("profile") != state["profile"]:
        issuer, now = receipt.body["issuer"], facts.profile.issuer
        return Cause.PROVIDER_SWITCH if [now.provider, now.api] != issuer[:2] else Cause.MODEL_SWITCH
    for name, cause in _CAUSES:
        if was.get(name) != state[name]:
            return cause
    return Cause.TURN


_CAUSES = (
    ("resources", Cause.RESOURCE),
    ("catalog", Cause.LIST_CHANGED),
    ("authority", Cause.AUTHORITY),
    ("loads", Cause.LOAD),
    ("path", Cause.BRANCH),
    ("retained", Cause.HISTORY),
    ("opaque", Cause.HISTORY),
)


def _rows(surface: Surface, projection: Projection, last: Epoch | None) -> tuple[dict[str, Rows], list[Rows]]:
    """Return the rows of each group, and those that the epoch before did not have."""
    before, blocks = ({}, {}) if last is None else (last.surface.views, last.projection.blocks)
    known = {} if last is None else last.receipt.rows
    rows: dict[str, Rows] = {}
    made: list[Rows] = []
    for id_, view in surface.views.items():
        block = projection.blocks.get(id_)
        if before.get(id_) is view and blocks.get(id_) is block:
            rows[id_] = known[id_]
        else:
            rows[id_] = Rows.of(view, block)
            made.append(rows[id_])
    return rows, made


def _wanted(facts: Facts, rows: Mapping[str, Rows]) -> Mapping[str, Rows]:
    """Return what the first receipt compares with: nothing, or for a child what it asked for."""
    want = facts.authority.pool.want
    if want is None:
        return {}
    wanted: dict[str, Rows] = {}
    for id_, group in facts.catalog.groups.items():
        known = rows[id_].by_name()
        found = [
            (name, d.fingerprint, "allow", "", known[name].place if known[name].callable else IMMEDIATE)
            for name, d in group.definitions.items()
            if "*" in want or f"{id_}/*" in want or d.qualified in want
        ]
        if found:
            wanted[id_] = Rows.holding(id_, found)
    return wanted


def _moved(facts: Facts, cause: Cause, receipt: Receipt | None, projection: Projection) -> tuple[bool, str]:
    """Return whether native items were lost to this provider, and why a tool may have moved on the wire."""
    degraded = bool(projection.dropped) and (receipt is None or list(projection.dropped) != receipt.body["dropped"])
    issuer = facts.profile.issuer
    if receipt is None or receipt.body["issuer"] == [issuer.provider, issuer.api, issuer.model, issuer.account]:
        return degraded, str(cause)
    return degraded, str(cause) if facts.profile.defers else "provider_incompatible"


def _reasons(cause: Cause, *, degraded: bool) -> set[str]:
    """Return the reasons that the cause itself gives, beside those of the changes."""
    reasons = {str(cause)} if cause in _BOUNDARIES else set()
    if degraded:
        reasons.add("provider_incompatible")
    return reasons


def _body(
    facts: Facts,
    cause: Cause,
    receipt: Receipt | None,
    surface: Surface,
    projection: Projection,
) -> dict[str, Any]:
    issuer = facts.profile.issuer
    own = receipt is not None and receipt.body["session"] == facts.session
    return {
        "audit": facts.audit,
        "boundary": facts.boundary.to_json() if facts.boundary is not None else None,
        "cause": str(cause),
        "damage": list(facts.damage),
        "dropped": list(projection.dropped),
        "epoch": receipt.epoch + 1 if own and receipt is not None else 0,
        "fork": dict(facts.fork) if facts.fork is not None else None,
        "format": FORMAT,
        "issuer": [issuer.provider, issuer.api, issuer.model, issuer.account],
        "ledger": facts.ledger,
        "previous": receipt.digest if own and receipt is not None else None,
        "session": facts.session,
        "sources": _sources(facts.authority),
        "surface": surface.fingerprint,
        "used": dict(facts.used),
        "wire": projection.fingerprint,
        "withheld": [list(row) for view in surface.views.values() for row in view.held],
    }


def _sources(authority: Authority | Literal["missing", "ended"] | None, prefix: str = "") -> list[list[Any]]:
    """Return [name, state, revision, digest of the rules] of each source, a parent's behind ``parent:``."""
    if not isinstance(authority, Authority):
        return []
    pool: Pool = authority.pool
    listed: tuple[Source | Ceiling, ...] = (*pool.sources, *authority.ceilings)
    own = [
        [f"{prefix}{'ceiling ' if isinstance(s, Ceiling) else ''}{s.name}", str(s.state), s.revision, s.digest]
        for s in listed
    ]
    return own + _sources(authority.parent, f"{prefix}parent: ")
