"""A call is the same wherever it runs: here, or at workers."""

from collections.abc import Generator

import pytest
import trio

from orchestrator import budget
from orchestrator.agents import (
    Agent,
    CallKey,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolError,
    confirm,
    tool,
)
from orchestrator.delegation import Ending
from orchestrator.delegation.events import CallPlaced, ToolAnswered
from tests.postgres import PostgresServer
from tests.workers.places import PLACE, Places


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Generator[str]:
    """One for all: they are about calls, and each has a run of its own."""
    with postgres_server.new_database() as url:
        yield url


@pytest.fixture(params=["here", "workers", pytest.param("absurd", marks=pytest.mark.realtime)])
def places(request: pytest.FixtureRequest) -> Places:
    if request.param == "absurd":
        return Places(url=request.getfixturevalue("database"))
    return Places(here=request.param == "here")


def caller(*tools: Tool, calls: int = 1, name: str = "painter", **arguments: object) -> Agent:
    """Return an agent that calls its first tool, and answers what that has answered."""
    call = ToolCall(tools[0].name, arguments)
    steps = [call] * calls
    return Agent(
        name, model=ScriptedModel([*steps, lambda transcript: transcript[-1].text]), tools=tools
    )


@tool(place=PLACE)
async def paint(what: str) -> str:
    """Paint something."""
    await trio.lowlevel.checkpoint()
    return f"painted {what}"


async def test_a_call_is_answered(places: Places) -> None:
    agent = places.agents["painter"] = caller(paint, what="a house")

    async with places.open() as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.outcome.output == "painted a house"
    (answered,) = places.facts(ToolAnswered)
    assert not answered.message.failed
    assert [it.worker for it in places.facts(CallPlaced)] == ([] if places.here else ["w1"])


async def test_an_error_that_the_model_reads_is_the_same(places: Places) -> None:
    @tool(place=PLACE)
    async def fail() -> str:
        """Fail."""
        await trio.lowlevel.checkpoint()
        raise ToolError("there is no paint")

    agent = places.agents["painter"] = caller(fail)
    async with places.open() as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.outcome.output == "there is no paint"
    (answered,) = places.facts(ToolAnswered)
    assert answered.message.failed


async def test_any_other_error_ends_the_task_with_the_same_words(places: Places) -> None:
    @tool(place=PLACE)
    async def crash() -> str:
        """Crash."""
        await trio.lowlevel.checkpoint()
        raise ValueError("the brush broke")

    agent = places.agents["painter"] = caller(crash)
    async with places.open() as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.outcome.ending is Ending.FAILED
    line = crash.run.__code__.co_firstlineno  # the words name a line of this very file
    assert run.outcome.error.startswith("ValueError: the brush broke (test_places.py:"), line


async def test_invalid_arguments_are_sent_to_the_model(places: Places) -> None:
    agent = places.agents["painter"] = caller(paint, whom="x")
    async with places.open() as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.outcome.output.startswith("the arguments of paint do not fit")


@pytest.mark.realtime
async def test_a_tool_in_a_thread_gets_the_key_of_its_call(places: Places) -> None:
    @tool(place=PLACE)
    def register(key: CallKey) -> str:
        """Register a key."""
        return key

    agent = places.agents["painter"] = caller(register)
    async with places.open() as orchestrator:
        run = await orchestrator.run(agent, "go")

    (answered,) = places.facts(ToolAnswered)
    assert run.outcome.output == f"{answered.task}/{answered.message.call}"


@pytest.mark.realtime
async def test_an_answer_of_a_megabyte_arrives_whole(places: Places) -> None:
    @tool(place=PLACE, limit=0)
    async def fill(text: str) -> str:
        """Fill a page."""
        await trio.lowlevel.checkpoint()
        return text * 4

    text = "a wide wall " * 25_000
    agent = places.agents["painter"] = caller(fill, text=text)
    async with places.open() as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.outcome.output == text * 4


