"""Shutdown: nothing new is begun, running tasks may finish, and the next start does the rest."""

import logging
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest
import trio
from starlette.responses import PlainTextResponse

from orchestrator.products.server.transport.connections import Connections
from orchestrator.products.server.transport.listener import Listening, bind
from tests.server.raw_http import read_answer
from tests.server.server_process import ServerProcess, server_process

pytestmark = pytest.mark.realtime

# An agent whose model connects to the test when it is asked, and answers when it is let go.
GATED = """
import os

import trio

from orchestrator.agents import Agent, AssistantMessage, Usage


class Gated:
    name = "gated"

    async def answer(self, request):
        port = int(os.environ["GATE"])
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.receive_some(1)
        return AssistantMessage("went", usage=Usage(calls=1, input_tokens=3))


agent = Agent("gated", model=Gated())
"""
CHAT = {"model": "gated", "messages": [{"role": "user", "content": "go"}]}


class Gate:
    """Where the model waits."""

    def __init__(self) -> None:
        self.port = 0
        self.go = trio.Event()
        self._asked = trio.Semaphore(0)

    async def hold(self, stream: trio.SocketStream) -> None:
        self._asked.release()
        await self.go.wait()
        with suppress(trio.BrokenResourceError):
            await stream.send_all(b"x")

    async def asked(self, times: int = 1) -> None:
        """Wait until the model was asked so often since the last time."""
        with trio.fail_after(20):
            for _ in range(times):
                await self._asked.acquire()


@asynccontextmanager
async def gated(folder: Path, *arguments: str) -> AsyncGenerator[tuple[ServerProcess, Gate]]:
    gate = Gate()
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, gate.hold, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        environ = {"GATE": str(listener.socket.getsockname()[1])}
        async with server_process(folder, GATED, *arguments, environ=environ) as server:
            yield server, gate
        nursery.cancel_scope.cancel()


async def not_ready(server: ServerProcess) -> None:
    """Wait until it says that it is stopping."""
    async with server.http() as http:
        with trio.fail_after(20):
            while (await http.get("/ready")).status_code != 503:
                pass


async def test_a_draining_server_answers_earlier_requests_and_refuses_new_ones(
    tmp_path: Path,
) -> None:
    async with gated(tmp_path) as (server, gate):
        statuses: list[int] = []

        async def ask() -> None:
            async with server.http() as http:
                answer = await http.post("/v1/chat/completions", json=CHAT)
                statuses.append(answer.status_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await gate.asked()
            server.signal(signal.SIGTERM)
            await not_ready(server)
            async with server.http() as http:
                late = await http.post("/v1/chat/completions", json=CHAT)
            gate.go.set()
        assert await server.wait() == 0

    assert statuses == [200]
    assert late.status_code == 503
    assert late.headers["retry-after"] == "1"
    assert late.json()["error"]["code"] == "stopping"


async def test_clients_that_have_connected_are_answered_before_the_server_closes() -> None:
    """One has sent its request and was not accepted yet, one is about to send it."""
    connections = Connections(PlainTextResponse("served"), logging.getLogger(__name__))
    shutdown = trio.Event()
    request = b"GET / HTTP/1.1\r\nHost: it\r\n\r\n"
    with bind(Listening(port=0)) as listener:
        async with trio.open_nursery() as nursery:
            await nursery.start(connections.serve, listener, shutdown)
            # The server does nothing meanwhile: this does not wait.
            early, late = (socket.create_connection(listener.getsockname()) for _ in range(2))
            async with _stream(early) as accepted, _stream(late) as stream:
                early.send(request)
                shutdown.set()
                assert (await read_answer(accepted)).body == b"served"
                await stream.send_all(request)
                assert (await read_answer(stream)).body == b"served"


def _stream(connected: socket.socket) -> trio.SocketStream:
    return trio.SocketStream(trio.socket.from_stdlib_socket(connected))


async def test_a_request_on_a_kept_connection_is_answered_if_it_was_sent_in_time() -> None:
    connections = Connections(PlainTextResponse("served"), logging.getLogger(__name__))
    shutdown = trio.Event()
    request = b"GET / HTTP/1.1\r\nHost: it\r\n\r\n"
    with bind(Listening(port=0)) as listener:
        async with trio.open_nursery() as nursery:
            await nursery.start(connections.serve, listener, shutdown)
            kept, idle = (socket.create_connection(listener.getsockname()) for _ in range(2))
            async with _stream(kept) as stream, _stream(idle) as other:
                for it in (stream, other):
                    await it.send_all(request)
                    assert (await read_answer(it)).status == 200
                kept.send(request)
                shutdown.set()
                assert (await read_answer(stream)).status == 200
                assert await other.receive_some() == b""


async def test_a_run_beyond_the_grace_returns_its_cancelled_outcome(tmp_path: Path) -> None:
    async with gated(tmp_path, "--grace", "0.2") as (server, gate):
        answers: list[httpx2.Response] = []

        async def ask(*, stream: bool) -> None:
            async with server.http() as http:
                body = {**CHAT, "stream": stream}
                answers.append(await http.post("/v1/chat/completions", json=body))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(ask, stream=False))
            nursery.start_soon(partial(ask, stream=True))
            await gate.asked(2)
            assert await server.terminate() == 0

    assert all("cancelled" in answer.text for answer in answers), answers


async def test_a_run_in_the_background_goes_on_at_the_next_start_and_ends_once(
    tmp_path: Path,
) -> None:
    """Killed or stopped, it is the same: asked again, and answered once."""
    async with gated(tmp_path, "--grace", "0.1") as (server, gate):
        async with server.http() as http:
            begun = await http.post("/v1/runs", json={"agent": "gated", "input": "go"})
        async with server.openai() as client:
            response = await client.responses.create(model="gated", input="go", background=True)
        run = begun.json()["id"]
        await gate.asked(2)
        await server.kill()
        await server.start()
        await gate.asked(2)
        assert await server.terminate() == 0
        gate.go.set()
        await server.start()
        async with server.http() as http:
            events = (await http.get(f"/v1/runs/{run}/events")).text
            shown = (await http.get(f"/v1/runs/{run}")).json()
        async with server.openai() as client:
            with trio.fail_after(20):
                while response.status != "completed":
                    response = await client.responses.retrieve(response.id)

    assert response.output_text == "went"
    assert shown["status"] == "completed"
    assert events.count('"TurnEnded"') == 1
    assert events.count("event: end") == 1


async def test_event_streams_end_and_idle_clients_do_not_delay_the_shutdown(tmp_path: Path) -> None:
    async with gated(tmp_path, "--grace", "0.1") as (server, _):
        async with server.http() as http:
            begun = await http.post("/v1/runs", json={"agent": "gated", "input": "go"})
            path = f"/v1/runs/{begun.json()['id']}/events"
            async with http.stream("GET", path) as stream:
                server.signal(signal.SIGTERM)
                # An answer that was cut off would raise.
                async for _ in stream.aiter_bytes():
                    pass
            began = trio.current_time()
            assert await server.wait() == 0
            assert trio.current_time() - began < 5


async def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with gated(tmp_path, "--grace", "60") as (server, gate):
        async with server.http() as http:
            await http.post("/v1/runs", json={"agent": "gated", "input": "go"})
        await gate.asked()
        server.signal(signal.SIGTERM)
        await not_ready(server)
        began = trio.current_time()

        assert await server.terminate() == 143
        assert trio.current_time() - began < 10
