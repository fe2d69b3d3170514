"""One session: what is loaded, who may, and what the model can call at each boundary.

A new and a resumed session are one code path: open the chain, fold it, derive. The session is the sole writer of
its chain until it is closed. It is safe to use from many threads; no lock is held while a tool runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from attrs import evolve

from capstate.authority import Lifetime
from capstate.digest import canonical, check_text
from capstate.epochs import Cause, CauseName, Epoch, Facts, reproject
from capstate.errors import InvalidInputError, Reason, StaleWriterError
from capstate.ledger import Record
from capstate.projection import Profile
from capstate.runtime.arguments import a_chain, a_history, a_path, an_id_or_none
from capstate.runtime.explained import named_in_vain, rule_of, withheld
from capstate.runtime.given import Given
from capstate.runtime.history import adapter_of, boundary, neutral, opaque, retained, unknown
from capstate.runtime.owned import TRIES
from capstate.runtime.returning import Returning
from capstate.runtime.verdict import lapsed, operation_id
from capstate.runtime.wire import exceeding, finding
from capstate.runtime.wishes import Wishes, selectors_of, up_to
from capstate.surface import counting

if TYPE_CHECKING:
    from capstate.projection import OnWire
    from capstate.receipts import Receipt
    from capstate.runtime.state import State
    from capstate.surface import Surface
    from capstate.trace import Message


class Session(Wishes, Given, Returning):
    """A session that this process owns. Made by :meth:`Runtime.session`, :meth:`spawn`, :meth:`child`, :meth:`fork`."""

    def reproject(
        self,
        cause: Cause | CauseName = "turn",
        *,
        provider: Profile | None = None,
        history: Sequence[Any] | None = None,
        path: Iterable[str] | None = None,
    ) -> Epoch:
        """Derive again what the model can call, write the receipt, and return the epoch. Durable on return.

        Args:
            cause: a value of :class:`~capstate.epochs.Cause`.
            provider: profile of the request's provider; by default the last one.
            history: the messages of the next request, neutral or the provider's own, also mixed; None: as before.
            path: entry ids from root to leaf, compacted ones included; None: a linear history.

        Raises:
            InvalidInputError: an argument is of another kind. Nothing was written.
            LedgerUnavailableError, CatalogUnavailableError: nothing was derived, nothing is callable.
            StaleWriterError: another process took the session over.
        """
        if cause not in Cause.__members__.values():
            raise InvalidInputError("cause", f"one of {', '.join(Cause)}", cause)
        if provider is not None and not isinstance(provider, Profile):
            raise InvalidInputError("provider", "a profile, such as anthropic.profile(model), or None", provider)
        history, line = a_history(history), a_path(path)
        with self._open():
            profile = provider if provider is not None else self._profile
            messages = neutral(profile, history) if history is not None else None
            for attempt in range(TRIES):
                try:
                    epoch = self._reproject(Cause(cause), profile, messages, line)
                except StaleWriterError as error:
                    self._after(error, attempt)
                    continue
                break
            else:
                raise StaleWriterError(self.id, None, None, owner=True)
            if self._epoch is None or epoch.receipt is not self._epoch.receipt:
                self._seen.clear()
            self._profile, self._path, self._epoch, self._fresh = profile, line, epoch, None
            if messages is not None:
                self._entries = tuple(message.id for message in messages)
            self._retained, self._opaque, self._damage = epoch.facts.retained, epoch.facts.opaque, ()
            adapter = adapter_of(profile)
            if adapter is None:
                return epoch
            request = adapter.render(profile, epoch.projection, list(history) if history is not None else [])
            return evolve(epoch, request=request)

    def check(self, body: Mapping[str, Any]) -> OnWire:
        """Compare a finished request body with what is authorised now; a finding is its own entry.

        The rule stands in ``docs/spec/guard.md``, section 9; what no body shows, in ``docs/boundary.md``.

        Raises:
            SurfaceExceededError: the body makes something callable that the surface does not hold, or by another
                definition, or holds something that may and cannot be read.
            InvalidInputError: nothing was projected yet, or the last provider has no adapter to read it with.
            MalformedError: the body is none of this provider's.
        """
        if not isinstance(body, Mapping):
            raise InvalidInputError("body", "a request body, as a mapping", body)
        with self._open():
            if self._epoch is None:
                raise InvalidInputError("check", "a reproject before it, for the provider of the body", "none yet")
            adapter = adapter_of(self._profile)
            if adapter is None:
                raise InvalidInputError("check", "a provider with an adapter at the last reproject", "none")
            adapter.recognise(body)
            wire = adapter.on_wire(body)
            surface = self._live.look(self._profile.names, self._line(self._path))[2]
            names = self._by_name(surface)
            found = exceeding(wire, surface, lambda beyond: withheld(names, beyond))
            if found is not None:
                self._append(finding(found))
                raise found
            return wire

    def spawn(self, id: str, *, want: str | Iterable[str], at: str | None = None, call: str | None = None) -> Session:  # noqa: A002 - the word of the design
        """Start a child: what it wants, cut by this session's authority as it is at each call.

        Args:
            want: group ids or selectors; ``*`` is all that this session may.

        Raises:
            InvalidInputError: the id is taken, or an argument is of another kind.
        """
        selectors = selectors_of(want, "want")
        a_chain(id, "child id")
        an_id_or_none(at, "at")
        an_id_or_none(call, "call")
        with self._open(), self._runtime._unused(id, "child id", self) as writer:
            self._append(Record("spawned", {"at": at, "call": call, "child": id}))
            return self._runtime._open_child(self, id, selectors, writer)

    def child(self, id: str) -> Session:  # noqa: A002 - the word of the design
        """Resume a child. One whose launch restriction was not stored may do nothing (``policy_missing``).

        Raises:
            InvalidInputError: that session is not a child of this one, or this one never started it.
        """
        a_chain(id, "child id")
        with self._open():
            self._check_child(id)
            with self._runtime._locked(id) as (writer, _):
                return self._runtime._open_child(self, id, None, writer)

    def fork(self, id: str, *, at: str | None = None, path: Iterable[str] | None = None) -> Session:  # noqa: A002 - the word of the design
        """Copy this session up to the entry ``at``: its loads there, its holder, its limits; nothing temporary.

        Args:
            path: entry ids from root to leaf; with ``at``, cut there. None: that of the last projection; was that
                linear, ``at`` is an entry of its history, or one that a load names.

        Raises:
            InvalidInputError: the id is taken, ``at`` is not on the path, or an argument is of another kind.
        """
        a_chain(id, "fork id")
        an_id_or_none(at, "at")
        given = a_path(path)
        with self._open():
            line = list(given) if given is not None else list(self._path) if self._path is not None else None
            if at is not None:
                if line is not None and at not in line:
                    raise InvalidInputError("at", "an entry of the path", at)
                line = line[: line.index(at) + 1] if line is not None else None
            taken = counting(self._live.state.loads, tuple(line) if line is not None else None)
            if at is not None and line is None:
                taken = up_to(at, taken, self._entries)
            with self._runtime._unused(id, "fork id", self) as writer:
                self._append(Record("forked", {"at": at, "child": id}))
                return self._runtime._open_fork(self, id, at, taken, writer)

    @property
    def surface(self) -> Surface:
        """What may be called now, read now."""
        with self._open():
            return self._live.look(self._profile.names, self._line(self._path))[2]

    @property
    def receipt(self) -> Receipt | None:
        """The last receipt."""
        return self._epoch.receipt if self._epoch is not None else self._previous

    def explain(self, tool: str | None = None) -> dict[str, Any]:
        """Say why ``tool`` is callable or not now, and which rule decides, as JSON.

        Args:
            tool: ``group/name``, or its wire name. None: what this session rests on that nothing bears the name of
                now, loads and rules, a slip of the pen among them.

        ``source_errors`` says what sources that failed just now raised. It is for people: no receipt holds it.
        """
        if tool is not None:
            check_text(tool, "tool", "group/name, a wire name, or None")
        with self._open():
            catalog, authority, surface = self._live.look(self._profile.names, self._line(self._path))
            errors = self._live.sources.errors(self.holder)
            if tool is None:
                return {**named_in_vain(catalog, authority, self._live.state.loads), "source_errors": errors}
            row = self._by_name(surface).find(tool)
            if row is None:
                unknown_tool = {"tool": tool, "callable": False, "reason": Reason.UNKNOWN_TOOL.value, "decided_by": ""}
                return {**unknown_tool, "rule": None, "source_errors": errors}
            definition = row.definition
            return {
                "tool": definition.qualified,
                "callable": row.reason is None,
                "reason": row.reason.value if row.reason is not None else None,
                "decided_by": row.decided_by or authority.decide(definition).decided_by,
                "effect": row.effect.value if row.effect is not None else None,
                "loaded": row.loaded,
                "wire": row.wire,
                "definition": definition.fingerprint,
                "rule": rule_of(authority, row.decided_by, definition.qualified),
                "source_errors": errors,
            }

    def note(self, body: Mapping[str, Any]) -> None:
        """Keep a record of the host's own in the chain; it means nothing to capstate.

        Raises:
            InvalidInputError: it is no mapping, or not JSON.
        """
        if not isinstance(body, Mapping):
            raise InvalidInputError("note", "a mapping", body)
        canonical(dict(body), place="note")
        with self._open():
            self._append(Record("note", dict(body)))

    def end(self) -> None:
        """End the session for good: it and its children may do nothing any more."""
        with self._open():
            self._append(Record("ended", {}))
        self.close()

    def close(self) -> None:
        """Settle what runs, end what ends with the process, let another writer in. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            try:
                for permit in tuple(self._permits):
                    permit._leave()
                until = any(g.lifetime is Lifetime.UNTIL for g in self._live.state.grants.values())
                self._tell()
                if until or self._refused:
                    self._append(*([Record("closed", {})] if until else []))
            finally:
                self._closed = True
                self._runtime._forget(self)
                self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.id!r}{', closed' if self._closed else ''}>"

    def _check_child(self, id: str) -> None:  # noqa: A002 - the word of the design
        self._live.folds.refresh()
        known = self._runtime.state(id)
        there = known is not None and known.opening is not None and known.opening.kind != "holder"
        if not there and id not in self._live.state.children:
            raise InvalidInputError("child id", f"a child of {self.id!r}", id)

    def _reproject(
        self, cause: Cause, profile: Profile, messages: list[Message] | None, path: tuple[str, ...] | None
    ) -> Epoch:
        live = self._live
        live.folds.refresh()
        self._tell()
        self._take_pins(live.sources.read_catalog())
        line = self._line(path)
        catalog, authority, _ = live.look(profile.names, line)
        state = live.state
        if self._fresh is not None and cause is Cause.TURN:
            cause = self._fresh
        facts = Facts(
            catalog,
            authority,
            state.loads,
            line,
            retained(state.loads, messages) if messages is not None else self._retained,
            profile,
            opaque(messages) if messages is not None else self._opaque,
            cause=cause,
            session=self.id,
            ledger=state.opening.log if state.opening is not None else "",
            boundary=boundary(messages, path) if messages is not None else None,
            used=self.used,
            audit=self._audit,
            damage=self._damage,
            fork=_fork(state),
        )
        last = self._epoch if self._epoch is not None else self._previous
        epoch = reproject(facts, last)
        claims = self._claims(messages or ())
        if last is not None and epoch.receipt is (last.receipt if isinstance(last, Epoch) else last):
            if claims:
                self._append(*claims, derived=True)
            return epoch
        records = [Record("epoch", {"digest": epoch.receipt.digest, "receipt": dict(epoch.receipt.body)}), *claims]
        ended = lapsed(state.approvals, epoch.surface)
        if ended:
            records.append(Record("lapsed", {"tools": ended}))
        if facts.damage:
            records.insert(0, Record("repaired", {"damage": list(facts.damage)}))
        self._append(*records, blobs=epoch.blobs, derived=True)
        self._tell()
        return epoch

    def _claims(self, messages: Sequence[Message]) -> list[Record]:
        """Return records of external calls that the history leaves open and no entry knows: they take away."""
        claims = list(unknown(messages))
        if not claims:
            return []
        names = self._by_name(self._live.look(self._profile.names, self._line(self._path))[2])
        states = (self._live.state, *self._origins())
        # A start that nobody sealed must not stand in for the true one, which may have been another call.
        known = {(op.call, op.occurrence) for state in states for op in state.operations.values() if op.token}
        records = []
        for call, occurrence, name, arguments in claims:
            row = names.find(name)
            if (call, occurrence) in known or (row is not None and row.definition.tool.effect == "read"):
                continue
            known.add((call, occurrence))
            tool = row.definition.qualified if row is not None else name
            id_ = operation_id(self.id, call, occurrence, tool, arguments)
            body = {"approval": None, "arguments": arguments, "call": call, "cost": None, "effect": "external"}
            more = {"from": "history", "id": id_, "occurrence": occurrence, "tool": tool, "used": {}}
            records.append(Record("started", {**body, **more}))
        return records


def _fork(state: State) -> dict[str, Any] | None:
    origin = state.opening.origin if state.opening is not None else None
    if origin is None:
        return None
    return {"at": origin[1], "digest": origin[3], "sequence": origin[2], "session": origin[0]}
