"""Processes with journals in one folder, or in one database, share the refusals of a provider."""

import os
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import h11
import pytest
import trio

from orchestrator import Agent, Machine, Orchestrator, open_orchestrator
from orchestrator.agents.models.wrappers.pace import Pace, with_pace
from orchestrator.agents.models.wrappers.shared_hold import LONGEST_HOLD, FileHold, SharedHold
from orchestrator.kernel.execution.model_resolver import ModelResolver
from orchestrator.products.cluster.database.shared_holds import open_shared_holds
from tests.agents.test_pace import Provider, ask_together
from tests.fake_provider import FakeProvider, Heard, Raw, Reply, Say, Then, encode, serving

RETRY_AFTER = 3
PROGRAM = """
import sys, trio
from orchestrator import Agent, open_orchestrator

async def main():
    async with open_orchestrator(sys.argv[1]) as orchestrator:
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        run = await orchestrator.run(Agent("a", model="openai:m"), sys.argv[2])
        print(run.outcome.output, flush=True)

trio.run(main)
"""


class Refusing(FakeProvider):
    """Refuses its first request, and notes when it got each."""

    def __init__(self) -> None:
        super().__init__(Say(text="hello"))
        refused = {"content-type": "application/json", "retry-after": str(RETRY_AFTER)}
        self.replies: list[Reply] = [Raw(encode({"error": {}}), 429, refused)]
        self.asked: list[tuple[str, float]] = []

    async def answer(
        self, http: h11.Connection, connection: trio.SocketStream, heard: Heard
    ) -> Then:
        self.asked.append((heard.body["messages"][-1]["content"], trio.current_time()))
        return await super().answer(http, connection, heard)


async def start(folder: Path, name: str, url: str) -> trio.Process:
    environ = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": url, "ORCHESTRATOR_HOME": str(folder)}
    command = [sys.executable, "-c", PROGRAM, f"{folder}{os.sep}", name]
    process = await trio.lowlevel.open_process(
        command, env={**os.environ, **environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert await _line(process) == b"ready\n"
    return process


async def _line(process: trio.Process) -> bytes:
    assert process.stdout is not None
    read = b""
    while not read.endswith(b"\n"):
        piece = await process.stdout.receive_some(1)
        assert piece, "the program has ended"
        read += piece
    return read


async def go(process: trio.Process) -> None:
    assert process.stdin is not None
    await process.stdin.send_all(b"\n")


@pytest.mark.realtime
async def test_a_refusal_of_one_process_holds_the_calls_of_another_back(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    async with serving(Refusing()) as provider, trio.open_nursery() as nursery:
        first = await start(folder, "first", provider.url)
        second = await start(folder, "second", provider.url)
        await go(first)
        while not [*folder.glob("limits/*")]:  # noqa: ASYNC110 (a file tells nobody)
            await trio.sleep(0.01)
        refused_at = provider.asked[0][1]
        await go(second)
        for process in (first, second):
            nursery.start_soon(_ends, process)

    assert provider.asked[0][0] == "first"
    assert sorted(name for name, _ in provider.asked) == ["first", "first", "second"]
    assert all(at >= refused_at + RETRY_AFTER - 0.05 for _, at in provider.asked[1:])
    (file,) = folder.glob("limits/*")
    assert (file.stat().st_size, file.stat().st_mode & 0o777) == (0, 0o600)
    assert file.parent.stat().st_mode & 0o777 == 0o700


async def _ends(process: trio.Process) -> None:
    assert await _line(process) == b"hello\n"
    assert await process.wait() == 0


def test_a_shared_hold_only_grows_and_is_bounded(tmp_path: Path) -> None:
    one, other = (FileHold(tmp_path / "limits", "openai:m") for _ in range(2))
    another = FileHold(tmp_path / "limits", "openai:n")
    assert one.seconds_left() == 0

    one.extend(60)
    other.extend(5)

    assert 50 < other.seconds_left() <= 60
    assert another.seconds_left() == 0
    one.extend(1e6)
    assert other.seconds_left() == LONGEST_HOLD


def test_a_folder_that_cannot_be_written_fails_no_call(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    hold = FileHold(file / "limits", "openai:m")

    hold.extend(10)

    assert hold.seconds_left() == 0


@pytest.mark.realtime
async def test_a_process_that_follows_another_one_tries_with_one_call(tmp_path: Path) -> None:
    """The provider has refused no call of this process, and is not met by all of its calls."""
    FileHold(tmp_path, "m").extend(0.5)
    provider = Provider(lambda _: False, first_sign=0.1, seconds=0)
    pace = Pace(shared=FileHold(tmp_path, "m"))
    begun = trio.current_time()

    assert await ask_together(with_pace(provider, pace), 20) == 20

    first, *others = sorted(provider.asked_at)
    assert first >= begun + 0.4
    assert min(others) >= first + 0.1


@pytest.mark.realtime
async def test_processes_with_journals_in_one_database_share_refusals(postgres: str) -> None:
    """Two orchestrators, each with a journal and connections of its own."""
    model = "openai:m"
    async with serving(Refusing()) as provider, AsyncExitStack() as opened:
        environ = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": provider.url}
        first, second = [
            await opened.enter_async_context(
                open_orchestrator(f"{postgres}&journal={name}", machine=Machine(environ=environ))
            )
            for name in ("one", "two")
        ]
        agent = Agent("a", model=model)
        # The second one begins to listen when it uses a model by name.
        second.sessions.registry.models.model_of(agent)
        hold = _hold_of(second, model)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.run, agent, "first")
            while not hold.seconds_left():  # noqa: ASYNC110 (it tells no task)
                await trio.sleep(0.01)
            refused_at = provider.asked[0][1]
            assert (await second.run(agent, "second")).output == "hello"

    assert provider.asked[0][0] == "first"
    assert sorted(name for name, _ in provider.asked) == ["first", "first", "second"]
    assert all(at >= refused_at + RETRY_AFTER - 0.5 for _, at in provider.asked[1:])


def _hold_of(orchestrator: Orchestrator, model: str) -> SharedHold:
    models = orchestrator.sessions.registry.models
    assert isinstance(models, ModelResolver)
    hold = models._paces[model]._shared
    assert hold is not None
    return hold


@pytest.mark.realtime
async def test_a_hold_in_a_database_only_grows_and_outlives_a_process(postgres: str) -> None:
    async with open_orchestrator(f"{postgres}&journal=one"):
        pass
    async with open_shared_holds(postgres) as one, open_shared_holds(postgres) as other:
        mine, yours = one.of("openai:m"), other.of("openai:m")
        mine.extend(60)
        while not yours.seconds_left():  # noqa: ASYNC110 (it tells no task)
            await trio.sleep(0.01)
        yours.extend(5)
        assert 30 < yours.seconds_left() <= 60
        assert other.of("openai:n").seconds_left() == 0
    async with open_shared_holds(postgres) as later:
        hold = later.of("openai:m")
        while not hold.seconds_left():  # noqa: ASYNC110 (it tells no task)
            await trio.sleep(0.01)
        assert hold.seconds_left() <= 60


@pytest.mark.realtime
async def test_a_database_that_refuses_holds_fails_no_call(
    postgres: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The database has no tables."""
    async with open_shared_holds(postgres) as holds:
        hold = holds.of("openai:m")
        while not caplog.records:  # noqa: ASYNC110 (a log tells no task)
            await trio.sleep(0.01)
        hold.extend(3)
        assert 0 < hold.seconds_left() <= 3

    assert "refusals of providers are not shared" in caplog.text
