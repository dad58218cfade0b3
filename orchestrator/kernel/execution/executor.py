"""The ports for where a task runs: `Executor` runs a `WorkOrder`, `TaskHost` is its way home."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from orchestrator.agents import Agent, AssistantMessage, CallId, Message, Model, Pipeline, Tool
from orchestrator.agents.turn_host import TurnHost
from orchestrator.delegation import NO_TERMS, AnswerTerms, Origin, TaskId, TaskRecord


class WorkOrder(msgspec.Struct, frozen=True):
    """The input of an executor for one turn of a task."""

    task: TaskRecord
    agent: Agent[Any]
    origin: Origin
    """The origin that the task's own requests carry."""
    terms: AnswerTerms = NO_TERMS
    """How the client of its session wants its answers; only a root has any."""
    deps: Any = None
    """The values that the program has given to the tools and instructions of the tree."""
    start: int = 0
    """The length of the transcript when the turn began."""


class ServerCaller(Protocol):
    """The task on whose behalf a server is called, as far as the server may ask it anything."""

    async def sample(
        self, instructions: str, messages: Sequence[Message], max_output: int
    ) -> AssistantMessage:
        """Ask the model of the task, which pays, beside its turn, or raise `ToolError`.

        An answer longer than `max_output` raises a `ModelError`, which has its beginning.
        """
        ...

    async def ask_person(
        self, call: CallId, tool: str, message: str, form: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Have the person who approves fill in a form, a JSON schema, for a server; None is no."""
        ...

    async def note_task(self, call: CallId, server: str, task: str) -> None:
        """Note which task a server has made of a call, and return when that is durable."""
        ...

    def noted_task(self, call: CallId, server: str) -> str:
        """Return the task that a server had made of a call before a crash; empty without one."""
        ...

    @property
    def is_over(self) -> bool:
        """The task has ended, or ends when it is torn down: no process continues it."""
        ...


class TaskHost(TurnHost, ServerCaller, Protocol):
    """The services of the process with the journal, for one running task."""

    def budgeted_model(self, model: Model) -> Model:
        """Return a model whose every call the budgets of the task pay for, and is booked."""
        ...

    def add_tools(self, tools: Sequence[Tool]) -> None:
        """Note the tools that the task has in this turn besides its agent's tools."""
        ...

    def delegation_tools(self, agent: Agent[Any]) -> Sequence[Tool]:
        """Return the tools that delegate, control delegated tasks, ask the parent, and set jobs."""
        ...

    async def memory_note(self) -> str:
        """Return the memory of the task's agent, as a part of its instructions."""
        ...

    def agent_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Return the tools; calls of those that are agents delegate for the task."""
        ...

    async def run_pipeline(self, pipeline: Pipeline[Any, Any]) -> str:
        """Run the program of a pipeline at home, and return its answer."""
        ...

    @property
    def is_cancelled(self) -> bool:
        """The task itself was stopped; any other cancellation only interrupts it."""
        ...


class Executor(Protocol):
    """Runs tasks. `LocalExecutor` runs them in this process."""

    def run(self, order: WorkOrder, host: TaskHost) -> Awaitable[str]:
        """Run a turn of a task to its final answer, and return that."""
        ...

    def workspace_of(self, task: TaskRecord) -> Path:
        """Return the folder that the tools of a task work in."""
        ...

    async def close_below(self, task: TaskId) -> None:
        """Close the workspaces of unsettled tasks below a task: they end with it."""
        ...

    def pop_note(self, task: TaskId) -> str:
        """Return the note about the workspace of a task, and forget it."""
        ...


class StepTiming(Protocol):
    """Delays steps that a real run takes at once: simulation draws the delay, replay repeats it."""

    async def before_request(
        self, parent: TaskRecord, agent: str, goal: str, held_since: float | None
    ) -> None:
        """Delay the request of a pipeline for a child, which a fan-out may have held back."""
        ...

    def fan_out_limit(self, limit: int) -> int:
        """Return how many children of a fan-out run at once, given the limit of its program."""
        ...

    @property
    def watch_process(self) -> Callable[[Callable[[], None]], None]:
        """Takes the function that kills the process of a script."""
        ...

    async def before_run(self, task: TaskRecord) -> None:
        """Delay the run of a child that was posted as started. It is not cancelled here."""
        ...

    async def after_wait(self) -> None:
        """Delay the end of a wait for tasks."""
        ...
