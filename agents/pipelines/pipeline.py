"""What a pipeline is: an agent whose steps are a program's, and not a model's.

It is a value like any other agent, and can be wherever one can. The program hands work on through
`Hands`, which whoever runs it brings. It may be run again after a crash: so it decides by what it
is given and by what others answer, and by nothing else.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import attrs
import msgspec
import trio

from agents.agent import Agent, is_agent
from agents.errors import DefinitionError, InputError, OutputError
from agents.messages import AssistantMessage
from agents.models.model import Model, ModelRequest
from agents.output.json_schema import schema_problems
from agents.output.typed import encoded, read_output, type_name

if TYPE_CHECKING:
    from agents.agent import InputT_contra, OutputT_co
else:
    OutputT_co = TypeVar("OutputT_co", covariant=True)
    InputT_contra = TypeVar("InputT_contra", contravariant=True)

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


class PipelineContext(Protocol):
    """Hands work on for a pipeline."""

    async def delegate(
        self, agent: Agent[OutputT, InputT], value: InputT, /
    ) -> OutputT:
        """Have an agent do something, and return what it answers."""
        ...


class _NoModel:
    """Stands where a pipeline would have a model."""

    name = "none"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        raise DefinitionError("a pipeline has no model that could be asked")


NO_MODEL = _NoModel()


def _parts(agents: Iterable[Agent[Any]]) -> tuple[Agent[Any], ...]:
    return tuple(agents)


@attrs.frozen(repr=False)
class Pipeline(Agent[OutputT_co, InputT_contra], Generic[InputT_contra, OutputT_co]):
    """An agent that is a program: `Pipeline[str, Report]` takes text and gives a report."""

    program: Callable[[PipelineContext, Any], Awaitable[Any]] = attrs.field(
        kw_only=True
    )
    """What it does with what it is given."""
    input: Any = attrs.field(default=Any, kw_only=True)
    """The type of what it takes. `str` is the goal as it is, and so is `Any`; any other is read
    from JSON."""
    parts: tuple[Agent[Any], ...] = attrs.field(
        default=(), kw_only=True, converter=_parts
    )
    """The agents that it is made of."""
    function: Callable[..., Awaitable[Any]] | None = attrs.field(
        default=None, kw_only=True
    )
    """The function that it was made of, for whoever tests that by itself."""
    fans_out: bool = attrs.field(default=False, kw_only=True)
    """It asks several at once: if it fails, each of their failures is told."""
    steps: tuple[Agent[Any], ...] = attrs.field(default=(), kw_only=True)
    """Of agents joined by `>>`, all of them: the next one becomes another step."""
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
        """Return the same pipeline under another name: that is its name in the tree."""
        return attrs.evolve(self, name=name, steps=())

    @property
    def team(self) -> tuple[Agent[Any], ...]:
        """All whom it is known to hand work to: the agents that its function names, too."""
        named = () if self.function is None else _named_by(self.function)
        return (*self.delegates, *self.parts, *named)

    @property
    def takes_text(self) -> bool:
        return self.input in {str, Any}

    def as_goal(self, value: InputT_contra) -> str:
        """Return what it is handed as the text of a goal."""
        if isinstance(value, str) and (self.takes_text or not self._accepts(value)):
            # Not what it takes, so it is JSON already: whoever reads it will see.
            return value
        return encoded(value, self.name)

    def _accepts(self, text: str) -> bool:
        with suppress(msgspec.ValidationError, TypeError):
            msgspec.convert(text, self.input)
            return True
        return False

    def parse_goal(self, goal: str) -> Any:
        """Return a goal as what the program takes."""
        if self.takes_text:
            return goal
        try:
            return read_output(self.input, goal)
        except OutputError as exc:
            # A word that is one of those it takes needs no quotes.
            if self._accepts(goal):
                return msgspec.convert(goal, self.input)
            raise InputError(
                f"the goal is not the {type_name(self.input)} that {self.name} takes:"
                f" {'; '.join(exc.problems)}"
            ) from exc

    def encode_output(
        self, value: object, requested_schema: Mapping[str, Any] | None = None
    ) -> str:
        """Return what the program gave as the text of its answer.

        Args:
            value: what it gave.
            wanted: the JSON schema that whoever asked wants the answer to fit.
        """
        if self.output is str:
            if not isinstance(value, str):
                raise OutputError(
                    f"{self.name} gave {_short(value)}, and promises str", ()
                )
            text = value
        else:
            text = encoded(value, self.name)
            self._require_output_readable(value, text)
        if requested_schema is not None and (
            problems := schema_problems(requested_schema, text)
        ):
            raise OutputError(
                "the answer does not fit the schema that was asked for:"
                f" {'; '.join(problems)}",
                problems,
            )
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


def in_sequence(
    first: Agent[Any, InputT], then: Agent[OutputT, Any]
) -> Pipeline[InputT, OutputT]:
    """Return two agents as one: the second gets what the first one gives."""
    if not is_agent(then):
        raise DefinitionError(
            f"{then!r} cannot come after {first.name!r}: it is no agent; make one of a"
            " function with @agent"
        )
    before = first.steps if isinstance(first, Pipeline) and first.steps else (first,)
    after = then.steps if isinstance(then, Pipeline) and then.steps else (then,)
    steps: tuple[Agent[Any], ...] = (*before, *after)

    async def one_after_the_other(hands: PipelineContext, value: Any) -> Any:
        await trio.lowlevel.checkpoint()
        for step in steps:
            value = await hands.delegate(step, value)
        return value

    return Pipeline(
        "sequence",
        instructions=f"First {', then '.join(step.name for step in steps)}.",
        program=one_after_the_other,
        input=input_of(first),
        output=then.output,
        parts=steps,
        steps=steps,
    )


def input_of(agent: Agent[Any, Any]) -> Any:
    """Return the type of what an agent takes."""
    return agent.input if isinstance(agent, Pipeline) else Any


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _named_by(function: Callable[..., Any]) -> list[Agent[Any]]:
    """Return the agents that a function refers to by name: those of its module, and around it."""
    scope: Mapping[str, Any] = getattr(function, "__globals__", {})
    cells = getattr(function, "__closure__", None) or ()
    around: list[Any] = []
    for cell in cells:
        with suppress(ValueError):  # not bound yet
            around.append(cell.cell_contents)
    code: CodeType | None = getattr(function, "__code__", None)
    names = dict.fromkeys(_names_in(code)) if code is not None else {}
    found = [*around, *(scope[name] for name in names if name in scope)]
    return [value for value in found if isinstance(value, Agent)]


def _names_in(code: CodeType) -> Iterable[str]:
    yield from code.co_names
    for constant in code.co_consts:
        # A function in the function.
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
