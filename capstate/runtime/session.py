"""One session: what is loaded, who may, and what the model can call at each boundary.

A new and a resumed session are one code path: open the chain, fold it, derive. The session is the sole writer of
its chain until it is closed. It is safe to use from many threads; no lock is held while a tool runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from attrs import evolve

from capstate.authority import Effect, Grant, Lifetime, Limits, check_selector
from capstate.capabilities import Catalog, Definition
from capstate.digest import canonical
from capstate.epochs import NO_PROFILE, Boundary, Cause, Epoch, Facts, reproject
from capstate.errors import (
    InvalidInputError,
    PoolConflictError,
    Reason,
    SessionClosedError,
    SessionLockedError,
    StaleWriterError,
    SurfaceExceededError,
)
from capstate.ledger import PoolChange, Record, Writer, chain_entries
from capstate.runtime.guard import Gate, Permit, Verdict, judge, operation_id, refusal
from capstate.runtime.pool import Usage
from capstate.runtime.state import Operation, State, covers
from capstate.receipts import Receipt
from capstate.trace import Call, Message, Outcome, Role

if TYPE_CHECKING:
    from capstate.projection import OnWire, Profile
    from capstate.runtime import Runtime
    from capstate.runtime.live import Live
    from capstate.surface import Surface

_TRIES = 64
"""How often an append that met only posts, or another session's use of the limits, derives again."""


