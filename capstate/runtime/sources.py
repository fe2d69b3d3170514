"""Reading the host: its catalog, its grant sources, its ceilings. Called at every epoch and at every call.

A source is a function of the holder. One that is missing, stale or raises is nothing; a source that the ledger
names and this process lacks is missing until it is retired by name. Return values that did not change give the
same value object again, so that later comparisons are by identity.
"""

from __future__ import annotations

import inspect
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
_NOTHING = "none"
"""What a ceiling may return for: no tool at all."""


@define
class Sources:
    """The host's functions, and what they returned last for one session's line of holders."""

    catalog: CatalogSource
    grants: Mapping[str, GrantSource]
    ceilings: Mapping[str, CeilingSource]
    _last: dict[tuple[type, str, str], tuple[Any, int | None, Source | Ceiling]] = field(factory=dict)
    _groups: tuple[list[Group], Catalog] | None = None

    def read_catalog(self) -> Catalog:
        """Return what exists now.

        Raises:
            CatalogUnavailableError: the host's function raised, or returned something else than groups.
        """
        try:
            groups = list(_awaited_nowhere(self.catalog()))
            if self._groups is not None and self._groups[0] == groups:
                return self._groups[1]
            catalog = Catalog.of(groups)
        except Exception as error:
            raise CatalogUnavailableError(f"the catalog cannot be read: {type(error).__name__}: {error}") from error
        self._groups = (groups, catalog)
        return catalog

    def read_grants(self, holder: str, seen: Mapping[str, int | None]) -> list[Source]:
        """Return every grant source for ``holder``, now. ``seen`` is what the ledger names, with revisions."""
        return [self._read(Source, name, f, holder, seen.get(name)) for name, f in self.grants.items()]

    def read_ceilings(self, holder: str, seen: Mapping[str, int | None]) -> list[Ceiling]:
        """Return every ceiling for ``holder``, now."""
        return [self._read(Ceiling, name, f, holder, seen.get("ceiling " + name)) for name, f in self.ceilings.items()]

    def missing(self, seen: Iterable[str], retired: set[str]) -> tuple[list[Source], list[Ceiling]]:
        """Return what the ledger names, nobody retired, and this process lacks."""
        sources: list[Source] = []
        ceilings: list[Ceiling] = []
        for name in seen:
            kind, _, rest = name.partition(" ")
            if name in retired:
                continue
            if kind == "ceiling" and rest:
                if rest not in self.ceilings:
                    ceilings.append(Ceiling(rest, state=SourceState.MISSING))
            elif name not in self.grants:
                sources.append(Source(name, state=SourceState.MISSING))
        return sources, ceilings

    def _read(
        self, make: type[_Read], name: str, function: Callable[[str], Any], holder: str, seen: int | None
    ) -> _Read:
        try:
            value = _awaited_nowhere(function(holder))
            raw, revision = (value.rules, value.revision) if isinstance(value, Rules) else (value, None)
            if type(raw) is not list and not isinstance(raw, (str, bytes, Mapping)) and isinstance(raw, Iterable):
                # A generator is used up by one look, and a class of the host's may say something else at the next.
                raw = sorted(raw, key=_order) if isinstance(raw, (set, frozenset)) else list(raw)
            last = self._last.get((make, name, holder))
            if (
                last is not None
                and last[1] == revision
                and last[0] == raw
                and (seen is None or (revision is not None and revision >= seen))
            ):
                return cast("_Read", last[2])
            _check_revision(name, revision)
            highest = max(-1 if seen is None else seen, -1 if last is None or last[1] is None else last[1])
            if highest > (-1 if revision is None else revision):
                return make(name, state=SourceState.STALE, revision=revision)
            read = _made(make, name, raw, revision)
        except Exception:  # noqa: BLE001 - whatever a source raises, it is nothing
            return make(name, state=SourceState.ERROR)
        if last is not None and last[2] == read:
            read = last[2]
        self._last[make, name, holder] = (list(raw) if type(raw) is list else raw, revision, read)
        return cast("_Read", read)


def _made(make: type[Source | Ceiling], name: str, raw: object, revision: int | None) -> Source | Ceiling:
    if make is Ceiling and (raw is None or isinstance(raw, str)):
        return Ceiling(name, effect=Effect(raw) if raw is not None and raw != _NOTHING else None, revision=revision)
    return make(name, rules_of(raw, f"source {name!r}"), revision=revision)


def _order(rule: Grant | str) -> tuple[str, str]:
    return (rule.on, rule.id) if isinstance(rule, Grant) else (str(rule), "")


def _check_revision(name: str, revision: object) -> None:
    if revision is not None and (type(revision) is not int or revision < 0):
        raise InvalidInputError(f"revision of {name!r}", "a whole number from 0", revision)


def _awaited_nowhere(value: Any) -> Any:  # noqa: ANN401 - whatever a function of the host returns
    """Return ``value``, unless a function of the host is asynchronous: the guard could not wait for it.

    Raises:
        TypeError: it is.
    """
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("an asynchronous function")
    return value
