"""`orchestrator serve` as a process: what it says, and how it ends."""

import os
import random
import shutil
import signal
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx2
import pytest
import trio

from orchestrator import open_orchestrator
from orchestrator.backends import store_at
from orchestrator.cli.retention import size_on_disk
from orchestrator.kernel.private_files import foreign_folder
from tests.journal.kit import DAY, rewrite
from tests.kit import worker
from tests.server.server_process import AGENTS, ROOT, server_process

pytestmark = pytest.mark.realtime

TWO = """
from orchestrator.agents import Agent, ScriptedModel

first = Agent("one", model=ScriptedModel.always("1"))
second = Agent("two", model=ScriptedModel.always("2"))
"""


async def test_serve_lists_every_agent_of_the_file(tmp_path: Path) -> None:
    async with server_process(tmp_path, TWO) as server:
        async with server.openai() as client:
            models = await client.models.list()
        assert await server.terminate() == 0

    assert [model.id for model in models.data] == ["one", "two"]
    assert "agents: one, two\n" in server.output
    assert server.output.count("ended runs are deleted after 90 days") == 1
    assert server.errors == ""


async def test_serve_reads_its_token_by_reference(tmp_path: Path) -> None:
    token, file = "the-token-of-a-vault-0123", tmp_path / "token"
    file.write_text(token)
    environ = {"ORCHESTRATOR_API_KEY": f"secret:file:{file}"}
    async with server_process(tmp_path, TWO, environ=environ) as server:
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=server.url, headers=headers) as http:
            assert (await http.get("/v1/models")).status_code == 200
        assert await server.terminate() == 0

    assert token not in server.output + server.errors


async def test_serve_refuses_a_folder_that_others_can_write(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o777)
    command = [sys.executable, "-m", "orchestrator", "serve", "agents.py", "--port", "0"]

    refused = await trio.run_process(
        [*command, "--journal", "state/journal.db"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_stderr=True,
        check=False,
    )

    assert refused.returncode == 2
    assert b"drwxrwxrwx" in refused.stderr
    assert [*folder.iterdir()] == []
    assert foreign_folder(folder)
    for mode in (0o1777, 0o755, 0o700):
        folder.chmod(mode)
        assert not foreign_folder(folder)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_the_printed_try_command_works(tmp_path: Path) -> None:
    async with server_process(tmp_path) as server:
        line = server.output.partition("try: ")[2].partition("\n")[0]
        tried = await trio.run_process(["sh", "-c", f"{line} --silent --fail"], capture_stdout=True)

    assert b'"id":"worker"' in tried.stdout


async def test_the_token_is_shown_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    async with server_process(tmp_path) as server:
        token = server.token
        assert server.output.count(token) == 1
        await server.terminate()
        await server.start()
        assert token not in server.output
        async with server.http() as http:
            assert (await http.get("/v1/models")).status_code == 200

    mode = stat.S_IMODE((tmp_path / "api_key").stat().st_mode)
    assert mode == 0o600
    assert token.encode() not in (tmp_path / "journal.db").read_bytes()


async def test_after_a_crash_it_starts_again(tmp_path: Path) -> None:
    async with server_process(tmp_path) as server:
        await server.kill()
        await server.start()
        assert await server.terminate(signal.SIGINT) == 0


async def test_serve_names_waiting_runs_of_agents_that_are_not_served(tmp_path: Path) -> None:
    agents = """
from orchestrator.agents import Agent, ScriptedModel

slow = Agent("slow", model=ScriptedModel.always("late", 1000))
"""
    async with server_process(tmp_path, agents) as server:
        async with server.http() as http:
            asked = {"model": "slow", "input": "go"}
            assert (await http.post("/v1/runs", json=asked)).status_code == 202
        await server.kill()
        (tmp_path / "agents_file.py").write_text(agents.replace("slow", "other"))
        await server.start()

        assert "1 unfinished, of agents that are not served here" in server.output
        assert ": slow\n" in server.output


async def test_serve_deletes_runs_beyond_the_retention(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path) as orchestrator:
        await orchestrator.run(worker(), "old")
    rewrite(path, f"UPDATE entries SET at = at - {40 * DAY}")
    async with open_orchestrator(path) as orchestrator:
        new = await orchestrator.run(worker(), "new")
    async with server_process(tmp_path, AGENTS, "--keep", "30d") as server:
        with trio.fail_after(30):
            while len(listed := sessions_in(path)) > 1:  # noqa: ASYNC110 (no one tells us)
                await trio.sleep(0.01)
        assert listed == [new.id]
        assert await server.terminate() == 0
    assert server.errors == ""


async def test_serve_deletes_the_oldest_runs_of_a_large_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    goals = [random.Random(it).randbytes(100_000).hex() for it in range(12)]
    async with open_orchestrator(path) as orchestrator:
        runs = [await orchestrator.run(worker(), goal) for goal in goals]
    before = size_on_disk(path)
    async with server_process(
        tmp_path, AGENTS, "--keep-size", "1MB", "--keep", "forever"
    ) as server:
        with trio.fail_after(30):
            while size_on_disk(path) > 1_000_000:  # noqa: ASYNC110 (no one tells us)
                await trio.sleep(0.01)
        left = sessions_in(path)
        assert await server.terminate() == 0

    assert "ended runs are deleted" not in server.output
    assert before > 2_000_000
    assert 0 < len(left) < 6
    assert list(left) == [run.id for run in runs[-len(left) :]]
    assert server.errors == ""


def sessions_in(path: Path) -> Sequence[str]:
    with store_at(path).open_reader() as reader:
        return reader.sessions()
