"""`/v1/responses` as the official client uses it: plain answers, and what goes on from them."""

import base64

import httpx2
import openai
import pytest
import trio
import trio.testing
from openai.types.responses import FunctionToolParam, Response, ResponseOutputMessage

from agents import Agent, Failure, Limits, ModelError, Part, ToolCall, UserMessage
from delegation import Mode
from delegation.events import TaskRequested
from tests.kit import hand_on, worker
from tests.server.kit import Served, serving
from tests.server.speaker import speaker

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
    book = served.orchestrator.house.book
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


async def test_what_was_said_on_the_way_comes_before_the_answer() -> None:
    """A background delegation is joined: nobody could be told of it later."""
    model = speaker(("I look it up", hand_on("look", background=True)), "42")
    agent = Agent("editor", model=model, delegates=[worker("helper", says="done")])
    async with serving(agent) as served:
        response = await served.openai.responses.create(model="editor", input="?")
        events = await entries_of(served, response)

    assert response.output_text == "I look it up\n\n42"
    assert phases(response) == [
        ("commentary", "I look it up\n\n"),
        ("final_answer", "42"),
    ]
    assert [it.mode for it in events if isinstance(it, TaskRequested)] == [Mode.JOINED]
    assert response.usage is not None
    assert response.usage.output_tokens == 3


async def test_instructions_hold_once_and_what_a_developer_says_for_good() -> None:
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
            model="agent",
            instructions="Be long.",
            input="3?",
            previous_response_id=second.id,
        )

    assert [request.instructions for request in model.requests] == [
        "Be kind.\n\nSpeak French.\n\nBe brief.",
        "Be kind.\n\nSpeak French.",
        "Be kind.\n\nSpeak French.\n\nBe long.",
    ]
    assert model.heard == ["1?", "one", "2?", "two", "3?"]
    assert second.previous_response_id == first.id


async def test_two_go_on_with_the_same_and_know_nothing_of_each_other() -> None:
    """Each has a copy, so what they go on with may be deleted."""
    model = speaker("one", "two", "three", "four")
    async with serving(Agent("agent", model=model)) as served:
        create = served.openai.responses.create
        first = await create(model="agent", input="1?")
        second = await create(model="agent", input="2?", previous_response_id=first.id)
        await create(model="agent", input="3?", previous_response_id=first.id)
        assert model.heard == ["1?", "one", "3?"]
        await served.openai.responses.delete(first.id)
        await create(model="agent", input="4?", previous_response_id=second.id)

    assert model.heard == ["1?", "one", "2?", "two", "4?"]


async def test_only_what_is_kept_and_completed_goes_on() -> None:
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


async def test_what_is_not_kept_is_nowhere_to_be_found() -> None:
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
            await responses.create(
                model="worker", input="?", store=False, background=True
            )

    assert caught.value.param == "store"


async def test_whoever_hangs_up_ends_only_what_is_not_kept() -> None:
    gate = trio.Event()
    model = speaker(("not", gate), (gate, "kept"))
    async with serving(Agent("agent", model=model)) as served:
        ledger = served.orchestrator.house.book.ledger
        for store in (False, True):
            async with trio.open_nursery() as nursery:
                body = {"model": "agent", "input": "?", "store": store}
                nursery.start_soon(hang_up_on, served, body)
                await model.wait_asked(1 + store)
                nursery.cancel_scope.cancel()
        unkept, kept = ledger.sessions.values()
        await served.server.office.door.wait_over(unkept)
        gate.set()
        await served.server.office.door.wait_over(kept)
        found = await served.openai.responses.retrieve(kept.id.replace("r_", "resp_"))

    assert unkept.last_outcome is not None
    assert unkept.last_outcome.ending == "cancelled"
    assert (found.status, found.output_text) == ("completed", "kept")


