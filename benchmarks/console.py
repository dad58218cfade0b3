"""The console under load: `python -m benchmarks.console [AGENTS [UPDATES_A_SECOND]]`.

A server with a live run of so many agents, first without a viewer, then with a page that shows it
in a real browser: how long the page takes to be usable, its frames, and what the viewer costs the
server.
"""

import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import httpx2
import trio

from orchestrator import (
    Agent,
    AssistantMessage,
    Machine,
    Rules,
    ScriptedModel,
    ToolCall,
    Usage,
    open_orchestrator,
    tool,
)
from orchestrator.models import ModelRequest
from orchestrator.products.server import Listening, Settings, open_server
from tests.console.kit import wait
from tests.report.browser import Browser, Page, open_browser

TOKEN = "the-token-of-the-benchmark"  # noqa: S105 (of nothing real)
PER_PARENT = 100
SECONDS = 15
FRAMES = """
new Promise((done) => {
  const gaps = [];
  let last = performance.now();
  const begun = last;
  const frame = (now) => {
    gaps.push(now - last);
    last = now;
    if (now - begun < %d) requestAnimationFrame(frame);
    else {
      gaps.sort((one, other) => one - other);
      done([1000 * gaps.length / (now - begun), gaps[Math.floor(0.95 * gaps.length)]]);
    }
  };
  requestAnimationFrame(frame);
})
"""


@tool
async def look() -> str:
    """Look at the next thing."""
    await trio.lowlevel.checkpoint()
    return "nothing new"


class Ticking:
    """Calls its tool again and again, some seconds apart."""

    name = "ticking"
    price = None

    def __init__(self, period: float) -> None:
        self._period = period
        self._random = random.Random(7)  # noqa: S311 (the same each time)

    def count_tokens(self, request: ModelRequest) -> int:
        del request
        return 10

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        del request
        # As often at the start as later: no call remembers how long it has waited already.
        await trio.sleep(self._random.expovariate(1 / self._period))
        usage = Usage(calls=1, input_tokens=100, output_tokens=10, micro_usd=300)
        return AssistantMessage("", calls=(ToolCall("look", {}),), usage=usage)


def delegating(name: str, to: Agent, goals: int) -> Agent:
    tasks = [{"goal": f"part {it}"} for it in range(goals)]
    call = ToolCall("delegate_task", {"tasks": tasks, "background": False})
    return Agent(name, model=ScriptedModel.always(call), delegates=[to])


async def serve(agents: int, updates: float) -> None:
    # An answer and the result of its tool are two facts.
    leaf = Agent("leaf", model=Ticking(2 * agents / updates), tools=[look])
    middle = delegating("middle", leaf, PER_PARENT)
    root = delegating("root", middle, agents // PER_PARENT)
    rules = Rules(live_tasks=None, queue=10 * agents, children_per_call=agents)
    async with (
        open_orchestrator(":memory:", rules=rules, machine=Machine(environ={})) as orchestrator,
        open_server(
            orchestrator, {"root": root}, Settings(token=TOKEN), Listening(port=0)
        ) as server,
    ):
        code = server.state.sign_ins.new_link()
        print(f"{server.addresses[0]} {code}", flush=True)
        await trio.sleep_forever()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main_thread_seconds(page: Page) -> float:
    metrics = page.call("Performance.getMetrics")["metrics"]
    return float(next(it["value"] for it in metrics if it["name"] == "TaskDuration"))


def read(http: httpx2.Client, path: str) -> Any:
    """Return an answer; while it begins thousands of tasks, the server may hang up."""
    while True:
        with suppress(httpx2.TransportError):
            return http.get(path).json()


@contextmanager
def ending(process: Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


class Load:
    """The share of a core that a process uses, and the facts it posts, since the last look."""

    def __init__(self, pid: int, http: httpx2.Client, run: str) -> None:
        self._pid, self._http, self._run = pid, http, run
        self._last = self._now()

    def _now(self) -> tuple[float, float, int]:
        seq = read(self._http, f"/v1/runs/{self._run}")["seq"]
        return time.monotonic(), cpu_seconds(self._pid), seq

    def since(self) -> tuple[float, float]:
        (at, cpu, seq), self._last = self._last, self._now()
        seconds = self._last[0] - at
        return 100 * (self._last[1] - cpu) / seconds, (self._last[2] - seq) / seconds


def measure(browser: Browser, agents: int, updates: float) -> None:
    command = [sys.executable, "-m", "benchmarks.console"]
    arguments = ["serve", str(agents), str(updates)]
    with Popen([*command, *arguments], stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        url, code = process.stdout.readline().split()
        headers = {"authorization": f"Bearer {TOKEN}"}
        with ending(process), httpx2.Client(base_url=url, headers=headers, timeout=60) as http:
            run = http.post("/v1/runs", json={"agent": "root", "input": "go"}).json()
            while sum(read(http, f"/v1/runs/{run['id']}")["tasks"].values()) < agents:
                time.sleep(1)  # noqa: TID251 (another process works)
            load = Load(process.pid, http, run["id"])
            time.sleep(SECONDS)  # noqa: TID251 (another process works)
            alone, facts = load.since()
            print(f"without a viewer: {alone:.0f} % of a core, {facts:.0f} facts/s")
            page = browser.open(f"{url}/#/login/{code}")
            page.call("Performance.enable")
            wait(page, "orchestrator.shell")
            begun = time.monotonic()
            page.run(f"location.hash = '#/runs/{run['id']}'")
            wait(page, "orchestrator.page.viewer && orchestrator.page.seq")
            print(f"usable after {time.monotonic() - begun:.2f} s")
            load.since()
            before = main_thread_seconds(page)
            fps, slow = page.run(FRAMES % (1000 * SECONDS))
            busy = (main_thread_seconds(page) - before) / SECONDS
            watched, facts = load.since()
            elements: Any = page.run("document.querySelectorAll('*').length")
            print(
                f"with a viewer: {watched:.0f} % of a core, {facts:.0f} facts/s;"
                f" {fps:.0f} frames/s, 95 % within {slow:.0f} ms, {elements} elements;"
                f" the page's main thread is busy for {100 * busy:.0f} % of the time"
            )
            print(f"the viewer costs the server {watched - alone:.0f} % of a core")


def main() -> None:
    given = [it for it in sys.argv[1:] if it != "serve"]
    agents = int(given[0]) if given else 20_000
    updates = float(given[1]) if len(given) > 1 else 1_000
    if "serve" in sys.argv:
        trio.run(serve, agents, updates)
        return
    print(f"{agents:,} agents, {updates:,.0f} updates/s, load {os.getloadavg()[0]:.1f}")
    with open_browser() as browser:
        measure(browser, agents, updates)


if __name__ == "__main__":
    main()
