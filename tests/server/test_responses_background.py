"""Responses in the background: polled, cancelled, deleted."""

import openai
import pytest
import trio
import trio.testing
from openai.types.responses import Response

from orchestrator.agents import Agent
from orchestrator.delegation import Mode, SessionId
from orchestrator.delegation.events import Event, TaskRequested, TurnStarted
from orchestrator.testing import SpyModel
from tests.kit import hand_on, worker
from tests.server.kit import Served, serving
from tests.server.streaming_kit import Lingering, speaker

pytestmark = pytest.mark.realtime


async def wait_over(served: Served, response: Response) -> Response:
    """Poll, but only when there is something to see."""
    run = SessionId(response.id.replace("resp_", "r_"))
    await served.server.state.journals.first.door.wait_over(
        served.orchestrator.read.records.sessions[run]
    )
    return await served.openai.responses.retrieve(response.id)


async def facts_of(served: Served, response: Response) -> list[Event]:
    run = SessionId(response.id.replace("resp_", "r_"))
    entries = await served.orchestrator.read.entries(run)
    return [entry.event for entry in entries]


async def test_detached_children_of_a_response_wake_the_agent() -> None:
    """The response is complete when its whole tree is."""
    gate = trio.Event()
    model = speaker(("I ask.", hand_on("a", "b", background=True)), "I wait.", "42", "43")
    helper = Agent("helper", model=speaker("a", (gate, "b")))
    agent = Agent("editor", model=model, delegates=[helper])
    async with serving(agent) as served:
        begun = await served.openai.responses.create(
            model="editor", input="?", background=True, metadata={"for": "me"}
        )
        await model.wait_called(3)
        midst = await served.openai.responses.retrieve(begun.id)
        gate.set()
        done = await wait_over(served, begun)
        events = await facts_of(served, begun)

    assert begun.status in {"queued", "in_progress"}
    assert (begun.background, begun.output) == (True, [])
    assert midst.status == "in_progress"
    assert midst.output_text.startswith("I ask.\n\nI wait.")
    assert (done.status, done.metadata) == ("completed", {"for": "me"})
    assert done.output_text == "I ask.\n\nI wait.\n\n42\n\n43"
    assert [item.phase for item in done.output] == [  # type: ignore[union-attr]
        *("commentary", "commentary", "commentary", "final_answer")
    ]
    asked = [it for it in events if isinstance(it, TaskRequested)]
    assert [it.mode for it in asked] == [Mode.DETACHED, Mode.DETACHED]
    assert sum(isinstance(it, TurnStarted) for it in events) == 3
    assert done.usage is not None
    assert done.usage.output_tokens == 6


async def test_cancel_returns_when_every_task_is_settled() -> None:
    model = speaker(hand_on("a", "b", background=True), "I wait.")
    helper = Agent(
        "helper",
        model=speaker(hand_on("c"), (trio.Event(),)),
        delegates=[Agent("clerk", model=speaker((trio.Event(),)))],
    )
    agent = Agent("editor", model=model, delegates=[helper])
    async with serving(agent) as served:
        responses = served.openai.responses
        begun = await responses.create(model="editor", input="?", background=True)
        clerk = helper.delegates[0].model
        assert isinstance(clerk, SpyModel)
        await clerk.wait_called(1)
        cancelled: list[Response] = []

        async def cancel() -> None:
            cancelled.append(await responses.cancel(begun.id))
            tree = served.orchestrator.tree(served.orchestrator.runs[0])
            assert {tree[task].status for task in tree.descendants()} == {"cancelled"}

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(cancel)
        await cancel()
        found = await responses.retrieve(begun.id)
        with pytest.raises(openai.BadRequestError, match="cancelled"):
            await responses.create(model="editor", input="?", previous_response_id=begun.id)

    assert found.status == "cancelled"
    assert [it.status for it in cancelled] == ["cancelled"] * 4
    assert found.output_text == "I wait."
    assert found.completed_at is None


async def test_a_cancel_and_a_read_wait_for_tasks_that_are_slow_to_end() -> None:
    slow = Lingering()
    model = speaker(hand_on("a", background=True), "I wait.")
    helper = Agent("helper", model=speaker((slow.work,)))
    agent = Agent("editor", model=model, delegates=[helper])
    ended: list[str] = []
    async with serving(agent) as served:
        responses = served.openai.responses
        begun = await responses.create(model="editor", input="?", background=True)
        assert isinstance(helper.model, SpyModel)
        await helper.model.wait_called(1)

        async def cancel() -> None:
            ended.append(str((await responses.cancel(begun.id)).status))

        async def read() -> None:
            events = [it async for it in await responses.retrieve(begun.id, stream=True)]
            ended.append(events[-1].type)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            nursery.start_soon(cancel)
            await slow.cancelled.wait()
            nursery.start_soon(cancel)
            await trio.testing.wait_all_tasks_blocked(0.1)
            assert not ended
            slow.may_end.set()

    assert sorted(ended) == ["cancelled", "cancelled", "response.failed"]


async def test_a_cancelled_response_does_not_repeat_earlier_answers() -> None:
    model = speaker(
        hand_on("a", background=True), "I wait.", ("So,", hand_on("b", background=False))
    )
    helper = Agent("helper", model=speaker("a", (trio.Event(),)))
    agent = Agent("editor", model=model, delegates=[helper])
    async with serving(agent) as served:
        responses = served.openai.responses
        begun = await responses.create(model="editor", input="?", background=True)
        assert isinstance(helper.model, SpyModel)
        await helper.model.wait_called(2)
        stream = await responses.retrieve(begun.id, stream=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(responses.cancel, begun.id)
            events = [event async for event in stream]
        found = await responses.retrieve(begun.id)

    assert found.output_text == "I wait.\n\nSo,"
    assert events[-1].type == "response.failed"
    assert events[-1].response == found
    assert sum(it.type == "response.output_item.done" for it in events) == 2


async def test_a_completed_response_cannot_be_cancelled() -> None:
    async with serving(worker(says="42")) as served:
        responses = served.openai.responses
        done = await responses.create(model="worker", input="?")
        assert await responses.cancel(done.id) == done


async def test_a_client_that_waits_gets_the_error_that_it_was_cancelled() -> None:
    model = speaker(("so", trio.Event()))
    async with serving(Agent("agent", model=model)) as served:

        async def cancel() -> None:
            await model.wait_called(1)
            (run,) = served.orchestrator.runs
            await served.openai.responses.cancel(run.replace("r_", "resp_"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel)
            with pytest.raises(openai.APIStatusError) as caught:
                await served.openai.responses.create(model="agent", input="?")

    assert caught.value.code == "cancelled"


async def test_a_deleted_response_has_ended_and_is_gone() -> None:
    model = speaker((trio.Event(),))
    async with serving(Agent("agent", model=model)) as served:
        responses = served.openai.responses
        begun = await responses.create(model="agent", input="?", background=True)
        await model.wait_called(1)
        await responses.delete(begun.id)
        (session,) = served.orchestrator.read.records.sessions.values()
        assert session.turn is None
        for ask in (responses.retrieve, responses.cancel, responses.delete):
            with pytest.raises(openai.NotFoundError):
                await ask(begun.id)


async def test_a_failed_background_response_holds_the_error() -> None:
    async with serving(Agent("agent", model=speaker(("so", RuntimeError("oh"))))) as served:
        begun = await served.openai.responses.create(model="agent", input="?", background=True)
        done = await wait_over(served, begun)

    assert done.status == "failed"
    assert done.error is not None
    assert done.error.type == "internal"
    assert "oh" in done.error.message
