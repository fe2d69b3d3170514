"""The tool-trace protocol: typed messages first, text second."""

from capstate.trace.messages import Call, Message, Outcome, Role

__all__ = ["Call", "Message", "Outcome", "Role"]
