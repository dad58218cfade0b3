"""The result of a task as scorers see it: its answer, its subtree, its cost and its evidence."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from orchestrator.agents import Agent, DefinitionError, Usage, read_output
from orchestrator.delegation import Outcome, SessionRecord, TaskId, TaskRecord, Tree
from orchestrator.delegation.tree.node import TaskNode
from orchestrator.ports.execution import reachable_agents
from orchestrator.products.evaluation.cases import Case

if TYPE_CHECKING:
    from orchestrator.agents.tools.evidence import Evidence


@attrs.frozen(kw_only=True, repr=False)
class TaskResult:
    """A task that has ended, with everything below it: a whole run, or one step of it."""

    id: TaskId
    session: SessionRecord
    records: Mapping[TaskId, TaskRecord]
    """The tasks of its session."""
    case: Case | None = None
    """The case that it answers; None for a recorded run without one."""
    root_agent: Agent[Any] | None = None
    """The agent of the run, which knows the types of answers; None if only the journal is known."""

    def __repr__(self) -> str:
        return f"<TaskResult {self.path}: {self.ending}>"

    @property
    def tree(self) -> Tree:
        """The tree of the whole run."""
        return self.session.tree

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None if it has not."""
        record = self.records[self.id]
        return self.session.last_outcome if record.is_root else record.outcome

    @property
    def succeeded(self) -> bool:
        return self.outcome is not None and self.outcome.succeeded

    @property
    def ending(self) -> str:
        """The name of its ending, or its status while it has none."""
        return str(self.outcome.ending if self.outcome is not None else self._node.status)

    @property
    def error(self) -> str:
        return "" if self.outcome is None else self.outcome.error

    @property
    def answer(self) -> str:
        """The text of its final answer."""
        return "" if self.outcome is None else self.outcome.output

    @property
    def output(self) -> Any:
        """The final answer, as the output type of its agent; a text if the agent is not known."""
        if self.root_agent is not None:
            for agent in reachable_agents(self.root_agent):
                if agent.name == self.agent:
                    return read_output(agent.output, self.answer)
        return self.answer

    @property
    def expected(self) -> Any:
        """The expected output of its case."""
        return None if self.case is None else self.case.expected_output

    @property
    def agent(self) -> str:
        return self._node.agent

    @property
    def goal(self) -> str:
        return self._node.goal

    @property
    def path(self) -> str:
        return self._node.path

    @property
    def usage(self) -> Usage:
        """The usage of the task and everything below it."""
        return self._node.total

    @property
    def cost(self) -> float | None:
        """The dollars; None if a price is not known."""
        return None if self.usage.unpriced else self.usage.usd

    @property
    def seconds(self) -> float:
        return self._node.seconds() or 0.0

    @property
    def tokens(self) -> int:
        return self.usage.tokens

    @property
    def calls(self) -> int:
        """The number of model calls."""
        return self.usage.calls

    @property
    def evidence(self) -> "Evidence | None":
        """Its changed files, commands, failed calls and unsuccessful children."""
        return None if self.outcome is None else self.outcome.evidence

    def tasks(self, agent: str | None = None) -> "list[TaskResult]":
        """Return the tasks below it, or those of one agent, each parent before its children."""
        below = self.tree.find(agent=agent, under=self.id)
        return [attrs.evolve(self, id=task) for task in below if task != self.id]

    @property
    def _node(self) -> TaskNode:
        return self.tree[self.id]


def result_of_run(
    session: SessionRecord,
    records: Mapping[TaskId, TaskRecord],
    *,
    case: Case | None = None,
    agent: Agent[Any] | None = None,
) -> TaskResult:
    """Return the result of a whole run."""
    if session.root.id not in records:
        raise DefinitionError(f"the records do not have run {session.id!r}")
    return TaskResult(
        id=session.root.id, session=session, records=records, case=case, root_agent=agent
    )
