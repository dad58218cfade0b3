"""A lead that calls the tool `task`, and what a test reads of it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import trio

from orchestrator import MemoryJournal, Session, open_orchestrator
from orchestrator.agents import Agent, Message, ModelRequest, ToolCall, UserMessage
from orchestrator.delegation import Mode
from orchestrator.delegation.events import (
    Entry,
    MessageReceived,
    TaskRequested,
    TaskSettled,
    ToolAnswered,
    TurnStarted,
)
from orchestrator.testing import SpyModel
from tests.kit import FunctionModel, dispatched, facts, hand_on, tool_answers


def control(action: str, *ids: str, **more: Any) -> ToolCall:
    """Return the call by which a model looks after its tasks."""
    named = {"ids": list(ids)} if ids else {}
    return ToolCall("task", {"action": action, **named, **more})


class Lead(SpyModel):
    """Follows a script of steps, and shows what it has read by its last call."""

    def __init__(self, *steps: Any) -> None:
        super().__init__([*steps, *["end"] * 5], name="lead")

    @property
    def answers(self) -> list[Any]:
        """The answers of its tools."""
        return tool_answers(self._transcript)

    @property
    def notices(self) -> list[str]:
        """The notices about tasks that have settled."""
        return [text for text in self.mail if text.startswith("A task that you")]

    @property
    def mail(self) -> list[str]:
        """The messages that are no answers of tools."""
        return [it.text for it in self._transcript if isinstance(it, UserMessage)]

    @property
    def receipts(self) -> list[list[str]]:
        """The receipts of each call that steered tasks."""
        return [
            list(answer["receipts"].values())
            for answer in self.answers
            if isinstance(answer, dict) and "receipts" in answer
        ]

    @property
    def _transcript(self) -> Sequence[Message]:
        return self.requests[-1].transcript if self.requests else ()


def on_each(action: str, **more: Any) -> Any:
    """Return a step that looks after all tasks that were delegated so far."""
    return lambda transcript: control(action, *dispatched(transcript), **more)


def on_the(number: int, action: str, **more: Any) -> Any:
    """Return a step that looks after one of the tasks that were delegated so far."""
    return lambda transcript: control(action, dispatched(transcript)[number], **more)


def sleeper(name: str, *, says: str = "done") -> Agent:
    """Return an agent whose goal is the number of seconds that it takes."""

    async def sleeps(request: ModelRequest) -> str:
        goal = request.transcript[0].text
        await trio.sleep(float(goal))
        return f"{says} {goal}"

    return Agent(name, model=FunctionModel(sleeps))


async def hold(lead: Agent, journal: MemoryJournal | None = None) -> Session:
    """Ask a session once, and wait until all is quiet."""
    async with open_orchestrator(MemoryJournal() if journal is None else journal) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()
    return session


def background(*goals: str, agent: str = "") -> ToolCall:
    return hand_on(*goals, agent=agent, background=True)


def mail_read(entries: Sequence[Entry]) -> Counter[int]:
    """Return how often each piece of mail was read, be it in a turn or in an answer."""
    return Counter(
        seq
        for entry in entries
        if isinstance(entry.event, TurnStarted | ToolAnswered)
        for seq in entry.event.mail
    )


def mail_in(entries: Sequence[Entry]) -> Counter[int]:
    """Return everything that a session must be told."""
    detached = {
        fact.request.id for fact in facts(entries, TaskRequested) if fact.mode is Mode.DETACHED
    }
    return Counter(
        entry.seq
        for entry in entries
        if isinstance(entry.event, MessageReceived)
        or (isinstance(entry.event, TaskSettled) and entry.event.task in detached)
    )
