"""The rules of handing work on: pure data and functions.

Nothing here waits, opens, sends or looks at a clock. The facts have a door of their own,
`delegation.events`.
"""

from delegation import namesake as namesake  # looks before the others import

# isort: split
from delegation.answers import dispatched_answer, joined_answer
from delegation.codec import Encoded, decode, encode
from delegation.errors import (
    DelegationError,
    ImpossibleEventError,
    UnreadableFactError,
    UnwritableFactError,
)
from delegation.ledger import Ledger
from delegation.news import usd
from delegation.policy import Detach, Join, Refuse, Rules, Verdict, decide
from delegation.records import Children, Reply, SessionRecord, TaskRecord, Turn
from delegation.render import Row, one_line, printable
from delegation.task import (
    DeliveryCapability,
    Ending,
    Mode,
    Origin,
    Outcome,
    Reason,
    SessionId,
    Status,
    TaskId,
    TaskRequest,
    root_of,
)
from delegation.tool import Assignment, Delegator, delegate_tool
from delegation.tree import Tree

__all__ = [
    "Assignment",
    "Children",
    "DelegationError",
    "Delegator",
    "DeliveryCapability",
    "Detach",
    "Encoded",
    "Ending",
    "ImpossibleEventError",
    "Join",
    "Ledger",
    "Mode",
    "Origin",
    "Outcome",
    "Reason",
    "Refuse",
    "Reply",
    "Row",
    "Rules",
    "SessionId",
    "SessionRecord",
    "Status",
    "TaskId",
    "TaskRecord",
    "TaskRequest",
    "Tree",
    "Turn",
    "UnreadableFactError",
    "UnwritableFactError",
    "Verdict",
    "decide",
    "decode",
    "delegate_tool",
    "dispatched_answer",
    "encode",
    "joined_answer",
    "one_line",
    "printable",
    "root_of",
    "usd",
]
