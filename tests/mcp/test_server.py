"""Agents as tools over HTTP: joined or a task, by what the very request declares."""

from pathlib import Path

import attrs
import httpx2
import pytest
import trio
from mcp.client.context import ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult

from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, confirm
from orchestrator.delegation import DeliveryCapability, Ending, SessionRecord
from orchestrator.delegation.events import (
    Entry,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TurnStarted,
)
from orchestrator.ports.sessions import is_over
from orchestrator.products.mcp.server.tools import TaskMode
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.state import Settings
from orchestrator.testing import StreamingModel, facts
from tests.mcp.server_kit import (
    TASKS,
    Rpc,
    add,
    broken,
    deleter,
    failing_job,
    greet,
    official_client,
    reporter,
    rpc_of,
    slow_team,
)
from tests.server.keys_kit import serving_with_keys
from tests.server.kit import TOKEN, Served, serving

pytestmark = [
    pytest.mark.realtime,
    # The official client leaves streams of its responses to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

BOTH = pytest.mark.parametrize("mode", ["auto", "legacy"])


async def journal_of(served: Served) -> list[Entry]:
    """Return the facts of all sessions."""
    read = served.orchestrator.read
    entries = [await read.entries(it) for it in read.session_ids]
    return [entry for each in entries for entry in each]


def only_session(served: Served) -> SessionRecord:
    (session,) = served.orchestrator.read.records.sessions.values()
    return session


@BOTH
async def test_an_agent_is_a_tool_with_its_name_description_and_schema(mode: str) -> None:
    helper = Agent("helper", instructions="Help.\n\nMuch.", model=ScriptedModel([]))
    async with (
        serving(add, helper, reporter()) as served,
        official_client(served, mode=mode) as client,
    ):
        listed = {it.name: it for it in (await client.list_tools()).tools}

    assert [*listed] == ["add", "helper", "reporter"]
    assert listed["add"].description == "Add two numbers."
    assert listed["add"].input_schema["required"] == ["left", "right"]
    assert listed["helper"].description == "Help."
    assert [*listed["helper"].input_schema["properties"]] == ["goal"]
    assert listed["reporter"].description == "Reports."
    assert (listed["reporter"].output_schema or {})["required"] == ["title", "pages"]
    assert listed["helper"].output_schema is None


@BOTH
async def test_the_answer_of_a_typed_agent_is_structured(mode: str) -> None:
    async with serving(reporter()) as served, official_client(served, mode=mode) as client:
        answer = await client.call_tool("reporter", {"goal": "Peru"})

    assert answer.structured_content == {"title": "Peru", "pages": 3}
    assert not answer.is_error


@BOTH
async def test_a_client_with_a_progress_token_is_notified_of_each_delegation(mode: str) -> None:
    told: dict[float, str | None] = {}
    told_twice = trio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        # The client calls it in a task of its own, which the answer may overtake.
        await trio.lowlevel.checkpoint()
        told[progress] = message
        if len(told) == 2:
            told_twice.set()

    boss, gate = slow_team()
    gate.release()
    async with serving(boss) as served, official_client(served, mode=mode) as client:
        answer = await client.call_tool("boss", {"goal": "x"}, progress_callback=note)
        await told_twice.wait()
        capabilities = [it.capability for it in facts(await journal_of(served), TurnStarted)]

    assert told == {1: "/boss/reader[1] begins: read it", 2: "/boss/reader[1] succeeded"}
    assert "decided" in str(answer.content)
    assert capabilities == [DeliveryCapability.NONE]


async def test_only_the_request_itself_can_make_a_task() -> None:
    """A client that declared the extension before, and not now, is joined."""
    async with serving(greet) as served:
        can, cannot = rpc_of(served), rpc_of(served, can_poll=False)
        first = await can.call("greet", name="Ann")
        second = await cannot.call("greet", name="Ann")
        task = await can.until(first["taskId"], "completed")
        capabilities = [it.capability for it in facts(await journal_of(served), TurnStarted)]

    assert first["resultType"] == "task"
    assert first["ttlMs"] is None
    assert task["result"]["content"] == [{"type": "text", "text": "Hello, Ann!"}]
    assert second["resultType"] == "complete"
    assert second["content"] == task["result"]["content"]
    assert capabilities == [DeliveryCapability.POLL, DeliveryCapability.NONE]


async def test_a_task_is_durable_before_it_is_answered() -> None:
    async with serving(greet) as served:
        task = await rpc_of(served).call("greet", name="Ann")
        read = served.orchestrator.read
        opened = next(
            it for it in await read.entries(task["taskId"]) if isinstance(it.event, SessionOpened)
        )

        assert opened.seq <= read.durable_seq
        assert len(task["taskId"]) == len("r_") + 32


@pytest.mark.parametrize(
    ("mode", "can_poll", "gets"),
    [
        ("forbidden", True, "complete"),
        ("optional", True, "task"),
        ("optional", False, "complete"),
        ("required", True, "task"),
    ],
)
async def test_the_mode_of_an_agent_is_set_by_its_server(
    mode: str, can_poll: bool, gets: str
) -> None:
    settings = Settings(token=TOKEN, task_modes={"greet": TaskMode(mode)})
    async with serving(greet, settings=settings) as served:
        answer = await rpc_of(served, can_poll=can_poll).call("greet", name="Ann")

    assert answer["resultType"] == gets


async def test_an_agent_that_requires_tasks_refuses_clients_without_them() -> None:
    settings = Settings(token=TOKEN, task_modes={"greet": TaskMode.REQUIRED})
    async with serving(greet, settings=settings) as served:
        client = rpc_of(served, can_poll=False)
        error = await client.refused("tools/call", name="greet", arguments={"name": "A"})

        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        assert not served.orchestrator.runs


async def test_a_question_of_a_task_is_answered_by_an_update() -> None:
    async with serving(deleter()) as served:
        client = rpc_of(served)
        id_ = (await client.call("deleter", goal="a.txt"))["taskId"]
        asked = await client.until(id_, "input_required")
        ((key, form),) = asked["inputRequests"].items()
        for ignored in ({}, {"other": {"action": "accept"}}):
            assert await client.ask("tasks/update", taskId=id_, inputResponses=ignored)
        still = await client.task(id_)
        answers = {key: {"action": "accept", "content": {"confirm": True}}}
        await client.ask("tasks/update", taskId=id_, inputResponses=answers)
        done = await client.until(id_, "completed")
        again = await client.ask("tasks/update", taskId=id_, inputResponses=answers)

    assert "/deleter wants to use delete_file" in form["params"]["message"]
    assert [*form["params"]["requestedSchema"]["required"]] == ["confirm"]
    assert still["inputRequests"] == asked["inputRequests"]
    assert done["result"]["isError"] is False
    assert again["resultType"] == "complete"


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "accept"},
        {"action": "accept", "content": {"confirm": "yes"}},
        {"action": "accept", "content": {"confirm": False, "reason": "not that one"}},
        "rubbish",
    ],
)
async def test_every_answer_except_a_clear_yes_denies(answer: object) -> None:
    async with serving(deleter()) as served:
        client = rpc_of(served)
        id_ = (await client.call("deleter", goal="a.txt"))["taskId"]
        asked = await client.until(id_, "input_required")
        answers = dict.fromkeys(asked["inputRequests"], answer)
        await client.ask("tasks/update", taskId=id_, inputResponses=answers)
        await client.until(id_, "completed")
        transcript = await served.orchestrator.read.transcript(id_)

    assert "is deleted" not in str(transcript)


