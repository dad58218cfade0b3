"""The spans of an open orchestrator arrive at a collector: live, later, and once."""

import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from orchestrator import open_orchestrator
from orchestrator.agents import Agent, DefinitionError
from orchestrator.products.telemetry.otlp import endpoint_of
from orchestrator.telemetry import Telemetry
from tests.kit import editor, hand_on, worker
from tests.telemetry.collector import Collector, open_collector

pytestmark = pytest.mark.realtime


def lead(*steps: Any) -> Agent:
    return editor(*(steps or (hand_on("find out"), "done")), delegates=[worker("finder")])


@pytest.fixture(name="collector")
async def opened_collector() -> AsyncGenerator[Collector]:
    async with open_collector() as opened:
        yield opened


def names(collector: Collector) -> list[str]:
    return sorted(span.name for span in collector.spans.values())


TREE = [
    "chat scripted",
    "chat scripted",
    "chat scripted",
    "execute_tool delegate_task",
    "invoke_agent editor",
    "invoke_agent finder",
]


async def test_the_spans_of_a_run_arrive(collector: Collector) -> None:
    async with open_orchestrator(":memory:", telemetry=collector.address) as orchestrator:
        run = await orchestrator.run(lead(), "go")
        await collector.wait_stored(6)

    assert names(collector) == TREE
    assert collector.received == 6
    assert collector.services == {"orchestrator"}
    call = collector.named("execute_tool delegate_task")
    child = collector.named("invoke_agent finder")
    assert child.parent_span_id == call.span_id
    assert child.trace_id == call.trace_id
    assert {"gen_ai.conversation.id": run.id}.items() <= {
        it.key: it.value.string_value for it in child.attributes
    }.items()


async def test_metrics_count_each_span_once(collector: Collector) -> None:
    async with open_orchestrator(":memory:", telemetry=collector.address) as orchestrator:
        runs = [await orchestrator.run(lead(), "go") for _ in range(3)]
        await collector.wait_stored(18)
        runs.append(await orchestrator.run(lead(), "go"))

    tokens = sum(run.tree.total.tokens for run in runs)
    assert collector.metric("gen_ai.client.token.usage") == tokens > 0
    assert collector.counts("gen_ai.client.operation.duration") == 12
    assert collector.counts("orchestrator.tool.duration") == 4
    assert collector.counts("orchestrator.task.duration") == 8
    assert collector.counts("orchestrator.task.queued") == 4


async def test_the_last_spans_are_sent_when_the_orchestrator_closes(collector: Collector) -> None:
    telemetry = Telemetry(collector.address, service="team", content=True)
    async with open_orchestrator(":memory:", telemetry=telemetry) as orchestrator:
        await orchestrator.run(lead(), "go")

    assert names(collector) == TREE
    assert collector.services == {"team"}
    goal = collector.named("invoke_agent finder")
    assert "find out" in str(goal.attributes)


async def test_spans_are_sent_after_an_outage_of_the_collector(
    collector: Collector, tmp_path: Path
) -> None:
    collector.is_refusing = True
    async with open_orchestrator(
        tmp_path / "journal.db", telemetry=collector.address
    ) as orchestrator:
        await orchestrator.run(lead(), "go")
        await collector.wait_refused()
        assert collector.spans == {}
        collector.is_refusing = False
        await orchestrator.run(lead(), "go")
        await collector.wait_stored(12)

    assert names(collector) == sorted(TREE * 2)


async def test_a_batch_that_is_too_large_for_the_collector_is_split(collector: Collector) -> None:
    collector.most_spans = 2
    async with open_orchestrator(":memory:", telemetry=collector.address) as orchestrator:
        await orchestrator.run(lead(), "go")
        await collector.wait_stored(6)

    assert names(collector) == TREE


