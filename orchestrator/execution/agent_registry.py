"""Who plays which part: the agents of the sessions that are open, and their models.

A task's agent is found from its session's agent downwards, so two trees may use the same names.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from agents import Agent, DefinitionError, Model, Tool
from agents.approval import ApprovalRule
from delegation import SessionId, TaskId, TaskRecord

if TYPE_CHECKING:
    from agents.models.registry import CloseableModel
    from agents.models.wrappers.prices import PriceTable
    from agents.models.wrappers.rate_limit import Limiter


def _reachable_agents(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """Yield an agent and all who may work for it, each once."""
    seen: set[int] = set()
    pending = [agent]
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            pending += one.team
            yield one


class AgentRegistry:
    """The agents that this process knows."""

    runs_tools = True
    """What tools do is really done; where a run is replayed, it is not."""

    def __init__(
        self,
        environ: Mapping[str, str],
        limiters: "Mapping[str, Limiter] | None" = None,
        prices: "PriceTable | None" = None,
    ) -> None:
        self._environ = environ
        self._limiters = limiters or {}
        self._prices = prices
        self._session_agents: dict[SessionId, Agent[Any]] = {}
        self._child_agents: dict[TaskId, Agent[Any]] = {}
        """Who does what a pipeline has delegated: it may be anybody."""
        self._running_agents: dict[TaskId, Agent[Any]] = {}
        """Who acts now: whoever works for them need not look further up."""
        self._leaf_copies: dict[str, tuple[Agent[Any], Agent[Any]]] = {}
        """Agents, and the same without anybody to hand work to."""
        self._models: dict[str, Model] = {}
        # One for each agent and its model, so that summaries are made once.
        self._compacting: dict[tuple[str, int, int, int, int], Model] = {}
        self._open: list[CloseableModel] = []
        self._has_rules = False

    def register_session(self, session: SessionId, agent: Agent[Any]) -> None:
        """Say who a session talks to. Everybody's model must be there before a cent is spent."""
        self.require_models(agent)
        self._session_agents[session] = agent

    def unregister_session(self, session: SessionId) -> None:
        self._session_agents.pop(session, None)

    def register_child(self, task: TaskId, agent: Agent[Any]) -> None:
        """Say who does a task that a pipeline delegates."""
        self.require_models(agent)
        self._child_agents[task] = agent

    def unregister_child(self, tasks: Iterable[TaskId]) -> None:
        """Forget who did tasks."""
        for task in tasks:
            self._child_agents.pop(task, None)

    def require_models(self, agent: Agent[Any]) -> None:
        """Raise unless the models of an agent and of all that it may delegate to are available."""
        for everybody in _reachable_agents(agent):
            self.model_of(everybody)
            self._has_rules |= bool(everybody.approve)

    def assign(self, task: TaskRecord) -> Agent[Any]:
        """Return who acts for a task, and remember it until that is over."""
        agent = self._running_agents[task.id] = self.agent_of(task)
        return agent

    def release(self, task: TaskId) -> None:
        """Forget who has acted for a task."""
        self._running_agents.pop(task, None)

    def agent_of(self, task: TaskRecord) -> Agent[Any]:
        if (agent := self._running_agents.get(task.id)) is not None:
            return agent
        if task.parent is None:
            return self._session_agents[task.session]
        if task.id in self._child_agents:
            return self._child_agents[task.id]
        parent = self.agent_of(task.parent)
        if task.request is not None and task.request.copy:
            return self._copy_of(parent)
        for agent in parent.delegates:
            if agent.name == task.agent:
                return agent
        raise DefinitionError(
            f"agent {task.parent.agent!r} has no delegate {task.agent!r} any more"
        )

    def _copy_of(self, agent: Agent[Any]) -> Agent[Any]:
        """Return who does the work that an agent hands to itself."""
        if agent.copies:
            return agent
        if (
            agent.name not in self._leaf_copies
            or self._leaf_copies[agent.name][0] is not agent
        ):
            self._leaf_copies[agent.name] = (agent, agent.leaf())
        return self._leaf_copies[agent.name][1]

    def model_for(
        self, task: TaskRecord, agent: Agent[Any], paid: Callable[[Model], Model]
    ) -> Model:
        """Return who answers for a task. Somebody else may answer where a run is replayed.

        Args:
            task: who acts.
            agent: as whom.
            paid: makes a model one whose calls the task pays for.
        """
        return paid(self.model_of(agent))

    def policies_of(self, task: TaskRecord) -> list[tuple[ApprovalRule, ...]]:
        """Return the rules about approval of a task's agent, and of all above it."""
        policies: list[tuple[ApprovalRule, ...]] = []
        # Most programs have no rules at all, and this is asked for every task.
        above: TaskRecord | None = task if self._has_rules else None
        while above is not None:
            if rules := self.agent_of(above).approve:
                policies.append(rules)
            above = above.parent
        return policies

    def tools_for(self, task: TaskRecord, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Return what a task uses. Others may answer where a run is replayed."""
        return tools

    def model_of(self, agent: Agent[Any]) -> Model:
        model = self._resolved(agent.model)
        if (compaction := agent.compaction) is None:
            return model
        wrapped = (
            agent.name,
            id(model),
            id(compaction.summarizer),
            compaction.window,
            compaction.keep_last,
        )
        if wrapped not in self._compacting:
            from agents.models.wrappers.compaction import compacting

            self._compacting[wrapped] = compacting(
                model,
                window=compaction.window,
                summarizer=None
                if compaction.summarizer is None
                else self._resolved(compaction.summarizer),
                keep_last=compaction.keep_last,
            )
        return self._compacting[wrapped]

    def _resolved(self, model: str | Model) -> Model:
        if not isinstance(model, str):
            return model
        if model not in self._models:
            self._models[model] = self._made(model)
        return self._models[model]

    def _made(self, name: str) -> Model:
        """Return the model of a name; `a | b` is b where a fails."""
        # Imported when somebody names a model: whoever brings their own needs none of it.
        from agents.models.wrappers.fallback import fallback

        return fallback(*(self._provided(part.strip()) for part in name.split("|")))

    def _provided(self, name: str) -> Model:
        """Return a provider's model: within its limits, asked again where that heals, priced."""
        from agents.models.registry import PROVIDERS
        from agents.models.wrappers.prices import PriceTable, priced
        from agents.models.wrappers.rate_limit import limited
        from agents.models.wrappers.retry import retrying

        provider, _, _ = name.partition(":")
        model = self._bare(name)
        # Two protocols of one provider are one account.
        account = provider.removesuffix("-responses")
        if limiter := self._limiters.get(provider) or self._limiters.get(account):
            model = limited(model, limiter)
        model = retrying(model)
        elsewhere = provider in PROVIDERS and PROVIDERS[provider].has_custom_url(
            self._environ
        )
        if self._prices is None and elsewhere:
            # Somebody else's server has its own prices, whatever its models are called.
            return model
        return priced(model, self._prices or PriceTable.shipped())

    def _bare(self, name: str) -> Model:
        from agents.models.registry import model_named

        model = model_named(name, self._environ)
        self._open.append(model)
        return model

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        for model in self._open:
            await model.aclose()
