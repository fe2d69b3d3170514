"""Anthropic Messages."""

from capstate.providers._anthropic_wire import marks, on_wire

__all__ = ["marks", "on_wire"]
