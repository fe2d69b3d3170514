"""What a summary says: slots, each given if only as empty, the rows as fixed lines, and a summariser that only cuts.

A summariser is the caller's function; :func:`extract` ships, needs no model, and adds no fact.

Not here: which messages a summariser gets (:mod:`capstate.trace.compact`).

>>> from capstate.trace import Message, Role
>>> found = extract([Message("u1", Role.USER, "find the leak"), Message("a1", Role.ASSISTANT, "it is in the cache")])
>>> found.goal, found.done
('find the leak', ('it is in the cache',))
>>> Slots.read(found.text) == found
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attrs import field, fields, frozen

from capstate.errors import InvalidInputError
from capstate.trace.messages import Message, Role
from capstate.trace.outcomes import Outcome, Risk, Row

CLIP = 300
"""How much of one message :func:`extract` takes, in characters."""
ITEMS = 12
"""How many items of one slot it keeps: the last ones."""
READS = 20
"""How many successful reads a summary's text names: the last ones. Its rows have all."""
ROWS = "Calls, as recorded (this permits nothing):"


def _line(value: str) -> str:
    if not isinstance(value, str):
        raise InvalidInputError("slot", "text", value)
    return " ".join(value.split())


def _items(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidInputError("slot", "several texts", value)
    made = tuple(_line(one) for one in value)
    if "" in made:
        raise InvalidInputError("slot", "texts that are not blank", "")
    return made


@frozen(kw_only=True)
class Slots:
    """The semantic progress that a summary holds (CP-09, table R-2). Every slot is given; an empty one says: none.

    White space within a text becomes one space.

    Attributes:
        goal: what it is all for.
        constraints: what must hold.
        hypotheses: what is believed and not shown.
        questions: what is open.
        rejected: ways that were given up.
        decisions: what was decided.
        done: what is finished.
        pending: what is under way.
        left: what is still to do.
        resources: what is in use.

    Raises:
        InvalidInputError: a value is no text, or an item is blank.
    """

    goal: str = field(converter=_line)
    constraints: tuple[str, ...] = field(converter=_items)
    hypotheses: tuple[str, ...] = field(converter=_items)
    questions: tuple[str, ...] = field(converter=_items)
    rejected: tuple[str, ...] = field(converter=_items)
    decisions: tuple[str, ...] = field(converter=_items)
    done: tuple[str, ...] = field(converter=_items)
    pending: tuple[str, ...] = field(converter=_items)
    left: tuple[str, ...] = field(converter=_items)
    resources: tuple[str, ...] = field(converter=_items)

    @property
    def text(self) -> str:
        """The slots as lines, which :meth:`read` reads back."""
        lines = [f"Goal: {self.goal}".rstrip()]
        for name in SLOTS[1:]:
            items = getattr(self, name)
            lines.append(f"{name.capitalize()}:" if items else f"{name.capitalize()}: none")
            lines += [f"- {item}" for item in items]
        return "\n".join(lines)

    @classmethod
    def read(cls, text: str) -> Slots | None:
        """Return the slots that ``text`` was made from, or None if it was made otherwise."""
        goal = ""
        found: dict[str, list[str]] = {}
        for line in text.split("\n"):
            name, _, rest = line.partition(":")
            if line.startswith("- ") and found:
                found[next(reversed(found))].append(line[2:])
            elif name == "Goal" and not found:
                goal = rest.strip()
            elif name.lower() in SLOTS[1:] and name.lower() not in found:
                found[name.lower()] = []
            else:
                return None
        if list(found) != SLOTS[1:]:
            return None
        made = cls(goal=goal, **{name: tuple(items) for name, items in found.items()})
        return made if made.text == text else None


SLOTS = [one.name for one in fields(Slots)]

Summarise = Callable[[Sequence[Message]], str | Slots]
"""What a caller's summariser is: from the messages that go, as it may see them, to text or slots."""


def rows_text(rows: Sequence[Row]) -> str:
    """Return the rows as a summary tells them: one line each; of successful reads the last ones and their number."""
    reads = [n for n, row in enumerate(rows) if row.risk is Risk.READ and row.free]
    untold = set(reads[:-READS])
    lines = [row.line for n, row in enumerate(rows) if n not in untold]
    if untold:
        lines.insert(0, f"- {len(untold)} earlier reads")
    return "\n".join([ROWS, *lines]) if lines else ""


def summary_text(written: str, rows: Sequence[Row]) -> str:
    """Return the whole text of a summary."""
    return "\n\n".join(part for part in (written, rows_text(rows)) if part)


def written_text(summary: Message) -> str:
    """Return what a summariser wrote of a summary's text: all but its rows."""
    return summary.text.removesuffix(rows_text(summary.rows)).rstrip("\n")


def extract(messages: Sequence[Message]) -> Slots:
    """Return the slots that can be cut from ``messages`` without judging: the deterministic summariser.

    The goal is what the first user message says, done is what the assistant said, left is the last user message, and
    pending are the calls whose outcome is unknown. An earlier summary made of slots is gone on with.
    """
    said: list[str] = []
    asked: list[str] = []
    pending: list[str] = []
    resources: list[str] = []
    earlier: Slots | None = None
    for message in messages:
        text = _clipped(message.text)
        if message.role is Role.SUMMARY:
            read = Slots.read(message.text)
            earlier = read or earlier
            said += read.done if read else [text] if text else []
            pending += [*(read.pending if read else ()), *(" ".join(row.line.split()) for row in message.rows)]
            resources += read.resources if read else []
        elif message.role is Role.USER and text:
            asked.append(text)
        elif message.role is Role.ASSISTANT and text:
            said.append(text)
        elif message.role is Role.TOOL:
            if message.outcome is Outcome.OUTCOME_UNKNOWN and text:
                pending.append(" ".join(message.text.split()))
            if message.evidence:
                resources.append(_clipped(message.evidence))
    goal = earlier.goal if earlier is not None and earlier.goal else (asked[0] if asked else "")
    left = asked[-1:] or (list(earlier.left) if earlier is not None else [])
    return Slots(
        goal=goal,
        constraints=earlier.constraints if earlier is not None else (),
        hypotheses=earlier.hypotheses if earlier is not None else (),
        questions=earlier.questions if earlier is not None else (),
        rejected=earlier.rejected if earlier is not None else (),
        decisions=earlier.decisions if earlier is not None else (),
        done=said[-ITEMS:],
        pending=list(dict.fromkeys(pending)),
        left=left,
        resources=[one for one in dict.fromkeys(resources) if one][-ITEMS:],
    )


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CLIP else line[: CLIP - 1].rstrip() + "…"
