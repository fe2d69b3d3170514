"""What the model can call is what is authorised now.

An agent's tools change while it works. At every boundary ``capstate`` re-derives which tools the model may call
from the runtime's own state and from authority as it is now, says where each appears on the provider's wire, writes
a receipt, and refuses at the moment of the call whatever is not on that list.

>>> from capstate import Call, Group, Runtime, Tool, allow
>>> from capstate.ledgers.memory import MemoryLedger
>>> git = Group("git", [Tool("log", effect="read"), Tool("push")])
>>> runtime = Runtime(MemoryLedger(), catalog=lambda: [git], grants={"config": lambda holder: [allow("git/log")]})
>>> with runtime.session("s-42") as session:
...     session.load("git")
...     list(session.reproject("open").surface.callable)
['git/log']
"""

from capstate.authority import Grant, Limits, allow, ask, deny
from capstate.capabilities import Group, Tool
from capstate.epochs import Cause, Epoch
from capstate.errors import CapstateError, InvalidInputError, NeedsApproval, Reason, Refused
from capstate.runtime import Permit, Rules, Runtime, Session
from capstate.trace import Call, Message, Outcome, Role

__all__ = [
    "Call",
    "CapstateError",
    "Cause",
    "Epoch",
    "Grant",
    "Group",
    "InvalidInputError",
    "Limits",
    "Message",
    "NeedsApproval",
    "Outcome",
    "Permit",
    "Reason",
    "Refused",
    "Role",
    "Rules",
    "Runtime",
    "Session",
    "Tool",
    "allow",
    "ask",
    "deny",
]
