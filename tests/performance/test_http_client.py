"""The client of `benchmarks.http_server` measures again if a connection breaks."""

import json
import sys
from functools import partial

import pytest
import trio

from benchmarks.http_server import CLIENT, PATH, TOKEN

pytestmark = pytest.mark.realtime
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def test_the_client_measures_again_after_a_broken_connection() -> None:
    broken = [True, False, True]

    async def serve(stream: trio.SocketStream) -> None:
        async for received in stream:
            if not received.endswith(b"}"):
                continue  # the head of a request, without its body
            if broken and broken.pop():
                await stream.aclose()
                return
            await stream.send_all(ANSWER)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        host = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        command = [sys.executable, str(CLIENT), PATH, TOKEN, "plain", "2", "1", host]
        done = await trio.run_process(command, capture_stdout=True)
        nursery.cancel_scope.cancel()
    (measured,) = json.loads(done.stdout)
    assert (len(measured["cpu"]), broken) == (2, [])
