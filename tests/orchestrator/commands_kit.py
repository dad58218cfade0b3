"""What the tests of commands share: a model that a test speaks for, and commands that wait for it.

Nothing here sleeps: a test waits until a command has said something, and lets it go on.
"""

import json
import math
import os
import select
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio

from agents import (
    Agent,
    AssistantMessage,
    Message,
    ModelRequest,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from agents.tools.terminal import process, terminal
from delegation import Reply, root_of
from delegation.events import Entry, ProcessEnded, ProcessMatched
from orchestrator import MemoryJournal, Orchestrator, Session
from orchestrator.background import Command
from orchestrator.storage.journal import folded


class RefusedError(Exception):
    """A tool said that it will not."""


class Puppet:
    """A model that says what a test says, when the test says it."""

    name = "puppet"

    def __init__(self) -> None:
        self._ask, self._asked = trio.open_memory_channel[Sequence[Message]](math.inf)
        self._say, self._said = trio.open_memory_channel[AssistantMessage](math.inf)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self._ask.send_nowait(list(request.transcript))
        return await self._said.receive()

    async def hear(self) -> str:
        """Wait until it is asked, and return what it was told since it spoke last."""
        told: list[str] = []
        for message in reversed(await self._asked.receive()):
            if isinstance(message, AssistantMessage):
                break
            told.insert(0, message.text)
        return "\n\n".join(told)

    async def call_all(self, *calls: ToolCall) -> list[Any]:
        """Make calls at the same time, and return what was answered, in their order."""
        self._say.send_nowait(AssistantMessage(calls=calls, usage=Usage(calls=1)))
        transcript = await self._asked.receive()
        said = transcript[-len(calls) - 1]
        assert isinstance(said, AssistantMessage)
        answers = {
            message.call: message
            for message in transcript
            if isinstance(message, ToolMessage)
        }
        return [_read(answers[call.id]) for call in said.calls]

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Make a call, and return what was answered.

        Raises:
            RefusedError: the tool refused.
        """
        (answer,) = await self.call_all(ToolCall(tool, arguments))
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    async def start(self, command: str, **more: Any) -> dict[str, Any]:
        """Run a command in the background."""
        answer = await self.call("terminal", command=command, background=True, **more)
        assert answer["status"] == "running"
        return dict(answer)

    async def look(self, action: str, started: Any, **more: Any) -> dict[str, Any]:
        """Use `process` on a command that was started."""
        return dict(await self.call("process", action=action, id=started["id"], **more))

    def end(self, text: str = "ok") -> None:
        """End the turn."""
        self._say.send_nowait(AssistantMessage(text, usage=Usage(calls=1)))


def _read(answer: ToolMessage) -> Any:
    return RefusedError(answer.text) if answer.failed else json.loads(answer.text)


def worker_with(model: Any, name: str = "worker", **more: Any) -> Agent:
    """Return an agent that can use commands."""
    return Agent(name, model=model, tools=[terminal, process], **more)


class Talk:
    """A session in which a test says what both sides say."""

    def __init__(self, session: Session, puppet: Puppet, nursery: trio.Nursery) -> None:
        self.session = session
        self.puppet = puppet
        self._nursery = nursery

    async def begin(self, text: str = "go") -> Puppet:
        """Say something, and return whose turn it is then."""
        self._nursery.start_soon(self._ask, text)
        assert (await self.puppet.hear()).endswith(text)
        return self.puppet

    async def _ask(self, text: str) -> None:
        reply = await self.session.ask(text)
        assert reply.outcome.succeeded, reply.text

    async def woken(self) -> str:
        """Wait for a turn that nobody asked for, end it, and return what it was told."""
        told = await self.puppet.hear()
        self.puppet.end()
        await self.session.replies.receive()
        return told


@asynccontextmanager
async def talking(
    orchestrator: Orchestrator, *, session: str | None = None, **more: Any
) -> AsyncGenerator[Talk]:
    """Open a session with a puppet, and let it go when the block ends."""
    puppet = Puppet()
    agent = worker_with(puppet, **more)
    async with orchestrator.open_session(agent, session=session) as opened:
        async with trio.open_nursery() as nursery:
            yield Talk(opened, puppet, nursery)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def running_once(
    orchestrator: Orchestrator, **more: Any
) -> AsyncGenerator[Puppet]:
    """Run a puppet once, where nobody can be told anything later; the block is in its turn."""
    puppet = Puppet()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(orchestrator.run, worker_with(puppet, **more), "go")
        await puppet.hear()
        yield puppet
        puppet.end()


class Pipe:
    """A named pipe: a command reads or writes it under this name, a test at this end."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Both ends are held, so that nobody has to wait for anybody to open it.
        self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._held = b""

    def send(self, line: str = "") -> None:
        """Let a command go on that reads a line."""
        os.write(self._file, f"{line}\n".encode())

    async def receive(self) -> str:
        """Wait for a line that a command writes."""
        with trio.fail_after(30):
            while b"\n" not in self._held:
                await trio.lowlevel.wait_readable(self._file)
                self._held += os.read(self._file, 4096)
        line, _, self._held = self._held.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        os.close(self._file)


@contextmanager
def pipe(path: Path) -> Iterator[Pipe]:
    opened = Pipe(path)
    try:
        yield opened
    finally:
        opened.close()


def is_alive(pid: int) -> bool:
    """Who has ended and was not waited for by the one who inherited it is not alive."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] != "Z"


def wait_dead(pid: int, seconds: float = 10) -> bool:
    """Wait until a process has ended that is not ours; tell whether it has."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([file], [], [], seconds)[0])
    finally:
        os.close(file)


def command_of(orchestrator: Orchestrator, session: str) -> Command:
    """Return the only command that a session has in the background."""
    (command,) = orchestrator._house.background.of(root_of(session))  # type: ignore[arg-type]
    return command


def told(entries: Sequence[Entry]) -> list[int]:
    """Return the mail about commands that was read, as often as it was, in order."""
    about = news(entries)
    return [
        seq
        for entry in entries
        for seq in getattr(entry.event, "mail", ())
        if seq in about
    ]


def news(entries: Sequence[Entry]) -> set[int]:
    """Return the mail that commands have caused."""
    session = next(iter(folded(entries, "test").sessions.values()))
    notified = {
        entry.event.id
        for entry in entries
        if getattr(entry.event, "notify", False)
    }
    assert not session.closed
    return {
        entry.seq
        for entry in entries
        if isinstance(entry.event, ProcessMatched | ProcessEnded)
        and entry.event.id in notified
    }