async def test_cancelling_returns_when_every_descendant_has_ended() -> None:
    boss, gate = slow_team()
    async with serving(boss) as served:
        client = rpc_of(served)
        id_ = (await client.call("boss", goal="x"))["taskId"]
        await gate.wait_called()
        working = await client.task(id_)
        await client.ask("tasks/cancel", taskId=id_)
        settled = facts(await journal_of(served), TaskSettled)
        then = await client.task(id_)
        await client.ask("tasks/cancel", taskId=id_)

    assert working["status"] == "working"
    assert [it.outcome.ending for it in settled] == [Ending.CANCELLED]
    assert then["status"] == "cancelled"
    assert "result" not in then


async def test_a_fault_is_failed_and_any_other_ending_is_a_result() -> None:
    async with serving(broken, failing_job) as served:
        client = rpc_of(served)
        fault = await client.until((await client.call("broken"))["taskId"], "failed")
        job = (await client.call("failing_job"))["taskId"]
        failed = await client.until(job, "completed")
        joined = rpc_of(served, can_poll=False)
        error = await joined.refused("tools/call", name="broken", arguments={})
        result = await joined.call("failing_job")

    assert fault["error"]["code"] == -32603
    assert "the program has a fault" in fault["error"]["message"]
    assert "result" not in fault
    assert failed["result"]["isError"] is True
    assert "no such model" in failed["result"]["content"][0]["text"]
    assert error == fault["error"]
    assert result["isError"] is True


