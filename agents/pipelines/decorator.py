"""How an async function becomes an agent: `@agent`."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import (
    Any,
    Final,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    get_type_hints,
    overload,
)

import msgspec

from agents.agent import Agent
from agents.approval import ApprovalRule
from agents.errors import DefinitionError
from agents.limits import Budget, Limits, Patience
from agents.output.typed import output_schema
from agents.pipelines.pipeline import Pipeline, PipelineContext

P = ParamSpec("P")
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

BY_NAME: Final = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
}
ACCEPTED_KINDS: Final = {inspect.Parameter.POSITIONAL_ONLY, *BY_NAME}


class AgentDecorator(Protocol):
    """What `@agent(...)` gives: it makes an agent of a function."""

    @overload
    def __call__(
        self, function: Callable[[InputT], Coroutine[Any, Any, OutputT]], /
    ) -> Pipeline[InputT, OutputT]: ...
    @overload
    def __call__(
        self, function: Callable[[], Coroutine[Any, Any, OutputT]], /
    ) -> Pipeline[object, OutputT]: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]  # two parameters do
        self, function: Callable[P, Coroutine[Any, Any, OutputT]], /
    ) -> Pipeline[Mapping[str, Any], OutputT]: ...


@overload
def agent(
    function: Callable[[InputT], Coroutine[Any, Any, OutputT]], /
) -> Pipeline[InputT, OutputT]: ...
@overload
def agent(
    function: Callable[[], Coroutine[Any, Any, OutputT]], /
) -> Pipeline[object, OutputT]: ...
@overload
def agent(  # type: ignore[overload-cannot-match]  # two parameters do
    function: Callable[P, Coroutine[Any, Any, OutputT]], /
) -> Pipeline[Mapping[str, Any], OutputT]: ...
@overload
def agent(
    *,
    name: str | None = None,
    delegates: Iterable[Agent[Any]] = (),
    limits: Limits = ...,
    budget: Budget | None = None,
    patience: Patience = ...,
    on_restart: Literal["resume", "restart", "lose"] = "resume",
    approve: Iterable[ApprovalRule] = (),
    workspace: Path | Literal["worktree"] | None = None,
) -> AgentDecorator: ...
def agent(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make an agent of an async function: what it delegates are its children.

    Its name is the agent's, the first paragraph of its docstring tells other agents what it is for,
    and what it returns is the agent's output. A function of one `str` gets the goal; what has
    another type is read from JSON. Of several parameters that must be given, all are fields of one
    JSON object.

    After a crash it is run again. What it had delegated is not done again: `delegate` finds that,
    and returns at once.

    Args:
        function: what the agent does.
        name: how it is called, if not as the function.
        delegates: agents that it hands work to and does not name, such as those of a list: their
            models are looked for before anything begins.
        limits: only the seconds matter; a function has no model of its own.
        budget: what one task of it may use together with all below it.
        patience: how long it may show no sign of life.
        on_restart: what becomes of a task of it that a crash interrupts.
        approve: what all who work for it may do with tools.
        workspace: the folder that their tools work in.
        options: these.
    """
    make: Callable[[Callable[..., Any]], Any] = partial(_agent_from, **options)
    return make if function is None else make(function)


def _agent_from(
    function: Callable[..., Awaitable[Any]], *, name: str | None = None, **options: Any
) -> Pipeline[Any, Any]:
    if not inspect.iscoroutinefunction(function):
        raise DefinitionError(
            f"@agent makes an agent of an async function, and {function!r} is none"
        )
    name = function.__name__ if name is None else name
    hints = _hints(name, function)
    taken, call = _input(name, function, hints)
    return Pipeline(
        name,
        instructions=_about(function, taken),
        program=call,
        input=taken,
        output=hints["return"],
        function=function,
        **options,
    )


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as exc:
        raise DefinitionError(f"agent {name!r} has a type hint of which {exc}") from exc
    if "return" not in hints:
        raise DefinitionError(
            f"agent {name!r} does not say what it returns: async def {name}(...) -> str"
        )
    return hints


def _input(
    name: str, function: Callable[..., Awaitable[Any]], hints: Mapping[str, Any]
) -> tuple[Any, Callable[[PipelineContext, Any], Awaitable[Any]]]:
    """Return the type of what a function takes, and how it is called with such a value."""
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind not in ACCEPTED_KINDS:
            raise DefinitionError(
                f"agent {name!r}: {str(parameter)!r} says nothing of what it takes"
            )
        if parameter.name not in hints:
            raise DefinitionError(
                f"agent {name!r}: parameter {parameter.name!r} has no type hint"
            )
    if not parameters:
        return Any, lambda _, __: function()
    required = [it for it in parameters if it.default is it.empty]
    first = parameters[0]
    is_only_one = required in ([], [first]) and first.kind is not first.KEYWORD_ONLY
    if is_only_one:
        taken = hints[first.name]
        _require_readable(name, taken)
        return taken, lambda _, value: function(value)
    return _by_name(name, function, parameters, hints)


def _by_name(
    name: str,
    function: Callable[..., Awaitable[Any]],
    parameters: list[inspect.Parameter],
    hints: Mapping[str, Any],
) -> tuple[Any, Callable[[PipelineContext, Any], Awaitable[Any]]]:
    fields: list[Any] = []
    for parameter in parameters:
        if parameter.kind not in BY_NAME:
            raise DefinitionError(
                f"agent {name!r}: parameter {parameter.name!r} cannot be given by name"
            )
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hints[parameter.name]))
        else:
            # What is left out keeps the default that the function has for it.
            left_out = hints[parameter.name] | msgspec.UnsetType
            fields.append((parameter.name, left_out, msgspec.UNSET))
    try:
        taken = msgspec.defstruct(
            name, fields, kw_only=True, forbid_unknown_fields=True
        )
    except TypeError as exc:
        raise DefinitionError(f"agent {name!r}: {exc}") from exc
    _require_readable(name, taken)

    def call(_: PipelineContext, value: Any) -> Awaitable[Any]:
        given = {it.name: getattr(value, it.name) for it in parameters}
        return function(**{n: it for n, it in given.items() if it is not msgspec.UNSET})

    return taken, call


def _require_readable(name: str, taken: Any) -> None:
    if taken is Any:
        return
    try:
        output_schema(taken)
    except DefinitionError as exc:
        raise DefinitionError(
            f"agent {name!r} takes what JSON cannot carry: {exc.__cause__}"
        ) from exc


def _about(function: Callable[..., Any], taken: Any) -> str:
    """Return what other agents read of a function: what it is for, and what it takes."""
    paragraph, _, _ = (inspect.getdoc(function) or "").partition("\n\n")
    about = " ".join(paragraph.split())
    if taken in {str, Any}:
        return about
    schema = msgspec.json.encode(output_schema(taken)).decode()
    return f"{about} Its goal is nothing but JSON that fits {schema}".strip()
