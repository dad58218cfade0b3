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
from orchestrator.doors.inbound import Asked, message_of
from orchestrator.exports import MEDIA_TYPES, Drawing, Format, drawn, report_of
from orchestrator.report import story_of
from orchestrator.server.api.bodies import (
    METADATA,
    Metadata,
    Run,
    RunStatus,
    RunSummary,
    run_of,
    status_of,
    summary_of,
    written_on,
)
from orchestrator.server.api.lookup import PageQuery, Seen, look_at_run, page_of
from orchestrator.server.operation import Answer, Call, Operation, reply
from orchestrator.server.transport.errors import HttpError
from orchestrator.server.transport.idempotency import REQUEST, is_known, made_before
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


class Gone(msgspec.Struct, kw_only=True):
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


async def create_run(call: Call) -> Response:
    wanted = call.body(NewRun)
    agent = call.office.agent(wanted.model or wanted.agent)
    id_ = call.keyed_session()
    if is_known(call, id_):
        session = await made_before(call, id_)
    else:
        session = call.office.door.keep(
            Asked(
                agent=agent,
                message=message_of(agent, _goal(agent, wanted.input)),
                context=context_of(call.request.headers),
                instructions=wanted.instructions,
                labels={
                    KIND: RUN,
                    REQUEST: call.fingerprint,
                    METADATA: written_on(wanted.metadata),
                },
            ),
            id_,
        )
    return await show_run(call, Seen(session, call.office.book.ledger), 202)


def _goal(agent: Agent[Any], given: Any) -> Any:
    """Return what an agent is given, as it takes it."""
    if not isinstance(agent, Pipeline):
        return given if isinstance(given, str) else _as_text(given)
    try:
        agent.read(agent.as_goal(given))
    except InputError as exc:
        raise HttpError(422, str(exc), code="invalid_input", param="input") from exc
    return given


def _as_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


async def show_run(call: Call, seen: Seen, status: int = 200) -> Response:
    """Answer with a run as it is in this moment, once that is durable."""
    book = call.office.book
    shown = run_of(seen.session, seen.ledger, seq=book.ledger.last_seq)
    await book.wait_durable()
    return reply(shown, status, x_run_id=shown.id)


async def list_runs(call: Call) -> Response:
    query = call.query(RunsQuery)

    def show(seen: Seen) -> RunSummary | None:
        if query.status not in {None, status_of(seen.session, seen.ledger)}:
            return None
        return summary_of(seen.session, seen.ledger)

    page = await page_of(call.office, query, show)
    return reply(Runs(data=page.shown, has_more=page.has_more, last_id=page.last))


async def get_run(call: Call) -> Response:
    return await show_run(call, await look_at_run(call.office, call.path("run")))


async def get_tree(call: Call) -> Response:
    wanted = call.query(TreeQuery).format
    seen = await look_at_run(call.office, call.path("run"))
    session = seen.session
    if wanted == "html":
        text = await _report(call, session.id)
    else:
        text = await _drawn(call, seen, wanted)
    headers: dict[str, str] = {"x-run-id": session.id}
    if wanted in {"svg", "html"}:
        headers["content-security-policy"] = SANDBOX
    return Response(f"{text}\n", headers=headers, media_type=MEDIA_TYPES[wanted])


async def _drawn(call: Call, seen: Seen, wanted: Drawing) -> str:
    await trio.lowlevel.checkpoint()
    session, book = seen.session, call.office.book
    now = None if is_over(session) else call.office.orchestrator.now()
    if len(session.tree) <= AT_ONCE:
        return drawn(session.tree, wanted, now=now)
    # Seconds for a large one, and it grows meanwhile: it is drawn elsewhere, from its own fold.
    entries = await book.read_entries(session.id)
    return await trio.to_thread.run_sync(
        lambda: drawn(_tree_of(session.id, entries), wanted, now=now)
    )


def _tree_of(run: SessionId, entries: Sequence[Entry]) -> Tree:
    return story_of(run, entries, is_written=True, listen=lambda _: False).tree


async def _report(call: Call, run: SessionId) -> str:
    entries = await call.office.book.read_entries(run)
    # A fold of its own, and seconds for a large one: nobody else is to wait for it.
    html, _ = await trio.to_thread.run_sync(
        lambda: report_of(run, entries, is_written=True)
    )
    return html


async def delete_run(call: Call) -> Response:
    session = await call.office.door.find(call.path("run"))
    await call.office.door.close(session, deleted=True)
    return reply(
        Gone(id=session.id, object="run", seq=call.office.book.ledger.last_seq)
    )


async def cancel_run(call: Call) -> Response:
    session = await call.office.door.find(call.path("run"))
    if not is_over(session):
        await call.office.door.close(session)
    return await show_run(call, Seen(session, call.office.book.ledger))


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/runs",
        handle=create_run,
        summary="Have an agent do something while nobody waits",
        body=NewRun,
        answers={202: Answer(words="It has begun, or will", body=Run)},
        fails=(400, 404, 422, 503),
        is_keyed=True,
    ),
    Operation(
        method="GET",
        path="/v1/runs",
        handle=list_runs,
        summary="All runs, the newest first, also those that came in elsewhere",
        query=RunsQuery,
        answers={200: Answer(words="Some of them", body=Runs)},
        fails=(400, 404),
    ),
    Operation(
        method="GET",
        path="/v1/runs/{run}",
        handle=get_run,
        summary="How far a run is, what it gave and what it has used",
        answers={200: Answer(words="It", body=Run)},
        fails=(404,),
    ),
    Operation(
        method="GET",
        path="/v1/runs/{run}/tree",
        handle=get_tree,
        summary="The tree of a run, while it grows and ever after",
        query=TreeQuery,
        answers={
            200: Answer(
                words="In the format that was asked for",
                body=NodeLink,
                others=(Trace,),
                media=tuple(dict.fromkeys(MEDIA_TYPES.values())),
            )
        },
        fails=(400, 404),
    ),
    Operation(
        method="POST",
        path="/v1/runs/{run}/cancel",
        handle=cancel_run,
        summary="End a run and all below it, for good",
        answers={200: Answer(words="All of it has ended", body=Run)},
        fails=(404,),
        is_keyed=True,
    ),
    Operation(
        method="DELETE",
        path="/v1/runs/{run}",
        handle=delete_run,
        summary="End a run, and show it to nobody any more",
        answers={200: Answer(words="It is gone", body=Gone)},
        fails=(404,),
    ),
)
