"""One session: what is loaded, who may, and what the model can call at each boundary.

A new and a resumed session are one code path: open the chain, fold it, derive. The session is the sole writer of
its chain until it is closed. It is safe to use from many threads; no lock is held while a tool runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from attrs import evolve

from capstate.authority import Lifetime
from capstate.digest import canonical
from capstate.epochs import Boundary, Cause, Epoch, Facts, reproject
from capstate.errors import InvalidInputError, Reason, StaleWriterError, SurfaceExceededError
from capstate.ledger import Record
from capstate.runtime.given import Given
from capstate.runtime.owned import TRIES
from capstate.runtime.wishes import Wishes, selectors_of
from capstate.trace import Message, Role

if TYPE_CHECKING:
    from capstate.capabilities import Definition
    from capstate.projection import OnWire, Profile
    from capstate.receipts import Receipt
    from capstate.runtime.state import State
    from capstate.surface import Surface


class Session(Wishes, Given):
    """A session that this process owns. Made by :meth:`Runtime.session`, :meth:`spawn`, :meth:`child`, :meth:`fork`."""

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
            for _ in range(TRIES):
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
            _, _, surface = self._live.look(self._profile.names, self._line(self._path))
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

    def spawn(self, id: str, *, want: Iterable[str], at: str | None = None, call: str | None = None) -> Session:  # noqa: A002 - the word of the design
        """Start a child: what it wants, cut by this session's authority as it is at each call.

        Args:
            want: selectors; ``*`` is all that this session may.

        Raises:
            InvalidInputError: the id is taken.
        """
        selectors = selectors_of(want)
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

    @property
    def surface(self) -> Surface:
        """What may be called now, read now."""
        with self._open():
            return self._live.look(self._profile.names, self._line(self._path))[2]

    @property
    def receipt(self) -> Receipt | None:
        """The last receipt."""
        return self._epoch.receipt if self._epoch is not None else self._previous

    def explain(self, tool: str) -> dict[str, Any]:
        """Say why ``tool`` (``group/name``) is callable or not now, rule by rule, as JSON."""
        with self._open():
            catalog, authority, surface = self._live.look(self._profile.names, self._line(self._path))
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

    def _reproject(
        self, cause: Cause, profile: Profile, messages: list[Message] | None, path: tuple[str, ...] | None
    ) -> Epoch:
        self._live.folds.refresh()
        catalog = self._live.sources.read_catalog()
        self._take_pins(catalog)
        state = self._live.state
        line = self._line(path)
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

    def _neutral(self, profile: Profile, history: Sequence[Any]) -> list[Message]:
        if profile.adapter is not None:
            return profile.adapter.read(history)
        for n, message in enumerate(history):
            if not isinstance(message, Message):
                raise InvalidInputError(
                    f"history[{n}]", "a Message, or a provider that reads its own", type(message).__name__
                )
        return list(history)


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
