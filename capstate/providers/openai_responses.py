"""OpenAI Responses."""

from capstate.providers._openai_wire import responses as on_wire
from capstate.providers._openai_wire import responses_marks as marks

__all__ = ["marks", "on_wire"]
