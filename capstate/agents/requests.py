"""Request bodies from anywhere: what a proxy recorded, a gateway logged, or an agent wrote into a folder.

A row is a bare body, or holds one under ``body``, ``request`` or ``attributes`` (as an object or as JSON text), or is
a span, a log record, or an export of many (:mod:`capstate.agents.telemetry`).
Each body is read once by its own API and then let go: what is kept is what it made callable, and digests of its
texts and call ids, by which the place in a session can be found. Beside a body are read, where the row has them,
``turn process kind api model`` and of ``runtime`` ``sessionId leafId registered authorised``; nothing else.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from capstate.agents import telemetry
from capstate.agents.bodies import Step, steps
from capstate.agents.lines import (
    LINE_LIMIT,
    UNDECODED,
    Damage,
    DamageKind,
    Record,
    decode,
    is_folder,
    records,
    too_deep,
    whole,
)
from capstate.agents.pi.entries import digest, names
from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import InvalidInputError, MalformedError
from capstate.projection import OnWire
from capstate.providers import detect, for_api

if TYPE_CHECKING:
    from collections import Counter

_WRAPPERS = ("body", "request", "attributes", "gen_ai.request.body")
_DEPTH = 4
_ASKED = 64
"""How many texts and call ids of a body are compared with a session; the newest ones."""
_LINES = (".jsonl", ".ndjson")
_ANSWERS = re.compile("response|output|completion", re.IGNORECASE)


@frozen
class Request:
    """One request, without its body.

    Attributes:
        turn: the number that the record gives, else the place in the source, from 1.
        kind: ``"turn"``, or another word for a request in which the model cannot act (``"summary"``).
        told: the record says the kind.
        bare: the body names no tool at all.
        session: id of the session, and ``leaf`` the entry that the request answered, where the record says.
        registered: tools that existed; None if unknown.
        authorised: who may was recorded; None if unknown.
        wire: what the body makes callable, without the definitions; None if it cannot be read.
        definitions: fingerprints of the definitions on the wire, by name.
        asked: newest texts and call ids of the body, oldest first.
        history: what the body itself says of calls, results and load points.
        recorded: ``wire`` is the agent's own record, or an exporter's, not a body.
    """

    turn: int
    kind: str = "turn"
    told: bool = False
    bare: bool = False
    api: str | None = None
    model: str = ""
    process: int | None = None
    session: str | None = None
    leaf: str | None = None
    registered: frozenset[str] | None = None
    authorised: frozenset[str] | None = None
    wire: OnWire | None = None
    definitions: Mapping[str, str] = field(factory=dict, repr=False)
    asked: tuple[str, ...] = field(default=(), repr=False)
    history: tuple[Step, ...] = field(default=(), repr=False)
    recorded: bool = False
    file: str = ""
    line: int = 0


@frozen
class Ran:
    """A tool that really ran, as a spy in the tool saw it (``at: executed:NAME``), or as a session recorded."""

    name: str
    session: str | None = None
    leaf: str | None = None
    authorised: frozenset[str] | None = None
    observed: bool = True
    file: str = ""
    line: int = 0


def read_requests(path: Path | str, damage: list[Damage], unknown: Counter[str]) -> Iterator[Request]:
    """Yield the requests of a file or folder, in order; ``damage`` and ``unknown`` are added to.

    Raises:
        InvalidInputError: nothing is there, or it may not be read.
        MalformedError: a file is no regular file, or a symbolic link.
    """
    path = Path(path)
    turn = 0
    shared: dict[Step, Step] = {}  # each body repeats the history of the one before
    for record, file in _rows(path, damage):
        for row, what in telemetry.rows(record.value):
            found = _request(evolve(record, value=row), file, turn + 1, damage, shared)
            if found is None:
                unknown[f"{what} without a request body"] += 1
            else:
                turn = found.turn
                yield found


OBSERVED = 'lines {"at": "executed:NAME"} of observations'
"""What a file of what ran has to hold."""


def read_executed(path: Path | str, damage: list[Damage]) -> list[Ran]:
    """Return the ``executed:NAME`` observations of a file of JSON lines; other observations are passed over.

    Raises:
        InvalidInputError: nothing is there, or it may not be read.
        MalformedError: it is no regular file, a symbolic link, or holds something and no observation.
    """
    path = Path(path)
    found = []
    seen, rows, damaged = False, 0, len(damage)
    for record in records(path, damage):
        at = record.value.get("at")
        seen, rows = seen or isinstance(at, str), rows + 1
        if isinstance(at, str) and at.startswith("executed:"):
            name = at.removeprefix("executed:")
            session, leaf = (_text(record.value.get(k)) for k in ("sessionId", "leafId"))
            found.append(
                Ran(name, session, leaf, _filled(record.value.get("authorised")), file=str(path), line=record.line)
            )
    if not seen and (rows or len(damage) > damaged):
        raise MalformedError(str(path), OBSERVED, "no such line")
    return found


def asked(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the newest texts and call ids of a body, oldest first, as comparable tokens. Raises nothing."""
    found: list[str] = []
    turns = body.get("messages", body.get("input"))
    if isinstance(turns, str):
        return (f"u {digest(turns)}",)
    for message in turns if isinstance(turns, list) else ():
        if isinstance(message, dict):
            found.extend(_tokens(message))
    return tuple(found[-_ASKED:])


