"""Forks: a new run that shares its beginning with one that has ended, or whose process died.

The facts before the fork point are copied into a new session, which is then resumed as after a
crash. So no model is called again, and there is no second way to resume.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, get_args

import attrs
import trio
from msgspec.structs import replace

from agents import Agent, CallId, Usage, raising_one_error
from delegation import (
    SHARED_BUDGET_PREFIX,
    DeliveryCapability,
    Encoded,
    SessionId,
    SessionRecord,
    TaskId,
    decode,
    encode,
)
from delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallPlaced,
    CancelRequested,
    DeliveryFailed,
    DoorClosed,
    DoorOpened,
    Event,
    JobOccurred,
    JobPaused,
    JobRemoved,
    JobSet,
    JournalOpened,
    LabelsChanged,
    MessageReceived,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    NetworkRequested,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    ProcessUnreachable,
    QuietChanged,
    ReplyDelivered,
    ReplyPartDelivered,
    SessionClosed,
    SessionOpened,
    StartsPaused,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    WorkspaceOpened,
)
from orchestrator.budget_scope import current_grants
from orchestrator.doors.one_shot import Run
from orchestrator.doors.session import open_session
from orchestrator.errors import UnknownIdError
from orchestrator.replay.record import DELEGATION_TOOLS, RecordedRun, ReplayError
from orchestrator.services import Services, random_task_id

OutputT = TypeVar("OutputT")

ID_PATTERN: Final = re.compile(rb"[rtb]_[0-9a-f]{8,}")
CopiedFact: TypeAlias = (
    MessageReceived
    | TurnStarted
    | TurnEnded
    | ReplyDelivered
    | TaskRequested
    | TaskStarted
    | ModelAnswered
    | ToolAnswered
    | ProcessStarted
    | ProcessMatched
    | ProcessEnded
    | ProcessUnreachable
    | Steered
    | SteeringSeen
    | CancelRequested
    | TaskSettled
)
"""Facts that are true of the fork, too."""
OwnFact: TypeAlias = (
    JournalOpened
    | SessionOpened
    | SessionClosed
    | LabelsChanged
    | DoorOpened
    | DoorClosed
    | TurnResumed
    | DeliveryFailed
    | ReplyPartDelivered
    | JobSet
    | JobPaused
    | JobRemoved
    | JobOccurred
    | ModelCalled
    | ModelFailed
    | QuietChanged
    | StartsPaused
    | ApprovalAsked
    | ApprovalAnswered
    | WorkspaceOpened
    | NetworkRequested
    | CallPlaced
)
"""Facts that are true of the recorded run alone: a fork pays for none of its calls. What a failed
call had said is copied where later turns read it."""
COPIED_FACTS: Final = get_args(CopiedFact)
PROCESS_NOT_COPIED: Final = (
    "it belongs to the run that this one is a fork of, and does not run here"
)


if TYPE_CHECKING:

    def _every_fact_is_listed(  # pyright: ignore[reportUnusedFunction] (a check of types)
        event: Event,
    ) -> CopiedFact | OwnFact:
        return event  # a new fact is a type error here until it is listed above


async def fork_run(
    services: Services,
    agent: Agent[OutputT],
    run: str,
    task: str,
    *,
    deps: object = None,
) -> Run[OutputT]:
    """Copy a run up to the request of a task, and run it on from there."""
    book = services.book
    book.admission.require_running()
    entries = await book.read_entries(SessionId(run))
    record = RecordedRun(entries, run)
    record.require_replayable(agent)
    session = book.ledger.sessions.get(record.run)
    if not (record.is_whole or session is None or session.awaits_resume):
        raise ReplayError(
            f"run {run} has not ended, and can go on: only a run that has ended, or whose process"
            " died, can be forked"
        )
    fork_point = find_task(record, task)
    id_ = services.new_session_id()
    services.registry.require_models(agent, deps)
    # Without a checkpoint: nothing of it starts before the copy is complete.
    _SessionCopy(services, record, id_).post(agent, fork_point)
    services.registry.register_session(id_, agent, deps)
    session = book.ledger.sessions[id_]
    is_awaited = (
        record.is_one_shot
        if session.turn is None
        else session.turn.capability is DeliveryCapability.NONE
    )
    error: BaseException | None = None
    if not is_awaited:
        await _run_until_idle(services, agent, session, deps)
    else:
        if session.turn is None:
            services.turns.begin(session, DeliveryCapability.NONE)
        error = (await services.turns.take(session)).error
    assert session.last_outcome is not None, "a turn has ended"
    return Run(
        id=id_,
        agent=agent,
        outcome=session.last_outcome,
        tree=session.tree,
        error=error,
    )


def find_task(record: RecordedRun, task: str) -> TaskId:
    """Return the task of a run by its id or its path."""
    tasks = record.ledger.tasks
    if task in tasks:
        return TaskId(task)
    found = [it.id for it in tasks.values() if it.path == task]
    if not found:
        raise UnknownIdError(f"run {record.run} has no task {task!r}")
    return found[0]


async def _run_until_idle(
    services: Services, agent: Agent[Any], session: SessionRecord, deps: object
) -> None:
    """Run a session until it is idle."""
    running = [
        task.id for task in session.unsettled_detached.values() if task.is_running
    ]
    is_in_turn = session.turn is not None
    with raising_one_error():
        # Owns the tasks that ran at the fork point.
        async with trio.open_nursery() as nursery:
            async with open_session(services, agent, session.id, deps=deps) as door:
                for task in running:
                    nursery.start_soon(services.delegator.run_child, task)
                if is_in_turn:
                    nursery.start_soon(services.turns.take_and_deliver, session)
                await door.wait_idle()


class _SessionCopy:
    """Copies the facts of a run into another session."""

    def __init__(self, services: Services, record: RecordedRun, id_: SessionId) -> None:
        self._book = services.book
        self._record = record
        self._id = id_
        self._id_map: dict[bytes, bytes] = {record.run.encode(): id_.encode()}
        self._seq_map: dict[int, int] = {}
        self._ended: set[TaskId] = set()

    def post(self, agent: Agent[Any], fork_point: TaskId) -> None:
        """Post the facts before the request of a task."""
        record = self._record
        until = self._fork_seq(fork_point)
        opened = self._with_new_ids(record.session_opened)
        assert isinstance(opened, SessionOpened), "only its ids have changed"
        link = f"{record.run}/{fork_point}"
        known = {grant.id for grant in opened.grants}
        granted = current_grants(self._book.journal_identity)
        around = tuple(it for it in granted if it.id not in known)
        self._book.post(
            attrs.evolve(
                opened,
                agent=agent.name,
                budget=agent.budget,
                grants=(*opened.grants, *around),
                forked_from=link,
                attended=False,
            )
        )
        read_later = set(self._broken_off_turns())
        for entry in record.entries:
            is_copied = isinstance(entry.event, COPIED_FACTS) or entry.seq in read_later
            if entry.seq < until and is_copied:
                self._copy(entry.seq, entry.event)
        for seq, event in self._pending_tool_answers(until):
            self._copy(seq, event)
        for process in list(self._book.ledger.sessions[self._id].processes.values()):
            self._book.post(ProcessEnded(process.task, process.id, PROCESS_NOT_COPIED))

    def _broken_off_turns(self) -> Iterator[int]:
        """Yield where a turn ended in the middle of an answer, which the next turns read."""
        said: int | None = None
        for entry in self._record.entries:
            match entry.event:
                case ModelFailed(task=task, text=text) if task == self._record.root:
                    said = entry.seq if text else None
                case TurnResumed():
                    said = None  # the model was asked again
                case TurnEnded() if said is not None:
                    yield said
                    said = None
                case _:
                    pass

    def _fork_seq(self, fork_point: TaskId) -> int:
        record = self._record
        if fork_point == record.root:
            if not record.turns:
                raise UnknownIdError(f"nothing was asked in run {record.run}")
            return min(entry.seq for entry in record.turns.values())
        request = record.ledger.tasks[fork_point].request
        assert request is not None, "every task but the root has a request"
        return record.requests[request.parent, request.call].seq

    def _pending_tool_answers(self, until: int) -> Iterator[tuple[int, Event]]:
        """Yield the later answers to earlier calls: no tool is run twice."""
        names: dict[tuple[TaskId, CallId], str] = {}
        for entry in self._record.entries:
            match entry.event:
                case ModelAnswered(task, message) if entry.seq < until:
                    names |= {(task, call.id): call.name for call in message.calls}
                case TaskSettled(task) if entry.seq < until:
                    self._ended.add(task)
                case TurnEnded() if entry.seq < until:
                    # The open calls of a turn are answered when the next one starts.
                    names = {
                        call: name
                        for call, name in names.items()
                        if call[0] != self._record.root
                    }
                case ToolAnswered(task, message) if entry.seq > until:
                    name = names.get((task, message.call), "delegate_task")
                    if name not in DELEGATION_TOOLS and task not in self._ended:
                        yield entry.seq, attrs.evolve(entry.event, mail=())
                case _:
                    pass

    def _copy(self, seq: int, event: Event) -> None:
        tasks = self._book.ledger.tasks
        event = self._with_new_ids(event)
        match event:
            case ModelAnswered(message=message):
                free = attrs.evolve(message, usage=Usage())
                event = replace(event, message=free, copied=True)
            case ModelFailed():
                event = attrs.evolve(event, usage=Usage(), charged=Usage())
            case TurnStarted() | ToolAnswered():
                mail = tuple(self._seq_map[it] for it in event.mail)
                event = attrs.evolve(event, mail=mail)
            # It was started again after a crash, which the fork does not have.
            case TaskStarted(task) if tasks[task].is_running:
                return
            # It was refused with the failure of its dependency, which was just copied.
            case TaskSettled(task) if tasks[task].outcome is not None:
                session = self._book.ledger.sessions[self._id]
                notices = {about: at for at, about in session.task_notices()}
                if task in notices:
                    self._seq_map[seq] = notices[task]
                return
            case _:
                pass
        self._seq_map[seq] = self._book.ledger.last_seq + 1
        self._book.post(event)

    def _with_new_ids(self, event: Event) -> Event:
        """Return a fact with the ids of the fork in place of those of the run."""
        if isinstance(event, SessionOpened | MessageReceived):
            # The key of a client pays for what it began, and not for a fork of that.
            own = tuple(it for it in event.grants if not it.is_standing)
            event = attrs.evolve(event, grants=own)
        encoded = encode(event)
        if isinstance(event, TaskRequested):
            self._id_map[event.request.id.encode()] = random_task_id().encode()
        if isinstance(event, SessionOpened | MessageReceived | TaskRequested):
            grants = (
                event.request.grants
                if isinstance(event, TaskRequested)
                else event.grants
            )
            for grant in grants:
                fresh = f"{SHARED_BUDGET_PREFIX}{random_task_id().removeprefix('t_')}".encode()
                self._id_map.setdefault(grant.id.encode(), fresh)
        body = ID_PATTERN.sub(
            lambda found: self._id_map.get(found[0], found[0]),
            encoded.body,
        )
        return decode(Encoded(encoded.kind, encoded.version, body))
