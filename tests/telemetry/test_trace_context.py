"""A run continues the trace of its caller, and names its spans to the programs that it uses."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

import orchestrator.asyncio
from orchestrator import Machine, MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, Model, ScriptedModel, ToolCall, tool
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.delegation.events import TaskSettled, TurnStarted
from orchestrator.kernel.orchestrator import Orchestrator
from orchestrator.models import with_retries
from orchestrator.products.server.webhook import open_webhook, secret_for
from orchestrator.session_context import bind_session
from orchestrator.tools import McpUrl, terminal
from tests.fake_provider import Raw, Say, open_provider
from tests.kit import hand_on, run_on_asyncio, worker
from tests.mcp.kit import Caller, user
from tests.mcp.server_kit import add, rpc_of
from tests.server.kit import TOKEN, serving
from tests.server.test_webhook import receiving
from tests.telemetry.collector import Collector, open_collector

pytestmark = pytest.mark.realtime

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture(name="collector")
async def opened_collector(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Collector]:
    monkeypatch.setattr("orchestrator.products.telemetry.exporter.DELAY_SECONDS", 0.01)
    async with open_collector() as opened:
        yield opened


def header_of(collector: Collector, name: str) -> str:
    """Return the header that names a span of a collector."""
    span = collector.named(name)
    return f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"


def parent_of(collector: Collector, name: str) -> tuple[str, str]:
    span = collector.named(name)
    return span.trace_id.hex(), span.parent_span_id.hex()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", {"agent": "worker", "input": "go"}),
        (
            "/v1/chat/completions",
            {"model": "worker", "messages": [{"role": "user", "content": "go"}]},
        ),
        ("/v1/responses", {"model": "worker", "input": "go"}),
        (
            "/v1/messages",
            {"model": "worker", "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]},
        ),
    ],
)
async def test_a_run_over_http_continues_the_trace_of_its_caller(
    collector: Collector, path: str, body: dict[str, Any]
) -> None:
    async with serving(worker(), telemetry=collector.address) as served:
        answer = await served.http.post(path, json=body, headers={"traceparent": GIVEN})
        assert answer.is_success, answer.text
        await collector.wait_stored(2)

    assert parent_of(collector, "invoke_agent worker") == (TRACE, SPAN)
    assert collector.named("chat scripted").trace_id.hex() == TRACE


async def test_a_message_to_a_session_has_a_caller_of_its_own(collector: Collector) -> None:
    async with serving(worker(), telemetry=collector.address) as served:
        opened = await served.http.post("/v1/sessions", json={"model": "worker"})
        path = f"/v1/sessions/{opened.json()['id']}/messages"
        for number, header in enumerate([GIVEN, "garbage", ""], 1):
            headers = {"traceparent": header} if header else {}
            await served.http.post(path, json={"text": "go"}, headers=headers)
            await collector.wait_stored(2 * number)

    turns = [span for span in collector.spans.values() if span.name == "invoke_agent worker"]
    assert [turn.parent_span_id.hex() for turn in turns] == [SPAN, "", ""]
    assert [turn.trace_id.hex() == TRACE for turn in turns] == [True, False, False]


async def test_a_tool_call_over_mcp_continues_the_trace_of_its_client(collector: Collector) -> None:
    """The span in the message is nearer than the span in the header."""
    other = f"00-{TRACE}-{'1' * 16}-01"
    async with serving(add, telemetry=collector.address) as served:
        served.http.headers["traceparent"] = other
        for meta in ({"traceparent": GIVEN}, {}):
            await rpc_of(served, can_poll=False).ask(
                "tools/call", name="add", arguments={"left": 1, "right": 2}, _meta=meta
            )
        await collector.wait_stored(2)

    parents = {span.parent_span_id.hex() for span in collector.spans.values()}
    assert parents == {SPAN, "1" * 16}


async def started(orchestrator: Orchestrator) -> None:
    await orchestrator.run(worker(), "go")


def callers(journal: MemoryJournal) -> list[str]:
    events = [entry.event for entry in journal.entries]
    return [it.trace or "" for it in events if isinstance(it, TurnStarted)]


async def test_a_run_continues_the_active_span_of_its_program() -> None:
    tracer, journal = TracerProvider().get_tracer("test"), MemoryJournal()
    async with open_orchestrator(journal) as opened:
        with tracer.start_as_current_span("outer") as span:
            await started(opened)
            async with opened.open_session(worker()) as session:
                await session.ask("go")
        await started(opened)
        with bind_session(traceparent=GIVEN):
            await started(opened)

    ids = span.get_span_context()
    active = f"00-{ids.trace_id:032x}-{ids.span_id:016x}-01"
    assert callers(journal) == [active, active, "", GIVEN]


async def test_a_run_on_asyncio_continues_the_active_span_of_its_caller() -> None:
    tracer, journal = TracerProvider().get_tracer("test"), MemoryJournal()
    headers: list[str] = []

    async def main() -> None:
        async with orchestrator.asyncio.open_orchestrator(journal) as opened:
            with tracer.start_as_current_span("outer") as span:
                await opened.run(worker(), "go")
            await opened.run(worker(), "go")
        ids = span.get_span_context()
        headers.append(f"00-{ids.trace_id:032x}-{ids.span_id:016x}-01")

    await run_on_asyncio(main)
    assert callers(journal) == [*headers, ""]


async def test_the_provider_learns_the_span_of_each_call(collector: Collector) -> None:
    async with open_provider() as provider:
        provider.replies = [Raw(b"no", status=503), Say(text="done")]
        model = OpenAIModel("m", base_url=provider.url, key="k")
        agent = Agent("asker", model=with_retries(model, base_seconds=0.01))
        async with (
            aclosing(model),
            open_orchestrator(":memory:", telemetry=collector.address) as opened,
        ):
            await opened.run(agent, "go")
        await collector.wait_stored(3)

    chats = [span for span in collector.spans.values() if span.name.startswith("chat")]
    sent = [heard.headers["traceparent"] for heard in provider.heard]
    assert len(sent) == 2
    assert sent == [f"00-{it.trace_id.hex()}-{it.span_id.hex()}-01" for it in chats]


async def test_a_command_learns_the_span_of_its_call(collector: Collector, tmp_path: Path) -> None:
    call = ToolCall("terminal", {"command": "echo $TRACEPARENT"})
    calls = [call, "done"]
    said: list[str] = []
    for telemetry in (None, collector.address):
        model = Caller(*calls)
        agent = Agent("worker", model=model, tools=[terminal])
        async with open_orchestrator(
            ":memory:", telemetry=telemetry, machine=Machine(workspace=tmp_path)
        ) as opened:
            with bind_session(traceparent=GIVEN):
                run = await opened.run(agent, "go")
        assert run.output == "done"
        said.append(model.answers[0].text)

    assert "00-" not in said[0]
    assert header_of(collector, "execute_tool terminal") in said[1]


async def test_an_mcp_server_learns_the_span_of_its_call(collector: Collector) -> None:
    journal = MemoryJournal()
    async with serving(add, journal=journal) as served:
        server = McpUrl("team", f"{served.url}/mcp", headers={"authorization": f"Bearer {TOKEN}"})
        model = Caller(ToolCall("team__add", {"left": 1, "right": 2}))
        async with open_orchestrator(":memory:", telemetry=collector.address) as opened:
            run = await opened.run(user(model, server), "go")

    assert run.outcome.succeeded
    assert callers(journal) == [header_of(collector, "execute_tool team__add")]


async def test_a_run_inside_a_tool_is_inside_the_span_of_the_tool(collector: Collector) -> None:
    @tool
    async def look() -> str:
        """Look."""
        run = await opened.run(worker("finder"), "find")
        return run.output

    calls = ScriptedModel([ToolCall("look"), "done"])
    async with open_orchestrator(":memory:", telemetry=collector.address) as opened:
        await opened.run(Agent("lead", model=calls, tools=[look]), "go")
        await opened.run(worker("last"), "go")

    call = collector.named("execute_tool look")
    assert parent_of(collector, "invoke_agent finder") == (call.trace_id.hex(), call.span_id.hex())
    assert collector.named("invoke_agent last").parent_span_id == b""


async def test_a_webhook_learns_the_span_of_its_turn(collector: Collector, tmp_path: Path) -> None:
    secret = secret_for({}, tmp_path).value
    async with receiving() as receiver, open_webhook(receiver.url, secret) as push:
        async with serving(worker(), push=push, telemetry=collector.address) as served:
            body = {"agent": "worker", "input": "go"}
            await served.http.post("/v1/runs", json=body, headers={"traceparent": GIVEN})
            got = await receiver.got.receive()

    assert got.headers["traceparent"] == header_of(collector, "invoke_agent worker")


async def test_a_run_that_a_crash_interrupted_stays_in_the_trace_of_its_caller(
    collector: Collector,
) -> None:
    """The provider of the resumed run learns the span of the task, and the trace is the same."""
    journal = MemoryJournal()
    async with open_orchestrator(journal) as opened:
        with bind_session(traceparent=GIVEN):
            run = await opened.run(lead(ScriptedModel([hand_on("look"), "done"])), "go")
    ended = next(it for it in journal.entries if isinstance(it.event, TaskSettled))
    crashed = MemoryJournal([it for it in journal.entries if it.seq < ended.seq])

    async with open_provider(Say(text="done")) as provider:
        model = OpenAIModel("m", base_url=provider.url, key="k")
        async with (
            aclosing(model),
            open_orchestrator(crashed, telemetry=collector.address) as opened,
        ):
            await opened.resume(lead(model), run.id)

    assert parent_of(collector, "invoke_agent lead") == (TRACE, SPAN)
    assert {span.trace_id.hex() for span in collector.spans.values()} == {TRACE}
    assert provider.heard[0].headers["traceparent"] == header_of(collector, "invoke_agent lead")


def lead(model: Model) -> Agent:
    return Agent("lead", model=model, delegates=[worker()])
