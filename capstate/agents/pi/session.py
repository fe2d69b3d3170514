"""A Pi session file of any format: its entries, the path of any leaf, and what of a path the model still sees.

Formats are told apart by content: ``type: session`` (versions 1 to 3, with four kinds of tool record that may
follow one another) or ``kind: header`` (version 4). What is damaged is reported in :attr:`Session.damage`; a walk
ends where the chain is broken, as it does in Pi.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import Factory, evolve, field, frozen

from capstate.agents.lines import LINE_LIMIT, Damage, DamageKind, Record, records
from capstate.agents.pi.entries import BadEntryError, Entry, Said, entry
from capstate.errors import InvalidInputError, MalformedError

_RUN_RECORDS = frozenset(
    {
        "operation_started", "abort_requested", "operation_finished", "step_attempt", "tool_started",
        "queue_enqueued", "queue_cancelled", "write_deferred", "usage",
    }
)  # fmt: skip
_V4_KINDS = frozenset({"entry", "record", "lane", "fact", "header"})


@frozen
class Boundary:
    """What the last compaction on a path left.

    Attributes:
        compaction: the entry; None if the path has none.
        retained: ids of the entries that the model still sees, the compaction itself included.
        strays: messages that the compaction kept although the path no longer holds their entries.
        broken: the compaction keeps from an entry that is not on the path: nothing before it is sent.
    """

    compaction: Entry | None
    retained: frozenset[str] = field(repr=False)
    strays: tuple[Said, ...] = ()
    broken: bool = False


@frozen
class Session:
    """One session file.

    Attributes:
        version: 1 to 4, as the header says (none is 1).
        parent: the session that this one was forked or cloned from: a path, or an id.
        entries: by id; of entries with one id the last, as in Pi.
        order: all entries in file order.
        unknown: types, roles and kinds of record that are not known here, with their count.
        leaf: the leaf that Pi would continue from; None for an empty tree.
        file: what a report calls the file; by default its name.
    """

    path: Path
    id: str
    version: int
    parent: str | None
    entries: Mapping[str, Entry] = field(repr=False)
    order: tuple[Entry, ...] = field(repr=False)
    leaf: str | None
    damage: tuple[Damage, ...] = ()
    unknown: Mapping[str, int] = field(factory=dict)
    file: str = field(default=Factory(lambda self: self.path.name, takes_self=True))

    def walk(self, leaf: str | None = None) -> tuple[Entry, ...]:
        """Return the path of ``leaf`` (by default :attr:`leaf`), root first.

        Raises:
            InvalidInputError: no entry has that id.
        """
        if leaf is not None and leaf not in self.entries:
            raise InvalidInputError("leaf", f"the id of an entry of {self.path}", leaf)
        at = leaf if leaf is not None else self.leaf
        found: list[Entry] = []
        seen: set[str] = set()
        while at is not None and at in self.entries and at not in seen:
            seen.add(at)
            found.append(self.entries[at])
            at = found[-1].parent
        return tuple(reversed(found))


def read_session(path: Path | str, *, limit: int = LINE_LIMIT) -> Session:
    """Read the session file at ``path``.

    Raises:
        InvalidInputError: nothing is there, or it may not be read.
        MalformedError: it is no regular file, or its first record is no session header.
    """
    path = Path(path)
    damage: list[Damage] = []
    rows = records(path, damage, limit=limit)
    first = next(rows, None)
    if first is None or not _is_header(first.value):
        got = "another record" if first is not None else "no record at all"
        raise MalformedError(f"{path}:{first.line if first else 1}", "the header of a Pi session", got)
    build = _Build(path, first, damage)
    for row in rows:
        build.take(row)
    return build.done()


def is_session(record: Mapping[str, object]) -> bool:
    """Whether ``record``, the first of a file, is the header of a Pi session."""
    return _is_header(record)


def identity(session: Session, e: Entry) -> tuple[str, str, str]:
    """Return what an entry has in common with its copies in other files; ids of version 1 are ours, by line."""
    return session.id if session.version == 1 else "", e.id, e.said.stamp if e.said is not None else ""


def boundary(path: Sequence[Entry]) -> Boundary:
    """Return what the last compaction on ``path`` left of it."""
    at = next((i for i in range(len(path) - 1, -1, -1) if path[i].type == "compaction"), None)
    if at is None:
        return Boundary(None, _edited(path))
    compaction = path[at]
    kept: Sequence[Entry] = ()
    strays: tuple[Said, ...] = ()
    broken = False
    if compaction.tail is not None:
        kept, strays = _tail(path[:at], compaction.tail)
    elif compaction.kept != compaction.id:
        start = next((i for i in range(at) if path[i].id == compaction.kept), None)
        broken = start is None
        kept = path[start:at] if start is not None else ()
    if compaction.checkpoint is not None:
        kept = [e for e in kept if e.said is None or e.said.role != "system"]
    return Boundary(compaction, _edited([*kept, *path[at:]]), strays, broken)


def _edited(entries: Sequence[Entry]) -> frozenset[str]:
    edits = {e.target: e.dropped for e in entries if e.type == "context_edit"}
    return frozenset(e.id for e in entries if not edits.get(e.id, False))


def _tail(before: Sequence[Entry], tail: Sequence[Said]) -> tuple[list[Entry], tuple[Said, ...]]:
    """Return the entries whose messages ``tail`` copies, in order, and the copies without an entry."""
    places: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for i, e in enumerate(before):
        if e.said is not None:
            places[_key(e.said)].append(i)
    found: list[Entry] = []
    strays: list[Said] = []
    end = len(before)
    for copy in reversed(tail):
        held = places.get(_key(copy), [])
        while held and held[-1] >= end:
            held.pop()
        if held:
            end = held.pop()
            found.append(before[end])
        else:
            strays.append(copy)
    return found[::-1], tuple(reversed(strays))


def _key(said: Said) -> tuple[str, str, str, str]:
    return said.role, said.call, said.tool, said.stamp


def _is_header(value: Mapping[str, object]) -> bool:
    marked = value.get("type") == "session" or value.get("kind") == "header"
    return marked and isinstance(value.get("id"), str) and bool(value.get("id"))


class _Build:
    def __init__(self, path: Path, header: Record, damage: list[Damage]) -> None:
        value = header.value
        version = value.get("version", 1)
        self.path, self.damage = path, damage
        self.id: str = value["id"]
        self.version: int = version if isinstance(version, int) and not isinstance(version, bool) else 1
        parents = (value.get(k) for k in ("parentSession", "parentSessionId", "legacyParentSessionPath"))
        self.parent = next((p for p in parents if isinstance(p, str)), None)
        self.entries: dict[str, Entry] = {}
        self.order: list[Entry] = []
        self.unknown: Counter[str] = Counter()
        self.by_index: list[str] = [""]
        self.leaf: str | None = None

    def take(self, record: Record) -> None:
        value = record.value
        kind = value.get("kind") if "seq" in value else None
        if _is_header(value):
            self._damaged(DamageKind.SECOND_HEADER, record)
        elif isinstance(kind, str) and kind != "entry":
            self._other(kind, value)
        else:
            self._entry(record)

    def _other(self, kind: str, value: Mapping[str, object]) -> None:
        if kind == "lane" and value.get("lane", "main") == "main":
            leaf = value.get("leafId")
            self.leaf = leaf if isinstance(leaf, str) else None
        elif kind == "record" and value.get("type") not in _RUN_RECORDS:
            self.unknown[f"record {str(value.get('type'))[:80]}"] += 1
        elif kind not in _V4_KINDS:
            self.unknown[f"kind {kind[:80]}"] += 1

    def _entry(self, record: Record) -> None:
        before = self.order[-1].id if self.order else None
        try:
            found = entry(record, self.unknown, before=before, legacy=self.version == 1, by_index=self.by_index)
        except BadEntryError:
            self.by_index.append("")
            self._damaged(DamageKind.BAD_ENTRY, record)
            return
        self.by_index.append(found.id)
        if found.id in self.entries:
            self._damaged(DamageKind.DUPLICATE_ID, record, found.id)
        self.entries[found.id] = found
        self.order.append(found)
        if found.lane == "main":
            self.leaf = found.target if found.type == "leaf" else found.id

    def _damaged(self, kind: DamageKind, record: Record | Entry, entry_id: str | None = None) -> None:
        self.damage.append(Damage(kind, str(self.path), record.line, record.offset, record.length, entry_id))

    def done(self) -> Session:
        if self.leaf is None and self.order and all(e.lane != "main" for e in self.order):
            self.leaf = self.order[-1].id
        elif self.leaf is not None and self.leaf not in self.entries:
            self._damaged(DamageKind.BROKEN_CHAIN, self.order[-1] if self.order else _NOWHERE, self.leaf)
        self._chain()
        rows = sorted(self.damage, key=lambda d: (d.line, d.kind))
        return Session(
            self.path,
            self.id,
            self.version,
            self.parent,
            self.entries,
            tuple(self.order),
            self.leaf,
            tuple(evolve(d, file=self.path.name) for d in rows),
            dict(sorted(self.unknown.items())),
        )

    def _chain(self) -> None:
        """Report broken parents, cycles, and compactions that keep from an entry that is no ancestor of theirs."""
        children: dict[str | None, list[Entry]] = defaultdict(list)
        for e in self.entries.values():
            broken = e.parent is not None and e.parent not in self.entries
            if broken:
                self._damaged(DamageKind.BROKEN_CHAIN, e, e.id)
            children[None if broken else e.parent].append(e)
        spans: dict[str, tuple[int, int]] = {}
        self._number(children, spans)
        for e in self.entries.values():
            if e.type != "compaction" or e.tail is not None or e.kept == e.id or e.id not in spans:
                continue
            start, end = spans.get(e.kept or "", (1, 0))
            if not start < spans[e.id][0] <= end:
                self._damaged(DamageKind.BROKEN_BOUNDARY, e, e.id)

    def _number(self, children: Mapping[str | None, list[Entry]], spans: dict[str, tuple[int, int]]) -> None:
        """Give each entry its place in a walk of the tree and that of its last descendant."""
        clock = 0
        opened: list[tuple[Entry, int]] = []
        for tree in (children.get(None, []), list(self.entries.values())):
            for root in tree:
                if root.id in spans:
                    continue
                if tree is not children.get(None):
                    self._damaged(DamageKind.CYCLE, root, root.id)
                opened.append((root, 0))
                while opened:
                    e, next_child = opened.pop()
                    if next_child == 0:
                        clock += 1
                        spans[e.id] = (clock, clock)
                    held = children.get(e.id, [])
                    if next_child < len(held):
                        opened.append((e, next_child + 1))
                        if held[next_child].id not in spans:
                            opened.append((held[next_child], 0))
                    else:
                        spans[e.id] = (spans[e.id][0], clock)


_NOWHERE = Entry("", None, "")
