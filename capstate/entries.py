"""Entries of a ledger: how one is numbered, linked, encoded, sealed and read back. Pure; knows nothing of storage.

An entry's bytes are one canonical JSON object holding the format version, chain, sequence, previous digest, time,
fencing token, kind, body and whether it was posted. Its digest covers those bytes, all of them; the seal, a keyed
digest, stands beside them. Bytes are verified first, parsed second, then encoded again and compared, so that duplicate
keys and other spellings of the same entry are refused.

Import these names from :mod:`capstate.ledger`.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING, Any

import orjson
from attrs import field, frozen

from capstate.digest import Domain, canonical, fingerprint, seal
from capstate.errors import InvalidInputError, LedgerFormatError, MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT = 1
"""The version of an entry's bytes."""
OPENED = "opened"
"""The kind of a chain's first entry; its body holds ``log``, a random id made by whoever opens the chain."""
_KEY_BYTES = 32
_MAX_CHAIN = 1024
_FIELDS = ("at", "body", "chain", "format", "kind", "posted", "previous", "sequence", "token")


@frozen
class Head:
    """The last entry of a chain: its sequence number, from 0, and its digest.

    Attributes:
        sequence: of the entry, from 0.
        digest: of the entry, ``b3:`` and 64 hex digits.
    """

    sequence: int
    digest: str


@frozen
class Stored:
    """One row as a storage keeps it. Nothing about it is verified.

    Attributes:
        sequence: place in the chain, from 0.
        stored: the canonical bytes.
        digest: of those bytes.
    """

    sequence: int
    stored: bytes = field(repr=False)
    digest: str
    seal: str | None = field(default=None, repr=False)
    """A keyed digest, kept beside the bytes and outside of them."""

    @property
    def head(self) -> Head:
        """The head of a chain that ends here."""
        return Head(self.sequence, self.digest)


@frozen(kw_only=True)
class Entry(Stored):
    """One row, verified and decoded; ``stored`` are its exact canonical bytes.

    Attributes:
        chain: id of the chain.
        kind: what the body is.
        body: decoded JSON.
        posted: whether somebody else than the owner of the chain wrote it.
    """

    chain: str
    previous: str | None
    """The digest of the entry before; None for the first."""
    at: int
    """Milliseconds since the epoch, for people: nothing depends on it."""
    token: int
    """The fencing token of the writer; 0 for a post."""
    kind: str
    body: dict[str, Any] = field(hash=False)
    posted: bool
    after_hole: bool = field(default=False, eq=False)
    """Whether it stands at or after the chain's first hole (:func:`load`)."""
    unsealed: bool = field(default=False, eq=False)
    """Whether :func:`load` was given a key and this entry has no valid seal under it."""

    def sealed(self, key: bytes) -> bool:
        """Whether the seal is the one that ``key`` makes for this entry at this place of this chain."""
        expected = _seal(key, self.chain, self.sequence, self.previous, self.stored)
        return compare_digest(expected.encode(), (self.seal or "").encode("utf-8", "replace"))


@frozen
class Record:
    """What a caller wants to append: a kind and a JSON body.

    Attributes:
        kind: what the body is.
        body: JSON that the entry will hold.
    """

    kind: str
    body: dict[str, Any] = field(hash=False)


def chain_entries(
    chain: str,
    head: Head | None,
    records: Iterable[Record],
    *,
    at: int,
    token: int = 0,
    key: bytes | None = None,
    posted: bool = False,
) -> tuple[Entry, ...]:
    """Build the entries that follow ``head``: numbered, linked, encoded, and sealed if there is a ``key``.

    Raises:
        InvalidInputError: a body that is not I-JSON, a post with a token or an append without, a key of other than
            32 bytes, a time or token that is no integer from 0.
    """
    check_chain(chain)
    check_key(key)
    if posted is not (token == 0):
        raise InvalidInputError("token", "0 for a post and a writer's token for an append", token)
    entries: list[Entry] = []
    sequence, previous = (0, None) if head is None else (head.sequence + 1, head.digest)
    for record in records:
        content = {
            "at": at, "body": record.body, "chain": chain, "format": FORMAT, "kind": record.kind,
            "posted": posted, "previous": previous, "sequence": sequence, "token": token,
        }  # fmt: skip
        fault = _fault(content)
        if fault is not None:
            raise InvalidInputError(f"record {len(entries)}.{fault}", "a value of the right kind", content[fault])
        stored = canonical(content, place=f"record {len(entries)}")
        mark = None if key is None else _seal(key, chain, sequence, previous, stored)
        content = _again(stored, f"record {len(entries)}")
        entry = _entry(content, Stored(sequence, stored, fingerprint(Domain.ENTRY, stored), mark))
        entries.append(entry)
        sequence, previous = sequence + 1, entry.digest
    return tuple(entries)


