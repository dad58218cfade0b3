"""The parts of a turn that are the same for every task of an agent, computed once.

A turn asks a flag of its plan instead of looking for a feature that its agent does not use.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from orchestrator.agents.output.typed import output_schema
from orchestrator.agents.tools.tool import Tool

if TYPE_CHECKING:
    from orchestrator.agents.agent import Agent

SCRIPT: Final = "script"  # the name of the agent that runs scripts
SCRIPT_CHARACTERS: Final = 50_000
"""The most characters of a script that a page shows."""


class TurnPlan:
    """The plan of one agent (`Agent.plan`)."""

    __slots__ = (
        "brings_tools",
        "child_tools",
        "delegates",
        "descriptions",
        "has_checks",
        "has_evidence",
        "instructions",
        "later_settings",
        "limits_usage",
        "made",
        "may_ask_person",
        "needs_machine",
        "output",
        "reads_notes",
        "takes_context",
        "task_options",
        "tool_agents",
    )

    def __init__(self, agent: "Agent[Any]") -> None:
        text = agent.instructions
        self.instructions: Final = agent.whole_instructions(text) if isinstance(text, str) else None
        """The instructions; None if a function makes them for each task."""
        self.made: str | None = None
        """The instructions that the function made last."""
        self.later_settings: Final = agent.settings.after_first_answer()
        """The settings of every model call after the first one of a turn."""
        self.output: Final = output_schema(agent.output)
        """The JSON schema of the final answer; None if that is text."""
        self.has_checks: Final = agent.output is not str or bool(agent.checks)
        """A final answer can be sent back to the model."""
        self.child_tools: Final[Sequence[Tool]] = tuple(
            tool for tool in agent.tools if not tool.runs_at_caller
        )
        """The tools of a delegated task: a caller runs tools for the root of its session alone."""
        self.takes_context: Final = self.instructions is None or bool(agent.checks or agent.hooks)
        """A check, a hook or the function of its instructions gets a `TaskContext`."""
        self.tool_agents: Final[dict[str, Agent[Any]]] = {
            tool.task.agent.name: tool.task.agent for tool in agent.tools if tool.task is not None
        }
        """The agents that are its tools, by their own names."""
        if agent.scripts:
            # Imported late: most agents write no scripts.
            from orchestrator.agents.script import script_agent_of

            self.tool_agents[SCRIPT] = script_agent_of(agent)
        self.brings_tools: Final = bool(
            agent.may_delegate
            or agent.asks_parent
            or agent.board
            or agent.schedules
            or agent.memory is not None
            or self.tool_agents
        )
        """It has tools besides its own and the tools of its servers."""
        self.reads_notes: Final = agent.memory is not None or "AGENTS.md" in agent.skills
        """Its turns begin with texts of files."""
        self.needs_machine: Final = bool(
            agent.workspace or agent.servers or self.reads_notes
        ) or any(tool.task is None for tool in agent.tools)
        """Its tools may use a workspace."""
        self.has_evidence: Final = bool(
            agent.tools or agent.servers or agent.delegates or agent.memory
        )
        """Its outcome has evidence of its effects."""
        self.may_ask_person: Final = bool(agent.servers or agent.schedules) or any(
            tool.machine is not None for tool in agent.tools
        )
        """Its tools may need approval without any rule."""
        self.limits_usage: Final = agent.limits.tokens is not None or agent.limits.usd is not None
        self.delegates: Final[Mapping[str, Agent[Any]]] = {it.name: it for it in agent.delegates}
        takers = [*agent.delegates]
        if agent.copies or len(takers) != 1:
            takers.append(agent)
        self.task_options: Final = (
            *(("model",) if any(it.models for it in takers) else ()),
            *(("effort",) if any(it.efforts for it in takers) else ()),
            *(("budget",) if agent.gives_budgets else ()),
            *(("conversation",) if agent.forks or agent.summaries else ()),
        )
        """The arguments of `delegate_task` that only some agents have."""
        self.descriptions: Final[dict[int, tuple[object, str]]] = {}
        """The description of `delegate_task` for each number of levels below, and its rules."""
