"""The value `Tool`, and the decorator that makes one of a plain function.

A tool gets the whole call, so that it can distinguish two equal calls by their id. It raises
`ToolError` for errors that the model should read; any other exception ends the task.
"""

import inspect
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from copy import deepcopy
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
    overload,
)

import attrs
import msgspec
import trio
from msgspec.structs import replace

from orchestrator.agents.errors import DefinitionError, ToolError
from orchestrator.agents.messages import ToolCall
from orchestrator.agents.output import pydantic_types
from orchestrator.agents.output.codec import plain, with_shared_definitions
from orchestrator.agents.tools import result_text
from orchestrator.agents.tools.place_name import require_place_name
from orchestrator.agents.tools.task_context import current_task, deps_type, is_task_context
from orchestrator.agents.tools.text_input import TextInput
from orchestrator.agents.type_checks import has_type
from orchestrator.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from orchestrator.agents.tools import long_results

ArgumentsT = TypeVar("ArgumentsT")
CallKey = NewType("CallKey", str)
"""The stable name of one call: the type of a parameter that no model fills in.

A call that a crash interrupted is repeated under the same key, so a tool that passes the key on to
a service (`Idempotency-Key: ...`) has the work done once.
"""
CURRENT_CALL_KEY: Final[ContextVar[CallKey]] = ContextVar("call key")
SECONDS_LEFT: Final[ContextVar[float]] = ContextVar("seconds left", default=math.inf)
"""The rest of a tool's timeout: a call that runs elsewhere has already waited."""
AsyncFunction: TypeAlias = Callable[..., Awaitable[Any]]
MachineUse: TypeAlias = Literal["read", "write", "command", "job", "other"]
"""The effect of a call on the machine: it reads or writes files of the workspace, runs a command in
the sandbox of its task, sets a job that comes again and again, or does anything else.
"""

# All providers accept these names.
NAME: Final = lazy_pattern(r"[A-Za-z0-9_-]{1,64}")

# Longer results would fill a model's window: 50,000 characters are some 12,000 tokens.
CHARACTERS: Final = 50_000
THREADS: Final = 40
# A thread cannot be stopped. When its task is cancelled, it has this long to finish.
GRACE_SECONDS: Final = 5
# Above this, floats skip whole numbers.
EXACT: Final = 2**53


