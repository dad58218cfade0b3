"""Model calls and tools of a turn that pass the hooks of its agent."""

from collections.abc import Sequence
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar

import attrs
from msgspec.structs import replace

from orchestrator.agents.agent import Agent
from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.hooks import Hooks
from orchestrator.agents.messages import AssistantMessage, ToolCall
from orchestrator.agents.models.model import Model, ModelRequest
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.agents.tools.task_context import TaskContext
from orchestrator.agents.tools.tool import Tool

T = TypeVar("T")


def with_hooks(
    hooks: Sequence[Hooks[Any]],
    agent: Agent[Any],
    model: Model,
    tools: Sequence[Tool],
    context: TaskContext[Any] | None,
) -> tuple[Model, Sequence[Tool]]:
    """Return the model and the tools of a turn, with hooks around them.

    Tools that are neither the agent's own nor of its servers, such as `delegate_task`, have none.
    """
    if not hooks:
        return model, tools
    assert context is not None, "a hook is given the task"
    own = {tool.name for tool in agent.tools}
    return HookedModel(model, hooks, context), [
        hooked_tool(it, hooks, context) if it.name in own or it.server else it for it in tools
    ]


class HookedModel(ModelWrapper):
    """A model whose requests pass the hooks of an agent."""

    def __init__(
        self, model: Model, hooks: Sequence[Hooks[Any]], context: TaskContext[Any]
    ) -> None:
        super().__init__(model)
        self._hooks = hooks
        self._context = context

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        for hooks in self._hooks:
            if hooks.before_model is not None:
                changed = await _awaited(hooks.before_model(self._context, request))
                request = _checked("before_model", changed, request, ModelRequest)
        return await self._model.answer(request)


def changed_answer(
    answer: AssistantMessage, hooks: Sequence[Hooks[Any]], context: TaskContext[Any]
) -> AssistantMessage:
    """Return an answer of the model as the hooks want it recorded."""
    for each in hooks:
        if each.after_model is not None:
            changed = each.after_model(context, answer)
            other = _checked("after_model", changed, answer, AssistantMessage)
            # A hook cannot change the usage and the model of an answer.
            answer = replace(other, usage=answer.usage, model=answer.model)
    return answer


def hooked_tool(tool: Tool, hooks: Sequence[Hooks[Any]], context: TaskContext[Any]) -> Tool:
    """Return a tool whose calls and answers pass the hooks of an agent."""
    return attrs.evolve(tool, run=partial(_run_hooked, tool, hooks, context))


async def _run_hooked(
    tool: Tool, hooks: Sequence[Hooks[Any]], context: TaskContext[Any], call: ToolCall
) -> str | ToolResult:
    for each in hooks:
        if each.before_tool is not None:
            await _awaited(each.before_tool(context, call))
    result = await tool.run(call)
    text = result.text if isinstance(result, ToolResult) else result
    for each in hooks:
        if each.after_tool is not None:
            changed = await _awaited(each.after_tool(context, call, text))
            text = _checked("after_tool", changed, text, str)
    return replace(result, text=text) if isinstance(result, ToolResult) else text


async def _awaited(value: object) -> object:
    return await value if isawaitable(value) else value  # noqa: ASYNC910 (a call follows)


def _checked(hook: str, changed: object, given: T, kind: type[T]) -> T:
    if changed is None:
        return given
    if not isinstance(changed, kind):
        raise DefinitionError(
            f"the hook {hook} returned {changed!r}, which is no {kind.__name__}; None changes"
            " nothing"
        )
    return changed
