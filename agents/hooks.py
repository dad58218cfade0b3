"""The value `Hooks`: functions that see, change or refuse what goes to models and tools.

They act before the fact: what they change is what is recorded. Nothing that was recorded is shown
to them again, so a replay calls none.
"""

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import attrs

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.messages import AssistantMessage, ToolCall
from orchestrator.agents.models.model import ModelRequest
from orchestrator.agents.tools.task_context import TaskContext

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    DepsT_contra = TypeVarWithDefault("DepsT_contra", contravariant=True, default=Any)
else:
    DepsT_contra = TypeVar("DepsT_contra", contravariant=True)

T = TypeVar("T")
Changed: TypeAlias = T | None
"""What a hook puts in place of what it was given; None leaves that as it is."""


def _function(_: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is not None and not callable(value):
        raise DefinitionError(f"Hooks({attribute.name}={value!r}) is no function")


def _not_async(_: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if iscoroutinefunction(value):
        raise DefinitionError(
            f"Hooks({attribute.name}={value!r}) must not be async: an answer is paid for, and"
            " recorded at once"
        )


@attrs.frozen(kw_only=True)
class Hooks(Generic[DepsT_contra]):
    """Functions around the model calls and the tools of an agent, each with the task first.

    An error in a hook ends the task, as an error in a tool does.
    """

    before_model: (
        Callable[
            [TaskContext[DepsT_contra], ModelRequest],
            Changed[ModelRequest] | Awaitable[Changed[ModelRequest]],
        ]
        | None
    ) = attrs.field(default=None, validator=_function)
    """Gets the request, and may return another one. No fact has it."""
    after_model: (
        Callable[[TaskContext[DepsT_contra], AssistantMessage], Changed[AssistantMessage]] | None
    ) = attrs.field(default=None, validator=[_function, _not_async])
    """Gets the answer, and may return another one, with other calls too: that is recorded, and its
    calls are what is approved. Not async: an answer is paid for, and recorded at once."""
    before_tool: Callable[[TaskContext[DepsT_contra], ToolCall], Awaitable[None] | None] | None = (
        attrs.field(default=None, validator=_function)
    )
    """Gets a call that is approved and about to run; a `ToolError` refuses it, and the model reads
    why. It changes nothing: what runs is what was approved."""
    after_tool: (
        Callable[[TaskContext[DepsT_contra], ToolCall, str], Changed[str] | Awaitable[Changed[str]]]
        | None
    ) = attrs.field(default=None, validator=_function)
    """Gets the answer of a tool, and may return another text: the model reads that, and it is
    recorded. A `ToolError` is the answer then."""
