"""A session in an editor: prompts, updates, approvals, cancellation and later replies."""

import base64
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import delegate
from orchestrator.agents import (
    Agent,
    Budget,
    Failure,
    ModelError,
    Part,
    ScriptedModel,
    ToolCall,
    UserMessage,
    agent,
    confirm,
    tool,
)
from orchestrator.testing import GatedModel, SpyModel
from orchestrator.tools import FILES
from tests.acp.kit import RefusedError, open_editor
from tests.kit import worker, worker_on

pytestmark = pytest.mark.realtime


def delegation(*names: str, background: bool = False) -> ToolCall:
    tasks = [{"agent": name, "goal": f"Goal of {name}."} for name in names]
    return ToolCall("delegate_task", {"tasks": tasks, "background": background})


def lead_of(*delegates: Agent[Any], background: bool = False, **options: Any) -> Agent[Any]:
    """Return an agent that delegates to each of its team once, and then answers."""
    names = [it.name for it in delegates]
    call = delegation(*names, background=background)
    model = ScriptedModel([call, "All is done.", "And now this.", "Last."])
    return Agent("lead", model=model, delegates=delegates, **options)


def writer(**options: Any) -> Agent[Any]:
    call = ToolCall("write_file", {"path": "notes.md", "content": "42\n"})
    return Agent("writer", model=ScriptedModel([call, "written"]), tools=FILES, **options)


async def test_prompt_shows_tasks_as_calls_with_their_diffs_and_as_plan(tmp_path: Path) -> None:
    async with open_editor(lead_of(worker(), writer()), tmp_path / "j") as editor:
        assert await editor.prompt(await editor.open(tmp_path)) == "end_turn"
        calls = editor.updates("tool_call")
        assert [it["title"] for it in calls] == [
            "worker[1]: Goal of worker.",
            "writer[1]: Goal of writer.",
            "writer[1]: write_file notes.md",
        ]
        assert [it["kind"] for it in calls] == ["think", "think", "edit"]
        file = str(tmp_path / "notes.md")
        assert calls[2]["content"] == [{"type": "diff", "path": file, "newText": "42\n"}]
        assert calls[2]["locations"] == [{"path": file}]
        ended = {it["toolCallId"] for it in editor.updates("tool_call_update")}
        assert ended == {it["toolCallId"] for it in calls}
        plan = editor.updates("plan")[-1]["entries"]
        assert [it["status"] for it in plan] == ["completed", "completed"]
        assert editor.text() == "All is done."
        assert (tmp_path / "notes.md").read_text() == "42\n"
        # All updates of a turn come before its answer.
        assert "stopReason" in editor.messages[-1]["result"]


async def test_answer_of_program_is_message(tmp_path: Path) -> None:
    @agent
    async def program(goal: str) -> str:
        return f"{goal} {await delegate(worker(), goal)}"

    async with open_editor(program, tmp_path / "j") as editor:
        await editor.prompt(await editor.open(tmp_path), "Hello.")
        assert editor.text() == "Hello. done"


