"""A clock that people set, a chat, and jobs: what tests of schedules share."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import trio

from orchestrator.agents import Agent, ScriptedModel
from orchestrator.delegation.events import JobOccurred
from orchestrator.kernel.orchestrator import Orchestrator
from orchestrator.schedule import Delivery, Job, Scheduler, open_schedule
from orchestrator.testing import Harness

BERLIN = "Europe/Berlin"
HOUR, DAY = 3600.0, 86_400.0


def local(text: str, zone: str = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


class WallClock:
    """A clock that a person may set; it goes on with trio's."""

    def __init__(self, text: str) -> None:
        self._offset = local(text) - trio.current_time()

    def __call__(self) -> float:
        return trio.current_time() + self._offset

    def move(self, seconds: float) -> None:
        self._offset += seconds

    async def wait_until(self, text: str) -> None:
        await trio.sleep(local(text) - self())


class Chat:
    """A target that keeps what it is sent."""

    def __init__(self, *, refuses: int = 0) -> None:
        self.texts: list[str] = []
        self._refuses = refuses

    async def send(self, delivery: Delivery) -> str:
        await trio.lowlevel.checkpoint()
        if self._refuses:
            self._refuses -= 1
            raise ConnectionError("the line is busy")
        self.texts.append(delivery.text)
        return f"message {len(self.texts)}"


def writer(*answers: str) -> Agent:
    return Agent("writer", model=ScriptedModel.always(answers[0] if answers else "News."))


def brief(schedule: str = "0 8 * * *", agent: Agent | None = None, **given: Any) -> Job:
    job = Job(schedule, agent or writer(), "Write the brief.", zone=BERLIN)
    return attrs.evolve(job, **given)


@asynccontextmanager
async def scheduled(
    harness: Harness,
    jobs: Sequence[Job],
    clock: Callable[[], float],
    chat: Chat | None = None,
    *,
    crash_after: int | None = None,
) -> AsyncGenerator[tuple[Orchestrator, Scheduler]]:
    targets = {"chat": (chat or Chat()).send}
    async with harness.open(crash_after=crash_after) as orchestrator:
        async with open_schedule(orchestrator, jobs, targets=targets, clock=clock) as scheduler:
            yield orchestrator, scheduler


def times_of(harness: Harness, *, skipped: bool = False) -> list[str]:
    return [
        datetime.fromtimestamp(fact.at, ZoneInfo(BERLIN)).strftime("%m-%d %H:%M")
        for fact in harness.facts(JobOccurred)
        if bool(fact.skipped) is skipped
    ]
