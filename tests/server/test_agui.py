"""`POST /agui`: the streams of runs, checked against the schema and the order of AG-UI 1.0."""

import json
from typing import Any

import httpx2
import pytest
import trio

from orchestrator import tool
from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, Transcript, confirm
from orchestrator.products.server.state import Settings
from orchestrator.testing import StreamingModel
from tests.kit import editor, tool_answers, worker
from tests.server.agui_kit import AguiRun, post, reading, run_input
from tests.server.chat_kit import answering
from tests.server.kit import TOKEN, Served, serving
from tests.server.runs_kit import ended

pytestmark = pytest.mark.realtime


def _output(transcript: Transcript) -> str:
    answer = tool_answers(transcript)[0]
    found: str = answer["results"][0]["output"]
    return found


LOOK = {"agent": "worker", "goal": "look it up"}
NOW = ToolCall("delegate_task", {**LOOK, "background": False})
LATER = ToolCall("delegate_task", {**LOOK, "background": True})
EDITOR: tuple[Any, ...] = (NOW, lambda t: f"read: {_output(t)}")


@tool
async def publish(page: str) -> str:
    """Publish a page."""
    await trio.lowlevel.checkpoint()
    return f"{page} is public"


def careful(name: str = "careful") -> Agent:
    """Return an agent that asks before it publishes."""

    def say(transcript: Transcript) -> Any:
        answers = [it for it in transcript if isinstance(it, ToolMessage)]
        return answers[-1].text if answers else ToolCall("publish", {"page": "home"})

    return Agent(
        name, model=ScriptedModel.always(say), tools=[publish], approve=[confirm("publish")]
    )


def answers_to(run: AguiRun, **payload: Any) -> list[dict[str, Any]]:
    """Return the answers to all interrupts that have ended a stream."""
    assert run.end is not None
    interrupts = run.end["outcome"]["interrupts"]
    entry = {"status": "resolved", "payload": payload}
    return [{"interruptId": it["id"], **entry} for it in interrupts]


async def test_a_run_streams_its_text_and_usage() -> None:
    model = StreamingModel([("Hel", "lo")], name="speaker")
    async with serving(Agent("helper", model=model)) as served:
        run = await post(served, run_input("hi"))
        listed = (await served.http.get("/v1/runs")).json()["data"]

    assert run.texts == ["Hello"]
    assert run.end is not None
    assert run.end["outcome"] == {"type": "success"}
    assert (run.end["result"], run.end["threadId"], run.end["runId"]) == ("Hello", "t1", "r1")
    assert run.events[0]["protocolVersion"] == "1.0"
    assert run.state["orchestrator"]["status"] == "succeeded"
    assert [it["id"] for it in listed] == [run.id]


async def test_subagents_have_their_events_results_and_state() -> None:
    async with serving(editor(*EDITOR, delegates=[worker()])) as served:
        run = await post(served, run_input())

    (start,) = run.of("SUBAGENT_STARTED")
    (end,) = run.of("SUBAGENT_FINISHED")
    (call,) = run.of("TOOL_CALL_START")
    assert (start["name"], start["description"]) == ("worker", "look it up")
    assert start["parentToolCallId"] == call["toolCallId"]
    assert (end["subagentRunId"], end["result"]) == (start["subagentRunId"], "done")
    (said,) = [it for it in run.messages.values() if it.get("subagentRunId")]
    assert said["content"] == "done"
    (task,) = run.state["orchestrator"]["tasks"].values()
    assert (task["agent"], task["status"]) == ("worker", "succeeded")
    assert json.loads(run.of("TOOL_CALL_ARGS")[0]["delta"])["goal"] == "look it up"


async def test_a_failed_subagent_ends_with_a_sentence_and_the_run_goes_on() -> None:
    broken = Agent("worker", model=ScriptedModel([ValueError("no luck")]))
    async with serving(editor(*EDITOR, delegates=[broken])) as served:
        run = await post(served, run_input())

    (error,) = run.of("SUBAGENT_ERROR")
    assert error["code"] == "failed"
    assert error["message"].startswith("failed: ")
    assert run.end is not None
    assert run.end["type"] == "RUN_FINISHED"


async def test_a_failed_run_ends_with_an_error_in_a_sentence() -> None:
    async with serving(Agent("helper", model=ScriptedModel([ValueError("no luck")]))) as served:
        run = await post(served, run_input())

    assert run.end is not None
    assert run.end["type"] == "RUN_ERROR"
    assert run.end["message"].startswith("failed: ")
    assert "Traceback" not in run.end["message"]


async def test_detached_results_come_in_the_same_stream() -> None:
    steps = (LATER, "I have asked.", "The worker is done.")
    async with serving(editor(*steps, delegates=[worker()])) as served:
        run = await post(served, run_input())

    assert run.texts == ["I have asked.", "The worker is done."]
    assert len(run.of("SUBAGENT_FINISHED")) == 1


