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
TRANSIENT: Final = {502, 503}
"""The statuses after which a client asks again."""


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
        self._suspect = SERVERS[0]
        """The server of the last fault, which clients ask more often."""

    async def play(self) -> Round:
        self.database = SimulatedPostgres(random.Random(f"database {self.seed}"))
        self.network = Network(random.Random(f"network {self.seed}"))
        self._patch.setattr(psycopg, "connect", self.database.connect)
        self._patch.setattr(psycopg.pq, "PGconn", _NoPing)
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
                        for number in range(CLIENTS):
                            busy.start_soon(self._work, number)
                    with trio.move_on_after(PATIENCE) as waited:
                        await self._settle()
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
        self._suspect = fault.server
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

    # Clients

    async def _ask(
        self, client: httpx2.AsyncClient, method: str, path: str, **given: Any
    ) -> httpx2.Response | None:
        """Return the answer of any server; None if there was none."""
        server = self._chance.choice((*SERVERS, self._suspect, self._suspect))
        answer: httpx2.Response | None = None
        with trio.move_on_after(60) as waited:
            try:
                answer = await client.request(method, f"http://{server}{path}", **given)
            except httpx2.TransportError:
                return None
        if waited.cancelled_caught:
            self.history.note(f"{method} {path} at {server} got no answer within a minute")
        if answer is not None:
            self.history.answers[answer.status_code] += 1
        return answer

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=Transport(self.network, CLIENT),
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=httpx2.Timeout(None),
        )

    async def _work(self, number: int) -> None:
        async with self._client() as client:
            step = 0
            last = max(it.at + it.seconds + it.lag for it in faults_of(self.seed))
            end = BEGIN_SECONDS + last + LAST_SECONDS
            while trio.current_time() < end:
                step += 1
                await trio.sleep(self._chance.choice((0.01, 0.1, 0.3)))
                match self._chance.randrange(6):
                    case 0:
                        await self._begin(client, f"key-{number}-{step}")
                    case 1:
                        await self._read_unknown(client)
                    case 2:
                        await self._list(client)
                    case _:
                        await self._read(client)

    async def _begin(self, client: httpx2.AsyncClient, key: str) -> None:
        """Begin a run, again until a server acknowledges it."""
        agent = self._chance.choice(("payer", "editor"))
        body = {"model": agent, "input": key}
        self.history.keys.add(key)
        while True:
            answer = await self._ask(
                client, "POST", "/v1/runs", json=body, headers={"idempotency-key": key}
            )
            if answer is not None and answer.status_code == 202:
                self.history.acknowledge(key, answer.json()["id"])
                return
            if answer is not None and answer.status_code not in TRANSIENT:
                self.history.note(f"{key} got {answer.status_code}: {answer.text}")
                return
            await trio.sleep(0.5)

    async def _read(self, client: httpx2.AsyncClient) -> None:
        if not self.history.runs:
            return
        runs = list(self.history.runs.values())
        run = self._chance.choice(runs[-4:] if self._chance.random() < 0.7 else runs)
        known = self.history.seen.get(run, 0)
        answer = await self._ask(client, "GET", f"/v1/runs/{run}")
        if answer is None or answer.status_code in TRANSIENT:
            return
        if answer.status_code != 200:
            self.history.note(f"{run} is acknowledged, and got {answer.status_code}: {answer.text}")
            return
        self.history.see(run, answer.json(), known)

    async def _read_unknown(self, client: httpx2.AsyncClient) -> None:
        answer = await self._ask(client, "GET", f"/v1/runs/r_{self._chance.randbytes(8).hex()}")
        if answer is not None and answer.status_code not in {404, *TRANSIENT}:
            self.history.note(f"an unknown run got {answer.status_code}: {answer.text}")

    async def _list(self, client: httpx2.AsyncClient) -> None:
        known = set(self.history.runs.values())
        answer = await self._ask(client, "GET", "/v1/runs?limit=100")
        if answer is None or answer.status_code in TRANSIENT:
            return
        if answer.status_code != 200:
            self.history.note(f"a list got {answer.status_code}: {answer.text}")
            return
        listed = {it["id"] for it in answer.json()["data"]}
        if missing := known - listed:
            self.history.note(f"a list lacks {sorted(missing)}")

    async def _settle(self) -> None:
        """Wait until all runs that were acknowledged have ended."""
        async with self._client() as client:
            for key, run in sorted(self.history.runs.items()):
                while True:
                    known = self.history.seen.get(run, 0)
                    answer = await self._ask(client, "GET", f"/v1/runs/{run}")
                    if answer is not None and answer.status_code == 200:
                        body = answer.json()
                        self.history.see(run, body, known)
                        if body["status"] not in {"in_progress", "queued"}:
                            self.history.ends[key] = body
                            break
                    elif answer is not None and answer.status_code not in TRANSIENT:
                        self.history.note(f"{run} got {answer.status_code} at the end")
                        break
                    await trio.sleep(1)


class _NoPing:
    """libpq, which finds no server at the name of a simulated host."""

    @staticmethod
    def ping(_: bytes) -> object:
        return psycopg.pq.Ping.NO_RESPONSE
