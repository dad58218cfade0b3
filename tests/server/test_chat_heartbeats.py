"""Streams of slow agents, and of slow clients: heartbeats and timeouts."""

import pytest
import trio
import trio.testing

from orchestrator.agents import Agent, Failure, ModelError
from orchestrator.delegation import Ending
from orchestrator.kernel.engine.shutdown import abandon
from orchestrator.products.server.transport.sse import HEARTBEAT, HEARTBEAT_SECONDS, WRITE_SECONDS
from tests.orchestrator.commands_kit import let_pass
from tests.server.chat_kit import HELLO, Client, streaming
from tests.server.kit import serving

BODY = {"model": "helper", "messages": HELLO, "stream": True}


async def test_a_stream_begins_before_the_client_gives_up_and_sends_heartbeats() -> None:
    goes_on = trio.Event()
    async with serving(Agent("helper", model=streaming(goes_on, "at last"))) as served:
        client = Client(served.server.state, BODY)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask)
            await trio.sleep(HEARTBEAT_SECONDS - 1)
            assert client.status is None
            await trio.sleep(2)
            assert client.status == 200
            assert b'"role":"assistant"' in client.sent
            assert HEARTBEAT not in client.sent
            await trio.sleep(2 * HEARTBEAT_SECONDS)
            assert client.sent.count(HEARTBEAT) == 2
            goes_on.set()

    assert b"at last" in client.sent
    assert client.sent.endswith(b"data: [DONE]\n\n")


async def test_the_role_is_sent_together_with_the_first_word() -> None:
    goes_on = trio.Event()
    async with serving(Agent("helper", model=streaming("well ", goes_on))) as served:
        client = Client(served.server.state, BODY)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask)
            await client.answered.wait()
            first = client.sent
            goes_on.set()

    assert b'"role":"assistant"' in first
    assert b'"content":"well "' in first


async def test_a_failure_after_the_stream_began_ends_it_with_the_error() -> None:
    waits = trio.Event()
    model = streaming(waits, ModelError("no money", kind=Failure.QUOTA))
    async with serving(Agent("helper", model=model)) as served:
        client = Client(served.server.state, BODY)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask)
            await trio.sleep(HEARTBEAT_SECONDS + 1)
            waits.set()

    assert client.status == 200
    last = client.sent.removesuffix(b"\n\n").split(b"\n\n")[-1]
    assert last.startswith(b'data: {"error":')
    assert b'"code":"insufficient_quota"' in last
    assert b"[DONE]" not in client.sent


async def test_a_plain_answer_may_take_as_long_as_it_takes() -> None:
    goes_on = trio.Event()
    async with serving(Agent("helper", model=streaming(goes_on, "at last"))) as served:
        client = Client(served.server.state, {**BODY, "stream": False})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask)
            await trio.sleep(24 * 3600)
            goes_on.set()

    assert client.status == 200
    assert b"at last" in client.sent


async def test_a_reader_that_stops_reading_is_dropped_with_its_tree() -> None:
    """It may be gone without a word: no run goes on for it."""
    began = trio.current_time()
    async with serving(Agent("helper", model=streaming("so ", trio.Event()))) as served:
        client = Client(served.server.state, BODY, reads=False)
        await client.ask()

        (session,) = served.orchestrator.read.records.sessions.values()
        assert session.last_outcome is not None
        assert session.last_outcome.ending is Ending.CANCELLED
    assert trio.current_time() - began == pytest.approx(WRITE_SECONDS)


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """The real time, and a way to let much of it pass at once."""
    return trio.testing.MockClock(rate=1)


@pytest.mark.realtime
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
async def test_the_official_client_takes_no_offence_at_heartbeats(
    clock: trio.testing.MockClock,
) -> None:
    goes_on = trio.Event()
    model = streaming("well ", goes_on, "done")
    async with serving(Agent("helper", model=model)) as served:
        stream = await served.openai.chat.completions.create(
            model="helper", messages=HELLO, stream=True
        )
        said = [await anext(stream), await anext(stream)]
        await let_pass(clock, HEARTBEAT_SECONDS + 1)
        goes_on.set()
        said += [chunk async for chunk in stream]

    assert "".join(it.choices[0].delta.content or "" for it in said) == "well done"


@pytest.mark.realtime
async def test_heartbeats_are_really_sent(clock: trio.testing.MockClock) -> None:
    goes_on = trio.Event()
    async with serving(Agent("helper", model=streaming("well ", goes_on))) as served:
        async with served.http.stream("POST", "/v1/chat/completions", json=BODY) as answer:
            text = ""
            async for piece in answer.aiter_text():
                text += piece
                if "well" in text and not goes_on.is_set():
                    await let_pass(clock, HEARTBEAT_SECONDS + 1)
                    goes_on.set()

    assert HEARTBEAT.decode() in text


async def test_an_orchestrator_that_is_closed_in_the_midst_ends_the_stream() -> None:
    goes_on = trio.Event()
    async with serving(Agent("helper", model=streaming("so far", goes_on))) as served:
        client = Client(served.server.state, BODY)
        engine = served.orchestrator._engine
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask)
            await client.answered.wait()
            await trio.testing.wait_all_tasks_blocked()
            goes_on.set()
            await abandon(engine.book, engine.runner.settlement, engine.sessions.machine)

    events = client.sent.removesuffix(b"\n\n").split(b"\n\n")
    assert b"so far" in client.sent
    assert events[-1].startswith(b'data: {"error":')
    assert sum(b'"error"' in event for event in events) == 1
    assert b"[DONE]" not in client.sent
