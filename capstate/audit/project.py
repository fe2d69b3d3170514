"""What belongs on the wire at one leaf of a session, from the loads that its file names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from capstate.agents.pi import Entry, boundary, events, read_session, recorded
from capstate.audit.should import derive
from capstate.audit.turns import DEFERS, authority
from capstate.errors import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path

    from capstate.policy import Policy

_ALIASES = {
    "anthropic": "anthropic-messages",
    "openai": "openai-responses",
    "responses": "openai-responses",
    "chat": "openai-completions",
    "openai-chat": "openai-completions",
}
_KIMI = {"kimi": "system_tools"}


def project_session(
    path: Path | str, policy: Policy, *, leaf: str | None = None, provider: str | None = None
) -> dict[str, Any]:
    """Return ``immediate``, ``deferred``, ``withheld``, ``loaded``, ``loads_from`` and ``damage``.

    Args:
        path: a session file.
        policy: residents, loaders, groups; its allow, ask and deny if it has any, else nothing is withheld for that.
        leaf: an entry; by default where Pi would go on.
        provider: an API or a provider's name; by default the policy's, else that of the last answer on the path.

    Raises:
        InvalidInputError: the file, the leaf or the provider is not there.
        MalformedError: the file is no session.
    """
    session = read_session(path)
    walked = session.walk(leaf)
    happened = events(walked, policy)
    may = authority(policy, None)
    api, defers = _wire(walked, policy, provider)
    resident = policy.expand(policy.resident or ())
    known = {*resident, *(n for names in policy.groups.values() for n in names), *(recorded(walked) or ())}
    known |= {n for event in happened for n in event.names}
    should = derive(
        happened,
        boundary(walked).retained,
        resident=resident,
        names=known,
        exists=known.__contains__,
        available=lambda name: not policy.is_down(name),
        authorised=may,
        defers=bool(defers),
        needs_immediate=api == "anthropic-messages",
    )
    return {
        "immediate": list(should.immediate),
        "deferred": dict(should.deferred),
        "withheld": {name: reason.value for name, reason in should.withheld.items()},
        "loaded": sorted(should.loaded),
        "loads_from": "transcript",
        "damage": [row.to_json() for row in session.damage],
        "unknown": dict(session.unknown),
        "leaf": walked[-1].id if walked else None,
    }


def _wire(walked: Sequence[Entry], policy: Policy, provider: str | None) -> tuple[str | None, str]:
    told = policy.provider
    if provider is not None:
        name = provider.lower().replace("_", "-")
        if name in _KIMI:
            return "openai-completions", _KIMI[name]
        api = _ALIASES.get(name, name)
        if api not in DEFERS:
            raise InvalidInputError("provider", "one of " + ", ".join(sorted({*DEFERS, *_ALIASES, *_KIMI})), provider)
        own = told.defers if told.defers is not None and told.api in (None, api) else None
        return api, DEFERS[api] if own is None else own
    used = [e.said.api for e in walked if e.said is not None and e.said.role == "assistant" and e.said.api]
    last = told.api or (used[-1] if used else None)
    return last, told.defers if told.defers is not None else DEFERS.get(last or "", "")
