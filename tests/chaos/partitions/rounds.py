"""Rounds with real servers: a fault, clients that ask meanwhile, and all runs to their end."""

import math
import random
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Final

import attrs
import httpx2
import trio

from tests.chaos.partitions.network import ADDRESSES, CLIENT, DATABASE, HOSTS, Namespaces
from tests.chaos.simulation.clients import Clients
from tests.chaos.simulation.oracle import History, find_wrong_effects
from tests.postgres import PostgresServer
from tests.server.server_process import PATIENCE, ROOT

TOKEN: Final = "a-token-of-the-partitions"
LEASE: Final = 3
PORT: Final = 8642
CLIENTS: Final = 4
SETTLE_SECONDS: Final = 90
AFTER_SECONDS: Final = 3
"""How long clients go on after the fault."""
FAULTS: Final = ("cut database", "isolate", "kill", "cut database", "stop", "cut peers", "drain")
TEAM: Final = '''
import os

import trio

from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, tool


@tool
async def pay(key: str) -> str:
    """Pay once."""
    await trio.sleep(0.5)
    with open(os.environ["EFFECTS"], "a") as effects:
        effects.write(key + "\\n")
    await trio.sleep(0.2)
    return "paid"


def say(transcript):
    last = transcript[-1]
    return last.text if isinstance(last, ToolMessage) else ToolCall("pay", {"key": last.text})


def delegate(transcript):
    if any(isinstance(it, ToolMessage) for it in transcript):
        return transcript[-1].text
    return ToolCall("delegate_task", {"agent": "payer", "goal": transcript[-1].text})


payer = Agent("payer", model=ScriptedModel.always(say), tools=[pay])
editor = Agent("editor", model=ScriptedModel.always(delegate), delegates=[payer])
'''


@attrs.frozen
class Round:
    """How a round ended."""

    seed: int
    kind: str
    problems: list[str]
    history: History

    @property
    def line(self) -> str:
        verdict = "BROKEN" if self.problems else "held"
        answers = sorted(self.history.answers.items())
        told = ", ".join(f"{status}: {many}" for status, many in answers)
        return "\n".join(
            [
                f"seed {self.seed}: {verdict}; {self.kind}; {len(self.history.runs)} runs; {told}",
                *(f"    {problem}" for problem in self.problems),
            ]
        )


class PartedCluster:
    """Three servers in namespaces. `open_parted_cluster` makes it."""

    def __init__(self, hosts: Namespaces, address: str, folder: Path) -> None:
        self._hosts = hosts
        self._address = address
        self._folder = folder
        self._processes: dict[str, trio.Process] = {}
        self._urls = {name: f"http://{ADDRESSES[name]}:{PORT}" for name in HOSTS}

    async def start(self, name: str) -> None:
        """Start a server, and return when it is ready."""
        home = self._folder / name
        home.mkdir(exist_ok=True)
        own = ADDRESSES[name]
        with (self._folder / f"{name}.txt").open("ab") as errors:
            self._processes[name] = await trio.lowlevel.open_process(
                [
                    *self._hosts.enter(name),
                    *(sys.executable, "-m", "orchestrator", "serve", str(self._folder / "team.py")),
                    *("--host", own, "--port", str(PORT), "--address", f"http://{own}:{PORT}"),
                    *("--insecure", "--shards", "6", "--grace", "2"),
                ],
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=errors,
                cwd=home,
                env={
                    "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
                    "PYTHONPATH": str(ROOT),
                    "ORCHESTRATOR_HOME": str(home),
                    "ORCHESTRATOR_HOST": name,
                    "ORCHESTRATOR_API_KEY": TOKEN,
                    "ORCHESTRATOR_JOURNAL": self._address,
                    "EFFECTS": str(self._folder / "effects"),
                },
            )
        async with httpx2.AsyncClient(transport=_transport()) as client:
            with trio.fail_after(2 * PATIENCE):
                while not await _is_ready(client, self._urls[name]):  # noqa: ASYNC110 (a process)
                    await trio.sleep(0.2)

    async def stop(self, name: str, number: int) -> None:
        process = self._processes[name]
        process.send_signal(number)
        await process.wait()

    async def kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            await process.wait()

    async def play(self, seed: int) -> Round:
        """Play one fault, with clients that ask meanwhile."""
        chance = random.Random(f"partitions {seed}")
        kind, name = FAULTS[seed % len(FAULTS)], chance.choice(HOSTS)
        history = History()
        clients = Clients(history, chance, self._urls, TOKEN, _transport)
        clients.suspect = name
        async with trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                nursery.start_soon(clients.work, f"{seed}-{number}", math.inf)
            await trio.sleep(1)
            await self._strike(kind, name, chance.choice((LEASE + 2, 2 * LEASE + 2, 3 * LEASE)))
            await trio.sleep(AFTER_SECONDS)
            clients.is_over = True
        with trio.move_on_after(SETTLE_SECONDS) as waited:
            await clients.settle()
        problems = list(history.problems)
        if waited.cancelled_caught:
            problems.append("the runs did not end")
        effects = self._folder / "effects"
        if effects.exists():
            history.payments.update(effects.read_text().split())
        problems += find_wrong_effects(history)
        return Round(seed, kind, problems, history)

    async def _strike(self, kind: str, name: str, seconds: float) -> None:
        others = [ADDRESSES[it] for it in HOSTS if it != name]
        match kind:
            case "cut database" | "cut peers":
                cut = [DATABASE] if kind == "cut database" else others
                for address in cut:
                    self._hosts.cut(name, address)
                await trio.sleep(seconds)
                for address in cut:
                    self._hosts.mend(name, address)
            case "isolate":
                self._hosts.set_link(name, is_up=False)
                await trio.sleep(seconds)
                self._hosts.set_link(name, is_up=True)
            case "stop":
                self._processes[name].send_signal(signal.SIGSTOP)
                await trio.sleep(seconds)
                self._processes[name].send_signal(signal.SIGCONT)
            case _:
                await self.stop(name, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
                await trio.sleep(LEASE)
                await self.start(name)


def _transport() -> httpx2.AsyncHTTPTransport:
    return httpx2.AsyncHTTPTransport(local_address=CLIENT, verify=False)


async def _is_ready(client: httpx2.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(f"{url}/ready", timeout=2)).status_code == 200
    except httpx2.TransportError:
        return False


@asynccontextmanager
async def open_parted_cluster(
    hosts: Namespaces, server: PostgresServer, folder: Path
) -> AsyncGenerator[PartedCluster]:
    """Start three servers on a database, and kill them at the end."""
    with (server.data / "pg_hba.conf").open("a") as access:
        access.write(f"host all all {DATABASE}/24 trust\n")
    server.execute("SELECT pg_reload_conf()")
    with server.new_database() as url:
        database = url.partition("@/")[2].partition("?")[0]
        address = f"postgresql://postgres@{DATABASE}:{server.port}/{database}?lease={LEASE}"
        (folder / "team.py").write_text(TEAM)
        cluster = PartedCluster(hosts, address, folder)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(cluster.kill_all)
            for name in HOSTS:
                await cluster.start(name)
            yield cluster
