"""Clients that begin and read runs at any server, by the book: they repeat a request after 502, 503
or a broken connection. The same ones ask simulated servers and real ones.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx2
import trio

from tests.chaos.simulation.oracle import History

TRANSIENT: Final = {502, 503}
"""The statuses after which a client asks again."""
LONGEST_ANSWER: Final = 60
AGENTS: Final = ("payer", "editor")


class Clients:
    """Asks servers, and notes the answers."""

    def __init__(
        self,
        history: History,
        chance: random.Random,
        servers: Mapping[str, str],
        token: str,
        transport: Callable[[], httpx2.AsyncBaseTransport],
    ) -> None:
        """Ask the servers at these addresses, by their names."""
        self.history = history
        self._chance = chance
        self._servers = servers
        self._token = token
        self._transport = transport
        self.suspect = next(iter(servers))
        """The server of the last fault, which is asked more often."""
        self.is_over = False
        """Whether they begin nothing more."""

    async def _ask(
        self, client: httpx2.AsyncClient, method: str, path: str, **given: Any
    ) -> httpx2.Response | None:
        """Return the answer of any server; None if there was none."""
        server = self._chance.choice((*self._servers, self.suspect, self.suspect))
        answer: httpx2.Response | None = None
        with trio.move_on_after(LONGEST_ANSWER) as waited:
            try:
                answer = await client.request(method, f"{self._servers[server]}{path}", **given)
            except httpx2.TransportError:
                return None
        if waited.cancelled_caught:
            self.history.note(f"{method} {path} at {server} got no answer within a minute")
        if answer is not None:
            self.history.answers[answer.status_code] += 1
        return answer

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=self._transport(),
            headers={"authorization": f"Bearer {self._token}"},
            timeout=httpx2.Timeout(None, connect=3),
        )

    async def work(self, name: str, end: float) -> None:
        """Ask until a time, by trio's clock; the name is in the keys of requests."""
        async with self._client() as client:
            step = 0
            while trio.current_time() < end and not self.is_over:
                step += 1
                await trio.sleep(self._chance.choice((0.01, 0.1, 0.3)))
                match self._chance.randrange(6):
                    case 0:
                        await self._begin(client, f"key-{name}-{step}")
                    case 1:
                        await self._read_unknown(client)
                    case 2:
                        await self._list(client)
                    case _:
                        await self._read(client)

    async def _begin(self, client: httpx2.AsyncClient, key: str) -> None:
        """Begin a run, again until a server acknowledges it."""
        agent = self._chance.choice(AGENTS)
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

    async def settle(self) -> None:
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
