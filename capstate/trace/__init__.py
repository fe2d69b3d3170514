"""The tool-trace protocol: typed messages first, text second."""

from capstate.trace.assemble import Assembler
from capstate.trace.check import Accepts, Fault, FaultKind, check, check_accepted
from capstate.trace.compact import Compaction, Strategy, characters, compact
from capstate.trace.cut import first_kept
from capstate.trace.eligible import Facts, Held, Kept
from capstate.trace.form import from_json, to_json
from capstate.trace.messages import Call, Key, Message, OutcomeName, Role
from capstate.trace.outcomes import Outcome, Risk, Row
from capstate.trace.repair import Repair, Repaired, RepairRow, repair
from capstate.trace.snapshot import Candidate, Choice, Cite, Known, Refers, Violation, choose, violations
from capstate.trace.summaries import Slots, Summarise, extract
from capstate.trace.trigger import Policy, State, Verdict, trigger

__all__ = [
    "Accepts",
    "Assembler",
    "Call",
    "Candidate",
    "Choice",
    "Cite",
    "Compaction",
    "Facts",
    "Fault",
    "FaultKind",
    "Held",
    "Kept",
    "Key",
    "Known",
    "Message",
    "Outcome",
    "OutcomeName",
    "Policy",
    "Refers",
    "Repair",
    "RepairRow",
    "Repaired",
    "Risk",
    "Role",
    "Row",
    "Slots",
    "State",
    "Strategy",
    "Summarise",
    "Verdict",
    "Violation",
    "characters",
    "check",
    "check_accepted",
    "choose",
    "compact",
    "extract",
    "first_kept",
    "from_json",
    "repair",
    "to_json",
    "trigger",
    "violations",
]
