"""The longest stall of the event loop under attack: `python -m benchmarks.stalls [FOLDER]`.

`orchestrator serve` runs in a process of its own, and so do the attackers. A probe asks `/health`
again and again on one connection, and its longest wait is the figure: nothing else of the server
was answered in that time either. The first line is a server that has nothing to do: what the
machine itself adds. With a FOLDER the prepared journal is kept there for the next time.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs
import trio

from benchmarks import workloads
from benchmarks.journal import Line, Recorder, renamed, write_journal
from benchmarks.measure import Report
from orchestrator import open_orchestrator
from orchestrator.agents import Agent, Limits, ScriptedModel
from orchestrator.delegation import SessionId
from orchestrator.kernel.journal.memory import MemoryJournal

TOKEN: Final = "a-token-of-the-benchmarks"  # noqa: S105 (of nothing real)
MOST_MS: Final = 50
"""How long `/health` may take at most, whatever else is asked."""
PAUSE_SECONDS: Final = 0.002
SETTLE_SECONDS: Final = 0.3
"""How long the probe goes on after an attack: what it left behind may still stall the loop."""
JOURNAL: Final = "journal.db"
SESSIONS: Final = 50_000
CALLED_AT_ONCE: Final = 100
"""How many tasks a call requests by the default rules."""
RUNS: Final = (10_000, 25_000, 100_000)
LINES: Final = 400_000
"""How many lines of `password: x` are 4.7 MB."""
LONG_NAMES: Final = 5_000

AGENTS: Final = '''
from pathlib import Path

from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool
from orchestrator.agents.tools.files import read_file

LONG = "password: x\\n" * {lines}


@tool(limit=0)
def big() -> str:
    """Return a long text."""
    return LONG


def calls(transcript):
    return [ToolCall("read_file", {{"path": f"{{'n' * 200}}x{{n}}"}}) for n in range(40)]


def asks(transcript):
    return ToolCall("delegate_task", {{"tasks": [{{"goal": "g"}}] * 20_000}})


def hands_on(transcript):
    return ToolCall("delegate_task", {{"goal": LONG}})


class Fresh(ScriptedModel):
    """Begins its script again for each run."""

    async def answer(self, request):
        answered = sum(1 for it in request.transcript if type(it).__name__ == "AssistantMessage")
        self._taken = answered
        return await super().answer(request)


echo = Agent("echo", model=ScriptedModel.always("ok"))
speaker = Agent("speaker", model=ScriptedModel.always(LONG))
caller = Agent("caller", model=Fresh([ToolCall("big", {{}}), "ok"]), tools=[big])
giver = Agent("giver", model=Fresh([hands_on, "ok"]), delegates=[echo])
asker = Agent("asker", model=Fresh([asks, "ok"]), delegates=[echo])
seeker = Agent("seeker", model=Fresh([calls, "ok"]), tools=[read_file])
'''

# Sends one request as often as it is told, all at once, and waits for what it began.
ATTACKER: Final = """
import http.client, json, sys, threading, time
host, token, attack = sys.argv[1], sys.argv[2], json.load(open(sys.argv[3]))
headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
def ask(method, path, body=None):
    connection = http.client.HTTPConnection(host, timeout=300)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    received = bytearray()
    while chunk := answer.read1(1 << 20):
        received += chunk
        if attack["stream"] and b"event: end" in chunk:
            break
    return answer.status, bytes(received)
def work():
    body = attack["body"]
    body = None if body is None else json.dumps(body)
    status, answer = ask(attack["method"], attack["path"], body)
    statuses.append(status)
    if status == 202 and attack["is_run"]:
        run = json.loads(answer)["id"]
        while True:
            status, answer = ask("GET", f"/v1/runs/{run}")
            if json.loads(answer)["status"] not in ("queued", "in_progress"):
                break
            time.sleep(0.2)
        statuses.append(json.loads(answer)["status"])
