"""What a ledger says afterwards: why a tool was callable or not, how two epochs differ, and whether the chain holds.

Everything is read, nothing is written, and nothing read here restores anything. A receipt is believed only as far as
:func:`verify` says: it recomputes each epoch from the archived facts and compares bytes.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import frozen

from capstate.codec import facts_from_archive, recompute
from capstate.digest import canonical
from capstate.epochs import reproject
from capstate.errors import InvalidInputError, LedgerFormatError, LedgerUnavailableError, MalformedError
from capstate.ledger import Head, load, read_blob
from capstate.ledger import Outcome as ChainOutcome
from capstate.ledger import verify as verify_chain
from capstate.receipts import Action, Receipt, RowState
from capstate.receipts import diff as diff_rows
from capstate.runtime import open_ledger
from capstate.runtime.explained import rule_of
from capstate.runtime.live import Folds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from capstate.codec import Blob
    from capstate.ledger import Ledger


@frozen
class Kept:
    """A receipt in its chain.

    Attributes:
        sequence: of its entry.
        receipt: the receipt.
    """

    sequence: int
    receipt: Receipt


def receipts(ledger: Ledger, session: str, key: bytes | None = None) -> list[Kept]:
    """Return the receipts of a session, oldest first.

    Raises:
        InvalidInputError: the ledger has no such session.
        MalformedError: a receipt, or rows that it names, cannot be read.
        LedgerFormatError, LedgerUnavailableError: as for every reader.
    """
    known = ledger.chains()
    if session not in known:
        raise InvalidInputError("session", _among(known), session)
    chain = load(ledger, session, key)
    blob = partial(read_blob, ledger)
    return [
        Kept(entry.sequence, Receipt.from_bytes(canonical(_body(entry.body), place="receipt"), blob))
        for entry in chain.entries
        if entry.kind == "epoch"
    ]


def _body(entry: Any) -> dict[str, Any]:  # noqa: ANN401 - decoded JSON
    body = entry.get("receipt")
    if not isinstance(body, dict):
        raise MalformedError("entry", "a receipt", type(body).__name__)
    return body


def _among(known: tuple[str, ...]) -> str:
    return "one of " + ", ".join(map(repr, known[:20])) if known else "one that exists"


def _at(found: list[Kept], epoch: int | None, place: str) -> int:
    """Return the index of an epoch; None for the last."""
    if not found:
        raise InvalidInputError("session", "a session with an epoch", "one without")
    if epoch is None:
        return len(found) - 1
    for n, kept in enumerate(found):
        if kept.receipt.epoch == epoch:
            return n
    raise InvalidInputError(place, f"an epoch from {found[0].receipt.epoch} to {found[-1].receipt.epoch}", epoch)


def explain(
    ledger: Ledger, session: str, tool: str, *, epoch: int | None = None, key: bytes | None = None
) -> dict[str, Any]:
    """Say what a tool was at an epoch, by which rule, and what happened to it up to then.

    Args:
        tool: ``group/name``, the wire name at that epoch or an earlier one, or a name that only one group has.
        epoch: by default the last.

    Raises:
        InvalidInputError: there is no such session, epoch or tool.
        MalformedError: as :func:`receipts`.
    """
    found = receipts(ledger, session, key)
    last = _at(found, epoch, "epoch")
    blob = partial(read_blob, ledger)
    group, name = _named(found[: last + 1], tool, blob)
    history = []
    before: RowState | None = None
    for kept in found[: last + 1]:
        rows = kept.receipt.rows.get(group)
        now = rows.by_name().get(name) if rows is not None else None
        if now != before:
            told = {"epoch": kept.receipt.epoch, "cause": kept.receipt.cause, **_state(now)}
            history.append({**told, "rule": _rule(kept.receipt, told["decided_by"], f"{group}/{name}", blob)})
        before = now
    receipt = found[last].receipt
    return {
        "session": session,
        "tool": f"{group}/{name}",
        "epoch": receipt.epoch,
        "cause": receipt.cause,
        "receipt": receipt.digest,
        **_state(before),
        "rule": _rule(receipt, before.decided_by if before is not None else "", f"{group}/{name}", blob),
        "history": history,
    }


def _rule(receipt: Receipt, decided_by: str, tool: str, blob: Blob) -> dict[str, Any] | None:
    """Return the rule behind ``decided_by``, readable, from the archived facts; None where no rule decided.

    None as well where the facts cannot be read: that is what :func:`verify` says.
    """
    if "#" not in decided_by:
        return None
    try:
        return rule_of(facts_from_archive(receipt.body, blob).authority, decided_by, tool)
    except (MalformedError, InvalidInputError):
        return None


def _named(found: list[Kept], tool: str, blob: Blob) -> tuple[str, str]:
    known: dict[str, tuple[str, str]] = {}
    for kept in found:
        for group, rows in kept.receipt.rows.items():
            known.update({f"{group}/{name}": (group, name) for name in rows.by_name()})
    if tool in known:
        return known[tool]
    same = dict.fromkeys([*(pair for pair in known.values() if pair[1] == tool), *_on_wire(found, tool, blob)])
    if len(same) == 1:
        return next(iter(same))
    expected = "one of " + ", ".join(f"{g}/{n}" for g, n in same) if same else "a tool of that session"
    raise InvalidInputError("tool", f"{expected}, as group/name or wire name", tool)


def _on_wire(found: list[Kept], wire: str, blob: Blob) -> list[tuple[str, str]]:
    """Return the tools that had a wire name at the last epoch that had one; names follow from archived facts."""
    for kept in reversed(found):
        try:
            rows = reproject(facts_from_archive(kept.receipt.body, blob), None).surface.rows()
        except (MalformedError, InvalidInputError):
            continue  # what verify says of this epoch is not asked here
        same = [(row.definition.group, row.definition.name) for row in rows if row.wire == wire]
        if same:
            return same
    return []


def _state(row: RowState | None) -> dict[str, Any]:
    if row is None:
        unknown = {"reason": "unknown_tool", "decided_by": "", "place": "", "definition": ""}
        return {"callable": False, "effect": None, **unknown}
    return {
        "callable": row.callable,
        "effect": row.status if row.callable else None,
        "reason": None if row.callable else row.status,
        "decided_by": row.decided_by,
        "place": row.place,
        "definition": row.definition,
    }


def difference(ledger: Ledger, session: str, a: int, b: int, *, key: bytes | None = None) -> dict[str, Any]:
    """Return how epoch ``b`` differs from epoch ``a``: tools, and which of the facts differ.

    Raises:
        InvalidInputError: there is no such session or epoch.
        MalformedError: as :func:`receipts`.
    """
    found = receipts(ledger, session, key)
    one, other = found[_at(found, a, "A")].receipt, found[_at(found, b, "B")].receipt
    was, now = dict(one.body["state"]), dict(other.body["state"])
    changes = diff_rows(one.rows, other.rows)
    blob = partial(read_blob, ledger)
    return {
        "session": session,
        "from": a,
        "to": b,
        "facts": sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name)),
        "issuer": [one.body["issuer"], other.body["issuer"]] if one.body["issuer"] != other.body["issuer"] else None,
        "changes": [
            {
                "action": str(c.action),
                "tool": c.tool,
                "reason": c.reason,
                "decided_by": c.decided_by,
                "rule": _rule(other, c.decided_by, c.tool, blob),
            }
            for c in changes
        ],
        "callable": [sum(c.action is Action.ADDED for c in changes), sum(c.action is Action.REMOVED for c in changes)],
    }


def verify(
    ledger: Ledger,
    session: str | None = None,
    *,
    head: Head | None = None,
    key: bytes | None = None,
    progress: Callable[[str], object] = lambda _chain: None,
) -> list[dict[str, Any]]:
    """Audit one chain, or all: the chain itself, and each epoch recomputed from its archived facts.

    Args:
        head: an earlier head of that one chain, kept elsewhere; without one a cut tail is not visible.
        progress: told of each chain before it is audited.

    Raises:
        InvalidInputError: the ledger has no such chain, a head came without a session, or no chain can have it.
        LedgerUnavailableError: the storage failed.
    """
    _check_head(head)
    known = ledger.chains()
    if session is None and head is not None:
        raise InvalidInputError("head", "the session that it is of", "no session")
    if session is not None and session not in known:
        raise InvalidInputError("session", _among(known), session)
    found = []
    for chain in known if session is None else (session,):
        progress(chain)
        found.append(_verified(ledger, chain, head, key))
    return found


def _verified(ledger: Ledger, chain: str, head: Head | None, key: bytes | None) -> dict[str, Any]:
    verdict = verify_chain(ledger, chain, key, head=head)
    state = Folds(ledger, key).get(chain) if verdict.outcome is not ChainOutcome.UNKNOWN_FORMAT else None
    count, wrong = _recomputed(ledger, chain, key) if state is not None else (0, [])
    good = verdict.outcome in (ChainOutcome.INTACT_UNANCHORED, ChainOutcome.CONSISTENT_WITH_ANCHOR)
    return {
        "session": chain,
        "outcome": verdict.outcome.value,
        "why": verdict.why,
        "index": verdict.index,
        "head": f"{verdict.head.sequence}:{verdict.head.digest}" if verdict.head is not None else None,
        "sealed": key is not None,
        "unsealed": list(verdict.unsealed),
        "epochs": count,
        "epochs_wrong": wrong,
        "missing": sorted(set(state.children).difference(ledger.chains())) if state is not None else [],
        "good": good and not wrong,
    }


def _recomputed(ledger: Ledger, chain: str, key: bytes | None) -> tuple[int, list[dict[str, Any]]]:
    """Return how many epochs there are, and which of them do not follow from their facts."""
    blob = partial(read_blob, ledger)
    wrong: list[dict[str, Any]] = []
    seen: dict[str, Receipt] = {}
    count = 0
    for entry in load(ledger, chain, key).entries:
        if entry.kind != "epoch":
            continue
        count += 1
        fault = None
        try:
            body = _body(entry.body)
            stored = Receipt.from_bytes(canonical(body, place="receipt"), blob)
            if recompute(body, blob, _before(ledger, body, seen, key)).encoded != stored.encoded:
                fault = "it does not follow from its facts"
            elif entry.body.get("digest") != stored.digest:
                fault = "the entry names another digest"
            seen[stored.digest] = stored
        except (MalformedError, InvalidInputError) as error:
            fault = str(error)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            fault = f"not the form of a receipt: {type(error).__name__}"
        if fault is not None:
            wrong.append({"sequence": entry.sequence, "why": fault})
    return count, wrong


def _before(ledger: Ledger, body: dict[str, Any], seen: dict[str, Receipt], key: bytes | None) -> Receipt | None:
    """Return the receipt that the epoch was compared with: the one it names, or of a fork's first its origin's."""
    if body["previous"] is not None:
        if body["previous"] not in seen:
            raise MalformedError("receipt.previous", "a receipt before it in its chain", body["previous"])
        return seen[body["previous"]]
    if body["fork"] is None:
        return None
    try:
        origin = receipts(ledger, body["fork"]["session"], key)
    except (InvalidInputError, LedgerFormatError):
        return None
    return next((k.receipt for k in reversed(origin) if k.sequence <= body["fork"]["sequence"]), None)


# ---- what a caller has in hand


@contextmanager
def opened(path: Path) -> Iterator[Ledger]:
    """Open the ledger in a file for reading alone.

    Raises:
        LedgerUnavailableError: there is none, or it cannot be read, or what is there is none.
        LedgerFormatError: another version of capstate wrote it.
    """
    head = _head(path)
    try:
        ledger = open_ledger(path, read_only=True)
    except MalformedError as error:
        raise LedgerUnavailableError(str(error)) from error
    except LedgerFormatError as error:
        if head[_VERSION] != bytes(4):
            raise
        got = "an empty SQLite database"
        if head[_MODE] == _WRITE_AHEAD:
            got += f", for its write-ahead log {path.name}-wal is not beside it; copy both, or copy it while closed"
        raise LedgerUnavailableError(f"{path}: expected a capstate ledger, got {got}") from error
    try:
        yield ledger
    finally:
        ledger.close()


_MAGIC = b"SQLite format 3\0"
_MODE, _VERSION = slice(18, 20), slice(60, 64)
_WRITE_AHEAD = b"\2\2"
"""SQLite documentation, "Database File Format", 1.3."""


def _head(path: Path) -> bytes:
    """Return the head of a database file; what is no database is said before SQLite looks at it."""
    try:
        if not path.exists():
            raise LedgerUnavailableError(f"{path}: there is no such ledger")
        if not path.is_file():
            got = "a folder" if path.is_dir() else "no regular file"
            raise LedgerUnavailableError(f"{path}: expected a capstate ledger, got {got}")
        with path.open("rb") as file:
            head = file.read(100)
    except (OSError, ValueError) as error:
        raise LedgerUnavailableError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not head.startswith(_MAGIC):
        got = "no SQLite database" if head else "an empty file"
        raise LedgerUnavailableError(f"{path}: expected a capstate ledger, got {got}")
    return head


def read_key(path: Path | None) -> bytes | None:
    """Return the sealing key in a file; None for no file.

    Raises:
        InvalidInputError: the file cannot be read.
    """
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(str(path), "a key file that can be read", error.strerror or str(error)) from error


_EXPECTED = "SEQUENCE:DIGEST, the digest as 'b3:' and 64 digits in hex (0-9, a-f), as verify prints it"
_HEAD = re.compile(r"([0-9]{1,15}):(b3:[0-9a-f]{64})")
"""No chain has a sequence number of more digits; a digest is always written in full."""


def parse_head(text: str | None) -> Head | None:
    """Return the head written as ``SEQUENCE:DIGEST``, blanks around it left out; None for no text.

    Raises:
        InvalidInputError: it is written otherwise. A digest that was cut is no other digest.
    """
    if text is None:
        return None
    if (found := _HEAD.fullmatch(text.strip())) is None:
        raise InvalidInputError("head", _EXPECTED, text)
    return Head(int(found[1]), found[2])


def _check_head(head: Head | None) -> None:
    """Refuse a head that no chain can have: that it is found nowhere would look like a fork."""
    if head is not None and not _HEAD.fullmatch(f"{head.sequence}:{head.digest}"):
        raise InvalidInputError("head", _EXPECTED, f"{head.sequence}:{head.digest}")
