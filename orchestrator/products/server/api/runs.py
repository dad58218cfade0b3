"""`/v1/runs`: runs in the background, and the trees of all runs."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import attrs
import msgspec
import trio
from msgspec.structs import replace
from starlette.responses import Response

from orchestrator.agents import Agent, DefinitionError, InputError, Pipeline, UserMessage
from orchestrator.agents.budget import BudgetAmounts
from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports import sessions
from orchestrator.ports.journals import SessionSummary
from orchestrator.ports.reads import FoundSession
from orchestrator.products.history.ports import MEDIA_TYPES, Format, draw_tree, html_report
from orchestrator.products.server.api import bodies, lookup
from orchestrator.products.server.api.failures import ENDED_BADLY
from orchestrator.products.server.api.parts import Parts, parts_of
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation, doc
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.transport.errors import JSON, HttpError
from orchestrator.products.server.transport.idempotency import session_exists, session_for_key
from orchestrator.products.server.transport.session_headers import context_of

# A browser may open the picture or the page, which must not act for its user.
SANDBOX: Final = "sandbox allow-scripts allow-downloads"


if TYPE_CHECKING:
    RunBudget: TypeAlias = msgspec.Struct
else:
    _NOT_NEGATIVE = {
        float | None: Annotated[float, msgspec.Meta(ge=0)] | None,
        int | None: Annotated[int, msgspec.Meta(ge=0)] | None,
    }
    RunBudget = msgspec.defstruct(
        "RunBudget",
        [
            (it.name, Annotated[_NOT_NEGATIVE[it.type], doc(it.metadata["help"])], None)
            for it in attrs.fields(BudgetAmounts)
        ],
        namespace={"__doc__": "The limits of a run and all tasks below it; null means no limit."},
        kw_only=True,
        forbid_unknown_fields=True,
    )


class NewRun(msgspec.Struct, kw_only=True):
    """A goal for an agent, which works on it in the background."""

    model: Annotated[str, doc("The name of the agent.")] = ""
    agent: Annotated[str, doc("The same as `model`, which wins if both are set.")] = ""
    input: Annotated[Any, doc("The goal: text, or any JSON that the pipeline takes.")]
    instructions: Annotated[str, doc("Instructions in addition to the agent's own.")] = ""
    parts: Parts = []
    language_model: Annotated[
        str | None,
        doc(
            "A model that replaces the agent's own in this run: one of the"
            " `language_models` of `/v1/models`. Its delegates keep their models."
        ),
    ] = None
    budget: Annotated[
        RunBudget | None, doc("Applies besides the budgets of the agent and the key.")
    ] = None
    metadata: bodies.Metadata = {}


@attrs.frozen(kw_only=True)
class RunsQuery(lookup.PageQuery):
    """The filters and the page of a list of runs."""

    status: Annotated[bodies.RunStatus | None, doc("Only runs with this status.")] = None
    agent: Annotated[str, doc("Only runs of this agent.")] = ""
    q: Annotated[str, doc("Only runs with these words in their input or metadata, or this id.")] = (
        ""
    )
    created_after: Annotated[float, doc("Only runs after this time, in seconds since 1970.")] = 0.0
    cost_from: Annotated[
        float, msgspec.Meta(description="Only runs that cost at least this much, in dollars.", ge=0)
    ] = 0.0
    failures: Annotated[bool, doc("Only runs with a task that ended badly.")] = False

    def lists(self, run: bodies.RunSummary) -> bool:
        """Return whether a run passes every filter."""
        return (
            run.kind.is_run
            and self.status in {None, run.status}
            and self.agent in {"", run.agent}
            and run.created > self.created_after
            and run.usage.micro_usd >= self.cost_from * 1_000_000
            and (not self.failures or not ENDED_BADLY.isdisjoint(run.tasks))
            and self._has_words(run)
        )

    def _has_words(self, run: bodies.RunSummary) -> bool:
        text = " ".join((run.id, run.about, *run.metadata.values())).casefold()
        return all(word in text for word in self.q.casefold().split())


@attrs.frozen(kw_only=True)
class TreeQuery:
    """The format of a tree."""

    format: Annotated[Format, doc("The format.")] = "json"


@attrs.frozen(kw_only=True)
class ResumeQuery:
    """How a run goes on."""

    on_change: Annotated[
        sessions.OnChange,
        doc("`accept` continues a run whose program, or version of its agent, has changed."),
    ] = "refuse"


class Runs(msgspec.Struct, kw_only=True):
    """A page of runs, newest first."""

    object: Literal["list"] = "list"
    data: list[bodies.RunSummary]
    has_more: bool
    last_id: Annotated[str | None, doc("The `after` of the next page.")]


class DeletedRun(msgspec.Struct, kw_only=True):
    """A run that was deleted."""

    id: str
    object: str
    deleted: Literal[True] = True
    seq: int


class Edge(msgspec.Struct, kw_only=True):
    """A delegation, or a dependency."""

    source: str
    target: str
    kind: Literal["delegates", "needs"]


class NodeLink(msgspec.Struct, kw_only=True):
    """A tree that networkx, d3 and others read: `node_link_graph(data, edges="edges")`."""

    directed: bool
    multigraph: bool
    graph: dict[str, Any]
    nodes: list[dict[str, Any]]
    edges: list[Edge]


class Trace(msgspec.Struct, kw_only=True, rename="camel"):
    """A tree that Chrome and Perfetto read."""

    trace_events: list[dict[str, Any]]


@Operation(
    "POST",
    "/v1/runs",
    Scope.RUN,
    Answer("The run has begun, or is queued", bodies.Run, status=202),
    body=NewRun,
    errors=(404, 422, 503),
    takes_idempotency_key=True,
)
async def create_run(call: ApiCall) -> Response:
    """Run an agent in the background."""
    body = await call.body(NewRun)
    model = allowed_language_model(call, body.language_model)
    agent = agent_for(call, body.model or body.agent, model)
    message = sessions.goal_message(agent, goal_of(agent, body.input))
    request = sessions.InboundRequest(
        agent=agent,
        message=_with_parts(agent, message, body.parts),
        context=context_of(call.headers),
        owner=call.owner,
        instructions=body.instructions,
        kind=SessionKind.RUN,
        metadata=body.metadata,
        states=(call.request_state(),),
        language_model=model,
    )
    await call.take_request(request)
    id_ = call.ids.new_session(call.journal.name)
    if session_exists(call, id_):
        session = await session_for_key(call, id_)
    else:
        given = {} if body.budget is None else msgspec.structs.asdict(body.budget)
        # This budget is inside the limits of the key: a call has to fit all of them.
        with call.begin_run(), sessions.budget(**given) if given else nullcontext():
            session = call.journal.door.open_background(request, id_)
            call.record(session.id)
    return await show_run(call, FoundSession(session, call.journal.read.records), 202)


def allowed_language_model(call: ApiCall, name: str | None) -> str:
    """Return the model that a run asks for, empty if it asks for none, or refuse it."""
    if name is None:
        return ""
    allowed = call.server.language_models
    if name not in allowed:
        there_are = f"there are: {', '.join(allowed)}" if allowed else "there is none"
        raise HttpError(
            404,
            f"there is no language model {name!r} for runs of this server; {there_are}. The"
            " operator allows others with --language-model",
            code="language_model_not_found",
            param="language_model",
        )
    return name


def agent_for(call: ApiCall, name: str, language_model: str) -> Agent[Any]:
    """Return the agent of a new run, with the model that it asks for."""
    agent = call.server.agent(name)
    if not language_model:
        return agent
    try:
        chosen = sessions.with_language_model(agent, language_model)
        call.journal.door.require_model(chosen)
    except DefinitionError as exc:
        raise HttpError(
            422, str(exc), code="invalid_language_model", param="language_model"
        ) from exc
    return chosen


def _with_parts(agent: Agent[Any], message: UserMessage, parts: Parts) -> UserMessage:
    if parts and isinstance(agent, Pipeline):
        raise HttpError(
            422,
            f"{agent.name} is a pipeline, which takes no files: put them into its input or into"
            " the workspace",
            code="invalid_part",
            param="parts",
        )
    return replace(message, parts=parts_of(parts)) if parts else message


def goal_of(agent: Agent[Any], value: Any) -> Any:
    """Return the input of a run in the form that the agent takes."""
    if not isinstance(agent, Pipeline):
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    try:
        agent.parse_goal(agent.as_goal(value))
    except InputError as exc:
        raise HttpError(422, str(exc), code="invalid_input", param="input") from exc
    return value


async def show_run(call: ApiCall, found: FoundSession, status: int = 200) -> Response:
    """Respond with the present state of a run, once it is durable."""
    body = bodies.run_of(found.session, found.records, seq=call.journal.read.last_seq)
    return await call.durable_response(body, status, x_run_id=body.id)


class RunBodies(lookup.Bodies[bodies.RunSummary]):
    """Makes the entry of each run in a list."""

    def __init__(self, query: RunsQuery) -> None:
        super().__init__(lambda it: self._listed(bodies.summary_of(it.session, it.records)))
        self._query = query

    def show_summary(
        self, summary: SessionSummary, process: int = 0
    ) -> lookup.Shown[bodies.RunSummary]:
        return lookup.Shown(self._listed(bodies.run_summary(summary, process)))

    def known(
        self, journal: ServedJournal, session: SessionId
    ) -> lookup.Shown[bodies.RunSummary] | None:
        summary = journal.summaries.get(session)
        return None if summary is None else lookup.Shown(self._listed(summary))

    def _listed(self, summary: bodies.RunSummary) -> bodies.RunSummary | None:
        return summary if self._query.lists(summary) else None


@Operation(
    "GET", "/v1/runs", Scope.READ, Answer("A page of runs", Runs), query=RunsQuery, errors=(404,)
)
async def list_runs(call: ApiCall) -> Response:
    """List your runs, newest first; an admin's key sees the runs of all owners."""
    query = call.query(RunsQuery)
    page = await lookup.page_of(call, query, RunBodies(query))
    return json_response(Runs(data=page.items, has_more=page.has_more, last_id=page.last))


