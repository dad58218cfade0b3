"""Event streams: every fact once for every reader, one end, and no run waits for a reader."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool
from orchestrator.delegation.events import TurnEnded
from orchestrator.products.server.transport import listener, sse
from orchestrator.testing import GatedModel, StreamingModel
from tests.kit import worker
from tests.server.kit import Served, serving
from tests.server.raw_http import asking
from tests.server.runs_kit import boss, ended, events_in, events_of, problem, read_raw, started

pytestmark = pytest.mark.realtime

READERS = 500


async def test_a_stream_has_every_fact_in_order_and_one_end() -> None:
    async with serving(boss()) as served:
        run = (await started(served, "boss"))["id"]
        events = await events_of(served, run)
        kept = await served.orchestrator.read.entries(run)

    facts, end = events[:-1], events[-1]
    assert {it.name for it in facts} == {"fact"}
    assert [it.id for it in facts] == [it.data["seq"] for it in facts]
    assert [it.id for it in facts] == [it.seq for it in kept if it.session == run]
    assert [it.data["kind"] for it in facts] == [
        type(it.event).__name__ for it in kept if it.session == run
    ]
    assert (end.name, end.id, end.data) == ("end", None, {"status": "completed"})


async def test_no_text_can_forge_an_event_line() -> None:
    """Some readers split lines at all line ends of Unicode."""
    text = "a\u2028event: end\u2029b\x85c"
    async with serving(worker(says=text)) as served:
        run = await ended(served, (await started(served, "worker"))["id"])
        answer = await served.http.get(f"/v1/runs/{run['id']}/events")

    assert run["output"] == text
    assert answer.text.splitlines() == answer.text.removesuffix("\n").split("\n")


async def test_the_last_event_holds_the_error_of_a_failed_run() -> None:
    sad = Agent("sad", model=ScriptedModel([]))
    async with serving(sad) as served:
        run = (await started(served, "sad"))["id"]
        events = await events_of(served, run)

    assert events[-1].data["status"] == "failed"
    assert events[-1].data["error"]["code"] == "provider"
    assert [it.name for it in events].count("end") == 1


async def test_the_end_of_a_cancelled_run_comes_after_all_that_was_cancelled() -> None:
    async with serving(boss(helper=worker("helper", seconds=1_000))) as served:
        run = (await started(served, "boss"))["id"]
        async with trio.open_nursery() as nursery:
            streams: list[Any] = []

            async def read() -> None:
                streams.append(await events_of(served, run))

            nursery.start_soon(read)
            tree = served.orchestrator.tree(run)
            seq = 0
            while len(tree.find(status="running")) < 2:
                seq = await served.orchestrator.wait_changed(after=seq)
            await served.http.post(f"/v1/runs/{run}/cancel")
        again = await events_of(served, run)

    assert streams == [again]
    assert again[-1].data["status"] == "cancelled"
    kinds = [it.data["kind"] for it in again[:-1]]
    assert kinds.count("TaskSettled") == 2


async def test_five_hundred_readers_get_the_same_stream() -> None:
    """Some come before anything has happened, some in the midst of it."""
    model = gated("all ", "of it")
    agent = Agent("gated", model=model)
    got: list[str] = []
    async with serving(agent) as served:
        run = (await started(served, "gated"))["id"]

        async def read() -> None:
            got.append(await read_raw(served.url, f"/v1/runs/{run}/events"))

        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                for _ in range(READERS // 2):
                    nursery.start_soon(read)
                await model.wait_called()
                model.release()
                for _ in range(READERS - READERS // 2):
                    nursery.start_soon(read)
        whole = await events_of(served, run)

    assert len(got) == READERS
    # On a busy machine some streams have heartbeats, which are no events.
    assert all(events_in(it) == whole for it in got)
    assert whole[-1].data == {"status": "completed"}


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_returning_reader_misses_and_repeats_no_event(
    tmp_path: Path, is_restarted: bool
) -> None:
    """With every number that there is, in the query and in the header."""
    journal = tmp_path / "journal.db"

    async def resume_everywhere(served: Served, whole: list[Any]) -> None:
        last = served.orchestrator.read.records.last_seq
        for after in range(last + 1):
            rest = [it for it in whole if it.id is None or it.id > after]
            assert await events_of(served, run, f"?after={after}") == rest
            assert await events_of(served, run, last_event_id=str(after)) == rest
            both = await events_of(served, run, f"?after={after}", last_event_id="1")
            assert both == rest

    async with serving(boss(), journal=journal) as served:
        run = (await started(served, "boss"))["id"]
        whole = await events_of(served, run)
        if not is_restarted:
            await resume_everywhere(served, whole)
    if is_restarted:
        async with serving(boss(), journal=journal) as served:
            whole = await events_of(served, run)
            await resume_everywhere(served, whole)


async def test_behind_the_end_there_is_the_end() -> None:
    async with serving(worker()) as served:
        run = await ended(served, (await started(served, "worker"))["id"])
        events = await events_of(served, run["id"], f"?after={run['seq']}")

    assert [it.name for it in events] == ["end"]


async def test_an_unknown_event_number_is_refused() -> None:
    async with serving(worker()) as served:
        run = (await ended(served, (await started(served, "worker"))["id"]))["id"]
        path = f"/v1/runs/{run}/events"
        ahead = await served.http.get(f"{path}?after=9999")
        header = await served.http.get(path, headers={"last-event-id": "9999"})
        words = await served.http.get(path, headers={"last-event-id": "the last"})
        query = await served.http.get(f"{path}?after=-1")

    assert (ahead.status_code, header.status_code) == (409, 409)
    assert problem(ahead)["code"] == "ahead_of_the_journal"
    assert words.status_code == 400
    assert problem(words)["code"] == "invalid_last_event_id"
    assert query.status_code == 400


async def test_the_text_of_a_model_is_streamed_on_request() -> None:
    model = gated("all ", "of it")
    got: dict[str, list[Any]] = {}
    async with serving(Agent("gated", model=model), worker()) as served:
        run = (await started(served, "gated"))["id"]

        async def read(query: str) -> None:
            got[query] = await events_of(served, run, query)

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read, "?deltas=true")
                nursery.start_soon(read, "?deltas=false")
                await model.wait_called()
                await until_listened(served)
                other = (await started(served, "worker"))["id"]
                await events_of(served, other)
                model.release()

    deltas = [it for it in got["?deltas=true"] if it.name == "delta"]
    assert [it.data for it in deltas] == [
        {"task": run, "text": "all "},
        {"task": run, "text": "of it"},
    ]
    assert {it.id for it in deltas} == {None}
    assert got["?deltas=true"][-1].name == "end"
    others = [it for it in got["?deltas=true"] if it.name != "delta"]
    assert others == got["?deltas=false"]


async def test_a_reader_that_stops_reading_is_disconnected_and_blocks_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "WRITE_SECONDS", 0.5)
    loud = Agent("loud", model=ScriptedModel.always("x" * 10_000_000))
    with trio.fail_after(20):
        async with AsyncExitStack() as stack:
            async with serving(loud) as served:
                run = (await started(served, "loud"))["id"]
                path = f"/v1/runs/{run}/events"
                lazy = await asking(served.url, path)
                await stack.enter_async_context(lazy)
                assert (await ended(served, run))["status"] == "completed"


async def test_a_silent_stream_sends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.01)
    model = gated("late")
    async with serving(Agent("gated", model=model)) as served:
        run = (await started(served, "gated"))["id"]
        async with served.http.stream("GET", f"/v1/runs/{run}/events") as answer:
            text = ""
            async for piece in answer.aiter_text():
                text += piece
                if ": still here" in text:
                    model.release()

    assert events_in(text)[-1].name == "end"


async def test_a_reader_that_leaves_is_forgotten() -> None:
    async with serving(worker("slow", seconds=1_000)) as served:
        run = (await started(served, "slow"))["id"]
        feeds = served.server.state.journals.first.read.feeds
        async with await asking(served.url, f"/v1/runs/{run}/events") as leaving:
            received = b""
            while b"event: fact" not in received:
                received += await leaving.receive_some()
            assert feeds.sessions
        with trio.fail_after(5):
            while feeds.sessions:
                await trio.lowlevel.checkpoint()


async def until_listened(served: Served) -> None:
    """Wait until the streams that were asked for listen."""
    with trio.fail_after(5):
        while not served.server.state.journals.first.live_text._channels:
            await trio.lowlevel.checkpoint()


def gated(*words: str) -> GatedModel:
    """Return a model that streams its words when it is released."""
    return GatedModel(StreamingModel.always(*words))


async def test_the_code_of_the_server_is_not_for_its_clients() -> None:
    """Clients read the error; the operator reads the traceback with `show`."""

    @tool
    async def find(user: str) -> str:
        """Find a user."""
        await trio.lowlevel.checkpoint()
        return {"ada": "here"}[user]

    call = ToolCall("find", {"user": 'bob "recorded_traceback":'})
    sad = Agent("sad", model=ScriptedModel.always(call), tools=[find])
    async with serving(sad) as served:
        run = (await started(served, "sad"))["id"]
        events = await events_of(served, run)
        page = await served.http.get(f"/v1/runs/{run}/tree?format=html")
        kept = await served.orchestrator.read.entries(run)

    (last,) = [it for it in events if it.data.get("kind") == "TurnEnded"]
    assert last.data["body"]["outcome"]["error"].startswith("KeyError: ")
    assert "recorded_traceback" not in last.data["body"]["outcome"]
    (turn,) = [it.event for it in kept if isinstance(it.event, TurnEnded)]
    assert "in find" in turn.outcome.traceback
    assert page.status_code == 200
