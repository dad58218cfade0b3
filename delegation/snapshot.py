"""Snapshots: the state of one session, so that it is read without folding all its facts again.

The journal stays the only truth. A snapshot is what the fold of the session's facts gives, up to a
number, and nothing else: without it, opening the session takes longer, and gives the same. Only the
code that wrote it, under the same rules, reads it; any other folds the facts.
"""

import copy
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, assert_never

import attrs
import msgspec

from agents import (
    AssistantMessage,
    Budget,
    Message,
    MessageId,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
)
from delegation.amounts import NOTHING, Amounts
from delegation.budget import Account
from delegation.errors import UnreadableFactError
from delegation.events.approvals import ApprovalQuestion
from delegation.events.codec import VERSION as FACTS_VERSION
from delegation.events.processes import ProcessNotice, ProcessRecord
from delegation.ledger.idle_sessions import restore_session
from delegation.ledger.ledger import Ledger
from delegation.ledger.records import (
    NO_CHILDREN,
    NO_MESSAGES,
    NO_QUESTIONS,
    NO_STEERING,
    Children,
    Envelope,
    Mail,
    Reply,
    SessionRecord,
    Steering,
    TaskRecord,
    Turn,
)
from delegation.ledger.task_state import (
    IDLE,
    QUEUED,
    QUIET,
    READY,
    READY_TO_RESUME,
    RUNNING,
    Ended,
    Interrupted,
    Queued,
    TaskState,
)
from delegation.ledger.transitions import refresh_wakeable
from delegation.notices import TaskNotice
from delegation.rules import Rules
from delegation.task import (
    SHARED_BUDGET_PREFIX,
    DeliveryCapability,
    Ending,
    Grant,
    Mode,
    Outcome,
    Reason,
    SessionId,
    Status,
    TaskId,
    TaskRequest,
)
from delegation.tree.rollups import NOTHING_USED

LAYOUT: Final = 1
"""Raise it with any change of the fold, of its records or of this module: snapshots from before are
not read then."""
MIN_FACTS: Final = 2_000
"""How many facts are folded again rather than written to a snapshot."""
SHARE: Final = 8
"""A snapshot is due when an eighth of the facts has come since the last one. A smaller part makes
the session open faster, and snapshots cost more."""
SHARE_AT_REST: Final = 32
"""The same of a session at rest, which may stay as it is for long."""

_OWN_LAYOUT: Final = f"{LAYOUT}.{FACTS_VERSION}"
_STATES: Final[dict[str, TaskState]] = {
    "i": IDLE,
    "q": QUEUED,
    "r": READY,
    "s": READY_TO_RESUME,
    "u": RUNNING,
    "v": QUIET,
    "x": Interrupted(),
}
_CODES: Final = {state: code for code, state in _STATES.items()}
_ENDED: Final = "e"
_REASONS: Final[dict[str, str]] = {"": "", **{it.value: it for it in Reason}}
_STATUSES: Final[dict[str, str]] = {it.value: it for it in (*Status, *Ending)}


@attrs.frozen
class Snapshot:
    """The state of a session after one of its facts, as it is stored."""

    session: SessionId
    seq: int
    """The number of the last fact that is folded in it."""
    layout: str
    """The code and the rules by which it was made."""
    state: bytes


def snapshot_layout(rules: Rules) -> str:
    """Return the layout of the snapshots that this code reads under these rules."""
    # The other rules are not known to the fold.
    slots = f"{rules.live_tasks}/{rules.live_children}/{rules.detached}"
    return f"{_OWN_LAYOUT} {slots}"


def is_own_layout(snapshot: Snapshot) -> bool:
    """Return whether this code made a snapshot, under whatever rules."""
    return snapshot.layout.startswith(f"{_OWN_LAYOUT} ")


