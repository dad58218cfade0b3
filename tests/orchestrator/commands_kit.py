"""A model whose answers a test sends, sessions with it, and pipes that commands wait for.

Nothing here sleeps: a test waits until a command has written something, and lets it go on.
"""

import json
import math
import os
import select
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import trio
import trio.testing

from orchestrator import Machine, MemoryJournal, Orchestrator, Session, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Message,
    ModelRequest,
    ToolCall,
    ToolMessage,
    Usage,
    allow,
)
from orchestrator.agents.tools.terminal import process, terminal
from orchestrator.delegation import SessionId, root_of
from orchestrator.delegation.events import (
    Entry,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    ProcessUnreachable,
    ToolAnswered,
    TurnStarted,
)
from orchestrator.kernel.execution.workspace.command import Command

PATIENCE: Final = 30


@contextmanager
def patiently() -> Iterator[None]:
    """Fail rather than wait for ever, unless a test makes time pass."""
    if isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock):
        yield
        return
    with trio.fail_after(PATIENCE):
        yield


class RefusedError(Exception):
    """A tool refused."""


class ManualModel:
    """A model whose answers a test sends, when it wants to."""

    name = "manual"

    def __init__(self) -> None:
        self._ask, self._asked = trio.open_memory_channel[Sequence[Message]](math.inf)
        self._send, self._sent = trio.open_memory_channel[AssistantMessage](math.inf)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self._ask.send_nowait(list(request.transcript))
        return await self._sent.receive()

    async def receive(self) -> str:
        """Wait until it is called, and return the messages since its last answer."""
        with patiently():
            transcript = await self._asked.receive()
        received: list[str] = []
        for message in reversed(transcript):
            if isinstance(message, AssistantMessage):
                break
            received.insert(0, message.text)
        return "\n\n".join(received)

    async def call_all(self, *calls: ToolCall) -> list[Any]:
        """Make calls at the same time, and return what was answered, in their order."""
        self.begin_calls(*calls)
        with patiently():
            transcript = await self._asked.receive()
        asked = transcript[-len(calls) - 1]
        assert isinstance(asked, AssistantMessage)
        answers = {it.call: it for it in transcript if isinstance(it, ToolMessage)}
        return [_read(answers[call.id]) for call in asked.calls]

    def begin_calls(self, *calls: ToolCall) -> None:
        """Make calls, and do not wait for the answers."""
        self._send.send_nowait(AssistantMessage(calls=calls, usage=Usage(calls=1)))

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Make a call, and return what was answered.

        Raises:
            RefusedError: the tool refused.
        """
        (answer,) = await self.call_all(ToolCall(tool, arguments))
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    async def run(self, command: str, **more: Any) -> dict[str, Any]:
        """Run a command, and return what came of it."""
        return dict(await self.call("terminal", command=command, **more))

    async def start(self, command: str, **more: Any) -> dict[str, Any]:
        """Run a command in the background."""
        answer = await self.run(command, background=True, **more)
        assert answer["status"] == "running"
        return answer

    async def look(self, action: str, started: Any, **more: Any) -> dict[str, Any]:
        """Use `process` on a command that was started."""
        return dict(await self.call("process", action=action, id=started["id"], **more))

    def end(self, text: str = "ok") -> None:
        """End the turn."""
        self._send.send_nowait(AssistantMessage(text, usage=Usage(calls=1)))


def _read(answer: ToolMessage) -> Any:
    return RefusedError(answer.text) if answer.failed else json.loads(answer.text)


def background(command: str, **more: Any) -> ToolCall:
    """Return the call by which a model starts a command in the background."""
    return ToolCall("terminal", {"command": command, "background": True, **more})


def shell_user(model: Any, name: str = "worker", **more: Any) -> Agent:
    """Return an agent that can use commands."""
    more.setdefault("approve", [allow("*")])
    return Agent(name, model=model, tools=[terminal, process], **more)


class Talk:
    """A session in which a test sends the messages and the answers."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        session: Session,
        manual: ManualModel,
        nursery: trio.Nursery,
    ) -> None:
        self.orchestrator = orchestrator
        self.session = session
        self.manual = manual
        self._nursery = nursery
        self._replied = trio.Event()

    async def begin(self, text: str = "go") -> ManualModel:
        """Send a message, and return the model when it is called."""
        self._replied = trio.Event()
        self._nursery.start_soon(self._ask, text)
        assert (await self.manual.receive()).endswith(text)
        return self.manual

    async def _ask(self, text: str) -> None:
        await self.session.ask(text)
        self._replied.set()

    async def end(self) -> None:
        """End the turn that was begun, and wait until its reply is there."""
        self.manual.end()
        with patiently():
            await self._replied.wait()

    async def idle(self) -> None:
        """Wait until the session has read all its mail."""
        with patiently():
            await self.session.wait_idle()

    async def woken(self) -> str:
        """Wait for a turn that a notice began, end it, and return the notice."""
        notice = await self.manual.receive()
        self.manual.end()
        with patiently():
            await self.session.replies.receive()
        return notice

    @property
    def command(self) -> Command:
        """The only command that it knows."""
        return command_of(self.orchestrator, self.session.id)


