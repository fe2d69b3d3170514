"""OpenAI Chat Completions."""

from capstate.providers._openai_wire import chat as on_wire
from capstate.providers._openai_wire import chat_marks as marks

__all__ = ["marks", "on_wire"]