def is_snapshot_due(session: SessionRecord) -> bool:
    """Return whether many facts have come since the last snapshot of a session."""
    new = session.facts - session.facts_in_snapshot
    if new < MIN_FACTS:
        return False
    share = SHARE_AT_REST if session.is_at_rest else SHARE
    return new * share >= session.facts


class _User(msgspec.Struct, array_like=True, gc=False, tag="u"):
    it: UserMessage


class _Assistant(msgspec.Struct, array_like=True, gc=False, tag="a"):
    it: AssistantMessage


class _Tool(msgspec.Struct, array_like=True, gc=False, tag="t"):
    it: ToolMessage


class _TaskNotice(msgspec.Struct, array_like=True, gc=False, tag="n"):
    it: TaskNotice


class _ProcessNotice(msgspec.Struct, array_like=True, gc=False, tag="p"):
    it: ProcessNotice


_StoredMessage: TypeAlias = _User | _Assistant | _Tool
_StoredMail: TypeAlias = _User | _TaskNotice | _ProcessNotice


class _Children(msgspec.Struct, array_like=True, gc=False):
    by_call: dict[str, TaskId]
    unsettled: list[TaskId]
    counts_by_agent: dict[str, int]
    slots_used: int
    joined_slots_used: int


class _More(msgspec.Struct, array_like=True, gc=False):
    """What few tasks that have ended have."""

    transcript: list[_StoredMessage]
    children: _Children | None
    dependencies: list[TaskId]
    history_dependencies: dict[int, list[TaskId]]
    instructions: str
    reserved: Usage | None
    dependents: list[TaskId]
    steering: list[tuple[MessageId, Steering]]
    unseen_steering: tuple[MessageId, ...]
    questions: list[ApprovalQuestion]
    approved: list[tuple[str, str]]


class _Task(msgspec.Struct, array_like=True, gc=False):
    """A task and its node of the tree."""

    id: TaskId
    parent: TaskId | None
    agent: str
    path: str
    mode: Mode
    request: TaskRequest | None
    state: str
    history: str
    outcome: Outcome | None
    context: int
    """The index of its context among all of them: most tasks share one."""
    accounts: list[str]
    restarts: int
    cancel_requested: bool
    status: str
    reason: str
    requested: float
    started: float | None
    ended: float | None
    usage: Usage | None
    total: Usage | None
    error: str
    more: _More | None


class _StoredAccount(msgspec.Struct, array_like=True, gc=False):
    id: str
    budget: Budget
    path: str
    depth: int
    at: float
    used: Amounts | None
    """By this session; None if it has booked nothing."""


class _Session(msgspec.Struct, array_like=True, gc=False):
    id: SessionId
    facts: int
    goal: str
    accounts: list[str]
    approved: list[tuple[str, str]]
    attended: bool
    closed: bool
    deleted: bool
    door: DeliveryCapability | None
    forked_from: str
    labels: dict[str, str]
    turns: int
    turn: Turn | None
    turn_times: list[tuple[float, float | None]]
    last_outcome: Outcome | None
    mail: list[tuple[int, _StoredMail]]
    consumed: list[tuple[int, _StoredMail]]
    envelopes: list[tuple[int, Envelope]]
    undelivered: list[Reply]
    unsettled_detached: list[TaskId]
    processes: list[ProcessRecord]
    slots_in_use: int
    slots_detached: int
    queues: list[tuple[TaskId, Mode, tuple[TaskId, ...]]]
    eligible: list[tuple[TaskId, Mode]]


class _State(msgspec.Struct, gc=False):
    live_tasks: int | None
    live_children: int | None
    detached: int | None
    session: _Session
    tasks: list[_Task]
    contexts: list[dict[str, str]]
    accounts: list[_StoredAccount]
    startable: list[TaskId]
    joinable: list[TaskId]
    unstartable: list[tuple[TaskId, TaskId]]
    open_questions: list[ApprovalQuestion]


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_State)


