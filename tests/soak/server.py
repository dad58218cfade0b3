"""Soaks a real `orchestrator serve`: clients of every kind, one request after the other."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import httpx2
import msgspec
import trio

from tests.server.server_process import server_process
from tests.soak.probe import Measurement
from tests.soak.slopes import Sample

AGENTS: Final = "from tests.soak.team import beating, helper, lead, measuring\n"
CLIENTS: Final = 4
HELLO: Final = [{"role": "user", "content": "go"}]


class SoakedServer:
    """A server that clients use, and how many sessions they have opened."""

    def __init__(self, http: httpx2.AsyncClient, journal: Path) -> None:
        self._http = http
        self._journal = journal
        self.sessions = 0

    async def use_forever(self) -> NoReturn:
        while True:
            await self.use()

    async def use(self) -> None:
        """Send a request of every kind."""
        for open_session in (
            self._chat,
            self._stream,
            self._hang_up,
            self._store_response,
            self._run,
            self._converse,
            self._leave_reply,
            self._leave_session,
        ):
            await open_session()
            self.sessions += 1
        await self._http.get("/v1/runs?limit=5")

    async def sample(self) -> Sample:
        body = await self._post("/v1/chat/completions", model="measuring", messages=HELLO)
        text = body["choices"][0]["message"]["content"]
        metrics = (await self._http.get("/metrics")).text
        (facts,) = re.findall(r"^orchestrator_journal_last_seq (\S+)", metrics, re.MULTILINE)
        return Sample(
            sessions=self.sessions,
            facts=int(float(facts)),
            journal_bytes=journal_bytes(self._journal),
            measured=msgspec.json.decode(text, type=Measurement),
        )

    async def _post(self, path: str, **body: Any) -> Any:
        answer = await self._http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    async def _chat(self) -> None:
        await self._post("/v1/chat/completions", model="lead", messages=HELLO)

    async def _stream(self) -> None:
        body = {"model": "helper", "messages": HELLO, "stream": True}
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for _ in answer.aiter_bytes():
                pass

    async def _hang_up(self) -> None:
        """Disconnect while the agent works, which cancels its tree."""
        body = {"model": "lead", "messages": HELLO, "stream": True}
        with trio.move_on_after(0.005):
            async with self._http.stream("POST", "/v1/chat/completions", json=body):
                pass

    async def _store_response(self) -> None:
        made = await self._post("/v1/responses", model="helper", input="go")
        await self._http.get(f"/v1/responses/{made['id']}")

    async def _run(self) -> None:
        run = await self._post("/v1/runs", model="lead", input="go")
        path = f"/v1/runs/{run['id']}/events"
        async with self._http.stream("GET", path) as answer:
            async for _ in answer.aiter_bytes():
                pass

    async def _converse(self) -> None:
        session = await self._open_session()
        await self._post(f"{session}/messages", text="go")
        inbox = (await self._http.get(f"{session}/inbox?wait=20")).json()
        for reply in inbox["data"]:
            await self._http.delete(f"{session}/inbox/{reply['turn']}")

    async def _leave_reply(self) -> None:
        session = await self._open_session()
        await self._post(f"{session}/messages", text="go")

    async def _leave_session(self) -> None:
        await self._open_session()

    async def _open_session(self) -> str:
        return f"/v1/sessions/{(await self._post('/v1/sessions', model='helper'))['id']}"


def journal_bytes(path: Path) -> int:
    """Return the size of a journal, with the log beside it."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files)


@asynccontextmanager
async def soaking_server(folder: Path, *, resting_tasks: str) -> AsyncGenerator[SoakedServer]:
    """Run a server and its clients as long as the block lasts."""
    environ = {"SOAK_RESTING_TASKS": resting_tasks}
    async with (
        server_process(folder, AGENTS, environ=environ) as process,
        process.http() as http,
        trio.open_nursery() as nursery,
    ):
        soaked = SoakedServer(http, process.journal)
        await http.post("/v1/runs", json={"model": "beating", "input": "go"})
        for _ in range(CLIENTS):
            nursery.start_soon(soaked.use_forever)
        yield soaked
        nursery.cancel_scope.cancel()