async def test_secrets_are_removed(places: Places) -> None:
    @tool(place=PLACE)
    async def leak() -> str:
        """Leak."""
        await trio.lowlevel.checkpoint()
        return "writer-secret-4711 worker-secret-0815"

    agent = places.agents["painter"] = caller(leak)
    environ = {"WRITER_TOKEN": "writer-secret-4711"}
    async with places.open(environ=environ) as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert "4711" not in run.outcome.output
    assert ("0815" in run.outcome.output) == places.here


async def test_a_timeout_stops_the_call(places: Places) -> None:
    stopped: list[str] = []

    seconds = places.minute

    @tool(place=PLACE, timeout=seconds)
    async def sleep() -> str:
        """Sleep."""
        try:
            await trio.sleep_forever()
        finally:
            stopped.append("sleep")

    agent = places.agents["painter"] = caller(sleep)
    began = trio.current_time()
    async with places.open() as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.outcome.output == (
        f"sleep did not answer within {seconds:g} second{'s' * (seconds != 1)} and was stopped;"
        " ask it for less, or go on without it"
    )
    assert stopped == ["sleep"]
    assert trio.current_time() - began >= seconds


async def test_a_cancel_returns_after_the_whole_call_has_ended(places: Places) -> None:
    log: list[str] = []
    begun = trio.Event()

    @tool(place=PLACE)
    async def sleep() -> str:
        """Sleep, and clean up for a while."""
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            log.append("ended")

    agent = places.agents["painter"] = caller(sleep)
    async with places.open() as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, agent, "go")
            await begun.wait()
            await orchestrator.cancel(orchestrator.runs[-1])
            log.append("joined")

    assert log == ["ended", "joined"]


async def test_cancelling_the_whole_program_leaves_no_call_running(places: Places) -> None:
    log: list[str] = []
    begun = trio.Event()

    @tool(place=PLACE)
    async def sleep() -> str:
        """Sleep, and clean up for a while."""
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            log.append("ended")

    agent = places.agents["painter"] = caller(sleep)
    async with places.around():
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def cancel() -> None:
                    await begun.wait()
                    scope.cancel()

                async with places.writing() as orchestrator:
                    await orchestrator.run(agent, "go")
        log.append("left")

    assert log == ["ended", "left"]


async def test_a_budget_is_exact(places: Places) -> None:
    agent = places.agents["painter"] = Agent(
        "painter",
        model=ScriptedModel.always(
            lambda transcript: "done" if len(transcript) > 2 else ToolCall("paint", {"what": "x"})
        ),
        tools=[paint],
    )
    children = 40
    boss = Agent(
        "boss",
        model=ScriptedModel(
            [
                [
                    ToolCall("delegate_task", {"goal": f"{n}", "agent": "painter"})
                    for n in range(children)
                ],
                "end",
            ]
        ),
        delegates=[agent],
    )
    places.agents["boss"] = boss
    async with places.open(workers=2) as orchestrator:
        with budget(calls=50):
            run = await orchestrator.run(boss, "go")

    assert run.usage.calls == 50


@pytest.mark.parametrize("verdict", ["once", "deny"])
async def test_a_call_waits_for_approval_before_it_is_sent(places: Places, verdict: str) -> None:
    ran: list[str] = []

    @tool(place=PLACE)
    async def launch() -> str:
        """Launch."""
        await trio.lowlevel.checkpoint()
        ran.append("launch")
        return "launched"

    agent = places.agents["painter"] = Agent(
        "painter",
        model=ScriptedModel([ToolCall("launch"), lambda transcript: transcript[-1].text]),
        tools=[launch],
        approve=[confirm("launch")],
    )
    outputs: list[str] = []
    async with places.open() as orchestrator:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def run() -> None:
                ended = await orchestrator.run(agent, "go", attended=True)
                outputs.append(ended.outcome.output)

            while not orchestrator.approvals:
                await orchestrator.wait_changed(after=orchestrator.read.last_seq)
            await trio.sleep(places.minute)
            assert not ran
            assert not places.facts(CallPlaced)
            await orchestrator.answer(orchestrator.approvals[0].id, verdict)

    assert ran == (["launch"] if verdict == "once" else [])
    assert outputs == ["launched"] or "was denied" in outputs[0]