@Operation("GET", "/v1/runs/{run}", Scope.READ, Answer("The run", bodies.Run))
async def get_run(call: ApiCall) -> Response:
    """Return the status, output and usage of a run."""
    if (body := await _past_answer(call)) is not None:
        headers = {"x-run-id": call.path("run")}
        return Response(body, headers=headers, media_type=JSON)
    return await show_run(call, await lookup.read_run(call, call.path("run")))


@Operation(
    "GET",
    "/v1/runs/{run}/tree",
    Scope.READ,
    Answer(
        "The tree in this format",
        NodeLink,
        others=(Trace,),
        media_types=tuple(dict.fromkeys(MEDIA_TYPES.values())),
    ),
    query=TreeQuery,
)
async def get_tree(call: ApiCall) -> Response:
    """Return the tree of a run, while it grows and afterwards."""
    format_ = call.query(TreeQuery).format
    if (drawn := await _past_answer(call, format_)) is not None:
        return tree_response(SessionId(call.path("run")), format_, drawn)
    session = (await lookup.read_run(call, call.path("run"))).session
    if format_ == "html":
        text = await _report(call, session.id)
    else:
        text = await draw_tree(call.journal.read, session, format_)
    return tree_response(session.id, format_, text.encode())


def tree_response(run: SessionId, format_: Format, drawn: bytes) -> Response:
    headers: dict[str, str] = {"x-run-id": run}
    if format_ in {"svg", "html"}:
        headers["content-security-policy"] = SANDBOX
    body = b"%b\n" % drawn
    return Response(body, headers=headers, media_type=MEDIA_TYPES[format_])


