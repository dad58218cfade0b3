"""One answer of an agent beside its turn: its instructions, model, settings and hooks, no tools.

The caller decides whether the answer is recorded.
"""

from collections.abc import Callable
from typing import Any

import attrs

from orchestrator.agents.agent import Agent
from orchestrator.agents.hooked_calls import changed_answer, with_hooks
from orchestrator.agents.messages import UserMessage, well_formed
from orchestrator.agents.models.model import Model, ModelEvent, ModelRequest
from orchestrator.agents.tool_calls import checked_answer
from orchestrator.agents.tools.task_context import TaskContext
from orchestrator.agents.transcript import Transcript


async def side_answer(
    agent: Agent[Any],
    transcript: Transcript,
    *,
    model: Model,
    extra_instructions: str = "",
    made_instructions: str | None = None,
    path: str = "",
    deps: object = None,
    tell: Callable[[ModelEvent], None],
) -> str:
    """Return the answer of an agent to a transcript, whose last message is the question.

    The transcript has no open calls. The call is paid for inside the model. Without
    `made_instructions`, the agent's instruction function is called.
    """
    goals = (it.text for it in transcript if isinstance(it, UserMessage))
    context = TaskContext(agent=agent.name, goal=next(goals, ""), path=path, deps=deps)
    if isinstance(agent.instructions, str):
        instructions = agent.instructions
    elif made_instructions is not None:
        instructions = made_instructions
    else:
        instructions = well_formed(await agent.make_instructions(context))
    parts = (agent.whole_instructions(instructions), extra_instructions)
    hooked, _ = with_hooks(agent.hooks, agent, model, (), context)
    request = ModelRequest(
        instructions="\n\n".join(filter(None, parts)),
        transcript=transcript,
        tools=(),
        max_output=agent.settings.max_output_tokens,
        # There is no tool to choose.
        settings=attrs.evolve(agent.settings, tool_choice=None),
        tell=tell,
    )
    answer = checked_answer(await hooked.answer(request), model, transcript)
    return changed_answer(answer, agent.hooks, context).text