def call_token(kind: str, call: str) -> str:
    """Return the token of a call (``c``) or result (``r``); a Responses id has the call's before the ``|``."""
    return f"{kind} {call.partition('|')[0]}"


def _tokens(message: dict[str, Any]) -> Iterator[str]:
    form, role, content = message.get("type"), message.get("role"), message.get("content")
    if form in ("function_call", "custom_tool_call"):
        yield call_token("c", str(message.get("call_id")))
    elif form in ("function_call_output", "custom_tool_call_output"):
        yield call_token("r", str(message.get("call_id")))
    elif role == "tool":
        yield call_token("r", str(message.get("tool_call_id")))
    elif role == "assistant":
        yield from (call_token("c", str(c.get("id"))) for c in _blocks(message.get("tool_calls")))
        yield from (call_token("c", str(b.get("id"))) for b in _blocks(content) if b.get("type") == "tool_use")
    elif role == "user":
        results = [b for b in _blocks(content) if b.get("type") == "tool_result"]
        yield from (call_token("r", str(b.get("tool_use_id"))) for b in results)
        if not results:
            texts = [content] if isinstance(content, str) else [b.get("text") for b in _blocks(content)]
            yield from (f"u {digest(t)}" for t in texts if isinstance(t, str) and t)


def _blocks(content: object) -> list[dict[str, Any]]:
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


def _rows(path: Path, damage: list[Damage]) -> Iterator[tuple[Record, Path]]:
    if is_folder(path):
        for file in _files(path):
            yield from _rows(file, damage)
    elif path.suffix == ".json":
        raw = whole(path, limit=LINE_LIMIT)
        value = decode(raw)
        if value is UNDECODED and too_deep(raw) and b"\n" not in raw.strip():
            damage.append(Damage(DamageKind.NOT_JSON, str(path), 1, 0, len(raw)))
            return
        if value is UNDECODED:
            yield from ((record, path) for record in records(path, damage))
            return
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield Record(item, 1, 0, len(raw)), path
            else:
                damage.append(Damage(DamageKind.NOT_OBJECT, str(path), 1, 0, len(raw)))
    else:
        yield from ((record, path) for record in records(path, damage))


def _files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for here, folders, files in os.walk(folder, followlinks=False):
        folders.sort(key=_natural)
        listed = (Path(here, name) for name in sorted(files, key=_natural) if name.endswith((".json", *_LINES)))
        found.extend(p for p in listed if not p.is_symlink())
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort ``2.json`` before ``10.json``."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts]


