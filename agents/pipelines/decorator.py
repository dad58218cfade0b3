"""The decorator `@agent`, which makes a pipeline of an async function."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, ParamSpec, Protocol, TypeVar, get_type_hints, overload

import msgspec

from orchestrator.agents.agent import Agent
from orchestrator.agents.approval import ApprovalRule
from orchestrator.agents.budget import Budget
from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.limits import Limits, Patience
from orchestrator.agents.output.pydantic_types import replaced_parts, union_of
from orchestrator.agents.output.typed import output_schema
from orchestrator.agents.pipelines.pipeline import Pipeline, PipelineContext
from orchestrator.agents.tools.task_context import TaskContext, deps_type, is_task_context

P = ParamSpec("P")
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

BY_NAME: Final = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
ACCEPTED_KINDS: Final = {inspect.Parameter.POSITIONAL_ONLY, *BY_NAME}


class AgentDecorator(Protocol):
    """The type of `@agent(...)`."""

    @overload
    def __call__(
        self, function: Callable[[TaskContext[Any]], Coroutine[Any, Any, OutputT]], /
    ) -> Pipeline[object, OutputT]: ...
    @overload
    def __call__(
        self, function: Callable[[TaskContext[Any], InputT], Coroutine[Any, Any, OutputT]], /
    ) -> Pipeline[InputT, OutputT]: ...
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
    function: Callable[[TaskContext[Any]], Coroutine[Any, Any, OutputT]], /
) -> Pipeline[object, OutputT]: ...
@overload
def agent(
    function: Callable[[TaskContext[Any], InputT], Coroutine[Any, Any, OutputT]], /
) -> Pipeline[InputT, OutputT]: ...
@overload
def agent(
    function: Callable[[InputT], Coroutine[Any, Any, OutputT]], /
) -> Pipeline[InputT, OutputT]: ...
@overload
def agent(function: Callable[[], Coroutine[Any, Any, OutputT]], /) -> Pipeline[object, OutputT]: ...
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
    version: str = "",
    approve: Iterable[ApprovalRule] = (),
    workspace: Path | Literal["worktree"] | None = None,
) -> AgentDecorator: ...
def agent(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make an agent of an async function: the tasks that it delegates are its children.

    The agent has the name of the function; the first paragraph of the docstring describes it to
    other agents, and the return type is its output. A function of one `str` gets the goal; any
    other type is parsed from JSON. Several required parameters are fields of one JSON object. If
    the others have defaults, the goal is the value of the first, or such an object. A parameter of
    type `TaskContext[Deps]` is the task, with the dependencies of its run.

    After a crash the function is run again. Tasks that it had delegated are not repeated:
    `delegate` finds their results, and returns at once.

    Args:
        function: what the agent does.
        name: its name, if not that of the function.
        delegates: agents that it delegates to without naming them, such as those of a list:
            their models are looked up before anything begins.
        limits: only the seconds matter; a function has no model of its own.
        budget: what one task of it may use together with all its descendants.
        patience: how long it may make no progress.
        on_restart: what happens to a task that a crash interrupts.
        version: the version of its behaviour; a task goes on only with the version that it began
            with, unless the change is accepted.
        approve: what its descendants may do with tools.
        workspace: the folder that their tools work in.
        options: these.
    """
    make: Callable[[Callable[..., Any]], Any] = partial(_agent_from, **options)
    return make if function is None else make(function)


def _agent_from(
    function: Callable[..., Awaitable[Any]], *, name: str | None = None, **options: Any
) -> Pipeline[Any, Any]:
    if not inspect.iscoroutinefunction(function):
        label = getattr(function, "__name__", repr(function))
        raise DefinitionError(
            f"@agent needs an async function, and {label!r} is not: write `async def`"
        )
    name = function.__name__ if name is None else name
    hints = _hints(name, function)
    contexts = [it for it, hint in hints.items() if is_task_context(hint)]
    input_type, call, by_name = _input(name, function, hints, contexts)
    deps = [deps_type(hints[it]) for it in contexts]
    return Pipeline(
        name,
        instructions=_description(function, input_type),
        program=call,
        input=input_type,
        by_name=by_name,
        output=hints["return"],
        function=function,
        deps=next((it for it in deps if it is not None), None),
        **options,
    )


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as exc:
        raise DefinitionError(f"agent {name!r} has a type hint that cannot be read: {exc}") from exc
    if "return" not in hints:
        raise DefinitionError(
            f"agent {name!r} has no return type: write async def {name}(...) -> str"
        )
    return hints


