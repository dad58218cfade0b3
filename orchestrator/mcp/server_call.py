"""One call of a server that is under way: on whose behalf, and how far it has come.

The SDK passes no such thing through, so a context variable does: it is set in the trio task that
calls, and what the SDK starts for the call inherits it.
"""

from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Protocol

import trio

from agents import CallId


class Caller(Protocol):
    """The task on whose behalf a server is called, as far as the server may ask it anything."""

    @property
    def root(self) -> Path:
        """The workspace of the task."""
        ...

    async def sample(self, params: Any) -> Any:
        """Answer `sampling/createMessage` with the model of the task, which pays for it."""
        ...

    async def elicit(self, call: CallId, message: str, schema: Any) -> Any:
        """Ask the person who approves; None if none can be asked."""
        ...


class ServerCall:
    """A call that is under way."""

    def __init__(self, caller: Caller | None, call: CallId) -> None:
        self.caller = caller
        self.id = call
        self.may_have_run = False
        """The server may have got it: it was written, and nothing says that it was refused."""
        self.scope = trio.CancelScope()
        """Ends the wait for the answer. A task of the server moves its deadline."""


CURRENT: Final[ContextVar[ServerCall | None]] = ContextVar("server call", default=None)


def note_sent() -> None:
    """Note that the call of this context is about to reach its server."""
    if (call := CURRENT.get()) is not None:
        call.may_have_run = True


def note_refused() -> None:
    """Note that the call of this context did not reach its server, for certain."""
    if (call := CURRENT.get()) is not None:
        call.may_have_run = False
