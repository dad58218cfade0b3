"""The engine of an orchestrator: its parts, wired together, and its loops."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from orchestrator.agents import raising_one_error
from orchestrator.agents.random_ids import draw_bits
from orchestrator.delegation import SessionId, TaskId
from orchestrator.kernel.engine.delegator import NewTaskId, OrchestratorDelegator
from orchestrator.kernel.engine.deliveries import Deliveries
from orchestrator.kernel.engine.loops import dispatch_forever, wake_forever
from orchestrator.kernel.engine.questions import answer_question
from orchestrator.kernel.engine.recovery import recover
from orchestrator.kernel.engine.task_runner import TaskRunner
from orchestrator.kernel.engine.turns import Turns
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.executor import Executor, StepTiming
from orchestrator.kernel.execution.local import LocalExecutor
from orchestrator.kernel.execution.model_resolver import MODELS_CLOSE_SECONDS
from orchestrator.kernel.execution.tool_place import HERE, ToolPlace
from orchestrator.kernel.execution.tool_servers import NO_SERVERS, ToolServers
from orchestrator.kernel.execution.workspace.settings import WorkspaceSettings
from orchestrator.kernel.execution.workspace.tool_machine import ToolMachine
from orchestrator.kernel.history import History
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.journal.fact_feed import FactFeeds
from orchestrator.kernel.read_api import ReadApi
from orchestrator.kernel.sessions import Sessions

if TYPE_CHECKING:
    from orchestrator.kernel.step_spans import StepSpans

SETTLE_SECONDS: Final = 5
"""How long the last settlement of common accounts may take; after that, reservations stay charged
until the journal is opened again.
"""


def random_task_id(*_: object) -> TaskId:
    """Return the id of a new task."""
    return TaskId("t_" + draw_bits(64).to_bytes(8).hex())


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that only the orchestrator uses, and `Sessions`, which its doors get."""

    book: Bookkeeper
    runner: TaskRunner
    servers: ToolServers
    sessions: Sessions


@asynccontextmanager
async def open_engine(
    book: Bookkeeper,
    registry: AgentRegistry,
    workspace_settings: WorkspaceSettings,
    *,
    new_task_id: NewTaskId = random_task_id,
    place: ToolPlace = HERE,
    servers: ToolServers = NO_SERVERS,
    timing: StepTiming | None = None,
    history: History | None = None,
    spans: "StepSpans | None" = None,
) -> AsyncGenerator[Engine]:
    """Wire the parts of the engine, and run its loops as long as the block lasts.

    `place`, `servers` and `timing` differ in simulation and replay: `place` runs the tool calls
    that it takes, `servers` has the tools of servers, and `timing` delays steps. `spans` names
    the spans of steps, if telemetry is on.
    """
    machine = ToolMachine(book, registry, workspace_settings)
    executor: Executor = LocalExecutor(
        registry.models, machine, place=place, servers=servers, facts=book
    )
    if spans is not None:
        # Imported late: most programs send no spans.
        from orchestrator.kernel.execution.traced import TracedExecutor

        executor = TracedExecutor(executor, spans)
    runner = TaskRunner(
        book,
        registry,
        executor,
        asks_approval=place.has_effects,
        estimate=None if history is None else history.estimate_cost,
        dry_run=None if history is None else history.dry_run,
        spans=spans,
    )
    delegator = OrchestratorDelegator(book, registry, runner, new_task_id, timing=timing)
    deliveries = Deliveries(book, spans)
    turns = Turns(book, registry, runner, delegator, deliveries)
    await recover(book, runner.settlement, machine, host=workspace_settings.host.name)
    feeds = FactFeeds(book)
    sessions = Sessions(
        facts=book,
        read=ReadApi(
            book,
            runner.model_subscribers,
            feeds,
            lambda: runner.workload,
            lambda: runner.reservations.common,
        ),
        registry=registry,
        turns=turns,
        delegator=delegator,
        deliveries=deliveries,
        machine=machine,
        scheduler=runner.scheduler,
        call_share=runner.reservations.call_share,
        history=history,
        answer_question=partial(answer_question, book, on_answered=runner.watchdog.touch),
        new_session_id=_new_session_id,
    )
    engine = Engine(book=book, runner=runner, servers=servers, sessions=sessions)
    try:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                runner.reservations.nursery = nursery
                common = [it for it in book.records.accounts.values() if it.is_common]
                if common:
                    await runner.reservations.known_common().settle(common)
                nursery.start_soon(dispatch_forever, book, delegator)
                nursery.start_soon(wake_forever, book, turns, deliveries)
                nursery.start_soon(feeds.publish_forever)
                nursery.start_soon(machine.run_forever)
                nursery.start_soon(servers.run_forever)
                nursery.start_soon(runner.watchdog.watch_forever)
                try:
                    yield engine
                finally:
                    deliveries.disconnect_all()
                    nursery.cancel_scope.cancel(reason="the orchestrator is closed")
    finally:
        if runner.reservations.common is not None:
            with trio.move_on_after(SETTLE_SECONDS, shield=True):
                await runner.reservations.common.settle_last()
        book.close()
        with trio.move_on_after(MODELS_CLOSE_SECONDS, shield=True):
            await registry.models.aclose()


def _new_session_id() -> SessionId:
    return SessionId(f"r_{os.urandom(8).hex()}")
