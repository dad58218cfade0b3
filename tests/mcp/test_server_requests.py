"""Requests of a server: sampling, elicitation, roots, and tasks of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import Machine, open_orchestrator
from orchestrator.agents import Budget, ToolCall
from orchestrator.delegation.events import CallPlaced, ModelFailed, ModelFailure, ToolAnswered
from orchestrator.testing import Harness
from tests.mcp.kit import Caller, Log, hostile, use, user

pytestmark = pytest.mark.realtime
SAMPLING = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "how are you?"}}],
    "systemPrompt": "Be short.",
    "maxTokens": 100,
}
FORM = {
    "message": "Which size?",
    "requestedSchema": {
        "type": "object",
        "properties": {"size": {"type": "string"}},
        "required": ["size"],
    },
}


def ask(method: str, params: Any = None) -> ToolCall:
    """Return a call during which a server of the older protocol asks us something."""
    return ToolCall("bad__ask", {"method": method, "params": params})


def want(method: str, params: Any = None) -> ToolCall:
    """Return a call to which a server of the newer protocol answers with a question."""
    return ToolCall("bad__want", {"request": {"method": method, "params": params}})


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
async def test_a_server_request_that_was_not_declared_is_refused(method: str) -> None:
    params = {"sampling/createMessage": SAMPLING, "elicitation/create": FORM}
    model = await use(hostile(), calls=[ask(method, params.get(method))])

    assert "not supported" in model.answers[0].text


async def test_a_server_gets_the_workspace_as_its_root(tmp_path: Path) -> None:
    machine = Machine(workspace=tmp_path)
    model = await use(hostile(roots=True), calls=[ask("roots/list")], machine=machine)

    [root] = json.loads(model.answers[0].text)["roots"]
    assert root["uri"] == tmp_path.as_uri()


@pytest.mark.parametrize("call", [ask, want])
async def test_sampling_is_paid_for_by_the_task_that_called(call: Any) -> None:
    harness = Harness()
    server = hostile(*["--modern"] * (call is want), sampling=True)
    model = Caller(call("sampling/createMessage", SAMPLING), "fine, thanks")
    async with harness.open() as orchestrator:
        done = await orchestrator.run(user(model, server), "go")

    assert "fine, thanks" in model.answers[0].text
    assert model.requests[1].instructions == "Be short."
    assert model.requests[1].transcript[0].text == "how are you?"
    [booked] = harness.facts(ModelFailed)
    assert booked.reason is ModelFailure.QUESTION
    assert done.usage.calls == 3


async def test_sampling_that_its_limit_cuts_is_a_result() -> None:
    call = ask("sampling/createMessage", {**SAMPLING, "maxTokens": 2})
    model = Caller(call, "fine, thanks, and how are you on this sunny day?")
    async with Harness().open() as orchestrator:
        await orchestrator.run(user(model, hostile(sampling=True)), "go")

    answer = json.loads(model.answers[0].text)
    assert answer["stopReason"] == "maxTokens"
    assert answer["content"]["text"].startswith("fine")


async def test_sampling_is_refused_where_no_budget_is_left() -> None:
    harness = Harness()
    model = Caller(ask("sampling/createMessage", SAMPLING))
    agent = user(model, hostile(sampling=True), budget=Budget(calls=1))
    async with harness.open() as orchestrator:
        done = await orchestrator.run(agent, "go")

    [answer] = harness.facts(ToolAnswered)
    assert "budget" in answer.message.text
    assert done.usage.calls == 1


async def test_requests_of_an_older_server_are_refused_while_two_calls_are_under_way() -> None:
    call = ask("sampling/createMessage", SAMPLING)
    model = await use(hostile(sampling=True, timeout=1), calls=[[ToolCall("bad__hang"), call]])

    assert any("several calls are under way" in it.text for it in model.answers)


@pytest.mark.parametrize("call", [ask, want])
async def test_a_person_fills_in_a_form(call: Any) -> None:
    server = hostile(*["--modern"] * (call is want), elicitation=True)
    model = Caller(call("elicitation/create", {"mode": "form", **FORM}))
    async with open_orchestrator(":memory:") as orchestrator, trio.open_nursery() as nursery:

        async def answer() -> None:
            async for question in orchestrator.questions:
                assert question.subject == "Which size?"
                assert "size" in question.details
                await orchestrator.answer(question.id, "once", reason='{"size": "XL"}')
                return

        nursery.start_soon(answer)
        await orchestrator.run(user(model, server), "go", attended=True)

    assert '"action": "accept"' in model.answers[0].text
    assert '"size": "XL"' in model.answers[0].text


@pytest.mark.parametrize(
    "params", [FORM, {"mode": "url", "message": "a", "url": "https://a.b", "elicitationId": "1"}]
)
async def test_a_form_is_declined_at_once_where_no_person_can_be_asked(params: Any) -> None:
    model = await use(hostile(elicitation=True), calls=[ask("elicitation/create", params)])

    assert '"decline"' in model.answers[0].text


async def test_a_task_of_a_server_is_asked_about_until_it_is_done() -> None:
    model = await use(
        hostile("--modern", "--polls", "2", timeout=0.5), calls=[ToolCall("bad__task")]
    )

    assert model.answers[0].text == "the task is done"


async def test_a_task_of_a_server_is_cancelled_with_ours(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    server = hostile("--modern", env={"HOSTILE_LOG": log.path})
    model = Caller(ToolCall("bad__task"))
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, user(model, server), "go")
            await log.wait_heard("tasks/get", times=2)
            nursery.cancel_scope.cancel()
        await log.wait_heard("tasks/cancel")


async def test_a_task_of_a_server_is_found_again_after_a_crash(tmp_path: Path) -> None:
    """Its id is durable before it is asked about, and the call is not made again."""
    first = Log(tmp_path / "first")
    again = Log(tmp_path / "again")
    call = ToolCall("bad__task")

    def server(log: Log) -> Any:
        return hostile("--modern", "--polls", "0", env={"HOSTILE_LOG": log.path})

    done = Harness()
    async with done.open() as orchestrator:
        await orchestrator.run(user(Caller(call), server(first)), "go")
    placed = next(it.seq for it in done.entries if isinstance(it.event, CallPlaced))

    harness = Harness()
    async with harness.open(crash_after=placed) as orchestrator:
        await orchestrator.run(user(Caller(call), server(first)), "go")
    [fact] = harness.facts(CallPlaced)
    assert (fact.place, fact.execution) == ("mcp:bad", "task-1")
    model = Caller()
    async with harness.open() as orchestrator:
        [run] = orchestrator.read.session_ids
        await orchestrator.resume(user(model, server(again)), run)
        await again.wait_heard("tasks/get")

    assert model.answers[0].text == "the task is done"
    assert again.count("tools/call") == 0
