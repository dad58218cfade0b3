"""`/console/events`: the one stream of a browser, with all topics that its pages watch.

The request alone names the topics of a stream: to watch other topics, a browser opens another
stream with the numbers that it has. So no state outlives a stream.
"""

import re
from contextlib import ExitStack
from functools import partial
from typing import Final

import attrs
import msgspec
import trio
from starlette.responses import Response

from orchestrator.delegation import DelegationError, SessionId, TaskId
from orchestrator.ports.errors import OrchestratorError
from orchestrator.products.server.api.lookup import unknown_run
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.console import topics
from orchestrator.products.server.console.other_topics import OtherRunTopic, OtherTaskTopic
from orchestrator.products.server.console.rows import all_rows
from orchestrator.products.server.keys.key import DEFAULT, Scope
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.sse import SSE_MEDIA_TYPE, EventStream, EventWriter

INTERVAL: Final = 0.1
"""Seconds between two messages about the same topic."""
MOST_TOPICS: Final = 100
WATCH: Final = re.compile(
    r"(?P<number>\d{1,9}):(?P<kind>runs|approvals|jobs|run|task)"
    r"(?::(?P<id>[a-z]_[0-9a-z_-]{1,64}))?(?:@(?P<after>\d{1,15}))?"
)


@attrs.frozen(kw_only=True)
class Watch:
    """One subscription of a browser."""

    number: int
    """The number that the browser has chosen: messages are addressed to it."""
    kind: str
    id: str
    after: int


class _Changes:
    """Wakes a stream when one of its topics has changed."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def note(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = trio.Event()


@Operation(
    "GET",
    "/console/events",
    Scope.READ,
    Answer("Server-sent events", media_types=(SSE_MEDIA_TYPE,)),
    errors=(400,),
)
async def get_events(call: ApiCall) -> Response:
    """Stream the topics that the pages of a browser watch, as they change."""
    await trio.lowlevel.checkpoint()
    watches = [_parsed(it) for it in call.request.query_params.getlist("watch")]
    if len(watches) > MOST_TOPICS:
        raise HttpError(
            400,
            f"a browser can watch at most {MOST_TOPICS} topics; close some pages",
            code="too_many_topics",
        )

    async def produce(writer: EventWriter) -> None:
        changes = _Changes()
        watched: dict[int, topics.Topic] = {}
        with ExitStack() as stack:
            for watch in watches:
                try:
                    topic = await _topic(call, watch, changes)
                    await topic.open(stack)
                    watched[watch.number] = topic
                except (HttpError, OrchestratorError, DelegationError) as exc:
                    problem = {"to": watch.number, "error": str(exc)}
                    await writer.send_event(msgspec.json.encode(problem))
            # Each page learns that its stream is open, even if it has no messages yet.
            await writer.send_event(b'{"open":true}')
            while not any(topic.has_ended for topic in watched.values()):
                await changes.wait()
                for number, topic in watched.items():
                    await _send_changes(writer, number, topic)
                await trio.sleep(INTERVAL)

    return EventStream(produce)


async def _send_changes(writer: EventWriter, number: int, topic: topics.Topic) -> None:
    await trio.lowlevel.checkpoint()
    while (message := topic.take()) is not None:
        # Encoded before the wait, so that the message shows one moment.
        encoded = msgspec.json.encode({"to": number, **message})
        await topic.wait_durable()
        await writer.send_event(encoded)
        if "more" not in message:
            return


async def _topic(call: ApiCall, watch: Watch, changes: _Changes) -> topics.Topic:
    await trio.lowlevel.checkpoint()
    server, key = call.server, call.key
    held = list(server.journals) or [server.journals.first]
    match watch.kind:
        case "runs":
            return topics.RunsTopic(held, changes.note, key, server.others)
        case "approvals":
            return topics.ApprovalsTopic(held, changes.note, key, server.others)
        case "jobs":
            return topics.JobsTopic(held, changes.note, key)
        case "run":
            return await _run_topic(call, SessionId(watch.id), watch.after, changes)
        case _:
            for journal in server.journals:
                sees = partial(journal.owners.sees, key)
                session = await journal.read.session_of(watch.id, sees=sees)
                if session is not None:
                    task = TaskId(watch.id)
                    return topics.TaskTopic(journal, changes.note, session, task)
            return await _other_task_topic(call, TaskId(watch.id), changes)


async def _other_task_topic(call: ApiCall, task: TaskId, changes: _Changes) -> topics.Topic:
    await trio.lowlevel.checkpoint()
    others = call.server.others
    run = None if others is None else await others.find_task(task)
    found = None if run is None else run.found
    if others is None or run is None or found is None:
        raise unknown_run(task)
    if not call.key.may_see(found.session.owner or DEFAULT):
        raise unknown_run(task)
    first = call.server.journals.first
    return OtherTaskTopic(first, changes.note, others, run, task)


async def _run_topic(call: ApiCall, run: SessionId, after: int, changes: _Changes) -> topics.Topic:
    server, key = call.server, call.key
    journal = server.journals.of_session(run)
    if journal is None and server.listing is not None:
        if (topic := await _other_run_topic(call, run, after, changes)) is not None:
            return topic
        # Another process wrote the run: show its present state.
        found = await server.listing.find(run, key)
        if found is None:
            raise unknown_run(run)
        rows = msgspec.json.encode(all_rows(found.session, found.records))
        return topics.RestingRunTopic(server.journals.first, changes.note, run, rows)
    if journal is None or not journal.owners.sees(key, run):
        await trio.lowlevel.checkpoint()
        raise unknown_run(run)
    past = await journal.past_runs.ask(run, rows=True)
    if past == b"":
        raise unknown_run(run)
    if past is not None:
        return topics.RestingRunTopic(journal, changes.note, run, past)
    return topics.RunTopic(journal, changes.note, await journal.read.session(run), after)


async def _other_run_topic(
    call: ApiCall, run: SessionId, after: int, changes: _Changes
) -> topics.Topic | None:
    """Return the topic of a run that another process writes now; None if there is none."""
    await trio.lowlevel.checkpoint()
    others = call.server.others
    followed = None if others is None else await others.find(run)
    found = None if followed is None else followed.found
    if others is None or followed is None or found is None:
        return None
    if not call.key.may_see(found.session.owner or DEFAULT):
        raise unknown_run(run)
    first = call.server.journals.first
    return OtherRunTopic(first, changes.note, others, followed, after)


def _parsed(text: str) -> Watch:
    found = WATCH.fullmatch(text)
    if found is None or (found["kind"] in {"run", "task"}) != bool(found["id"]):
        raise HttpError(
            400,
            f"{text[:80]!r} is not a topic: use NUMBER:run:ID@SEQ, NUMBER:task:ID, NUMBER:runs,"
            " NUMBER:approvals or NUMBER:jobs",
            code="invalid_query",
            param="watch",
        )
    return Watch(
        number=int(found["number"]),
        kind=found["kind"],
        id=found["id"] or "",
        after=int(found["after"] or 0),
    )
