"""Tasks of a server: a call that it goes on with by itself, and that is asked about later.

The id of a task is durable before the first question, so a process that dies finds it again. It is
cancelled with the task of ours that called.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, NoReturn

import mcp_types as types
import trio
from mcp.client import ClientExtension
from mcp.client.extension import ClaimContext, ResultClaim
from mcp.client.session import ClientRequestContext, ClientSession
from pydantic import ConfigDict, TypeAdapter, ValidationError

from orchestrator.agents.tools.mcp.json_values import object_in

TASKS: Final = "io.modelcontextprotocol/tasks"
SHORTEST_INTERVAL: Final = 0.05
LONGEST_INTERVAL: Final = 60.0
USUAL_INTERVAL: Final = 1.0
"""How many seconds pass between two questions, if the server does not say."""
_INPUT_REQUESTS: Final = TypeAdapter(dict[str, types.InputRequest])


class CreateTaskResult(types.Result):
    """The answer to a call that has become a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    poll_interval_ms: float | None = None


class TaskParams(types.RequestParams):
    """The id of a task."""

    task_id: str


class UpdateParams(TaskParams):
    """The task, and its question."""

    input_responses: dict[str, Any]


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    """Asks how far a task has come."""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"


class CancelTask(types.Request[TaskParams, Literal["tasks/cancel"]]):
    """Cancels a task."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams
    name_param = "taskId"


class UpdateTask(types.Request[UpdateParams, Literal["tasks/update"]]):
    """Answers the questions of a task."""

    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams
    name_param = "taskId"


class AnyResult(types.Result):
    """Any answer, as it came."""

    model_config = ConfigDict(extra="allow")


class BecameTaskError(Exception):
    """A call has become a task, which is asked about outside of the call."""

    def __init__(self, task: str, interval_ms: float | None) -> None:
        super().__init__(task)
        self.task = task
        self.interval = interval_of(interval_ms)


class TasksExtension(ClientExtension):
    """Declares that we can ask later."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreateTaskResult, resolve=_hand_over)]


async def _hand_over(created: CreateTaskResult, context: ClaimContext) -> NoReturn:
    await trio.lowlevel.checkpoint()
    raise BecameTaskError(created.task_id, created.poll_interval_ms)


def interval_of(milliseconds: object) -> float:
    """Return the seconds between two questions, as the server wants them, within bounds."""
    if not isinstance(milliseconds, int | float) or milliseconds <= 0:
        return USUAL_INTERVAL
    return min(LONGEST_INTERVAL, max(SHORTEST_INTERVAL, milliseconds / 1000))


async def ask_about(session: ClientSession, task: str) -> dict[str, Any]:
    """Return how far a task has come, as the server says it."""
    request = GetTask(params=TaskParams(task_id=task))
    result = await session.send_request(request, AnyResult)
    return object_in(result.model_dump(mode="json", by_alias=True, exclude_none=True))


async def cancel(session: ClientSession, task: str) -> None:
    """Have a server cancel a task."""
    request = CancelTask(params=TaskParams(task_id=task))
    await session.send_request(request, AnyResult)


async def give_input(session: ClientSession, task: str, state: dict[str, Any]) -> None:
    """Answer the questions of a task, as far as permitted."""
    try:
        wanted = _INPUT_REQUESTS.validate_python(state.get("inputRequests"))
    except ValidationError:
        wanted = {}
    answers: dict[str, Any] = {}
    for key, request in wanted.items():
        context = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(context, request)
        if not isinstance(answer, types.ErrorData):
            answers[key] = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
    params = UpdateParams(task_id=task, input_responses=answers)
    await session.send_request(UpdateTask(params=params), AnyResult)