async def test_an_approval_interrupts_the_stream_and_its_answer_resumes_the_run() -> None:
    asks = editor(*EDITOR, delegates=[careful("worker")])
    async with serving(asks) as served:
        first = await post(served, run_input())
        messages = list(first.messages.values())
        body = {**run_input("", run="r2"), "messages": messages}
        second = await post(served, {**body, "resume": answers_to(first, approved=True)})

    assert first.end is not None
    (interrupt,) = first.end["outcome"]["interrupts"]
    (suspended,) = first.of("SUBAGENT_FINISHED")
    assert interrupt["reason"] == "tool_call"
    assert "publish" in interrupt["message"]
    assert suspended["outcome"] == {"type": "suspended", "interruptIds": [interrupt["id"]]}
    assert interrupt["subagentRunId"] == suspended["subagentRunId"]
    (asked,) = [it for it in first.of("TOOL_CALL_START") if it["toolCallName"] == "publish"]
    assert interrupt["toolCallId"] == asked["toolCallId"]
    assert second.id == first.id
    assert second.end is not None
    assert second.end["outcome"] == {"type": "success"}
    assert second.of("SUBAGENT_STARTED")[0]["subagentRunId"] == suspended["subagentRunId"]
    assert "home is public" in [it.get("content") for it in second.messages.values()]
    # The messages of the first stream are there once.
    assert list(second.messages)[: len(messages)] == [it["id"] for it in messages]
    assert second.texts == ["read: home is public"]


async def test_a_denied_approval_tells_the_agent_the_reason() -> None:
    async with serving(careful()) as served:
        first = await post(served, run_input())
        resume = answers_to(first, approved=False, reason="not today")
        second = await post(served, run_input(run="r2", resume=resume))
        again = await post(served, run_input(run="r2", resume=resume))

    assert "not today" in second.texts[-1]
    assert again.texts == second.texts


async def test_an_approval_that_was_answered_elsewhere_stays_answered() -> None:
    async with serving(careful()) as served:
        first = await post(served, run_input())
        (waiting,) = (await served.http.get("/v1/approvals")).json()["data"]
        await served.http.post(f"/v1/approvals/{waiting['id']}", json={"answer": "once"})
        await ended(served, first.id)
        resume = answers_to(first, approved=False)
        second = await post(served, run_input(run="r2", resume=resume))

    assert second.texts == ["home is public"]


async def test_a_key_without_the_scope_cannot_answer_an_approval() -> None:
    settings = Settings(token=TOKEN, may_default_approve=False)
    async with serving(careful(), settings=settings) as served:
        first = await post(served, run_input())
        body = run_input(run="r2", resume=answers_to(first, approved=True))
        refused = await served.http.post("/agui", json=body)

    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "missing_scope"


async def test_the_same_run_id_continues_the_stream_without_a_second_run() -> None:
    go = trio.Event()
    model = StreamingModel([("one ", go.wait, "two")], name="speaker")
    async with serving(Agent("helper", model=model)) as served:
        known = await _left_after(served, run_input(), "one ")
        body = {**run_input(), "messages": list(known.messages.values())}
        async with reading(served, body) as stream:
            back = stream.run
            while (event := await stream.next()) is not None:
                if event["type"] == "TEXT_MESSAGE_START":
                    assert back.texts == ["one "]
                    go.set()
        ended_again = await post(served, body)
        runs = (await served.http.get("/v1/runs")).json()["data"]

    assert back.texts == ended_again.texts == ["one two"]
    assert [it["delta"] for it in back.of("TEXT_MESSAGE_CONTENT")] == ["two"]
    assert [it["id"] for it in runs] == [back.id]


async def _left_after(served: Served, body: Any, text: str) -> AguiRun:
    """Read a stream until its agent has written a text, and disconnect."""
    async with reading(served, body) as stream:
        while stream.run.texts != [text]:
            assert await stream.next() is not None, stream.run.texts
        return stream.run


async def test_a_run_that_is_stopped_elsewhere_ends_as_cancelled() -> None:
    never = trio.Event()
    waiting = Agent("worker", model=StreamingModel([(never.wait, "never")], name="slow"))
    async with serving(editor(*EDITOR, delegates=[waiting])) as served:
        async with reading(served, run_input()) as stream:
            run = stream.run
            while (event := await stream.next()) is not None:
                if event["type"] == "SUBAGENT_STARTED":
                    await served.http.post(f"/v1/runs/{run.id}/cancel")

    assert run.end is not None
    assert run.end["outcome"] == {"type": "cancelled"}
    assert run.of("SUBAGENT_ERROR")[0]["code"] == "cancelled"


async def test_a_run_that_began_elsewhere_can_be_watched() -> None:
    async with serving(editor(*EDITOR, delegates=[worker()])) as served:
        begun = await served.http.post("/v1/runs", json={"agent": "editor", "input": "go"})
        id_ = begun.json()["id"]
        await ended(served, id_)
        run = await post(served, run_input(), f"/agui/runs/{id_}")
        missing = await served.http.post("/agui/runs/r_none", json=run_input())

    assert run.texts == ["read: done"]
    assert len(run.of("SUBAGENT_STARTED", "SUBAGENT_FINISHED")) == 2
    assert run.end is not None
    assert run.end["outcome"] == {"type": "success"}
    assert missing.status_code == 404