async def test_hanging_up_on_a_joined_call_cancels_its_tree() -> None:
    boss, gate = slow_team()
    async with serving(boss) as served:
        client = rpc_of(served, can_poll=False)
        async with trio.open_nursery() as nursery:
            hung_up = nursery.cancel_scope
            nursery.start_soon(
                client.send, "tools/call", {"name": "boss", "arguments": {"goal": "x"}}
            )
            await gate.wait_called()
            hung_up.cancel()
        with trio.fail_after(10):
            seq = 0
            while served.orchestrator.working:
                seq = await served.orchestrator.wait_changed(after=seq)
        settled = facts(await journal_of(served), TaskSettled)

    assert [it.outcome.ending for it in settled] == [Ending.CANCELLED]


async def test_hanging_up_after_a_task_was_made_leaves_it_running() -> None:
    boss, gate = slow_team()
    async with serving(boss) as served:
        client = rpc_of(served)
        async with httpx2.AsyncClient(base_url=served.url) as http:
            task = await attrs.evolve(client, http=http).call("boss", goal="x")
        await gate.wait_called()
        gate.release()
        done = await client.until(task["taskId"], "completed")
        requested = facts(await journal_of(served), TaskRequested)

    assert done["result"]["isError"] is False
    assert len(requested) == 1


async def test_missing_arguments_are_asked_for_where_the_user_can_be_asked() -> None:
    async with serving(add, greet) as served:
        client = rpc_of(served, can_ask=True)
        asked = await client.call("add", left=1)
        ((key, form),) = asked["inputRequests"].items()
        filled = {"action": "accept", "content": {"right": 2, "left": 40}}
        made = await client.ask(
            "tools/call", name="add", arguments={"left": 1}, inputResponses={key: filled}
        )
        done = await client.until(made["taskId"], "completed")
        declined = await client.ask(
            "tools/call",
            name="add",
            arguments={"left": 1},
            inputResponses={key: {"action": "decline"}},
        )
        unasked = await rpc_of(served).call("add", left=1)

    assert asked["resultType"] == "input_required"
    assert form["params"]["requestedSchema"]["required"] == ["right"]
    assert "Add two numbers" in form["params"]["message"]
    assert done["result"]["content"][0]["text"] == "3"
    assert declined["isError"] is True
    assert unasked["isError"] is True
    assert "right" in unasked["content"][0]["text"]


