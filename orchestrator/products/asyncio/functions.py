"""Asyncio functions for agents: tools and models.

They run in the loop that opened the orchestrator.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any, overload

import trio
from msgspec.structs import replace

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
    """Make a tool from an asyncio function, its type hints and its docstring.

    It runs in the loop that opened the orchestrator, and is cancelled with its task. A plain
    function runs in a thread, as with `orchestrator.tool`.

    Args:
        function: the function that the tool calls.
        options: the options of `orchestrator.tool`.
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
    """A model that calls an asyncio function."""

    def __init__(
        self, answer: Callable[[ModelRequest], Awaitable[AssistantMessage | str]], *, name: str
    ) -> None:
        self._answer = answer
        self.name = name

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        """Return the answer of the function."""
        trio_thread = trio.lowlevel.current_trio_token()

        def tell(event: ModelEvent) -> None:
            trio_thread.run_sync_soon(request.tell, event)

        # This runs in another thread, which cannot reserve further calls in trio's.
        asked = replace(request, tell=tell, attempts=None)
        answer = await run_in_asyncio(self._answer, asked)
        return AssistantMessage(answer) if isinstance(answer, str) else answer


def model(
    answer: Callable[[ModelRequest], Awaitable[AssistantMessage | str]], *, name: str = ""
) -> FunctionModel:
    """Make a model from an asyncio function that answers a request with a message or a text.

    `request.tell(TextDelta(...))` streams, as in any model.

    Args:
        answer: the function that answers.
        name: the name of the model in reports and prices; by default the function's name.
    """
    return FunctionModel(answer, name=name or getattr(answer, "__name__", "function"))
