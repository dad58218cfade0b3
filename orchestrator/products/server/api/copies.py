"""`/v1/tasks/{task}/fork` and `/retry`: new runs that begin with the facts of an old run."""

from typing import Final

from starlette.responses import Response

from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.reads import FoundSession
from orchestrator.ports.sessions import DoorState
from orchestrator.products.history.ports import KeptFacts, copy_run, facts_before, facts_without
from orchestrator.products.server.api.bodies import Run
from orchestrator.products.server.api.lookup import find_task
from orchestrator.products.server.api.runs import agent_of, show_run
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.idempotency import session_exists, session_for_key

MOST_FACTS: Final = 10_000
"""The most facts of a run that a server copies: other requests wait for half a second."""
_BEGUN: Final = Answer("The new run has begun", Run, status=202)
_COPY: Final = Operation(
    "POST", "", Scope.RUN, _BEGUN, errors=(409, 422, 503), takes_idempotency_key=True
)


@_COPY.at("/v1/tasks/{task}/fork")
async def fork_task(call: ApiCall) -> Response:
    """Fork a run: a new run goes on live from the point where the task was delegated."""
    return await _begin(call, facts_before)


@_COPY.at("/v1/tasks/{task}/retry")
async def retry_task(call: ApiCall) -> Response:
    """Repeat a task in a new run that keeps the rest of its run."""
    return await _begin(call, facts_without)


async def _begin(call: ApiCall, keep: KeptFacts) -> Response:
    found = await find_task(call, call.path("task"))
    session, journal = found.session, call.journal
    agent = agent_of(call, session)
    id_ = call.ids.session_beside(call.journal.name)
    if session_exists(call, id_):
        begun = await session_for_key(call, id_)
        return await show_run(call, FoundSession(begun, journal.read.records), 202)
    if agent.tools != call.server.agents[session.root.agent].tools:
        raise HttpError(
            409,
            "the client of this run ran some of its tools itself, which a copy cannot ask for: send"
            " the request again instead",
            code="client_tools",
        )
    run, task = session.id, found.task.id
    entries = await journal.read.entries(run)
    copied = copy_run(keep, entries, agent, session, task, run=run, most=MOST_FACTS)
    with call.begin_run():
        begun = journal.door.open_copy(
            copied,
            agent,
            id_,
            owner=call.owner,
            kind=SessionKind.RUN,
            metadata=session.metadata,
            states=(call.request_state(),),
            language_model=session.state(DoorState).language_model,
        )
        call.record(begun.id)
    return await show_run(call, FoundSession(begun, journal.read.records), 202)