statuses = []
threads = [threading.Thread(target=work) for _ in range(attack["times"])]
[it.start() for it in threads]
[it.join() for it in threads]
print(json.dumps(statuses))
"""


@attrs.frozen(kw_only=True)
class Attack:
    """One request, sent by several clients at once."""

    name: str
    method: str = "GET"
    path: str
    body: Any = None
    times: int = 1
    is_run: bool = False
    """It begins a run, for whose end the attacker waits."""
    stream: bool = False


@attrs.frozen
class Stall:
    """The effect of an attack on the server."""

    milliseconds: float
    """The longest wait."""
    seconds: float
    """How long the attack took."""
    statuses: str
    """The status codes that its clients got."""


def attacks(large: Mapping[int, str]) -> Iterator[Attack]:
    long = "password: x\n" * LINES

    def run(name: str, agent: str, text: str = "go", times: int = 1) -> Attack:
        body = {"model": agent, "input": text}
        return Attack(
            name=name, method="POST", path="/v1/runs", body=body, times=times, is_run=True
        )

    yield run("a message of 4.7 MB of secrets", "echo", long)
    yield run("a message of 190 kB of secrets, eight at once", "echo", long[:190_000], 8)
    yield run("an answer of 4.7 MB", "speaker")
    yield run("a tool result of 4.7 MB", "caller")
    yield run("a goal of 4.7 MB", "giver")
    yield run("a call that asks for 20,000 tasks", "asker")
    yield run("40 missing names among 5,000 long ones", "seeker")
    for size in (10_000, 100_000):
        path = f"/v1/runs/{large[size]}"
        many = f"a run of {size:,}"
        yield Attack(name=f"GET {many}, eight at once", path=path, times=8)
        yield Attack(name=f"its tree as JSON of {many}", path=f"{path}/tree")
        yield Attack(name=f"its tree as SVG of {many}", path=f"{path}/tree?format=svg")
        yield Attack(name=f"its report of {many}", path=f"{path}/tree?format=html")
        yield Attack(
            name=f"its transcript of {many}", path=f"/v1/tasks/{large[size]}/transcript?limit=1000"
        )
        yield Attack(name=f"its events of {many}", path=f"{path}/events", stream=True)
    yield Attack(name="a page of 50,000 sessions", path="/v1/runs?limit=100", times=4)
    yield Attack(
        name="open a session of 25,000 tasks",
        method="POST",
        path=f"/v1/runs/{large[25_000]}/cancel",
    )


def prepare(folder: Path) -> dict[int, str]:
    """Write a journal of many small runs at rest and some very large ones; return these by size."""
    written = folder / "large.json"
    if not written.exists():
        path = folder / JOURNAL
        write_journal(path, _small_runs())
        written.write_text(json.dumps(trio.run(_add_large_runs, path)))
    ids: dict[str, str] = json.loads(written.read_text())
    return {int(tasks): id_ for tasks, id_ in ids.items()}


def _small_runs() -> Iterator[Line]:
    recorder = Recorder()
    trio.run(_small_run, recorder)
    opening, *lines = recorder.lines
    yield opening
    number = 1
    for each in range(SESSIONS):
        for line in lines:
            number += 1
            yield renamed(line, SessionId(f"r_{each:010x}"), number)


async def _small_run(journal: MemoryJournal) -> None:
    async with workloads.opened(journal) as orchestrator:
        await orchestrator.run(Agent("small", model=ScriptedModel.always("x")), "go")


async def _add_large_runs(path: Path) -> dict[int, str]:
    large: dict[int, str] = {}
    child = Agent("child", model=ScriptedModel.always("x"))
    async with open_orchestrator(path) as orchestrator:
        for tasks in RUNS:
            calls = [workloads.hand_on(CALLED_AT_ONCE)] * (tasks // CALLED_AT_ONCE)
            agent = Agent(
                "parent",
                model=ScriptedModel([*calls, "x"]),
                delegates=[child],
                limits=Limits(calls=len(calls) + 1, repeats=len(calls)),
            )
            run = await orchestrator.run(agent, "go")
            assert len(run.tree) == tasks + 1
            large[tasks] = run.id
    return large


class Probe:
    """Asks `/health` again and again, and remembers the longest wait."""

    def __init__(self, host: str) -> None:
        self.longest = 0.0
        self._host = host
        self._stream: trio.SocketStream | None = None

    async def ask_forever(self) -> NoReturn:
        while True:
            await trio.sleep(PAUSE_SECONDS)
            began = time.perf_counter()
            while not await self._is_answered():
                pass
            self.longest = max(self.longest, time.perf_counter() - began)

    async def _is_answered(self) -> bool:
        try:
            if self._stream is None:
                name, _, port = self._host.partition(":")
                self._stream = await trio.open_tcp_stream(name, int(port))
            await self._stream.send_all(
                f"GET /health HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode()
            )
            answer = await self._stream.receive_some()
        except trio.BrokenResourceError:
            answer = b""
        if not answer:
            # After a long stall the server takes the connection for an idle one.
            self._stream = None
        return bool(answer)


@contextmanager
def served(folder: Path) -> Generator[str]:
    """Serve the agents in a process of its own."""
    workspace = folder / "workspace"
    if not workspace.exists():
        workspace.mkdir()
        for number in range(LONG_NAMES):
            (workspace / f"{'n' * 200}{number}").touch()
    file = folder / "team.py"
    file.write_text(AGENTS.format(lines=LINES))
    command = [
        *(sys.executable, "-m", "orchestrator", "serve", str(file), "--port", "0"),
        *("--journal", str(folder / JOURNAL), "--workspace", str(workspace), "--grace", "0"),
    ]
    environ = {**os.environ, "ORCHESTRATOR_API_KEY": TOKEN}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("listening at "):
                    yield line.split()[-1].removeprefix("http://")
                    break
        finally:
            process.terminate()


async def stall_of(folder: Path, host: str, attack: Attack | None) -> Stall:
    """Return the longest wait for `/health` during an attack, or while nothing happens."""
    probe, statuses = Probe(host), ""
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe.ask_forever)
        if attack is not None:
            told = folder / "attack.json"
            told.write_text(json.dumps(attrs.asdict(attack)))
            command = [sys.executable, "-c", ATTACKER, host, TOKEN, str(told)]
            done = await trio.run_process(command, capture_stdout=True)
            statuses = done.stdout.decode().strip()
        await trio.sleep(SETTLE_SECONDS)
        nursery.cancel_scope.cancel(reason="the attack is over")
    return Stall(probe.longest * 1_000, time.perf_counter() - began, statuses)


def measure_stalls(report: Report, kept: Path | None = None, only: str = "") -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = kept or Path(temporary)
        folder.mkdir(exist_ok=True)
        large = prepare(folder)
        with served(folder) as host:
            idle = trio.run(stall_of, folder, host, None)
            name = "the longest wait for /health: nothing happens"
            report.add(name, MOST_MS, idle.milliseconds, unit="ms", target=1)
            for attack in attacks(large):
                if only in attack.name:
                    stall = trio.run(stall_of, folder, host, attack)
                    name = f"  {attack.name}"
                    report.add(name, MOST_MS, stall.milliseconds, unit="ms", target=1)
                    if kept is not None:
                        print(f"    {stall.seconds:.1f} s {stall.statuses}")


def main(arguments: Sequence[str]) -> None:
    kept = Path(arguments[0]) if arguments else None
    measure_stalls(Report(), kept, *arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
