"""A small model of who may, from the case's own grants: what the product is compared with, in sets and dicts.

It knows no pins and no resources, so what it allows may be more than what is callable, never less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage


def covers(selector: str, tool: str) -> bool:
    """Whether a selector of a case names a tool."""
    return selector in ("*", tool) or selector == tool.partition("/")[0] + "/*"


def allowed(story: Stage, session: str) -> set[str]:
    """Return what the live grants allow a session now, of the tools that exist."""
    tools = {f"{g['id']}/{t['name']}" for g in story.world["groups"] for t in g["tools"]}
    return {tool for tool in tools if _decide(story, session, tool)}


def _decide(story: Stage, session: str, tool: str) -> bool:
    holder = session
    while holder in story.origins:
        holder = story.origins[holder]
    effects = [
        g["effect"]
        for g in story.pool
        if covers(g["on"], tool)
        and (g["holder"] == session or (g["holder"] == holder and g["lifetime"] == "persistent"))
    ]
    if "deny" in effects:
        return False
    parent = story.parents.get(session)
    if parent is None:
        return bool(effects)
    want = story.wants.get(holder)
    if want is None or parent in story.ended:
        return False
    return any(covers(selector, tool) for selector in want) and _decide(story, parent, tool)
