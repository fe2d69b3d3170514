"""Pi's session files: every format that the agent or its harness has written.

:func:`read_session` reads a file, :meth:`Session.walk` the path of a leaf, :func:`boundary` what is still seen,
:func:`events` which tools were loaded, unloaded or removed on the path, :func:`find_sessions` where files may be.
"""

from capstate.agents.pi.entries import CallSeen, Entry, Said
from capstate.agents.pi.events import Event, EventKind, EventReader, events, record_after, recorded
from capstate.agents.pi.places import find_sessions
from capstate.agents.pi.session import Boundary, Session, boundary, identity, read_session
from capstate.agents.pi.trace import broken_trace

__all__ = [
    "Boundary",
    "CallSeen",
    "Entry",
    "Event",
    "EventKind",
    "EventReader",
    "Said",
    "Session",
    "boundary",
    "broken_trace",
    "events",
    "find_sessions",
    "identity",
    "read_session",
    "record_after",
    "recorded",
]