class SnapshotCapture:
    """The state of a session at one moment, while the session goes on."""

    def __init__(self, ledger: Ledger, session: SessionRecord) -> None:
        """Take what may change. It takes O(1) for each task that has ended."""
        self.session = session.id
        self.seq = ledger.last_seq
        self.layout = snapshot_layout(ledger.rules)
        nodes = session.tree.nodes()
        # Lists of what there is already: as many new objects would wake the garbage collector.
        self._tasks = [_captured_task(ledger.tasks[task]) for task in nodes]
        self._totals: list[Usage] = [node["total"] for node in nodes.values()]
        self._nodes = [
            node if task.outcome is not None else dict(node)
            for task, node in zip(self._tasks, nodes.values(), strict=True)
        ]
        self._used = {id_: own.used for id_, own in session.own_accounts.items()}
        # Those that it has booked on first, in their order.
        accounts = dict(session.own_accounts)
        others = {account.id: account for account in session.accounts}
        for task in self._tasks:
            for account in task.accounts:
                others[account.id] = account
        for id_, account in sorted(others.items()):
            accounts.setdefault(id_, account)
        self._accounts = list(accounts.values())
        self._beginnings = [account.started_at for account in self._accounts]
        own = ledger.tasks
        self._state = _State(
            live_tasks=ledger.rules.live_tasks,
            live_children=ledger.rules.live_children,
            detached=ledger.rules.detached,
            session=_stored_session(session),
            tasks=[],
            contexts=[],
            accounts=[],
            startable=[it for it in ledger.startable if own[it].session == session.id],
            joinable=[it for it in ledger.joinable if own[it].session == session.id],
            unstartable=[
                (task, needed.id)
                for task, needed in ledger.unstartable.items()
                if needed.session == session.id
            ],
            open_questions=[
                question
                for question in ledger.open_questions.values()
                if own[question.task].session == session.id
            ],
        )

    def encode(self) -> Snapshot:
        """Return the snapshot. It takes long, and may be called in another thread."""
        state = self._state
        state.accounts = [
            _StoredAccount(
                account.id,
                account.budget,
                account.path,
                account.depth,
                began,
                self._used.get(account.id),
            )
            for account, began in zip(self._accounts, self._beginnings, strict=True)
        ]
        contexts: dict[tuple[tuple[str, str], ...], int] = {}
        state.tasks = [
            _stored_task(
                task,
                node,
                total,
                contexts.setdefault((*task.context.items(),), len(contexts)),
            )
            for task, node, total in zip(
                self._tasks, self._nodes, self._totals, strict=True
            )
        ]
        state.contexts = list(map(dict, contexts))
        # Ids and repeated words: a fast compression makes it a fifth.
        data = zlib.compress(_ENCODER.encode(state), level=1)
        return Snapshot(self.session, self.seq, self.layout, data)


def _captured_task(task: TaskRecord) -> TaskRecord:
    if task.outcome is not None:
        # Nothing of it changes any more but the total, by tasks that it has detached.
        return task
    taken = copy.copy(task)
    taken.steering = dict(task.steering)
    if task.children is not NO_CHILDREN:
        taken.children = copy.copy(task.children)
        taken.children.by_call = dict(task.children.by_call)
        taken.children.unsettled = dict(task.children.unsettled)
        taken.children.counts_by_agent = dict(task.children.counts_by_agent)
    return taken


def _stored_session(session: SessionRecord) -> _Session:
    return _Session(
        id=session.id,
        facts=session.facts,
        goal=session.tree.nodes()[session.root.id]["goal"],
        accounts=[account.id for account in session.accounts],
        approved=sorted(session.approved),
        attended=session.attended,
        closed=session.closed,
        deleted=session.deleted,
        door=session.door,
        forked_from=session.forked_from,
        labels=dict(session.labels),
        turns=session.turns,
        turn=session.turn,
        turn_times=list(session.tree.turns),
        last_outcome=session.last_outcome,
        mail=[(seq, _stored_mail(mail)) for seq, mail in session.mail.items()],
        consumed=[(seq, _stored_mail(mail)) for seq, mail in session.consumed.items()],
        envelopes=list(session.envelopes.items()),
        undelivered=list(session.undelivered.values()),
        unsettled_detached=list(session.unsettled_detached),
        processes=list(session.processes.values()),
        slots_in_use=session.slots.in_use,
        slots_detached=session.slots.detached,
        queues=session.slots.queues,
        eligible=list(session.slots.eligible),
    )


