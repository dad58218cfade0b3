"""A worker: runs the calls that writers lend it, each in a context of its own.

It asks before it begins and says how it ended, and acts on the world only in between. Its beats
come from this very loop: a worker that hangs is not alive. What it holds is in its beats from
before the first question until the end is taken.
"""

import math
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any, Final, NoReturn, assert_never

import trio

from agents import (
    Agent,
    DefinitionError,
    ModelError,
    Tool,
    ToolError,
    raising_one_error,
    well_formed,
)
from agents.redaction.long_texts import search_ahead
from agents.redaction.redactor import Redactor
from agents.tools.result_text import ToolResult
from orchestrator.execution.agent_catalogue import AgentCatalogue, fingerprint
from orchestrator.execution.outcomes import (
    EXPECTED_ERRORS,
    describe_error,
    without_cancellations,
)
from orchestrator.execution.worker_context import WorkerContexts
from orchestrator.execution.worker_wire import (
    BEGIN,
    END,
    MOST_BYTES,
    Answered,
    Begin,
    Crashed,
    End,
    Failed,
    Fenced,
    Later,
    Stopped,
    Taken,
    Unfit,
    Work,
    call_of,
    encoded,
    reply_in,
    run_id,
)
from orchestrator.workers import (
    Beat,
    Delivery,
    Dispatch,
    Exchange,
    Request,
    RunId,
    WorkerId,
    WorkerMailbox,
)

LEASE_SECONDS: Final = 10.0
"""How long a worker is taken for alive after a beat."""
BEATS_A_LEASE: Final = 4
BEGIN_SECONDS: Final = 60.0
"""How long a worker asks a writer that may be gone for good, before it frees the slot. A writer
that is back sends the call again."""
KEPT_SECONDS: Final = 24 * 3600.0
"""How long it offers an end that no writer takes."""
STOOD_STILL: Final = "the worker stood still for too long"
ENDING: Final = "the worker is ending"
GOODBYE_SECONDS: Final = 3.0
"""How long a worker that must end at once takes to say how its calls ended."""


