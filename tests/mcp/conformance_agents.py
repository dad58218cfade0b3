"""The agents that the scenarios of the official conformance suite call, by the names it expects.

Each is an ordinary agent or pipeline: a question of a task is the approval of a child's tool call.
They are served with `TASK_MODES`, as the suite wants it.
"""

import trio

from orchestrator import delegate
from orchestrator.agents import (
    Agent,
    Failure,
    ModelError,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    agent,
    confirm,
    tool,
)

TASK_MODES = ("greet=forbidden", "failing_job=required", "test_tool_with_task=required")
"""The values of `--mcp-tasks`."""


def calls_then(text: str, *calls: ToolCall) -> ScriptedModel:
    """Return a model that makes calls, and answers with a text when they are answered."""

    def step(transcript: Transcript) -> str | list[ToolCall]:
        return text if isinstance(transcript[-1], ToolMessage) else list(calls)

    return ScriptedModel.always(step)


@agent
async def greet(name: str) -> str:
    """Greet a person by name."""
    await trio.lowlevel.checkpoint()
    return f"Hello, {name}!"


@agent
async def slow_compute(seconds: float, label: str) -> str:
    """Compute for some seconds."""
    await trio.sleep(seconds)
    return f"{label} took {seconds:g} s"


_worker = Agent(
    "worker",
    instructions="Fail.",
    model=ScriptedModel.always(ModelError("the job has failed", kind=Failure.BAD_REQUEST)),
)


@agent
async def failing_job() -> str:
    """Fail, as a job does."""
    return await delegate(_worker, "the job")


@agent
async def protocol_error_job() -> str:
    """Meet a fault of the program."""
    await trio.lowlevel.checkpoint()
    raise RuntimeError("the program has a fault")


@tool
async def delete_file(filename: str) -> str:
    """Delete a file."""
    await trio.lowlevel.checkpoint()
    return f"{filename} is deleted"


def _deleter(name: str, *files: str) -> Agent[str]:
    calls = [ToolCall("delete_file", {"filename": it}) for it in files]
    return Agent(
        name,
        instructions="Delete files.",
        model=calls_then("It is deleted.", *calls),
        tools=[delete_file],
        approve=[confirm("delete_file")],
    )


@agent
async def confirm_delete(filename: str) -> str:
    """Delete a file, once a person has confirmed it."""
    return await delegate(_deleter("deleter", filename), filename)


@agent
async def multi_input() -> str:
    """Delete two files, each once a person has confirmed it."""
    return await delegate(_deleter("deleter", "one.txt", "two.txt"), "both")


@agent
async def test_tool_with_task(name: str) -> str:
    """Greet a person whose name is asked for."""
    await trio.lowlevel.checkpoint()
    return f"Hello, {name}!"


@agent
async def test_input_required_result_elicitation(name: str) -> str:
    """Greet a person whose name is asked for, where the client can be asked."""
    await trio.lowlevel.checkpoint()
    return f"Hello, {name}!"


@agent
async def test_simple_text() -> str:
    """Answer with a text."""
    await trio.lowlevel.checkpoint()
    return "This is a simple text response for testing."


@agent
async def test_error_handling() -> str:
    """Fail, because a child fails."""
    return await delegate(_worker, "the job")


@agent
async def test_tool_with_progress() -> str:
    """Delegate, step by step: each begin and each end is progress."""
    step = Agent("step", model=ScriptedModel.always("done"))
    for number in range(3):
        await delegate(step, f"step {number}")
    return "All steps are done."
