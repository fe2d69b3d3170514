"""Encryption at rest: a small interface, and one implementation of it."""

from __future__ import annotations

import os
from typing import Protocol

from capstate.digest import Domain, fingerprint
from capstate.errors import InvalidInputError

_NONCE = 12  # bytes; NIST SP 800-38D, 8.2: what AES-GCM is made for


class Cipher(Protocol):
    """Encrypts with associated data. Safe to use from many threads."""

    @property
    def key_id(self) -> str:
        """A name of the key that says nothing of it; another key has another one."""

    def encrypt(self, plain: bytes, associated: bytes) -> bytes:
        """Return ``plain``, encrypted; never twice the same bytes."""

    def decrypt(self, encrypted: bytes, associated: bytes) -> bytes:
        """Return what was encrypted. Raises ValueError if it, or the associated data, is not what it was."""


class AesGcm:
    """AES-256 in Galois/Counter Mode (NIST SP 800-38D), by the ``cryptography`` package: the extra ``sign``.

    A random nonce stands before what it encrypted: one key is good for 2**32 artefacts (SP 800-38D, 8.3).

    Args:
        key: 32 bytes that the tools of an agent cannot read.

    Raises:
        InvalidInputError: the key has another size, or the package is not installed.
    """

    def __init__(self, key: bytes) -> None:
        given: object = key
        if not isinstance(given, bytes) or len(given) != 32:  # noqa: PLR2004 - as said
            raise InvalidInputError("evidence key", "32 bytes", f"{type(given).__name__} of another size")
        try:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra, and only for who encrypts
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above
        except ImportError as error:
            raise InvalidInputError(
                "AesGcm", "the package cryptography: pip install 'capstate[sign]'", "none"
            ) from error
        self._cipher, self._wrong = AESGCM(key), InvalidTag
        self.key_id = fingerprint(Domain.EVIDENCE, b"key", key)[:19]

    def encrypt(self, plain: bytes, associated: bytes) -> bytes:
        """See :class:`Cipher`."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, plain, associated)

    def decrypt(self, encrypted: bytes, associated: bytes) -> bytes:
        """See :class:`Cipher`."""
        if len(encrypted) < _NONCE:
            raise ValueError("no nonce")
        try:
            return self._cipher.decrypt(encrypted[:_NONCE], encrypted[_NONCE:], associated)
        except self._wrong as error:
            raise ValueError("another key, other bytes, or other associated data") from error
