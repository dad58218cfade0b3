"""Runs the tools of agents on a worker: an answer or an error becomes an end that can be sent."""

from collections.abc import Awaitable, Sequence
from typing import Any

from orchestrator.agents import (
    Agent,
    CallKey,
    DefinitionError,
    ModelError,
    Tool,
    ToolError,
    well_formed,
)
from orchestrator.agents.redaction.long_texts import search_ahead
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.ports import execution
from orchestrator.products.cluster.worker import wire
from orchestrator.products.cluster.worker.context import TurnContext, WorkerContexts


class WorkerCalls:
    """Runs calls in the contexts of one worker."""

    def __init__(
        self, catalogue: execution.AgentCatalogue, contexts: WorkerContexts, redactor: Redactor
    ) -> None:
        self._catalogue = catalogue
        self.contexts = contexts
        self._redactor = redactor

    def lineage(self, work: wire.Work | wire.TurnWork) -> Sequence[Agent[Any]]:
        """Return the agents down to the agent of a call; raise `DefinitionError` if it differs."""
        try:
            lineage = self._catalogue.lineage(work.agent)
        except DefinitionError as exc:
            raise DefinitionError(
                f"this worker has not the agent that is wanted, of version {work.version}: {exc}"
            ) from exc
        agent = lineage[-1]
        if (own := execution.fingerprint(agent)) != work.version:
            raise DefinitionError(
                f"this worker has version {own} of agent {agent.name!r}, and {work.version} is"
                " wanted: start it with the file that the run was started with"
            )
        if isinstance(work, wire.Work):
            _tool_of(agent, work.tool)
        return lineage

    async def run(self, work: wire.Work, id_: str, lineage: Sequence[Agent[Any]]) -> wire.CallEnd:
        """Run a call that is lent by itself, in a context of its own."""
        call, tool = wire.call_of(work), _tool_of(lineage[-1], work.tool)

        async def run() -> str | ToolResult:
            async with self.contexts.open_for(work, call, lineage):
                return await tool.run(call)

        return await self._end_of(run(), id_, tool)

    async def run_in(
        self, context: TurnContext, due: wire.DueCall, id_: str, agent: Agent[Any]
    ) -> wire.CallEnd:
        """Run a call of a turn, in the context of the turn."""
        call = wire.call_of(due)
        try:
            tool = _tool_of(agent, due.tool)
        except DefinitionError as exc:
            return wire.Crashed(id_, await self.redacted(str(exc)), expected=True)

        async def run() -> str | ToolResult:
            context.begin_call(call, CallKey(due.key), due.seconds)
            return await tool.run(call)

        return await self._end_of(run(), id_, tool)

    async def _end_of(self, run: Awaitable[str | ToolResult], id_: str, tool: Tool) -> wire.CallEnd:
        """Await a tool; every error of it is an end, as the writer would see it locally."""
        try:
            result = await run
            text = await self.redacted(_text_of(result, tool))
            answered = wire.Answered(id_, text)
            if isinstance(result, ToolResult):
                answered = wire.Answered(id_, text, result.parts, result.evidence)
            return _small(answered, tool)
        except ToolError as exc:
            refused_by = "" if exc.refused_by is None else exc.refused_by.value
            text = await self.redacted(str(exc))
            return _small(wire.Failed(id_, text, refused_by), tool)
        except ModelError as exc:
            # Not the model of this task: for this task it is an error of the tool.
            text = f"RuntimeError: tool {tool.name!r} failed: {exc}"
            return wire.Crashed(id_, await self.redacted(text))
        except execution.EXPECTED_ERRORS as exc:
            return wire.Crashed(
                id_, await self.redacted(execution.describe_error(exc)), expected=True
            )
        except (Exception, BaseExceptionGroup) as exc:  # noqa: BLE001 (a bulkhead)
            text = execution.describe_error(execution.without_cancellations(exc))
            return wire.Crashed(id_, await self.redacted(text))

    async def redacted(self, text: str) -> str:
        """Return a text without the secrets of this process."""
        text = well_formed(text)
        await search_ahead(self._redactor, [text])
        return self._redactor.redact(text)


def _tool_of(agent: Agent[Any], name: str) -> Tool:
    for tool in agent.tools:
        if tool.name == name:
            return tool
    raise DefinitionError(f"agent {agent.name!r} has no tool {name!r} here")


def _small(end: wire.Answered | wire.Failed, tool: Tool) -> wire.CallEnd:
    size = len(end.text.encode())
    if isinstance(end, wire.Answered):
        size += sum(len(part.data) for part in end.parts)
    if size <= wire.MOST_BYTES:
        return end
    return wire.Failed(
        end.dispatch,
        f"{tool.name} was run, and its answer has {size:,} bytes: a worker sends at most"
        f" {wire.MOST_BYTES:,}. Ask it for less, or have it write a file",
    )


def _text_of(result: object, tool: Tool) -> str:
    text = result.text if isinstance(result, ToolResult) else result
    if not isinstance(text, str):
        raise DefinitionError(f"tool {tool.name!r} answered {text!r}, not text")
    return text