async def hang_up_on(served: Served, body: object) -> None:
    """Ask, and wait for an answer on a connection of one's own until cancelled."""
    async with httpx2.AsyncClient(
        base_url=served.url, headers=served.http.headers
    ) as client:
        await client.post("/v1/responses", json=body)


async def test_a_function_of_the_client_is_called_and_its_answer_told() -> None:
    call = ToolCall("weather", {"place": "Bären"})
    model = speaker(("I ask.", call, call), "It rains.")
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
        model.answers.append(("Still.",))
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
    assert model.heard == ["Rain?", "I ask.", "rain", "rain"]
    before, after = (request.transcript for request in model.requests[1:])
    assert [getattr(it, "calls", ()) for it in before] == [
        getattr(it, "calls", ()) for it in after
    ]


async def test_pictures_and_files_reach_the_model() -> None:
    model = speaker("a dot")
    dot = base64.b64encode(b"dot").decode()
    async with serving(Agent("agent", model=model)) as served:
        response = await served.openai.responses.create(
            model="agent",
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "what is"},
                        {"type": "input_text", "text": "this?"},
                        {
                            "type": "input_image",
                            "detail": "auto",
                            "image_url": f"data:image/png;base64,{dot}",
                        },
                        {
                            "type": "input_image",
                            "detail": "auto",
                            "image_url": "https://example.com/a.png",
                        },
                        {
                            "type": "input_file",
                            "filename": "a.csv",
                            "file_data": dot,
                        },
                    ],
                }
            ],
        )
        items = await served.openai.responses.input_items.list(response.id)

    (told,) = model.requests[0].transcript
    assert told == UserMessage(
        "what is\nthis?",
        (
            Part("image/png", data=b"dot"),
            Part("image/png", url="https://example.com/a.png"),
            Part("text/csv", data=b"dot", name="a.csv"),
        ),
    )
    assert [part.type for part in items.data[0].content] == [  # type: ignore[union-attr]
        "input_text",
        "input_image",
        "input_image",
        "input_file",
    ]


async def test_what_a_response_answers_is_listed_in_pages() -> None:
    model = speaker("one", "two")
    async with serving(Agent("agent", model=model)) as served:
        first = await served.openai.responses.create(
            model="agent",
            input=[
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "1?"},
            ],
        )
        second = await served.openai.responses.create(
            model="agent", input="2?", previous_response_id=first.id
        )
        items = served.openai.responses.input_items
        asc = [it async for it in items.list(second.id, order="asc", limit=1)]
        desc = [it async for it in items.list(second.id)]

    texts = [(it.role, it.content[0].text) for it in asc]  # type: ignore[union-attr,index]
    assert texts == [
        ("developer", "be kind"),
        ("user", "1?"),
        ("assistant", "one"),
        ("user", "2?"),
    ]
    assert desc == asc[::-1]


WRONG: list[tuple[dict[str, object], str]] = [
    ({"input": 3}, "input"),
    ({"input": []}, "input"),
    ({"input": ""}, "input"),
    ({"input": [{"role": "user", "content": []}]}, "input[0]"),
    ({"input": [{"role": "assistant", "content": "?"}]}, "input"),
    ({"input": [{"role": "robot", "content": "?"}]}, "input[0].role"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        "input[0].content[0].type",
    ),
    (
        {
            "input": [
                {
                    "role": "user",
                    "content": [{"type": "input_image", "file_id": "f"}],
                }
            ]
        },
        "input[0].content[0].image_url",
    ),
    (
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "input_image",
                            "image_url": "data:image/png;base64,?",
                        }
                    ],
                }
            ]
        },
        "input[0].content[0].image_url",
    ),
    (
        {
            "input": [
                {
                    "type": "function_call",
                    "call_id": "c",
                    "name": "f",
                    "arguments": "[",
                }
            ]
        },
        "input[0].arguments",
    ),
    ({"model": "nobody"}, "model"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "name": "delegate_task"}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
    ({"tools": [WEATHER], "background": True}, "tools"),
    ({"tools": [WEATHER], "parallel_tool_calls": False}, "parallel_tool_calls"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"text": {"format": {"type": "json_object"}}}, "text.format"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"include": ["message.output_text.logprobs"]}, "include"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"metadata": {"key": "x" * 513}}, "metadata[...]"),
]


