"""A key makes a request safe to repeat: after a lost connection, beside another, and later."""

import json
from typing import Any

import openai
import pytest
import trio

from orchestrator.agents import Agent, Failure, ModelError
from orchestrator.delegation import Ending
from orchestrator.testing import SpyModel
from tests.server.chat_kit import HELLO, Client
from tests.server.kit import Served, serving
from tests.server.streaming_kit import speaker

pytestmark = pytest.mark.realtime

KEY = {"Idempotency-Key": "monday"}
CHAT = "/v1/chat/completions"


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "a", "messages": HELLO, **more}


async def ask(served: Served, **more: Any) -> str:
    answer = await served.openai.chat.completions.create(**chat(**more), extra_headers=KEY)
    return answer.choices[0].message.content or ""


def endings(served: Served) -> list[Ending | None]:
    return [
        None if it.last_outcome is None else it.last_outcome.ending
        for it in served.orchestrator.read.records.sessions.values()
    ]


async def waiting(served: Served, clients: int) -> None:
    """Wait until so many clients wait for the one turn that is under way."""
    shared = served.server.state.journals.first.door._shared
    with trio.fail_after(60):
        while [it.waiting for it in shared.values()] != [clients]:
            await trio.lowlevel.checkpoint()


def caller(served: Served, body: dict[str, Any]) -> Client:
    return Client(served.server.state, body, idempotency_key="monday")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_waiting_caller_survives_the_disconnect_of_another(stream: bool) -> None:
    go = trio.Event()
    model = speaker(("It is ", go, "Lima."))
    async with serving(Agent("a", model=model)) as served:
        first, second = (caller(served, chat(stream=stream)) for _ in range(2))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.ask)
            await waiting(served, 1)
            nursery.start_soon(second.ask)
            await waiting(served, 2)
            first.left.set()
            await waiting(served, 1)
            go.set()

        assert endings(served) == [Ending.SUCCEEDED]
    assert second.status == 200
    assert b"Lima." in second.sent
    assert len(model.requests) == 1


async def test_a_request_that_all_callers_left_is_cancelled_and_runs_again_on_return() -> None:
    model = speaker(("It is ", trio.Event()), "It is Lima.")
    async with serving(Agent("a", model=model)) as served:
        callers = [caller(served, chat()) for _ in range(2)]
        async with trio.open_nursery() as nursery:
            for each in callers:
                nursery.start_soon(each.ask)
            await model.wait_called(1)
            await waiting(served, 2)
            for each in callers:
                each.left.set()
        assert endings(served) == [Ending.CANCELLED]

        assert await ask(served) == "It is Lima."
        assert await ask(served) == "It is Lima."
        assert endings(served) == [Ending.CANCELLED, Ending.SUCCEEDED]


@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
async def test_a_rate_limit_is_not_remembered(path: str) -> None:
    busy = ModelError("slow down", kind=Failure.RATE_LIMIT, retry_after=7)
    model = speaker((busy,), "It is Lima.")
    body = chat() if path == CHAT else {"model": "a", "input": "hello"}
    async with serving(Agent("a", model=model)) as served:
        answers = [await served.http.post(path, json=body, headers=KEY) for _ in range(3)]

    assert [it.status_code for it in answers] == [429, 200, 200]
    assert answers[1].json()["id"] == answers[2].json()["id"]
    assert len(model.requests) == 2


async def test_a_failure_of_the_request_itself_is_the_same_again() -> None:
    model: SpyModel = speaker((ModelError("too long", kind=Failure.CONTEXT_TOO_LONG),), "unused")
    async with serving(Agent("a", model=model)) as served:
        for _ in range(2):
            with pytest.raises(openai.BadRequestError):
                await ask(served)

    assert len(model.requests) == 1


async def test_the_order_of_names_does_not_matter() -> None:
    model = speaker("It is Lima.")
    body = chat(user="me")
    async with serving(Agent("a", model=model)) as served:
        answers = [
            await served.http.post(
                CHAT, content=text, headers={**KEY, "content-type": "application/json"}
            )
            for text in (
                json.dumps(body),
                json.dumps(dict(reversed([*body.items()])), indent=2),
                json.dumps({**body, "user": "you"}),
            )
        ]

    assert [it.status_code for it in answers] == [200, 200, 422]
    assert answers[0].json() == answers[1].json()
