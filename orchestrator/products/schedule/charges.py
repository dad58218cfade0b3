"""Charges for the runs of jobs: a server or a gateway decides who pays for a session."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from orchestrator.delegation import SessionRecord
from orchestrator.delegation.session_state import SessionState
from orchestrator.ports.errors import OrchestratorError

Charge: TypeAlias = Callable[[SessionRecord, bool], AbstractContextManager[None]]
"""Charges work that begins in the block to the payer of a session's jobs: a new run, or with True a
turn of the session itself. It raises an `UnpaidError` if the payer cannot pay. The block must not
contain a checkpoint.
"""
Inherit: TypeAlias = Callable[[SessionRecord], tuple[SessionState, ...]]
"""Returns the states that a run of a job has from the session of the job."""


class UnpaidError(OrchestratorError):
    """The payer of a run has used up their limit, or no longer exists."""


def charge_no_one(session: SessionRecord, goes_on: bool) -> AbstractContextManager[None]:
    """Let the operator pay."""
    del session, goes_on
    return nullcontext()


def inherit_nothing(session: SessionRecord) -> tuple[SessionState, ...]:
    """Return no state: the operator pays."""
    del session
    return ()
