"""How results look on a terminal. Names only, never text of a conversation.

With ``NO_COLOR`` or in a pipe there is no colour; where the output takes no Unicode, marks are ASCII.
"""

from capstate.terminal.page import console
from capstate.terminal.pictures import show_demo
from capstate.terminal.tables import (
    show_audit,
    show_difference,
    show_explained,
    show_matrix,
    show_projection,
    show_rule,
    show_unsettled,
    show_verified,
)

__all__ = [
    "console",
    "show_audit",
    "show_demo",
    "show_difference",
    "show_explained",
    "show_matrix",
    "show_projection",
    "show_rule",
    "show_unsettled",
    "show_verified",
]
