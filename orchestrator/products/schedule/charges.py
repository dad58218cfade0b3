"""Who pays for the runs of jobs: what a server or a gateway knows of the owner of a session."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from orchestrator.delegation import SessionRecord
from orchestrator.delegation.session_state import SessionState
from orchestrator.kernel.errors import OrchestratorError

Charge: TypeAlias = Callable[[SessionRecord, bool], AbstractContextManager[None]]
"""Charges what is begun in the block to who pays for the jobs of a session: a new run, or with True
a turn of the session itself. It raises an `UnpaidError` if that cannot be. No checkpoint may be in
the block."""
Inherit: TypeAlias = Callable[[SessionRecord], tuple[SessionState, ...]]
"""Returns the states that a run of a job has from the session of the job."""


class UnpaidError(OrchestratorError):
    """Who pays for a run has used up what they may use, or is not there any more."""


def charge_no_one(session: SessionRecord, goes_on: bool) -> AbstractContextManager[None]:
    """Let the operator pay."""
    del session, goes_on
    return nullcontext()


def inherit_nothing(session: SessionRecord) -> tuple[SessionState, ...]:
    """Return no state: the operator pays."""
    del session
    return ()