def _request(record: Record, file: Path, turn: int, damage: list[Damage], shared: dict[Step, Step]) -> Request | None:
    row = record.value
    where = Damage(DamageKind.BAD_BODY, str(file), record.line, record.offset, record.length)
    body, wrong = _body(row, _DEPTH)
    recorded = False
    if body is None and wrong is None:
        body, cut = telemetry.request(row)
        recorded, wrong = body is not None, DamageKind.BODY_TRUNCATED if cut else None
    if body is None:
        if wrong is not None:
            damage.append(evolve(where, kind=wrong))
        return None
    runtime = row.get("runtime")
    runtime = runtime if isinstance(runtime, dict) else {}
    number, process = row.get("turn"), row.get("process")
    api = telemetry.FORM if recorded else _api(row, body)
    wire = None if recorded and "tools" not in body else _wire(api, body, where, damage)
    kind = _text(row.get("kind")) if body is not row else None
    bare = wire is not None and not (wire.effective or wire.definitions or body.get("tools") or body.get("functions"))
    return Request(
        turn=number if isinstance(number, int) and not isinstance(number, bool) else turn,
        kind=kind or "turn",
        told=kind is not None,
        bare=bare,
        api=None if recorded else api,
        model=(_text(row.get("model")) if body is not row else None) or _text(body.get("model")) or "",
        process=process if isinstance(process, int) else None,
        session=_text(runtime.get("sessionId")),
        leaf=_text(runtime.get("leafId")),
        registered=_filled(runtime.get("registered")),
        authorised=_filled(runtime.get("authorised")),
        wire=None if wire is None else evolve(wire, definitions={}, others={}),
        definitions={} if wire is None else {n: sys.intern(_print(d)) for n, d in wire.definitions.items()},
        asked=asked(body),
        history=() if api is None or wire is None else tuple(shared.setdefault(s, s) for s in steps(api, body)),
        recorded=recorded,
        file=str(file),
        line=record.line,
    )


def _body(row: Mapping[str, Any], depth: int) -> tuple[dict[str, Any] | None, DamageKind | None]:
    """Return the request body in ``row``, else what is wrong with one that is there."""
    wrong: DamageKind | None = None
    for key in _WRAPPERS:
        found, cut = _unwrapped(row.get(key), depth)
        wrong = wrong or cut
        if found is not None:
            return found, None
    return (dict(row), None) if _is_body(row) else (None, wrong)


def _unwrapped(value: object, depth: int) -> tuple[dict[str, Any] | None, DamageKind | None]:
    opened = _opened(value)
    if opened is UNDECODED and isinstance(value, str):
        deep = too_deep(value.encode("utf-8", "replace"))
        return None, DamageKind.NOT_JSON if deep else DamageKind.BODY_TRUNCATED
    if not isinstance(opened, dict) or depth == 0:
        return None, None
    if _is_body(opened) and not isinstance(opened.get("body"), dict):
        return opened, None
    found, wrong = _body(opened, depth - 1)
    # What a provider answered may look like what it was asked.
    inner = [v for key, v in opened.items() if isinstance(v, str | dict) and not _ANSWERS.search(key)]
    for held in inner if found is None else ():
        found, cut = _unwrapped(held, depth - 1)
        if found is not None:
            return found, None
        wrong = wrong or cut
    return found, wrong


def _opened(value: object) -> object:
    """Return an object that is written as JSON text, or as a list of attributes, as an object."""
    if isinstance(value, str):
        return decode(value.encode("utf-8", "replace")) if value.lstrip().startswith("{") else None
    return telemetry.attributes(value)


def _is_body(value: Mapping[str, Any]) -> bool:
    asks = isinstance(value.get("messages"), list) or ("model" in value and isinstance(value.get("input"), list | str))
    return asks or isinstance(value.get("previous_response_id"), str)


def _api(row: Mapping[str, Any], body: Mapping[str, Any]) -> str | None:
    told = _text(row.get("api"))
    if told:
        try:
            for_api(told)
        except InvalidInputError:
            pass
        else:
            return told
    return detect(body)


def _wire(api: str | None, body: Mapping[str, Any], where: Damage, damage: list[Damage]) -> OnWire | None:
    if api is None and not body.get("tools") and not body.get("functions"):
        return OnWire((), {}, {})  # nothing that would tell the API, and so no tool of any
    if api is None:
        damage.append(evolve(where, kind=DamageKind.UNKNOWN_API))
        return None
    try:
        return for_api(api).on_wire(body)
    except MalformedError as error:
        damage.append(evolve(where, entry=error.place))
        return None


def _print(definition: Mapping[str, Any]) -> str:
    try:
        return fingerprint(Domain.TOOL, canonical(definition))
    except InvalidInputError as error:
        return str(error)


def _filled(value: object) -> frozenset[str] | None:
    """Return a list of names as a set; an empty or missing list says nothing."""
    return frozenset(names(value)) or None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
