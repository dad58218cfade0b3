"""The parts of an orchestrator, wired together. No part knows more than it is given here."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Final

import attrs
import trio

from agents import raising_one_error
from delegation import SessionId, TaskId
from orchestrator.engine.delegator import OrchestratorDelegator
from orchestrator.engine.loops import dispatch_forever, wake_forever
from orchestrator.engine.recovery import recover
from orchestrator.engine.turns import Turns
from orchestrator.execution.agent_registry import AgentRegistry
from orchestrator.execution.local import LocalExecutor
from orchestrator.execution.workspace.background_commands import BackgroundRunner
from orchestrator.execution.workspace.task_workspace import WorkspaceSettings
from orchestrator.journal.bookkeeper import Bookkeeper
from orchestrator.journal.fact_feed import FactFeeds
from orchestrator.read_api import ReadApi

CLOSE_SECONDS: Final = 5
"""How long connections to models may take to close."""


@attrs.frozen(kw_only=True)
class Services:
    """What a door needs to let somebody in."""

    book: Bookkeeper
    registry: AgentRegistry
    executor: LocalExecutor
    delegator: OrchestratorDelegator
    turns: Turns
    read: ReadApi
    background: BackgroundRunner
    new_session_id: Callable[[], SessionId]
    new_task_id: Callable[[], TaskId]


@asynccontextmanager
async def open_services(
    book: Bookkeeper,
    registry: AgentRegistry,
    workspace_settings: WorkspaceSettings,
    *,
    new_task_id: Callable[[], TaskId],
    make_delegator: Callable[
        [Bookkeeper, LocalExecutor, Callable[[], TaskId]], OrchestratorDelegator
    ] = OrchestratorDelegator,
) -> AsyncGenerator[Services]:
    """Wire the parts of an orchestrator, and keep its promises as long as the block lasts.

    Args:
        book: who writes the journal.
        roster: who plays which part.
        surroundings: where they do.
        new_task_id: names tasks.
        delegating: makes who takes the requests of agents.
    """
    acting = LocalExecutor(book, registry, workspace_settings)
    delegator = make_delegator(book, acting, new_task_id)
    turns = Turns(book, acting, delegator)
    await recover(book, acting)
    feeds = FactFeeds(book)
    house = Services(
        book=book,
        registry=registry,
        executor=acting,
        delegator=delegator,
        turns=turns,
        read=ReadApi(book, acting.model_subscribers, feeds),
        background=acting.background,
        new_session_id=_new_session_id,
        new_task_id=new_task_id,
    )
    try:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(dispatch_forever, book, delegator)
                nursery.start_soon(wake_forever, book, turns)
                nursery.start_soon(feeds.publish_forever)
                nursery.start_soon(acting.background.run_forever)
                nursery.start_soon(acting.watchdog.watch_forever)
                try:
                    yield house
                finally:
                    turns.disconnect_all()
                    nursery.cancel_scope.cancel(reason="the orchestrator is closed")
    finally:
        book.close()
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await registry.aclose()


def _new_session_id() -> SessionId:
    return SessionId(f"r_{token_hex(8)}")
