"""How a program gets in: one import, `run_sync`, and a sentence where trio does not run."""

import asyncio  # noqa: TID251 (the other loop)
import inspect
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Machine, WrongLoopError, budget, delegate, open_orchestrator, run_sync
from orchestrator.agents import Agent, DefinitionError, ScriptedModel, agent
from orchestrator.asyncio import open_orchestrator as open_on_asyncio
from orchestrator.composition import open_orchestrator as of_runtime
from orchestrator.delegation import Ending
from tests.kit import run_on_asyncio

greeter = Agent("greeter", model=ScriptedModel.always("Hello."))


@pytest.mark.memory_only
def test_a_script_runs_an_agent_without_a_loop(tmp_path: Path) -> None:
    run = run_sync(greeter, "Greet.", journal=tmp_path / "journal.db")

    assert run.output == "Hello."
    assert (tmp_path / "journal.db").exists()


def test_a_budget_around_a_script_counts() -> None:
    with budget(calls=0):
        run = run_sync(greeter, "Greet.", journal=":memory:")

    assert run.outcome.ending is Ending.OVER_BUDGET


async def test_a_loop_that_runs_is_not_blocked() -> None:  # noqa: RUF029 (trio runs it)
    with pytest.raises(WrongLoopError, match=r"^trio runs here.*`from orchestrator import"):
        run_sync(greeter, "Greet.", journal=":memory:")


def test_run_sync_does_not_advise_itself_to_asyncio() -> None:
    async def main() -> None:  # noqa: RUF029 (asyncio runs it)
        run_sync(greeter, "Greet.", journal=":memory:")

    with pytest.raises(WrongLoopError, match=r"^asyncio runs here.*orchestrator\.asyncio"):
        asyncio.run(main())


async def test_calling_the_asyncio_face_from_trio_raises_wrong_loop() -> None:
    with pytest.raises(WrongLoopError, match="`from orchestrator import"):
        await open_on_asyncio(":memory:")


@pytest.mark.realtime
async def test_calling_the_trio_face_from_asyncio_raises_wrong_loop() -> None:
    """Instead of `Task got bad yield`, from the depths of trio."""
    async with open_orchestrator(":memory:") as opened:
        async with opened.open_session(greeter) as session:
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: opened.run(greeter, "Greet."),
                lambda: opened.resume(greeter, "r_1"),
                lambda: opened.cancel("t_1"),
                lambda: opened.steer("t_1", "Faster."),
                lambda: opened.answer("a_1", "once"),
                lambda: opened.read_tree("r_1"),
                lambda: opened.wait_changed(after=99),
                lambda: session.ask("Hello?"),
                session.wait_idle,
                session.replies.receive,
                session.questions.receive,
                lambda: opened.open_session(greeter).__aenter__(),
                lambda: open_orchestrator(":memory:").__aenter__(),
            ]
            for call in calls:
                with pytest.raises(WrongLoopError, match=r"orchestrator\.asyncio"):
                    await run_on_asyncio(call)


@pytest.mark.realtime
async def test_delegating_from_asyncio_raises_wrong_loop() -> None:
    @agent
    async def lost(goal: str) -> str:
        await run_on_asyncio(lambda: delegate(greeter, goal))
        raise AssertionError

    async with open_orchestrator(":memory:") as opened:
        run = await opened.run(lost, "Greet.")

    assert "WrongLoopError" in run.outcome.error


async def test_a_value_that_is_not_an_agent_is_refused_with_a_sentence() -> None:
    wrong: Any
    async with open_orchestrator(":memory:") as opened:
        for wrong in ("greeter", [greeter], Agent):
            calls: list[Callable[[], Awaitable[object]]] = [
                partial(opened.run, wrong, "Greet."),
                opened.stream(wrong, "Greet.").__aenter__,
                opened.open_session(wrong).__aenter__,
                partial(opened.resume, wrong, "r_1"),
                partial(opened.fork, wrong, "r_1", task="/greeter"),
            ]
            for call in calls:
                with pytest.raises(DefinitionError, match="is not an agent"):
                    await call()


async def test_a_value_that_is_not_a_journal_is_refused_with_a_sentence() -> None:
    wrong: Any = 3
    with pytest.raises(DefinitionError, match="3 is not a journal"):
        await open_orchestrator(wrong).__aenter__()


def test_open_orchestrator_takes_few_parameters() -> None:
    assert len(inspect.signature(open_orchestrator).parameters) <= 10


def test_machine_refuses_a_text_where_it_takes_a_list() -> None:
    wrong: Any = "GITHUB_TOKEN"
    for name in ("secrets", "hand_on", "hide"):
        with pytest.raises(DefinitionError, match="must be a list"):
            Machine(**{name: wrong})


def test_the_late_function_looks_like_the_function() -> None:
    assert inspect.signature(open_orchestrator) == inspect.signature(of_runtime)
    assert open_orchestrator.__doc__ == of_runtime.__doc__
    assert open_orchestrator.__name__ == "open_orchestrator"
    assert "orchestrator.composition.open_orchestrator" in repr(open_orchestrator)


def test_importing_agent_definitions_does_not_import_the_runtime() -> None:
    # A process that measures coverage has imported some of it before.
    code = (
        "import sys; before = set(sys.modules);"
        " from orchestrator import Agent, agent, tool, open_orchestrator, run_sync;"
        " print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    heavy = {
        "orchestrator.composition",
        "orchestrator.agents.turn",
        "delegation",
        "sqlite3",
        "asyncio",
    }
    assert heavy & set(done.stdout.split()) == set()
