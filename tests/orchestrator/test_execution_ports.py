"""Where a task, a tool call and an agent are: ports with one implementation here, and addresses."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallKey,
    DefinitionError,
    Model,
    ModelRequest,
    ScriptedModel,
    Tool,
    ToolCall,
    UserMessage,
    take_turn,
    tool,
)
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.delegation import Ledger, TaskId, TaskRecord
from orchestrator.kernel.doors.one_shot import run_once
from orchestrator.kernel.execution.agent_registry import AgentRegistry, agent_below
from orchestrator.kernel.execution.model_resolver import ModelResolver
from orchestrator.kernel.execution.tool_place import HERE, placed_tools
from orchestrator.kernel.execution.workspace.settings import NO_WORKSPACE
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.journal.memory import MemoryJournal
from orchestrator.kernel.opened_engine import open_engine
from tests.agents.turn_kit import MemoryHost


@tool
async def send(letter: str) -> str:
    """Send a letter."""
    await trio.lowlevel.checkpoint()
    return f"sent {letter} here"


WORKER = Agent(
    "worker", model=ScriptedModel([ToolCall("send", {"letter": "b"}), "done"]), tools=[send]
)
EDITOR = Agent(
    "editor",
    model=ScriptedModel(
        [
            ToolCall("send", {"letter": "a"}),
            ToolCall("delegate_task", {"goal": "x", "agent": "worker"}),
            "end",
        ]
    ),
    tools=[send],
    delegates=[WORKER],
)
NO_AGENT = "a string"


class Elsewhere:
    """A place that takes one tool, and notes the keys of its calls."""

    has_effects = True
    resumes_calls = False

    def __init__(self) -> None:
        self.keys: list[CallKey] = []
        self.on_run: Callable[[TaskRecord], None] = lambda _: None

    def takes(self, tool: Tool, task: TaskRecord) -> bool:
        return tool.name == "send"

    def past_checks(self, task: TaskRecord) -> None:
        return None

    def open_turn(self, task: TaskRecord, agent: Agent[Any]) -> None:
        return None

    async def run(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord
    ) -> str | ToolResult:
        await trio.lowlevel.checkpoint()
        self.keys.append(key)
        self.on_run(task)
        return f"sent {call.arguments['letter']} elsewhere"


# Where a tool call runs.


async def test_a_call_runs_at_the_place_that_takes_its_tool() -> None:
    place = Elsewhere()
    model = ScriptedModel(
        [ToolCall("send", {"letter": "a"}), lambda transcript: transcript[-1].text]
    )
    registry = AgentRegistry(ModelResolver({}))
    book = Bookkeeper(MemoryJournal(), Ledger(), clock=trio.current_time)
    async with open_engine(book, registry, NO_WORKSPACE, place=place) as engine:
        run = await run_once(engine.sessions, Agent("a", model=model, tools=[send]), "go", ())

    assert run.outcome.output == "sent a elsewhere"
    (key,) = place.keys
    root = engine.book.ledger.tasks[TaskId(run.tree.root)]
    assert key.startswith(f"{root.call_prefix}/")


def test_here_leaves_the_tools_of_a_task_as_they_are() -> None:
    tools = (send,)
    task: TaskRecord = None  # type: ignore[assignment] # it is not looked at

    assert placed_tools(tools, task, HERE) is tools


# Where models come from.


class Fixed:
    """A source in which every agent has the same model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.closed = False

    def model_of(self, agent: Agent) -> Model:
        return self._model

    def model_for(
        self, task: TaskRecord, agent: Agent, budgeted: Callable[[Model], Model]
    ) -> Model:
        return budgeted(self._model)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True


async def test_a_model_source_answers_for_agents_that_name_a_provider() -> None:
    models = Fixed(ScriptedModel.always("no provider was called"))
    book = Bookkeeper(MemoryJournal(), Ledger(), clock=trio.current_time)
    async with open_engine(book, AgentRegistry(models), NO_WORKSPACE) as engine:
        run = await run_once(engine.sessions, Agent("a", model="openai:gpt-5"), "go", ())

    assert run.outcome.output == "no provider was called"
    assert models.closed


# The port of a turn.


async def test_a_turn_needs_no_orchestrator() -> None:
    host = MemoryHost()
    model = ScriptedModel([ToolCall("send", {"letter": "a"}), "done"])

    answer = await take_turn(
        Agent("a", model=model), [UserMessage("go")], model=model, tools=[send], host=host
    )

    assert answer == "done"
    assert [step.text for step in host.steps] == ["", "sent a here", "done"]


async def test_a_steering_message_is_read_before_the_next_model_call() -> None:
    class Steered(MemoryHost):
        async def before_model_call(self) -> list[UserMessage]:
            await super().before_model_call()
            return [UserMessage("faster", aside=True)]

    class Echo:
        name = "echo"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            return AssistantMessage(request.transcript[-1].text)

    model = Echo()
    answer = await take_turn(
        Agent("a", model=model), [UserMessage("go")], model=model, tools=[], host=Steered()
    )

    assert answer == "faster"


# The way to an agent.


async def test_steps_lead_from_the_agent_of_a_session_to_the_agent_of_each_task() -> None:
    registry = AgentRegistry(ModelResolver({}))
    place = Elsewhere()
    book = Bookkeeper(MemoryJournal(), Ledger(), clock=trio.current_time)
    steps: list[tuple[str, ...]] = []
    place.on_run = lambda task: steps.append(registry.steps_to(task))
    async with open_engine(book, registry, NO_WORKSPACE, place=place) as engine:
        await run_once(engine.sessions, EDITOR, "go", ())

    assert steps == [("/editor",), ("/editor", "worker")]
    assert agent_below(EDITOR, "worker") is WORKER


def test_a_copy_that_cannot_delegate_is_a_leaf() -> None:
    copy = agent_below(EDITOR, "~")

    assert copy.name == "editor"
    assert not copy.may_delegate


def test_a_step_to_an_unknown_delegate_is_refused() -> None:
    with pytest.raises(DefinitionError, match="has no delegate 'other'"):
        agent_below(EDITOR, "other")