@attrs.frozen(kw_only=True, slots=False)  # each turn of a parent makes two: slots are slower
class Tool:
    """A tool: its description for the model, and the function that runs a call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """The JSON schema of the arguments."""
    run: Callable[[ToolCall], Awaitable[str | result_text.ToolResult]]
    idempotent: bool = False
    """Safe to run again when a crash leaves it unknown whether it ran."""
    takes_call_key: bool = False
    """It gets the key of its call."""
    takes_context: bool = False
    """It gets the `TaskContext` of its task."""
    deps: Any = None
    """The type of the dependencies that it needs; None if it names none."""
    acts_outside: bool = True
    """It reads or changes something outside the journal, so it runs when the call is durable."""
    runs_at_caller: bool = False
    """The client of the session runs it: a call ends the turn, and the client sends the answer."""
    gives_answer: Callable[[ToolCall], bool] | None = None
    """Tells whether the result of a call is the agent's final answer: the turn ends with it, if it
    is the only call of its answer and does not fail."""
    machine: MachineUse | Callable[[ToolCall], MachineUse | None] | None = None
    """The effect of a call on the machine, which decides whether an agent without approval rules
    may make it; None needs no approval."""
    place: str = ""
    """Where its calls run: at the workers of that name; empty is here."""
    timeout: float | None = None
    """The seconds after which a call has no answer."""
    server: str = ""
    """The name of the server that it is a tool of; empty is none."""
    task: Any = None
    """The task that a call delegates, if the tool is an agent: `Agent.as_tool` sets it."""
    text_input: TextInput | None = None
    """It takes one text, under the name `INPUT`: a provider that has custom tools gets it as one,
    and any other as a function of that text."""

    def __attrs_post_init__(self) -> None:
        # Most tools have none.
        if self.place:
            require_place_name(self.place, f"tool {self.name!r}")

    def machine_use(self, call: ToolCall) -> MachineUse | None:
        """Return the effect of a call on the machine."""
        return self.machine(call) if callable(self.machine) else self.machine


def is_custom(name: str | None, tools: Sequence[Tool]) -> bool:
    """Return whether the tool of this name takes one text."""
    return any(it.name == name and it.text_input is not None for it in tools)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    idempotent: bool = False,
    timeout: float | None = None,
    limit: int = CHARACTERS,
    spill: "long_results.Spill | None" = None,
    machine: MachineUse | None = None,
    place: str = "",
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    idempotent: bool = False,
    timeout: float | None = None,
    limit: int = CHARACTERS,
    spill: "long_results.Spill | None" = None,
    machine: MachineUse | None = None,
    place: str = "",
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, sync or async, from its type hints and docstring.

    A sync function runs in a worker thread. When its task is cancelled, the function has 5 seconds
    to end, with or without a timeout; then it is abandoned and its result ignored. The return value
    is the answer: a text unchanged, and any other value as JSON. A parameter of type
    `TaskContext[Deps]` is not an argument: it receives the task, with the dependencies of its run.

    Args:
        function: the function that the tool calls.
        name: its name for the model, if it differs from the function's.
        idempotent: it is safe to run it again when a crash leaves it unknown whether it ran. A
            tool with a parameter of type `CallKey` is.
        timeout: the seconds after which the model reads that there is no answer. An async function
            is cancelled; a thread cannot be, so it is abandoned at once.
        limit: the most characters of an answer; of a longer one the model reads the beginning, the
            end, and the file of the whole text. 0 means no limit.
        spill: the folder of such files, if not the temporary one.
        machine: its effect on the machine, which an agent without approval rules must ask for:
            `"read"` and `"write"` are for files of the workspace, `"command"` for commands in the
            sandbox of the task, `"other"` for everything else.
        place: run its calls at the workers of this name (`orchestrator worker --place`), which
            the writer of a journal in Postgres lends them to; by default they run here. The
            timeout counts from the call on, also while it waits for a worker.
    """
    make = partial(
        _tool_from,
        name=name,
        idempotent=idempotent,
        timeout=timeout,
        limit=limit,
        spill=spill,
        machine=machine,
        place=place,
    )
    return make if function is None else make(function)


def _tool_from(
    function: Callable[..., Any],
    *,
    name: str | None,
    idempotent: bool,
    timeout: float | None,
    limit: int,
    spill: "long_results.Spill | None",
    machine: MachineUse | None,
    place: str,
) -> Tool:
    if isinstance(function, type | partial) or not hasattr(function, "__name__"):
        raise DefinitionError(
            f"{function!r} cannot be a tool, because it is not a function: write one with"
            " type hints that calls it"
        )
    name = name if name is not None else function.__name__
    _require_valid(name, timeout, limit, machine)
    description, parameter_docs = _documentation(function)
    arguments, given = _arguments_type(name, function, parameter_docs)
    if given.contexts and place:
        raise DefinitionError(
            f"tool {name!r} takes a TaskContext, which is a value of this process, and runs at"
            f" {place!r}: pass the values that it needs as arguments"
        )
    called = _with_timeout(name, function, timeout)

    async def run(call: ToolCall) -> str | result_text.ToolResult:
        values = read_arguments(call, arguments)
        keywords = {field: getattr(values, field) for field in arguments.__struct_fields__}
        if given.keys:
            keywords |= dict.fromkeys(given.keys, CURRENT_CALL_KEY.get(CallKey("")))
        if given.contexts:
            keywords |= dict.fromkeys(given.contexts, current_task())
        try:
            result = await called(**keywords)
            files = result_text.with_parts(result)
            text = result_text.as_text(name, result) if files is None else files.text
        except ToolError as exc:
            if is_short(str(exc)):
                raise
            raise ToolError(await _shortened(str(exc), limit, spill)) from exc
        if not is_short(text):
            text = await _shortened(text, limit, spill)
        return text if files is None else replace(files, text=text)

    def is_short(text: str) -> bool:
        return not limit or len(text) <= limit

    return Tool(
        name=name,
        description=description,
        parameters=arguments_schema(arguments),
        run=run,
        idempotent=idempotent or bool(given.keys),
        takes_call_key=bool(given.keys),
        takes_context=bool(given.contexts),
        deps=given.deps,
        machine=machine,
        place=place,
        timeout=timeout,
    )


