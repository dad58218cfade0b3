"""Responses without an answer: for the client that waits, and for later reads."""

from contextlib import suppress

import openai
import pytest
from openai.types.responses import Response

from orchestrator.agents import Agent, Failure, Limits, ModelError
from orchestrator.kernel.journal.memory import MemoryJournal
from orchestrator.testing import CrashedError, CrashingJournal
from tests.kit import hand_on, worker
from tests.server.kit import serving
from tests.server.streaming_kit import speaker

pytestmark = pytest.mark.realtime

RATE = ModelError("slow down", kind=Failure.RATE_LIMIT, retry_after=2.5, partial="so")
KINDS = {
    "rate_limit_exceeded": "rate_limit",
    "insufficient_quota": "quota",
    "context_length_exceeded": "context",
}
RATE_AT_ONCE = ModelError("slow down", kind=Failure.RATE_LIMIT)


@pytest.mark.parametrize(
    ("fault", "error", "code"),
    [
        (RATE, openai.RateLimitError, "rate_limit_exceeded"),
        (ModelError("who?", kind=Failure.AUTH), openai.InternalServerError, "auth"),
        (ModelError("pay", kind=Failure.QUOTA), openai.RateLimitError, "insufficient_quota"),
        (
            ModelError("too long", kind=Failure.CONTEXT_TOO_LONG),
            openai.BadRequestError,
            "context_length_exceeded",
        ),
        (ModelError("gone", kind=Failure.CONNECTION), openai.InternalServerError, "provider"),
        (RuntimeError("a fault"), openai.InternalServerError, "internal"),
    ],
)
async def test_a_waiting_client_gets_an_error_with_the_reason(
    fault: Exception, error: type[openai.APIStatusError], code: str
) -> None:
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
        found = await served.http.get(f"/v1/responses/{headers['x-run-id'].replace('r_', 'resp_')}")

    assert len(model.requests) == 2, "the client must not ask again by itself"
    assert caught.value.code == code
    response = Response.model_validate(found.json())
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.type == KINDS.get(code, code)
    assert response.output_text.startswith("I look")
    if fault is RATE:
        assert headers["retry-after"] == "3"
        assert response.error.code == "rate_limit_exceeded"
        assert found.json()["error"]["retry_after"] == 2.5
        assert response.output_text == "I look\n\nso"


async def test_a_failed_response_holds_no_earlier_text() -> None:
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
        limits=Limits(calls=2),
        delegates=[worker("helper")],
    )
    async with serving(agent) as served:
        with pytest.raises(openai.InternalServerError) as caught:
            await served.openai.responses.create(model="agent", input="?")

    assert caught.value.code == "tool_limit"


async def test_a_response_with_a_waiting_client_fails_after_a_crash() -> None:
    """It ends with its client, and no client waits any more. One that comes back is answered."""
    journal = MemoryJournal()
    headers = {"Idempotency-Key": "k"}
    agent = Agent("agent", model=speaker("42", "43"))
    with suppress(CrashedError):
        async with serving(
            agent, journal=CrashingJournal(journal, after=len(JUST_BEGUN))
        ) as served:
            with suppress(openai.APIError):
                await served.openai.responses.create(
                    model="agent", input="?", extra_headers=headers
                )
    assert [type(it.event).__name__ for it in journal.entries] == JUST_BEGUN
    async with serving(agent, journal=journal) as served:
        (first,) = (await served.http.get("/v1/runs")).json()["data"]
        again = await served.openai.responses.create(
            model="agent", input="?", extra_headers=headers
        )
        found = await served.openai.responses.retrieve(first["id"].replace("r_", "resp_"))

    assert again.output_text == "43"
    assert found.status == "failed"
    assert found.error is not None
    assert found.error.type == "internal"


JUST_BEGUN = ["JournalOpened", "SessionOpened", "MessageReceived", "TurnStarted"]
