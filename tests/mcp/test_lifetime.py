"""Servers end after a kill; a list, a replay and a simulation start none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from orchestrator import Machine, open_orchestrator
from orchestrator.agents import Agent, DefinitionError, McpCommand, McpUrl, ScriptedModel, ToolCall
from orchestrator.delegation.events import ToolAnswered
from orchestrator.products.history.replay.run import replay
from orchestrator.simulation import SimulationSettings, simulate_once
from orchestrator.testing import Harness
from tests.mcp.kit import HERE, Caller, hostile, is_running, program, user

HELLO = ToolCall("bad__reply", {"result": {"content": [{"type": "text", "text": "hi"}]}})
KILLED = """
import sys, trio
from orchestrator.delegation.events import ToolAnswered
from orchestrator import open_orchestrator
from orchestrator.agents import ToolCall
from tests.mcp.kit import Caller, hostile, user

async def main():
    model = Caller(ToolCall("bad__grandchild"), [ToolCall("bad__hang")])
    async with open_orchestrator(":memory:") as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(orchestrator.run, user(model, hostile("--stubborn")), "go")
        await model.wait_asked(times=2)
        print(model.answers[0].text, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.realtime
async def test_the_next_start_ends_the_servers_of_a_killed_process(tmp_path: Path) -> None:
    """Also a server that goes on without its stdin, and a grandchild that left its group."""
    environ = {**os.environ, "ORCHESTRATOR_HOME": str(tmp_path / "home")}
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", KILLED], env=environ, stdout=subprocess.PIPE, cwd=HERE.parent.parent
    )
    assert process.stdout is not None
    async with process.stdout:
        grandchild = (await process.stdout.receive_some()).decode().strip()
        process.kill()
        await process.wait()

    # In the middle of its exec a process shows no arguments.
    while not is_running(grandchild):
        await trio.lowlevel.checkpoint()
    async with open_orchestrator(":memory:", machine=Machine(environ=environ)):
        assert not is_running(grandchild)
    assert not any((tmp_path / "home" / "servers").iterdir())
    assert not (tmp_path / "home" / "server-folders").exists()


@pytest.mark.realtime
async def test_a_replay_connects_to_no_server() -> None:
    harness = Harness()
    unknown = ToolCall("bad__no_such_tool")
    model = Caller(HELLO, unknown)
    async with harness.open() as orchestrator:
        await orchestrator.run(user(model, hostile()), "go")
    away = McpCommand("bad", ["/no/such/program"], env={"A": "${NOT_SET_ANYWHERE}"})

    result = await replay(harness.entries, user(Caller(), away))

    assert result.is_same, result


def test_a_simulation_connects_to_no_server() -> None:
    away = McpCommand("bad", ["/no/such/program"], env={"A": "${NOT_SET_ANYWHERE}"})
    agent = Agent("user", model=ScriptedModel([]), servers=[away])

    run = simulate_once(agent, "go", SimulationSettings(tool_calls=2), seed=1)

    answers = [it.event for it in run.entries if isinstance(it.event, ToolAnswered)]
    assert {it.message.text for it in answers} == {"bad__tool was simulated"}


def test_an_agent_that_names_servers_is_defined_without_the_sdk() -> None:
    """It takes a second to import, and most commands only read the definition."""
    code = """
import sys
from orchestrator import Agent, ScriptedModel
from orchestrator.tools import McpCommand, McpUrl
servers = [McpCommand("a", ["b"]), McpUrl("c", "http://d/mcp")]
agent = Agent("user", model=ScriptedModel([]), servers=servers)
import orchestrator.composition
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert {"mcp", "mcp_types", "httpx2", "pydantic"} & {*done.stdout.split()} == set()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: McpCommand("a__b", ["x"]), "cannot be the name of a server"),
        (lambda: McpCommand("", ["x"]), "cannot be the name of a server"),
        (lambda: McpCommand("a", []), "a program and its arguments"),
        (lambda: McpCommand("a", "npx server"), "must be a list of texts"),
        (lambda: McpCommand("a", ["x"], env={"A B": "1"}), "name of a variable"),
        (lambda: McpCommand("a", ["x"], timeout=0), "is not a time"),
        (lambda: McpUrl("a", "ftp://x"), "must begin with https"),
        (lambda: McpUrl("a", "http://u:secret@x/"), "has a password in it"),
        (lambda: McpUrl("a", "http://x/", headers={"a:b": "c"}), "name of a header"),
        (lambda: McpUrl("a", "http://x/", headers={"a": "b\nc: d"}), "must be one line"),
        (
            lambda: Agent(
                "u",
                model=ScriptedModel([]),
                servers=[McpCommand("a", ["x"]), McpUrl("a", "http://x/")],
            ),
            "two servers called 'a'",
        ),
    ],
)
def test_a_wrong_definition_is_refused(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(DefinitionError, match=said) as refused:
        make()

    assert "secret" not in str(refused.value)


async def test_an_unset_variable_is_refused_before_the_server_starts() -> None:
    server = program("bad", "hostile.py", env={"TOKEN": "${NOT_SET_ANYWHERE}"})
    async with open_orchestrator(":memory:") as orchestrator:
        with pytest.raises(DefinitionError, match="NOT_SET_ANYWHERE"):
            await orchestrator.run(user(Caller(), server), "go")


@pytest.mark.realtime
async def test_a_tool_of_a_server_is_asked_about_unless_it_was_allowed() -> None:
    """Its annotations are hints of a stranger, and allow nothing."""
    model = Caller(ToolCall("bad__count_safely"))
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(user(model, hostile(), approve=[]), "go")

    assert model.answers[0].failed
    assert "needs an approval" in model.answers[0].text
