"""The agents of open sessions, and the way to each.

A task's agent is found from its session's agent downwards, so two trees may use the same names.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import attrs
from msgspec import UNSET

from orchestrator.agents import Agent, DefinitionError
from orchestrator.agents.approval import ApprovalRule, inherited_rules
from orchestrator.agents.tools.task_context import is_of_type
from orchestrator.delegation import SessionId, TaskId, TaskRecord
from orchestrator.delegation.choices import Choices
from orchestrator.kernel.execution.model_resolver import ModelSource

COPY: Final = "~"
"""The step of a path from an agent to its copy."""
ChangeAgent: TypeAlias = Callable[[Agent[Any]], Agent[Any]]
"""Returns the agent that runs in place of an agent: the same one, or a changed one."""
ROOT: Final = "/"
"""Begins the step to an agent that is found by its name alone."""


class AgentRegistry:
    """Finds the agent of each task."""

    def __init__(
        self,
        models: ModelSource,
        *,
        require_places: Callable[[Agent[Any]], None] | None = None,
        require_servers: Callable[[Agent[Any]], None] | None = None,
        require_deps: bool = False,
    ) -> None:
        """Find agents.

        Args:
            models: resolves their models.
            require_places: raises for an agent with tools at a place that cannot be reached from
                here; by default places are not checked, for runs whose tools have no effect.
            require_servers: raises for an agent with servers that cannot be connected from here; by
                default servers are not checked, for the same reason.
            require_deps: refuse an agent whose dependencies were not given; tools without effect
                do not use them.
        """
        self.models = models
        self._require_places = require_places
        self._require_servers = require_servers
        self._requires_deps = require_deps
        self.deps: Final[dict[SessionId, object]] = {}
        """The dependencies that the program has given to the trees of sessions."""
        self._changes: dict[SessionId, tuple[TaskId, ChangeAgent]] = {}
        """Changes of the agents of a task and its descendants, in the sessions of forks."""
        self._session_agents: dict[SessionId, Agent[Any]] = {}
        self._child_agents: dict[TaskId, Agent[Any]] = {}
        """The agents of tasks that pipelines have delegated; they need not be delegates."""
        self.running: Final[dict[TaskId, Agent[Any]]] = {}
        """The agents of running tasks: the search from a child upwards ends here."""
        self._leaf_copies: dict[str, tuple[Agent[Any], Agent[Any]]] = {}
        """Agents, and their copies that cannot delegate."""
        self._chosen: dict[tuple[int, str, str], tuple[Agent[Any], Agent[Any]]] = {}
        """Agents, and their forms with the model and the effort that a parent chose."""
        self._checked: WeakValueDictionary[int, Agent[Any]] = WeakValueDictionary()
        """The agents that can run here without deps, by their identity."""
        self.has_rules = False
        """An agent has approval rules."""

    def register_session(self, session: SessionId, agent: Agent[Any], deps: object = None) -> None:
        """Set the agent of a session, whose models must all be available.

        Args:
            session: the session.
            agent: its agent.
            deps: the values that the program gives to the tools and instructions of its tree.
        """
        self.require_models(agent, deps)
        self._session_agents[session] = agent
        if deps is None:
            self.deps.pop(session, None)
        else:
            self.deps[session] = deps

    def change_agents(self, session: SessionId, top: TaskId, change: ChangeAgent) -> None:
        """Change the agents of a task and its descendants, as long as its session is open."""
        self._changes[session] = top, change

    def unregister_session(self, session: SessionId) -> None:
        self._session_agents.pop(session, None)
        self._changes.pop(session, None)
        self.deps.pop(session, None)

    def register_child(self, task: TaskId, agent: Agent[Any], session: SessionId) -> None:
        """Set the agent of a task that a pipeline of a session delegates."""
        self.require_models(agent, self.deps.get(session))
        self._child_agents[task] = agent

    def unregister_children(self, tasks: Iterable[TaskId]) -> None:
        for task in tasks:
            self._child_agents.pop(task, None)

    def require_models(self, agent: Agent[Any], deps: object = None) -> None:
        """Raise unless the models of an agent and of all its delegates are available.

        It also checks the places of their tools, their servers, and their dependencies.
        """
        if deps is None and self._checked.get(id(agent)) is agent:
            return
        has_deps = False
        for reachable in reachable_agents(agent):
            self.models.model_of(reachable)
            for model in reachable.models:
                self.models.model_of(attrs.evolve(reachable, model=model))
            if self._require_places is not None:
                self._require_places(reachable)
            if self._require_servers is not None and reachable.servers:
                self._require_servers(reachable)
            if self._requires_deps and reachable.deps is not None:
                _require_deps(reachable, deps)
                has_deps = True
            self.has_rules |= bool(reachable.approve)
        if not has_deps:
            self._checked[id(agent)] = agent

    def agent_of(self, task: TaskRecord) -> Agent[Any]:
        if (agent := self.running.get(task.id)) is not None:
            return agent
        if (above := task.parent) is None:
            agent = self._session_agents[task.session]
            return self._changed(task, agent) if self._changes else agent
        request = task.request
        if task.id in self._child_agents:
            found = self._child_agents[task.id]
        else:
            parent = self.running.get(above.id) or self.agent_of(above)
            if request is not None and request.copy:
                found = self._copy_of(parent) if request.fork is UNSET else parent
            else:
                name = task.node.agent
                found = parent.plan.delegates.get(name) or _delegate_of(parent, name)
        if self._changes and not (request is not None and request.copy):
            found = self._changed(task, found)
        if request is None or request.chosen is UNSET:
            return found
        return self._with_choices(found, request.chosen)

    def _changed(self, task: TaskRecord, agent: Agent[Any]) -> Agent[Any]:
        """Return the agent that runs in place of an agent, in a fork that changes some."""
        top, change = self._changes.get(task.session, (None, None))
        above: TaskRecord | None = task
        while change is not None and above is not None:
            if above.id == top:
                return change(agent)
            above = above.parent
        return agent

    def _with_choices(self, agent: Agent[Any], chosen: Choices) -> Agent[Any]:
        if not (chosen.model or chosen.effort):
            return agent
        key = (id(agent), chosen.model, chosen.effort)
        if key not in self._chosen:
            # Imported late: most parents choose nothing.
            from orchestrator.agents.task_choices import with_choices

            self._chosen[key] = agent, with_choices(agent, chosen.model, chosen.effort)
        return self._chosen[key][1]

    def steps_to(self, task: TaskRecord) -> tuple[str, ...]:
        """Return the steps from the agent of a session down to the agent of a task.

        A step is the name of a delegate, `COPY`, or `ROOT` and the name of an agent that a pipeline
        has chosen. In every process with the same agents they lead to the same agent.
        """
        steps: list[str] = []
        each: TaskRecord | None = task
        while each is not None:
            if each.parent is None or each.id in self._child_agents:
                steps.append(f"{ROOT}{self.agent_of(each).name}")
            else:
                steps.append(COPY if each.is_copy else each.agent)
            each = each.parent
        return tuple(reversed(steps))

    def on_restart(self, task: TaskRecord) -> str:
        """Return the `Agent.on_restart` of a task that a crash interrupted."""
        try:
            return self.agent_of(task).on_restart
        except DefinitionError:
            return "resume"  # its run fails with this very error

    def _copy_of(self, agent: Agent[Any]) -> Agent[Any]:
        if agent.copies:
            return agent
        copies = self._leaf_copies
        if agent.name not in copies or copies[agent.name][0] is not agent:
            copies[agent.name] = (agent, _copy_of(agent))
        return copies[agent.name][1]

    def policies_of(self, task: TaskRecord) -> list[tuple[ApprovalRule, ...]]:
        """Return the approval rules of a task's agent, and of all above it."""
        policies: list[tuple[ApprovalRule, ...]] = []
        # Most programs have no rules at all, and this is asked for every task.
        above: TaskRecord | None = task if self.has_rules else None
        while above is not None:
            rules = self.agent_of(above).approve
            if rules and above is not task:
                rules = inherited_rules(rules)
            if rules:
                policies.append(rules)
            above = above.parent
        return policies


