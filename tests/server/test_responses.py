"""`/v1/responses` as the official client uses it: plain answers, and what goes on from them."""

import httpx2
import openai
import pytest
import trio
import trio.testing
from openai.types.responses import FunctionToolParam, Response, ResponseOutputMessage

from orchestrator.agents import Agent, ToolCall
from orchestrator.delegation import Mode
from orchestrator.delegation.events import TaskRequested
from tests.kit import hand_on, worker
from tests.server.kit import Served, serving
from tests.server.streaming_kit import speaker

pytestmark = pytest.mark.realtime

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "Look out of the window.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
}


def phases(response: Response) -> list[tuple[str | None, str]]:
    return [
        (item.phase, item.content[0].text)  # type: ignore[union-attr]
        for item in response.output
        if isinstance(item, ResponseOutputMessage)
    ]


async def entries_of(served: Served, response: Response) -> list[object]:
    run = response.id.replace("resp_", "r_")
    book = served.orchestrator._engine.book
    return [entry.event for entry in await book.read_entries(run)]  # type: ignore[arg-type]


async def test_a_response_is_all_that_the_client_s_types_ask_for() -> None:
    async with serving(worker(says="42")) as served:
        answer = await served.http.post(
            "/v1/responses",
            json={
                "model": "worker",
                "input": "how many?",
                "instructions": "be brief",
                "metadata": {"for": "me"},
            },
        )
    # Unlike the client itself, this raises where a field is missing, or has another word.
    response = Response.model_validate(answer.json())

    assert response.output_text == "42"
    assert (response.status, response.model) == ("completed", "worker")
    assert (response.instructions, response.metadata) == ("be brief", {"for": "me"})
    assert (response.background, response.error) == (False, None)
    assert response.usage is not None
    assert response.usage.total_tokens > 0
    assert response.completed_at is not None
    assert response.created_at <= response.completed_at
    run = answer.headers["x-run-id"]
    assert (response.id, answer.json()["run"]) == (run.replace("r_", "resp_"), run)


async def test_intermediate_text_precedes_the_answer() -> None:
    """A background delegation is joined: nothing can be delivered later."""
    model = speaker(("I look it up", hand_on("look", background=True)), "42")
    agent = Agent("editor", model=model, delegates=[worker("helper", says="done")])
    async with serving(agent) as served:
        response = await served.openai.responses.create(model="editor", input="?")
        events = await entries_of(served, response)

    assert response.output_text == "I look it up\n\n42"
    assert phases(response) == [("commentary", "I look it up\n\n"), ("final_answer", "42")]
    assert [it.mode for it in events if isinstance(it, TaskRequested)] == [Mode.JOINED]
    assert response.usage is not None
    assert response.usage.output_tokens == 3


async def test_instructions_apply_once_and_developer_messages_persist() -> None:
    model = speaker("one", "two", "three")
    agent = Agent("agent", model=model, instructions="Be kind.")
    async with serving(agent) as served:
        first = await served.openai.responses.create(
            model="agent",
            instructions="Be brief.",
            input=[
                {"role": "developer", "content": "Speak French."},
                {"role": "user", "content": "1?"},
            ],
        )
        second = await served.openai.responses.create(
            model="agent", input="2?", previous_response_id=first.id
        )
        await served.openai.responses.create(
            model="agent", instructions="Be long.", input="3?", previous_response_id=second.id
        )

    assert [request.instructions for request in model.requests] == [
        "Be kind.\n\nSpeak French.\n\nBe brief.",
        "Be kind.\n\nSpeak French.",
        "Be kind.\n\nSpeak French.\n\nBe long.",
    ]
    assert model.texts[-1] == ["1?", "one", "2?", "two", "3?"]
    assert second.previous_response_id == first.id


async def test_two_responses_continue_the_same_one_independently() -> None:
    model = speaker("one", "two", "three", "four")
    async with serving(Agent("agent", model=model)) as served:
        create = served.openai.responses.create
        first = await create(model="agent", input="1?")
        second = await create(model="agent", input="2?", previous_response_id=first.id)
        await create(model="agent", input="3?", previous_response_id=first.id)
        assert model.texts[-1] == ["1?", "one", "3?"]
        await served.openai.responses.delete(first.id)
        await create(model="agent", input="4?", previous_response_id=second.id)

    assert model.texts[-1] == ["1?", "one", "2?", "two", "4?"]


async def test_only_a_stored_and_completed_response_can_be_continued() -> None:
    gate = trio.Event()
    agent = Agent("agent", model=speaker("one", "two", (gate, "three")))
    async with serving(agent) as served:
        create = served.openai.responses.create
        unkept = await create(model="agent", input="1?", store=False)
        deleted = await create(model="agent", input="2?")
        await served.openai.responses.delete(deleted.id)
        running = await create(model="agent", input="3?", background=True)
        for id_, error in (
            (unkept.id, openai.NotFoundError),
            (deleted.id, openai.NotFoundError),
            ("resp_0123456789abcdef", openai.NotFoundError),
            ("nonsense", openai.NotFoundError),
            (running.id, openai.BadRequestError),
        ):
            with pytest.raises(error) as caught:
                await create(model="agent", input="?", previous_response_id=id_)
            assert caught.value.param == "previous_response_id"
        gate.set()


