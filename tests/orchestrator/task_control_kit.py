"""A lead that calls the tool `task`, and what a test reads of it."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import trio

from agents import (
    Agent,
    AssistantMessage,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
)
from delegation import Mode
from delegation.events import (
    Entry,
    MessageReceived,
    TaskRequested,
    TaskSettled,
    ToolAnswered,
    TurnStarted,
)
from orchestrator import (
    MemoryJournal,
    Session,
    open_orchestrator,
)
from tests.kit import facts, hand_on


def control(action: str, *ids: str, **more: Any) -> ToolCall:
    """Return the call by which a model looks after its tasks."""
    named = {"ids": list(ids)} if ids else {}
    return ToolCall("task", {"action": action, **named, **more})


def answers(transcript: Transcript) -> list[Any]:
    """Return what tools have answered; what they refused as plain text."""
    return [
        said.text if said.failed else json.loads(said.text)
        for said in transcript
        if isinstance(said, ToolMessage)
    ]


def dispatched(transcript: Transcript) -> list[str]:
    """Return the ids of all tasks that were handed on in the background."""
    return [
        task["task_id"]
        for answer in answers(transcript)
        if isinstance(answer, dict) and answer.get("status") == "dispatched"
        for task in answer["tasks"]
    ]


class Lead:
    """A model that plays a script of functions, and remembers what it has read."""

    name = "lead"

    def __init__(self, *steps: Any) -> None:
        self._model = ScriptedModel([*steps, *["end"] * 5])
        self.read: list[Any] = []
        """The answers of its tools."""
        self.told: list[str] = []
        """What it was told by anybody but its tools."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.read = answers(request.transcript)
        self.told = [
            said.text for said in request.transcript if isinstance(said, UserMessage)
        ]
        return await self._model.answer(request)

    @property
    def news(self) -> list[str]:
        return [text for text in self.told if text.startswith("A task that you")]


def on_each(action: str, **more: Any) -> Any:
    """Return a step that looks after all tasks that were handed on so far."""
    return lambda transcript: control(action, *dispatched(transcript), **more)


def on_the(number: int, action: str, **more: Any) -> Any:
    """Return a step that looks after one of the tasks that were handed on so far."""
    return lambda transcript: control(action, dispatched(transcript)[number], **more)


def paused(name: str, *pauses: float, says: str = "done") -> Agent:
    """Return an agent that takes its time, the longer the later its goal comes."""

    class Slow:
        name = "slow"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            await trio.sleep(float(request.transcript[0].text))
            return AssistantMessage(f"{says} {request.transcript[0].text}")

    return Agent(name, model=Slow())


async def hold(lead: Agent, journal: MemoryJournal | None = None) -> Session:
    """Ask a session once, and wait until all is quiet."""
    async with open_orchestrator(
        MemoryJournal() if journal is None else journal
    ) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()
    return session


def background(*goals: str, agent: str = "") -> ToolCall:
    return hand_on(*goals, agent=agent, background=True)


def told_by(entries: Sequence[Entry]) -> Counter[int]:
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
        fact.request.id
        for fact in facts(entries, TaskRequested)
        if fact.mode is Mode.DETACHED
    }
    return Counter(
        entry.seq
        for entry in entries
        if isinstance(entry.event, MessageReceived)
        or (isinstance(entry.event, TaskSettled) and entry.event.task in detached)
    )
