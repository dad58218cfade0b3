"""The value `TaskContext`: the task of an agent, for the tools and instructions that ask for it.

It has the dependencies that the program has given to the run. They are values of this process: no
fact has them, and a program that goes on after a crash gives them again.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, get_args, get_origin

import msgspec

from orchestrator.agents.errors import DefinitionError

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from orchestrator.agents.tools.evidence import Evidence

    DepsT_co = TypeVarWithDefault("DepsT_co", covariant=True, default=Any)
else:
    DepsT_co = TypeVar("DepsT_co", covariant=True)

_TYPE_MODULES: Final = frozenset({"types", "typing", "typing_extensions"})


class TaskContext(msgspec.Struct, Generic[DepsT_co], frozen=True, kw_only=True):
    """The task of an agent, and the dependencies of its run."""

    agent: str
    goal: str
    path: str
    """The path of its task in the tree, such as `/editor/researcher[3]`."""
    deps: DepsT_co = cast("Any", None)
    """The dependencies that the program gave to the run, `run(..., deps=...)`, or None."""
    evidence: "Evidence | None" = None
    """The effects of its calls so far, for a check of its final answer."""

    def __repr__(self) -> str:
        # Dependencies may hold secrets.
        return f"TaskContext(agent={self.agent!r}, goal={self.goal!r}, path={self.path!r})"


CURRENT_TASK: Final[ContextVar[TaskContext[Any]]] = ContextVar("task context")


def current_task() -> TaskContext[Any]:
    """Return the context of the task whose tool runs here."""
    try:
        return CURRENT_TASK.get()
    except LookupError:
        raise DefinitionError(
            "a tool with a TaskContext runs in the turn of an agent, and no agent runs here"
        ) from None


def is_task_context(hint: Any) -> bool:
    """Return whether a type hint is `TaskContext`, or `TaskContext[...]`."""
    return hint is TaskContext or get_origin(hint) is TaskContext


def deps_type(hint: Any) -> Any:
    """Return the type of the dependencies that a `TaskContext[...]` has; None if it names none."""
    named = next(iter(get_args(hint)), None)
    return None if named is Any or isinstance(named, TypeVar) else named


def is_type(value: object) -> bool:
    """Return whether a value can stand where a type is written, as far as that can be told."""
    if isinstance(value, type | str) or get_origin(value) is not None:
        return True
    return type(value).__module__ in _TYPE_MODULES  # such as a NewType


def is_of_type(value: object, type_: Any) -> bool:
    """Return whether dependencies are of a type, as far as that can be told of a value."""
    try:
        return isinstance(value, get_origin(type_) or type_)
    except TypeError:
        # A protocol that cannot be inspected, or a type that only type checkers know.
        return True


def is_narrower(type_: Any, than: Any) -> bool:
    """Return whether values of one type are of another, as far as that can be told."""
    try:
        return issubclass(get_origin(type_) or type_, get_origin(than) or than)
    except TypeError:
        return True
