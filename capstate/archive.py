"""What an epoch rested on, as bytes under their digests, so that it can be computed again later.

Each component of the facts is one blob, and the catalog one blob a group, which holds every definition in its
canonical bytes. The digest by component is the *state*: what changed between two epochs is what differs in it.
Reading these bytes back is :mod:`capstate.codec`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from capstate.authority import Authority
from capstate.digest import Domain, canonical, encode, fingerprint

if TYPE_CHECKING:
    from capstate.capabilities import Catalog, Group
    from capstate.projection import Profile
    from capstate.receipts import Rows

Groups = Mapping[str, tuple[str, str]]
"""By group id: its fingerprint, and the digest of the blob that holds it."""


@define
class Archive:
    """Collects the bytes and their digests.

    Attributes:
        known: the groups that the epoch before stored.
        blobs: bytes by digest, to be stored.
        state: digest by component of the facts.
        groups: the groups of this epoch.
    """

    known: Groups
    blobs: dict[str, bytes] = field(factory=dict)
    state: dict[str, str] = field(factory=dict)
    groups: dict[str, tuple[str, str]] = field(factory=dict)

    def keep_catalog(self, catalog: Catalog) -> None:
        """Take the groups that are new or differ, their list, and which of them are down."""
        for id_, group in catalog.groups.items():
            same = self.known.get(id_)
            if same is None or same[0] != group.fingerprint:
                same = (group.fingerprint, self._put(encode_group(group)))
            self.groups[id_] = same
        self.state["catalog"] = self._put(encode([(id_, digest) for id_, (_, digest) in self.groups.items()]))
        self.state["resources"] = self._put(encode([id_ for id_, group in catalog.groups.items() if not group.up]))

    def keep(self, part: str, value: object) -> None:
        """Take one component of :data:`PARTS`."""
        self.state[part] = self._put(canonical(PARTS[part](value), place=part))

    def keep_rows(self, made: Iterable[Rows]) -> None:
        """Take rows that the epoch before did not have."""
        self.blobs.update((rows.digest, rows.encoded) for rows in made)

    def _put(self, encoded: bytes) -> str:
        digest = fingerprint(Domain.BLOB, encoded)
        self.blobs[digest] = encoded
        return digest


def encode_group(group: Group) -> bytes:
    """Return ``[id, [[server, [definition, ...]], ...]]``: every definition, rivals too, in its canonical bytes."""
    by_server: dict[str | None, list[bytes]] = {}
    for definition in (*group.definitions.values(), *group.rivals):
        by_server.setdefault(definition.server, []).append(definition.tool.encoded)
    listed: list[bytes] = []
    for server in sorted(by_server, key=lambda server: (server is not None, server or "")):
        # Brackets are put on the first and the last definition, so that the long text is written once.
        tools = by_server[server]
        tools[0] = b"[" + canonical(server) + b",[" + tools[0]
        tools[-1] += b"]]"
        listed += tools
    head, tail = b"[" + canonical(group.id) + b",[", b"]]"
    if not listed:
        return head + tail
    listed[0] = head + listed[0]
    listed[-1] += tail
    return b",".join(listed)


def profile_json(profile: Profile) -> dict[str, Any]:
    """Return a profile as JSON, its adapter left out: the API names it."""
    issuer = profile.issuer
    return {
        "account": issuer.account,
        "api": issuer.api,
        "call_id_chars": profile.call_id_chars,
        "call_id_limit": profile.call_id_limit,
        "chars": profile.names.chars,
        "defers": profile.defers,
        "limit": profile.names.limit,
        "model": issuer.model,
        "needs_immediate": profile.needs_immediate,
        "provider": issuer.provider,
    }


PARTS: dict[str, Callable[[Any], Any]] = {
    "authority": Authority.to_json,
    "loads": lambda loads: [load.to_json() for load in loads],
    "opaque": lambda opaque: [list(pair) for pair in opaque],
    "path": lambda path: None if path is None else list(path),
    "profile": profile_json,
    "retained": list,
}
"""How each component of the facts but the catalog is written."""
