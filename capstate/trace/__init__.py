"""The tool-trace protocol: typed messages first, text second."""

from capstate.trace.check import Accepts, Fault, FaultKind, check, check_accepted
from capstate.trace.cut import first_kept
from capstate.trace.messages import Call, Message, Role
from capstate.trace.outcomes import Outcome, Risk, Row

__all__ = [
    "Accepts",
    "Call",
    "Fault",
    "FaultKind",
    "Message",
    "Outcome",
    "Risk",
    "Role",
    "Row",
    "check",
    "check_accepted",
    "first_kept",
]
