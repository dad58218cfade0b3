"""Typing of the one import, of streams, and on asyncio. It is never run."""

from typing import assert_type

import attrs

from orchestrator import (
    Agent,
    Machine,
    Orchestrator,
    Run,
    RunEvent,
    ScriptedModel,
    StreamedRun,
    TaskEnded,
    TextWritten,
    Tool,
    agent,
    open_orchestrator,
    run_sync,
    tool,
)
from orchestrator.asyncio import Orchestrator as OnAsyncio
from orchestrator.asyncio import StreamedRun as StreamOnAsyncio
from orchestrator.asyncio import open_orchestrator as open_on_asyncio
from orchestrator.asyncio import run_in_asyncio
from orchestrator.asyncio import tool as asyncio_tool


@attrs.frozen
class Report:
    stars: int


@tool
def count(word: str) -> int:
    """Count."""
    return len(word)


@asyncio_tool(timeout=3)
async def fetch(page: str) -> str:
    """Fetch."""
    return page


assert_type(count, Tool)
assert_type(fetch, Tool)
critic = Agent("critic", output=Report, model=ScriptedModel([]), tools=[count, fetch])
assert_type(run_sync(critic, "go"), Run[Report])
run_sync(critic, "go", jurnal=":memory:")  # type: ignore[call-overload] # pyright: ignore


async def length(text: str) -> int:
    return len(text)


@agent
async def doubled(number: int) -> str:
    assert_type(await run_in_asyncio(length, "text"), int)
    await run_in_asyncio(length, 3)  # type: ignore[arg-type] # pyright: ignore
    return str(2 * number)


async def on_trio() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        assert_type(orchestrator, Orchestrator)
        assert_type(await orchestrator.run(critic, "go"), Run[Report])
        async with orchestrator.stream(critic, "go") as run:
            assert_type(run, StreamedRun[Report])
            async for event in run:
                assert_type(event, RunEvent)
                match event:
                    case TextWritten(text=text):
                        assert_type(text, str)
                    case TaskEnded():
                        assert_type(event.outcome.error, str)
                    case _:
                        pass
            assert_type((await run.wait()).output, Report)
        orchestrator.stream(doubled, "a text")  # type: ignore[misc] # pyright: ignore


async def on_asyncio() -> None:
    open_on_asyncio(":memory:", jurnal=1)  # type: ignore[call-arg, unused-awaitable] # pyright: ignore
    opened = await open_on_asyncio(":memory:", machine=Machine(workspace="folder"))
    assert_type(opened, OnAsyncio)
    async with open_on_asyncio() as orchestrator:
        assert_type(orchestrator, OnAsyncio)
        assert_type(await orchestrator.run(critic, "go"), Run[Report])
        assert_type(await orchestrator.run(doubled, 2), Run[str])
        await orchestrator.run(doubled, "a text")  # type: ignore[misc] # pyright: ignore
        async with orchestrator.stream(critic, "go") as run:
            assert_type(run, StreamOnAsyncio[Report])
            async for event in run:
                assert_type(event, RunEvent)
            assert_type((await run.wait()).output, Report)
        async with orchestrator.open_session(critic) as session:
            reply = await session.ask("Hello?")
            assert_type(reply.text, str)
            async for late in session.replies:
                assert_type(late.text, str)
