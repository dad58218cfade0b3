"""Summarizes the conversation of a task for the tasks that it delegates, in one model call.

The budgets of the task pay for the call. Its fact has the summary: a call that is made again after
a crash, and the other calls of the same answer, find it there.
"""

from collections.abc import Callable
from typing import Any

import attrs
import trio
from msgspec.structs import replace

from orchestrator.agents import Agent, CallId, ModelError, ModelEvent, ToolError
from orchestrator.agents.models.settings import NO_SETTINGS
from orchestrator.agents.models.wrappers.compaction import summary_request
from orchestrator.delegation import OverBudgetError, TaskRecord
from orchestrator.kernel.engine.model_call import CONVERSATION, BookedModel
from orchestrator.kernel.engine.reservations import Reservations
from orchestrator.kernel.errors import error_text
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.task_choices import fork_point


async def summarize_conversation(
    task: TaskRecord,
    agent: Agent[Any],
    call: CallId,
    *,
    registry: AgentRegistry,
    reservations: Reservations,
    one_call: trio.Lock,
    tell: Callable[[ModelEvent], None],
) -> str:
    """Return a summary of the conversation before a call; raise `ToolError` if there is none.

    `one_call` is held by the model call: a task has one at a time.
    """
    end = fork_point(task.transcript, call)
    async with one_call:
        if summary := _known_summary(task, end):
            return summary
        compaction = agent.compaction
        writer = agent.model
        if compaction is not None and compaction.summarizer is not None:
            writer = compaction.summarizer
        window = None if compaction is None else compaction.window
        # Neither the settings nor the window of the agent: the request is cut to it already.
        plain = attrs.evolve(agent, model=writer, compaction=None, settings=NO_SETTINGS)
        model = registry.models.model_for(
            task, plain, lambda model: BookedModel(model, task, reservations, CONVERSATION)
        )
        request = replace(summary_request(task.transcript[: end - 1], window), tell=tell)
        try:
            await model.answer(request)
        except ModelError as exc:
            raise ToolError(
                f"the conversation could not be summarized, and no task was started:"
                f" {error_text(exc)}"
            ) from exc
        except OverBudgetError as exc:
            raise ToolError(
                f"the budget cannot pay for a summary of the conversation, and no task was"
                f" started: {exc}"
            ) from exc
        # In the form that the fact has: without secrets.
        if summary := _known_summary(task, end):
            return summary
    raise ToolError("the summary of the conversation is empty, and no task was started")


def _known_summary(task: TaskRecord, end: int) -> str:
    """Return the summary that was written since the answer that ends a conversation."""
    written = (it.summary for it in task.incidents if it.summary and it.after >= end)
    return next(written, "")
