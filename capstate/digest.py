"""Canonical bytes, and fingerprints over them.

``canonical`` writes RFC 8785 (JCS) JSON inside I-JSON: no NaN, no infinity, no integer beyond 2**53 - 1,
no lone surrogate. ``fingerprint`` is BLAKE3 in ``derive_key`` mode over length-prefixed parts, so that a
tool can never have the fingerprint of a group and ``("ab", "c")`` never that of ``("a", "bc")``.
Fingerprints are text with their algorithm in front: ``b3:`` and 64 hex digits.

A stranger recomputes one with ``b3sum --derive-key "<context>"`` over the same bytes: each part preceded by
its length as eight bytes, little endian.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import orjson
import rfc8785
from blake3 import blake3

from capstate.errors import InvalidInputError

_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_KEY_LIMIT = "\ud800"  # below it, code point order is UTF-16 order (RFC 8785 section 3.2.3)


class Domain(Enum):
    """Key-derivation contexts; constants, never data (BLAKE3 paper, section 6.2)."""

    TOOL = "capstate 2026-11-30 tool definition v1"
    GROUP = "capstate 2026-11-30 capability group v1"
    RULES = "capstate 2026-11-30 rules v1"
    RULE = "capstate 2026-11-30 rule v1"
    ROWS = "capstate 2026-11-30 group rows v1"
    SURFACE = "capstate 2026-11-30 surface v1"
    WIRE = "capstate 2026-11-30 wire v1"
    FACTS = "capstate 2026-11-30 facts v1"
    RECEIPT = "capstate 2026-11-30 receipt v1"
    ENTRY = "capstate 2026-11-30 ledger entry v1"
    SEAL = "capstate 2026-11-30 ledger seal v1"
    BLOB = "capstate 2026-11-30 blob v1"
    ARGUMENTS = "capstate 2026-11-30 call arguments v1"
    NAME = "capstate 2026-11-30 wire name v1"
    EVIDENCE = "capstate 2026-11-30 evidence v1"
    CURSOR = "capstate 2026-11-30 chain cursor v1"

    def __init__(self, context: str) -> None:
        self.hasher = blake3(derive_key_context=context)
        """Only ever copied: deriving the key costs as much as hashing a small tool."""


def check_text(value: object, place: str, expected: str = "text") -> str:
    """Return ``value`` if it is text that canonical bytes can hold.

    Raises:
        InvalidInputError: it is no text, or holds a lone surrogate.
    """
    if not isinstance(value, str):
        raise InvalidInputError(place, expected, value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(place, f"{expected} without lone surrogates", ascii(value)) from None
    return value


def _plain(root: object) -> bool:
    """Whether RFC 8785 writes the same bytes for ``root`` as orjson, which took it: so it holds no cycle."""
    found = [root]
    for value in found:
        kind = type(value)
        if kind is str:
            continue
        if kind is dict:
            if any(type(key) is not str or key >= _KEY_LIMIT for key in value):  # type: ignore[attr-defined]  # kind is dict
                return False
            found.extend(value.values())  # type: ignore[attr-defined]  # kind is dict
        elif kind is list or kind is tuple:
            found.extend(value)  # type: ignore[arg-type]  # kind is list or tuple
        elif kind is not bool and value is not None and kind is not int:
            return False
    return True


def _beyond_doubt(encoded: bytes, nulls: int) -> bool:
    """Whether what orjson wrote shows by itself that RFC 8785 writes the same.

    Keys in ASCII have one order, every null is a None (orjson writes NaN as null as well), and there is no fraction
    or exponent, nor text that looks like one.
    """
    if encoded.count(b"null") != nulls or not encoded.isascii():
        return False
    digits = encoded.translate(_DIGITS)
    return b"0.0" not in digits and b"0e" not in digits


def canonical(value: object, *, place: str = "value", nulls: int = 0) -> bytes:
    """Return the canonical JSON bytes of ``value`` (RFC 8785).

    Args:
        value: JSON as Python has it.
        place: names it in the error.
        nulls: how many None the caller knows to be in it; that many need no second look.

    Raises:
        InvalidInputError: ``value`` is not I-JSON, or nests too deeply.
    """
    try:
        try:
            encoded = orjson.dumps(value, option=_OPTIONS)
        except orjson.JSONEncodeError:  # RFC 8785 may still have a form for it
            return rfc8785.dumps(value)  # type: ignore[arg-type]  # it checks what it is given
        if _beyond_doubt(encoded, nulls) or _plain(value):
            return encoded
        return rfc8785.dumps(value)  # type: ignore[arg-type]  # as above
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidInputError(place, "JSON without NaN, huge integers or lone surrogates", str(error)) from error


def encode(value: list[Any] | tuple[Any, ...]) -> bytes:
    """Return the canonical bytes of lists of text and small whole numbers that this library made: not checked again."""
    return orjson.dumps(value)


def _joined(parts: tuple[bytes, ...]) -> bytes:
    return b"".join([len(part).to_bytes(8, "little") + part for part in parts])


def fingerprint(domain: Domain, *parts: bytes) -> str:
    """Return ``b3:`` and the hex digest of ``parts`` in ``domain``."""
    hasher = domain.hasher.copy()
    if len(parts) == 1:  # it may be long, and is not copied
        hasher.update(len(parts[0]).to_bytes(8, "little"))
        hasher.update(parts[0])
    else:
        hasher.update(_joined(parts))
    return "b3:" + hasher.hexdigest()


def fingerprints(domain: Domain, *head: bytes) -> Callable[[bytes], str]:
    """Return the function that gives ``fingerprint(domain, *head, part)``, with the head hashed once."""
    begun = domain.hasher.copy()
    begun.update(_joined(head))

    def of(part: bytes) -> str:
        hasher = begun.copy()
        hasher.update(len(part).to_bytes(8, "little") + part)
        return "b3:" + hasher.hexdigest()

    return of


def seal(key: bytes, *parts: bytes) -> str:
    """Return the keyed digest (a MAC) of ``parts``; ``key`` has 32 bytes."""
    return "b3k:" + blake3(_joined(parts), key=blake3(key, derive_key_context=Domain.SEAL.value).digest()).hexdigest()
