"""`/v1/runs`: agents that work while nobody waits, and the trees of all that ever ran."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import attrs
import msgspec
import trio
from starlette.responses import Response

from agents import Agent, InputError, Pipeline
from delegation import SessionId, Tree
from delegation.events import Entry
from orchestrator.doors.http import KIND, is_over
from orchestrator.doors.inbound import InboundRequest, goal_message
from orchestrator.exports import (
    MEDIA_TYPES,
    Format,
    TreeFormat,
    export_tree,
    html_report,
)
from orchestrator.read_api import FoundSession
from orchestrator.report import read_history
from orchestrator.server.api.bodies import (
    METADATA,
    Metadata,
    Run,
    RunStatus,
    RunSummary,
    encode_metadata,
    run_of,
    status_of,
    summary_of,
)
from orchestrator.server.api.lookup import PageQuery, page_of, read_run
from orchestrator.server.operation import (
    ApiCall,
    Operation,
    ResponseSpec,
    json_response,
)
from orchestrator.server.transport.errors import HttpError
from orchestrator.server.transport.idempotency import (
    FINGERPRINT,
    session_exists,
    session_for_key,
)
from orchestrator.server.transport.session_headers import context_of

RUN: Final = "run"
AT_ONCE: Final = 500
"""How many tasks a tree may have that is drawn while everybody else waits."""
# A picture or a page of ours may be opened in a browser, where it must not act for anybody.
SANDBOX: Final = "sandbox allow-scripts allow-downloads"


class NewRun(msgspec.Struct, kw_only=True):
    """What an agent is to do while nobody waits."""

    model: Annotated[str, msgspec.Meta(description="Which agent.")] = ""
    agent: Annotated[
        str, msgspec.Meta(description="The same; `model` counts where both are there.")
    ] = ""
    input: Annotated[
        Any,
        msgspec.Meta(
            description="What is to be done: text, or any JSON for a pipeline that takes"
            " something else."
        ),
    ]
    instructions: Annotated[
        str,
        msgspec.Meta(description="What holds besides what the agent is told always."),
    ] = ""
    metadata: Metadata = {}


@attrs.frozen(kw_only=True)
class RunsQuery(PageQuery):
    """Which runs are listed."""

    status: Annotated[
        RunStatus | None, msgspec.Meta(description="Only those that are so far.")
    ] = None


@attrs.frozen(kw_only=True)
class TreeQuery:
    """What is made of a tree."""

    format: Annotated[Format, msgspec.Meta(description="What for.")] = "json"


class Runs(msgspec.Struct, kw_only=True):
    """Some of the runs, the newest first."""

    object: Literal["list"] = "list"
    data: list[RunSummary]
    has_more: bool
    last_id: Annotated[
        str | None, msgspec.Meta(description="Go on with `?after=` this.")
    ]


class DeletedRun(msgspec.Struct, kw_only=True):
    """Something that is shown to nobody any more."""

    id: str
    object: str
    deleted: Literal[True] = True
    seq: int


class Edge(msgspec.Struct, kw_only=True):
    """Who asked whom, or who needs whom."""

    source: str
    target: str
    kind: Literal["delegates", "needs"]


class NodeLink(msgspec.Struct, kw_only=True):
    """A tree as networkx, d3 and others read it: `node_link_graph(data, edges="edges")`."""

    directed: bool
    multigraph: bool
    graph: dict[str, Any]
    nodes: list[dict[str, Any]]
    edges: list[Edge]


class Trace(msgspec.Struct, kw_only=True, rename="camel"):
    """A tree as Chrome and Perfetto read it."""

    trace_events: list[dict[str, Any]]


async def create_run(call: ApiCall) -> Response:
    wanted = call.body(NewRun)
    agent = call.server.agent(wanted.model or wanted.agent)
    id_ = call.session_id_from_key()
    if session_exists(call, id_):
        session = await session_for_key(call, id_)
    else:
        session = call.server.door.open_background(
            InboundRequest(
                agent=agent,
                message=goal_message(agent, _goal(agent, wanted.input)),
                context=context_of(call.request.headers),
                instructions=wanted.instructions,
                labels={
                    KIND: RUN,
                    FINGERPRINT: call.fingerprint,
                    METADATA: encode_metadata(wanted.metadata),
                },
            ),
            id_,
        )
    return await show_run(call, FoundSession(session, call.server.book.ledger), 202)


def _goal(agent: Agent[Any], given: Any) -> Any:
    """Return what an agent is given, as it takes it."""
    if not isinstance(agent, Pipeline):
        return given if isinstance(given, str) else _as_text(given)
    try:
        agent.parse_goal(agent.as_goal(given))
    except InputError as exc:
        raise HttpError(422, str(exc), code="invalid_input", param="input") from exc
    return given


def _as_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


async def show_run(call: ApiCall, found: FoundSession, status: int = 200) -> Response:
    """Answer with a run as it is in this moment, once that is durable."""
    book = call.server.book
    shown = run_of(found.session, found.ledger, seq=book.ledger.last_seq)
    await book.wait_durable()
    return json_response(shown, status, x_run_id=shown.id)


async def list_runs(call: ApiCall) -> Response:
    query = call.query(RunsQuery)

    def show(seen: FoundSession) -> RunSummary | None:
        if query.status not in {None, status_of(seen.session, seen.ledger)}:
            return None
        return summary_of(seen.session, seen.ledger)

    page = await page_of(call.server, query, show)
    return json_response(
        Runs(data=page.items, has_more=page.has_more, last_id=page.last)
    )


async def get_run(call: ApiCall) -> Response:
    return await show_run(call, await read_run(call.server, call.path("run")))


async def get_tree(call: ApiCall) -> Response:
    wanted = call.query(TreeQuery).format
    seen = await read_run(call.server, call.path("run"))
    session = seen.session
    if wanted == "html":
        text = await _report(call, session.id)
    else:
        text = await _drawn(call, seen, wanted)
    headers: dict[str, str] = {"x-run-id": session.id}
    if wanted in {"svg", "html"}:
        headers["content-security-policy"] = SANDBOX
    return Response(f"{text}\n", headers=headers, media_type=MEDIA_TYPES[wanted])


async def _drawn(call: ApiCall, found: FoundSession, wanted: TreeFormat) -> str:
    await trio.lowlevel.checkpoint()
    session, book = found.session, call.server.book
    now = None if is_over(session) else call.server.orchestrator.now()
    if len(session.tree) <= AT_ONCE:
        return export_tree(session.tree, wanted, now=now)
    # Seconds for a large one, and it grows meanwhile: it is drawn elsewhere, from its own fold.
    entries = await book.read_entries(session.id)
    return await trio.to_thread.run_sync(
        lambda: export_tree(_tree_of(session.id, entries), wanted, now=now)
    )


def _tree_of(run: SessionId, entries: Sequence[Entry]) -> Tree:
    return read_history(
        run, entries, has_writer=True, wants_transcript=lambda _: False
    ).tree


async def _report(call: ApiCall, run: SessionId) -> str:
    entries = await call.server.book.read_entries(run)
    # A fold of its own, and seconds for a large one: nobody else is to wait for it.
    html, _ = await trio.to_thread.run_sync(
        lambda: html_report(run, entries, has_writer=True)
    )
    return html


async def delete_run(call: ApiCall) -> Response:
    session = await call.server.door.find(call.path("run"))
    await call.server.door.close(session, deleted=True)
    return json_response(
        DeletedRun(id=session.id, object="run", seq=call.server.book.ledger.last_seq)
    )


async def cancel_run(call: ApiCall) -> Response:
    session = await call.server.door.find(call.path("run"))
    if not is_over(session):
        await call.server.door.close(session)
    return await show_run(call, FoundSession(session, call.server.book.ledger))


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/runs",
        handle=create_run,
        summary="Have an agent do something while nobody waits",
        body=NewRun,
        responses={202: ResponseSpec(description="It has begun, or will", body=Run)},
        error_statuses=(400, 404, 422, 503),
        takes_idempotency_key=True,
    ),
    Operation(
        method="GET",
        path="/v1/runs",
        handle=list_runs,
        summary="All runs, the newest first, also those that came in elsewhere",
        query=RunsQuery,
        responses={200: ResponseSpec(description="Some of them", body=Runs)},
        error_statuses=(400, 404),
    ),
    Operation(
        method="GET",
        path="/v1/runs/{run}",
        handle=get_run,
        summary="How far a run is, what it gave and what it has used",
        responses={200: ResponseSpec(description="It", body=Run)},
        error_statuses=(404,),
    ),
    Operation(
        method="GET",
        path="/v1/runs/{run}/tree",
        handle=get_tree,
        summary="The tree of a run, while it grows and ever after",
        query=TreeQuery,
        responses={
            200: ResponseSpec(
                description="In the format that was asked for",
                body=NodeLink,
                others=(Trace,),
                media_types=tuple(dict.fromkeys(MEDIA_TYPES.values())),
            )
        },
        error_statuses=(400, 404),
    ),
    Operation(
        method="POST",
        path="/v1/runs/{run}/cancel",
        handle=cancel_run,
        summary="End a run and all below it, for good",
        responses={200: ResponseSpec(description="All of it has ended", body=Run)},
        error_statuses=(404,),
        takes_idempotency_key=True,
    ),
    Operation(
        method="DELETE",
        path="/v1/runs/{run}",
        handle=delete_run,
        summary="End a run, and show it to nobody any more",
        responses={200: ResponseSpec(description="It is gone", body=DeletedRun)},
        error_statuses=(404,),
    ),
)
