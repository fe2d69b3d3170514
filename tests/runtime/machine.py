"""A lifecycle as plain data, kept beside the product: what each session should know, as a world of the model.

Everything here is written from the design: sets, lists and dicts. The product is asked for nothing but grant ids.
"""

from __future__ import annotations

from typing import Any

from tests import model

TOOLS = {"a": {"x": "read", "y": "external"}, "b": {"z": "external"}}
PLAIN = {"defers": False, "needs_immediate": False, "names": {"limit": 64, "chars": "A-Za-z0-9_-"}}


class Line:
    """What one session should know."""

    def __init__(self, id_: str, holder: str, kind: str, parent: str | None, want: list[str] | None) -> None:
        self.id, self.holder, self.kind, self.parent, self.want = id_, holder, kind, parent, want
        self.loads: list[dict[str, Any]] = []
        self.path: list[str] | None = None
        self.retained: list[int] = []
        self.profile = PLAIN
        self.ended = False
        self.before: dict[str, str] = {}
        """Definition by callable tool, as of the last receipt or what the first is compared with."""
        self.fresh = True
        self.wanted = kind == "child"
        """Its first receipt is compared with what it asked for."""
        self.jobs: dict[str, list[dict[str, Any]]] = {}
        self.origin: str | None = None

    def load(self, do: str, on: list[str], at: str | None, definitions: dict[str, str]) -> None:
        self.loads.append({"do": do, "on": on, "at": at, "call": None, "definitions": definitions if at else {}})


class Expected:
    """What should hold of all sessions."""

    def __init__(self) -> None:
        self.version = {f"{group}/{tool}": "1" for group, tools in TOOLS.items() for tool in tools}
        self.up = dict.fromkeys(TOOLS, True)
        self.config: list[dict[str, Any]] = []
        self.failing = False
        self.ceiling: Any = "allow"
        self.lines: dict[str, Line] = {}
        self.grants: dict[str, list[dict[str, Any]]] = {}
        """By chain: what people granted."""
        self.pins: dict[tuple[str, str], list[list[str]]] = {}
        """By holder and rule: what first sight saw."""

    def definitions(self, selectors: list[str]) -> dict[str, str]:
        """What the selectors name now."""
        return {
            tool: version
            for tool, version in self.version.items()
            if any(on in ("*", tool, tool.partition("/")[0] + "/*") for on in selectors)
        }

    def authority(self, id_: str) -> dict[str, Any]:
        line = self.lines[id_]
        rules = []
        for rule in self.config:
            pin = self.pins.get((line.holder, rule["id"]), []) if rule["pin"] == "first" else None
            rules.append({**rule, "pin": pin})
        ceilings = {"trust": {"state": "ok", "effect": self.ceiling, "rules": None}}
        if line.ended:
            ceilings["ended"] = {"state": "ok", "effect": "none", "rules": None}
        granted = list(self.grants.get(id_, []))
        if line.holder != id_:
            granted += [g for g in self.grants.get(line.holder, []) if g["lifetime"] == "persistent"]
        for grants in line.jobs.values():
            granted += grants
        origin = line.origin
        while origin is not None:
            # What a session was denied, its forks are denied, as it is now.
            lasting = (g for g in self.grants.get(origin, []) if g["lifetime"] == "persistent")
            granted += [g for g in lasting if g["effect"] != "allow"]
            origin = self.lines[origin].origin
        child = None
        if line.parent is not None:
            above = self.lines[line.parent]
            child = {"want": line.want, "parent": "ended" if above.ended else self.authority(line.parent)}
        state = "error" if self.failing else "ok"
        return {
            "sources": {"config": {"state": state, "rules": [] if self.failing else rules}},
            "granted": granted,
            "ceilings": ceilings,
            "child": child,
        }

    def world(self, id_: str) -> dict[str, Any]:
        line = self.lines[id_]
        catalog = [
            {
                "id": group,
                "up": self.up[group],
                "tools": [
                    {"name": name, "definition": self.version[f"{group}/{name}"], "needs": [], "wire_name": None}
                    for name in tools
                ],
            }
            for group, tools in TOOLS.items()
        ]
        return {
            "profile": line.profile,
            "catalog": catalog,
            "loads": line.loads,
            "path": line.path,
            "retained": line.retained,
            "authority": self.authority(id_),
        }

    def predict(self, id_: str) -> dict[str, Any]:
        return model.predict(self.world(id_))

    def may(self, id_: str, tool: str) -> bool:
        """Whether a session is authorised for a tool, loaded or not."""
        group, _, name = tool.partition("/")
        return model.RANK[model.decide(self.authority(id_), (group, name), self.version[tool])[0]] >= model.RANK["ask"]

    def see(self, id_: str) -> None:
        """First sight: pins that are due at a projection."""
        line = self.lines[id_]
        for rule in () if self.failing else self.config:
            if rule["pin"] == "first":
                seen = [[tool, version] for tool, version in self.definitions([rule["on"]]).items()]
                self.pins.setdefault((line.holder, rule["id"]), seen)

    def fork(self, origin: str, id_: str, at: str | None) -> None:
        old = self.lines[origin]
        path = old.path[: old.path.index(at) + 1] if old.path is not None and at is not None else old.path
        line = self.lines[id_] = Line(id_, old.holder, "fork", old.parent, old.want)
        line.origin = origin
        line.loads = [dict(old.loads[n]) for n in model.counting_events(old.loads, path)]
        line.before, line.wanted = dict(old.before), old.wanted and old.fresh

    def changes(self, id_: str) -> tuple[list[str], list[str]]:
        """What the next receipt has to explain: (added, removed)."""
        line = self.lines[id_]
        now = self.predict(id_)["callable"]
        before = line.before
        if line.fresh and line.wanted:
            before = self.definitions(line.want or [])
        return sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys())

    def received(self, id_: str) -> None:
        line = self.lines[id_]
        line.before = {tool: self.version[tool] for tool in self.predict(id_)["callable"]}
        line.fresh = False
