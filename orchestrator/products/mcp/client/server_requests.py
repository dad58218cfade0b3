"""Requests of a server to us: the model, a person, the workspace. Only permitted ones are answered.

A server of an earlier protocol does not name the call of its request. So we answer while exactly
one call is under way: no task pays for another's questions.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import mcp_types as types
import trio
from mcp.client.context import ClientRequestContext
from pydantic import FileUrl

from orchestrator.agents import (
    AssistantMessage,
    Message,
    ModelError,
    ToolError,
    UserMessage,
    well_formed,
)
from orchestrator.agents.tools.mcp.call_results import read_blocks
from orchestrator.agents.tools.mcp.json_values import list_in
from orchestrator.agents.tools.mcp.listed_tools import visible_text
from orchestrator.agents.tools.mcp.server import McpServer
from orchestrator.products.mcp.client.server_call import CURRENT, ServerCall

MOST_SAMPLES: Final = 10
"""How often a server may ask the model in one call."""
MOST_QUESTIONS: Final = 5
"""How often it may ask a person in one call."""
LONGEST_MESSAGE: Final = 2_000
AMBIGUOUS: Final = (
    "several calls are under way, and this protocol does not say for which one this is"
)


class ServerRequests:
    """Answers the requests of one server."""

    def __init__(self, server: McpServer, calls: Collection[ServerCall], root: Path) -> None:
        self._server = server
        self._calls = calls
        self._root = root

    def callbacks(self) -> dict[str, Any]:
        """Return the capabilities that the SDK declares for us, with their handlers."""
        named = {
            "sampling_callback": (self._server.sampling, self._sample),
            "elicitation_callback": (self._server.elicitation, self._elicit),
            "list_roots_callback": (self._server.roots, self._list_roots),
        }
        return {name: function for name, (is_named, function) in named.items() if is_named}

    def _call(self) -> ServerCall | None:
        """Return the call of a server's request; None if it is unknown."""
        call = CURRENT.get()
        if call in self._calls:
            return call
        return next(iter(self._calls)) if len(self._calls) == 1 else None

    async def _list_roots(
        self, context: ClientRequestContext
    ) -> types.ListRootsResult | types.ErrorData:
        await trio.lowlevel.checkpoint()
        root = types.Root(uri=FileUrl(self._root.as_uri()), name=self._root.name)
        return types.ListRootsResult(roots=[root])

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        await trio.lowlevel.checkpoint()
        if (call := self._call()) is None:
            return _refusal(AMBIGUOUS)
        if call.samples >= MOST_SAMPLES:
            return _refusal(f"it has asked the model {MOST_SAMPLES} times in this call")
        call.samples += 1
        messages = [_message(it) for it in params.messages]
        try:
            with call.paused():
                answer = await call.caller.sample(
                    well_formed(params.system_prompt or ""), messages, params.max_tokens
                )
        except ToolError as exc:
            return _refusal(str(exc))
        except ModelError as exc:
            return _sampled(exc.partial, "", "maxTokens")
        return _sampled(answer.text, answer.model, "endTurn")

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        await trio.lowlevel.checkpoint()
        declined = types.ElicitResult(action="decline")
        # A person is led to no address that a stranger names.
        if not isinstance(params, types.ElicitRequestFormParams):
            return declined
        if (call := self._call()) is None or call.questions >= MOST_QUESTIONS:
            return declined
        call.questions += 1
        with call.paused():
            content = await call.caller.ask_person(
                call.id,
                call.tool,
                visible_text(params.message, LONGEST_MESSAGE),
                dict(params.requested_schema),
            )
        if content is None:
            return declined
        return types.ElicitResult(action="accept", content=dict(content))


def _sampled(text: str, model: str, stop_reason: str) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text=text)
    return types.CreateMessageResult(
        role="assistant", content=content, model=model, stop_reason=stop_reason
    )


def _message(message: types.SamplingMessage) -> Message:
    content = message.model_dump(mode="json", by_alias=True)["content"]
    texts, parts = read_blocks(list_in(content) or [content])
    text = "\n".join(texts)
    if message.role == "assistant":
        return AssistantMessage(text)
    return UserMessage(text, tuple(parts))


def _refusal(why: str) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message=why)
