"""A run of the matrix as lines: first what was fixed, then one line a turn.

Cache figures are as a provider reported them. The replies here are scripted, so nothing was reported, and every figure
is ``unknown``; it is never 0.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from capstate.conformance.world import PROFILES, groups
from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import InvalidInputError
from capstate.usage import Kind, Reading, Usage, compare, prefix

if TYPE_CHECKING:
    from capstate.conformance.matrix import Result, Turn

_PACKAGES = ("capstate", "attrs", "blake3", "cattrs", "orjson", "rfc8785")


def manifest(result: Result) -> dict[str, Any]:
    """Return what a run fixed: versions, profiles with their models, cache key, tool groups, and what was played."""
    played = {profile for _, _, profile, _ in result.turns}
    return {
        "cache_key": None,
        "designs": sorted({design for _, design, _, _ in result.turns}),
        "format": 1,
        "groups": {
            group.id: {
                "fingerprint": group.fingerprint,
                "tools": [d.tool.wire_name for d in group.definitions.values()],
            }
            for group in groups()
        },
        "profiles": {
            id_: {
                "account": p.issuer.account,
                "api": p.issuer.api,
                "defers": p.defers,
                "model": p.issuer.model,
                "provider": p.issuer.provider,
            }
            for id_, p in PROFILES.items()
            if id_ in played
        },
        "replies": "scripted",
        "scenarios": [row.scenario.id for row in result.rows],
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def lines(result: Result) -> Iterator[dict[str, Any]]:
    """Give the manifest, then one line a turn."""
    yield {"manifest": manifest(result)}
    for (scenario, design, profile, script), turns in result.turns.items():
        key = {"scenario": scenario, "design": design, "profile": profile, "script": script}
        last: dict[str, tuple[Turn, Reading, str | None]] = {}
        spans: dict[str, int] = {}
        for turn in turns:
            session = turn.seen.session
            before = last.get(session)
            spans[session] = spans.get(session, 0) + (turn.expected.boundary is not None)
            if turn.expected.boundary in ("semantic", "native"):
                yield {**key, **_compaction(turn), "cache": _cache(None, Reading(spans[session], kind=Kind.COMPACTION))}
            reading = _reading(turn, spans[session])
            receipts = turn.seen.receipts
            surface = receipts[-1]["surface"] if receipts else before[2] if before is not None else None
            yield {**key, **_line(turn, before[0] if before is not None else None), "surface": surface} | {
                "cache": _cache(before[1] if before is not None else None, reading)
            }
            last[session] = turn, reading, surface


def _reading(turn: Turn, span: int) -> Reading:
    body = turn.seen.body
    messages = body.get("messages", body.get("input")) or [None]
    tools = [body.get("tools") or [], body.get("system") or []]
    return Reading(
        span,
        Usage(),
        tools=fingerprint(Domain.WIRE, canonical(tools)),
        head=fingerprint(Domain.WIRE, canonical(messages[0])),
    )


def _cache(before: Reading | None, now: Reading) -> dict[str, Any]:
    figures = {"read": now.usage.read, "write": now.usage.write, "uncached": now.usage.uncached}
    told = {name: "unknown" if value is None else value for name, value in figures.items()}
    return {**told, "span": now.span, "comparison": str(compare(before, now)), "prefix": str(prefix(before, now))}


def _compaction(turn: Turn) -> dict[str, Any]:
    """Return the line of the compaction itself: its tokens are never those of the turn behind it."""
    seen, due = turn.seen, turn.expected
    boundary = {"kind": due.boundary, "first_kept": due.first_kept}
    return {"kind": "compaction", "session": seen.session, "before_turn": seen.turn, "boundary": boundary}


def _line(turn: Turn, before: Turn | None) -> dict[str, Any]:
    seen, due = turn.seen, turn.expected
    came = turn.wire - (before.wire if before is not None else frozenset())
    restored = due.boundary in ("close", "crash", "restart", "fork", "child")
    return {
        "kind": "turn",
        "turn": seen.turn,
        "session": seen.session,
        "provider": seen.profile,
        "process": seen.process,
        "loaded": sorted(due.loaded),
        "active": sorted(turn.wire),
        "immediate": list(turn.immediate),
        "deferred": dict(turn.deferred),
        "added": {"names": sorted(came), "item": PROFILES[seen.profile].defers if came & turn.deferred.keys() else ""},
        "boundary": {"kind": due.boundary, "first_kept": due.first_kept} if due.boundary is not None else None,
        "authority": {
            "before": sorted(before.expected.loaded & before.expected.authorised) if before is not None else None,
            "after": sorted(due.loaded & due.authorised),
        }
        if restored
        else None,
        "receipts": [
            {name: receipt[name] for name in ("digest", "cause", "kinds", "reasons", "changes", "withheld")}
            for receipt in seen.receipts
        ],
        "calls": [[tool, "ran" if did else "refused"] for tool, did in seen.calls],
        "lost": sorted(turn.lost),
        "widened": sorted(turn.widened),
        "ran": sorted(turn.ran),
        "unexplained": sorted(turn.unexplained),
    }


def text(result: Result) -> Iterable[str]:
    """Give the lines as JSON."""
    return (json.dumps(line, ensure_ascii=False, sort_keys=True) for line in lines(result))


def comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Refuse to compare two runs that did not fix the same things.

    Raises:
        InvalidInputError: the manifests differ; the error names where.
    """
    differing = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    if differing:
        raise InvalidInputError("manifests", "the same in every field", "differing " + ", ".join(differing))