class Worker:
    """Runs the calls of one place."""

    def __init__(
        self,
        exchange: Exchange,
        mailbox: WorkerMailbox,
        catalogue: AgentCatalogue,
        contexts: WorkerContexts,
        redactor: Redactor,
        *,
        id: WorkerId,  # noqa: A002 (the word of the domain)
        host: str,
        place: str,
        slots: int,
        lease: float = LEASE_SECONDS,
        tell: Callable[[str], None],
    ) -> None:
        """Run calls.

        Args:
            exchange: brings dispatches, and tells that it is alive.
            mailbox: its own, which carries what is said about them.
            catalogue: finds agents.
            contexts: opens the contexts of calls.
            redactor: removes the secrets of this process from what tools answer.
            id: which no other worker has.
            host: the machine.
            place: whose calls it runs.
            slots: how many at once.
            lease: for how long it is taken for alive after a beat.
            tell: shows a line to the person who runs it.
        """
        self._exchange = exchange
        self._mailbox = mailbox
        self._catalogue = catalogue
        self._contexts = contexts
        self._redactor = redactor
        self._id = id
        self._host = host
        self._place = place
        self._slots = slots
        self._lease = lease
        self._tell = tell
        self._runs: set[RunId] = set()
        """What it holds."""
        self._running = 0
        self._alive_until = math.inf
        """Until when it is taken for alive."""
        self._receiving = trio.CancelScope()
        self._told: set[str] = set()

    @property
    def running(self) -> int:
        """The number of tools that run now."""
        return self._running

    def drain(self) -> None:
        """Take nothing new; `run` returns when all that runs has ended and was taken."""
        self._receiving.cancel(reason="the worker is drained")

    async def run(self) -> None:
        """Run calls until it is drained. Cancelled, it ends them, and says so."""
        try:
            with raising_one_error():
                async with trio.open_nursery() as beats:
                    await self._beat()
                    beats.start_soon(self._beat_forever)
                    await self._receive()
                    beats.cancel_scope.cancel(reason="all runs have ended")
        finally:
            with trio.move_on_after(GOODBYE_SECONDS, shield=True):
                await self._exchange.presence.leave(self._id)

    async def _receive(self) -> None:
        receive = self._exchange.queue.receive(self._id, self._place, self._slots)
        with raising_one_error():
            async with receive as deliveries:
                # Owns every run. What is unfinished when it ends is given back.
                async with trio.open_nursery() as runs:
                    with self._receiving:
                        async for delivery in deliveries:
                            runs.start_soon(self._run, delivery)

    async def _beat_forever(self) -> NoReturn:
        while True:
            await trio.sleep(self._lease / BEATS_A_LEASE)
            await self._beat()

    async def _beat(self) -> None:
        beat = Beat(
            worker=self._id,
            host=self._host,
            place=self._place,
            slots=self._slots,
            version=self._catalogue.version,
            runs=frozenset(self._runs),
        )
        began = trio.current_time()
        await self._exchange.presence.beat(beat, seconds=self._lease)
        self._alive_until = began + self._lease

    async def _run(self, delivery: Delivery) -> None:
        dispatch = delivery.dispatch
        run = run_id(dispatch, token_hex(8))
        self._runs.add(run)
        # True until it has begun: then that it was stopped, unless it has ended.
        end: End = Unfit(dispatch.id, ENDING)
        has_ended = False
        try:
            work = await self._ask_to_begin(dispatch, run)
            if work is not None:
                end = Stopped(dispatch.id)
                end = await self._end_of(work, dispatch, run)
            # The slot is free; what is left is to be believed.
            await delivery.finish()
            if work is not None:
                await self._say(dispatch, run, end)
            has_ended = True
        finally:
            if not has_ended:
                # All ends at once: the writer learns that nothing of this runs any more.
                with trio.move_on_after(GOODBYE_SECONDS, shield=True):
                    await self._say(dispatch, run, end)
            self._runs.remove(run)
            self._mailbox.forget(run)

    async def _ask_to_begin(self, dispatch: Dispatch, run: RunId) -> Work | None:
        question = Begin(dispatch.id, dispatch.attempt, dispatch.place)
        reply = None
        with trio.move_on_after(BEGIN_SECONDS):
            reply = reply_in(
                await self._mailbox.ask(
                    Request(dispatch.journal, self._id, run, BEGIN, encoded(question))
                )
            )
        match reply:
            case Work():
                return reply
            case None | Fenced() | Later() | Taken():
                return None
            case _:
                assert_never(reply)

    async def _say(self, dispatch: Dispatch, run: RunId, end: End) -> None:
        """Tell how a run has ended, until a writer has it in its journal or does not want it."""
        request = Request(dispatch.journal, self._id, run, END, encoded(end))
        with trio.move_on_after(KEPT_SECONDS):
            await self._mailbox.ask(request)

    async def _end_of(self, work: Work, dispatch: Dispatch, run: RunId) -> End:
        """Run a call to its end, or until the writer stops it."""
        await trio.lowlevel.checkpoint()
        id_ = dispatch.id
        if trio.current_time() > self._alive_until:
            # It stood still, and the writer has given this run up, or will.
            return Unfit(id_, STOOD_STILL)
        try:
            lineage, tool = self._found(work)
        except DefinitionError as exc:
            self._tell_once(f"{work.path}: {exc}")
            return Unfit(id_, str(exc))
        end: End = Stopped(id_)
        self._running += 1
        try:
            with raising_one_error():
                async with trio.open_nursery() as nursery:
                    scope = trio.CancelScope()
                    nursery.start_soon(self._stop_when_told, run, scope)
                    with scope:
                        end = await self._called(work, id_, lineage, tool)
                    nursery.cancel_scope.cancel(reason="the call has ended")
        finally:
            self._running -= 1
        return end

    def _found(self, work: Work) -> tuple[Sequence[Agent[Any]], Tool]:
        try:
            lineage = self._catalogue.lineage(work.agent)
        except DefinitionError as exc:
            raise DefinitionError(
                f"this worker has not the agent that is wanted, of version {work.version}: {exc}"
            ) from exc
        agent = lineage[-1]
        if (own := fingerprint(agent)) != work.version:
            raise DefinitionError(
                f"this worker has version {own} of agent {agent.name!r}, and {work.version} is"
                " wanted: start it with the file that the run was started with"
            )
        for tool in agent.tools:
            if tool.name == work.tool:
                return lineage, tool
        raise DefinitionError(f"agent {agent.name!r} has no tool {work.tool!r} here")

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._tell(line)

    async def _stop_when_told(self, run: RunId, scope: trio.CancelScope) -> None:
        await self._mailbox.wait_stopped(run)
        scope.cancel(reason="the writer has stopped it")

    async def _called(
        self, work: Work, id_: str, lineage: Sequence[Agent[Any]], tool: Tool
    ) -> End:
        """Run the tool; every error of it is an end, as the writer would see it locally."""
        call = call_of(work)
        try:
            async with self._contexts.open_for(work, call, lineage):
                result = await tool.run(call)
            text = await self._redacted(_text_of(result, tool))
            return self._small(Answered(id_, text), tool)
        except ToolError as exc:
            refused_by = "" if exc.refused_by is None else exc.refused_by.value
            text = await self._redacted(str(exc))
            return self._small(Failed(id_, text, refused_by), tool)
        except ModelError as exc:
            # Not the model of this task: for this task it is an error of the tool.
            text = f"RuntimeError: tool {tool.name!r} failed: {exc}"
            return Crashed(id_, await self._redacted(text))
        except EXPECTED_ERRORS as exc:
            return Crashed(
                id_, await self._redacted(describe_error(exc)), expected=True
            )
        except (Exception, BaseExceptionGroup) as exc:  # noqa: BLE001 (a bulkhead)
            text = describe_error(without_cancellations(exc))
            return Crashed(id_, await self._redacted(text))

    async def _redacted(self, text: str) -> str:
        text = well_formed(text)
        await search_ahead(self._redactor, [text])
        return self._redactor.redact(text)

    def _small(self, end: Answered | Failed, tool: Tool) -> End:
        size = len(end.text.encode())
        if size <= MOST_BYTES:
            return end
        return Failed(
            end.dispatch,
            f"{tool.name} was run, and its answer has {size:,} bytes: a worker sends at most"
            f" {MOST_BYTES:,}. Ask it for less, or have it write a file",
        )


def _text_of(result: object, tool: Tool) -> str:
    text = result.text if isinstance(result, ToolResult) else result
    if not isinstance(text, str):
        raise DefinitionError(f"tool {tool.name!r} answered {text!r}, not text")
    return text
