"""What an API can do with tools, in an audit: the profile of its wire form, as the policy corrects it.

Every name is legal here: a recording's names stood on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve

from capstate.capabilities import NameRule
from capstate.epochs import NO_PROFILE
from capstate.errors import InvalidInputError
from capstate.providers import anthropic, openai_chat, openai_responses

if TYPE_CHECKING:
    from capstate.policy import Provider
    from capstate.projection import Profile

_ANY = NameRule(limit=2**53, chars=r"\s\S")
_PROFILES: Mapping[str, Callable[[str], Profile]] = {
    "anthropic-messages": anthropic.profile,
    "openai-responses": openai_responses.profile,
    "openai-codex-responses": partial(openai_responses.profile, api="openai-codex-responses"),
    "openai-completions": openai_chat.profile,
}
_ALIASES = {
    "anthropic": "anthropic-messages",
    "openai": "openai-responses",
    "responses": "openai-responses",
    "chat": "openai-completions",
    "openai-chat": "openai-completions",
    "kimi": "openai-completions",
}
_DEFERRING = {"openai-completions": partial(openai_chat.profile, defers=True)}
"""Where only some hosts defer, and so the plain profile says no."""


def profile(api: str | None, model: str, told: Provider, *, seen: bool | None = None) -> Profile:
    """Return what ``model`` of ``api`` can do.

    Args:
        api: None, or a name that is unknown here, can do nothing.
        model: empty for any.
        told: what the policy says; it wins where it speaks of this API and model.
        seen: whether request bodies show that definitions are deferred; None where there are none.
    """
    plain = _PROFILES.get(api or "", lambda _: NO_PROFILE)
    known = (_DEFERRING.get(api or "", plain) if seen else plain)(model)
    if told.api in (None, api) and (not model or told.model in (None, model)):
        defers = known.defers if told.defers is None else told.defers
        needs = known.needs_immediate if told.needs_immediate is None else told.needs_immediate
        if told.defers is None and seen is False:
            defers = ""
        return evolve(known, defers=defers, needs_immediate=needs, names=_ANY)
    return evolve(known, defers="" if seen is False else known.defers, names=_ANY)


def told_api(told: Provider) -> str | None:
    """Return the API that a policy speaks of, by its own name or by its provider's; None if it names none."""
    return told.api or _ALIASES.get((told.provider or "").lower().replace("_", "-"))


def named(provider: str, told: Provider) -> Profile:
    """Return what the API, or the provider, that is called ``provider`` can do.

    Raises:
        InvalidInputError: nothing here is called that.
    """
    name = provider.strip().lower().replace("_", "-")
    api = _ALIASES.get(name, name)
    if api not in _PROFILES:
        raise InvalidInputError("provider", "one of " + ", ".join(sorted({*_PROFILES, *_ALIASES})), provider)
    if name == "kimi":
        return evolve(_DEFERRING[api](""), names=_ANY)
    return profile(api, "", told)
