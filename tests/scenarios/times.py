"""The times of a case that a predicate looks at: states, requests, steps, runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.scenarios.stage import Stage
from tests.scenarios.states import Look, State

Seen = tuple[int, Any]


def during(story: Stage, never: Mapping[str, Any]) -> list[State]:
    first, last = never.get("from_event", -1), never.get("to_event", story.states[-1].n)
    return [state for state in story.states if first <= state.n <= last]


def sessions(state: State, never: Mapping[str, Any]) -> list[str]:
    return [s for s in state.looks if never.get("session", s) == s]


def looks(story: Stage, never: Mapping[str, Any]) -> Iterator[tuple[State, str, Look]]:
    """Every request that was made, once."""
    for state in during(story, never):
        for session in sessions(state, never):
            if session in state.fresh:
                yield state, session, state.looks[session]


def steps(story: Stage, never: Mapping[str, Any]) -> Iterator[tuple[State, State, str]]:
    """Every session before and after an event."""
    for before, after in pairwise(during(story, never)):
        for session in sessions(before, never):
            if session in after.fresh:
                yield before, after, session


def runs_in(story: Stage, never: Mapping[str, Any]) -> list[dict[str, Any]]:
    last = during(story, never)[-1]
    return [run for run in last.spies if run["event"] >= never.get("from_event", -1)]
