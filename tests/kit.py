"""Agents, runs and reads of transcripts that many tests share."""

import asyncio  # noqa: TID251 (the loop that is not ours)
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from orchestrator import MemoryJournal, Run, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Message,
    Model,
    ModelRequest,
    ScriptedModel,
    ToolMessage,
    Transcript,
    Usage,
)
from orchestrator.delegation import Tree
from orchestrator.delegation.events import Entry, MessageReceived, SessionOpened
from orchestrator.testing import facts, hand_on

__all__ = [
    "FunctionModel",
    "dispatched",
    "editor",
    "facts",
    "hand_on",
    "last_text",
    "own_processes",
    "run",
    "statuses",
    "tool_answers",
    "worker",
    "worker_on",
]


def worker(name: str = "worker", *, seconds: float = 0, says: str = "done") -> Agent:
    """Return an agent that answers every goal alike."""
    return worker_on(ScriptedModel.always(says, seconds), name)


def worker_on(model: Model, name: str = "worker") -> Agent:
    """Return an agent without tools on a model."""
    return Agent(name, model=model)


def editor(*steps: Any, delegates: Sequence[Agent[Any]], **options: Any) -> Agent:
    """Return an agent that follows a script and may delegate."""
    return Agent("editor", model=ScriptedModel(steps), delegates=delegates, **options)


async def run(agent: Agent[Any], goal: str = "go", **options: Any) -> Run[Any]:
    """Run an agent in an orchestrator of its own, which gets the options."""
    async with open_orchestrator(":memory:", **options) as orchestrator:
        return await orchestrator.run(agent, goal)


async def continue_session(
    agent: Agent[Any], entries: Sequence[Entry], *, takes_replies: bool = False, **options: Any
) -> list[Entry]:
    """Open a session on a journal, send a message unless it has one, and return all its entries.

    A test crashes a session after each of its entries, and continues it with these.
    """
    journal = MemoryJournal(entries)
    opened = facts(entries, SessionOpened)
    known = opened[0].session if opened else None
    async with open_orchestrator(journal, **options) as orchestrator:
        async with orchestrator.open_session(agent, session=known) as session:
            if not facts(entries, MessageReceived):
                await session.ask("go")
            await session.wait_idle()
            with suppress(trio.WouldBlock):
                while takes_replies:
                    session.replies.receive_nowait()
    return journal.entries


def last_text(transcript: Transcript) -> str:
    """Return the text of the last message: the step of a script that repeats what it read."""
    return transcript[-1].text


def tool_answers(transcript: Iterable[Message]) -> list[Any]:
    """Return the answers of tools: documents are read as JSON, others are plain texts."""
    return [
        json.loads(message.text)
        if not message.failed and message.text.startswith("{")
        else message.text
        for message in transcript
        if isinstance(message, ToolMessage)
    ]


def dispatched(transcript: Transcript) -> list[str]:
    """Return the ids of all detached tasks for which there is a receipt."""
    return [
        task["task_id"]
        for answer in tool_answers(transcript)
        if isinstance(answer, dict) and answer.get("status") == "dispatched"
        for task in answer["tasks"]
    ]


def statuses(tree: Tree) -> dict[str, str]:
    """Return the status of each task by its path."""
    return {tree[task].path: tree[task].status for task in tree}


class FunctionModel:
    """A model that is one function of the request, for what no shipped fake does."""

    def __init__(
        self, function: Callable[[ModelRequest], Awaitable[str | AssistantMessage]]
    ) -> None:
        self.name = getattr(function, "__name__", "function")
        self._function = function

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        answer = await self._function(request)
        if isinstance(answer, str):
            return AssistantMessage(answer, usage=Usage(calls=1), model=self.name)
        return answer


def own_processes() -> set[str]:
    """Return the ids of the children of this process, also of those that other tests started."""
    found: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found.update((thread / "children").read_text().split())
    return found


async def run_on_asyncio(call: Callable[[], Awaitable[object]]) -> object:
    """Await on an asyncio loop, in a thread of its own."""

    async def main() -> object:
        return await call()

    return await trio.to_thread.run_sync(lambda: asyncio.run(main()))
