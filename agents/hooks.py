"""The value `Hooks`: functions that see, change or refuse requests to models and calls of tools.

Hooks act before the fact, so the journal records their changes. A replay reads the journal and
calls no hook.
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
"""The replacement that a hook returns; None changes nothing."""


def _function(_: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is not None and not callable(value):
        raise DefinitionError(f"Hooks({attribute.name}={value!r}) is not a function")


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
    """Gets the answer and may return another one, also with other calls. The journal records the
    returned answer, and approvals judge its calls. It is not async: an answer is paid for, and
    recorded at once."""
    before_tool: Callable[[TaskContext[DepsT_contra], ToolCall], Awaitable[None] | None] | None = (
        attrs.field(default=None, validator=_function)
    )
    """Gets an approved call that is about to run. A `ToolError` refuses it, and the model reads the
    reason. It cannot change the call."""
    after_tool: (
        Callable[[TaskContext[DepsT_contra], ToolCall, str], Changed[str] | Awaitable[Changed[str]]]
        | None
    ) = attrs.field(default=None, validator=_function)
    """Gets the answer of a tool, and may return another text: the model reads that, and it is
    recorded. A `ToolError` is the answer then."""
