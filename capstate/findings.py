"""What can be found in recordings: stable ids, what each means, and how sure a verdict is.

An id never changes its meaning and is never used again. A finding names tools, files and places; never prompt
text or arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from attrs import frozen

from capstate.errors import InvalidInputError


class Grade(StrEnum):
    """How sure a verdict is, best first."""

    OBSERVED = "observed"
    """Read from a request body, or seen by the tool itself."""
    RECORDED = "recorded"
    """The agent's own record says so."""
    INFERRED = "inferred"
    """It follows from loads and registry; who may was not known."""
    UNKNOWN = "unknown"
    """Nothing shows it, or nothing to compare it with is known."""


@frozen
class Rule:
    """One kind of finding.

    Attributes:
        id: such as ``CS102``.
        title: the finding in some words.
        text: what it means.
        needs_policy: without a list of who may it cannot be told.
    """

    id: str
    title: str
    text: str
    needs_policy: bool = False


@frozen
class Finding:
    """One finding and its place: a file, and in it a line, an entry, or the turn of a request.

    Attributes:
        rule: id of the rule.
        grade: how sure it is.
        names: wire names of the tools.
        turn: the request; None if it belongs to none.
        file: its file, below what was named.
        line: from 1; 0 for the whole file.
        entry: an id in the session, or None.
        detail: what else there is to say, such as ``ran``; empty for nothing.
    """

    rule: str
    grade: Grade
    names: tuple[str, ...] = ()
    turn: int | None = None
    file: str = ""
    line: int = 0
    entry: str | None = None
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the row of a report."""
        return {
            "finding": self.rule,
            "title": rule(self.rule).title,
            "grade": self.grade.value,
            "names": list(self.names),
            "turn": self.turn,
            "file": self.file,
            "line": self.line,
            "entry": self.entry,
            "detail": self.detail,
        }


def rule(id: str) -> Rule:  # noqa: A002 - the word of the design
    """Return the rule named ``id``.

    Raises:
        InvalidInputError: there is none.
    """
    if id not in RULES:
        raise InvalidInputError("rule", "one of " + ", ".join(RULES), id)
    return RULES[id]


_RULES = (
    Rule(
        "CS101",
        "Gone after compaction",
        "A tool that was loaded and is still permitted stood in the request before a compaction and is missing after "
        "it. A compaction shortens the conversation; it is no decision about tools. The entry where the tool was "
        "loaded may have been summarised away: then the tool belongs at the top of the request, not out of it.",
    ),
    Rule(
        "CS102",
        "Gone after reopen",
        "A session was continued in another process, and a tool that was loaded on this path and is still permitted "
        "did not come back. The transcript usually still says that it was loaded, so the model believes in a tool "
        "that it cannot call.",
    ),
    Rule(
        "CS103",
        "Gone after fork or branch move",
        "A copy of the session, or a move to another branch, lost a tool that was loaded on the path that now counts. "
        "Loads belong to the path: what was loaded at or above the leaf is loaded there.",
    ),
    Rule(
        "CS104",
        "Gone without a boundary",
        "A tool that was loaded and is still permitted, as far as the files say, is missing although no compaction, "
        "reopen, fork or branch move lies between. Either a load reached the model late, or something took the tool "
        "out and left no record, or the request went to a model that was never given it.",
    ),
    Rule(
        "CS110",
        "Came back after removal",
        "A tool was visible, was taken away, and is visible again although it is not loaded, or not permitted, now. "
        "Reloads, late registrations, replayed records and moves in the tree bring back what somebody removed.",
    ),
    Rule(
        "CS120",
        "Ran though not in the request",
        "A tool ran although the request that the model answered did not define it. Whatever checked the call did not "
        "look at what the model had been given.",
    ),
    Rule(
        "CS121",
        "Never loaded on this path",
        "A tool is in the request, or ran, although neither the configuration nor any load on this path names it. "
        "Agents activate tools by themselves at start, reload, registration and tree navigation; that is no load. "
        "Where no policy names the resident tools, those of the first request count as resident.",
    ),
    Rule(
        "CS201",
        "Could call without authority",
        "The request offered the model a tool that the authority list of that moment does not allow. Nothing need "
        "have happened: the model could have called it.",
        needs_policy=True,
    ),
    Rule(
        "CS202",
        "Ran without authority",
        "A tool ran although the authority list of that moment does not allow it. A list that is checked only when "
        "the request is built does not stop a call of a tool that was revoked in between.",
        needs_policy=True,
    ),
    Rule(
        "CS203",
        "Ask skipped",
        "A tool that needs a person's approval ran, and no approval is recorded for the call. The record may be "
        "missing rather than the approval, so the grade is never better than inferred.",
        needs_policy=True,
    ),
    Rule(
        "CS401",
        "Definition changed under one name",
        "Description or argument schema of a tool differ from what the same session showed before under the same "
        "name. What was permitted or loaded was the earlier definition; a name alone does not carry over.",
    ),
    Rule(
        "CS501",
        "Broken trace",
        "On one path a call has no result, or a result has no call. Providers refuse such histories or repair them "
        "silently, and what was not recorded may have happened.",
    ),
    Rule(
        "CS601",
        "Damaged file",
        "A part of a file cannot be read, or points to something that is not there: a torn or glued line, a broken "
        "chain of entries, a compaction that keeps from an entry outside its path. What cannot be read was left out, "
        "and everything said about the rest holds only for what is left.",
    ),
)
RULES: Mapping[str, Rule] = {r.id: r for r in _RULES}
"""All rules by id."""
