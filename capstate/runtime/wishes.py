"""The wish: what is loaded, unloaded, or taken out of the transcript by the agent itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, get_args

from capstate.errors import InvalidInputError
from capstate.grants import is_name, is_selector
from capstate.ledger import Record
from capstate.runtime.arguments import an_id_or_none, several
from capstate.runtime.facts import covers
from capstate.runtime.owned import Owned

if TYPE_CHECKING:
    from capstate.capabilities import Catalog, Definition
    from capstate.surface import Load


Origin = Literal["configuration", "user", "model"]
ORIGINS: tuple[str, ...] = get_args(Origin)


class Wishes(Owned):
    """Loads of a session."""

    def load(
        self, on: str | Iterable[str], *, at: str | None = None, call: str | None = None, by: Origin = "user"
    ) -> None:
        """Wish for a group, or for tools of one. Loading grants nothing; it holds until it is unloaded.

        Args:
            on: group ids or selectors.
            at: id of the transcript entry that shows it.
            call: id of the call that found it; its result is then that entry.
            by: ``configuration``, ``user`` or ``model``. A load by the configuration holds everywhere and
                is written once: what somebody unloaded since does not come back with a restart.

        Raises:
            InvalidInputError: two definitions claim one name in what is loaded, or an argument is none of these.

        A wish for what does not exist now is legal, and waits: :meth:`Session.explain` without a tool shows it.
        """
        selectors = selectors_of(on)
        placed(at, call, by)
        with self._open():
            catalog = self._live.sources.read_catalog()
            for group in catalog.groups.values():
                claimed = [n for n in sorted(group.conflicts) if any(covers(s, f"{group.id}/{n}") for s in selectors)]
                if claimed:
                    raise InvalidInputError(
                        f"group {group.id!r}", "one definition of each name", f"several of {claimed}"
                    )
            if by == "configuration" and any(
                load.do == "load" and load.at is None and load.call is None and set(selectors) <= set(load.on)
                for load in self._live.state.loads
            ):
                return
            found = {d.qualified: d.fingerprint for d in named(catalog, selectors)} if at or call else {}
            body = {"at": at, "by": by, "call": call, "definitions": found, "on": selectors}
            self._append(Record("load", body))

    def unload(
        self, on: str | Iterable[str], *, at: str | None = None, call: str | None = None, by: Origin = "user"
    ) -> None:
        """Take the wish back, as of this place of the transcript.

        Raises:
            InvalidInputError: an argument is none of those of :meth:`load`.
        """
        selectors = selectors_of(on)
        placed(at, call, by)
        with self._open():
            self._append(Record("unload", {"at": at, "by": by, "call": call, "on": selectors}))

    def removal(self, on: str | Iterable[str], *, at: str | None = None) -> None:
        """Record that the agent took tools out of its transcript by itself: their marks end, the wish stays.

        Raises:
            InvalidInputError: an argument is none of those of :meth:`load`.
        """
        selectors = selectors_of(on)
        placed(at, None)
        with self._open():
            self._append(Record("removal", {"at": at, "on": selectors}))


def placed(at: object, call: object, by: object = "user") -> None:
    """Refuse a place in the transcript that is no id, and an origin that is none.

    Raises:
        InvalidInputError: it is not.
    """
    an_id_or_none(at, "at")
    an_id_or_none(call, "call")
    if by not in ORIGINS:
        raise InvalidInputError("by", f"one of {', '.join(ORIGINS)}", by)


def up_to(at: str, loads: list[Load], entries: tuple[str, ...]) -> list[Load]:
    """Return what of ``loads`` counts at the entry ``at`` of a linear history.

    Args:
        entries: those that the history still holds; one that is not among them was compacted, and came before.

    Raises:
        InvalidInputError: ``at`` is neither in the history nor named by a load.
    """
    own = [n for n, load in enumerate(loads) if load.at == at]
    if at in entries:
        later = set(entries[entries.index(at) + 1 :])
    elif own:
        later = {*entries, *(load.at for load in loads[own[-1] + 1 :] if load.at is not None)} - {at}
    else:
        raise InvalidInputError("at", "an entry of the last history or of a load; else say the path", at)
    return [load for load in loads if load.at not in later]


def selectors_of(on: str | Iterable[str], place: str = "selector") -> list[str]:
    """Return group ids and selectors as selectors.

    Raises:
        InvalidInputError: one is none, or ``on`` is something else than one or several.
    """
    listed = [on] if isinstance(on, str) else several(on, place, "a group id, a selector, or several")
    return [_selector(one, place) for one in listed]


def _selector(one: object, place: str) -> str:
    if isinstance(one, str) and "/" not in one and is_name(one):
        return f"{one}/*"
    if not is_selector(one):
        raise InvalidInputError(place, "a group id, 'group/name', 'group/*' or '*'", one)
    return str(one)


def named(catalog: Catalog, selectors: Iterable[str]) -> Iterator[Definition]:
    """Give the definitions that the selectors name now; a conflicting name has none."""
    chosen = list(selectors)
    for group in catalog.groups.values():
        for definition in group.definitions.values():
            if definition.name not in group.conflicts and any(covers(s, definition.qualified) for s in chosen):
                yield definition
