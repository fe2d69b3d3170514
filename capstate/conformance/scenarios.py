"""The nine lifecycle scenarios as scripts: what a person, a model, an operator and a provider do, turn by turn.

A script says nothing about what a design should answer: :mod:`capstate.conformance.truth` derives that from the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from attrs import frozen

from capstate.conformance.world import PROFILES

Do = Literal["turn", "compact", "switch", "shrink", "deny", "down", "up", "restart", "spawn", "fork", "move"]


@frozen
class Step:
    """One thing that happens.

    Attributes:
        session: to which session.
        label: of a turn, its name, to point at it later.
        calls: of a turn, what the model proposes in one batch: a tool, a tool with the group that it is about, or a
            step that happens before the next call starts.
        on: selectors that the step is about.
        to: of a switch, the profile.
        at: the label of a turn: what a compaction keeps from, where a fork or a move goes to.
        how: of a compaction ``semantic`` or ``native``; of a restart ``close`` or ``crash``.
        name: of a child or fork, its session id.
        legacy: of a turn, loads are known by their call alone, as in old formats.
    """

    do: Do
    session: str = "main"
    label: str = ""
    calls: tuple[str | tuple[str, str] | Step, ...] = ()
    on: tuple[str, ...] = ()
    to: str = ""
    at: str | None = None
    how: str = ""
    name: str = ""
    legacy: bool = False


Script = tuple[Step, ...]


@frozen
class Scenario:
    """One row of the matrix.

    Attributes:
        title: what happens.
        scripts: returns the scripts for a provider profile; none if the row does not apply to it.
        recorded: folders of recordings that show it, with the turns that belong to it (None: all).
    """

    id: str
    title: str
    scripts: Callable[[str], Sequence[Script]]
    recorded: Mapping[str, tuple[int, ...] | None]


def turn(*calls: str | tuple[str, str] | Step, label: str = "", session: str = "main", legacy: bool = False) -> Step:
    """Return a turn: the person speaks, a request goes out, the model answers with these calls."""
    return Step("turn", session, label, calls, legacy=legacy)


def load(group: str, *, session: str = "main", legacy: bool = False) -> Step:
    """Return a turn in which the model loads a group; it is labelled by it."""
    return turn(("load_tools", group), label=group, session=session, legacy=legacy)


def compact(keep: str | None = None, how: str = "semantic", session: str = "main") -> Step:
    """Return a compaction that keeps the turn ``keep`` and what follows; None keeps nothing."""
    return Step("compact", session, at=keep, how=how)


def _once(*steps: Step) -> Callable[[str], Sequence[Script]]:
    return lambda _: (steps,)


def _switches(*, from_deferring: bool, to_deferring: bool | None) -> Callable[[str], Sequence[Script]]:
    def scripts(profile: str) -> Sequence[Script]:
        if bool(PROFILES[profile].defers) is not from_deferring:
            return ()
        return tuple(
            (
                load("git"),
                turn("git_log"),
                Step("switch", to=other),
                turn("git_blame"),
                turn(("load_tools", "web")),
                turn("web_fetch"),
                Step("switch", to=profile),
                turn("git_log"),
            )
            for other, found in PROFILES.items()
            if other != profile and to_deferring in (None, bool(found.defers))
        )

    return scripts


_REVOKE_WEB = Step("shrink", on=("web/web_search",))
_DENY_BLAME = Step("deny", on=("git/git_blame",))

SCENARIOS: Mapping[str, Scenario] = {
    s.id: s
    for s in (
        Scenario(
            "1",
            "load point kept",
            _once(turn(), load("git"), turn("git_log"), compact("git"), turn("git_log"), turn()),
            {"s01-load-point-retained": None, "s01c-retained-tail-harness-0.83": None, "s01d-v4-storage-0.84.1": None},
        ),
        Scenario(
            "2",
            "load point compacted away",
            _once(turn(), load("git"), turn("git_log"), turn(), compact(), turn("git_log"), turn()),
            {"s02-load-point-compacted": None, "s02c-retained-tail-point-lost-harness-0.83": None},
        ),
        Scenario(
            "3",
            "old pointer-only session",
            _once(
                load("git", legacy=True),
                turn("git_log", legacy=True),
                load("web", legacy=True),
                turn(legacy=True),
                compact("web"),
                turn("git_log", "web_fetch", legacy=True),
                Step("restart", how="close"),
                turn("git_log", "web_fetch", legacy=True),
                turn(legacy=True),
            ),
            {"s03-old-format-reopened": None},
        ),
        Scenario(
            "4",
            "same process goes on",
            _once(
                load("git"),
                turn("git_log"),
                compact(),
                turn("git_blame"),
                load("web"),
                turn("web_fetch"),
                compact(),
                turn("git_log", "web_search"),
                turn(),
            ),
            {"s04-same-process-two-compactions": None},
        ),
        Scenario(
            "5",
            "reopened; restarted",
            _once(
                load("git"),
                turn("git_log"),
                load("web"),
                turn("web_search"),
                Step("restart", how="close"),
                _REVOKE_WEB,
                turn("git_log", "web_search"),
                compact(),
                turn("git_blame"),
                Step("restart", how="crash"),
                turn("git_log", "web_fetch"),
            ),
            {
                "s05a-reopen-start-policy-narrow": None,
                "s05b-reopen-no-start-policy": None,
                "s05c-reopen-custom-entry-replay": None,
                "s08f-reload-widens": None,
                "s08g-late-register-reactivates": None,
                "s10a-pi-1.6.0-load-compact-reopen": None,
                "s10b-session-0.84.1-opened-by-1.6.0": None,
            },
        ),
        Scenario(
            "6a",
            "semantic, one point kept",
            _once(load("git"), turn("git_log"), load("web"), compact("web"), turn("git_blame", "web_fetch"), turn()),
            {"s02b-one-point-compacted-one-kept": None, "s06b-semantic-on-responses": None},
        ),
        Scenario(
            "6b",
            "provider's own compaction",
            _once(
                load("git"),
                turn("git_log"),
                load("web"),
                _DENY_BLAME,
                compact("web", how="native"),
                turn("git_log", "git_blame", "web_fetch"),
                compact(how="native"),
                turn("git_log"),
            ),
            {"s06-opaque-item-from-extension": None},
        ),
        Scenario(
            "7a",
            "deferring to deferring",
            _switches(from_deferring=True, to_deferring=True),
            {"s07-provider-switch": (11, 12, 14)},
        ),
        Scenario(
            "7b",
            "deferring to plain",
            _switches(from_deferring=True, to_deferring=False),
            {"s07-provider-switch": (5, 7, 9)},
        ),
        Scenario(
            "7c",
            "plain to any other",
            _switches(from_deferring=False, to_deferring=None),
            {"s07-provider-switch": (6, 8, 10)},
        ),
        Scenario(
            "8a",
            "shrink, then compaction",
            _once(
                load("git"),
                load("web"),
                turn("git_blame", "web_search"),
                _DENY_BLAME,
                _REVOKE_WEB,
                compact("git"),
                turn("git_blame", "web_search", "git_log"),
                turn(),
            ),
            {"s08a-revoke-before-compaction": None},
        ),
        Scenario(
            "8b",
            "compaction, then shrink",
            _once(
                load("git"),
                load("web"),
                compact(),
                turn("git_log", _REVOKE_WEB, "web_search", _DENY_BLAME, "git_blame"),
                turn("web_search", "git_blame"),
                compact(),
                turn("git_blame", "git_log"),
            ),
            {
                "s08b-revoke-then-reopen": None,
                "s08d-revoke-inside-one-batch": None,
                "s08e-regrant-stale-load-point": None,
                "s08h-two-loaders-and-a-drop-in-one-batch": None,
            },
        ),
        Scenario(
            "8c",
            "resource lost, back, lost",
            _once(
                load("git"),
                load("web"),
                turn("web_fetch"),
                Step("down", on=("web",)),
                compact(),
                turn("web_fetch", "git_log"),
                Step("up", on=("web",)),
                turn("web_fetch"),
                compact(),
                turn("git_log", Step("down", on=("git",)), "git_blame"),
                turn("git_log", "web_search"),
            ),
            {"s08c-resource-removed-at-reopen": None},
        ),
        Scenario(
            "9a",
            "parent after child's load",
            _once(
                load("git"),
                Step("spawn", name="child", on=("base/*", "git/*", "web/*")),
                load("web", session="child"),
                turn("web_fetch", session="child"),
                turn("git_log", "web_fetch"),
                turn(),
            ),
            {"s09c-child-process": (1, 2, 3, 4)},
        ),
        Scenario(
            "9b",
            "child as parent shrinks",
            _once(
                load("git"),
                Step("spawn", name="child", on=("base/*", "git/*", "web/web_fetch")),
                turn("git_log", "web_fetch", session="child"),
                turn(("load_tools", "deploy"), session="child"),
                turn("deploy_prod", session="child"),
                turn(_DENY_BLAME, "git_log"),
                turn("git_blame", "git_log", session="child"),
                turn(session="child"),
            ),
            {"s09c-child-process": (5, 6, 7, 8, 9, 10)},
        ),
        Scenario(
            "9c",
            "fork; branch move",
            _once(
                load("git"),
                load("web"),
                turn("git_blame", "web_fetch"),
                Step("shrink", on=("git/git_blame",)),
                Step("fork", name="fork", at="git"),
                turn("git_log", "git_blame", "web_fetch", session="fork"),
                Step("move", at="git"),
                turn("git_log", "web_fetch"),
                Step("move", at="web"),
                turn("web_fetch"),
            ),
            {
                "s09a-fork-and-clone": None,
                "s09b-tree-branch-same-process": None,
                "s09d-clone-loses-kept-range-at-label": None,
                "s10c-pi-1.6.0-tree-navigation": None,
            },
        ),
    )
}
"""The rows of the matrix by id."""


def segments(script: Script) -> list[Script]:
    """Return the script cut at its restarts: each part is one process."""
    parts: list[list[Step]] = [[]]
    for step in script:
        parts[-1].append(step)
        if step.do == "restart":
            parts.append([])
    return [tuple(part) for part in parts]
