"""A server reads, labels and controls the runs that other processes of its folder write."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from orchestrator import open_orchestrator
from orchestrator.backends import journals_at
from orchestrator.kernel.journal.journals import Journals
from tests.console.team import sleeper
from tests.server.test_folder_server import Disk, Served, serving

pytestmark = pytest.mark.realtime
ROOT = Path(__file__).parent.parent.parent
TEAM = ROOT / "tests" / "console" / "team.py"
PATIENCE = 60


@attrs.define
class Program:
    """`orchestrator run` in a process of its own, and its facts."""

    process: trio.Process
    run: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait_for(self, kind: str) -> dict[str, Any]:
        """Read the facts of the run until there is one of a kind."""
        async for fact in self._facts:
            self.run = self.run or fact.get("session", "")
            if fact["kind"] == kind:
                return fact
        raise AssertionError(f"the process ended without {kind}")

    _facts: AsyncIterator[dict[str, Any]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._facts = self._read()

    async def _read(self) -> AsyncGenerator[dict[str, Any]]:
        stdout = self.process.stdout
        assert stdout is not None
        rest = b""
        async for chunk in stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)


@asynccontextmanager
async def running(folder: Path, agent: str) -> AsyncGenerator[Program]:
    """Run an agent in another process that writes a journal of the folder."""
    command = ["orchestrator", "run", f"{TEAM}:{agent}", "go", "--progress", "json", "--journal"]
    if agent == "operator":
        # Without a terminal, the command denies every approval.
        command = ["tests.server.operated_program"]
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", *command, f"{folder}/"],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder.parent)},
    )
    try:
        with trio.fail_after(PATIENCE):
            yield Program(process)
    finally:
        if process.poll() is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    (tmp_path / "runs").mkdir(mode=0o700)
    return journals_at(f"{tmp_path / 'runs'}/")


@asynccontextmanager
async def watched(journals: Journals, agent: str) -> AsyncGenerator[tuple[Served, Program]]:
    """Serve a folder while another process runs an agent in it."""
    assert journals.folder is not None
    async with running(journals.folder, agent) as program, serving(journals, Disk()) as served:
        yield served, program


async def body_of(served: Served, path: str) -> Any:
    answer = await served.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_run_of_another_process_is_read_and_named(journals: Journals) -> None:
    async with watched(journals, "pair") as (served, program):
        fact = await program.wait_for("TaskRequested")
        run = await body_of(served, f"/v1/runs/{program.run}")
        assert (run["status"], run["process"]) == ("in_progress", program.pid)
        [listed] = (await body_of(served, "/v1/runs"))["data"]
        assert (listed["id"], listed["process"]) == (program.run, program.pid)
        assert (await body_of(served, f"/v1/runs/{program.run}/failures"))["total"] == 0
        transcript = await body_of(served, f"/v1/tasks/{program.run}/transcript")
        assert transcript["data"][0]["text"] == "go"
        tree = await body_of(served, f"/v1/runs/{program.run}/tree")
        child = fact["body"]["request"]["id"]
        assert child in {it["id"] for it in tree["nodes"]}
        assert (await body_of(served, f"/v1/tasks/{child}"))["run"] == program.run


async def test_a_run_of_another_process_is_paused_messaged_and_cancelled(
    journals: Journals,
) -> None:
    async with watched(journals, "pair") as (served, program):
        fact = await program.wait_for("TaskRequested")
        http, child = served.http, fact["body"]["request"]["id"]
        paused = await http.post(f"/v1/tasks/{program.run}/pause")
        assert paused.json()["paused"], paused.text
        unpaused = await http.post(f"/v1/tasks/{program.run}/unpause")
        assert not unpaused.json()["paused"], unpaused.text
        sent = await http.post(f"/v1/tasks/{child}/steer", json={"text": "be brief"})
        assert (sent.status_code, sent.json()["state"]) == (200, "waiting"), sent.text
        cancelled = await http.post(f"/v1/tasks/{child}/cancel")
        assert cancelled.json()["status"] == "cancelled", cancelled.text
        ended = await http.post(f"/v1/runs/{program.run}/cancel")
        assert (ended.json()["status"], ended.json()["process"]) == ("cancelled", 0), ended.text
        assert await program.process.wait() == 5


async def test_an_approval_of_another_process_is_listed_and_answered(journals: Journals) -> None:
    async with watched(journals, "operator") as (served, program):
        await program.wait_for("ApprovalAsked")
        [approval] = (await body_of(served, "/v1/approvals"))["data"]
        assert (approval["run"], approval["subject"]) == (program.run, "rm -r build/")
        path = f"/v1/approvals/{approval['id']}"
        given = await served.http.post(path, json={"answer": "once"})
        assert (given.status_code, given.json()["by"]) == (200, "key default"), given.text
        assert await program.process.wait() == 0
        again = await served.http.post(path, json={"answer": "once"})
        assert again.status_code == 200, again.text


async def test_a_page_receives_the_rows_of_another_process_until_the_process_leaves(
    journals: Journals,
) -> None:
    async with watched(journals, "pair") as (served, program):
        await program.wait_for("TaskRequested")
        run = program.run
        watch = {"watch": ["1:runs", f"2:run:{run}", f"3:task:{run}"]}
        async with served.http.stream("GET", "/console/events", params=watch) as stream:
            events = (json.loads(it[6:]) async for it in stream.aiter_lines() if it[:5] == "data:")
            statuses: dict[str, str] = {}
            processes: list[int] = []
            has_transcript = False
            is_killed = False
            async for event in events:
                to = event.get("to")
                processes += [it["process"] for it in event.get("runs", []) if to == 1]
                has_transcript |= to == 3 and event["messages"]
                if to == 2:
                    statuses |= {it[0]: it[1] for it in event["rows"]}
                    assert event["state"]["process"] == program.pid
                sleepers = [it for it in statuses.values() if it == "running"]
                if len(sleepers) >= 2 and processes and has_transcript and not is_killed:
                    is_killed = True
                    program.process.kill()
        # The stream ends when the process has left: the browser opens another one.
        assert is_killed
        assert processes[0] == program.pid
        listed = await body_of(served, f"/v1/runs/{run}")
        assert (listed["process"], listed["interrupted"]) == (0, True)
        assert len(served.names) == 2, "the server has taken the journal"


async def test_a_process_without_a_control_socket_is_read_and_cannot_be_controlled(
    journals: Journals,
) -> None:
    async with (
        open_orchestrator(journals.address) as program,
        serving(journals, Disk()) as served,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(program.run, sleeper, "go")
        await program.read.wait_durable(after=2)
        [run] = program.read.session_ids
        refused = await served.http.post(f"/v1/runs/{run}/cancel")
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (409, "written_elsewhere")
        assert f"process {os.getpid()}" in error["message"]
        assert (await body_of(served, f"/v1/runs/{run}"))["status"] == "in_progress"
        deleted = await served.http.delete(f"/v1/runs/{run}")
        assert deleted.status_code == 409
        nursery.cancel_scope.cancel()
