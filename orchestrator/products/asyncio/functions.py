"""Functions of asyncio for agents: tools, and models that are one function.

They run in the loop that opened the orchestrator, wherever trio calls them.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any, overload

import attrs
import trio

from orchestrator.agents import AssistantMessage, ModelEvent, ModelRequest, Tool
from orchestrator.agents import tool as trio_tool
from orchestrator.products.asyncio.owner_loop import run_in_asyncio


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(**options: Any) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Any
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of an asyncio function, from its type hints and docstring.

    It runs in the loop that opened the orchestrator, and is cancelled with its task. A plain
    function runs in a thread, as with `orchestrator.tool`.

    Args:
        function: what the tool does.
        options: those of `orchestrator.tool`.
    """
    if function is None:
        return partial(_tool_from, options)
    return _tool_from(options, function)


def _tool_from(options: dict[str, Any], function: Callable[..., Any]) -> Tool:
    make: Callable[[Callable[..., Any]], Tool] = trio_tool(**options)
    if not inspect.iscoroutinefunction(function):
        return make(function)

    @wraps(function)
    async def call(*args: Any, **keywords: Any) -> Any:
        return await run_in_asyncio(function, *args, **keywords)

    return make(call)


class FunctionModel:
    """A model that is a function of asyncio."""

    def __init__(
        self, answer: Callable[[ModelRequest], Awaitable[AssistantMessage | str]], *, name: str
    ) -> None:
        self._answer = answer
        self.name = name

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        """Answer with what the function returns."""
        trio_thread = trio.lowlevel.current_trio_token()

        def tell(event: ModelEvent) -> None:
            trio_thread.run_sync_soon(request.tell, event)

        # Another thread: what trio pays for further calls cannot be asked there.
        asked = attrs.evolve(request, tell=tell, attempts=None)
        answer = await run_in_asyncio(self._answer, asked)
        return AssistantMessage(answer) if isinstance(answer, str) else answer


def model(
    answer: Callable[[ModelRequest], Awaitable[AssistantMessage | str]], *, name: str = ""
) -> FunctionModel:
    """Make a model of an asyncio function that answers a request with a message or a text.

    `request.tell(TextDelta(...))` streams, as in any model.

    Args:
        answer: gives the answer.
        name: how reports and prices call the model; by default the function's name.
    """
    return FunctionModel(answer, name=name or getattr(answer, "__name__", "function"))