async def test_an_unstored_response_cannot_be_found() -> None:
    async with serving(worker(says="42")) as served:
        responses = served.openai.responses
        response = await responses.create(model="worker", input="?", store=False)
        assert response.output_text == "42"
        for ask in (
            responses.retrieve,
            responses.cancel,
            responses.delete,
            responses.input_items.list,
        ):
            with pytest.raises(openai.NotFoundError, match=response.id):
                await ask(response.id)
        with pytest.raises(openai.BadRequestError) as caught:
            await responses.create(model="worker", input="?", store=False, background=True)

    assert caught.value.param == "store"


async def test_a_disconnect_cancels_only_an_unstored_response() -> None:
    gate = trio.Event()
    model = speaker(("not", gate), (gate, "kept"))
    async with serving(Agent("agent", model=model)) as served:
        ledger = served.orchestrator.read.records
        for store in (False, True):
            async with trio.open_nursery() as nursery:
                body = {"model": "agent", "input": "?", "store": store}
                nursery.start_soon(hang_up_on, served, body)
                await model.wait_called(1 + store)
                nursery.cancel_scope.cancel()
        unkept, kept = ledger.sessions.values()
        await served.server.state.journals.first.door.wait_over(unkept)
        gate.set()
        await served.server.state.journals.first.door.wait_over(kept)
        found = await served.openai.responses.retrieve(kept.id.replace("r_", "resp_"))

    assert unkept.last_outcome is not None
    assert unkept.last_outcome.ending == "cancelled"
    assert (found.status, found.output_text) == ("completed", "kept")


async def hang_up_on(served: Served, body: object) -> None:
    """Ask, and wait for an answer on a connection of one's own until cancelled."""
    async with httpx2.AsyncClient(base_url=served.url, headers=served.http.headers) as client:
        await client.post("/v1/responses", json=body)


async def test_a_function_of_the_client_is_called_and_its_answer_told() -> None:
    call = ToolCall("weather", {"place": "Bären"})
    model = speaker(("I ask.", call, call), "It rains.", "Still.")
    async with serving(Agent("agent", model=model)) as served:
        create = served.openai.responses.create
        first = await create(model="agent", input="Rain?", tools=[WEATHER])
        _, *calls = first.output
        assert phases(first) == [("commentary", "I ask.")]
        assert {(it.type, it.name) for it in calls} == {("function_call", "weather")}  # type: ignore[union-attr]
        assert calls[0].arguments == '{"place": "Bären"}'  # type: ignore[union-attr]
        outputs = [
            {"type": "function_call_output", "call_id": it.call_id, "output": "rain"}  # type: ignore[union-attr]
            for it in calls
        ]
        for incomplete in ("And?", outputs[:1], [*outputs, outputs[0]]):
            with pytest.raises(openai.BadRequestError, match="function_call") as caught:
                await create(
                    model="agent",
                    input=incomplete,  # type: ignore[arg-type]
                    previous_response_id=first.id,
                    tools=[WEATHER],
                )
            assert caught.value.param == "input"
        second = await create(
            model="agent",
            input=outputs,  # type: ignore[arg-type]
            previous_response_id=first.id,
            tools=[WEATHER],
        )
        # The same without a response to go on with: the client sends all of it again.
        again = await create(
            model="agent",
            input=[
                {"role": "user", "content": "Rain?"},
                *[item.to_dict() for item in first.output],  # type: ignore[list-item]
                *outputs,  # type: ignore[list-item]
            ],
            store=False,
        )

    assert second.output_text == "It rains."
    assert [tool.name for tool in second.tools] == ["weather"]  # type: ignore[union-attr]
    assert again.output_text == "Still."
    assert model.texts[-1] == ["Rain?", "I ask.", "rain", "rain"]
    before, after = (request.transcript for request in model.requests[1:])
    assert [getattr(it, "calls", ()) for it in before] == [getattr(it, "calls", ()) for it in after]


async def test_the_same_key_is_the_same_response() -> None:
    model = speaker("one", "two")
    async with serving(Agent("agent", model=model)) as served:
        create = served.openai.responses.create
        headers = {"Idempotency-Key": "k"}
        first = await create(model="agent", input="?", extra_headers=headers)
        again = await create(model="agent", input="?", extra_headers=headers)
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            await create(model="agent", input="!", extra_headers=headers)
        await served.openai.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await create(model="agent", input="?", extra_headers=headers)

    assert again == first
    assert caught.value.code == "idempotency_key_reused"
    assert len(model.requests) == 1


async def test_the_same_key_at_the_same_time_is_one_response() -> None:
    gate = trio.Event()
    model = speaker((gate, "one"), "two")
    found: list[Response] = []
    async with serving(Agent("agent", model=model)) as served:

        async def ask() -> None:
            found.append(
                await served.openai.responses.create(
                    model="agent", input="?", extra_headers={"Idempotency-Key": "k"}
                )
            )

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked(0.05)
            gate.set()

    assert len(found) == 5
    assert all(response == found[0] for response in found)
    assert len(model.requests) == 1
