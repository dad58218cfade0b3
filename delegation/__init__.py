"""The rules of handing work on: pure data and functions.

Nothing here waits, opens, sends or looks at a clock. Doors of their own have the facts
(`delegation.events`), the variables for tools (`delegation.session_context`), and the words of
approvals and of commands (`delegation.events.approvals`, `delegation.events.processes`).
"""

from delegation import import_guard as import_guard  # looks before the others import

# isort: split
from delegation.budget import Account, OverBudgetError, Reserved, has_room_for
from delegation.errors import (
    DelegationError,
    ImpossibleEventError,
    UnreadableFactError,
    UnwritableFactError,
)
from delegation.events.codec import Encoded, decode, encode
from delegation.ledger.idle_sessions import (
    amounts_of,
    forget,
    recall,
    remember_used,
    used_by,
)
from delegation.ledger.ledger import Ledger
from delegation.ledger.records import Children, Reply, SessionRecord, TaskRecord, Turn
from delegation.ledger.slots import Room
from delegation.notices import Completion, usd
from delegation.policy import Detach, Join, Refuse, Verdict, decide, in_order
from delegation.rules import Rules
from delegation.task import (
    SHARED,
    DeliveryCapability,
    Ending,
    Grant,
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
from delegation.tools.delegate_task import (
    Assignment,
    Delegator,
    call_key,
    delegate_tool,
)
from delegation.tools.results import dispatched_answer, joined_answer, readable, unmet
from delegation.tools.task_control import Controller, Receipt, control_tool
from delegation.tree.rows import Row, one_line, printable
from delegation.tree.tree import Tree

__all__ = [
    "SHARED",
    "Account",
    "Assignment",
    "Children",
    "Completion",
    "Controller",
    "DelegationError",
    "Delegator",
    "DeliveryCapability",
    "Detach",
    "Encoded",
    "Ending",
    "Grant",
    "ImpossibleEventError",
    "Join",
    "Ledger",
    "Mode",
    "Origin",
    "Outcome",
    "OverBudgetError",
    "Reason",
    "Receipt",
    "Refuse",
    "Reply",
    "Reserved",
    "Room",
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
    "amounts_of",
    "call_key",
    "control_tool",
    "decide",
    "decode",
    "delegate_tool",
    "dispatched_answer",
    "encode",
    "forget",
    "has_room_for",
    "in_order",
    "joined_answer",
    "one_line",
    "printable",
    "readable",
    "recall",
    "remember_used",
    "root_of",
    "unmet",
    "usd",
    "used_by",
]
