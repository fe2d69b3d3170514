"""Small session files, written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from capstate.policy import parse

POLICY = parse(
    """
resident = ["read", "load"]
loaders = ["load"]
unloaders = ["drop"]
[groups]
git = ["git_log", "git_blame"]
web = ["web_fetch"]
"""
)
HEADER = {"type": "session", "version": 3, "id": "s", "cwd": "/c"}


class Story:
    """Entries of one session, each under the one before unless told otherwise."""

    def __init__(self, header: dict[str, Any] | None = None) -> None:
        self.lines: list[dict[str, Any]] = [HEADER if header is None else header]
        self.leaf: str | None = None
        self.count = 0

    def add(self, kind: str, /, parent: str | None = "", **fields: Any) -> str:
        self.count += 1
        name = str(fields.pop("id", f"e{self.count}"))
        row = {"type": kind, "id": name, "parentId": self.leaf if parent == "" else parent, "timestamp": "t", **fields}
        self.lines.append(row)
        self.leaf = name
        return name

    def say(self, role: str, /, parent: str | None = "", **fields: Any) -> str:
        return self.add("message", parent, message={"role": role, "timestamp": self.count, **fields})

    def user(self, text: str = "go", parent: str | None = "") -> str:
        return self.say("user", parent, content=text)

    def call(self, tool: str, *calls: str, **arguments: Any) -> str:
        ids = calls or (f"c{self.count}",)
        blocks = [{"type": "toolCall", "id": c, "name": tool, "arguments": arguments} for c in ids]
        return self.say("assistant", content=blocks, api="anthropic-messages", model="m", stopReason="toolUse")

    def result(self, tool: str, call: str, *, error: bool = False, added: list[str] | None = None) -> str:
        more: dict[str, Any] = {} if added is None else {"addedToolNames": added}
        return self.say("toolResult", toolCallId=call, toolName=tool, content=[], isError=error, **more)

    def run(self, tool: str, *, error: bool = False, added: list[str] | None = None, **arguments: Any) -> str:
        call = f"c{self.count}"
        self.call(tool, call, **arguments)
        return self.result(tool, call, error=error, added=added)

    def answer(self) -> str:
        return self.say("assistant", content=[{"type": "text", "text": "ok"}], api="anthropic-messages", model="m")

    def system(self, *added: str, removed: tuple[str, ...] = ()) -> str:
        tools = [{"name": n, "description": n, "parameters": {}} for n in added]
        return self.say("system", content="", toolsAdded=tools, toolsRemoved=[{"name": n} for n in removed])

    def write(self, folder: Path, name: str = "s.jsonl") -> Path:
        path = folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path
