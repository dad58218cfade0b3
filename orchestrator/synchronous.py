"""`run_sync`: one run, for programs without an event loop.

It opens an orchestrator, runs the agent and closes it again. A program that runs several agents, or
talks to one, opens an orchestrator itself.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import trio

if TYPE_CHECKING:
    import os

    from orchestrator.agents import Agent, Part
    from orchestrator.delegation import Rules
    from orchestrator.kernel.doors.one_shot import Run
    from orchestrator.kernel.journal.journal import Journal
    from orchestrator.kernel.settings import Machine

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
DepsT = TypeVar("DepsT")


@overload
def run_sync(
    agent: "Agent[OutputT, InputT, None]",
    goal: InputT,
    *parts: "Part",
    journal: "str | os.PathLike[str] | Journal | None" = None,
    rules: "Rules | None" = None,
    machine: "Machine | None" = None,
    progress: Literal["auto"] | None = "auto",
) -> "Run[OutputT]": ...
@overload
def run_sync(
    agent: "Agent[OutputT, InputT, DepsT]",
    goal: InputT,
    *parts: "Part",
    deps: DepsT,
    journal: "str | os.PathLike[str] | Journal | None" = None,
    rules: "Rules | None" = None,
    machine: "Machine | None" = None,
    progress: Literal["auto"] | None = "auto",
) -> "Run[OutputT]": ...
def run_sync(
    agent: "Agent[OutputT, InputT, Any]",
    goal: InputT,
    *parts: "Part",
    deps: Any = None,
    journal: "str | os.PathLike[str] | Journal | None" = None,
    rules: "Rules | None" = None,
    machine: "Machine | None" = None,
    progress: Literal["auto"] | None = "auto",
) -> "Run[OutputT]":
    """Run an agent on a goal, and return when its whole tree is settled.

    For scripts, and for threads such as those of Django and of FastAPI's plain functions. Ctrl-C
    cancels the tree, and is raised when everything in it has ended.

    Args:
        agent: the agent to run.
        goal: a text, or the input that a pipeline takes.
        parts: images and files that go with the goal.
        deps: the values that the tools and instructions of the whole tree need from the program.
        journal: the journal of the run, as `open_orchestrator` takes it.
        rules: the limits of delegation.
        machine: the folder, the sandbox and the secrets of tools.
        progress: with `"auto"`, a run that takes longer than a second is shown on stderr: the tree
            in a terminal, lines elsewhere. None shows nothing.

    Raises:
        WrongLoopError: an event loop runs here: await `orchestrator.run` there.
    """
    # Imported late: a program that defines agents does not wait for the code that runs them.
    from orchestrator.composition import open_orchestrator
    from orchestrator.kernel.errors import WrongLoopError

    async def main() -> "Run[Any]":
        async with open_orchestrator(
            journal, rules=rules, machine=machine, progress=progress
        ) as orchestrator:
            return await orchestrator.run(agent, goal, *parts, deps=deps)

    if running := _running_library():
        package = "orchestrator" if running == "trio" else "orchestrator.asyncio"
        raise WrongLoopError(
            f"{running} runs here, and `run_sync` would block it: use `from {package} import"
            " open_orchestrator`, and `await orchestrator.run(agent, goal)`"
        )
    return cast("Run[OutputT]", trio.run(main))


def _running_library() -> str:
    """Return the library whose loop runs here; empty without a loop."""
    # It comes with trio, and knows asyncio without importing it.
    import sniffio

    try:
        return sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return ""
