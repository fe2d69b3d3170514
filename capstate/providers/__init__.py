"""The wire forms: one module an API, each a :class:`capstate.projection.Adapter`. No HTTP.

>>> from capstate.providers import for_api
>>> for_api("anthropic-messages").on_wire({"tools": [{"name": "read", "input_schema": {}}]}).immediate
('read',)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from capstate.errors import InvalidInputError
from capstate.providers import anthropic, openai_chat, openai_responses
from capstate.providers._replay import LoadPoint
from capstate.providers._request import detect

if TYPE_CHECKING:
    from capstate.projection import Adapter

__all__ = ["LoadPoint", "anthropic", "detect", "for_api", "openai_chat", "openai_responses"]

_APIS: dict[str, Any] = {
    "anthropic-messages": anthropic,
    "openai-responses": openai_responses,
    "openai-codex-responses": openai_responses,
    "openai-completions": openai_chat,
}


def for_api(api: str) -> Adapter:
    """Return the wire form of ``api``.

    Raises:
        InvalidInputError: no module here speaks it.
    """
    if api not in _APIS:
        raise InvalidInputError("api", "one of " + ", ".join(sorted(_APIS)), api)
    return cast("Adapter", _APIS[api])
