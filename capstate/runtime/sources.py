"""Reading the host: its catalog, its grant sources, its ceilings. Called at every epoch and at every call.

A source is a function of the holder. One that is missing, stale or raises is nothing; a source that the ledger
names and this process lacks is missing until it is retired by name. Return values that did not change give the
same value object again, so that later comparisons are by identity.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from typing import Any

from attrs import field, frozen

from capstate.authority import Ceiling, Effect, Grant, Lifetime, Source, SourceState, rules_of
from capstate.capabilities import Catalog, Group
from capstate.errors import CatalogUnavailableError, InvalidInputError


@frozen
class Rules:
    """What a source may return instead of a list: its rules, and a revision that only grows.

    A revision lower than one that the ledger has seen is stale, and a stale source is nothing.

    Attributes:
        rules: grants, or selectors, which allow.
        revision: a whole number that never falls; None for none.
    """

    rules: Iterable[Grant | str]
    revision: int | None = None

    def __attrs_post_init__(self) -> None:
        # A ceiling may say None or one effect with a revision as well.
        rules: object = self.rules
        if rules is not None and not isinstance(rules, str) and not _listable(rules):
            raise InvalidInputError("rules", f"a list of grants ({_LISTABLE})", rules)
        _check_revision("rules", self.revision)


class Revisions:
    """The highest revision that this process has seen of each source, for each holder, in whatever session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._highest: dict[tuple[str, str], int] = {}
        self.changes = 0
        """Grows with each higher one."""

    def highest(self, name: str, holder: str) -> int:
        """Return it; -1 before the first."""
        return self._highest.get((name, holder), -1)

    def seen(self, name: str, holder: str, revision: int) -> None:
        """Take one more in."""
        with self._lock:
            if revision > self.highest(name, holder):
                self._highest[name, holder] = revision
                self.changes += 1


GrantSource = Callable[[str], "Iterable[Grant | str] | Rules"]
CeilingSource = Callable[[str], "Iterable[Grant | str] | Rules | Effect | str | None"]
CatalogSource = Callable[[], Iterable[Group]]

_UNUSED = inspect.GEN_CREATED
_NOTHING = "none"
"""What a ceiling may return for: no tool at all."""


@frozen
class _Slot:
    """One function of the host, and for each holder what it returned last: (value, revision, what it was read as)."""

    make: type[Source] | type[Ceiling]
    name: str
    known_as: str
    function: Callable[[str], Any]
    last: dict[str, tuple[Any, int | None, Source | Ceiling]] = field(factory=dict)


def _slots(grants: Mapping[str, GrantSource], ceilings: Mapping[str, CeilingSource]) -> list[_Slot]:
    return [
        *(_Slot(Source, name, name, function) for name, function in sorted(grants.items())),
        *(_Slot(Ceiling, name, f"ceiling {name}", function) for name, function in sorted(ceilings.items())),
    ]


