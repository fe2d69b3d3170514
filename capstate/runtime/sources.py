"""Reading the host: its catalog, its grant sources, its ceilings. Called at every epoch and at every call.

A source is a function of the holder. One that is missing, stale or raises is nothing; a source that the ledger
names and this process lacks is missing until it is retired by name. Return values that did not change give the
same value object again, so that later comparisons are by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from attrs import define, field, frozen

from capstate.authority import Ceiling, Effect, Grant, Source, SourceState, rules_of
from capstate.capabilities import Catalog, Group
from capstate.errors import CatalogUnavailableError, InvalidInputError


@frozen
class Rules:
    """What a source may return instead of a list: its rules, and a revision that only grows.

    A revision lower than one that the ledger has seen is stale, and a stale source is nothing.
    """

    rules: Iterable[Grant | str]
    revision: int | None = None


GrantSource = Callable[[str], "Iterable[Grant | str] | Rules"]
CeilingSource = Callable[[str], "Iterable[Grant | str] | Rules | Effect | str | None"]
CatalogSource = Callable[[], Iterable[Group]]


_Read = TypeVar("_Read", Source, Ceiling)


@define
class Sources:
    """The host's functions, and what they returned last for one session's line of holders."""

    catalog: CatalogSource
    grants: Mapping[str, GrantSource]
    ceilings: Mapping[str, CeilingSource]
    _last: dict[tuple[str, str, str], tuple[Any, int | None, Source | Ceiling]] = field(factory=dict)
    _groups: tuple[list[Group], Catalog] | None = None

    def read_catalog(self) -> Catalog:
        """Return what exists now.

        Raises:
            CatalogUnavailableError: the host's function raised, or returned something else than groups.
        """
        try:
            groups = list(self.catalog())
        except Exception as error:
            raise CatalogUnavailableError(f"the catalog cannot be read: {type(error).__name__}: {error}") from error
        if self._groups is not None and self._groups[0] == groups:
            return self._groups[1]
        try:
            catalog = Catalog.of(groups)
        except InvalidInputError as error:
            raise CatalogUnavailableError(str(error)) from error
        self._groups = (groups, catalog)
        return catalog

    def read_grants(self, holder: str, seen: Mapping[str, int | None], retired: set[str]) -> tuple[Source, ...]:
        """Return every grant source for ``holder``, now. ``seen`` is what the ledger names, with revisions."""
        named = {name for name in seen if not name.startswith("ceiling ") and name not in retired}
        missing = [Source(name, state=SourceState.MISSING) for name in named - self.grants.keys()]
        return (*(self._read(Source, name, f, holder, seen.get(name)) for name, f in self.grants.items()), *missing)

    def read_ceilings(self, holder: str, seen: Mapping[str, int | None], retired: set[str]) -> tuple[Ceiling, ...]:
        """Return every ceiling for ``holder``, now."""
        named = {name[8:] for name in seen if name.startswith("ceiling ") and name[8:] not in retired}
        missing = [Ceiling(name, state=SourceState.MISSING) for name in named - self.ceilings.keys()]
        found = (self._read(Ceiling, n, f, holder, seen.get(f"ceiling {n}")) for n, f in self.ceilings.items())
        return (*found, *missing)

    def _read(
        self, make: type[_Read], name: str, function: Callable[[str], Any], holder: str, seen: int | None
    ) -> _Read:
        key = (make.__name__, name, holder)
        last = self._last.get(key)
        try:
            value = function(holder)
            raw, revision = (value.rules, value.revision) if isinstance(value, Rules) else (value, None)
            if isinstance(raw, Iterable) and not isinstance(raw, (str, bytes, tuple, list)):
                raw = tuple(raw)
            fresh = seen is None or (revision is not None and revision >= seen)
            if last is not None and fresh and last[1] == revision and last[0] == raw:
                return cast("_Read", last[2])
            highest = max((r for r in (seen, last[1] if last is not None else None) if r is not None), default=None)
            if highest is not None and (revision is None or revision < highest):
                return make(name, state=SourceState.STALE, revision=revision)
            if make is Ceiling and (raw is None or isinstance(raw, str)):
                read = cast("_Read", Ceiling(name, effect=Effect(raw) if raw is not None else None, revision=revision))
            else:
                read = make(name, rules_of(raw, f"source {name!r}"), revision=revision)
        except Exception:  # noqa: BLE001 - whatever a source raises, it is nothing
            return make(name, state=SourceState.ERROR)
        if last is not None and last[2] == read:
            read = cast("_Read", last[2])
        self._last[key] = (list(raw) if isinstance(raw, list) else raw, revision, read)
        return read
