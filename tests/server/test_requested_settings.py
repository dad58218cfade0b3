"""A client's settings reach the model, and ignored ones are named."""

from typing import Any

import pytest

from orchestrator.agents import Agent, ModelSettings, ScriptedModel, ToolCall, ToolMessage, tool
from orchestrator.products.server.state import Settings
from orchestrator.testing import SpyModel
from tests.server.chat_kit import HELLO
from tests.server.kit import TOKEN, Served, serving

pytestmark = pytest.mark.realtime

IGNORED = "x-ignored-parameters"


class PlainModel(SpyModel):
    """A model that has no seed."""

    def settings_problem(self, settings: ModelSettings) -> str | None:
        return None if settings.seed is None else "it has no seed"


async def chat(served: Served, **parameters: Any) -> Any:
    body = {"model": "helper", "messages": HELLO, **parameters}
    return await served.http.post("/v1/chat/completions", json=body)


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


async def test_the_parameters_of_a_chat_are_put_over_the_settings_of_its_agent() -> None:
    model = SpyModel()
    own = ModelSettings(temperature=1, seed=1, top_p=0.9)
    async with serving(Agent("helper", model=model, settings=own)) as served:
        answer = await served.openai.chat.completions.with_raw_response.create(
            model="helper",
            messages=HELLO,
            temperature=0.3,
            seed=7,
            stop="END",
            max_tokens=5,
            presence_penalty=0.5,
            frequency_penalty=-0.5,
            reasoning_effort="low",
            user="anna",
            metadata={"ticket": "12"},
        )
        run = await served.http.get(f"/v1/runs/{answer.headers['x-run-id']}")

    assert model.requests[0].settings == ModelSettings(
        temperature=0.3,
        seed=7,
        top_p=0.9,
        stop=("END",),
        max_output_tokens=5,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        reasoning_effort="low",
    )
    assert model.requests[0].max_output == 5
    assert IGNORED not in answer.headers
    assert run.json()["metadata"] == {"ticket": "12", "user": "anna"}


async def test_ignored_settings_are_named_in_a_header() -> None:
    model = PlainModel()
    async with serving(Agent("helper", model=model)) as served:
        for stream in (False, True):
            answer = await chat(
                served,
                stream=stream,
                seed=7,
                temperature=0,
                logit_bias={"5": 1},
                prediction=None,
                service_tier="auto",
                not_openai=1,
            )
            assert answer.status_code == 200, answer.text
            assert answer.headers[IGNORED] == "logit_bias, not_openai, seed, service_tier"

    assert [it.settings for it in model.requests] == [ModelSettings(temperature=0)] * 2


async def test_a_parameter_name_cannot_inject_a_header() -> None:
    async with serving(Agent("helper", model=PlainModel())) as served:
        answer = await chat(served, **{"a\r\nset-cookie: b": 1, "ö": 1, "plain": 1})
        many = await chat(served, **{f"p{number}": 1 for number in range(1000)})

    assert answer.headers[IGNORED] == "plain, ..."
    assert "set-cookie" not in answer.headers
    assert len(many.headers[IGNORED]) < 200


async def test_a_strict_server_refuses_unsupported_settings() -> None:
    settings = Settings(token=TOKEN, is_strict=True)
    agent = Agent("helper", model=PlainModel())
    async with serving(agent, settings=settings) as served:
        for parameter in ("seed", "not_openai"):
            answer = await chat(served, **{parameter: 7})
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert (error["param"], error["code"]) == (parameter, "unsupported_parameter")
        assert (await chat(served, temperature=0)).status_code == 200


@tool
def clock() -> str:
    """Tell the time."""
    return "noon"


def calls_once(transcript: Any) -> Any:
    answered = isinstance(transcript[-1], ToolMessage)
    return "done" if answered else ToolCall("clock", {})


async def test_a_call_is_forced_in_the_first_answer_of_a_turn_only() -> None:
    """Otherwise the turn would never end."""
    model = SpyModel(ScriptedModel.always(calls_once))
    async with serving(Agent("helper", model=model, tools=[clock])) as served:
        for choice in ("required", function("clock")):
            model.requests.clear()
            answer = await chat(served, tool_choice=choice, parallel_tool_calls=False)
            assert answer.json()["choices"][0]["message"]["content"] == "done"
            name = "required" if choice == "required" else "clock"
            asked = [it.settings.tool_choice for it in model.requests]
            assert asked == [name, None]
            assert {it.settings.parallel_tool_calls for it in model.requests} == {False}


async def test_tool_choice_is_about_the_tools_of_the_client() -> None:
    model = SpyModel()
    tools = [function("a"), function("b")]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": tools[:1]}
    async with serving(Agent("helper", model=model)) as served:
        for choice, names, asked in (
            ("none", [], None),
            (function("b"), ["a", "b"], "b"),
            ({"type": "allowed_tools", "allowed_tools": allowed}, ["a"], "required"),
        ):
            model.requests.clear()
            answer = await chat(served, tools=tools, tool_choice=choice)
            assert answer.status_code == 200, answer.text
            (request,) = model.requests
            assert [it.name for it in request.tools] == names
            assert request.settings.tool_choice == asked
        for choice in (
            *("required", function("c"), {}, {"type": 1}, {"type": "function"}),
            {"type": "function", "function": "a"},
            {"type": "allowed_tools", "allowed_tools": {"mode": {}, "tools": "a"}},
        ):
            assert (await chat(served, tool_choice=choice)).status_code == 400


async def test_the_settings_of_a_response_hold_for_its_whole_run_and_are_shown() -> None:
    """Also in the turns that notices of its tasks wake."""
    model = SpyModel(
        ScriptedModel.always(
            lambda transcript: (
                ToolCall("delegate_task", {"agent": "child", "goal": "go", "background": True})
                if len(transcript) == 1
                else f"said {len(transcript)}"
            )
        )
    )
    child = SpyModel()
    agent = Agent("helper", model=model, delegates=[Agent("child", model=child)])
    async with serving(agent) as served:
        begun = await served.openai.responses.create(
            model="helper",
            input="go",
            background=True,
            temperature=0.2,
            max_output_tokens=50,
            reasoning={"effort": "low"},
            truncation="auto",
        )
        events = await served.openai.responses.retrieve(begun.id, stream=True)
        async for _ in events:
            pass
        ended = await served.openai.responses.retrieve(begun.id)

    wanted = ModelSettings(temperature=0.2, max_output_tokens=50, reasoning_effort="low")
    assert len(model.requests) == 3
    assert {it.settings for it in model.requests} == {wanted}
    assert child.requests[0].settings == ModelSettings()
    for shown in (begun, ended):
        assert (shown.temperature, shown.max_output_tokens) == (0.2, 50)
        assert shown.reasoning is not None
        assert shown.reasoning.effort == "low"