def _stored_mail(mail: Mail) -> _StoredMail:
    match mail:
        case UserMessage():
            return _User(mail)
        case TaskNotice():
            return _TaskNotice(mail)
        case ProcessNotice():
            return _ProcessNotice(mail)
        case _:
            assert_never(mail)


def _stored_message(message: Message) -> _StoredMessage:
    match message:
        case UserMessage():
            return _User(message)
        case AssistantMessage():
            return _Assistant(message)
        case ToolMessage():
            return _Tool(message)
        case _:
            assert_never(message)


def _stored_task(
    task: TaskRecord, node: Mapping[str, Any], total: Usage, context: int
) -> _Task:
    usage: Usage = node["usage"]
    return _Task(
        id=task.id,
        parent=None if task.parent is None else task.parent.id,
        agent=task.agent,
        path=task.path,
        mode=task.mode,
        request=task.request,
        state=_code(task.state),
        history="".join(map(_code, task.history)),
        outcome=task.outcome,
        context=context,
        accounts=[account.id for account in task.accounts],
        restarts=task.restarts,
        cancel_requested=task.cancel_requested,
        status=node["status"],
        reason=node["reason"],
        requested=node["requested"],
        started=node["started"],
        ended=node["ended"],
        usage=None if usage == NOTHING_USED else usage,
        total=None if total == usage else total,
        error=node["error"],
        more=_more(task),
    )


def _more(task: TaskRecord) -> _More | None:
    history = {
        index: sorted(state.dependencies)
        for index, state in enumerate(task.history)
        if isinstance(state, Queued | Interrupted) and state.dependencies
    }
    is_plain = not (task.steering or task.approved or task.reserved or history)
    if isinstance(task.state, Ended) and is_plain:
        return None
    children = task.children
    return _More(
        transcript=list(map(_stored_message, task.transcript)),
        children=None
        if children is NO_CHILDREN
        else _Children(
            children.by_call,
            list(children.unsettled),
            children.counts_by_agent,
            children.slots_used,
            children.joined_slots_used,
        ),
        dependencies=sorted(task.pending_dependencies),
        history_dependencies=history,
        instructions=task.instructions,
        reserved=task.reserved,
        dependents=[dependent.id for dependent in task.dependents],
        steering=list(task.steering.items()),
        unseen_steering=task.unseen_steering,
        questions=list(task.questions.values()),
        approved=sorted(task.approved),
    )


def _code(state: TaskState) -> str:
    match state:
        case Ended():
            return _ENDED
        case Queued():
            return _CODES[QUEUED]
        case Interrupted():
            return _CODES[Interrupted()]
        case _:
            return _CODES[state]


def _state(code: str, dependencies: Iterable[TaskId], ended: TaskState) -> TaskState:
    if code == _ENDED:
        return ended
    state = _STATES[code]
    if dependencies and isinstance(state, Queued | Interrupted):
        return type(state)(frozenset(dependencies))
    return state


def restore_snapshot(snapshot: Snapshot) -> Ledger:
    """Return a ledger of the session alone, as it was after the last fact of the snapshot.

    Raises:
        UnreadableFactError: it is damaged.
    """
    try:
        state = _DECODER.decode(zlib.decompress(snapshot.state))
    except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error) as exc:
        problem = f"the snapshot of session {snapshot.session} is damaged: {exc}"
        raise UnreadableFactError(problem) from exc
    ledger = Ledger(
        Rules(
            live_tasks=state.live_tasks,
            live_children=state.live_children,
            detached=state.detached,
        )
    )
    ledger.last_seq = snapshot.seq
    return _Restoration(ledger, state).restore()