async def _past_answer(call: ApiCall, tree: Format | None = None) -> bytes | None:
    """Return another process's answer about a large run of the past; None for other runs."""
    run = call.path("run")
    if not call.sees(SessionId(run)):
        await trio.lowlevel.checkpoint()
        raise lookup.unknown_run(run)
    answer = await call.journal.past_runs.ask(run, tree=tree)
    if answer == b"":
        raise lookup.unknown_run(run)
    return answer


async def _report(call: ApiCall, run: SessionId) -> str:
    entries = await call.journal.read.entries(run)
    # A large run takes seconds, so a thread folds the entries again.
    html, _ = await trio.to_thread.run_sync(
        # Clients must not see the server's code.
        lambda: html_report(run, entries, has_writer=True, tracebacks=False)
    )
    return html


@Operation("DELETE", "/v1/runs/{run}", Scope.STEER, Answer("The run is deleted", DeletedRun))
async def delete_run(call: ApiCall) -> Response:
    """Cancel a run and delete it."""
    session = await lookup.find_run(call, call.path("run"))
    call.record(session.id)
    await call.journal.door.close(session, deleted=True)
    return json_response(DeletedRun(id=session.id, object="run", seq=call.journal.read.last_seq))


@Operation(
    "POST",
    "/v1/runs/{run}/cancel",
    Scope.STEER,
    Answer("Every task is settled", bodies.Run),
    takes_idempotency_key=True,
)
async def cancel_run(call: ApiCall) -> Response:
    """Cancel a run and all tasks below it for good."""
    session = await lookup.find_run(call, call.path("run"))
    if not sessions.is_over(session):
        call.record(session.id)
        await call.journal.door.close(session)
    return await show_run(call, FoundSession(session, call.journal.read.records))


@Operation(
    "POST",
    "/v1/runs/{run}/resume",
    Scope.RUN,
    Answer("The run goes on", bodies.Run, status=202),
    errors=(409, 503),
    query=ResumeQuery,
    takes_idempotency_key=True,
)
async def resume_run(call: ApiCall) -> Response:
    """Resume a run whose process died, from its last step."""
    accepts_changes = call.query(ResumeQuery).on_change == "accept"
    session = await lookup.find_run(call, call.path("run"))
    agent = agent_of(call, session)
    # A request that is repeated while the run goes on has nothing left to do.
    if session.door is None or sessions.is_over(session):
        door = call.journal.door
        paused = await door.seconds_interrupted(session)
        with call.begin_run(session):
            door.resume(
                session, agent, kind=SessionKind.RUN, paused=paused, accepts_changes=accepts_changes
            )
            call.record(session.id)
    return await show_run(call, FoundSession(session, call.journal.read.records), 202)


def agent_of(call: ApiCall, session: SessionRecord) -> Agent[Any]:
    """Return the agent of a run that is to go on."""
    agent = call.journal.door.agent_for(session)
    if agent is None:
        raise HttpError(
            409,
            f"the run belongs to agent {session.root.agent!r}, which is not served here; there are:"
            f" {', '.join(call.server.agents)}",
            code="agent_not_served",
        )
    return agent