async def test_a_span_that_the_collector_refuses_holds_back_no_other(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.poison = TREE[0]
    expected = [name for name in TREE if name != collector.poison]
    async with open_orchestrator(":memory:", telemetry=collector.address) as orchestrator:
        for _ in range(2):
            await orchestrator.run(lead(), "go")
        await collector.wait_stored(2 * len(expected))

    assert names(collector) == sorted(expected * 2)
    assert [it for it in caplog.messages if "with status 400" in it] != []


async def test_runs_do_not_wait_for_a_collector_that_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.products.telemetry.exporter.CLOSE_SECONDS", 0.1)
    async with open_collector() as gone:
        pass
    async with open_orchestrator(tmp_path / "journal.db", telemetry=gone.address) as orchestrator:
        run = await orchestrator.run(lead(), "go")

    assert run.output == "done"
    assert f"orchestrator export {run.id} --format otlp" in caplog.text


async def test_an_error_of_the_library_ends_no_run_and_keeps_back_no_other(
    collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def fail(*_: object) -> None:
        token.run_sync_soon(raised.set)
        raise ValueError("a fault of the library")

    async with open_orchestrator(":memory:", telemetry=collector.address) as orchestrator:
        with monkeypatch.context() as patched:
            patched.setattr(OTLPSpanExporter, "export", fail)
            run = await orchestrator.run(lead(), "go")
            await raised.wait()
        await orchestrator.run(lead(), "go")

    assert run.output == "done"
    assert "a fault of the library" in caplog.text
    assert names(collector) == TREE


async def test_telemetry_without_its_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "orchestrator.products.telemetry.otlp", raising=False)
    with pytest.raises(DefinitionError, match=r"pip install 'delegation-orchestrator\[otel\]'"):
        async with open_orchestrator(":memory:", telemetry="http://127.0.0.1:1"):
            pass


async def test_a_task_that_was_interrupted_has_one_span(
    collector: Collector, tmp_path: Path
) -> None:
    """The first process ends while a detached task runs; the second one continues it."""
    journal = tmp_path / "journal.db"
    slow = worker("finder", seconds=3600)
    first = editor(hand_on("find out", background=True), "started", delegates=[slow])
    async with open_orchestrator(journal, telemetry=collector.address) as orchestrator:
        async with orchestrator.open_session(first) as session:
            await session.ask("go")
    assert "invoke_agent finder" not in names(collector)

    second = editor("started", "thanks", delegates=[worker("finder")])
    async with open_orchestrator(journal, telemetry=collector.address) as orchestrator:
        async with orchestrator.open_session(second, session=session.id) as again:
            async for _ in again.replies:
                break

    child = collector.named("invoke_agent finder")
    call = collector.named("execute_tool delegate_task")
    (link,) = child.links
    assert (link.trace_id, link.span_id) == (call.trace_id, call.span_id)
    assert child.start_time_unix_nano < child.end_time_unix_nano
    turns = [span for span in collector.spans.values() if span.name == "invoke_agent editor"]
    assert [len(turn.links) for turn in turns] == [0, 1]


async def test_a_session_with_too_many_facts_is_exported_from_the_journal(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.products.telemetry.exporter.MAX_FACTS", 5)
    goals = [f"goal {number}" for number in range(10)]
    async with open_orchestrator(
        tmp_path / "journal.db", telemetry=collector.address
    ) as orchestrator:
        await orchestrator.run(lead(hand_on(*goals), "done"), "go")

    assert len(collector.spans) == 10 * 2 + 4
    assert collector.largest <= 500


async def test_a_backend_without_metrics_is_not_asked_again(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.takes_metrics = False
    async with open_orchestrator(":memory:", telemetry=collector.address) as orchestrator:
        for number in range(1, 6):
            await orchestrator.run(lead(), "go")
            await collector.wait_stored(6 * number)

    assert collector.refused == 3
    assert "takes spans, but no metrics" in caplog.text


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("", None),
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("https://collector/", "https://collector/v1/traces"),
        ("https://backend/api/otel/v1/traces", "https://backend/api/otel/v1/traces"),
    ],
)
def test_an_address_without_a_path_is_completed(address: str, endpoint: str | None) -> None:
    assert endpoint_of(address, "traces") == endpoint


@pytest.mark.parametrize("address", ["127.0.0.1:4318", "ftp://x", "http://"])
async def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(DefinitionError, match="not the address of a collector"):
        async with open_orchestrator(":memory:", telemetry=address):
            pass


async def test_the_spans_of_an_old_run_are_sent_by_the_command_line(
    collector: Collector, tmp_path: Path, python: list[str]
) -> None:
    journal = tmp_path / "journal.db"
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(lead(), "go")
    command = [*python, "-m", "orchestrator", "export", run.id, "--format", "otlp"]
    environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}

    for _ in range(2):
        ran = await trio.run_process(
            [*command, "--journal", str(journal)], env=environ, capture_stderr=True
        )
        assert ran.stderr.decode() == f"run {run.id}: 6 spans\n"

    assert names(collector) == TREE
    assert collector.received == 12
    collector.is_refusing = True
    refused = await trio.run_process(
        [*command, "--journal", str(journal)], env=environ, capture_stderr=True, check=False
    )
    assert refused.returncode == 2
    assert b"the collector of OpenTelemetry has not taken the spans" in refused.stderr