class Sources:
    """The host's functions, and what they returned last for one session's line of holders."""

    def __init__(
        self,
        catalog: CatalogSource,
        grants: Mapping[str, GrantSource],
        ceilings: Mapping[str, CeilingSource],
        revisions: Revisions,
    ) -> None:
        self._catalog = catalog
        self._revisions = revisions
        self._slots = _slots(grants, ceilings)
        self._groups: tuple[list[Group] | tuple[Group, ...], Catalog] | None = None
        self._errors: dict[str, dict[str, str]] = {}
        """What sources raised when they were read last, by holder and name."""

    def read_catalog(self) -> Catalog:
        """Return what exists now.

        Raises:
            CatalogUnavailableError: the host's function raised, or returned something else than groups.
        """
        last = self._groups
        try:
            value = self._catalog()
            if last is not None and type(value) is type(last[0]) and value == last[0]:
                return last[1]
            groups = _listed(value, "groups")
            if last is not None and groups == last[0]:
                return last[1]
            catalog = Catalog.of(groups)
        except Exception as error:
            raise CatalogUnavailableError(f"the catalog cannot be read: {_told(error)}") from error
        self._groups = (groups, catalog)
        return catalog

    def read(self, holder: str, seen: Mapping[str, int | None]) -> list[Source | Ceiling]:
        """Return every grant source, then every ceiling, for ``holder``, now.

        Args:
            seen: what the ledger names, with the highest revisions.
        """
        read: list[Source | Ceiling] = []
        if holder in self._errors:
            del self._errors[holder]
        for slot in self._slots:
            # Written out, because a guard asks before each call: what did not change costs a comparison.
            known_as, last = seen.get(slot.known_as), slot.last.get(holder)
            try:
                value = slot.function(holder)
                if (
                    last is not None
                    and value == last[0]
                    and type(value) is type(last[0])
                    and (known_as is None or (last[1] is not None and last[1] >= known_as))
                    and self._revisions.highest(slot.known_as, holder) <= (-1 if last[1] is None else last[1])
                ):
                    read.append(last[2])
                else:
                    read.append(self._take(slot, holder, known_as, value))
            except Exception as error:  # noqa: BLE001 - whatever a source raises, it is nothing
                self._errors.setdefault(holder, {})[slot.known_as] = _told(error)
                read.append(slot.make(slot.name, state=SourceState.ERROR))
        return read

    @property
    def changes(self) -> int:
        """A number that grows with each higher revision that this process sees of any source."""
        return self._revisions.changes

    def unknown(self, holder: str, seen: Mapping[str, int | None]) -> list[list[str | int]]:
        """Return [name, revision] of each source that this process saw at a higher one than ``seen`` names."""
        named = ((slot.known_as, self._revisions.highest(slot.known_as, holder)) for slot in self._slots)
        return [[name, high] for name, high in named if high > (-1 if (known := seen.get(name)) is None else known)]

    def errors(self, holder: str) -> dict[str, str]:
        """Return what failed at the last reading, for people: ``NAME``, and ``NAME of HOLDER`` where it is another."""
        return {
            name if whose == holder else f"{name} of {whose}": text
            for whose, found in sorted(self._errors.items())
            for name, text in sorted(found.items())
        }

    def missing(self, seen: Iterable[str], retired: set[str]) -> list[Source | Ceiling]:
        """Return what the ledger names, nobody retired, and this process lacks."""
        lacking = set(seen) - retired - {slot.known_as for slot in self._slots}
        return [
            Ceiling(name.removeprefix("ceiling "), state=SourceState.MISSING)
            if name.startswith("ceiling ")
            else Source(name, state=SourceState.MISSING)
            for name in sorted(lacking)
        ]

    def _take(self, slot: _Slot, holder: str, seen: int | None, value: Any) -> Source | Ceiling:  # noqa: ANN401 - the host's
        raw, revision = (value.rules, value.revision) if isinstance(value, Rules) else (value, None)
        one = slot.make is Ceiling and (raw is None or isinstance(raw, str))
        kept = raw = raw if one else _listed(raw, "rules")
        last = slot.last.get(holder)
        highest = max(-1 if seen is None else seen, self._revisions.highest(slot.known_as, holder))
        if highest > (-1 if revision is None else revision):
            return slot.make(slot.name, state=SourceState.STALE, revision=revision)
        made = _made(slot.make, slot.name, raw, revision)
        if isinstance(value, Rules):
            kept = Rules(raw, revision)
        made = last[2] if last is not None and last[2] == made else made
        slot.last[holder] = (kept, revision, made)
        if revision is not None:
            self._revisions.seen(slot.known_as, holder, revision)
        return made


_LISTABLE = "a list, tuple, set or other sequence, or a generator that nobody used yet"


def _listable(value: object) -> bool:
    """Whether ``value`` holds the same things at every look. A finished future is iterable too, and holds nothing."""
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)):
        return False
    if isinstance(value, (Sequence, AbstractSet, ValuesView)):
        return True
    return inspect.isgenerator(value) and inspect.getgeneratorstate(value) == _UNUSED


def _listed(value: Any, of: str) -> list[Any] | tuple[Any, ...]:  # noqa: ANN401 - whatever a function of the host returns
    """Return what the host gave as something that stays as it is: a copy, read once, in an order of its own.

    Raises:
        TypeError: it is nothing that can be read at every look, such as an iterator that somebody may have used up:
            its denies would be gone at the second.
    """
    if not _listable(value):
        if inspect.iscoroutine(value):
            value.close()  # else it warns later, elsewhere, that nobody waited for it
        kind = "something to wait for" if inspect.isawaitable(value) else type(value).__name__
        raise TypeError(f"expected {of} as {_LISTABLE}, got {kind}")
    if isinstance(value, AbstractSet):
        return sorted(value, key=_order)
    return tuple(value) if type(value) is tuple else list(value)


def _made(make: type[Source | Ceiling], name: str, raw: object, revision: int | None) -> Source | Ceiling:
    if make is Ceiling and (raw is None or isinstance(raw, str)):
        return Ceiling(name, effect=Effect(raw) if raw is not None and raw != _NOTHING else None, revision=revision)
    rules = rules_of(raw, f"source {name!r}")
    for n, rule in enumerate(rules):
        if (rule.lifetime, rule.until, rule.token) != (Lifetime.PERSISTENT, None, None):
            # What ends with a session or a job is given in one; here nobody would end it.
            raise InvalidInputError(f"source {name!r}[{n}]", "a rule without lifetime, until or token", rule.on)
    return make(name, rules, revision=revision)


def _order(member: object) -> tuple[str, str]:
    if isinstance(member, Grant):
        return member.on, member.id
    return (member.id, "") if isinstance(member, Group) else (str(member), "")


def _check_revision(name: str, revision: object) -> None:
    if revision is not None and (type(revision) is not int or not 0 <= revision < 2**53):
        raise InvalidInputError(f"revision of {name}", "a whole number from 0 to 2**53 - 1", revision)


_TOLD = 500


def _told(error: Exception) -> str:
    """Return an error of the host as text; what cannot even be shown is its kind alone."""
    try:
        return f"{type(error).__name__}: {error}"[:_TOLD]
    except Exception:  # noqa: BLE001 - its own __str__ fails
        return type(error).__name__
