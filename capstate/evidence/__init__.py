"""Evidence: raw results, kept under ids that cannot lie, looked up instead of remembered.

The rules are ``docs/spec/evidence.md``. A :class:`Keeper` keeps the artefacts of one tenant in a :class:`Store`.

>>> keeper = Keeper(MemoryStore(), tenant="acme")
>>> kept = keeper.put(b"INC-42: timeouts since 09:12", now=1_000, until=5_000)
>>> keeper.get(kept.id, now=2_000), keeper.answer(kept.id, now=5_000).value
(b'INC-42: timeouts since 09:12', 'expired')
"""

from capstate.evidence.ciphers import AesGcm, Cipher
from capstate.evidence.keeper import Answer, Artefact, Keeper
from capstate.evidence.redaction import Redact, redact_fields, redact_matches
from capstate.evidence.stores import DirectoryStore, MemoryStore, Store

__all__ = [
    "AesGcm",
    "Answer",
    "Artefact",
    "Cipher",
    "DirectoryStore",
    "Keeper",
    "MemoryStore",
    "Redact",
    "Store",
    "redact_fields",
    "redact_matches",
]
