"""A client that disconnects cancels its run, and all of it."""

import json
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from orchestrator.agents import Agent, ToolCall, allow
from orchestrator.agents.tools.terminal import terminal
from orchestrator.delegation import Ending, SessionRecord
from orchestrator.delegation.events import TaskSettled, TurnEnded
from orchestrator.testing import facts, hand_on
from tests.orchestrator.commands_kit import Pipe, children, has_ended, is_alive, outside, pipe
from tests.server.chat_kit import HELLO, USAGE, Client, answering, streaming
from tests.server.kit import TOKEN, Served, serving

pytestmark = pytest.mark.realtime


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Check that the test leaves no process and no zombie."""
    had = children()
    yield
    assert children() <= had


@attrs.frozen
class Busy:
    """A server whose agent has a child, which runs a command."""

    served: Served
    started: Pipe

    @property
    def session(self) -> SessionRecord:
        (session,) = self.served.orchestrator.read.records.sessions.values()
        return session


@asynccontextmanager
async def busy(folder: Path) -> AsyncGenerator[Busy]:
    command = f"echo $$ > {folder / 'started'}; sleep 1000; true"
    child = Agent(
        "child",
        model=answering(lambda _: [ToolCall("terminal", {"command": command})]),
        tools=[terminal],
        approve=[allow("*")],
    )
    parent = Agent("parent", model=streaming("I delegate.", hand_on("dig")), delegates=[child])
    with pipe(folder / "started") as started:
        async with serving(
            parent,
            journal=folder / "journal.db",
            workspace=folder,
            environ={"PATH": os.environ["PATH"]},
        ) as served:
            yield Busy(served, started)


async def assert_all_was_cancelled(chat: Busy) -> None:
    session = chat.session
    book = chat.served.orchestrator._engine.book
    entries = await book.read_entries(session.id)
    (turn,) = facts(entries, TurnEnded)
    (child,) = facts(entries, TaskSettled)

    assert turn.outcome.ending is Ending.CANCELLED
    assert turn.outcome.output == "I delegate."
    assert child.outcome.ending is Ending.CANCELLED
    # Both models were asked once, and that is paid for.
    assert session.tree.total.calls == 2
    assert session.tree.total.tokens == 2 * USAGE.tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_closes_its_connection_ends_the_tree(
    stream: bool, tmp_path: Path
) -> None:
    async with busy(tmp_path) as chat:
        body = json.dumps({"model": "parent", "messages": HELLO, "stream": stream})
        host, _, port = chat.served.url.removeprefix("http://").partition(":")
        connection = await trio.open_tcp_stream(host, int(port))
        await connection.send_all(
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\n"
            f"authorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}".encode()
        )
        if stream:
            said = b""
            while b"I delegate." not in said:
                said += await connection.receive_some()
        pid = outside(int(await chat.started.receive()), tmp_path)
        assert is_alive(pid)
        await connection.aclose()
        with trio.fail_after(30):
            await chat.served.server.state.journals.first.door.wait_over(chat.session)

        assert has_ended(pid)
        await assert_all_was_cancelled(chat)


@pytest.mark.parametrize("stream", [False, True])
async def test_ending_the_request_ends_its_tree(stream: bool, tmp_path: Path) -> None:
    async with busy(tmp_path) as chat:
        body = {"model": "parent", "messages": HELLO, "stream": stream}
        client = Client(chat.served.server.state, body)
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.ask)
                pid = outside(int(await chat.started.receive()), tmp_path)
                client.left.set()

        # No grace: it has returned.
        assert not is_alive(pid)
        assert chat.session.turn is None
        await assert_all_was_cancelled(chat)


async def test_a_second_request_under_the_same_key_ends_no_run(tmp_path: Path) -> None:
    async with busy(tmp_path) as chat:
        body = {"model": "parent", "messages": HELLO}
        state = chat.served.server.state
        first = Client(state, body, idempotency_key="order 7")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.ask)
            pid = outside(int(await chat.started.receive()), tmp_path)
            again = Client(state, body, idempotency_key="order 7")
            again.left.set()
            await again.ask()
            assert is_alive(pid)
            assert chat.session.turn is not None
            first.left.set()

        assert not is_alive(pid)
