"""`/v1/conversations` as the official client uses it, and responses that go on with one."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pytest
import trio
from openai.types.responses import FunctionToolParam

from orchestrator.agents import Agent, ModelRequest, ToolCall, UserMessage
from orchestrator.delegation import SessionRecord
from orchestrator.kernel.journal.journal import Journal
from orchestrator.kernel.journal.memory import MemoryJournal
from orchestrator.testing import CrashedError, CrashingJournal
from tests.kit import worker
from tests.server.chat_kit import answering
from tests.server.keys_kit import serving_with_keys
from tests.server.kit import Served, serving

pytestmark = pytest.mark.realtime

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "strict": False,
    "parameters": {"type": "object", "properties": {}},
}


def listener() -> Agent[str]:
    """Return an agent that says what it has heard so far."""

    def answer(request: ModelRequest) -> str:
        heard = [it.text for it in request.transcript if isinstance(it, UserMessage)]
        return f"I heard {', '.join(heard)}"

    return Agent("listener", model=answering(answer))


async def texts(served: Served, conversation: str) -> list[tuple[str, str]]:
    """Return who has said what in a conversation, oldest first."""
    page = await served.openai.conversations.items.list(conversation, order="asc")
    return [
        (item.role, item.content[0].text)  # type: ignore[union-attr]
        async for item in page
        if item.type == "message"
    ]


async def test_a_conversation_is_made_shown_changed_and_deleted() -> None:
    async with serving(worker()) as served:
        made = await served.openai.conversations.create(
            metadata={"for": "tea"}, items=[{"type": "message", "role": "user", "content": "hello"}]
        )
        assert made.id.startswith("conv_")
        assert made.metadata == {"for": "tea"}
        shown = await served.openai.conversations.retrieve(made.id)
        assert shown == made
        changed = await served.openai.conversations.update(made.id, metadata={"for": "milk"})
        assert changed.metadata == {"for": "milk"}
        assert await texts(served, made.id) == [("user", "hello")]
        gone = await served.openai.conversations.delete(made.id)
        assert (gone.id, gone.deleted) == (made.id, True)
        with pytest.raises(openai.NotFoundError):
            await served.openai.conversations.retrieve(made.id)


async def test_items_are_added_listed_in_pages_and_deleted() -> None:
    async with serving(worker()) as served:
        client = served.openai.conversations
        made = await client.create()
        added = await client.items.create(
            made.id,
            items=[
                {"type": "message", "role": "developer", "content": "Be brief."},
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "hello"}],
                },
                {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            ],
        )
        kinds = [item.type for item in added.data]
        assert kinds == ["message", "message", "function_call", "function_call_output"]
        newest = await client.items.list(made.id, limit=3)
        assert newest.has_more
        assert [it.id async for it in newest] == [it.id for it in added.data][::-1]
        id_ = added.data[2].id
        assert id_ is not None
        one = await client.items.retrieve(id_, conversation_id=made.id)
        assert one == added.data[2]
        assert one.id is not None
        await client.items.delete(one.id, conversation_id=made.id)
        left = await client.items.list(made.id, order="asc")
        assert one.id not in [item.id for item in left.data]
        with pytest.raises(openai.NotFoundError):
            await client.items.retrieve(one.id, conversation_id=made.id)


async def test_a_response_reads_and_extends_a_conversation() -> None:
    async with serving(listener()) as served:
        made = await served.openai.conversations.create(
            items=[{"type": "message", "role": "user", "content": "tea"}]
        )
        first = await served.openai.responses.create(
            model="listener", input="milk", conversation=made.id
        )
        second = await served.openai.responses.create(
            model="listener",
            input=[{"role": "user", "content": "sugar"}],
            conversation={"id": made.id},
        )
        assert first.output_text == "I heard tea, milk"
        assert second.output_text == "I heard tea, milk, sugar"
        assert first.conversation is not None
        assert first.conversation.id == made.id
        said = await texts(served, made.id)
        page = await served.openai.conversations.items.list(made.id, limit=1)

    assert said == [
        ("user", "tea"),
        ("user", "milk"),
        ("assistant", "I heard tea, milk"),
        ("user", "sugar"),
        ("assistant", "I heard tea, milk, sugar"),
    ]
    assert page.data[0].id == second.output[0].id


async def test_a_function_of_the_client_is_called_and_answered_in_a_conversation() -> None:
    def call_or_tell(request: ModelRequest) -> Any:
        last = request.transcript[-1]
        if isinstance(last, UserMessage):
            return [ToolCall("weather", {})]
        return f"it is {last.text}"

    agent = Agent("helper", model=answering(call_or_tell))
    async with serving(agent) as served:
        made = await served.openai.conversations.create()
        asked = await served.openai.responses.create(
            model="helper", input="how is it?", conversation=made.id, tools=[WEATHER]
        )
        call = asked.output[0]
        assert call.type == "function_call"
        told = await served.openai.responses.create(
            model="helper",
            conversation=made.id,
            tools=[WEATHER],
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": "rainy"}],
        )
        items = await served.openai.conversations.items.list(made.id, order="asc")

    assert told.output_text == "it is rainy"
    assert [it.type for it in items.data] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]


async def test_two_responses_at_once_are_one_and_an_error() -> None:
    """No item is lost: the second has to ask again."""
    async with serving(worker("slow", seconds=1_000), listener()) as served:
        made = await served.openai.conversations.create()
        slow = await served.openai.responses.create(
            model="slow", input="first", conversation=made.id, background=True
        )
        for _ in range(2):
            with pytest.raises(openai.BadRequestError) as locked:
                await served.openai.responses.create(
                    model="listener", input="second", conversation=made.id
                )
            assert locked.value.code == "conversation_locked"
            assert locked.value.param == "conversation"
        with pytest.raises(openai.BadRequestError, match="under way"):
            await served.openai.conversations.items.create(
                made.id, items=[{"type": "message", "role": "user", "content": "x"}]
            )
        await served.openai.responses.cancel(slow.id)
        after = await served.openai.responses.create(
            model="listener", input="second", conversation=made.id
        )
        said = await texts(served, made.id)

    assert after.output_text == "I heard second", "the cancelled one leaves no trace"
    assert said == [("user", "second"), ("assistant", "I heard second")]


async def test_one_of_many_concurrent_requests_is_accepted() -> None:
    async with serving(listener()) as served:
        made = await served.openai.conversations.create()
        taken: list[str] = []
        codes: list[object] = []

        async def ask(word: str) -> None:
            try:
                answer = await served.openai.responses.create(
                    model="listener", input=word, conversation=made.id
                )
            except openai.BadRequestError as refused:
                codes.append(refused.code)
            else:
                taken.append(answer.output_text)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(ask, f"word {number}")
        said = await texts(served, made.id)

    assert taken
    assert len(taken) + len(codes) == 8
    assert set(codes) <= {"conversation_locked"}
    assert [text for role, text in said if role == "assistant"] == taken


async def test_a_deleted_response_leaves_its_items_in_the_conversation() -> None:
    async with serving(listener()) as served:
        made = await served.openai.conversations.create()
        answer = await served.openai.responses.create(
            model="listener", input="tea", conversation=made.id
        )
        await served.openai.responses.delete(answer.id)
        assert await texts(served, made.id) == [("user", "tea"), ("assistant", "I heard tea")]


async def test_a_conversation_survives_a_restart(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with serving(listener(), journal=journal) as served:
        made = await served.openai.conversations.create(metadata={"for": "tea"})
        await served.openai.responses.create(model="listener", input="tea", conversation=made.id)
    async with serving(listener(), journal=journal) as served:
        again = await served.openai.conversations.retrieve(made.id)
        answer = await served.openai.responses.create(
            model="listener", input="milk", conversation=made.id
        )

    assert again == made
    assert answer.output_text == "I heard tea, milk"


async def talk(journal: Journal) -> list[str]:
    """Say two things in a new conversation, and return its id and the answers."""
    said: list[str] = []
    with suppress(CrashedError):
        async with serving(listener(), journal=journal) as served:
            with suppress(openai.APIError):
                made = await served.openai.conversations.create()
                said.append(made.id)
                for word in ("tea", "milk"):
                    answer = await served.openai.responses.create(
                        model="listener", input=word, conversation=made.id
                    )
                    said.append(answer.output_text)
    return said


async def wait_idle(served: Served) -> None:
    """Wait until nothing goes on that an earlier server has begun."""
    read = served.orchestrator.read
    while not all(map(is_quiet, read.records.sessions.values())):
        await read.wait_posted(after=read.last_seq)


def is_quiet(session: SessionRecord) -> bool:
    return session.has_nothing_pending or session.awaits_resume


async def test_a_conversation_keeps_its_answers_after_any_crash() -> None:
    whole = MemoryJournal()
    assert await talk(whole) != []
    for crash_after in range(2, len(whole.entries)):
        journal = MemoryJournal()
        made, *answers = await talk(CrashingJournal(journal, after=crash_after)) or [""]
        if not made:
            continue
        async with serving(listener(), journal=journal) as served:
            await wait_idle(served)
            after = await served.openai.responses.create(
                model="listener", input="sugar", conversation=made
            )
            said = await texts(served, made)
        heard = [text for role, text in said if role == "user"]
        assert heard in (["sugar"], ["tea", "sugar"], ["tea", "milk", "sugar"])
        assert len(heard) > len(answers), "what was answered is there"
        assert after.output_text == f"I heard {', '.join(heard)}"
        assert len(said) == 2 * len(heard), "each question with its answer"


async def test_only_its_owner_sees_a_conversation(tmp_path: Path) -> None:
    async with serving_with_keys(listener(), folder=tmp_path) as server:
        ann, bob = server.new_token("ann"), server.new_token("bob")
        made = await server.ask(ann, "POST", "/v1/conversations", {})
        path = f"/v1/conversations/{made.json()['id']}"
        assert (await server.ask(ann, "GET", path)).status_code == 200
        for method, where in (("GET", path), ("GET", f"{path}/items"), ("DELETE", path)):
            assert (await server.ask(bob, method, where)).status_code == 404
        body = {"model": "listener", "input": "hi", "conversation": made.json()["id"]}
        refused = await server.ask(bob, "POST", "/v1/responses", body)

    assert refused.status_code == 404
    assert refused.json()["error"]["param"] == "conversation"


async def test_a_key_finds_the_same_conversation_and_the_same_response() -> None:
    async with serving(listener()) as served:
        post = served.http.post
        key = {"idempotency-key": "once"}
        item = {"role": "user", "content": "tea"}
        one = await post("/v1/conversations", json={"items": [item]}, headers=key)
        two = await post("/v1/conversations", json={"items": [item]}, headers=key)
        assert one.json() == two.json()
        id_ = one.json()["id"]
        body = {"model": "listener", "input": "milk", "conversation": id_}
        first = await post("/v1/responses", json=body, headers=key)
        again = await post("/v1/responses", json=body, headers=key)
        assert first.json()["id"] == again.json()["id"]
        assert len(await texts(served, id_)) == 3


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"conversation": "conv_0000000000000000"}, "conversation"),
        ({"conversation": "nonsense"}, "conversation"),
    ],
)
async def test_an_unknown_reference_is_not_found(body: dict[str, Any], param: str) -> None:
    async with serving(worker()) as served:
        answer = await served.http.post(
            "/v1/responses", json={"model": "worker", "input": "hi", **body}
        )

    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == param


async def test_a_secret_is_in_no_item(tmp_path: Path) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    journal = tmp_path / "journal.db"
    async with serving(listener(), journal=journal) as served:
        made = await served.openai.conversations.create(
            items=[{"type": "message", "role": "user", "content": f'"{secret}"\n'}]
        )
        ((_, kept),) = await texts(served, made.id)

    assert secret not in kept
    assert secret.encode() not in await trio.Path(journal).read_bytes()
