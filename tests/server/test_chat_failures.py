"""Chat completions that fail: each failure has its status, its code and its words."""

from typing import Any

import openai
import pytest
import trio

from orchestrator.agents import (
    Agent,
    Budget,
    Failure,
    Limits,
    ModelError,
    ScriptedModel,
    ToolCall,
    tool,
)
from orchestrator.delegation import Ending, SessionId
from tests.server.chat_kit import HELLO, streaming
from tests.server.kit import serving

pytestmark = pytest.mark.realtime

FAILURES = {
    Failure.RATE_LIMIT: (429, "rate_limit_exceeded"),
    Failure.OVERLOADED: (503, "provider"),
    Failure.TIMEOUT: (504, "provider"),
    Failure.CONNECTION: (502, "provider"),
    Failure.MALFORMED: (502, "provider"),
    Failure.AUTH: (502, "auth"),
    Failure.QUOTA: (429, "insufficient_quota"),
    Failure.CONTEXT_TOO_LONG: (400, "context_length_exceeded"),
    Failure.BAD_REQUEST: (502, "provider"),
    Failure.OTHER: (502, "provider"),
}


@pytest.mark.parametrize("stream", [False, True])
async def test_each_provider_failure_has_its_status(stream: bool) -> None:
    """Also of a stream, as long as nothing was said in it."""
    agents = [
        Agent(kind.value, model=streaming(ModelError("it said no", kind=kind))) for kind in FAILURES
    ]
    async with serving(*agents) as served:
        for kind, expected in FAILURES.items():
            with pytest.raises(openai.APIStatusError) as caught:
                await served.openai.chat.completions.create(
                    model=kind.value, messages=HELLO, stream=stream
                )

            assert (caught.value.status_code, caught.value.code) == expected
            assert "it said no" in caught.value.message
            run = SessionId(caught.value.response.headers["x-run-id"])
            outcome = served.orchestrator.read.records.sessions[run].last_outcome
            assert outcome is not None
            assert outcome.ending is Ending.FAILED


@pytest.mark.parametrize("stream", [False, True])
async def test_a_rate_limit_names_its_retry_time_and_disables_client_retries(stream: bool) -> None:
    """The official client repeats such requests, and each would run the agent again."""
    failure = ModelError("slow down", kind=Failure.RATE_LIMIT, retry_after=2.5)
    async with serving(Agent("helper", model=streaming(failure))) as served:
        patient = served.openai.with_options(max_retries=2)
        with pytest.raises(openai.RateLimitError) as caught:
            await patient.chat.completions.create(model="helper", messages=HELLO, stream=stream)
        assert len(served.orchestrator.read.records.sessions) == 1

    assert caught.value.response.headers["retry-after"] == "3"
    assert caught.value.type == "rate_limit_error"


async def test_a_tool_that_breaks_is_an_error_of_the_server() -> None:
    @tool
    def broken() -> str:
        """Break."""
        raise ZeroDivisionError

    model = ScriptedModel.always(ToolCall("broken"))
    async with serving(Agent("helper", model=model, tools=[broken])) as served:
        with pytest.raises(openai.InternalServerError) as caught:
            await served.openai.chat.completions.create(model="helper", messages=HELLO)

    assert caught.value.code == "internal"
    assert "ZeroDivisionError" in caught.value.message


@pytest.mark.parametrize("given", [{"budget": Budget(tokens=1)}, {"limits": Limits(calls=0)}])
async def test_a_run_over_budget_is_an_error(given: Any) -> None:
    helper = Agent("helper", model=ScriptedModel.always("x" * 100), **given)
    async with serving(helper) as served:
        with pytest.raises(openai.InternalServerError) as caught:
            await served.openai.chat.completions.create(model="helper", messages=HELLO)

    assert caught.value.code == "tool_limit"
    assert "over_budget" in caught.value.message


async def test_a_cancelled_run_has_no_answer() -> None:
    model = streaming(trio.Event())
    async with serving(Agent("helper", model=model)) as served:

        async def cancel() -> None:
            await model.wait_called()
            (session,) = served.orchestrator.read.records.sessions.values()
            await served.server.state.journals.first.door.close(session)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel)
            with pytest.raises(openai.APIStatusError) as caught:
                await served.openai.chat.completions.create(model="helper", messages=HELLO)

    assert caught.value.status_code == 499
    assert caught.value.code == "cancelled"


async def test_a_context_that_is_too_long_uses_the_wording_of_openai() -> None:
    """LangChain and litellm read no code."""
    error = ModelError("it is too long", kind=Failure.CONTEXT_TOO_LONG)
    async with serving(Agent("a", model=ScriptedModel.always(error))) as served:
        with pytest.raises(openai.BadRequestError) as refused:
            await served.openai.chat.completions.create(model="a", messages=HELLO)

    assert "Input tokens exceed the configured limit" in refused.value.message
