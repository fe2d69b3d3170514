"""What belongs on the wire at one leaf of a session, from the loads that its file names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from capstate.agents.pi import Entry, boundary, events, read_session, recorded
from capstate.audit.known import Names, Who
from capstate.audit.should import Loads
from capstate.audit.wires import named, profile, told_api

if TYPE_CHECKING:
    from pathlib import Path

    from capstate.policy import Policy
    from capstate.projection import Profile


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
    names = Names(policy)
    resident = frozenset(policy.expand(policy.resident or ()))
    loads = Loads(names, resident)
    loads.follow(happened)
    known = {*resident, *(n for members in policy.groups.values() for n in members), *(recorded(walked) or ())}
    should = loads.should(
        known,
        Who(names, None),
        retained=boundary(walked).retained,
        profile=_profile(walked, policy, provider),
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


def _profile(walked: Sequence[Entry], policy: Policy, provider: str | None) -> Profile:
    if provider is not None:
        return named(provider, policy.provider)
    used = [e.said.api for e in walked if e.said is not None and e.said.role == "assistant" and e.said.api]
    return profile(told_api(policy.provider) or (used[-1] if used else None), "", policy.provider)
