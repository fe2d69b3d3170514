"""The tool-trace protocol: typed messages first, text second."""

from capstate.trace.check import Fault, FaultKind, check
from capstate.trace.cut import first_kept
from capstate.trace.messages import Call, Message, Outcome, OutcomeName, Role

__all__ = ["Call", "Fault", "FaultKind", "Message", "Outcome", "OutcomeName", "Role", "check", "first_kept"]