class _Restoration:
    """Builds the records of a session from its state."""

    def __init__(self, ledger: Ledger, state: _State) -> None:
        self._ledger = ledger
        self._state = state
        self._histories: dict[str, tuple[TaskState, ...]] = {}
        for it in state.accounts:
            account = Account(
                Grant(it.id, it.budget), path=it.path, depth=it.depth, started_at=it.at
            )
            account.used = it.used or NOTHING
            ledger.accounts[it.id] = account

    def restore(self) -> Ledger:
        ledger, state = self._ledger, self._state
        root = self._task(state.tasks[0])
        session = SessionRecord(state.session.id, root, ledger.rules)
        self._add_node(session, state.tasks[0], state.session.goal)
        for it in state.tasks[1:]:
            assert it.request is not None, "only a root has no request"
            self._task(it)
            self._add_node(session, it, it.request.goal)
        for it in state.tasks:
            if it.more is not None:
                self._add_more(ledger.tasks[it.id], it.more)
        self._fill(session, state.session)
        for account in state.accounts:
            if account.used is not None:
                whole = ledger.accounts[account.id]
                session.own_accounts[account.id] = own = whole.without_use()
                own.used = account.used
        ledger.sessions[session.id] = session
        ledger.all_sessions[session.id] = None
        tasks = ledger.tasks
        ledger.startable = {it: tasks[it] for it in state.startable}
        ledger.joinable = {it: tasks[it] for it in state.joinable}
        ledger.unstartable = {it: tasks[needed] for it, needed in state.unstartable}
        ledger.open_questions = {it.id: it for it in state.open_questions}
        refresh_wakeable(ledger, session)
        return ledger

    def _task(self, it: _Task) -> TaskRecord:
        parent = None if it.parent is None else self._ledger.tasks[it.parent]
        task = TaskRecord(
            it.id,
            session=self._state.session.id,
            agent=it.agent,
            path=it.path,
            mode=it.mode,
            parent=parent,
            request=it.request,
        )
        more = it.more
        if more is None:
            assert it.outcome is not None, "it has ended, as most tasks have"
            task.state = Ended(it.outcome)
            task.history = (*self._history(it.history[:-1]), task.state)
        else:
            ended: TaskState = IDLE if it.outcome is None else Ended(it.outcome)
            task.state = _state(it.state, more.dependencies, ended)
            task.history = tuple(
                _state(code, more.history_dependencies.get(index, ()), ended)
                for index, code in enumerate(it.history)
            )
        task.cancel_requested = it.cancel_requested
        task.restarts = it.restarts
        task.context = self._state.contexts[it.context]
        if it.accounts:
            task.accounts = tuple(self._ledger.accounts[id_] for id_ in it.accounts)
        self._ledger.tasks[it.id] = task
        return task

    def _history(self, codes: str) -> tuple[TaskState, ...]:
        """Return the states before the end; most tasks have the same."""
        if codes not in self._histories:
            self._histories[codes] = tuple(_STATES[code] for code in codes)
        return self._histories[codes]

    def _add_node(self, session: SessionRecord, it: _Task, goal: str) -> None:
        usage = NOTHING_USED if it.usage is None else it.usage
        node = {
            "parent": it.parent,
            "agent": it.agent,
            "goal": goal,
            "label": "" if it.request is None else it.request.label,
            "path": it.path,
            "mode": it.mode,
            "status": _STATUSES[it.status],
            "reason": _REASONS[it.reason],
            "requested": it.requested,
            "started": it.started,
            "ended": it.ended,
            "usage": usage,
            "cost": usage.cost,
            "total": usage if it.total is None else it.total,
            "error": it.error,
        }
        needs = () if it.request is None else it.request.needs
        session.tree.restore(it.id, node, needs)

    def _add_more(self, task: TaskRecord, more: _More) -> None:
        tasks = self._ledger.tasks
        if more.transcript:
            task.transcript = Transcript(stored.it for stored in more.transcript)
        else:
            task.transcript = NO_MESSAGES
        if more.children is not None:
            task.children = children = Children()
            children.by_call = more.children.by_call
            children.unsettled = {it: tasks[it] for it in more.children.unsettled}
            children.counts_by_agent = more.children.counts_by_agent
            children.slots_used = more.children.slots_used
            children.joined_slots_used = more.children.joined_slots_used
        task.instructions = more.instructions
        task.reserved = more.reserved
        task.dependents = [tasks[it] for it in more.dependents]
        task.steering = dict(more.steering) if more.steering else NO_STEERING
        task.unseen_steering = more.unseen_steering
        if more.questions:
            task.questions = {it.call: it for it in more.questions}
        else:
            task.questions = NO_QUESTIONS
        task.approved = frozenset(more.approved)

    def _fill(self, session: SessionRecord, it: _Session) -> None:
        tasks = self._ledger.tasks
        session.facts = session.facts_in_snapshot = it.facts
        session.accounts = tuple(self._ledger.accounts[id_] for id_ in it.accounts)
        session.approved = frozenset(it.approved)
        session.attended = it.attended
        session.closed = it.closed
        session.deleted = it.deleted
        session.door = it.door
        session.forked_from = it.forked_from
        session.labels = it.labels
        session.turns = it.turns
        session.turn = it.turn
        session.tree.turns = it.turn_times
        session.last_outcome = it.last_outcome
        session.mail = {seq: stored.it for seq, stored in it.mail}
        session.consumed = {seq: stored.it for seq, stored in it.consumed}
        session.envelopes = dict(it.envelopes)
        session.undelivered = {reply.turn: reply for reply in it.undelivered}
        session.unsettled_detached = {id_: tasks[id_] for id_ in it.unsettled_detached}
        session.processes = {process.id: process for process in it.processes}
        session.slots.restore(
            (
                ((parent, mode), {id_: tasks[id_] for id_ in queue})
                for parent, mode, queue in it.queues
            ),
            it.eligible,
            in_use=it.slots_in_use,
            detached=it.slots_detached,
        )


