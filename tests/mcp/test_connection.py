"""A connection is made again for ever, on a clock that jumps; lines are read in linear time."""

import argparse
import math
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import trio
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from orchestrator.agents import McpCommand, ToolError
from orchestrator.products.mcp.client.connection import ServerConnection
from orchestrator.products.mcp.client.stdio import ServerLog
from orchestrator.products.mcp.lines import LineReader, TooLong
from tests.mcp.hostile import Hostile

SERVER = McpCommand("bad", ["not started"])


class Writes:
    """Our messages to a server in this process."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send

    async def send(self, item: SessionMessage, /) -> None:
        await trio.lowlevel.checkpoint()
        self._send(item.message.model_dump(by_alias=True, exclude_unset=True))

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.lowlevel.checkpoint()


class Attempts:
    """Opens connections that last as long as is said, and notes when each was tried."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = iter(seconds)
        self.began: list[float] = []
        self.ended: list[float] = []
        self._tried = trio.lowlevel.ParkingLot()

    async def wait_tried(self, times: int) -> None:
        await trio.lowlevel.checkpoint()
        while len(self.began) < times:
            await self._tried.park()

    @property
    def pauses(self) -> list[float]:
        """The seconds between the end of each connection and the next attempt."""
        pairs = zip(self.ended, self.began[1:], strict=False)
        return [round(began - ended, 3) for ended, began in pairs]

    @asynccontextmanager
    async def open(self, log: ServerLog) -> AsyncGenerator[Any]:
        self.began.append(trio.current_time())
        self._tried.unpark_all()
        seconds = next(self._seconds, 0.0)
        try:
            if not seconds:
                raise ToolError("it is away")
            options = argparse.Namespace(endless=False, modern=False)
            server = Hostile(options)
            sends, receives = trio.open_memory_channel[Any](math.inf)

            def write(message: Any) -> None:
                parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
                sends.send_nowait(SessionMessage(parsed))

            async with trio.open_nursery() as nursery:

                async def end() -> None:
                    await trio.sleep(seconds)
                    sends.close()

                nursery.start_soon(end)
                yield receives, Writes(lambda it: server.on_message(it, write))
                nursery.cancel_scope.cancel()
        finally:
            self.ended.append(trio.current_time())


async def pauses_of(attempts: Attempts, times: int) -> list[float]:
    connection = ServerConnection(SERVER, open_transport=attempts.open, redact=str, root=Path("/"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        await attempts.wait_tried(times)
        connection.close()
    return attempts.pauses


async def test_a_connection_is_retried_with_growing_pauses() -> None:
    pauses = await pauses_of(Attempts(), 12)

    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


async def test_a_good_minute_makes_the_pauses_short_again() -> None:
    pauses = await pauses_of(Attempts(1, 1, 0, 61, 0), 6)

    assert pauses == [0.5, 1, 2, 0.5, 1]


def chunks(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    while data:
        size = sizes.pop() if sizes else len(data)
        yield data[:size]
        data = data[size:]


def test_a_line_that_is_too_long_is_told_before_its_end() -> None:
    reader = LineReader(20)
    assert reader.feed(b"x" * 15) == []
    assert reader.feed(b"x" * 15) == [TooLong(b"x" * 30)]
    assert reader.feed(b"x" * 15) == []
    assert reader.feed(b"x\nnext\n") == [b"next"]


@given(
    st.lists(st.binary(max_size=30).map(lambda it: it.replace(b"\n", b" "))),
    st.lists(st.integers(1, 40)),
)
def test_lines_are_cut_alike_however_they_come(lines: list[bytes], sizes: list[int]) -> None:
    reader = LineReader(20)
    read = [
        line
        for chunk in chunks(b"".join(it + b"\n" for it in lines), sizes)
        for line in reader.feed(chunk)
    ]

    assert [not isinstance(it, TooLong) for it in read] == [len(it) <= 20 for it in lines]
    assert [it for it in read if isinstance(it, bytes)] == [it for it in lines if len(it) <= 20]
