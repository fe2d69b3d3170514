"""Authority that people and jobs give to a session: grants, denies, approvals, and what lets a failed source go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from capstate.authority import Effect, Grant, Lifetime, check_selector
from capstate.errors import InvalidInputError, Reason, SessionLockedError
from capstate.ledger import Record
from capstate.runtime.gated import Gated
from capstate.runtime.wishes import named, selectors_of

if TYPE_CHECKING:
    from capstate.capabilities import Catalog, Definition
    from capstate.trace import Call


class Given(Gated):
    """Grants and approvals of a session."""

    def grant(
        self,
        on: str,
        *,
        by: str,
        effect: str = "allow",
        lifetime: str = "persistent",
        pin: bool = True,
        expires: int | None = None,
        id: str = "",  # noqa: A002 - the word of the design
    ) -> Grant:
        """Give what a person decided. An allow is for the definitions that exist now, unless ``pin`` is False.

        Args:
            by: who gave it.
            lifetime: ``persistent`` or ``session``.
            expires: milliseconds since the epoch, by the runtime's clock.

        Raises:
            SessionLockedError: a persistent grant belongs to the holder's chain, and another process owns it.
        """
        with self._open():
            grant = self._grant(on, Effect(effect), by, Lifetime(lifetime), pin=pin, expires=expires, id=id)
            holder = self.holder
            if grant.lifetime is Lifetime.PERSISTENT and holder != self.id:
                self._runtime.append_to(holder, Record("grant", grant.to_json()))
            else:
                self._append(Record("grant", grant.to_json()))
            return grant

    def deny(self, on: str, *, by: str, lifetime: str = "persistent") -> Grant:
        """Deny tools: wins over every allow, and over approvals that were given."""
        return self.grant(on, by=by, effect="deny", lifetime=lifetime)

    def revoke(self, id: str, *, by: str) -> None:  # noqa: A002 - the word of the design
        """Take back the grant of that id.

        Raises:
            InvalidInputError: neither the session nor its holder has it.
        """
        with self._open():
            self._live.folds.refresh()
            holder = self._live.folds.get(self.holder)
            if id in self._live.state.grants:
                self._append(Record("revoke", {"by": by, "id": id}))
            elif holder is not None and id in holder.grants:
                self._runtime.append_to(self.holder, Record("revoke", {"by": by, "id": id}))
            else:
                raise InvalidInputError("grant id", "a grant of this session or its holder", id)

    @contextmanager
    def job(self, name: str, *, grants: Iterable[str] = (), by: str = "") -> Iterator[Self]:
        """Hold grants while a job runs. They end with it, with the process, or with the session, in any order."""
        with self._open():
            made = [
                self._grant(on, Effect.ALLOW, by or name, Lifetime.UNTIL, pin=True, until=name)
                for on in selectors_of(grants)
            ]
            if made:
                self._append(*(Record("grant", grant.to_json()) for grant in made))
        try:
            yield self
        finally:
            with self._lock:
                if not self._closed:
                    self._append(Record("job-ended", {"job": name}))

    def approve(self, call: Call, *, by: str) -> None:
        """Approve exactly this call: occurrence, definition, arguments; once.

        Raises:
            InvalidInputError: no tool of that name is callable on approval now.
        """
        with self._open():
            verdict = self._judge(call)
            if verdict.row is None or verdict.reason is not Reason.NEEDS_APPROVAL:
                got = verdict.reason.value if verdict.reason is not None else "allowed without one"
                raise InvalidInputError(f"call {call.id!r}", "a call that waits for approval", got)
            self._append(Record("approved", _approval(call, verdict.row.definition, by)))

    def reject(self, call: Call, *, by: str) -> None:
        """Refuse a call that waits for approval; an approval given before is withdrawn."""
        with self._open():
            verdict = self._judge(call)
            if verdict.row is None:
                raise InvalidInputError(f"call {call.id!r}", "a known tool", call.tool)
            self._append(Record("rejected", _approval(call, verdict.row.definition, by)))

    def retire(self, name: str, *, by: str) -> None:
        """Let a source go that the ledger names and this process does not have: ``NAME`` or ``ceiling NAME``."""
        with self._open():
            self._append(Record("retired", {"by": by, "name": name}))

    def accept_damage(self, *, by: str) -> None:
        """A named person accepts what was lost in a hole of the ledger: external calls may start again."""
        with self._open():
            self._append(Record("accepted", {"by": by}))

    def _grant(
        self,
        on: str,
        effect: Effect,
        by: str,
        lifetime: Lifetime,
        *,
        pin: bool,
        expires: int | None = None,
        until: str | None = None,
        id: str = "",  # noqa: A002 - the word of the design
    ) -> Grant:
        pinned = None
        if pin and effect is Effect.ALLOW:
            catalog = self._live.sources.read_catalog()
            pinned = frozenset((d.qualified, d.fingerprint) for d in named(catalog, [check_selector(on, "grant")]))
        token = self._writer.token if lifetime is Lifetime.UNTIL else None
        return Grant(on, effect, pinned, id, by, lifetime, until, expires, token)

    def _take_pins(self, catalog: Catalog) -> None:
        records = [
            Record("pin", {"id": id_, "pin": pin, "source": source})
            for source, id_, pin in self._live.unseen_pins(catalog)
        ]
        if not records:
            return
        if self.holder == self.id:
            self._append(*records, derived=True)
            return
        try:
            self._runtime.append_to(self.holder, *records)
        except SessionLockedError:
            return  # not taken, so it covers nothing yet
        self._live.folds.refresh()


def _approval(call: Call, definition: Definition, by: str) -> dict[str, Any]:
    return {
        "arguments": call.digest,
        "by": by,
        "call": call.id,
        "definition": definition.fingerprint,
        "occurrence": call.occurrence,
        "tool": definition.qualified,
    }
