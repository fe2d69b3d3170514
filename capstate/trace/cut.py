"""Where a history may be cut: at the borders of units, and never behind the start of one that is open.

A message with its calls and all their results is one unit; it leaves together or stays together. What is cut away
was summarised by somebody else: nothing here writes a summary.

>>> from capstate.trace import Call, Message, Role
>>> trace = [
...     Message("u1", Role.USER, "hello"),
...     Message("a1", Role.ASSISTANT, calls=(Call("c1", "git/log"),)),
...     Message("t1", Role.TOOL, result_for="c1"),
... ]
>>> first_kept(trace, keep_last=1)
1
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from capstate.errors import InvalidInputError
from capstate.trace.check import units

if TYPE_CHECKING:
    from capstate.trace.messages import Message


def first_kept(
    messages: Sequence[Message],
    *,
    keep_last: int | None = None,
    keep_from: str | None = None,
    running: Collection[str] | None = None,
) -> int:
    """Return the index of the first message to keep: the wished one, or an earlier one that splits no unit.

    Args:
        messages: the history.
        keep_last: how many messages to keep at least.
        keep_from: id of the first message to keep, in place of ``keep_last``.
        running: ids of the calls that run, whose units must not go. None: every call without a result may run.

    Raises:
        InvalidInputError: not exactly one wish was given, the count is negative, or no message has that id.
    """
    if (keep_last is None) == (keep_from is None):
        raise InvalidInputError("cut", "either keep_last or keep_from", "both" if keep_from is not None else "neither")
    if keep_last is not None:
        if keep_last < 0:
            raise InvalidInputError("keep_last", "a count from 0", keep_last)
        at = max(0, len(messages) - keep_last)
    else:
        at = next((n for n, message in enumerate(messages) if message.id == keep_from), -1)
        if at < 0:
            raise InvalidInputError("keep_from", "the id of a message of the history", keep_from)
    made, _ = units(messages)
    for unit in reversed(made):  # a unit that a later one made the cut reach may reach further back itself
        runs = any(running is None or call in running for call in unit.open)
        if unit.start < at and (runs or at <= unit.end):
            at = unit.start
    return at
