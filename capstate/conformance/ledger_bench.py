"""The bench for ``ledger_checks.py``: handles on one storage, and short ways to use them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from capstate.digest import Domain, fingerprint
from capstate.errors import CapstateError
from capstate.ledger import OPENED, Entry, Head, Ledger, Record, Stored, Writer, chain_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

_E = TypeVar("_E", bound=CapstateError)


class BrokenPromiseError(Exception):
    """A storage did something else than the contract says."""


class Bench:
    """One empty storage and all handles that a check opened on it."""

    def __init__(self, opener: Callable[[], Ledger]) -> None:
        self._opener, self._handles = opener, list[Ledger]()

    def open(self) -> Ledger:
        """Open one more handle."""
        self._handles.append(self._opener())
        return self._handles[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for handle in self._handles:
            handle.close()


def same(expected: object, actual: object, what: str) -> None:
    """Hold the storage to ``expected``."""
    if expected != actual:
        raise BrokenPromiseError(f"{what}: expected {expected!r}, got {actual!r}")


def raises(error: type[_E], act: Callable[[], object], what: str) -> _E:
    """Hold the storage to raising ``error``, and return it."""
    try:
        act()
    except error as found:
        return found
    raise BrokenPromiseError(f"{what}: expected {error.__name__}, nothing was raised")


def entries(writer: Writer, head: Head | None, count: int = 1) -> tuple[Entry, ...]:
    """Build ``count`` entries that follow ``head``."""
    first = 0 if head is None else head.sequence + 1
    records = [Record("note" if n else OPENED, {"log": "l", "n": n}) for n in range(first, first + count)]
    return chain_entries(writer.chain, head, records, at=1, token=writer.token)


def grow(ledger: Ledger, writer: Writer, count: int = 1, **more: Any) -> Head:  # noqa: ANN401 - what append takes
    """Append ``count`` entries to the writer's chain."""
    head = ledger.head(writer.chain)
    return ledger.append(writer.chain, entries(writer, head, count), expect=head, writer=writer, **more)


def deny(chain: str) -> Callable[[Head | None], Sequence[Stored]]:
    """Make rows for a post."""
    return lambda head: chain_entries(chain, head, [Record("deny", {"select": "x/*"})], at=1, posted=True)


def always(rows: Sequence[Stored], _: Head | None) -> Sequence[Stored]:
    """Make the same rows whatever the head is."""
    return rows


def raw(head: Head | None, stored: bytes) -> Stored:
    """Build a row of any bytes, under their digest."""
    return Stored(0 if head is None else head.sequence + 1, stored, fingerprint(Domain.ENTRY, stored))


def snapshot(ledger: Ledger, chain: str) -> tuple[object, ...]:
    """Return what the storage shows of ``chain``."""
    return ledger.head(chain), tuple(ledger.read(chain)), ledger.chains(), ledger.pool(chain)


def together(jobs: Sequence[Callable[[], None]]) -> None:
    """Run ``jobs`` at once; raise what the first failed one raised."""
    errors: list[BaseException] = []
    gate = threading.Barrier(len(jobs))

    def work(job: Callable[[], None]) -> None:
        try:
            gate.wait()
            job()
        except BaseException as error:  # noqa: BLE001 - carried over to the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        if thread.is_alive():
            raise BrokenPromiseError("a thread is still waiting after two minutes")
    if errors:
        raise errors[0]


def torn_tail(ledger: Ledger, writer: Writer) -> Stored:
    """Append a row that holds half an entry."""
    head = ledger.head(writer.chain)
    row = raw(head, b'{"at":1,"bo')
    ledger.append(writer.chain, [row], expect=head, writer=writer)
    return row


CHECKS: dict[str, Callable[[Bench], None]] = {}
"""All checks by name, in order."""


def check(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
    """Enter a check into :data:`CHECKS`."""
    CHECKS[function.__name__] = function
    return function
