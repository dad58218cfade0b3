"""The base of models whose calls wait in a queue: the outermost one describes and counts a call."""

from abc import abstractmethod

import trio
from msgspec.structs import replace

from orchestrator.agents.messages import AssistantMessage
from orchestrator.agents.models.call_order import Call, RunWork
from orchestrator.agents.models.call_queue import CallQueue
from orchestrator.agents.models.model import Model, ModelRequest
from orchestrator.agents.models.prompt_prefix import prefix_name, shared_context
from orchestrator.agents.models.token_estimate import (
    CHARACTERS_PER_TOKEN,
    OUTPUT_ALLOWANCE,
    message_length,
)
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper


class QueuedModel(ModelWrapper):
    """Asks another model once the call has waited in a queue."""

    def __init__(self, model: Model, queue: CallQueue) -> None:
        super().__init__(model)
        self._queue = queue

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        if (call := request.call) is not None:
            return await self.answer_call(request, call)
        size = _size(request)
        tokens = size // CHARACTERS_PER_TOKEN + OUTPUT_ALLOWANCE
        call = Call(RunWork(begun=trio.current_time()))
        call.tokens = tokens
        if self._queue.watches(call):
            if (caller := request.caller) is not None:
                call = caller.queued_call(size)
                call.caller = caller
                call.tokens = tokens
            call.provider = self.name.partition(":")[0]
            if shared := shared_context(request):
                call.prefix = prefix_name(shared)
        try:
            return await self.answer_call(replace(request, call=call), call)
        finally:
            self.end_call(request, call)

    @abstractmethod
    async def answer_call(self, request: ModelRequest, call: Call) -> AssistantMessage: ...

    def end_call(self, request: ModelRequest, call: Call) -> None:
        """Count a call as ended, unless it is counted."""
        seconds = call.end(trio.current_time())
        if seconds is not None and call.caller is not None:
            call.caller.ended_call(_size(request), seconds)


def _size(request: ModelRequest) -> int:
    return len(request.instructions) + request.transcript.total(message_length)
