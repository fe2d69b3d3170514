"""What the ledger's tests share: honest chains, and a ledger whose rows a forger can rearrange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from capstate.ledger import OPENED, Entry, Head, Record, Stored, chain_entries

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY = bytes(range(32))


def honest(chain: str = "s", count: int = 20, *, key: bytes | None = None, log: str = "log-1") -> tuple[Entry, ...]:
    """Build a chain as an owner (token 1) and a poster (each fourth entry) would."""
    built: list[Entry] = []
    head: Head | None = None
    for number in range(count):
        posted = number % 4 == 3
        body: dict[str, Any] = {"log": log} if number == 0 else {"n": number, "text": f"é{number}", "list": [1, None]}
        kind = OPENED if number == 0 else "deny" if posted else "grant"
        token = 0 if posted else 1
        built += chain_entries(
            chain, head, [Record(kind, body)], at=1_700_000_000_000 + number, token=token, key=key, posted=posted
        )
        head = built[-1].head
    return tuple(built)


class Rows:
    """A ledger that reads whatever rows it was given; the reading half of the port is all that load and verify use."""

    def __init__(self, rows: Iterable[Stored]) -> None:
        self.rows = list(rows)

    def read(self, chain: str, start: int = 0) -> list[Stored]:  # noqa: ARG002 - the port has it
        """Give the rows, in the order in which they lie."""
        return [row for row in self.rows if not start or row.sequence >= start]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"reading a chain must not need {name}")
