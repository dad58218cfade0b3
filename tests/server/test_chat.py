"""Chat completions, as the official client asks for them and reads them."""

from typing import Any

import attrs
import openai
import pytest
import trio

from orchestrator import delegate
from orchestrator.agents import Agent, AssistantMessage, ScriptedModel, UserMessage, agent
from orchestrator.delegation import SessionId
from orchestrator.delegation.events import SessionOpened
from orchestrator.testing import hand_on
from tests.kit import worker
from tests.server.chat_kit import HELLO, answering, streaming
from tests.server.kit import Served, serving

pytestmark = pytest.mark.realtime


def outcome_of(served: Served, run: str) -> Any:
    return served.orchestrator.read.records.sessions[SessionId(run)].last_outcome


async def test_the_official_client_gets_the_answer_of_an_agent() -> None:
    async with serving(Agent("helper", model=streaming("good ", "day"))) as served:
        raw = await served.openai.chat.completions.with_raw_response.create(
            model="helper", messages=HELLO
        )
        answer = raw.parse()
        run = raw.headers["x-run-id"]

        assert outcome_of(served, run).output == "good day"
    assert answer.choices[0].message.content == "good day"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.object == "chat.completion"
    assert answer.model == "helper"
    assert answer.id == f"chatcmpl-{run.removeprefix('r_')}"
    assert answer.model_extra == {"run_id": run}
    assert answer.created > 1_700_000_000


async def test_usage_covers_the_whole_tree() -> None:
    child = Agent("child", model=streaming("42"))
    asks = hand_on("what is it?")
    parent = Agent(
        "parent",
        model=answering(lambda request: [asks] if len(request.transcript) == 1 else "it is 42"),
        delegates=[child],
    )
    async with serving(parent) as served:
        answer = await served.openai.chat.completions.create(model="parent", messages=HELLO)

    used = answer.usage
    assert used is not None
    assert (used.prompt_tokens, used.completion_tokens, used.total_tokens) == (30, 12, 42)
    assert used.prompt_tokens_details is not None
    assert used.prompt_tokens_details.cached_tokens == 9
    assert used.completion_tokens_details is not None
    assert used.completion_tokens_details.reasoning_tokens == 6


async def test_a_conversation_reaches_the_model_as_it_was_led() -> None:
    model = answering(lambda _: "yes")
    helper = Agent("helper", instructions="Be brief.", model=model)
    async with serving(helper) as served:
        await served.openai.chat.completions.create(
            model="helper",
            messages=[
                {"role": "system", "content": "Speak like a pirate."},
                {"role": "user", "content": "who are you?"},
                {"role": "assistant", "content": "a helper"},
                {"role": "developer", "content": [{"type": "text", "text": "No oaths."}]},
                {"role": "user", "content": "really?", "name": "anna"},
            ],
        )

    request = model.requests[0]
    assert request.instructions == "Be brief.\n\nSpeak like a pirate.\n\nNo oaths."
    assert list(request.transcript) == [
        UserMessage("who are you?"),
        AssistantMessage("a helper"),
        UserMessage("really?"),
    ]


async def test_images_and_files_reach_the_model() -> None:
    model = answering(lambda _: "nice")
    data = "iVBORw0KGgogbm90IGEgcmVhbCBvbmU="
    async with serving(Agent("helper", model=model)) as served:
        await served.openai.chat.completions.create(
            model="helper",
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look:"},
                        {
                            "type": "image_url",
                            "image_url": {"url": f"data:image/png;base64,{data}"},
                        },
                        {
                            "type": "image_url",
                            "image_url": {
                                "url": "https://example.org/a/cat.webp?x=1",
                                "detail": "low",
                            },
                        },
                        {"type": "image_url", "image_url": {"url": "https://example.org/cat"}},
                        {
                            "type": "file",
                            "file": {
                                "file_data": "data:application/pdf;base64,JVBERg==",
                                "filename": "a.pdf",
                            },
                        },
                        {"type": "file", "file": {"file_data": "aGk=", "filename": "a.txt"}},
                        {"type": "text", "text": "well?"},
                    ],
                }
            ],
        )

    (message,) = model.requests[0].transcript
    assert isinstance(message, UserMessage)
    assert message.text == "look:\n\nwell?"
    png, webp, unknown, pdf, txt = message.parts
    assert (png.media_type, png.data) == ("image/png", b"\x89PNG\r\n\x1a\n not a real one")
    assert (webp.media_type, webp.url) == ("image/webp", "https://example.org/a/cat.webp?x=1")
    assert unknown.media_type == "image/jpeg"
    assert (pdf.media_type, pdf.data, pdf.name) == ("application/pdf", b"%PDF", "a.pdf")
    assert (txt.media_type, txt.data) == ("text/plain", b"hi")