async def test_a_wrong_body_is_refused_by_the_name_of_what_is_wrong() -> None:
    named: list[str] = []
    async with serving(worker()) as served:
        for body, _ in WRONG:
            answer = await served.http.post(
                "/v1/responses", json={"model": "worker", "input": "?", **body}
            )
            assert answer.status_code in {400, 404}
            named.append(answer.json()["error"]["param"])

        assert named == [param for _, param in WRONG]
        assert not served.orchestrator.runs


RATE = ModelError("slow down", kind=Failure.RATE_LIMIT, retry_after=2.5, partial="so")
RATE_AT_ONCE = ModelError("slow down", kind=Failure.RATE_LIMIT)


@pytest.mark.parametrize(
    ("fault", "error", "code"),
    [
        (RATE, openai.RateLimitError, "rate_limit"),
        (ModelError("who?", kind=Failure.AUTH), openai.InternalServerError, "auth"),
        (ModelError("pay", kind=Failure.QUOTA), openai.RateLimitError, "quota"),
        (
            ModelError("too long", kind=Failure.CONTEXT_TOO_LONG),
            openai.BadRequestError,
            "context",
        ),
        (
            ModelError("gone", kind=Failure.CONNECTION),
            openai.InternalServerError,
            "provider",
        ),
        (RuntimeError("a fault"), openai.InternalServerError, "internal"),
    ],
)
async def test_whoever_waits_is_told_by_an_error_why_there_is_no_answer(
    fault: Exception, error: type[openai.APIStatusError], code: str
) -> None:
    """And what was said until then can be asked for."""
    model = speaker(("I look", hand_on("look")), ("so", fault))
    agent = Agent("agent", model=model, delegates=[worker("helper")])
    async with (
        serving(agent) as served,
        openai.AsyncOpenAI(
            base_url=f"{served.url}/v1", api_key=served.openai.api_key, max_retries=2
        ) as client,
    ):
        with pytest.raises(error) as caught:
            await client.responses.create(model="agent", input="?")
        headers = caught.value.response.headers
        found = await served.http.get(
            f"/v1/responses/{headers['x-run-id'].replace('r_', 'resp_')}"
        )

    assert len(model.requests) == 2, "the client must not ask again by itself"
    assert caught.value.code == code
    response = Response.model_validate(found.json())
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.type == code
    assert response.output_text.startswith("I look")
    if fault is RATE:
        assert headers["retry-after"] == "3"
        assert response.error.code == "rate_limit_exceeded"
        assert found.json()["error"]["retry_after"] == 2.5
        assert response.output_text == "I look\n\nso"


async def test_what_was_said_before_is_no_part_of_an_answer_that_fails() -> None:
    agent = Agent("agent", model=speaker("one", RATE_AT_ONCE))
    async with serving(agent) as served:
        first = await served.openai.responses.create(model="agent", input="?")
        with pytest.raises(openai.RateLimitError) as caught:
            await served.openai.responses.create(
                model="agent", input="?", previous_response_id=first.id
            )
        id_ = caught.value.response.headers["x-run-id"].replace("r_", "resp_")
        found = await served.openai.responses.retrieve(id_)

    assert (found.status, found.output) == ("failed", [])


async def test_an_agent_that_goes_beyond_its_limits_has_failed() -> None:
    agent = Agent(
        "agent",
        model=speaker(hand_on("a"), hand_on("b"), "c"),
        limits=Limits(model_calls=2),
        delegates=[worker("helper")],
    )
    async with serving(agent) as served:
        with pytest.raises(openai.InternalServerError) as caught:
            await served.openai.responses.create(model="agent", input="?")

    assert caught.value.code == "tool_limit"


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
