"""One running call of a server: its task, and its progress.

The SDK passes no such value through, so a context variable does: the calling trio task sets it, and
every task that the SDK starts for the call inherits it.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

import trio

from orchestrator.agents import AssistantMessage, CallId, Message


class Caller(Protocol):
    """The task on whose behalf a server is called, as far as the server may ask it anything."""

    async def sample(
        self, instructions: str, messages: Sequence[Message], max_output: int
    ) -> AssistantMessage:
        """Ask the model of the task, which pays for it; raise `ToolError` if it cannot be asked."""
        ...

    async def ask_person(
        self, call: CallId, tool: str, message: str, form: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Ask the person who approves to fill in a JSON schema; None without an answer."""
        ...

    async def note_task(self, call: CallId, server: str, task: str) -> None:
        """Note which task a server has made of a call, and return when that is durable."""
        ...

    def noted_task(self, call: CallId, server: str) -> str:
        """Return the task that a server had made of a call before a crash; empty if none."""
        ...

    @property
    def is_over(self) -> bool:
        """The task of the caller has ended, and is not only interrupted."""
        ...


class ServerCall:
    """A call that is under way."""

    def __init__(self, caller: Caller, call: CallId, tool: str) -> None:
        self.caller: Final = caller
        self.id: Final = call
        self.tool: Final = tool
        self.may_have_run = False
        """The server may have got it: it was written, and nothing says that it was refused."""
        self.scope = trio.CancelScope()
        """Ends the wait for the answer. A task of the server moves its deadline."""
        self.samples = 0
        """How often its server has asked the model."""
        self.questions = 0
        """How often its server has asked a person."""

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stop its clock for the block: the server waits for us, and not we for it."""
        left = self.scope.deadline - trio.current_time()
        self.scope.deadline = math.inf
        try:
            yield
        finally:
            self.scope.deadline = trio.current_time() + left


CURRENT: Final[ContextVar[ServerCall | None]] = ContextVar("server call", default=None)


def note_sent() -> None:
    """Note that the call of this context is about to reach its server."""
    if (call := CURRENT.get()) is not None:
        call.may_have_run = True


def note_refused() -> None:
    """Note that the call of this context did not reach its server, for certain."""
    if (call := CURRENT.get()) is not None:
        call.may_have_run = False
