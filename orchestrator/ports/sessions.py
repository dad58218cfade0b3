"""Sessions: their doors, requests, runs and budgets, and the orchestrator itself."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from orchestrator.kernel.budget_scope import budget, current_grants, use_grants
from orchestrator.kernel.doors import session, streamed_run
from orchestrator.kernel.doors.approvals import ApprovalQuestions, answer_question
from orchestrator.kernel.doors.door_state import DoorState
from orchestrator.kernel.doors.durable_run import OtherJournals, goal_key
from orchestrator.kernel.doors.fork_state import ForkState, run_fork
from orchestrator.kernel.doors.inbound import (
    InboundRequest,
    goal_message,
    search_parts_ahead,
    search_request_ahead,
    texts_of,
    with_client_tools,
    with_language_model,
)
from orchestrator.kernel.doors.kept import NO_PUSHES, KeptDoor, KeptOpen, Push
from orchestrator.kernel.doors.one_shot import (
    OnChange,
    Run,
    ended_run,
    open_one_turn,
    require_resumable,
    run_once,
    take_only_turn,
)
from orchestrator.kernel.doors.request import RequestDoor
from orchestrator.kernel.doors.run_events import (
    ApprovalNeeded,
    ModelRetried,
    ReasoningWritten,
    RunEvent,
    RunEvents,
    TaskDelegated,
    TaskEnded,
    TextReplaced,
    TextWritten,
    ToolCalled,
    ToolReturned,
    open_events,
)
from orchestrator.kernel.doors.session import Session, open_session
from orchestrator.kernel.engine.deliveries import Deliveries
from orchestrator.kernel.engine.scheduler_slot import JobAction, JobEdit
from orchestrator.kernel.execution.agent_registry import ChangeAgent
from orchestrator.kernel.history import ForkTerms
from orchestrator.kernel.journal.session_summary import is_over
from orchestrator.kernel.opened_engine import open_engine, random_task_id
from orchestrator.kernel.orchestrator import Orchestrator
from orchestrator.kernel.pipelines.child import ended_with_caller
from orchestrator.kernel.sessions import Sessions