def _shortened(text: str, limit: int, spill: "long_results.Spill | None") -> Awaitable[str]:
    # Imported late: few results are long.
    from orchestrator.agents.tools.long_results import shortened_and_saved

    return shortened_and_saved(text, limit, spill)


RESERVED_NAME: Final = "delegate_task"
"""The tool that the delegates of an agent bring."""


def _require_valid(
    name: str, timeout: float | None, limit: int, machine: MachineUse | None
) -> None:
    if not has_type(name, str) or not NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} cannot be the name of a tool: models write it, so it has 1 to 64 of"
            " the letters a to z, digits, '-' and '_'"
        )
    if name == RESERVED_NAME:
        raise DefinitionError(
            f"{name!r} cannot be the name of a tool: agents with delegates have one of that name;"
            " give the function another name, or @tool(name=...)"
        )
    if timeout is not None and not (has_type(timeout, int, float) and timeout > 0):
        raise DefinitionError(f"tool {name!r}: its timeout of {timeout!r} s is not a time")
    if machine is not None and machine not in get_args(MachineUse):
        known = ", ".join(map(repr, get_args(MachineUse)))
        raise DefinitionError(f"tool {name!r}: machine={machine!r} must be one of {known}")
    if not has_type(limit, int, float) or limit < 0:
        raise DefinitionError(f"tool {name!r}: no answer has {limit!r} characters")


def _with_timeout(name: str, function: Callable[..., Any], seconds: float | None) -> AsyncFunction:
    is_async = inspect.iscoroutinefunction(function)
    if seconds is None:
        return function if is_async else _in_a_thread(function, trio.to_thread.run_sync)

    async def in_time(called: AsyncFunction, /, *args: Any, **keywords: Any) -> Any:
        # Not `fail_after`: a TooSlowError of the function itself is an error of its own.
        with trio.move_on_after(min(seconds, SECONDS_LEFT.get())):
            return await called(*args, **keywords)
        raise ToolError(
            f"{name} did not answer within {seconds:g} second{'s' * (seconds != 1)} and was"
            + (
                " stopped; ask it for less, or go on without it"
                if is_async
                else " abandoned; it may still be running, and its effects may still happen"
            )
        )

    if is_async:
        return partial(in_time, function)
    # The timeout is inside, since a thread that is too slow has no grace.
    return _in_a_thread(function, partial(in_time, trio.to_thread.run_sync))


def _in_a_thread(function: Callable[..., Any], run_in_thread: AsyncFunction) -> AsyncFunction:
    # An abandoned thread holds its slot until it ends. So each tool has slots of its own:
    # however many of its calls hang, the journal still finds a thread to write in.
    slots: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("thread slots")

    async def call(**keywords: Any) -> Any:
        try:
            limiter = slots.get()
        except LookupError:
            limiter = trio.CapacityLimiter(THREADS)
            slots.set(limiter)
        slot = _ThreadSlot(limiter)
        try:
            return await run_in_thread(
                partial(function, **keywords), abandon_on_cancel=True, limiter=slot
            )
        except trio.Cancelled:
            if slot.is_taken:
                with trio.move_on_after(GRACE_SECONDS, shield=True):
                    await slot.ended.wait()
            raise

    return call


class _ThreadSlot:
    """A limiter for one thread, which knows when that has ended.

    Trio acquires it just before it starts a thread, and releases it when the thread has ended,
    abandoned or not.
    """

    def __init__(self, limiter: trio.CapacityLimiter) -> None:
        self._limiter = limiter
        self.is_taken = False
        self.ended = trio.Event()

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._limiter.acquire_on_behalf_of(borrower)
        self.is_taken = True

    def release_on_behalf_of(self, borrower: object) -> None:
        self._limiter.release_on_behalf_of(borrower)
        self.ended.set()


