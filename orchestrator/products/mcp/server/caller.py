"""The port of those who ask over MCP: whose runs they see, and what their runs are charged to."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import attrs

from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.delegation.session_state import SessionState
from orchestrator.ports.reads import FoundSession
from orchestrator.ports.sessions import InboundRequest, Orchestrator, RequestDoor
from orchestrator.products.history.ports import TreeFormat

Ask: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends a request to fill in a form to a client that waits, and returns the client's answer."""


class RefusedError(Exception):
    """A limit of the caller does not allow a call: nothing was run."""


@attrs.frozen
class OpenJournal:
    """A journal that this process writes, and the door to its sessions."""

    orchestrator: Orchestrator
    door: RequestDoor


@attrs.frozen
class HeldRun:
    """A run to act on, and the journal that has it."""

    session: SessionRecord
    journal: OpenJournal


@attrs.frozen
class RunPage:
    """Some runs of a caller, newest first."""

    runs: Sequence[SessionRecord]
    next: str | None
    """Where the next page begins; None if this is the last one."""


class Caller(Protocol):
    """Who makes one request."""

    @property
    def owner(self) -> str:
        """The owner of the sessions that the request opens; "" is the operator."""
        ...

    @property
    def states(self) -> tuple[SessionState, ...]:
        """The states of the session that the request opens."""
        ...

    @property
    def context(self) -> Mapping[str, str]:
        """The origin of the request, by the names of `session_context`."""
        ...

    @property
    def name(self) -> str:
        """Who answers a question, for people to read."""
        ...

    @property
    def may_read(self) -> bool:
        """Whether the caller may read the trees of its runs."""
        ...

    async def may_approve(self) -> bool:
        """Return whether the caller may approve the calls of tools."""
        ...

    @property
    def ask(self) -> Ask | None:
        """Asks the user of a client that waits for its response; None if it cannot be asked."""
        ...

    @property
    def home(self) -> OpenJournal:
        """The journal of the sessions that the request opens."""
        ...

    def new_run_id(self) -> SessionId:
        """Return an id for a run of the request, which cannot be guessed."""
        ...

    async def take_request(self, request: InboundRequest) -> None:
        """Search the texts of a request for secrets; raise `RefusedError` if one is too long."""
        ...

    def begin_run(self) -> AbstractContextManager[None]:
        """Charge the block, which has no checkpoint, to the caller, or raise `RefusedError`."""
        ...

    def record(self, target: str) -> None:
        """Record in the audit that the request is carried out, beside its first fact."""
        ...

    async def wait_durable(self) -> None:
        """Wait until all that the caller is about to be told survives a crash."""
        ...

    async def read_run(self, run: str) -> FoundSession:
        """Return a run of the caller to read; raise `UnknownIdError` if it has no such run."""
        ...

    async def draw_tree(self, run: str, output_format: TreeFormat) -> str:
        """Return the tree of a run of the caller in a format, or raise `UnknownIdError`."""
        ...

    async def hold_run(self, run: str) -> HeldRun:
        """Return a run of the caller to act on.

        Raises:
            UnknownIdError: the caller has no such run.
            SessionOpenError: another process writes it.
        """
        ...

    async def list_runs(self, after: str | None) -> RunPage:
        """Return a page of the caller's runs; raise `UnknownIdError` if the last one is unknown."""
        ...