async def test_a_call_of_a_frontend_tool_ends_the_run_and_its_result_continues_it() -> None:
    def say(request: Any) -> Any:
        last = request.transcript[-1]
        return f"you are at {last.text}" if isinstance(last, ToolMessage) else [WHERE]

    tools: Any = [{"name": "where", "description": "The place of the user.", "parameters": {}}]
    async with serving(Agent("helper", model=answering(say))) as served:
        first = await post(served, run_input("where am I?", tools=tools))
        assert first.end is not None
        (call,) = first.end["outcome"]["pendingToolCallIds"]
        result = {"id": "x", "role": "tool", "toolCallId": call, "content": "home"}
        messages = [*first.messages.values(), result]
        body = {**run_input("", run="r2", tools=tools), "messages": messages}
        second = await post(served, body)

    assert second.texts == ["you are at home"]


WHERE = ToolCall("where", {})


async def test_the_conversation_context_and_state_reach_the_agent() -> None:
    model = answering(lambda _: "ok")
    messages: list[Any] = [
        {"id": "s", "role": "system", "content": "Be short."},
        {"id": "u", "role": "user", "content": "one"},
        {"id": "a", "role": "assistant", "content": "first", "toolCalls": [_call("lost")]},
        {"id": "b", "role": "assistant", "content": "theirs", "subagentRunId": "x"},
        {"id": "c", "role": "activity", "activityType": "plan", "content": {"step": 1}},
        {"id": "v", "role": "user", "content": [{"type": "text", "text": "two"}]},
    ]
    body = {
        **run_input(""),
        "messages": messages,
        "context": [{"description": "The page", "value": "orders"}],
        "state": {"cart": 3, "orchestrator": {"run": "old"}},
    }
    async with serving(Agent("helper", model=model)) as served:
        run = await post(served, body)

    (asked,) = model.requests
    assert [it.text for it in asked.transcript] == ["one", "first", "two"]
    for said in ("Be short.", "The page: orders", '{"cart":3}'):
        assert said in asked.instructions
    assert "old" not in asked.instructions
    assert run.state["cart"] == 3
    assert run.state["orchestrator"]["run"] == run.id


def _call(id_: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": "find", "arguments": "{}"}}


async def test_joined_tasks_have_a_note_where_the_run_ends_with_a_frontend_tool() -> None:
    steps: tuple[Any, ...] = (LATER, lambda t: t[-1].text)
    tools = [{"name": "where", "description": "The place of the user."}]
    async with serving(editor(*steps, delegates=[worker()])) as served:
        run = await post(served, run_input(tools=tools))

    assert "done" in run.texts[-1]
    assert len(run.texts) == 1


WRONG: list[tuple[Any, int, str]] = [
    ([], 400, "invalid"),
    ({"runId": "r"}, 400, "threadId"),
    ({**run_input(), "threadId": ""}, 400, "threadId"),
    ({**run_input(), "messages": [{"id": "1", "role": "king"}]}, 400, "role"),
    ({**run_input(), "messages": [{"id": "1", "role": "user", "content": 5}]}, 400, "content"),
    ({**run_input(""), "messages": []}, 400, "no message"),
    (run_input(resume=[{"interruptId": "r_no:a_no", "status": "cancelled"}]), 404, "no run"),
    (run_input(resume=[{"interruptId": "x:y", "status": "resolved"}]), 400, "approved"),
    (
        {
            **run_input(""),
            "messages": [{"id": "1", "role": "user", "content": [{"type": "audio"}]}],
        },
        400,
        "not supported",
    ),
]


@pytest.mark.parametrize(("body", "status", "said"), WRONG)
async def test_a_wrong_input_is_refused_with_a_sentence(body: Any, status: int, said: str) -> None:
    async with serving(worker()) as served:
        answer = await served.http.post("/agui", json=body)

    assert answer.status_code == status, answer.text
    assert said in answer.json()["error"]["message"]


async def test_a_server_with_several_agents_needs_the_name_of_one() -> None:
    async with serving(worker("one"), worker("two", says="second")) as served:
        unnamed = await served.http.post("/agui", json=run_input())
        run = await post(served, run_input(), "/agui?agent=two")

    assert unnamed.status_code == 404
    assert "?agent=NAME" in unnamed.json()["error"]["message"]
    assert run.texts == ["second"]


async def test_secrets_are_redacted_in_all_events() -> None:
    secret = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3
    model = StreamingModel([(f"the key is {secret[:20]}", f"{secret[20:]} and more")], name="s")
    async with serving(Agent("helper", model=model)) as served:
        answer = await served.http.post("/agui", json=run_input())

    assert secret not in answer.text
    assert secret[20:] not in answer.text


async def test_another_owner_finds_neither_the_run_nor_its_interrupts() -> None:
    async with serving(careful()) as served, httpx2.AsyncClient(base_url=served.url) as stranger:
        await post(served, run_input())
        refused = await stranger.post("/agui", json=run_input())

    assert refused.status_code == 401
