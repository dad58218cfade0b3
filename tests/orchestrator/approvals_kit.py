"""A tool `terminal` that runs nothing, and turns whose questions a test answers."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from orchestrator import Orchestrator, Session, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    confirm,
    tool,
)
from orchestrator.agents.approval import ApprovalRule
from orchestrator.delegation.events.approvals import ApprovalQuestion

ANN = "Ann"
ASKS = (confirm("terminal"),)


class Shell:
    """A tool `terminal` that runs nothing, and keeps the commands that it got."""

    def __init__(self, seconds: float = 0, *, idempotent: bool = False) -> None:
        self.ran: list[str] = []

        @tool(name="terminal", idempotent=idempotent)
        async def terminal(command: str, workdir: str = ".") -> str:
            """Run a command."""
            self.ran.append(command)
            await trio.sleep(seconds)
            return f"ran {command[:99]} in {workdir}"

        self.tool: Tool = terminal

    def agent(
        self, *steps: Any, rules: Iterable[ApprovalRule] = (), name: str = "main", **options: Any
    ) -> Agent:
        """Return an agent that takes these steps, in every turn and task anew."""
        return Agent(
            name,
            model=stepwise(*steps),
            tools=[self.tool, *options.pop("tools", ())],
            approve=rules,
            **options,
        )


def run(command: str, **more: Any) -> ToolCall:
    return ToolCall("terminal", {"command": command, **more})


def tool_texts(transcript: Transcript) -> str:
    """Return the answers of this turn's tools: the step of a script that repeats them."""
    return " | ".join(it.text for it in this_turn(transcript, ToolMessage))


def stepwise(*steps: Any, seconds: float = 0) -> ScriptedModel:
    """Return a model that takes these steps, in every turn and task anew."""

    def step_of(transcript: Transcript) -> Any:
        if this_turn(transcript, UserMessage)[0].text.startswith("A task that you"):
            return "news"
        step = steps[len(this_turn(transcript, AssistantMessage))]
        return step(transcript) if callable(step) else step

    return ScriptedModel.always(step_of, seconds)


def this_turn(transcript: Transcript, kind: type[Any]) -> list[Any]:
    last = max(i for i, it in enumerate(transcript) if isinstance(it, UserMessage))
    return [it for it in transcript[last:] if isinstance(it, kind)]


@asynccontextmanager
async def turn_of(
    agent: Agent, *, orchestrator: Orchestrator | None = None, says: str = "go"
) -> AsyncGenerator["AttendedTurn"]:
    """Send a message to an agent, and go on while it takes its turn."""
    if orchestrator is None:
        async with (
            open_orchestrator(":memory:") as opened,
            turn_of(agent, orchestrator=opened, says=says) as turn,
        ):
            yield turn
        return
    async with orchestrator.open_session(agent) as session:
        async with trio.open_nursery() as nursery:
            turn = AttendedTurn(orchestrator, session)
            nursery.start_soon(turn.ask, says)
            yield turn
            await turn.reply()


class AttendedTurn:
    """A turn that the test waits for, and its questions."""

    def __init__(self, orchestrator: Orchestrator, session: Session) -> None:
        self.orchestrator = orchestrator
        self.session = session
        self._reply: str | None = None
        self._over = trio.Event()

    async def ask(self, text: str) -> None:
        self._reply = (await self.session.ask(text)).text
        self._over.set()

    async def reply(self) -> str:
        """Wait for the reply of the turn."""
        await self._over.wait()
        assert self._reply is not None
        return self._reply

    async def question(self) -> ApprovalQuestion:
        """Wait for the next question."""
        return await self.session.questions.receive()

    async def answer(self, answer: str = "once", reason: str = "") -> ApprovalQuestion:
        """Wait for the next question, and answer it."""
        question = await self.question()
        await self.session.answer(question.id, answer, reason=reason, by=ANN)
        return question

    async def wait_blocked(self) -> None:
        """Wait until every trio task waits."""
        await trio.testing.wait_all_tasks_blocked()

    def status(self, path: str) -> str:
        tree = self.session.tree
        return next(str(tree[task].status) for task in tree if tree[task].path == path)
