"""The parts of an orchestrator, wired together. No part knows more than it is given here."""

from collections.abc import Callable

import attrs

from delegation import SessionId, TaskId
from orchestrator.acting import Acting
from orchestrator.background import Background
from orchestrator.bookkeeper import Bookkeeper
from orchestrator.delegator import OrchestratorDelegator
from orchestrator.listening import Listeners
from orchestrator.roster import Roster
from orchestrator.turns import Turns


@attrs.frozen(kw_only=True)
class House:
    """What a door needs to let somebody in."""

    book: Bookkeeper
    roster: Roster
    acting: Acting
    delegator: OrchestratorDelegator
    turns: Turns
    listeners: Listeners
    background: Background
    new_session_id: Callable[[], SessionId]
    new_task_id: Callable[[], TaskId]