def _require_deps(agent: Agent[Any], deps: object) -> None:
    if is_of_type(deps, agent.deps):
        return
    wanted = _name(agent.deps)
    if deps is None:
        raise DefinitionError(
            f"agent {agent.name!r} needs deps of type {wanted}, and none were given: run(...,"
            " deps=...); no journal has them, so open_session, resume and fork take them, too"
        )
    raise DefinitionError(
        f"agent {agent.name!r} needs deps of type {wanted}, and a {type(deps).__name__} was"
        " given: all agents of a tree get the same"
    )


def _name(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) else str(type_)


def reachable_agents(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """Yield an agent and all that it may delegate to, each once."""
    seen: set[int] = set()
    pending = [agent]
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            pending += one.team
            yield one


def agent_below(agent: Agent[Any], step: str) -> Agent[Any]:
    """Return the delegate, or copy, that a step of a path leads to, or raise `DefinitionError`."""
    return _copy_of(agent) if step == COPY else _delegate_of(agent, step)


def _copy_of(agent: Agent[Any]) -> Agent[Any]:
    """Return the agent that runs the tasks that an agent delegates to itself."""
    return agent if agent.copies else agent.leaf()


def _delegate_of(agent: Agent[Any], name: str) -> Agent[Any]:
    delegate = agent.plan.delegates.get(name) or agent.plan.tool_agents.get(name)
    if delegate is None:
        raise DefinitionError(f"agent {agent.name!r} has no delegate {name!r} any more")
    return delegate
