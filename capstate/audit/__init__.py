"""Judges recordings: what the model could call, what it should have been able to call, and what ran.

:func:`audit_paths` reads files and folders, :func:`audit` judges what was read, :func:`project_session` says what
belongs on the wire at one leaf of a session. All of it is analysis of a transcript (``loads_from: transcript``):
nothing found here is a load or a grant in a runtime.
"""

from capstate.audit.judge import Material, audit
from capstate.audit.paths import audit_paths, gather, require
from capstate.audit.project import project_session
from capstate.audit.should import Should

__all__ = ["Material", "Should", "audit", "audit_paths", "gather", "project_session", "require"]
