"""One round: servers that work, clients that ask, faults in the midst of it, all from one seed."""

import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import attrs
import httpx2
import psycopg
import psycopg.pq
import pytest
import trio
import trio.testing

from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, random_ids, tool
from orchestrator.agents.transcript import Transcript
from orchestrator.kernel.errors import JournalError
from tests.chaos.simulation.clients import Clients
from tests.chaos.simulation.database import LONG_AGO, SimulatedPostgres
from tests.chaos.simulation.network import CLIENT, Network, Transport
from tests.chaos.simulation.oracle import History, find_problems
from tests.chaos.simulation.servers import LEASE, SERVERS, TOKEN, World, open_simulated_server
from tests.chaos.simulation.threads import simulated_threads

CLIENTS: Final = 3
BEGIN_SECONDS: Final = 2.0
"""How long the servers have to begin, by the virtual clock."""
LAST_SECONDS: Final = 2.0
"""How long clients go on after the last fault."""
PATIENCE: Final = 240.0
"""How long the servers may take after that to do all that they have acknowledged."""
WRITERS: Final = frozenset({"orchestrator journal"})
FAULTS: Final = (
    "cut database",
    "kill",
    "isolate",
    "crash database",
    "cut database",
    "cut writers",
    "isolate",
    "cut peers",
    "drain",
)
"""Some are twice here: partitions are the hardest faults."""


@attrs.frozen
class Fault:
    """A fault of one server, for some seconds."""

    kind: str
    server: str
    at: float
    seconds: float
    lag: float
    """How long the ways of writers stay closed after the others are open."""


def faults_of(seed: int) -> list[Fault]:
    chance = random.Random(f"simulation {seed}")
    kinds = [FAULTS[seed % len(FAULTS)], *chance.choices(FAULTS, k=chance.randrange(3))]
    return [
        Fault(
            kind,
            # Another server each: a killed one would hide the next fault.
            SERVERS[(seed + number) % len(SERVERS)],
            chance.uniform(0.5, 4),
            chance.choice((0.3, 1.0, 1.5 * LEASE, 1.5 * LEASE, 2 * LEASE)),
            chance.choice((0, LEASE, 1.5 * LEASE)),
        )
        for number, kind in enumerate(kinds)
    ]


@attrs.frozen
class Round:
    """How a round ended."""

    seed: int
    problems: list[str]
    runs: int
    answers: Counter[int]
    statements: int

    @property
    def line(self) -> str:
        verdict = "BROKEN" if self.problems else "held"
        kinds = ", ".join(it.kind for it in faults_of(self.seed))
        told = ", ".join(f"{status}: {many}" for status, many in sorted(self.answers.items()))
        return "\n".join(
            [
                f"seed {self.seed}: {verdict}; {kinds}; {self.runs} runs; {told}",
                *(f"    {problem}" for problem in self.problems),
            ]
        )