class Session:
    """A session that this process owns. Made by :meth:`Runtime.session`, :meth:`spawn`, :meth:`child` and :meth:`fork`."""

    def __init__(self, runtime: Runtime, live: Live, writer: Writer, *, fresh: Cause, damage: tuple[str, ...]) -> None:
        self.id = live.chain
        self._runtime, self._live, self._writer = runtime, live, writer
        self._fresh: Cause | None = fresh
        self._damage = damage
        self._lock = threading.RLock()
        self._epoch: Epoch | None = None
        self._previous: Receipt | None = None
        self._audit = ""
        self._profile: Profile = NO_PROFILE
        self._path: tuple[str, ...] | None = None
        self._retained: tuple[int, ...] = ()
        self._opaque: tuple[tuple[str, str], ...] = ()
        self._permits: list[Permit] = []
        self._refused: dict[tuple[str, str], int] = {}
        self._seen: set[tuple[str, str, str]] = set()
        self._closed = False

    # ---- the wish: loads

    def load(
        self, on: str | Iterable[str], *, at: str | None = None, call: str | None = None, by: str = "user"
    ) -> None:
        """Wish for a group, or for tools of one. Loading grants nothing; it holds until it is unloaded.

        Args:
            on: group ids or selectors.
            at: id of the transcript entry that shows it.
            call: id of the call that found it; its result is then that entry.
            by: ``configuration``, ``user`` or ``model``. A load by the configuration is written once.

        Raises:
            InvalidInputError: two definitions claim one name in what is loaded.
        """
        selectors = _selectors(on)
        with self._open():
            catalog = self._live.sources.read_catalog()
            for group in catalog.groups.values():
                claimed = [n for n in sorted(group.conflicts) if any(covers(s, f"{group.id}/{n}") for s in selectors)]
                if claimed:
                    raise InvalidInputError(
                        f"group {group.id!r}", "one definition of each name", f"several of {claimed}"
                    )
            if by == "configuration" and any(
                load.do == "load" and load.at is None and load.call is None and set(selectors) <= set(load.on)
                for load in self._live.state.loads
            ):
                return
            found = {d.qualified: d.fingerprint for d in _named(catalog, selectors)} if at or call else {}
            body = {"at": at, "by": by, "call": call, "definitions": found, "on": selectors}
            self._append(Record("load", body))

    def unload(
        self, on: str | Iterable[str], *, at: str | None = None, call: str | None = None, by: str = "user"
    ) -> None:
        """Take the wish back, as of this place of the transcript."""
        with self._open():
            self._append(Record("unload", {"at": at, "by": by, "call": call, "on": _selectors(on)}))

    def removal(self, on: str | Iterable[str], *, at: str | None = None) -> None:
        """Record that the agent took tools out of its transcript by itself: their marks end, the wish stays."""
        with self._open():
            self._append(Record("removal", {"at": at, "on": _selectors(on)}))

    # ---- authority that people and jobs give

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
            pinned = frozenset((d.qualified, d.fingerprint) for d in _named(catalog, [check_selector(on, "grant")]))
        token = self._writer.token if lifetime is Lifetime.UNTIL else None
        return Grant(on, effect, pinned, id, by, lifetime, until, expires, token)

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
                for on in _selectors(grants)
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

    # ---- the boundary

    def reproject(
        self,
        cause: str = "turn",
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
            LedgerUnavailableError, CatalogUnavailableError: nothing was derived, nothing is callable.
            StaleWriterError: another process took the session over.
        """
        try:
            why = Cause(cause)
        except ValueError:
            raise InvalidInputError("cause", f"one of {', '.join(Cause)}", cause) from None
        with self._open():
            profile = provider if provider is not None else self._profile
            messages = self._neutral(profile, history) if history is not None else None
            line = tuple(path) if path is not None else None
            for _ in range(_TRIES):
                try:
                    epoch = self._reproject(why, profile, messages, line)
                except StaleWriterError as error:
                    self._after(error)
                    continue
                break
            else:
                raise StaleWriterError(self.id, None, None, owner=True)
            self._profile, self._path, self._epoch, self._fresh = profile, line, epoch, None
            self._retained, self._opaque, self._damage = epoch.facts.retained, epoch.facts.opaque, ()
            if profile.adapter is None:
                return epoch
            request = profile.adapter.render(profile, epoch.projection, list(history) if history is not None else [])
            return evolve(epoch, request=request)

    def _reproject(
        self, cause: Cause, profile: Profile, messages: list[Message] | None, path: tuple[str, ...] | None
    ) -> Epoch:
        self._live.folds.refresh()
        catalog = self._live.sources.read_catalog()
        self._take_pins(catalog)
        state = self._live.state
        named = {load.at for load in state.loads if load.at is not None}
        line = tuple(entry for entry in path if entry in named) if path is not None else None
        catalog, authority, _ = self._live.look(profile.names, line)
        if self._fresh is not None and cause is Cause.TURN:
            cause = self._fresh
        facts = Facts(
            catalog,
            authority,
            state.loads,
            line,
            retained(state, messages) if messages is not None else self._retained,
            profile,
            tuple((m.id, m.issuer or "") for m in messages if m.role is Role.OPAQUE)
            if messages is not None
            else self._opaque,
            cause=cause,
            session=self.id,
            ledger=self._live.state.opening.log if self._live.state.opening is not None else "",
            boundary=_boundary(messages, path),
            used=self.used,
            audit=self._audit,
            damage=self._damage,
            fork=_fork(state),
        )
        last = self._epoch if self._epoch is not None else self._previous
        epoch = reproject(facts, last)
        if last is not None and epoch.receipt is (last.receipt if isinstance(last, Epoch) else last):
            return epoch
        records = [Record("epoch", {"digest": epoch.receipt.digest, "receipt": dict(epoch.receipt.body)})]
        lapsed = sorted({a.tool for a in state.approvals if _unauthorised(epoch.surface, a.tool)})
        if lapsed:
            records.append(Record("lapsed", {"tools": lapsed}))
        if self._refused:
            records.insert(0, self._counted())
        if self._damage:
            records.insert(0, Record("repaired", {"damage": list(self._damage)}))
        self._append(*records, blobs=epoch.blobs, derived=True)
        self._refused.clear()
        return epoch

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

    def _neutral(self, profile: Profile, history: Sequence[Any]) -> list[Message]:
        if profile.adapter is not None:
            return profile.adapter.read(history)
        for n, message in enumerate(history):
            if not isinstance(message, Message):
                raise InvalidInputError(
                    f"history[{n}]", "a Message, or a provider that reads its own", type(message).__name__
                )
        return list(history)

    def check(self, body: Mapping[str, Any]) -> OnWire:
        """Compare a finished request body with what is authorised now; a finding is its own entry.

        Raises:
            SurfaceExceededError: the body makes something callable that the surface does not hold.
            InvalidInputError: the last provider has no adapter to read it with.
            MalformedError: the body is none of this provider's.
        """
        with self._open():
            if self._profile.adapter is None:
                raise InvalidInputError("check", "a provider with an adapter at the last reproject", "none")
            wire = self._profile.adapter.on_wire(body)
            _, _, surface = self._live.look(self._profile.names, self._line())
            beyond = tuple(sorted(wire.effective - surface.wires.keys()))
            differing = tuple(
                sorted(
                    name
                    for name, sent in wire.definitions.items()
                    if name in surface.wires and _differs(surface.wires[name].definition, sent)
                )
            )
            if beyond or differing:
                self._append(Record("finding", {"beyond": list(beyond), "differing": list(differing)}))
                raise SurfaceExceededError(beyond, differing)
            return wire

    # ---- the gate

    def guard(self, call: Call, *, cost: int = 0) -> Gate:
        """Return the gate for one call: ``with`` or ``async with`` it, and run the tool inside.

        Args:
            cost: micro-units to reserve; settled by the permit.

        Entering raises Refused (with the call's one result), NeedsApproval, or LedgerUnavailableError.
        """
        if type(cost) is not int or cost < 0:
            raise InvalidInputError("cost", "whole micro-units from 0", cost)
        return Gate(self, call, cost)

    def _judge(self, call: Call) -> Verdict:
        _, _, surface = self._live.look(self._profile.names, self._line())
        return judge(surface, self._live.state, self._inherited(), call)

    def _start(self, call: Call, cost: int) -> Permit:
        with self._open():
            for _ in range(_TRIES):
                verdict = self._judge(call)
                limits = self._limits()
                usage: Usage | None = None
                if verdict.reason in (None, Reason.NEEDS_APPROVAL) and limits is not None:
                    usage = self._usage()
                    name = usage.exceeded(limits, cost)
                    if name == "concurrency":
                        usage = self._freed(usage)
                        name = usage.exceeded(limits, cost)
                    if name is not None:
                        verdict = evolve(verdict, reason=Reason.LIMIT_EXCEEDED, decided_by=f"limit {name}")
                if verdict.reason is not None or verdict.row is None:
                    self._count(verdict)
                    raise refusal(call, verdict)
                definition = verdict.row.definition
                inner = verdict.inner.definition if verdict.inner is not None else None
                permit = Permit(call, definition, None, inner, verdict.external, cost, self)
                if usage is None and verdict.approval is None and not verdict.external:
                    return permit
                try:
                    permit.operation = self._record_start(permit, verdict, usage)
                except (StaleWriterError, PoolConflictError) as error:
                    self._after(error)
                    continue
                self._permits.append(permit)
                return permit
            raise StaleWriterError(self.id, None, None, owner=True)

    def _record_start(self, permit: Permit, verdict: Verdict, usage: Usage | None) -> str:
        call, tool = permit.call, permit.definition.qualified
        operation = verdict.repeats.id if verdict.repeats is not None else operation_id(self.id, call, tool)
        reserved = usage.reserve(self.id, self._writer.token, permit.cost) if usage is not None else None
        approval = verdict.approval
        body = {
            "approval": [approval.call, approval.occurrence, approval.tool, approval.arguments] if approval else None,
            "arguments": call.digest,
            "call": call.id,
            "definition": permit.definition.fingerprint,
            "effect": "external" if permit.external else "read",
            "id": operation,
            "occurrence": call.occurrence,
            "tool": tool,
            "used": reserved.totals() if reserved is not None else {},
        }
        self._append(Record("started", body), pool=self._pool_change(reserved), derived=True)
        return operation

    def _settle(self, permit: Permit, outcome: Outcome, evidence: str | None, cost: int) -> None:
        if permit.operation is None:
            return
        with self._lock:
            for _ in range(_TRIES):
                usage = self._usage() if self._limits() is not None else None
                if usage is not None:
                    usage = usage.settle(self.id, self._writer.token, reserved=permit.cost, spent=cost)
                body = {
                    "evidence": evidence,
                    "id": permit.operation,
                    "outcome": outcome.value,
                    "used": usage.totals() if usage is not None else {},
                }
                try:
                    self._append(Record("settled", body), pool=self._pool_change(usage), derived=True)
                except (StaleWriterError, PoolConflictError) as error:
                    self._after(error)
                    continue
                self._permits = [p for p in self._permits if p is not permit]
                return
            raise StaleWriterError(self.id, None, None, owner=True)

    def reconcile(self, operation: str, *, outcome: str, by: str, evidence: str | None = None) -> None:
        """Settle an operation of unknown outcome by what the tool's side says now.

        Raises:
            InvalidInputError: no such unsettled operation of this session.
        """
        with self._open():
            self._live.folds.refresh()
            known = self._live.state.operations.get(operation)
            if known is None or known.settled:
                raise InvalidInputError("operation", "an unsettled operation of this session", operation)
            body = {"by": by, "evidence": evidence, "id": operation, "outcome": Outcome(outcome).value, "used": {}}
            self._append(Record("settled", body))

    # ---- limits

    def _limits(self) -> Limits | None:
        root = self._live.folds.get(self._root())
        limits = root.limits if root is not None else None
        return limits if limits is not None and limits != Limits() else None

    def _root(self) -> str:
        opening = self._live.state.opening
        return opening.root if opening is not None else self.id

    def _usage(self) -> Usage:
        root = self._root()
        pool = self._runtime.ledger.pool(root)
        state = self._live.folds.get(root)
        return Usage.of(pool.value if pool is not None else None, self._live.state.used, state.used if state else {})

    def _freed(self, usage: Usage) -> Usage:
        """Free the slots of chains whose owner is dead: its lock can be had."""
        for chain, (token, _) in usage.running.items():
            if chain == self.id and token == self._writer.token:
                continue
            if chain != self.id:
                try:
                    self._runtime.ledger.lock(chain).close()
                except SessionLockedError:
                    continue
            usage = usage.without(chain)
        return usage

    def _pool_change(self, usage: Usage | None) -> PoolChange | None:
        if usage is None:
            return None
        pool = self._runtime.ledger.pool(self._root())
        return PoolChange(self._root(), pool.version if pool is not None else 0, usage.encode())

    @property
    def used(self) -> dict[str, int]:
        """Calls started and cost used in the whole tree so far; empty without limits."""
        with self._lock:
            return self._usage().totals() if self._limits() is not None else {}

    # ---- children and forks

    def spawn(self, id: str, *, want: Iterable[str], at: str | None = None, call: str | None = None) -> Session:  # noqa: A002 - the word of the design
        """Start a child: what it wants, cut by this session's authority as it is at each call.

        Args:
            want: selectors; ``*`` is all that this session may.

        Raises:
            InvalidInputError: the id is taken.
        """
        selectors = _selectors(want)
        with self._open():
            if self._runtime.ledger.head(id) is not None:
                raise InvalidInputError("child id", "an unused session id", id)
            child = self._runtime._open_child(self, id, selectors)
            self._append(Record("spawned", {"at": at, "call": call, "child": id}))
            return child

    def child(self, id: str) -> Session:  # noqa: A002 - the word of the design
        """Resume a child. One whose launch restriction was not stored may do nothing (``policy_missing``).

        Raises:
            InvalidInputError: that session is not a child of this one.
        """
        with self._open():
            return self._runtime._open_child(self, id, None)

    def fork(self, id: str, *, at: str | None = None, path: Iterable[str] | None = None) -> Session:  # noqa: A002 - the word of the design
        """Copy this session up to the entry ``at``: its loads there, its holder, its limits; nothing temporary.

        Args:
            path: entry ids from root to leaf; with ``at``, cut there. None: a linear history, all of it.
        """
        with self._open():
            line = list(path) if path is not None else None
            if line is not None and at is not None:
                if at not in line:
                    raise InvalidInputError("at", "an entry of the path", at)
                line = line[: line.index(at) + 1]
            return self._runtime._open_fork(self, id, at, line)

    def _inherited(self) -> list[Operation]:
        """Unsettled operations of the sessions that this one was forked from: visible, and not to be repeated."""
        found: list[Operation] = []
        state = self._live.state
        seen = {self.id}
        while state.opening is not None and state.opening.origin is not None and state.opening.origin[0] not in seen:
            origin = self._live.folds.get(state.opening.origin[0])
            if origin is None:
                break
            seen.add(origin.chain)
            found += origin.unsettled
            state = origin
        return found

    # ---- looking

    @property
    def holder(self) -> str:
        """The principal that the session acts for."""
        opening = self._live.state.opening
        return opening.holder if opening is not None else self.id

    @property
    def surface(self) -> Surface:
        """What may be called now, read now."""
        with self._open():
            return self._live.look(self._profile.names, self._line())[2]

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Every operation that this session's chain knows, and the unsettled ones of what it was forked from."""
        with self._open():
            self._live.folds.refresh()
            return (*self._live.state.operations.values(), *self._inherited())

    @property
    def receipt(self) -> Receipt | None:
        """The last receipt."""
        return self._epoch.receipt if self._epoch is not None else self._previous

    def explain(self, tool: str) -> dict[str, Any]:
        """Say why ``tool`` (``group/name``) is callable or not now, rule by rule, as JSON."""
        with self._open():
            catalog, authority, surface = self._live.look(self._profile.names, self._line())
            row, definition = surface.row(tool), catalog.find(tool)
            if row is None or definition is None:
                return {"tool": tool, "callable": False, "reason": Reason.UNKNOWN_TOOL.value, "decided_by": ""}
            decision = authority.decide(definition)
            return {
                "tool": tool,
                "callable": row.reason is None,
                "reason": row.reason.value if row.reason is not None else None,
                "decided_by": row.decided_by or decision.decided_by,
                "effect": row.effect.value if row.effect is not None else None,
                "loaded": row.loaded,
                "wire": row.wire,
                "definition": definition.fingerprint,
            }

    def note(self, body: Mapping[str, Any]) -> None:
        """Keep a record of the host's own in the chain; it means nothing to capstate."""
        with self._open():
            self._append(Record("note", dict(body)))

    def end(self) -> None:
        """End the session for good: its children may do nothing any more."""
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
                records = [self._counted()] if self._refused else []
                if any(g.lifetime is Lifetime.UNTIL for g in self._live.state.grants.values()):
                    records.append(Record("closed", {}))
                if records:
                    self._append(*records)
            finally:
                self._closed = True
                self._runtime._forget(self)
                self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.id!r} of {self.holder!r}{', closed' if self._closed else ''}>"

    # ---- appending

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise SessionClosedError(f"session {self.id!r} is closed")
            yield

    def _line(self) -> tuple[str, ...] | None:
        return self._path_of(self._path)

    def _path_of(self, path: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if path is None:
            return None
        named = {load.at for load in self._live.state.loads if load.at is not None}
        return tuple(entry for entry in path if entry in named)

    def _append(
        self,
        *records: Record,
        blobs: Mapping[str, bytes] | None = None,
        pool: PoolChange | None = None,
        derived: bool = False,
    ) -> None:
        """Append after the head that was folded last. What was ``derived`` is for the caller to derive again."""
        folds = self._live.folds
        for _ in range(_TRIES):
            head = folds.head(self.id)
            entries = chain_entries(
                self.id, head, records, at=self._live.now(), token=self._writer.token, key=self._runtime.key
            )
            try:
                self._runtime.ledger.append(self.id, entries, expect=head, writer=self._writer, blobs=blobs, pool=pool)
            except StaleWriterError as error:
                if derived:
                    raise
                self._after(error)
                continue
            folds.refresh()
            return
        raise StaleWriterError(self.id, None, None, owner=True)

    def _after(self, error: StaleWriterError | PoolConflictError) -> None:
        """Take in what moved the head; posts alone are no reason to give up."""
        if isinstance(error, StaleWriterError) and not error.owner:
            raise error
        self._live.folds.refresh()

    def _count(self, verdict: Verdict) -> None:
        """Count a refusal by tool and reason; the first of each kind in an epoch is written at once."""
        if verdict.reason is None or verdict.reason is Reason.NEEDS_APPROVAL:
            return
        tool = verdict.row.definition.qualified if verdict.row is not None else ""
        key = (tool, verdict.reason.value)
        self._refused[key] = self._refused.get(key, 0) + 1
        seen = (self._epoch.receipt.digest if self._epoch is not None else "", *key)
        if seen not in self._seen:
            self._seen.add(seen)
            self._append(self._counted())
            self._refused.clear()

    def _counted(self) -> Record:
        epoch = self._epoch.receipt.epoch if self._epoch is not None else None
        counts = [[tool, reason, count] for (tool, reason), count in sorted(self._refused.items())]
        return Record("refused", {"counts": counts, "epoch": epoch})


def _selectors(on: str | Iterable[str]) -> list[str]:
    """Return group ids and selectors as selectors."""
    listed = [on] if isinstance(on, str) else list(on)
    return [
        check_selector(f"{one}/*" if isinstance(one, str) and "/" not in one and one != "*" else one, "selector")
        for one in listed
    ]


def _named(catalog: Catalog, selectors: Iterable[str]) -> Iterator[Definition]:
    """Give the definitions that the selectors name now; a conflicting name has none."""
    chosen = list(selectors)
    for group in catalog.groups.values():
        for definition in group.definitions.values():
            if definition.name not in group.conflicts and any(covers(s, definition.qualified) for s in chosen):
                yield definition


def retained(state: State, messages: Sequence[Message]) -> tuple[int, ...]:
    """Return the loads whose entry, or whose call's result, ``messages`` hold, in order of their place."""
    entries: dict[str, int] = {}
    results: dict[str, int] = {}
    for n, message in enumerate(messages):
        if message.id:
            entries.setdefault(message.id, n)
        if message.role is Role.TOOL and message.result_for is not None:
            results.setdefault(message.result_for, n)
    places = []
    for load in state.loads:
        place = entries.get(load.at) if load.at is not None else None
        if place is None and load.call is not None:
            place = results.get(load.call)
        if place is not None:
            places.append((place, load.sequence))
    return tuple(sequence for _, sequence in sorted(places))


def _boundary(messages: Sequence[Message] | None, path: tuple[str, ...] | None) -> Boundary | None:
    if messages is None:
        return None
    kept = [m for m in messages if m.role not in (Role.SUMMARY, Role.SYSTEM, Role.OPAQUE)]
    leaf = path[-1] if path else (messages[-1].id if messages else None)
    return Boundary(kept[0].id or None if kept else None, len(kept), leaf or None)


def _fork(state: State) -> dict[str, Any] | None:
    origin = state.opening.origin if state.opening is not None else None
    if origin is None:
        return None
    return {"at": origin[1], "digest": origin[3], "sequence": origin[2], "session": origin[0]}


def _unauthorised(surface: Surface, tool: str) -> bool:
    row = surface.row(tool)
    return row is None or row.effect is None


def _differs(definition: Definition, sent: Mapping[str, Any]) -> bool:
    """Whether a definition on the wire is not the one that is authorised."""
    tool = definition.tool
    schema = sent.get("schema")
    return sent.get("description", tool.description) != tool.description or (
        isinstance(schema, Mapping) and canonical(dict(schema)) != canonical(tool.schema)
    )


def _approval(call: Call, definition: Definition, by: str) -> dict[str, Any]:
    return {
        "arguments": call.digest,
        "by": by,
        "call": call.id,
        "definition": definition.fingerprint,
        "occurrence": call.occurrence,
        "tool": definition.qualified,
    }
