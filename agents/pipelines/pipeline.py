"""The value `Pipeline`: an agent whose steps are decided by a program, not by a model.

It can be used wherever an agent can. The program delegates through a `PipelineContext` that the
orchestrator provides. After a crash it is run again, so it must be deterministic: it may depend
only on its input and on the answers of its children.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import attrs
import msgspec
import trio

from orchestrator.agents.agent import Agent, is_agent
from orchestrator.agents.errors import DefinitionError, InputError, OutputError
from orchestrator.agents.messages import AssistantMessage
from orchestrator.agents.models.model import Model, ModelRequest
from orchestrator.agents.output.codec import codec_of
from orchestrator.agents.output.typed import accepts, encoded, read_output, type_name
from orchestrator.agents.pipelines.joins import join_problem
from orchestrator.agents.pipelines.shape import Shape
from orchestrator.agents.tools.task_context import TaskContext

if TYPE_CHECKING:
    from orchestrator.agents.agent import InputT_contra, OutputT_co
    from orchestrator.agents.script import Script, ScriptTeam
else:
    OutputT_co = TypeVar("OutputT_co", covariant=True)
    InputT_contra = TypeVar("InputT_contra", contravariant=True)

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


class PipelineContext(Protocol):
    """Delegates for a pipeline."""

    @property
    def task(self) -> TaskContext[Any]:
        """The task of the pipeline, with the dependencies of its run."""
        ...

    async def delegate(self, agent: Agent[OutputT, InputT], value: InputT, /) -> OutputT:
        """Delegate to an agent, and return its answer."""
        ...

    async def run_script(self, script: "Script", team: "ScriptTeam") -> str:
        """Run a script, whose calls are its children, and return its result."""
        ...


class _NoModel:
    """The model of a pipeline, which is never called."""

    name = "none"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        raise DefinitionError("a pipeline has no model that could be asked")


NO_MODEL = _NoModel()


SEQUENCE = Shape(kind="sequence", flow="row")


def _parts(agents: Iterable[Agent[Any]]) -> tuple[Agent[Any], ...]:
    return tuple(agents)


@attrs.frozen(repr=False)
class Pipeline(Agent[OutputT_co, InputT_contra], Generic[InputT_contra, OutputT_co]):
    """An agent that is a program: `Pipeline[str, Report]` takes text and returns a report."""

    program: Callable[[PipelineContext, Any], Awaitable[Any]] = attrs.field(kw_only=True)
    """The program: gets the context and the input, returns the output."""
    input: Any = attrs.field(default=Any, kw_only=True)
    """The input type. `str` and `Any` get the goal unchanged; others are parsed from JSON."""
    by_name: type[msgspec.Struct] | None = attrs.field(default=None, kw_only=True)
    """The object of all parameters of its function, which is a goal as well; None is no other."""
    parts: tuple[Agent[Any], ...] = attrs.field(default=(), kw_only=True, converter=_parts)
    """The agents that it is made of."""
    function: Callable[..., Awaitable[Any]] | None = attrs.field(default=None, kw_only=True)
    """The function that it was made of, for tests of the function alone."""
    fans_out: bool = attrs.field(default=False, kw_only=True)
    """It delegates to several at once: if it fails, the error lists each of their failures."""
    steps: tuple[Agent[Any], ...] = attrs.field(default=(), kw_only=True)
    """The agents that were joined by `>>`; another `>>` appends to them."""
    shape: Shape | None = attrs.field(default=None, kw_only=True, eq=False)
    """How its parts work together, for its picture; None for the program of a function."""
    model: str | Model = attrs.field(default=NO_MODEL, init=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    if not TYPE_CHECKING:

        def __call__(self, *_: object, **__: object) -> Any:
            raise DefinitionError(
                f"{self.name} is an agent, and is not called: `await delegate({self.name},"
                f" ...)` in a pipeline, `await orchestrator.run({self.name}, ...)` elsewhere;"
                f" for a test of the function alone there is {self.name}.function"
            )

    def named(self, name: str) -> Self:
        """Return the same pipeline under another name, which is its name in the tree."""
        return attrs.evolve(self, name=name, steps=())

    @property
    def team(self) -> tuple[Agent[Any], ...]:
        """All agents that it is known to delegate to, with those that its function names."""
        named = () if self.function is None else _agents_named_by(self.function)
        return (*self.delegates, *self.parts, *named)

    @property
    def may_delegate(self) -> bool:
        return True

    @property
    def takes_text(self) -> bool:
        return self.input in {str, Any}

    def as_goal(self, value: InputT_contra) -> str:
        """Return a value as the text of a goal."""
        if isinstance(value, str) and (self.takes_text or not accepts(self.input, value)):
            # A text that is no value of the input type is JSON already; `parse_goal` checks it.
            return value
        return encoded(value, self.name, self.input)

    def parse_goal(self, goal: str) -> Any:
        """Parse a goal as a value of the input type, or as the object of all parameters."""
        if self.by_name is not None and goal.lstrip().startswith("{"):
            with suppress(OutputError):
                return read_output(self.by_name, goal)
        if self.takes_text:
            return goal
        try:
            return read_output(self.input, goal)
        except OutputError as exc:
            # A word of a `Literal` or an enum needs no quotes.
            if accepts(self.input, goal):
                return codec_of(self.input).convert(goal)
            raise InputError(
                f"the goal is not the {type_name(self.input)} that {self.name} takes:"
                f" {'; '.join(exc.problems)}"
            ) from exc

    def encode_output(
        self, value: object, requested_schema: Mapping[str, Any] | None = None
    ) -> str:
        """Return the output of the program as the text of its answer.

        Args:
            value: the output.
            requested_schema: the JSON schema that the parent wants the answer to fit.
        """
        if self.output is str:
            if not isinstance(value, str):
                raise OutputError(f"{self.name} gave {_short(value)}, and promises str", ())
            text = value
        else:
            text = encoded(value, self.name, self.output)
            self._require_output_readable(value, text)
        if requested_schema is not None:
            _require_fit(requested_schema, text)
        return text

    def _require_output_readable(self, value: object, text: str) -> None:
        try:
            read_output(self.output, text)
        except OutputError as exc:
            raise OutputError(
                f"{self.name} gave {_short(value)}, and promises"
                f" {type_name(self.output)}: {'; '.join(exc.problems)}",
                exc.problems,
            ) from exc


def in_sequence(first: Agent[Any, InputT], then: Agent[OutputT, Any]) -> Pipeline[InputT, OutputT]:
    """Return two agents as one: the second gets the answer of the first."""
    if not is_agent(then):
        raise DefinitionError(
            f"{then!r} cannot come after {first.name!r}: it is not an agent; make one of a"
            " function with @agent"
        )
    if problem := join_problem(first.output, input_of(then)):
        raise DefinitionError(
            f"{then.name!r} cannot come after {first.name!r}: it takes"
            f" {type_name(input_of(then))}, and gets {type_name(first.output)}, and {problem};"
            f" give {first.name!r} another output, or put a function with @agent between them"
        )
    before = first.steps if isinstance(first, Pipeline) and first.steps else (first,)
    after = then.steps if isinstance(then, Pipeline) and then.steps else (then,)
    steps: tuple[Agent[Any], ...] = (*before, *after)

    async def run_steps(context: PipelineContext, value: Any) -> Any:
        await trio.lowlevel.checkpoint()
        for step in steps:
            value = await context.delegate(step, value)
        return value

    return Pipeline(
        "sequence",
        instructions=f"First {', then '.join(step.name for step in steps)}.",
        program=run_steps,
        input=input_of(first),
        output=then.output,
        parts=steps,
        steps=steps,
        shape=SEQUENCE,
    )


def input_of(agent: Agent[Any, Any]) -> Any:
    """Return the input type of an agent."""
    return agent.input if isinstance(agent, Pipeline) else Any


def _require_fit(schema: Mapping[str, Any], text: str) -> None:
    # Imported late: a program that defines agents does not wait for it.
    from orchestrator.agents.output.json_schema import schema_problems

    if problems := schema_problems(schema, text):
        raise OutputError(
            f"the answer does not fit the schema that was asked for: {'; '.join(problems)}",
            problems,
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _agents_named_by(function: Callable[..., Any]) -> list[Agent[Any]]:
    """Return the agents that a function names: globals of its module, and its closure."""
    scope: Mapping[str, Any] = getattr(function, "__globals__", {})
    cells = getattr(function, "__closure__", None) or ()
    enclosed: list[Any] = []
    for cell in cells:
        with suppress(ValueError):  # not bound yet
            enclosed.append(cell.cell_contents)
    code: CodeType | None = getattr(function, "__code__", None)
    names = dict.fromkeys(_names_in(code)) if code is not None else {}
    found = [*enclosed, *(scope[name] for name in names if name in scope)]
    return [value for value in found if isinstance(value, Agent)]


def _names_in(code: CodeType) -> Iterable[str]:
    yield from code.co_names
    for constant in code.co_consts:
        # A nested function.
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
