"""What comes back from children: kept in the parent's chain, with what of it counts and who is still waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from capstate.children import ChildRecord, Result, record
from capstate.errors import InvalidInputError
from capstate.ledger import Record
from capstate.runtime.arguments import a_chain
from capstate.runtime.deciding import Deciding

if TYPE_CHECKING:
    from capstate.runtime.state import State


class Returning(Deciding):
    """The results of a session's children."""

    def child_result(
        self,
        id: str,  # noqa: A002 - the word of the design
        result: Result,
        *,
        resolves: Callable[[str], bool] | None = None,
    ) -> ChildRecord:
        """Keep what a child returned, and say what of it counts; durable on return, and unchanged by compaction.

        Args:
            id: of the child.
            resolves: whether an evidence id can be looked up now; by default the runtime's ``evidence``, and without
                that nothing can. No lock is held meanwhile.

        Raises:
            InvalidInputError: no such child of this session, or an argument is of another kind.
        """
        a_chain(id, "child id")
        if resolves is not None and not callable(resolves):
            raise InvalidInputError("resolves", "a function of an evidence id, or None", resolves)
        with self._open():
            self._live.folds.refresh()
            if id not in self._live.state.children:
                raise InvalidInputError("child id", f"a child of {self.id!r}", id)
            waiting = self._unfinished(id)
        made = record(result, resolves if resolves is not None else self._resolves, waiting)
        with self._open():
            self._append(Record("child-result", {"child": id, "record": made.to_json()}))
        return made

    @property
    def child_records(self) -> dict[str, ChildRecord]:
        """What was kept of each child that returned, by its id; the last, where one returned more than once."""
        with self._open():
            self._live.folds.refresh()
            return dict(self._live.state.results)

    def _unfinished(self, child: str) -> list[str]:
        """Return the descendants of ``child`` that neither ended nor returned anything to whoever started them."""
        found: list[str] = []
        above, seen = [child], {self.id, child}
        while above:
            state = self._live.folds.get(above.pop(0))
            for below in state.children if state is not None else ():
                if below in seen:
                    continue
                seen.add(below)
                above.append(below)
                if not self._over(below, state):
                    found.append(below)
        return found

    def _over(self, id_: str, parent: State | None) -> bool:
        state = self._live.folds.get(id_)
        return (state is not None and state.ended) or (parent is not None and id_ in parent.results)
