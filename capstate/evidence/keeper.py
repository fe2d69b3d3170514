"""The artefacts of one tenant: put and verified, looked up, expired, removed.

A record is a head, one line of canonical JSON, and behind it the bytes, encrypted if there is a cipher. The head of a
removed artefact stands alone.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson
from attrs import frozen

from capstate.digest import Domain, canonical, check_text, fingerprint
from capstate.errors import (
    EvidenceAbsentError,
    EvidenceError,
    EvidenceExpiredError,
    EvidenceKeyError,
    EvidenceTamperedError,
    EvidenceUnavailableError,
    InvalidInputError,
)

if TYPE_CHECKING:
    from capstate.evidence.ciphers import Cipher
    from capstate.evidence.redaction import Redact
    from capstate.evidence.stores import Store

FORMAT = 1
"""The version of a record."""
_ID = re.compile(r"ev:[0-9a-f]{64}")
_HEAD = {"digest", "format", "id", "key", "media", "removed", "until"}
_MEDIA = re.compile(r"[\x21-\x7e]+/[\x20-\x7e]+")


class Answer(StrEnum):
    """What a look-up finds (evidence.md 3)."""

    PRESENT = "present"
    EXPIRED = "expired"
    TAMPERED = "tampered"
    ABSENT = "absent"
    WRONG_KEY = "wrong_key"
    UNAVAILABLE = "unavailable"


_ANSWERS: dict[type[EvidenceError], Answer] = {
    EvidenceExpiredError: Answer.EXPIRED,
    EvidenceTamperedError: Answer.TAMPERED,
    EvidenceAbsentError: Answer.ABSENT,
    EvidenceKeyError: Answer.WRONG_KEY,
    EvidenceUnavailableError: Answer.UNAVAILABLE,
}


@frozen
class Artefact:
    """What was kept.

    Attributes:
        id: under which it is cited and looked up.
        media: media type of the bytes.
        size: of the bytes as kept, after redaction.
        until: milliseconds since the epoch from which it is expired; None for never.
    """

    id: str
    media: str
    size: int
    until: int | None


class Keeper:
    """Keeps the artefacts of one tenant.

    Args:
        store: where the records are.
        tenant: whose they are. Nothing of another tenant can be found, nor told apart from what never was.
        redact: takes out what must not be kept, before anything is stored.
        cipher: encrypts what is stored.

    Raises:
        InvalidInputError: an argument is of another kind.
    """

    def __init__(
        self, store: Store, *, tenant: str, redact: Redact | None = None, cipher: Cipher | None = None
    ) -> None:
        if not check_text(tenant, "tenant", "the name of a tenant"):
            raise InvalidInputError("tenant", "the name of a tenant", tenant)
        if not callable(getattr(store, "write", None)):
            raise InvalidInputError("store", "a Store", store)
        function: object = redact
        if function is not None and not callable(function):
            raise InvalidInputError("redact", "a function, or None", redact)
        self._store, self._redact, self._cipher = store, redact, cipher
        self._tenant = tenant.encode()
        self._shelf = fingerprint(Domain.EVIDENCE, b"tenant", self._tenant)[3:35]

    def put(
        self, value: bytes, *, now: int, media: str = "application/octet-stream", until: int | None = None
    ) -> Artefact:
        """Keep ``value``, redacted; durable and read back when this returns (EV-01). Again the same is the same.

        Args:
            now: milliseconds since the epoch.
            media: its media type.
            until: from when on it is expired; None: never.

        Raises:
            InvalidInputError: an argument is of another kind, or its time is over already.
            EvidenceTamperedError: what was read back is something else. Nothing is kept.
            EvidenceUnavailableError: the storage failed.
            Exception: whatever the redaction raises. Nothing was stored.
        """
        _bytes(value, "evidence")
        kind: object = media
        if not isinstance(kind, str) or not _MEDIA.fullmatch(kind):
            raise InvalidInputError("media", "a media type, such as text/plain", media)
        _time(now, "now")
        if until is not None and _time(until, "until") <= now:
            raise InvalidInputError("until", f"a time after now, {now}", until)
        if self._redact is not None:
            value = _bytes(self._redact(value, media), "what a redaction returned")
        digest = fingerprint(Domain.EVIDENCE, b"bytes", self._tenant, value)
        made = Artefact(self._id(media, until, digest), media, len(value), until)
        head = self._head(made.id, media, until, digest, removed=False)
        stored = value if self._cipher is None else self._cipher.encrypt(value, self._associated(head))
        self._store.write(self._shelf, made.id[3:], head + b"\n" + stored)
        try:
            back = self.get(made.id, now=now)
        except (EvidenceAbsentError, EvidenceTamperedError):
            back = None
        if back != value:
            self._store.remove(self._shelf, made.id[3:])
            raise EvidenceTamperedError(made.id, "what was read back is not what was written; nothing is kept")
        return made

    def get(self, id: str, *, now: int) -> bytes:  # noqa: A002 - the word of the specification
        """Return the bytes of an artefact (EV-03, EV-04).

        Raises:
            EvidenceExpiredError: its time is over.
            EvidenceTamperedError: what is stored does not have that id.
            EvidenceAbsentError: nothing of that id was kept for this tenant.
            EvidenceKeyError: it is encrypted under another key.
            EvidenceUnavailableError: the storage cannot be read now.
            InvalidInputError: ``now`` is no time.
        """
        head, stored = self._found(id)
        if head["until"] is not None and _time(now, "now") >= head["until"]:
            raise EvidenceExpiredError(id)
        _time(now, "now")
        if head["removed"]:
            raise EvidenceTamperedError(id, "it was removed before its time")
        value = self._opened(id, head, stored)
        if fingerprint(Domain.EVIDENCE, b"bytes", self._tenant, value) != head["digest"]:
            raise EvidenceTamperedError(id, "its bytes are others")
        return value

    def answer(self, id: str, *, now: int) -> Answer:  # noqa: A002 - as above
        """Return what :meth:`get` would find, without the bytes. Raises InvalidInputError as it does."""
        try:
            self.get(id, now=now)
        except EvidenceError as error:
            return _ANSWERS[type(error)]
        return Answer.PRESENT

    def resolves(self, id: str, *, now: int) -> bool:  # noqa: A002 - as above
        """Whether the artefact can be looked up now: what a claim that cites it needs.

        Raises:
            EvidenceUnavailableError, EvidenceKeyError: nobody can tell now; that is not the same as no.
            InvalidInputError: ``now`` is no time.
        """
        try:
            self.get(id, now=now)
        except (EvidenceAbsentError, EvidenceExpiredError, EvidenceTamperedError):
            return False
        return True

    def sweep(self, *, now: int) -> tuple[str, ...]:
        """Remove the bytes of everything whose time is over, and return the ids of what is expired (EV-08).

        Damaged records stay, for somebody to look at.

        Raises:
            EvidenceUnavailableError: the storage failed; what was removed before stays removed.
            InvalidInputError: ``now`` is no time.
        """
        _time(now, "now")
        expired = []
        for name in self._store.names(self._shelf):
            id_ = f"ev:{name}"
            try:
                head, _ = self._found(id_)
            except (EvidenceAbsentError, EvidenceTamperedError):
                continue
            if head["until"] is None or head["until"] > now:
                continue
            expired.append(id_)
            if not head["removed"]:
                stone = self._head(id_, head["media"], head["until"], head["digest"], removed=True)
                self._store.write(self._shelf, name, stone + b"\n")
        return tuple(expired)

    def _id(self, media: str, until: int | None, digest: str) -> str:
        parts = (self._tenant, media.encode(), str(until).encode(), digest.encode())
        return "ev:" + fingerprint(Domain.EVIDENCE, b"artefact", *parts)[3:]

    def _head(self, id_: str, media: str, until: int | None, digest: str, *, removed: bool) -> bytes:
        key = self._cipher.key_id if self._cipher is not None and not removed else None
        body = {"digest": digest, "format": FORMAT, "id": id_, "key": key, "media": media}
        return canonical({**body, "removed": removed, "until": until})

    def _associated(self, head: bytes) -> bytes:
        return canonical([self._tenant.decode(), head.decode()])

    def _found(self, id_: object) -> tuple[dict[str, Any], bytes]:
        """Return the head, compared with the id, and what stands behind it."""
        if not isinstance(id_, str) or not _ID.fullmatch(id_):
            raise EvidenceAbsentError(str(id_))
        record = self._store.read(self._shelf, id_[3:])
        if record is None:
            raise EvidenceAbsentError(id_)
        line, _, stored = record.partition(b"\n")
        head = _read(line)
        known = head is not None and type(head["format"]) is int and head["format"] == FORMAT
        if head is None or not known or head["id"] != id_ or type(head["removed"]) is not bool:
            raise EvidenceTamperedError(id_, "its head does not read")
        media, until, digest = head["media"], head["until"], head["digest"]
        kinds = isinstance(media, str) and isinstance(digest, str) and (until is None or type(until) is int)
        if not kinds or self._id(media, until, digest) != id_:
            raise EvidenceTamperedError(id_, "its head is another's")
        return head, stored

    def _opened(self, id_: str, head: dict[str, Any], stored: bytes) -> bytes:
        if head["key"] is None:
            return stored
        if self._cipher is None or head["key"] != self._cipher.key_id:
            raise EvidenceKeyError(id_)
        try:
            return self._cipher.decrypt(stored, self._associated(canonical(head)))
        except ValueError as error:
            raise EvidenceTamperedError(id_, "it does not decrypt") from error


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        head = orjson.loads(line)
        return head if isinstance(head, dict) and set(head) == _HEAD and canonical(head) == line else None
    except (ValueError, InvalidInputError):
        return None


def _bytes(value: object, place: str) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidInputError(place, "bytes", type(value).__name__)
    return value


def _time(value: object, place: str) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise InvalidInputError(place, "milliseconds since the epoch", value)
    return value