def arguments_schema(arguments: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the JSON schema of a type of arguments, without the title: a tool has a name."""
    schema = msgspec.json.schema(arguments, schema_hook=pydantic_types.part_schema)
    # msgspec puts the type itself among the definitions.
    name = schema.pop("$ref").rpartition("/")[2]
    own = schema["$defs"].pop(name)
    del own["title"]
    return with_shared_definitions({**own, "$defs": schema["$defs"]})


def read_arguments(call: ToolCall, arguments: type[ArgumentsT]) -> ArgumentsT:
    """Return the arguments of a call, or raise a `ToolError` that names the problems."""
    try:
        # In JSON every key is a string, also where the tool wants a number.
        return _converted(call.arguments, arguments)
    except msgspec.ValidationError as exc:
        # JSON has one type of numbers, and some models write 1.0 for 1.
        with suppress(msgspec.ValidationError):
            whole = _with_whole_numbers(call.arguments)
            return _converted(whole, arguments)
        raise ToolError(f"the arguments of {call.name} do not fit: {exc}") from exc


def _converted(value: object, arguments: type[ArgumentsT]) -> ArgumentsT:
    return msgspec.convert(value, arguments, str_keys=True, dec_hook=pydantic_types.convert_part)


def _with_whole_numbers(value: object) -> object:
    if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT:
        return int(value)
    if isinstance(value, list):
        return [_with_whole_numbers(item) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return {key: _with_whole_numbers(item) for key, item in items}
    return value


def _documentation(function: Callable[..., Any]) -> tuple[str, Mapping[str, str]]:
    # Imported late: half of the programs that import us define no tool.
    import docstring_parser

    parsed = docstring_parser.parse(inspect.getdoc(function) or "")
    return (parsed.description or "").strip(), {
        parameter.arg_name: parameter.description or "" for parameter in parsed.params
    }


def _arguments_type(
    name: str, function: Callable[..., Any], parameter_docs: Mapping[str, str]
) -> tuple[type[msgspec.Struct], "_GivenParameters"]:
    """Return the type that a model fills in, and the parameters that it does not fill in."""
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except NameError as exc:
        raise DefinitionError(f"tool {name!r} has a type hint that cannot be read: {exc}") from exc
    except ValueError as exc:
        raise DefinitionError(f"tool {name!r} does not name its parameters: {exc}") from exc
    given = _GivenParameters(
        keys=[it.name for it in parameters if hints.get(it.name) is CallKey],
        contexts={
            it.name: hints[it.name] for it in parameters if is_task_context(hints.get(it.name))
        },
    )
    try:
        arguments = msgspec.defstruct(
            name,
            [
                _field(name, parameter, hints, parameter_docs)
                for parameter in parameters
                if parameter.name not in (*given.keys, *given.contexts)
            ],
            kw_only=True,
            forbid_unknown_fields=True,
        )
        arguments_schema(arguments)
    except (TypeError, NameError) as exc:
        raise DefinitionError(
            f"tool {name!r} has a parameter that JSON cannot carry: {exc}"
        ) from exc
    return arguments, given


class _GivenParameters(msgspec.Struct, frozen=True):
    """The parameters of a tool that no model fills in."""

    keys: Sequence[str]
    """They get the key of the call."""
    contexts: Mapping[str, Any]
    """They get the context of the task, by type hints."""

    @property
    def deps(self) -> Any:
        """The type of the dependencies in these contexts."""
        named = [deps_type(hint) for hint in self.contexts.values()]
        return next((it for it in named if it is not None), None)


def _field(
    name: str,
    parameter: inspect.Parameter,
    hints: Mapping[str, Any],
    parameter_docs: Mapping[str, str],
) -> Any:
    if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
        raise DefinitionError(
            f"tool {name!r}: parameter {str(parameter)!r} cannot be given by name"
        )
    if parameter.name not in hints:
        raise DefinitionError(f"tool {name!r}: parameter {parameter.name!r} has no type hint")
    hint: Any = pydantic_types.replaced_parts(hints[parameter.name])
    is_pydantic = pydantic_types.is_part(hint)
    if description := parameter_docs.get(parameter.name):
        hint = Annotated[hint, msgspec.Meta(description=description)]
    default = parameter.default
    if default is parameter.empty:
        return parameter.name, hint
    if isinstance(default, Hashable) and not is_pydantic:
        return parameter.name, hint, default
    # A mutable default is copied for each call; msgspec's schema omits a default factory.
    shown = {"default": plain(default)}
    hint = Annotated[hint, msgspec.Meta(extra_json_schema=shown)]
    field = msgspec.field(default_factory=partial(deepcopy, default))
    return parameter.name, hint, field
