"""The value `Agent`: a name, instructions, a model, tools, delegates and limits."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable, signature
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeGuard, cast

import attrs

from orchestrator.agents.approval import ApprovalRule
from orchestrator.agents.budget import Budget
from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.hooks import Hooks
from orchestrator.agents.limits import Limits, Patience
from orchestrator.agents.models.model import Model
from orchestrator.agents.models.settings import NO_SETTINGS, ModelSettings, ReasoningEffort
from orchestrator.agents.output.typed import encoded, output_schema
from orchestrator.agents.tools.task_context import TaskContext, is_type
from orchestrator.agents.tools.tool import Tool
from orchestrator.agents.turn_plan import TurnPlan
from orchestrator.agents.type_checks import has_type

if TYPE_CHECKING:
    from typing_extensions import TypeForm, TypeVar

    from orchestrator.agents.compaction import Compaction
    from orchestrator.agents.pipelines.pipeline import Pipeline
    from orchestrator.agents.sandbox.sandbox import Sandbox
    from orchestrator.agents.skills import AgentSkill
    from orchestrator.agents.tools.mcp.server import McpServer

    OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)
    InputT_contra = TypeVar("InputT_contra", contravariant=True, default=Any)
    DepsT_contra = TypeVar("DepsT_contra", contravariant=True, default=Any)
else:
    from typing import TypeVar

    OutputT_co = TypeVar("OutputT_co", covariant=True)
    InputT_contra = TypeVar("InputT_contra", contravariant=True)
    DepsT_contra = TypeVar("DepsT_contra", contravariant=True)

NextT = TypeVar("NextT")

# A name is a step of a path (`/editor/researcher[3]`) and an argument that models write.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
DELEGATION_TOOLS: Final = frozenset({"delegate_task", "task"})
"""The tool that an agent with delegates has in addition to its own."""


CheckedT = TypeVar("CheckedT")
CheckDepsT = TypeVar("CheckDepsT")
AnswerCheck: TypeAlias = (
    Callable[[CheckedT], Awaitable[None] | None]
    | Callable[[TaskContext[CheckDepsT], CheckedT], Awaitable[None] | None]
)
"""A function of an answer, or of the task and an answer."""


def _tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    return _listed(tools)


def _models(models: "str | Model | Iterable[str | Model]") -> "tuple[str | Model, ...]":
    return (models,) if isinstance(models, str) else _listed(models)


def _efforts(efforts: "Iterable[ReasoningEffort]") -> "tuple[ReasoningEffort, ...]":
    return (cast("ReasoningEffort", efforts),) if isinstance(efforts, str) else _listed(efforts)


def _servers(servers: "Iterable[McpServer]") -> "tuple[McpServer, ...]":
    return _listed(servers)


def _skills(skills: "str | Path | Iterable[AgentSkill | Path]") -> "tuple[AgentSkill, ...]":
    if not skills:
        return ()
    # Imported late: most agents have none.
    from orchestrator.agents.skills import listed_skills

    return listed_skills(skills)


def _memory(file: "str | Path | None") -> Path | None:
    return Path(file).expanduser().absolute() if isinstance(file, str | Path) else file


def _agents(agents: "Iterable[Agent[Any]]") -> "tuple[Agent[Any], ...]":
    return _listed(agents)


def _rules(rules: Iterable[ApprovalRule]) -> tuple[ApprovalRule, ...]:
    return _listed(rules)


def _checks(
    checks: "Iterable[AnswerCheck[CheckedT, CheckDepsT]]",
) -> "tuple[AnswerCheck[CheckedT, CheckDepsT], ...]":
    return _listed(checks)


def _hooks(hooks: "Iterable[Hooks[CheckDepsT]]") -> "tuple[Hooks[CheckDepsT], ...]":
    return _listed(hooks)


def _listed(given: Any) -> tuple[Any, ...]:
    return tuple(given) if hasattr(given, "__iter__") else (given,)


@attrs.frozen
class Agent(Generic[OutputT_co, InputT_contra, DepsT_contra]):
    """The definition of an agent: a name, instructions, a model, tools and limits.

    `Agent[Report]` promises a `Report` and takes any input: a text unchanged, and any other value
    as JSON. An agent that takes only some values is a `Pipeline`. `Agent[Report, Any, Shop]` also
    needs a `Shop`: `run(agent, goal, deps=Shop(...))`.
    """

    name: str
    instructions: str | Callable[[TaskContext[DepsT_contra]], str | Awaitable[str]] = attrs.field(
        default="", kw_only=True
    )
    """Its role and its way of working: a text, or a function of the task, sync or async, which is
    called once in a turn."""
    description: str = attrs.field(default="", kw_only=True)
    """Its purpose. A parent reads it to choose a delegate; if empty, it reads the instructions."""
    language: str = attrs.field(default="", kw_only=True)
    """The language it answers in, such as `"German"`; left to the model if empty."""
    model: str | Model = attrs.field(kw_only=True)
    """A name such as `"openai:gpt-5-mini"`, or any `Model`."""
    models: "tuple[str | Model, ...]" = attrs.field(default=(), kw_only=True, converter=_models)
    """The models that a parent may choose for a task in place of its own, by their names."""
    efforts: "tuple[ReasoningEffort, ...]" = attrs.field(
        default=(), kw_only=True, converter=_efforts
    )
    """The reasoning efforts that a parent may choose for a task."""
    settings: ModelSettings = attrs.field(default=NO_SETTINGS, kw_only=True)
    """How its model is to answer. Neither its delegates nor summaries inherit it."""
    tools: tuple[Tool, ...] = attrs.field(default=(), kw_only=True, converter=_tools)
    servers: "tuple[McpServer, ...]" = attrs.field(default=(), kw_only=True, converter=_servers)
    """Servers of the Model Context Protocol, whose tools it has besides: `McpCommand`, `McpUrl`."""
    skills: "tuple[AgentSkill, ...]" = attrs.field(default=(), kw_only=True, converter=_skills)
    """Folders with a `SKILL.md`, or folders of such folders. Its instructions have their names and
    descriptions, and it loads the rest with `read_skill`. `"AGENTS.md"` adds that file of its
    workspace to its instructions."""
    memory: Path | None = attrs.field(default=None, kw_only=True, converter=_memory)
    """The file of its memory, which its tasks read at the start of a turn and change with `memory`.
    Each change is a fact before it is in the file."""
    delegates: "tuple[Agent[Any], ...]" = attrs.field(default=(), kw_only=True, converter=_agents)
    """The agents that it may delegate to with `delegate_task`."""
    copies: bool = attrs.field(default=False, kw_only=True)
    """Whether it may delegate to copies of itself, which may do so too."""
    gives_budgets: bool = attrs.field(default=False, kw_only=True)
    """Whether it may give a task that it delegates a budget, with `delegate_task`."""
    forks: bool = attrs.field(default=False, kw_only=True)
    """Whether it may delegate to forks of itself, which have its instructions and tools and have
    read its conversation."""
    summaries: bool = attrs.field(default=False, kw_only=True)
    """Whether it may give a task that it delegates a summary of its conversation."""
    scripts: bool = attrs.field(default=False, kw_only=True)
    """Whether it may write scripts over its delegates and tools, and run them with `run_script`."""
    board: bool = attrs.field(default=False, kw_only=True)
    """Whether it shares items of work with the other tasks of its parent, with `board`. The root of
    a run sees the board of its own tasks."""
    asks_parent: bool = attrs.field(default=False, kw_only=True)
    """Whether it may ask the agent that has delegated to it, with `ask_parent`. The root of a run
    has no parent, and no such tool."""
    schedules: bool = attrs.field(default=False, kw_only=True)
    """Whether it may set jobs, which begin by the clock, in a session of its own, with `job`. A
    child has no such tool."""
    handoff: bool = attrs.field(default=False, kw_only=True)
    """Whether it may hand its conversation to a delegate, whose answer is then its own."""
    output: "TypeForm[OutputT_co]" = attrs.field(
        default=cast("TypeForm[OutputT_co]", str), kw_only=True
    )
    """The type of the final answer; any type but `str` is read from JSON."""
    checks: "tuple[AnswerCheck[OutputT_co, DepsT_contra], ...]" = attrs.field(
        default=(), kw_only=True, converter=_checks
    )
    """Checks of the final answer, sync or async. A check may raise an `OutputError`: the model
    reads it and answers again, at most `Limits.repairs` times."""
    hooks: "tuple[Hooks[DepsT_contra], ...]" = attrs.field(
        default=(), kw_only=True, converter=_hooks
    )
    """Functions around its model calls and its own tools, in this order."""
    deps: "TypeForm[DepsT_contra] | None" = attrs.field(default=None, kw_only=True)
    """The type of the value that its tools and instructions find in `TaskContext.deps`:
    `run(agent, goal, deps=...)` passes the value to the whole tree."""
    limits: Limits = attrs.field(default=Limits(), kw_only=True)
    """The most that its own model calls use in one task."""
    budget: Budget | None = attrs.field(default=None, kw_only=True)
    """The most that one task uses together with all its descendants."""
    patience: Patience = attrs.field(default=Patience(), kw_only=True)
    """How long it may make no progress."""
    on_restart: Literal["resume", "restart", "lose"] = attrs.field(default="resume", kw_only=True)
    """The fate of a task that a crash interrupts: it resumes from its last step, starts anew, or
    settles as lost."""
    version: str = attrs.field(default="", kw_only=True)
    """The version of its behaviour. A task that a crash interrupts goes on only with the version
    that it began with, unless the change is accepted."""
    approve: tuple[ApprovalRule, ...] = attrs.field(default=(), kw_only=True, converter=_rules)
    """The approval rules for its tools and for the tools of its descendants: `allow`, `confirm` and
    `deny`. The first matching rule decides, and the rules of a descendant can only forbid more."""
    workspace: Path | Literal["worktree"] | None = attrs.field(default=None, kw_only=True)
    """The folder of its tools. None uses the folder of the parent, and a relative path is inside
    it. `"worktree"` creates a git worktree of it for each task."""
    sandbox: "Sandbox | None" = attrs.field(default=None, kw_only=True)
    """The files and hosts open to its commands and file tools, and to its descendants. None uses
    the sandbox of the parent; a child never gets more than its parent."""
    compaction: "Compaction | None" = attrs.field(default=None, kw_only=True)
    """How to shorten requests that near the end of the model's window; None does not."""
    place: str = attrs.field(default="", kw_only=True)
    """The place of its tools: one worker of that name runs all calls of a turn. Empty means this
    process. Use it for tools with state on a machine: files, commands, memory."""

    plan: TurnPlan = attrs.field(init=False, repr=False, eq=False)
    """The parts of its turns that are the same for every task."""

    def __attrs_post_init__(self) -> None:
        if not has_type(self.name, str) or not NAME.fullmatch(self.name):
            raise DefinitionError(
                f"{self.name!r} cannot be the name of an agent: a name starts with a letter"
                " and has at most 64 letters, digits, '-' and '_'"
            )
        self._require(
            has_type(self.instructions, str) or callable(self.instructions),
            "its instructions must be text, or a function of a TaskContext",
        )
        self._require(has_type(self.description, str), "its description must be text")
        self._require(
            has_type(self.model, str) or hasattr(self.model, "answer"),
            f"its model is {self.model!r}, neither a name nor a Model",
        )
        self._require(
            not has_type(self.model, type),
            "its model is a class: make one of it, such as ScriptedModel([...])",
        )
        self._require(has_type(self.limits, Limits), "its limits must be Limits(...)")
        self._require(
            self.budget is None or has_type(self.budget, Budget), "its budget must be Budget(...)"
        )
        self._require(has_type(self.patience, Patience), "its patience must be Patience(...)")
        self._require(
            self.on_restart in {"resume", "restart", "lose"},
            f"on_restart is {self.on_restart!r}; it must be 'resume', 'restart' or 'lose'",
        )
        for rule in self.approve:
            self._require(
                has_type(rule, ApprovalRule),
                f"{rule!r} is no rule about approval: make one with allow, confirm or deny",
            )
        self._require(
            self.workspace in {None, "worktree"} or has_type(self.workspace, Path),
            f"its workspace is {self.workspace!r}, neither a Path nor 'worktree'",
        )
        if self.skills:
            # Imported late: most agents have none.
            from orchestrator.agents.skill_tool import with_skill_tool

            object.__setattr__(self, "tools", with_skill_tool(self.tools, self.skills))
        require_parts(self, "tools", self.tools, Tool, "make one of a function with @tool")
        self._require(
            self.deps is None or is_type(self.deps),
            # Not the value: it may have secrets.
            f"its deps are a value of {type(self.deps).__name__}: Agent(deps=...) takes the type,"
            " and run(agent, goal, deps=...) the value",
        )
        require_parts(self, "delegates", self.delegates, Agent, "delegates are agents")
        if self.may_delegate:
            for tool in self.tools:
                self._require(
                    tool.name not in DELEGATION_TOOLS,
                    f"it has a tool of its own called {tool.name!r}, and its delegates bring one of"
                    " that name: give it another one with @tool(name=...)",
                )
        if self._has_rare_features:
            # Imported late: most agents have none of them.
            from orchestrator.agents.feature_checks import require_features

            require_features(self)
        # Not a cached property: with one, attrs makes every attribute of an agent slower.
        object.__setattr__(self, "plan", TurnPlan(self))

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            # Python 3.13 has `TypeVar(default=...)` for this.
            given = types if isinstance(types, tuple) else (types,)
            missing = len(cls.__parameters__) - len(given)
            return super().__class_getitem__((*given, *[Any] * missing))

    def __rshift__(self, then: "Agent[NextT, OutputT_co]") -> "Pipeline[InputT_contra, NextT]":
        """Return both as one agent: the second gets the answer of this one."""
        # Imported late: a pipeline is a subclass of this.
        from orchestrator.agents.pipelines.pipeline import in_sequence

        return in_sequence(self, then)

    def as_tool(
        self,
        *,
        name: str | None = None,
        description: str = "",
        input: "TypeForm[Any] | None" = None,  # noqa: A002 (the word of `Pipeline.input`)
        background: bool | None = None,
    ) -> Tool:
        """Return a tool whose calls delegate to this agent, for `Agent(tools=[...])`.

        Args:
            name: its name for the model, if it differs from the agent's.
            description: its purpose, if it differs from the agent's.
            input: the type whose fields are the parameters; by default the input of a pipeline,
                or a text.
            background: true detaches the task if the session can be told later, false joins it;
                None leaves it to the rules, as in `delegate_task`.
        """
        # Imported late: most agents are no tools.
        from orchestrator.agents.agent_tool import agent_tool

        return agent_tool(self, name, description, input, background)

    def to_svg(self) -> str:
        """Return a picture of the agent and all agents below it, as SVG."""
        # Imported late: most programs draw nothing.
        from orchestrator.agents.pictures.svg import svg

        return svg(self)

    def to_mermaid(self) -> str:
        """Return the same picture as a Mermaid flowchart."""
        from orchestrator.agents.pictures.mermaid import mermaid

        return mermaid(self)

    def _repr_svg_(self) -> str:
        # Notebooks show this.
        return self.to_svg()

    @property
    def team(self) -> "tuple[Agent[Any], ...]":
        """All agents that it is known to delegate to."""
        return (*self.delegates, *self.plan.tool_agents.values())

    @property
    def answer_schema(self) -> Mapping[str, Any] | None:
        """The JSON schema of its final answer; None if that is text."""
        return output_schema(self.output)

    @property
    def may_delegate(self) -> bool:
        return bool(self.delegates) or self.copies or self.forks

    @property
    def _has_rare_features(self) -> bool:
        """It has a feature that `feature_checks` checks."""
        return bool(
            self.settings is not NO_SETTINGS
            or self.compaction is not None
            or self.servers
            or self.place
            or self.asks_parent
            or self.board
            or self.schedules
            or self.models
            or self.efforts
            or self.gives_budgets
            or self.summaries
            or self.scripts
            or self.skills
            or self.memory is not None
            or self.sandbox is not None
            or self.hooks
            or self.checks
            or self.handoff
            or any(tool.deps is not None or tool.task is not None for tool in self.tools)
        )

    def as_goal(self, value: InputT_contra) -> str:
        """Return a value as the text of a goal."""
        return value if isinstance(value, str) else encoded(value, self.name)

    def leaf(self) -> "Agent[OutputT_co, InputT_contra, DepsT_contra]":
        """Return the same agent without delegates."""
        tools = [tool for tool in self.tools if tool.task is None]
        return attrs.evolve(
            self,
            delegates=(),
            copies=False,
            forks=False,
            gives_budgets=False,
            summaries=False,
            handoff=False,
            tools=tools,
        )

    async def make_instructions(self, context: TaskContext[Any]) -> str:
        """Return the instructions for a task, from the text or the function."""
        assert not isinstance(self.instructions, str), "a text is not made"
        text = self.instructions(context)
        if not isinstance(text, str):
            self._require(
                isawaitable(text), f"its instructions were made as {text!r}, and must be text"
            )
            text = await text
        return text  # noqa: ASYNC910 (its caller checkpoints)

    async def check_answer(  # noqa: ASYNC910 (its caller checkpoints)
        self, value: object, context: TaskContext[Any]
    ) -> None:
        """Raise an `OutputError` if one of its checks sends a final answer back."""
        for check in self.checks:
            call: Callable[..., Awaitable[None] | None] = check
            takes_task = len(signature(check).parameters) > 1
            checked = call(context, value) if takes_task else call(value)
            if checked is not None:
                await checked

    def whole_instructions(self, instructions: str) -> str:
        """Return instructions with its skills and the language that it answers in."""
        if self.skills:
            from orchestrator.agents.skills import skills_text

            instructions = f"{instructions}\n\n{skills_text(self.skills)}".strip()
        if not self.language:
            return instructions
        return f"{instructions}\n\nAnswer in {self.language}.".strip()

    def _require(self, condition: bool, problem: str) -> None:
        if not condition:
            raise DefinitionError(f"agent {self.name!r}: {problem}")


def require_parts(
    agent: Agent[Any], field: str, parts: tuple[Any, ...], kind: "type[Any] | UnionType", hint: str
) -> None:
    """Refuse parts of an agent that have another type, or the name of another part."""
    for part in parts:
        # The message is built only on failure: the repr of an agent contains all its delegates.
        if not isinstance(part, kind):
            problem = f"{part!r} is not one of its {field}: {hint}"
            raise DefinitionError(f"agent {agent.name!r}: {problem}")
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise DefinitionError(f"agent {agent.name!r}: it has two {field} called {duplicate!r}")


def is_agent(value: object) -> TypeGuard[Agent[Any, Any]]:
    """Return whether a value that no type checker has seen is an agent."""
    return isinstance(value, Agent)
