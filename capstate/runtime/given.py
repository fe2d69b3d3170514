"""Authority that people and jobs give to a session: grants, denies, approvals, and what lets a failed source go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Literal, Self

from capstate.authority import Effect, Grant, Lifetime, check_selector
from capstate.digest import check_text
from capstate.errors import InvalidInputError, Reason, SessionLockedError, StaleWriterError
from capstate.ledger import Record
from capstate.runtime.arguments import a_call, a_person, an_id
from capstate.runtime.live import shares
from capstate.runtime.owned import TRIES
from capstate.runtime.recovering import Recovering
from capstate.runtime.verdict import approval_of
from capstate.runtime.wishes import named, selectors_of

if TYPE_CHECKING:
    from capstate.capabilities import Catalog
    from capstate.grants import EffectName
    from capstate.runtime.state import State
    from capstate.trace import Call


class Given(Recovering):
    """Grants and approvals of a session."""

    def grant(
        self,
        on: str,
        *,
        by: str,
        effect: EffectName | Effect = "allow",
        lifetime: Literal["persistent", "session"] | Lifetime = "persistent",
        pin: bool = True,
        expires: int | None = None,
        id: str = "",  # noqa: A002 - the word of the design
    ) -> Grant:
        """Give what a person decided. An allow is for the definitions that exist now, unless ``pin`` is False.

        Args:
            by: who gave it.
            effect: ``allow``, ``ask`` or ``deny``.
            lifetime: ``persistent`` or ``session``.
            expires: milliseconds since the epoch, by the runtime's clock.
            id: by default a digest of the other fields.

        Raises:
            InvalidInputError: an argument is none of these, another grant has the id, or an allow would pin nothing:
                nothing that exists now bears the name. With ``pin=False`` it is for whatever will.
            SessionLockedError: a persistent grant belongs to the holder's chain, and another process owns it.
        """
        if effect not in Effect.__members__.values():
            raise InvalidInputError("effect", "'allow', 'ask' or 'deny'", effect)
        if lifetime not in (Lifetime.PERSISTENT, Lifetime.SESSION):
            raise InvalidInputError("lifetime", "'persistent' or 'session'; a job has its own grants", lifetime)
        if expires is not None and (type(expires) is not int or expires < 0):
            raise InvalidInputError("expires", "milliseconds since the epoch", expires)
        if type(pin) is not bool:
            raise InvalidInputError("pin", "True or False", pin)
        check_selector(on, "on")
        check_text(id, "grant id")
        a_person(by)
        with self._open():
            grant = self._given(on, Effect(effect), by, Lifetime(lifetime), pin=pin, expires=expires, id=id)
            self._live.folds.refresh()
            shared = grant.lifetime is Lifetime.PERSISTENT and self.holder != self.id
            state = self._live.folds.get(self.holder) if shared else self._live.state
            if shared and grant.effect is not Effect.DENY and not shares(self._live.state, state):
                raise InvalidInputError("holder", "one whose name no other session's chain bears", self.holder)
            if state is not None and any(g.id == grant.id and g != grant for g in state.grants.values()):
                raise InvalidInputError("grant id", "one that no other grant has", grant.id)
            record = Record("grant", grant.to_json())
            if not shared:
                self._append(record)
            elif grant.effect is Effect.DENY:
                self._runtime._post(self.holder, record)  # what only takes away waits for nobody
            else:
                self._runtime.append_to(self.holder, record)
            return grant

    def deny(self, on: str, *, by: str, lifetime: Literal["persistent", "session"] | Lifetime = "persistent") -> Grant:
        """Deny tools: wins over every allow, and over approvals that were given.

        A deny of what does not exist now is legal, and waits: :meth:`Session.explain` without a tool shows it.

        Raises:
            InvalidInputError: as :meth:`grant`.
        """
        return self.grant(on, by=by, effect="deny", lifetime=lifetime)

    def revoke(self, id: str, *, by: str) -> None:  # noqa: A002 - the word of the design
        """Take back the grant of that id.

        Raises:
            InvalidInputError: neither the session nor its holder has it.
            SessionLockedError: it belongs to the holder's chain, and another process owns that.
        """
        record = Record("revoke", {"by": a_person(by), "id": an_id(id, "grant id")})
        with self._open():
            self._live.folds.refresh()
            if _has(self._live.state, id):
                self._append(record)
            elif shares(self._live.state, holder := self._live.folds.get(self.holder)) and _has(holder, id):
                self._runtime.append_to(self.holder, record)
            else:
                raise InvalidInputError("grant id", "a grant of this session or its holder", id)

    def job(self, name: str, *, grants: str | Iterable[str] = (), by: str = "") -> AbstractContextManager[Self]:
        """Hold grants while a job runs. They end with it, with the process, or with the session, in any order.

        Args:
            grants: group ids or selectors, pinned to the definitions that exist when the job begins.
            by: who gave them; by default the job.

        Raises:
            InvalidInputError: an argument is of another kind; on entering: nothing that exists bears a name.
        """
        an_id(name, "job", "the name of a job")
        return self._job(name, selectors_of(grants, "grants"), a_person(by) if by != "" else name)

    @contextmanager
    def _job(self, name: str, selectors: list[str], by: str) -> Iterator[Self]:
        with self._open():
            made = [self._given(on, Effect.ALLOW, by, Lifetime.UNTIL, pin=True, until=name) for on in selectors]
            if made:
                self._append(*(Record("grant", grant.to_json()) for grant in made))
            self._jobs[name] = self._jobs.get(name, frozenset()) | {grant.id for grant in made}
        try:
            yield self
        finally:
            with self._lock:
                self._jobs.pop(name, None)  # over, also if the ledger cannot be told now
                if not self._closed:
                    self._append(Record("job-ended", {"job": name}))

    def approve(self, call: Call, *, by: str) -> None:
        """Approve exactly this call: occurrence, definition, arguments; once.

        Raises:
            InvalidInputError: this call does not wait for approval now, or it is none.
        """
        a_call(call)
        a_person(by)
        with self._open():
            for attempt in range(TRIES):
                verdict = self._judge(call)
                approval = approval_of(call, verdict, by, self._elsewhere_seen())
                if approval is None or verdict.reason is not Reason.NEEDS_APPROVAL:
                    got = verdict.reason.value if verdict.reason is not None else "one that may start"
                    raise InvalidInputError(f"call {call.id!r}", "a call that waits for approval", got)
                try:
                    self._append(Record("approved", approval.to_json()), derived=True)
                except StaleWriterError as error:
                    self._after(error, attempt)  # a deny that came in between comes before
                    continue
                return
            raise StaleWriterError(self.id, None, None, owner=True)

    def reject(self, call: Call, *, by: str) -> None:
        """Refuse a call that waits for approval, for good; an approval given before is withdrawn.

        Raises:
            InvalidInputError: it neither waits for approval nor could start now, or it is none.
        """
        a_call(call)
        a_person(by)
        with self._open():
            verdict = self._judge(call)
            approval = approval_of(call, verdict, by)
            if approval is None or verdict.reason not in (None, Reason.NEEDS_APPROVAL):
                got = verdict.reason.value if verdict.reason is not None else "none"
                raise InvalidInputError(f"call {call.id!r}", "a call that waits for approval", got)
            self._append(Record("rejected", approval.to_json()))

    def retire(self, name: str, *, by: str) -> None:
        """Let a source go that the ledger names and this process does not have: ``NAME`` or ``ceiling NAME``.

        Raises:
            InvalidInputError: the ledger names no such source.
        """
        an_id(name, "source", "NAME or 'ceiling NAME'")
        a_person(by)
        with self._open():
            self._live.folds.refresh()
            if name not in self._live.state.sources:
                raise InvalidInputError("source", "NAME or 'ceiling NAME' that a receipt of this session names", name)
            self._append(Record("retired", {"by": by, "name": name}))

    def accept_damage(self, *, by: str) -> None:
        """Accept, as a named person, what was lost in holes: external calls may start again.

        What stood in or behind a hole still does not count. Configuration pins that may have been lost cover nothing
        from now on. A parent's damage is accepted in the parent.

        Raises:
            InvalidInputError: nothing is damaged.
            SessionLockedError: the holder's chain is damaged, and another process owns it.
        """
        a_person(by)
        with self._open():
            folds = self._live.folds
            folds.refresh()
            folds.get(self.holder)
            self._tell()
            folds.refresh()
            state, holder = self._live.state, folds.get(self.holder)
            if not state.read_only and (holder is None or not holder.read_only):
                raise InvalidInputError("accept_damage", "a damaged chain of this session or its holder", "none")
            lost = [[source, id_] for source, id_, _ in self._live.unseen_pins(self._live.sources.read_catalog())]
            if holder is not None and holder is not state and holder.read_only:
                self._runtime.append_to(self.holder, Record("accepted", self._accepted(holder, by, lost)))
            if state.read_only:
                self._append(Record("accepted", self._accepted(state, by, lost)))

    def _accepted(self, state: State, by: str, lost: list[list[str]]) -> dict[str, Any]:
        """Return the body of the acceptance of what is damaged now, as this session and as a new reader see it."""
        anew = self._runtime.state(state.chain)
        spans = state.holes | (anew.holes if anew is not None else set())
        return {"by": by, "damage": sorted(map(list, spans)), "lost": lost}

    def _given(
        self,
        on: str,
        effect: Effect,
        by: str,
        lifetime: Lifetime,
        *,
        pin: bool,
        until: str | None = None,
        expires: int | None = None,
        id: str = "",  # noqa: A002
    ) -> Grant:
        pinned = None
        if effect is Effect.ALLOW and pin:
            catalog = self._live.sources.read_catalog()
            pinned = frozenset((d.qualified, d.fingerprint) for d in named(catalog, [on]))
            if not pinned:
                more = "" if lifetime is Lifetime.UNTIL else " (pin=False gives an open grant)"
                raise InvalidInputError("on", f"a name of something that exists now{more}", on)
        token = self._writer.token if lifetime is Lifetime.UNTIL else None
        return Grant(on, effect, pinned, id, by, lifetime, until, expires, token)

    def _take_pins(self, catalog: Catalog) -> None:
        """Record the pins that are due at first sight. Where the holder's chain is not ours to write, none is taken."""
        holder = self._live.folds.get(self.holder)
        if holder is not None and holder.read_only:
            return  # they may have been taken, and lost
        records = [
            Record("pin", {"id": id_, "pin": pin, "source": source})
            for source, id_, pin in self._live.unseen_pins(catalog)
            if pin
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


def _has(state: State | None, id_: str) -> bool:
    return state is not None and any(g.id == id_ for g in (*state.grants.values(), *state.restrictions))
