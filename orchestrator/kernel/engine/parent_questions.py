"""Asks the parent of a task a question: one model call beside the parent's turn.

The budgets of the asking task pay for the call, and it is booked on that task. The answer is the
result of a tool, and not a message of the parent.
"""

from typing import Any

import trio

from orchestrator.agents import Agent, DefinitionError, ModelError, ModelEvent, Pipeline, ToolError
from orchestrator.agents.redaction.long_texts import search_ahead
from orchestrator.agents.side_answer import side_answer
from orchestrator.delegation import OverBudgetError, TaskRecord, asked_transcript
from orchestrator.kernel.engine.model_call import QuestionModel
from orchestrator.kernel.engine.reservations import Reservations
from orchestrator.kernel.engine.watchdog import TaskActivity
from orchestrator.kernel.errors import error_text
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.journal.bookkeeper import Bookkeeper


class ParentQuestions:
    """The questions of one task in one turn, one after another: `one_call` is held by each."""

    def __init__(
        self,
        task: TaskRecord,
        *,
        book: Bookkeeper,
        registry: AgentRegistry,
        reservations: Reservations,
        activity: TaskActivity | None,
        one_call: trio.Lock,
    ) -> None:
        self._task = task
        self._book = book
        self._registry = registry
        self._reservations = reservations
        self._activity = activity
        self._one_call = one_call

    async def ask(self, question: str) -> str:
        """Return the answer of the parent; raise `ToolError` if there is no answer."""
        parent = self._task.parent
        assert parent is not None, "a root has no such tool"
        agent = self._agent_of(parent)
        await search_ahead(self._book.redactor, [question])
        question = self._book.redactor.redact(question)
        async with self._one_call:
            try:
                answer = await self._answer(parent, agent, question)
            except ModelError as exc:
                raise ToolError(f"your parent could not be asked: {error_text(exc)}") from exc
            except OverBudgetError as exc:
                raise ToolError(
                    f"your parent was not asked, since your budget cannot pay for it: {exc}"
                ) from exc
        if not answer.strip():
            raise ToolError("your parent gave no answer: go on without it")
        return answer

    def _agent_of(self, parent: TaskRecord) -> Agent[Any]:
        try:
            agent = self._registry.agent_of(parent)
        except DefinitionError as exc:
            raise ToolError(f"your parent cannot be asked any more: {exc}") from exc
        if isinstance(agent, Pipeline):
            raise ToolError(
                f"your parent {parent.path} is a program, which answers no questions:"
                " continue with your goal"
            )
        return agent

    async def _answer(self, parent: TaskRecord, agent: Agent[Any], question: str) -> str:
        model = self._registry.models.model_of(agent)
        return await side_answer(
            agent,
            asked_transcript(self._task, parent, question),
            model=QuestionModel(model, self._task, self._reservations),
            extra_instructions=parent.instructions,
            made_instructions=parent.made_instructions,
            path=parent.path,
            deps=self._registry.deps.get(parent.session),
            tell=self._on_event,
        )

    def _on_event(self, event: ModelEvent) -> None:
        # The answer is not text of the task itself, so no subscriber is told.
        if self._activity is not None:
            self._activity.on_model_event(event)