async def test_images_and_files_of_prompt_reach_model(tmp_path: Path) -> None:
    model = SpyModel("seen")
    async with open_editor(worker_on(model), tmp_path / "j") as editor:
        session = await editor.open(tmp_path)
        blocks = [
            {"type": "text", "text": "Look:"},
            {"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"p").decode()},
            {"type": "resource", "resource": {"uri": "file:///a.py", "text": "x = 1"}},
            {"type": "resource_link", "name": "b.py", "uri": "file:///b.py"},
        ]
        await editor.ask("session/prompt", sessionId=session, prompt=blocks)
        message = model.requests[0].transcript[0]
        assert isinstance(message, UserMessage)
        assert message.text == "Look:\n\nContent of file:///a.py:\nx = 1\n\n[b.py](file:///b.py)"
        assert message.parts == (Part("image/png", data=b"p"),)


@pytest.mark.parametrize(
    ("option", "status"), [("once", "completed"), ("session", "completed"), ("deny", "failed")]
)
async def test_editor_decides_call_that_needs_approval(
    tmp_path: Path, option: str, status: str
) -> None:
    team = lead_of(writer(), approve=[confirm("write_file")])
    async with open_editor(team, tmp_path / "j") as editor:
        editor.chosen = option
        assert await editor.prompt(await editor.open(tmp_path)) == "end_turn"
        [question] = editor.asked
        assert question["toolCall"]["content"][0]["type"] == "diff"
        assert [it["kind"] for it in question["options"]] == [
            "allow_once",
            "allow_always",
            "reject_once",
        ]
        id_ = question["toolCall"]["toolCallId"]
        ends = [it for it in editor.updates("tool_call_update") if it["toolCallId"] == id_]
        assert ends[-1]["status"] == status
        assert (tmp_path / "notes.md").exists() is (status == "completed")


async def test_question_answered_elsewhere_is_taken_back(tmp_path: Path) -> None:
    team = lead_of(writer(), approve=[confirm("write_file")])
    async with open_editor(team, tmp_path / "j") as editor:
        editor.chosen = None
        id_ = await editor.begin_prompt(await editor.open(tmp_path))
        asked = await editor.wait_message(
            lambda it: it.get("method") == "session/request_permission"
        )
        [orchestrator] = editor.orchestrators
        [question] = orchestrator.approvals
        await orchestrator.answer(question.id, "once", by="the console")
        assert (await editor.answer(id_))["stopReason"] == "end_turn"
        taken = await editor.wait_message(lambda it: it.get("method") == "$/cancel_request")
        assert taken["params"]["requestId"] == asked["id"]


async def test_cancel_returns_after_every_descendant_has_ended(tmp_path: Path) -> None:
    ended: list[str] = []

    @tool
    async def wait() -> str:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("tool")
        raise AssertionError

    child = Agent("child", model=ScriptedModel([ToolCall("wait", {})]), tools=[wait])
    background = lead_of(child, background=True)
    middle = Agent("middle", model=background.model, delegates=background.delegates)
    async with open_editor(lead_of(middle), tmp_path / "j") as editor:
        session = await editor.open(tmp_path)
        id_ = await editor.begin_prompt(session)
        await editor.wait_update("tool_call", lambda it: it.get("name") == "wait")
        await editor.send(method="session/cancel", params={"sessionId": session})
        assert (await editor.answer(id_))["stopReason"] == "cancelled"
        assert ended == ["tool"]
        assert editor.orchestrators[0].working == 0


async def test_cancel_ends_background_tasks_and_starts_no_turn(tmp_path: Path) -> None:
    model = GatedModel()
    team = lead_of(worker_on(model), background=True)
    async with open_editor(team, tmp_path / "j") as editor:
        session = await editor.open(tmp_path)
        assert await editor.prompt(session) == "end_turn"
        await model.wait_called()
        await editor.send(method="session/cancel", params={"sessionId": session})
        await editor.wait_update("tool_call_update", lambda it: it.get("status") == "failed")
        # The notice of the task begins no turn that goes on: the next answer is the next prompt's.
        assert await editor.prompt(session) == "end_turn"
        assert editor.orchestrators[0].working == 0


async def test_prompt_that_is_cancelled_at_once_is_cancelled(tmp_path: Path) -> None:
    async with open_editor(worker_on(GatedModel()), tmp_path / "j") as editor:
        session = await editor.open(tmp_path)
        id_ = await editor.begin_prompt(session)
        await editor.send(method="session/cancel", params={"sessionId": session})
        assert (await editor.answer(id_))["stopReason"] == "cancelled"


async def test_cancelled_request_cancels_its_prompt(tmp_path: Path) -> None:
    model = GatedModel()
    async with open_editor(worker_on(model), tmp_path / "j") as editor:
        id_ = await editor.begin_prompt(await editor.open(tmp_path))
        await model.wait_called()
        await editor.send(method="$/cancel_request", params={"requestId": id_})
        assert (await editor.answer(id_))["stopReason"] == "cancelled"


async def test_turn_that_is_cancelled_elsewhere_ends_prompt(tmp_path: Path) -> None:
    model = GatedModel()
    async with open_editor(worker_on(model), tmp_path / "j") as editor:
        session = await editor.open(tmp_path)
        id_ = await editor.begin_prompt(session)
        await model.wait_called()
        await editor.orchestrators[0].cancel(session)
        assert (await editor.answer(id_))["stopReason"] == "cancelled"


async def test_result_of_background_task_comes_between_prompts(tmp_path: Path) -> None:
    model = GatedModel()
    team = lead_of(worker_on(model), background=True)
    async with open_editor(team, tmp_path / "j") as editor:
        session = await editor.open(tmp_path)
        assert await editor.prompt(session) == "end_turn"
        assert editor.text() == "All is done."
        model.release()
        await editor.wait_update(
            "agent_message_chunk", lambda it: it["content"]["text"] == "And now this."
        )


async def test_error_of_model_is_error_of_prompt(tmp_path: Path) -> None:
    model = ScriptedModel([ModelError("no key", kind=Failure.AUTH), "Now it works."])
    async with open_editor(worker_on(model), tmp_path / "j") as editor:
        session = await editor.open(tmp_path)
        with pytest.raises(RefusedError, match="no key"):
            await editor.prompt(session)
        assert await editor.prompt(session) == "end_turn"


async def test_budget_that_is_used_up_is_stop_reason(tmp_path: Path) -> None:
    limited = lead_of(worker(), budget=Budget(calls=1))
    async with open_editor(limited, tmp_path / "j") as editor:
        assert await editor.prompt(await editor.open(tmp_path)) == "max_turn_requests"
        assert "over_budget" in editor.text()


async def test_subagents_are_sessions_of_their_own(tmp_path: Path) -> None:
    team = lead_of(writer(), approve=[confirm("write_file")])
    async with open_editor(team, tmp_path / "j") as editor:
        session = await editor.open(tmp_path, subagents={})
        assert await editor.prompt(session) == "end_turn"
        changes = editor.updates("subagent_update", session=session)
        child = changes[0]["sessionId"]
        assert [it["state"] for it in changes] == [
            {"state": "running"},
            {"state": "requires_action"},
            {"state": "idle", "stopReason": "end_turn"},
        ]
        assert changes[0]["description"] == "Goal of writer."
        assert editor.text(child) == "written"
        assert [it["name"] for it in editor.updates("tool_call", session=child)] == ["write_file"]
        assert editor.asked[0]["sessionId"] == child
        # The child is announced before any of its messages.
        sent = [it["params"] for it in editor.messages if "method" in it]
        first = next(at for at, it in enumerate(sent) if it["sessionId"] == child)
        assert "subagent_update" in {it["update"]["sessionUpdate"] for it in sent[:first]}


async def test_subagent_is_cancelled_alone(tmp_path: Path) -> None:
    model = GatedModel()
    async with open_editor(lead_of(worker_on(model)), tmp_path / "j") as editor:
        session = await editor.open(tmp_path, subagents={})
        id_ = await editor.begin_prompt(session)
        await model.wait_called()
        child = (await editor.wait_update("subagent_update"))["sessionId"]
        await editor.send(method="session/cancel", params={"sessionId": child})
        assert (await editor.answer(id_))["stopReason"] == "end_turn"
        last = editor.updates("subagent_update")[-1]["state"]
        assert last == {"state": "idle", "stopReason": "cancelled"}


async def test_editor_chooses_model(tmp_path: Path) -> None:
    team = Agent(
        "lead",
        model=SpyModel("of the first", name="first"),
        models=[SpyModel("of the second", name="second")],
    )
    async with open_editor(team, tmp_path / "j") as editor:
        await editor.ask("initialize", protocolVersion=1)
        opened = await editor.ask("session/new", cwd=str(tmp_path), mcpServers=[])
        [option] = opened["configOptions"]
        assert option["currentValue"] == "first"
        chosen = {"sessionId": opened["sessionId"], "configId": "model", "value": "second"}
        [option] = (await editor.ask("session/set_config_option", **chosen))["configOptions"]
        assert option["currentValue"] == "second"
        await editor.prompt(opened["sessionId"])
        assert editor.text() == "of the second"
        with pytest.raises(RefusedError, match="no model of the agent"):
            await editor.ask("session/set_config_option", **{**chosen, "value": "third"})
