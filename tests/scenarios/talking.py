"""Words about what is said, loaded, compacted and offered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.scenarios import forms
from tests.scenarios.giving import Giving
from tests.scenarios.hosts import HostError
from tests.scenarios.stage import Refusal
from tests.scenarios.transcript import message


class Talking(Giving):
    """The transcript grows and is cut; groups are loaded and change."""

    def op_load(self, event: dict[str, Any]) -> None:
        """The model's loader found a group; its result is the load point."""
        session, point = event["session"], event.get("load_point")
        transcript = self.transcript(session)
        if point is not None and point not in transcript.path:
            call = {"id": f"load-{point}", "tool": self._loader(session), "args": {}}
            transcript.add(message(f"a-{point}", "assistant", calls=[call]))
            transcript.add(message(point, "tool", result_for=call["id"], outcome="ok", text="loaded"))
        self._load(session, event["groups"], point, "model" if point is not None else "user")

    def _load(self, session: str, groups: list[str], at: str | None, by: str) -> None:
        self.loads.append((session, "load", groups, at))
        try:
            self.host_of(session).call("load", session=session, on=groups, at=at, by=by)
        except HostError as error:
            if "one definition of each name" not in str(error):
                raise
            # Of a group with two tools of one name a host can have the others.
            found = [group for group in forms.catalog_of(self.world) if group.id in groups]
            clear = [d.qualified for g in found for d in g.definitions.values() if d.name not in g.conflicts]
            if clear:
                self.host_of(session).call("load", session=session, on=clear, at=at, by=by)
            if self.states:
                raise Refusal("name_conflict") from error

    def _loader(self, session: str) -> str:
        loaders = [
            d.qualified
            for g in forms.catalog_of(self.world)
            for d in g.definitions.values()
            if d.tool.loads and d.qualified in self._wires(session)
        ]
        return self._wires(session)[loaders[0]] if loaders else "loader"

    def op_unload(self, event: dict[str, Any]) -> None:
        """The wish is taken back, as of now."""
        session = event["session"]
        path = self.transcript(session).path
        self.host_of(session).call("unload", session=session, on=event["groups"], at=path[-1] if path else None)
        self.loads.append((session, "unload", event["groups"], path[-1] if path else None))

    def op_say(self, event: dict[str, Any]) -> None:
        """Messages are added."""
        for entry in event["messages"]:
            others = {e["id"]: e for e in self.transcript(event["session"]).entries}
            self.transcript(event["session"]).add(self._entry(event["session"], entry, others, {}))

    def _entry(
        self,
        session: str,
        entry: Mapping[str, Any],
        others: Mapping[str, Mapping[str, Any]],
        evidence: Mapping[str, str],
    ) -> dict[str, Any]:
        body = dict(entry)
        if entry["role"] == "tool":
            body.setdefault("text", evidence.get(entry.get("evidence", ""), ""))
        elif entry["role"] == "opaque":
            maker = self._maker(session, entry["issuer"])
            api = maker.issuer.api
            found = {d.qualified: maker.names.name(d) or d.qualified
                     for g in forms.catalog_of(self.world) for d in g.definitions.values()}  # fmt: skip
            body["issuer"] = forms.issuer_id(entry["issuer"], api)
            body["api"], body["native"] = api, forms.native_item(entry, api, found)
            body["refers"] = [found.get(q, q) for q in entry.get("refers", ())]
            body["covered"] = [
                {k: v for k, v in others[i].items() if k != "superseded_by"}
                for i in entry.get("covers", ())
                if i in others and others[i]["role"] != "opaque"
            ]
        return body

    def _maker(self, session: str, issuer: str) -> Any:
        """Return the profile of the provider that made an item: one of the case's, by its issuer."""
        providers = [self.provider(session), *(e["to"] for e in self.case["when"] if e["op"] == "switch_provider")]
        made = next((p for p in providers if p["issuer"] == issuer), {**self.provider(session), "issuer": issuer})
        return forms.profile_of(made)

    def op_compact(self, event: dict[str, Any]) -> None:
        """The history is cut at a border of units, and a summary put before what is kept."""
        session = event["session"]
        self.host_of(session)
        if event.get("result", "ok") != "ok":
            return
        native = event.get("kind") == "native"
        summary = message(f"s{event['n']}", "summary", text=event.get("summary_text", ""))
        if native:
            issuer = self.provider(session)["issuer"]
            item = {"id": f"s{event['n']}", "role": "opaque", "item": "compaction", "issuer": issuer}
            summary = self._entry(session, item, {}, {})
        self.transcript(session).compact(
            summary,
            keep_last=event.get("keep_last"),
            keep_from=event.get("keep_from"),
            operations={(call, n): id_ for (s, call, n), id_ in self.begun.items() if s == session and id_ is not None},
        )
        self.causes[session] = "native_compaction" if native else "compaction"

    def op_resource(self, event: dict[str, Any]) -> None:
        """A server goes or comes back."""
        self.world["resources"] = {**self.world["resources"], event["id"]: event["state"]}
        self._write_world()

    def op_list_changed(self, event: dict[str, Any]) -> None:
        """A server lists other tools."""
        old = next((g for g in self.world["groups"] if g["id"] == event["group"]), None)
        made = {"resource": event.get("resource"), **(old or {}), "id": event["group"], "tools": event["tools"]}
        rest = [made if g is old else g for g in self.world["groups"]]
        self.world = {**self.world, "groups": rest if old is not None else [*rest, made]}
        self._write_world()

    def op_switch_provider(self, event: dict[str, Any]) -> None:
        """The next requests go elsewhere."""
        old, new = self.provider(event["session"]), event["to"]
        self.providers[event["session"]] = new
        same = old["issuer"].split("/")[0] == new["issuer"].split("/")[0]
        self.causes[event["session"]] = "model_switch" if same else "provider_switch"

    def op_project(self, event: dict[str, Any]) -> None:
        """The next request is built, and remembered under a label."""
        self.host_of(event["session"])