def adopt_session(ledger: Ledger, session: SessionId, past: Ledger) -> None:
    """Add a session that is not at rest to a ledger that has not booked what it has used.

    Args:
        ledger: the ledger that gets its records.
        session: the id of the session.
        past: the fold of its entries alone.
    """
    record = past.sessions[session]
    for id_, own in record.own_accounts.items():
        account = ledger.accounts.setdefault(id_, own.without_use())
        account.started_at = min(account.started_at, own.started_at)
        account.used += own.used
    restore_session(ledger, session, past)
    ledger.all_sessions[session] = None
    ledger.startable |= past.startable
    ledger.joinable |= past.joinable
    ledger.unstartable |= past.unstartable
    ledger.wakeable |= past.wakeable
    questions = [*ledger.open_questions.values(), *past.open_questions.values()]
    questions.sort(key=lambda question: question.asked_at)
    ledger.open_questions = {question.id: question for question in questions}


def is_same_state(one: Snapshot, two: Snapshot) -> bool:
    """Return whether two snapshots hold the same state of a session."""
    return one.seq == two.seq and _comparable(one) == _comparable(two)


def _comparable(snapshot: Snapshot) -> bytes:
    state = _DECODER.decode(zlib.decompress(snapshot.state))
    for account in state.accounts:
        # Where and when a budget was set that several sessions share, only the first of them knows.
        if account.id.startswith(SHARED_BUDGET_PREFIX):
            account.path, account.depth, account.at = "", 0, 0
    return _ENCODER.encode(state)
