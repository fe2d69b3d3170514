"""The transcript of one session: the host's own file, never the product's.

It keeps every message ever said (``entries``) and the history that the next request is made from (``view``).
A compaction changes the view alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from capstate.trace import Call, Facts, Fault, Message, check, compact, first_kept
from tests.scenarios import forms


class Transcript:
    """One session's messages, in JSON, written to the file at each change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: list[dict[str, Any]] = []
        self.view: list[dict[str, Any]] = []
        if path.exists():
            kept = forms.read(path)
            self.entries, self.view = kept["entries"], kept["view"]

    def save(self) -> None:
        """Write the file."""
        forms.write(self._path, {"entries": self.entries, "view": self.view})

    def add(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Append a message; its calls get their occurrence."""
        body = dict(message)
        if body.get("calls"):
            times = [call["id"] for entry in self.entries for call in entry.get("calls", ())]
            made = []
            for call in body["calls"]:
                made.append({**call, "occurrence": times.count(call["id"])})
                times.append(call["id"])
            body["calls"] = made
        self.entries.append(body)
        self.view.append(body)
        self.save()
        return body

    @property
    def path(self) -> list[str]:
        """Entry ids from root to leaf, compacted ones included."""
        return [entry["id"] for entry in self.entries]

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The view without what an item in it stands for."""
        items = {m["id"] for m in self.view}
        return [m for m in self.view if m.get("superseded_by") not in items]

    def messages(self) -> list[Message]:
        """The view as the product's values."""
        return [forms.message_of(m) for m in self.view]

    def faults(self) -> tuple[Fault, ...]:
        """What the product's validator says of the view."""
        return check([forms.message_of(m) for m in self.sent])

    def call(self, call_id: str) -> dict[str, Any] | None:
        """The last call of that id."""
        found = [c for entry in self.entries for c in entry.get("calls", ()) if c["id"] == call_id]
        return found[-1] if found else None

    def results(self, call_id: str) -> list[dict[str, Any]]:
        """The results of a call: in the view if the call is there, else ever."""
        there = any(c["id"] == call_id for m in self.view for c in m.get("calls", ()))
        return [m for m in (self.view if there else self.entries) if m.get("result_for") == call_id]

    def open_calls(self) -> list[dict[str, Any]]:
        """Calls of the view that have no result yet."""
        waiting: list[dict[str, Any]] = []
        for message in self.view:
            waiting += message.get("calls", [])
            if message["role"] == "tool":
                same = [c for c in waiting if c["id"] == message.get("result_for")]
                if same:
                    waiting.remove(same[0])
        return waiting

    def compact(
        self,
        summary: dict[str, Any] | None,
        *,
        keep_last: int | None,
        keep_from: str | None,
        operations: Mapping[tuple[str, int], str],
    ) -> list[str]:
        """Put ``summary`` in place of what may go; return the ids of what went."""
        if summary is not None and summary["role"] == "summary":
            return self._summarised(summary, keep_last, keep_from, operations)
        at = first_kept(self.messages(), keep_last=keep_last, keep_from=keep_from)
        gone = self.view[:at]
        covers = [i for m in gone for i in (*m.get("covers", ()), *([m["id"]] if m["role"] != "summary" else []))]
        if gone and summary is not None:
            summary["covered"] = [m for m in gone if m["role"] != "opaque"]
            self.view = [{**summary, "covers": list(dict.fromkeys(covers))}, *self.view[at:]]
            self.save()
        return covers

    def _summarised(
        self,
        summary: Mapping[str, Any],
        keep_last: int | None,
        keep_from: str | None,
        operations: Mapping[tuple[str, int], str],
    ) -> list[str]:
        """Let the product compact: what it keeps stays as it is, and its summary stands where it says."""
        made = compact(
            self.messages(),
            facts=Facts(None, operations=operations),
            summarise=lambda _: str(summary["text"]),
            keep_last=keep_last,
            keep_from=keep_from,
            id=summary["id"],
        )
        if made.summary is not None:
            kept = {m["id"]: m for m in self.view}
            self.view = [kept.get(m.id) or forms.message_to_json(m) for m in made.messages]
            self.save()
        return list(made.sources)

    def copy(self, path: Path, at: str | None) -> Transcript:
        """Return the transcript of a fork: everything up to ``at``, compacted or not; no issuer's items."""
        made = Transcript(path)
        ids = [entry["id"] for entry in self.entries]
        made.entries = list(self.entries[: ids.index(at) + 1] if at is not None else self.entries)
        shown = [m["id"] for m in self.view]
        if at is None or at in shown:
            made.view = list(self.view[: shown.index(at) + 1] if at is not None else self.view)
        else:
            made.view = list(made.entries)
        made.view = [self._readable(m) for m in made.view if m["role"] != "opaque" or m.get("covered")]
        made.save()
        return made

    def _readable(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["role"] != "opaque":
            return {k: v for k, v in message.items() if k != "superseded_by"}
        texts = [m.get("text", "") for m in message["covered"]]
        return {"id": message["id"], "role": "summary", "text": "\n".join(texts), "covers": message.get("covers", [])}


def message(id_: str, role: str, **more: Any) -> dict[str, Any]:
    """Return a message as JSON."""
    return {"id": id_, "role": role, **{name: value for name, value in more.items() if value is not None}}


def calls(bodies: Iterable[Mapping[str, Any]]) -> list[Call]:
    """Return calls as the product's values."""
    return [forms.call_of(body) for body in bodies]