def play_round(seed: int) -> Round:
    """Play a seed, and return what was wrong."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as home:
        patch.setattr(secrets, "_sysrand", random.Random(f"ids {seed}"))
        patch.setattr(time, "time", lambda: LONG_AGO + clock.current_time())
        random_ids._RANDOM.seed(seed)
        random.seed(seed)
        patch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
        trio._core._run._r.seed(seed)
        return trio.run(_Game(seed, home, patch).play, clock=clock)


class _Game:
    """A round that is under way."""

    def __init__(self, seed: int, home: str, patch: pytest.MonkeyPatch) -> None:
        self.seed = seed
        self._home = home
        self._patch = patch
        self._chance = random.Random(f"game {seed}")
        self.history = History()
        self._stops: dict[str, Callable[[bool], None]] = {}
        self._hosts: dict[str, str] = {}
        """The present life of each server."""

    async def play(self) -> Round:
        self.database = SimulatedPostgres(random.Random(f"database {self.seed}"))
        self.network = Network(random.Random(f"network {self.seed}"))
        self._patch.setattr(psycopg, "connect", self.database.connect)
        self._patch.setattr(psycopg.pq, "PGconn", _NoPing)
        servers = {name: f"http://{name}" for name in SERVERS}
        self.clients = Clients(self.history, self._chance, servers, TOKEN, self._transport)
        self.world = World(
            database=self.database, network=self.network, agents=self._agents(), home=self._home
        )
        problems: list[str] = []
        async with trio.open_nursery() as threads:
            with simulated_threads(threads):
                async with trio.open_nursery() as nursery:
                    for name in SERVERS:
                        nursery.start_soon(self._serve_forever, name)
                    await trio.sleep(BEGIN_SECONDS)
                    async with trio.open_nursery() as busy:
                        for fault in faults_of(self.seed):
                            busy.start_soon(self._strike, fault)
                        last = max(it.at + it.seconds + it.lag for it in faults_of(self.seed))
                        end = trio.current_time() + last + LAST_SECONDS
                        for number in range(CLIENTS):
                            busy.start_soon(self.clients.work, f"{number}", end)
                    with trio.move_on_after(PATIENCE) as waited:
                        await self.clients.settle()
                    if waited.cancelled_caught:
                        problems.append("the runs did not end")
                    problems += await find_problems(self.history, self.database)
                    for name in SERVERS:
                        self._stops[name](True)
                    nursery.cancel_scope.cancel()
            threads.cancel_scope.cancel()
        return Round(
            self.seed,
            problems,
            len(self.history.runs),
            self.history.answers,
            self.database.statements,
        )

    def _transport(self) -> httpx2.AsyncBaseTransport:
        return Transport(self.network, CLIENT)

    def _agents(self) -> dict[str, Agent[Any]]:
        chance = random.Random(f"tools {self.seed}")

        @tool
        async def pay(key: str) -> str:
            """Pay once."""
            await trio.sleep(chance.choice((0.01, 0.1, 1, 3)))
            self.history.payments[key] += 1
            await trio.sleep(chance.choice((0.01, 0.1, 1)))
            return "paid"

        def say(transcript: Transcript) -> ToolCall | str:
            last = transcript[-1]
            if isinstance(last, ToolMessage):
                return last.text
            return ToolCall("pay", {"key": last.text})

        def delegate(transcript: Transcript) -> ToolCall | str:
            last = transcript[-1]
            if any(isinstance(it, ToolMessage) for it in transcript):
                return last.text  # the result of the joined task, or the notice of a detached one
            return ToolCall("delegate_task", {"agent": "payer", "goal": last.text})

        payer = Agent("payer", model=ScriptedModel.always(say), tools=[pay])
        editor = Agent("editor", model=ScriptedModel.always(delegate), delegates=[payer])
        return {"payer": payer, "editor": editor}

    # Servers

    async def _serve_forever(self, name: str) -> None:
        life = 0
        while True:
            life += 1
            with trio.CancelScope() as scope:
                await self._serve(name, life, scope)
            self.network.end_life(name)
            await trio.sleep(self._chance.choice((0.5, 2, 6)))

    async def _serve(self, name: str, life: int, scope: trio.CancelScope) -> None:
        host = f"{name}-{life}"
        drained = trio.Event()

        def stop(is_killed: bool) -> None:
            if not is_killed:
                drained.set()
                return
            self.database.kill(host)
            self.network.end_life(name)
            scope.cancel()

        self._stops[name] = stop
        self.database.link(host).hold(self.database.link(name).held)
        self._hosts[name] = host
        try:
            async with open_simulated_server(self.world, name, life) as server:
                await drained.wait()
                await server.drain(1)
        except JournalError:
            await trio.sleep(1)  # it starts again, as a supervisor lets it
        except Exception as exc:  # noqa: BLE001 (the round goes on)
            self.history.note(f"server {name} ended with {exc!r}")

    # Faults

    async def _strike(self, fault: Fault) -> None:
        await trio.sleep(fault.at)
        self.clients.suspect = fault.server
        others = [it for it in SERVERS if it != fault.server]
        match fault.kind:
            case "kill" | "drain":
                self._stops[fault.server](fault.kind == "kill")
            case "crash database":
                self.database.crash()
                await trio.sleep(fault.seconds)
                self.database.recover()
            case "cut peers":
                await self._cut([(fault.server, it) for it in others], fault.seconds)
            case "cut writers":
                await self._hold(fault.server, WRITERS, fault.seconds)
            case "cut database":
                await self._hold(fault.server, None, fault.seconds)
                await self._hold(fault.server, WRITERS, fault.lag)
            case _:
                async with trio.open_nursery() as both:
                    pairs = [(fault.server, it) for it in (*others, CLIENT)]
                    both.start_soon(self._cut, pairs, fault.seconds)
                    await self._hold(fault.server, None, fault.seconds)
                    await self._hold(fault.server, WRITERS, fault.lag)

    async def _hold(self, server: str, held: frozenset[str] | None, seconds: float) -> None:
        for host in (server, self._hosts[server]):
            self.database.link(host).hold(held)
        await trio.sleep(seconds)
        for host in (server, self._hosts[server]):
            self.database.link(host).hold(frozenset())

    async def _cut(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        for pair in pairs:
            self.network.cut(*pair)
        await trio.sleep(seconds)
        for pair in pairs:
            self.network.mend(*pair)


class _NoPing:
    """libpq, which finds no server at the name of a simulated host."""

    @staticmethod
    def ping(_: bytes) -> object:
        return psycopg.pq.Ping.NO_RESPONSE