def _input(
    name: str,
    function: Callable[..., Awaitable[Any]],
    hints: Mapping[str, Any],
    contexts: Sequence[str],
) -> tuple[Any, Callable[[PipelineContext, Any], Awaitable[Any]], type[msgspec.Struct] | None]:
    """Return the input type of a function, a program that calls it with such a value, and the
    object of all parameters that the program takes as well.
    """
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind not in ACCEPTED_KINDS:
            raise DefinitionError(f"agent {name!r}: {str(parameter)!r} cannot be passed by name")
        if parameter.name not in hints:
            raise DefinitionError(f"agent {name!r}: parameter {parameter.name!r} has no type hint")
    parameters = [it for it in parameters if it.name not in contexts]
    function = _with_task(function, contexts) if contexts else _without_task(function)
    if not parameters:
        return Any, lambda context, _: function(context), None
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    first = parameters[0]
    is_only_one = required in ([], [first]) and first.kind is not first.KEYWORD_ONLY
    if not is_only_one:
        input_type, call = _by_name(name, function, parameters, hints)
        return input_type, call, None
    input_type = hints[first.name]
    _require_readable(name, input_type)
    call_with_first = function
    if first.kind is not first.POSITIONAL_ONLY and contexts:
        # By name, since the task may come first.
        first_name = first.name

        def call_with_first(context: PipelineContext, value: Any) -> Awaitable[Any]:
            return function(context, **{first_name: value})

    if len(parameters) == 1 or any(it.kind not in BY_NAME for it in parameters):
        return input_type, call_with_first, None
    fields, call_by_name = _by_name(name, function, parameters, hints)

    def call_with_either(context: PipelineContext, value: Any) -> Awaitable[Any]:
        is_object = isinstance(value, fields)
        return (call_by_name if is_object else call_with_first)(context, value)

    return input_type, call_with_either, fields


def _by_name(
    name: str,
    function: Callable[..., Awaitable[Any]],
    parameters: list[inspect.Parameter],
    hints: Mapping[str, Any],
) -> tuple[type[msgspec.Struct], Callable[[PipelineContext, Any], Awaitable[Any]]]:
    fields: list[Any] = []
    for parameter in parameters:
        if parameter.kind not in BY_NAME:
            raise DefinitionError(
                f"agent {name!r}: parameter {parameter.name!r} cannot be given by name"
            )
        hint: Any = replaced_parts(hints[parameter.name])
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            # A missing field keeps the default of the function.
            optional = union_of((hint, msgspec.UnsetType))
            fields.append((parameter.name, optional, msgspec.UNSET))
    try:
        input_type = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    except TypeError as exc:
        raise DefinitionError(f"agent {name!r}: {exc}") from exc
    _require_readable(name, input_type)

    def call(context: PipelineContext, value: Any) -> Awaitable[Any]:
        fields = {parameter.name: getattr(value, parameter.name) for parameter in parameters}
        return function(
            context, **{name: field for name, field in fields.items() if field is not msgspec.UNSET}
        )

    return input_type, call


def _with_task(
    function: Callable[..., Awaitable[Any]], contexts: Sequence[str]
) -> Callable[..., Awaitable[Any]]:
    """Return a function that gets the context of its pipeline first, and gives it on by name."""

    def call(context: PipelineContext, /, *args: Any, **keywords: Any) -> Awaitable[Any]:
        return function(*args, **keywords, **dict.fromkeys(contexts, context.task))

    return call


def _without_task(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    def call(_: PipelineContext, /, *args: Any, **keywords: Any) -> Awaitable[Any]:
        return function(*args, **keywords)

    return call


def _require_readable(name: str, input_type: Any) -> None:
    if input_type is Any:
        return
    try:
        output_schema(input_type)
    except DefinitionError as exc:
        raise DefinitionError(
            f"agent {name!r} has an input that JSON cannot carry: {exc.__cause__}"
        ) from exc


def _description(function: Callable[..., Any], input_type: Any) -> str:
    """Return the description of a function for other agents: its purpose and its input."""
    paragraph, _, _ = (inspect.getdoc(function) or "").partition("\n\n")
    purpose = " ".join(paragraph.split())
    if input_type in {str, Any}:
        return purpose
    schema = msgspec.json.encode(output_schema(input_type)).decode()
    return f"{purpose} Its goal is nothing but JSON that fits {schema}".strip()
