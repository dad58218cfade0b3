"""Faults to order: models, tools and doors that fail when a test asks for it."""

from collections.abc import Iterable

import attrs
import trio

from agents import Model, Tool, ToolCall
from agents.tools.result_text import ToolResult
from delegation import Reply
from orchestrator.doors.session import Session
from orchestrator.testing.models import FailingModel, Fault


def faulty(
    model: Model, faults: Iterable[Fault], *, retry_after: float | None = None
) -> FailingModel:
    """Return a `FailingModel`: the first calls meet these faults, one each; later ones go through.

    A fault ends its task, as it does for any `Model` that is given to an agent. With
    `agents.models.wrappers.retry.retrying(faulty(...))` the model is called again.

    Args:
        model: what answers where there is no fault.
        faults: what the calls meet, in the order in which they come.
        retry_after: what a 429 asks for, in seconds.
    """
    return FailingModel(faults, model, retry_after=retry_after)


def slow(tool: Tool, seconds: float) -> Tool:
    """Return a tool that takes that many seconds longer."""

    async def run(call: ToolCall) -> str | ToolResult:
        await trio.sleep(seconds)
        return await tool.run(call)

    return attrs.evolve(tool, run=run)


class DroppingDoor:
    """A door whose first deliveries fail, as those of a webhook whose server is down.

    It wraps a session's own door, which gets the later ones.
    """

    def __init__(self, session: Session, times: float) -> None:
        self.capability = session.capability
        self._session = session
        self._times = times
        self.attempts: list[float] = []
        """When each delivery was tried, in seconds of trio's clock."""

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        self.attempts.append(trio.current_time())
        if len(self.attempts) <= self._times:
            raise OSError("the line is dead")
        await self._session.deliver(reply)

    def disconnect(self) -> None:
        self._session.disconnect()


def drop_deliveries(session: Session, times: float) -> DroppingDoor:
    """Fail the next deliveries to a session, that many times; `math.inf` fails them for ever."""
    door = DroppingDoor(session, times)
    deliveries = session._services.deliveries  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    deliveries.detach(session.id)
    deliveries.attach(session.id, door)
    return door