def decode(row: Stored, chain: str) -> Entry:
    """Verify one row of ``chain`` by itself, then decode it. Links and seals are checked by :func:`load`.

    Raises:
        MalformedError: the digest is not that of the bytes, the bytes are no canonical entry, or they are an entry of
            another chain or sequence number.
        LedgerFormatError: the entry has a format version that this code does not know.
    """
    place = f"entry {row.sequence} of chain {chain!r}"
    if fingerprint(Domain.ENTRY, row.stored) != row.digest:
        raise MalformedError(place, "bytes with the digest stored beside them", "other bytes, or another digest")
    content = _parse(row.stored, place)
    if content["chain"] != chain or content["sequence"] != row.sequence:
        raise MalformedError(place, "that entry", f"entry {content['sequence']} of chain {content['chain']!r}")
    return _entry(content, row)


def torn(row: Stored) -> bool:
    """Whether the bytes of ``row`` are no entry at all, as after a write that stopped half-way."""
    try:
        _parse(row.stored, "row")
    except MalformedError:
        return True
    except LedgerFormatError:
        return False
    return False


def blob_key(value: bytes) -> str:
    """Return the key under which ``value`` is stored."""
    return fingerprint(Domain.BLOB, value)


def check_chain(chain: object) -> None:
    """Refuse a chain id that not every storage can hold.

    Raises:
        InvalidInputError: ``chain`` is no text of 1 to 1024 characters, or holds NUL or a lone surrogate.
    """
    if not isinstance(chain, str) or not 0 < len(chain) <= _MAX_CHAIN or "\0" in chain:
        raise InvalidInputError("chain", "a text of 1 to 1024 characters without NUL", chain)
    try:
        chain.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError("chain", "text without lone surrogates", chain) from error


def check_key(key: object) -> None:
    """Refuse a sealing key of the wrong size.

    Raises:
        InvalidInputError: ``key`` is neither None nor 32 bytes.
    """
    if key is not None and (not isinstance(key, bytes) or len(key) != _KEY_BYTES):
        raise InvalidInputError("key", "32 bytes", f"{type(key).__name__} of another size")


def _seal(key: bytes, chain: str, sequence: int, previous: str | None, stored: bytes) -> str:
    return seal(key, chain.encode(), str(sequence).encode(), (previous or "").encode(), stored)


def _again(stored: bytes, place: str) -> dict[str, Any]:
    """Read back what was just encoded: a new object, and never an entry that will not decode.

    Some floats do not: from 2**53 they are written as integers that I-JSON does not have.
    """
    try:
        return _parse(stored, place)
    except MalformedError as error:
        raise InvalidInputError(place, error.expected, error.got) from error


def _whole(value: object) -> bool:
    return type(value) is int and value >= 0


def _fault(content: dict[str, Any]) -> str | None:
    """Return the first field whose value is of the wrong kind."""
    previous, kind = content["previous"], content["kind"]
    good = (
        ("at", _whole(content["at"])),
        ("body", type(content["body"]) is dict),
        ("chain", type(content["chain"]) is str),
        ("kind", type(kind) is str and kind != ""),
        ("sequence", _whole(content["sequence"])),
        ("previous", type(previous) is str if content["sequence"] else previous is None),
        ("token", _whole(content["token"])),
        ("posted", type(content["posted"]) is bool and content["posted"] is (content["token"] == 0)),
    )
    return next((name for name, fine in good if not fine), None)


def _parse(stored: bytes, place: str) -> dict[str, Any]:
    try:
        content = orjson.loads(stored)
    except orjson.JSONDecodeError as error:
        raise MalformedError(place, "an entry", f"no JSON: {error}") from error
    if not isinstance(content, dict):
        raise MalformedError(place, "an entry", type(content).__name__)
    version = content.get("format")
    if type(version) is int and version != FORMAT:
        raise LedgerFormatError(f"{place} has format {version}; this version of capstate knows {FORMAT}")
    if type(version) is not int or tuple(sorted(content)) != _FIELDS:
        raise MalformedError(place, f"an entry of format {FORMAT}", "other fields")
    fault = _fault(content)
    if fault is not None:
        raise MalformedError(f"{place}.{fault}", "a value of the right kind", content[fault])
    try:
        again = canonical(content)
    except InvalidInputError as error:
        raise MalformedError(place, error.expected, error.got) from error
    if again != stored:
        raise MalformedError(place, "canonical bytes", "another spelling")
    return content


def _entry(content: dict[str, Any], row: Stored) -> Entry:
    return Entry(
        row.sequence, row.stored, row.digest, row.seal,
        chain=content["chain"], previous=content["previous"], at=content["at"], token=content["token"],
        kind=content["kind"], body=content["body"], posted=content["posted"],
    )  # fmt: skip
