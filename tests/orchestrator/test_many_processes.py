"""Many processes beside each other in one state directory: real processes, real files."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from orchestrator.backends import journals_at
from orchestrator.cli.app import run_command
from orchestrator.cli.watch.journal_tail import open_run
from orchestrator.delegation import SessionId
from orchestrator.kernel.control.client import connect_control
from orchestrator.kernel.journal.journals import Journals, ListedSession

pytestmark = pytest.mark.realtime

RUNS = 10
AGENTS = """
import os
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool

@tool
def wait_for_the_test() -> str:
    "Tell the test that this runs, and wait until it lets go."
    if "READY" in os.environ:
        os.write(int(os.environ["READY"]), b".")
        os.read(int(os.environ["GATE"]), 1)
    return "waited"

helper = Agent(
    "helper",
    model=ScriptedModel.always(
        lambda t: ToolCall("wait_for_the_test", {}) if len(t) == 1 else "found"
    ),
    tools=[wait_for_the_test],
)
editor = Agent(
    "editor",
    model=ScriptedModel.always(
        lambda t: ToolCall("delegate_task", {"goal": "look"}) if len(t) == 1 else "merged"
    ),
    delegates=[helper],
)
"""


class Machine:
    """A state directory, and the processes that use it."""

    def __init__(self, folder: Path, stack: ExitStack, python: list[str]) -> None:
        self.folder = folder
        self.home = folder / "state"
        self._stack = stack
        self._python = python
        (folder / "team.py").write_text(AGENTS)
        self._ready, ready = os.pipe()
        gate, self._gate = os.pipe()
        self._handed_on = (ready, gate)
        for descriptor in (self._ready, ready, gate):
            stack.callback(os.close, descriptor)

    @property
    def journals(self) -> Journals:
        return journals_at(f"{self.home}/")

    def start(self, *arguments: str, gated: bool = False) -> subprocess.Popen[str]:
        ready, gate = self._handed_on
        environ = {**os.environ, "ORCHESTRATOR_HOME": str(self.home)}
        if gated:
            environ |= {"READY": str(ready), "GATE": str(gate)}
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environ,
            pass_fds=self._handed_on if gated else (),
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process

    def run(self, *arguments: str) -> None:
        """Run a command to its end, which prints the answer of the editor."""
        ended = subprocess.run(
            [*self._python, "-m", "orchestrator", *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, "ORCHESTRATOR_HOME": str(self.home)},
            timeout=60,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (0, "merged\n"), ended.stderr

    def wait_ready(self, count: int) -> None:
        for _ in range(count):
            assert os.read(self._ready, 1) == b"."

    def release(self) -> None:
        """Let all processes go on that wait for the test."""
        os.close(self._gate)

    def listed(self) -> list[ListedSession]:
        found = self.journals.sessions()
        assert not found.unreadable
        return [*found.sessions]


@pytest.fixture
def machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: list[str]
) -> Iterator[Machine]:
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        yield Machine(tmp_path, stack, python)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        code = run_command(arguments)
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return run


def ask_server(server: subprocess.Popen[str], home: Path) -> None:
    """Run an agent by a server that has just been started."""
    assert server.stdout is not None
    lines = iter(server.stdout.readline, "")
    url = next(line.split()[-1] for line in lines if line.startswith("listening at "))
    token = (home / "api_key").read_text().strip()
    asked = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps({"model": "editor", "messages": [{"role": "user", "content": "go"}]}).encode(),
        {"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert "merged" in answer.read().decode()


def test_ten_runs_at_once_beside_a_server_simply_work(
    machine: Machine, command: Callable[..., str]
) -> None:
    server = machine.start("serve", "team.py", "--port", "0")
    processes = [machine.start("run", "team.py:editor", "go", gated=True) for _ in range(RUNS)]
    ask_server(server, machine.home)
    machine.wait_ready(RUNS)

    listed = machine.listed()
    assert len({it.journal for it in listed}) == RUNS + 1, "each process has its own"
    printed = command("runs")
    assert re.findall(r"^r_\w+", printed, re.MULTILINE) == [it.id for it in listed]
    running = [it for it in listed if is_found(it, machine, command) == "running"]
    assert len(running) == RUNS

    killed = processes[0]
    killed.kill()
    killed.wait()
    (waiting,) = machine.journals.waiting()
    machine.run("run", "team.py:editor", "go")
    assert machine.listed()[-1].journal not in {it.journal for it in listed}

    machine.release()
    for process in processes[1:]:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out == "merged\n"
    names = machine.journals.names()
    machine.run("run", "team.py:editor", "go")
    newest = machine.listed()[-1]
    assert newest.journal in names, "one whose runs have ended is used again"
    assert newest.journal != waiting, "what waits there is left alone"

    (lost,) = (it for it in listed if it.journal == waiting)
    assert is_found(lost, machine, command) == "interrupted"
    machine.run("resume", "team.py:editor", lost.id)
    assert machine.journals.names() == names
    for it in machine.listed():
        assert is_found(it, machine, command) == "succeeded"
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    checked = command("doctor")
    assert checked.count("\njournal ") + 1 == len(names)
    assert "healthy" in checked


def is_found(it: ListedSession, machine: Machine, command: Callable[..., str]) -> str:
    """Look at a run in every way, by its id alone, and return its status."""
    tree = json.loads(command("tree", it.id, "--json"))
    task = next(node["id"] for node in tree["nodes"] if node["agent"] == "helper")
    shown = json.loads(command("show", task, "--json"))
    assert shown["run"] == it.id
    report = machine.folder / "report.html"
    command("report", it.id, "--output", str(report))
    assert it.id in report.read_text()
    return trio.run(watched_status, machine.journals, it.id)


async def watched_status(journals: Journals, run: SessionId) -> str:
    """Return the status that `watch` shows; of a run under way, its own process is reached."""
    reader = await open_run(journals, run)
    assert reader.file is not None
    async with connect_control(reader.file) as client:
        assert (client is not None) == reader.has_writer
    return reader.tree[reader.tree.root].status