@asynccontextmanager
async def talking(
    orchestrator: Orchestrator, *, session: str | None = None, **more: Any
) -> AsyncGenerator[Talk]:
    """Open a session with a manual model, and cancel its turn when the block ends."""
    manual = ManualModel()
    agent = shell_user(manual, **more)
    async with orchestrator.open_session(agent, session=session) as opened:
        async with trio.open_nursery() as nursery:
            yield Talk(orchestrator, opened, manual, nursery)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def in_a_session(
    workspace: Path,
    journal: MemoryJournal | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    **more: Any,
) -> AsyncGenerator[Talk]:
    """Open an orchestrator, and a session to which replies can be delivered later."""
    kept = MemoryJournal() if journal is None else journal
    async with open_orchestrator(
        kept, **more, machine=Machine(workspace=workspace, environ=environ)
    ) as orchestrator:
        async with talking(orchestrator) as talk:
            yield talk


@asynccontextmanager
async def in_a_run(
    workspace: Path,
    journal: MemoryJournal | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    **more: Any,
) -> AsyncGenerator[ManualModel]:
    """Open an orchestrator; the block is in a turn after which nothing can be delivered."""
    kept = MemoryJournal() if journal is None else journal
    manual = ManualModel()
    async with open_orchestrator(
        kept, **more, machine=Machine(workspace=workspace, environ=environ)
    ) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, shell_user(manual), "go")
            await manual.receive()
            yield manual
            manual.end()


async def let_pass(clock: trio.testing.MockClock, seconds: float) -> None:
    """Let time pass as soon as a task waits for no longer than that."""
    waiting = trio.lowlevel.current_statistics
    await trio.testing.wait_all_tasks_blocked()
    while waiting().seconds_to_next_deadline > seconds:
        # A thread may have to answer before that.
        await trio.testing.wait_all_tasks_blocked(0.001)
    clock.jump(seconds)


class Pipe:
    """A named pipe: a command reads or writes it under this name, a test at this end."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Both ends are held, so that opening it never blocks.
        self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._held = b""

    def send(self, line: str = "") -> None:
        """Let a command go on that reads a line."""
        os.write(self._file, f"{line}\n".encode())

    async def receive(self) -> str:
        """Wait for a line that a command writes."""
        with patiently():
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
    """Tell whether a process runs; a zombie does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] != "Z"


def has_ended(pid: int, seconds: float = 2) -> bool:
    """Tell whether a process has ended; one that was just killed may need a moment."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([file], [], [], seconds)[0])
    finally:
        os.close(file)


def outside(pid: int, folder: Path) -> int:
    """Return the id of a process out here, of the id that a command in a folder has said.

    In a sandbox it may have another one than outside of it.
    """
    for here, inside in _processes_in(folder):
        if inside == pid:
            return here
    return pid


def running_in(folder: Path) -> list[int]:
    """Return the ids of the processes that run in a folder, and are not about to end."""
    return [here for here, _ in _processes_in(folder) if not has_ended(here, 0.5)]


def _processes_in(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield the ids of the processes in a folder: out here, and in their sandbox."""
    for path in Path("/proc").iterdir():
        if not path.name.isdecimal():
            continue
        with suppress(OSError):
            if (path / "cwd").readlink().is_relative_to(folder):
                status = (path / "status").read_text()
                (ids,) = (it for it in status.splitlines() if it.startswith("NSpid:"))
                yield int(path.name), int(ids.split()[-1])


def children() -> set[str]:
    """Return the children of this process, zombies included."""
    found: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found |= set((thread / "children").read_text().split())
    return found


def command_of(orchestrator: Orchestrator, session: str) -> Command:
    """Return the only command that a session knows."""
    background = orchestrator.sessions.machine.commands
    (command,) = background.commands_of(root_of(SessionId(session)))
    return command


def command_mail(entries: Sequence[Entry]) -> list[int]:
    """Return the facts that are mail because a command caused them."""
    notified: set[str] = set()
    mail: list[int] = []
    for entry in entries:
        match entry.event:
            case ProcessStarted(_, id_, notify=True):
                notified.add(id_)
            case ProcessMatched(_, id_) | ProcessUnreachable(_, id_) | ProcessEnded(_, id_) if (
                id_ in notified
            ):
                mail.append(entry.seq)
            case _:
                pass
    return mail


def command_mail_read(entries: Sequence[Entry]) -> list[int]:
    """Return the mail of commands that was read: by turns, and by the answers of tools."""
    about = command_mail(entries)
    return [
        seq
        for entry in entries
        if isinstance(entry.event, TurnStarted | ToolAnswered)
        for seq in entry.event.mail
        if seq in about
    ]