@BOTH
async def test_the_official_client_fills_in_the_form_by_itself(mode: str) -> None:
    async def fill_in(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        await trio.lowlevel.checkpoint()
        return ElicitResult(action="accept", content={"name": "Ann"})

    async with (
        serving(greet) as served,
        official_client(served, mode=mode, elicitation_callback=fill_in) as client,
    ):
        answer = await client.call_tool("greet", {})

    assert "Hello, Ann!" in str(answer.content)


@BOTH
@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_client_without_tasks_asks_its_user_for_an_approval(
    mode: str, is_allowed: bool
) -> None:
    asked: list[str] = []

    async def fill_in(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        await trio.lowlevel.checkpoint()
        asked.append(params.message)
        return ElicitResult(action="accept", content={"confirm": is_allowed})

    async with (
        serving(deleter()) as served,
        official_client(served, mode=mode, elicitation_callback=fill_in) as client,
    ):
        answer = await client.call_tool("deleter", {"goal": "a.txt"})
        root = only_session(served).root
        (result,) = [it for it in root.transcript if isinstance(it, ToolMessage)]

    (message,) = asked
    assert "/deleter wants to use delete_file" in message
    assert answer.is_error is False
    assert result.failed is not is_allowed


async def test_a_client_that_cannot_ask_its_user_is_told_how_to_be_asked(tmp_path: Path) -> None:
    async with serving_with_keys(deleter(), folder=tmp_path) as server:
        http = server.served.http
        token = server.new_token("ann", scopes=[Scope.RUN])
        silent = await Rpc(http=http, can_poll=False, token=server.new_token("bob")).call(
            "deleter", goal="a.txt"
        )
        unable = await Rpc(http=http, can_poll=False, can_ask=True, token=token).call(
            "deleter", goal="a.txt"
        )

    for it in (silent, unable):
        assert it["isError"] is False
        assert "declares elicitation" in it["content"][-1]["text"]


async def asked_call(client: Rpc) -> tuple[str, str]:
    """Call an agent that asks, and return its state and the key of its question."""
    asked = await client.call("deleter", goal="a.txt")
    assert asked["resultType"] == "input_required"
    (question,) = asked["inputRequests"]
    return asked["requestState"], question


async def test_a_call_that_asks_goes_on_with_the_answer_of_its_own_owner(tmp_path: Path) -> None:
    async with serving_with_keys(deleter(), folder=tmp_path) as server:
        http = server.served.http
        scopes = [Scope.RUN, Scope.APPROVE]
        ann = Rpc(http=http, token=server.new_token("ann", scopes=scopes), can_poll=False)
        bob = Rpc(http=http, token=server.new_token("bob", scopes=scopes), can_poll=False)
        ann.can_ask = bob.can_ask = True
        state, question = await asked_call(ann)
        yes = {question: {"action": "accept", "content": {"confirm": True}}}
        params = {"name": "deleter", "requestState": state, "inputResponses": yes}
        refused = await bob.refused("tools/call", **params)
        unanswered = await ann.ask("tools/call", **{**params, "inputResponses": {}})
        done = await ann.ask("tools/call", **params)
        again = await ann.ask("tools/call", **params)

    assert refused["code"] == -32602
    assert unanswered["requestState"] == state
    assert [*unanswered["inputRequests"]] == [question]
    assert done["content"][0]["text"] == "done"
    assert again == done


async def test_a_call_whose_client_does_not_answer_is_cancelled() -> None:
    call = ToolCall("delete_file", {"filename": "a.txt"})
    # Without the cancel, it would think about the denial for ever.
    model = StreamingModel([[call], [trio.Event(), "done"]])
    rules = [confirm("delete_file", seconds=0.01)]
    hasty = attrs.evolve(deleter(), model=model, approve=rules)
    async with serving(hasty) as served:
        client = rpc_of(served, can_poll=False, can_ask=True)
        state, _ = await asked_call(client)
        session = only_session(served)
        with trio.fail_after(20):
            while not is_over(session):
                await served.orchestrator.read.wait_session_changed(session.id)
        late = await client.ask("tools/call", name="deleter", requestState=state)

    assert session.last_outcome is not None
    assert session.last_outcome.ending is Ending.CANCELLED
    assert late["isError"] is True


@BOTH
async def test_the_tree_of_a_run_is_a_resource(mode: str) -> None:
    boss, gate = slow_team()
    gate.release()
    async with serving(boss) as served, official_client(served, mode=mode) as client:
        await client.call_tool("boss", {"goal": "Which one?"})
        (listed,) = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        read = {
            last: (await client.read_resource(listed.uri + last)).contents[0]
            for last in ("", ".txt", ".mermaid", ".svg")
        }

    assert listed.name == "boss: Which one?"
    assert len(templates) == 4
    assert {last: it.mime_type for last, it in read.items()} == {
        "": "application/json",
        ".txt": "text/plain",
        ".mermaid": "text/vnd.mermaid",
        ".svg": "image/svg+xml",
    }
    shown = {last: str(it) for last, it in read.items()}
    assert all("reader" in it for it in shown.values())
