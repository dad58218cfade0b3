"""The rules of delegation: pure data and functions.

Nothing here waits, does I/O or reads a clock. These modules are imported by their own names:
`events` (the facts), `session_kind` (the kinds of sessions), `session_state` (the states that
products keep in them), `session_context` (the variables for tools), `schedule` (the times of jobs)
and `job_tool` (the tool that sets jobs).
"""

from orchestrator.delegation.answer_terms import NO_TERMS, AnswerTerms
from orchestrator.delegation.budget import Account, OverBudgetError, Reserved, fits_budget
from orchestrator.delegation.errors import (
    DelegationError,
    ImpossibleEventError,
    UnreadableFactError,
    UnwritableFactError,
)
from orchestrator.delegation.events.codec import Encoded, decode, encode
from orchestrator.delegation.ledger.idle_sessions import (
    decode_used_amounts,
    encode_shared_use,
    evict_session,
    register_idle_session,
    restore_session,
)
from orchestrator.delegation.ledger.ledger import Ledger
from orchestrator.delegation.ledger.session_record import Reply, SessionRecord
from orchestrator.delegation.ledger.slots import Slots
from orchestrator.delegation.ledger.task_record import Children, TaskRecord
from orchestrator.delegation.notices import TaskNotice, share_per_result, usd
from orchestrator.delegation.policy import (
    Decision,
    Detach,
    Join,
    Refuse,
    decide,
    in_dependency_order,
)
from orchestrator.delegation.rules import Rules
from orchestrator.delegation.task import (
    SHARED_BUDGET_PREFIX,
    Cause,
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
from orchestrator.delegation.tools.ask_parent import ASK_PARENT, ask_parent_tool, asked_transcript
from orchestrator.delegation.tools.delegate_task import call_key, delegate_tool
from orchestrator.delegation.tools.delegator_port import Assignment, Delegator, Receipt
from orchestrator.delegation.tools.results import (
    dispatched_answer,
    joined_answer,
    readable_characters,
    task_result,
    unmet_dependency,
)
from orchestrator.delegation.tools.task_control import control_tool
from orchestrator.delegation.tree.node import TaskNode
from orchestrator.delegation.tree.safe_text import one_line, printable
from orchestrator.delegation.tree.tree import Tree

__all__ = [
    "ASK_PARENT",
    "NO_TERMS",
    "SHARED_BUDGET_PREFIX",
    "Account",
    "AnswerTerms",
    "Assignment",
    "Cause",
    "Children",
    "Decision",
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
    "Rules",
    "SessionId",
    "SessionRecord",
    "Slots",
    "Status",
    "TaskId",
    "TaskNode",
    "TaskNotice",
    "TaskRecord",
    "TaskRequest",
    "Tree",
    "UnreadableFactError",
    "UnwritableFactError",
    "ask_parent_tool",
    "asked_transcript",
    "call_key",
    "control_tool",
    "decide",
    "decode",
    "decode_used_amounts",
    "delegate_tool",
    "dispatched_answer",
    "encode",
    "encode_shared_use",
    "evict_session",
    "fits_budget",
    "in_dependency_order",
    "joined_answer",
    "one_line",
    "printable",
    "readable_characters",
    "register_idle_session",
    "restore_session",
    "root_of",
    "share_per_result",
    "task_result",
    "unmet_dependency",
    "usd",
]
