"""`GET /v1/runs/{run}/failures`: the lowest failure of each branch of a run, and why."""

from typing import Annotated, Final, Literal

import attrs
import msgspec
from starlette.responses import Response

from orchestrator.delegation import Ending, SessionRecord
from orchestrator.products.server.api.lookup import read_run
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation, doc

ENDED_BADLY: Final = frozenset({Ending.FAILED, Ending.TIMED_OUT, Ending.OVER_BUDGET, Ending.LOST})
"""The endings that stop a branch. Cancelled tasks are left out: somebody wanted that."""


@attrs.frozen(kw_only=True)
class FailuresQuery:
    """The number of failures in a list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="The most entries to return.")] = (
        20
    )


class TaskFailure(msgspec.Struct, kw_only=True):
    """A task that ended badly while every task below it did not."""

    task: str
    path: str
    agent: str
    status: Annotated[str, doc("`failed`, `timed_out`, `over_budget` or `lost`.")]
    error: str
    ended: float | None


class Failures(msgspec.Struct, kw_only=True):
    """The tasks that stopped the branches of a run, latest first."""

    object: Literal["list"] = "list"
    data: list[TaskFailure]
    total: Annotated[int, doc("The number of all failures.")]


@Operation(
    "GET",
    "/v1/runs/{run}/failures",
    Scope.READ,
    Answer("The failures, latest first", Failures),
    query=FailuresQuery,
)
async def list_failures(call: ApiCall) -> Response:
    """List the tasks that stopped the branches of a run, and why."""
    query = call.query(FailuresQuery)
    session = (await read_run(call, call.path("run"))).session
    return json_response(failures_of(session, query), x_run_id=session.id)


def failures_of(session: SessionRecord, query: FailuresQuery) -> Failures:
    """Return the latest failures that stopped branches of a run."""
    stopped = _stopped_branches(session)
    latest = sorted(stopped, key=lambda it: it.ended or 0, reverse=True)
    return Failures(data=latest[: query.limit], total=len(stopped))


def _stopped_branches(session: SessionRecord) -> list[TaskFailure]:
    nodes = session.tree.nodes()
    bad = {task for task, node in nodes.items() if node.status in ENDED_BADLY}
    above = {nodes[task].parent for task in bad}
    return [
        TaskFailure(
            task=task,
            path=node.path,
            agent=node.agent,
            status=node.status,
            error=node.error,
            ended=node.ended,
        )
        for task, node in nodes.items()
        if task in bad and task not in above
    ]
