"""One running call of a server: its task, and its progress.

The SDK passes no such value through, so a context variable does: the calling trio task sets it, and
every task that the SDK starts for the call inherits it.
"""

import math
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import trio

from orchestrator.agents import CallId
from orchestrator.ports.execution import ServerCaller


class ServerCall:
    """A call that is under way."""

    def __init__(self, caller: ServerCaller, call: CallId, tool: str) -> None:
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