async def test_a_pipeline_takes_the_last_user_message_as_its_goal() -> None:
    shouter = Agent("shouter", model=ScriptedModel.always(lambda said: said[-1].text.upper()))

    @agent
    async def twice(goal: str) -> str:
        return f"{goal}: {await delegate(shouter, goal)}"

    async with serving(twice) as served:
        answer = await served.openai.chat.completions.create(
            model="twice",
            messages=[
                {"role": "user", "content": "before"},
                {"role": "assistant", "content": "yes"},
                {"role": "user", "content": "hey"},
            ],
        )

    assert answer.choices[0].message.content == "hey: HEY"
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0


@attrs.frozen
class Report:
    """The promises of the route."""

    title: str
    pages: int


async def test_an_agent_with_a_type_answers_in_json() -> None:
    said = '{"title":"Bees","pages":3}'
    reporter = Agent("reporter", model=ScriptedModel(["no json", said]), output=Report)
    async with serving(reporter) as served:
        answer = await served.openai.chat.completions.create(model="reporter", messages=HELLO)

    assert answer.choices[0].message.content == said


async def test_an_empty_answer_is_an_answer() -> None:
    async with serving(worker(says="")) as served:
        answer = await served.openai.chat.completions.create(model="worker", messages=HELLO)

    assert answer.choices[0].message.content == ""
    assert answer.choices[0].finish_reason == "stop"


async def test_every_text_survives_a_chat_completion() -> None:
    text = 'Grüße, 世界 👩‍🚀 \u2028 \x00 "quoted" \\ \r\n data: [DONE]\n\nend'
    model = ScriptedModel.always(lambda said: said[-1].text)
    async with serving(Agent("echo", model=model)) as served:
        answer = await served.openai.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": text}]
        )

    assert answer.choices[0].message.content == text


async def test_a_huge_answer_arrives_whole() -> None:
    text = "wörd " * 400_000
    async with serving(worker(says=text)) as served:
        answer = await served.openai.chat.completions.create(model="worker", messages=HELLO)

    assert answer.choices[0].message.content == text


async def test_a_background_delegation_is_joined_and_the_model_is_told() -> None:
    """No result can be delivered later, so the tool result has the outcome and the reason."""
    child = Agent("child", model=ScriptedModel.always("the child's result"))
    parent = Agent(
        "parent",
        model=ScriptedModel([hand_on("dig", background=True), lambda said: said[-1].text]),
        delegates=[child],
    )
    async with serving(parent) as served:
        answer = await served.openai.chat.completions.create(model="parent", messages=HELLO)

    told = answer.choices[0].message.content
    assert told is not None
    assert '"status":"completed"' in told
    assert "the child's result" in told
    assert "This ran within the same response, not in the background" in told


async def test_the_same_key_is_the_same_answer_and_the_agent_runs_once() -> None:
    model = answering(lambda _: "once")
    key = {"Idempotency-Key": "order 7"}
    async with serving(Agent("helper", model=model)) as served:
        create = served.openai.chat.completions.create
        first = await create(model="helper", messages=HELLO, extra_headers=key)
        again = await create(model="helper", messages=HELLO, extra_headers=key)
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            await create(
                model="helper", messages=[{"role": "user", "content": "other"}], extra_headers=key
            )

    assert again == first
    assert len(model.requests) == 1
    assert caught.value.code == "idempotency_key_reused"


async def test_the_same_key_while_the_first_is_under_way_waits_for_its_answer() -> None:
    goes_on = trio.Event()
    model = streaming("well ", goes_on, "done")
    key = {"Idempotency-Key": "order 8"}
    answers: list[Any] = []
    async with serving(Agent("helper", model=model)) as served:

        async def ask() -> None:
            answers.append(
                await served.openai.chat.completions.create(
                    model="helper", messages=HELLO, extra_headers=key
                )
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await model.wait_called()
            nursery.start_soon(ask)
            goes_on.set()
        opened = [
            entry
            for entry in await served.orchestrator.read.entries(SessionId(answers[0].run_id))
            if isinstance(entry.event, SessionOpened)
        ]

    assert answers[0] == answers[1]
    assert len(opened) == 1
