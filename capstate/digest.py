"""Canonical bytes, and fingerprints over them.

``canonical`` writes RFC 8785 (JCS) JSON inside I-JSON: no NaN, no infinity, no integer beyond 2**53 - 1,
no lone surrogate. ``fingerprint`` is BLAKE3 in ``derive_key`` mode over length-prefixed parts, so that a
tool can never have the fingerprint of a group and ``("ab", "c")`` never that of ``("a", "bc")``.
Fingerprints are text with their algorithm in front: ``b3:`` and 64 hex digits.

A stranger recomputes one with ``b3sum --derive-key "<context>"`` over the same bytes: each part preceded by
its length as eight bytes, little endian.
"""

from __future__ import annotations

from enum import Enum

import orjson
import rfc8785
from blake3 import blake3

from capstate.errors import InvalidInputError

_SAFE = 2**53 - 1  # RFC 7493 section 2.2
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
    CURSOR = "capstate 2026-11-30 chain cursor v1"


def _plain(value: object) -> bool:
    """Whether orjson and RFC 8785 write the same bytes for ``value``."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is dict:
        return all(type(k) is str and k < _KEY_LIMIT and _plain(v) for k, v in value.items())  # type: ignore[attr-defined]  # kind is dict
    if kind is list or kind is tuple:
        return all(map(_plain, value))  # type: ignore[call-overload]  # kind is list or tuple
    return kind is int and -_SAFE <= value <= _SAFE  # type: ignore[operator]  # kind is int


def canonical(value: object, *, place: str = "value") -> bytes:
    """Return the canonical JSON bytes of ``value`` (RFC 8785).

    Raises:
        InvalidInputError: ``value`` is not I-JSON, or nests too deeply.
    """
    try:
        if _plain(value):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        return rfc8785.dumps(value)  # type: ignore[arg-type]  # it checks what it is given
    except (rfc8785.CanonicalizationError, orjson.JSONEncodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidInputError(place, "JSON without NaN, huge integers or lone surrogates", str(error)) from error


def fingerprint(domain: Domain, *parts: bytes) -> str:
    """Return ``b3:`` and the hex digest of ``parts`` in ``domain``."""
    joined = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return "b3:" + blake3(joined, derive_key_context=domain.value).hexdigest()


def seal(key: bytes, *parts: bytes) -> str:
    """Return the keyed digest (a MAC) of ``parts``; ``key`` has 32 bytes."""
    joined = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return "b3k:" + blake3(joined, key=blake3(key, derive_key_context=Domain.SEAL.value).digest()).hexdigest()
