"""Words about grants: in the configuration's file, in the ledger, and with a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.scenarios.stage import Stage, UnsupportedError


class Giving(Stage):
    """Grants come and go."""

    def op_set_grants(self, event: dict[str, Any]) -> None:
        """Grants come and go."""
        self._take_grants(event.get("remove", ()))
        self._add_grants(event.get("add", ()))

    def op_begin_temporary(self, event: dict[str, Any]) -> None:
        """A job begins, with grants that end with it."""
        self._add_grants([{"lifetime": f"until:{event['id']}", "scope": "temporary", **g} for g in event["grants"]])

    def op_end_temporary(self, event: dict[str, Any]) -> None:
        """A job ends."""
        self._end_job(event["id"])

    def _place(self, grant: Mapping[str, Any]) -> str:
        """Return where a grant belongs: in the file only what is there for good."""
        lasting = grant.get("lifetime", "persistent") == "persistent" and grant["holder"] not in self.copies
        return "config" if lasting and grant.get("scope", "config") == "config" else "ledger"

    def _add_grants(self, grants: Iterable[Mapping[str, Any]]) -> None:
        for grant in grants:
            body = {"lifetime": "persistent", **grant, "case": dict(grant), "place": self._place(grant)}
            if body["place"] == "ledger" and grant["holder"] in self.coming - {*self.known}:
                self.waiting.append(body)  # a child or fork that does not exist yet
                continue
            if body["place"] == "ledger":
                body["ledger id"] = self._give(body)
            self.pool.append(body)
        self._write_config()

    def _give(self, grant: Mapping[str, Any]) -> str:
        holder, lifetime = grant["holder"], grant["lifetime"]
        if lifetime.startswith("until:"):
            if grant["effect"] != "allow":
                raise UnsupportedError("a job's grant that denies or asks")
            self._with(holder, "job", name=lifetime[6:], on=[grant["on"]])
            return ""
        told: str = self._with(
            holder, "grant", on=grant["on"], effect=grant["effect"], pin=bool(grant.get("pin")),
            lifetime="session" if holder in self.copies else lifetime, id=grant.get("id", ""),
        )  # fmt: skip
        return told

    def _with(self, session: str, command: str, **arguments: Any) -> Any:
        """Do something in a session, opened for that alone if it is not open and never was."""
        if session in self.where or session in self.known:
            return self.host_of(session).call(command, session=session, **arguments)
        host = self.host("giver")
        host.call("open", session=session)
        try:
            return host.call(command, session=session, **arguments)
        finally:
            host.quit()

    def _take_grants(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            for grant in [g for g in self.pool if g.get("id") == id_]:
                self._take(grant)

    def _take(self, grant: dict[str, Any]) -> None:
        self.pool.remove(grant)
        if grant["place"] == "config":
            self._write_config()
        elif grant["lifetime"].startswith("until:"):
            self._end_job(grant["lifetime"][6:])
        elif self.processes or grant["holder"] not in self.where:
            # Somebody else takes it back, while the session's own process goes on.
            self.host("revoker").call("post_revoke", chain=grant["holder"], id=grant["ledger id"])
        else:
            self._with(grant["holder"], "revoke", id=grant["ledger id"])

    def _end_job(self, name: str) -> None:
        mine = [g for g in self.pool if g["lifetime"] == f"until:{name}"]
        self.pool = [g for g in self.pool if g not in mine]
        for holder in dict.fromkeys(g["holder"] for g in mine):
            if holder in self.where:
                self.host_of(holder).call("end_job", session=holder, name=name)

    def _replace_grants(self, grants: list[dict[str, Any]], place: str) -> None:
        """What is found at a restart is all there is: equal grants stay what they are, pins included."""
        stays = [g["case"] for g in self.pool if g["case"] in grants]
        for grant in [g for g in self.pool if g["place"] == place and g["case"] not in grants]:
            self._take(grant)
        self._add_grants([g for g in grants if g not in stays and self._place(g) == place])
