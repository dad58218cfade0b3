"""Fault injection: models, tools and doors that fail on request."""

from collections.abc import Iterable

import attrs
import trio

from orchestrator.agents import Model, Tool, ToolCall
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.delegation import Reply
from orchestrator.kernel.doors.session import Session
from orchestrator.testing.models import FailingModel, Fault


def faulty(
    model: Model, faults: Iterable[Fault], *, retry_after: float | None = None
) -> FailingModel:
    """Return a `FailingModel`: the first calls fail with these faults, later ones succeed.

    A fault fails its task, as with any `Model` object. To retry, wrap the model:
    `orchestrator.models.with_retries(faulty(...))`.

    Args:
        model: the model that answers calls without a fault.
        faults: the faults, one for each call, in order.
        retry_after: the seconds in the Retry-After header of a 429.
    """
    return FailingModel(faults, model, retry_after=retry_after)


def slow(tool: Tool, seconds: float) -> Tool:
    """Return a tool that takes this many seconds longer."""

    async def run(call: ToolCall) -> str | ToolResult:
        await trio.sleep(seconds)
        return await tool.run(call)

    return attrs.evolve(tool, run=run)


class DroppingDoor:
    """A door whose first deliveries fail, like a webhook whose server is down.

    It wraps the door of a session, which receives the later deliveries.
    """

    def __init__(self, session: Session, times: float) -> None:
        self.capability = session.capability
        self._session = session
        self._times = times
        self.attempts: list[float] = []
        """The time of each attempt, in seconds of trio's clock."""

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        self.attempts.append(trio.current_time())
        if len(self.attempts) <= self._times:
            raise OSError("the line is dead")
        await self._session.deliver(reply)

    def disconnect(self) -> None:
        self._session.disconnect()


def drop_deliveries(session: Session, times: float) -> DroppingDoor:
    """Fail the next deliveries to a session this many times; `math.inf` fails all of them."""
    door = DroppingDoor(session, times)
    deliveries = session._sessions.deliveries  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    deliveries.detach(session.id)
    deliveries.attach(session.id, door)
    return door
