"""Restores a session from its snapshot: the records that the fold of its facts would give.

A session that is under way is then adopted by the ledger of all.
"""

from msgspec import UnsetType

from orchestrator.agents import Transcript
from orchestrator.delegation.amounts import NOTHING
from orchestrator.delegation.budget import Account
from orchestrator.delegation.errors import MISFITS, UnreadableFactError
from orchestrator.delegation.ledger.fold_jobs import refresh_scheduled
from orchestrator.delegation.ledger.idle_sessions import restore_session
from orchestrator.delegation.ledger.ledger import Ledger
from orchestrator.delegation.ledger.session_record import SessionRecord
from orchestrator.delegation.ledger.task_record import (
    NO_INCIDENTS,
    NO_MESSAGES,
    NO_QUESTIONS,
    NO_STEERING,
    Children,
    TaskRecord,
)
from orchestrator.delegation.ledger.task_state import IDLE, Ended, TaskState
from orchestrator.delegation.ledger.transitions import refresh_wakeable
from orchestrator.delegation.rules import Rules
from orchestrator.delegation.snapshot.snapshot import Snapshot
from orchestrator.delegation.snapshot.stored_state import (
    REASONS,
    STATES,
    STATUSES,
    StoredDetails,
    StoredSession,
    StoredState,
    StoredTask,
    decode_state,
    state_of_code,
)
from orchestrator.delegation.task import CANCELLED, WITH_CALLER, Grant, SessionId, TaskRequest
from orchestrator.delegation.tree.node import NOTHING_USED, TaskNode
from orchestrator.delegation.tree.tree import Tree


def restore_snapshot(snapshot: Snapshot) -> Ledger:
    """Return a ledger of the session alone, after the last fact of the snapshot.

    Raises:
        UnreadableFactError: it is damaged.
    """
    try:
        state = decode_state(snapshot.state)
        rules = Rules(
            live_tasks=state.live_tasks, live_children=state.live_children, detached=state.detached
        )
        ledger = _Restoration(Ledger(rules), state).restore()
    except (UnreadableFactError, *MISFITS) as exc:
        problem = f"the snapshot of session {snapshot.session} is damaged: {exc!r}"
        raise UnreadableFactError(problem) from exc
    ledger.last_seq = snapshot.seq
    return ledger


class _Restoration:
    """Builds the records of a session from its state."""

    def __init__(self, ledger: Ledger, state: StoredState) -> None:
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
        root = self._task(state.tasks[0], state.session.goal)
        session = SessionRecord(state.session.id, root, ledger.rules)
        session.tree.add_node(root.id, root.node)
        for it in state.tasks[1:]:
            assert it.request is not None, "only a root has no request"
            task = self._task(it, it.request.goal)
            self._add_to_tree(session.tree, task, it.request)
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
        refresh_scheduled(ledger, session)
        return ledger

    def _task(self, it: StoredTask, goal: str) -> TaskRecord:
        parent = None if it.parent is None else self._ledger.tasks[it.parent]
        node = _node(it, goal, 0 if parent is None else parent.node.level + 1)
        task = TaskRecord(it.id, self._state.session.id, node, parent, it.request)
        more = it.more
        if more is None:
            assert it.outcome is not None, "it has ended, as most tasks have"
            task.set_state(Ended(it.outcome))
            task.history = (*self._history(it.history[:-1]), task.state)
        else:
            ended: TaskState = IDLE if it.outcome is None else Ended(it.outcome)
            task.set_state(state_of_code(it.state, more.dependencies, ended))
            task.history = tuple(
                state_of_code(code, more.history_dependencies.get(index, ()), ended)
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
            self._histories[codes] = tuple(STATES[code] for code in codes)
        return self._histories[codes]

    def _add_to_tree(self, tree: Tree, task: TaskRecord, request: TaskRequest) -> None:
        tree.add_node(task.id, task.node)
        if request.needs:
            tree.set_needs(task.id, request.needs)
        # An earlier turn of the session has ended, and requests no more tasks.
        is_past = request.parent == tree.root and request.origin.turn != self._state.session.turns
        if not isinstance(request.to_come, UnsetType) and not is_past:
            tree.set_to_come(request.parent, request.to_come)

    def _add_more(self, task: TaskRecord, more: StoredDetails) -> None:
        tasks = self._ledger.tasks
        if more.transcript:
            task.transcript = Transcript(stored.it for stored in more.transcript)
            if more.shared and task.parent is not None:
                task.transcript = task.parent.transcript[: more.shared] + task.transcript
        else:
            task.transcript = NO_MESSAGES
        task.incidents = more.incidents or NO_INCIDENTS
        if more.children is not None:
            task.children = children = Children()
            children.by_call = more.children.by_call
            children.unsettled = {it: tasks[it] for it in more.children.unsettled}
            children.counts_by_agent = more.children.counts_by_agent
            children.slots_used = more.children.slots_used
            children.joined_slots_used = more.children.joined_slots_used
        task.instructions = more.instructions
        task.made_instructions = more.made_instructions
        task.reserved = more.reserved
        task.dependents = [tasks[it] for it in more.dependents]
        task.steering = dict(more.steering) if more.steering else NO_STEERING
        task.unseen_steering = more.unseen_steering
        if more.questions:
            task.questions = {it.call: it for it in more.questions}
        else:
            task.questions = NO_QUESTIONS
        task.approved = frozenset(more.approved)
        if more.placed:
            task.placed = {it.call: it for it in more.placed}

    def _fill(self, session: SessionRecord, it: StoredSession) -> None:
        tasks = self._ledger.tasks
        session.facts = session.facts_in_snapshot = it.facts
        session.accounts = tuple(self._ledger.accounts[id_] for id_ in it.accounts)
        session.approved = frozenset(it.approved)
        session.attended = it.attended
        session.closed = it.closed
        session.deleted = it.deleted
        session.door = it.door
        session.forked_from = it.forked_from
        session.kind = it.kind
        session.metadata = it.metadata
        session.states = it.states
        session.owner = it.owner
        session.workspace_host = it.workspace_host
        session.turns = it.turns
        session.turn = it.turn
        session.tree.turns = it.turn_times
        session.tree.calls_began = it.calls_began
        session.tree.provider_waits = it.provider_waits
        session.tree.awaited = it.awaited
        session.last_outcome = it.last_outcome
        session.past_turns = it.past_turns
        session.mail = {seq: stored.it for seq, stored in it.mail}
        session.consumed = {seq: stored.it for seq, stored in it.consumed}
        session.envelopes = dict(it.envelopes)
        session.terms = it.terms
        session.undelivered = {reply.turn: reply for reply in it.undelivered}
        session.unsettled_detached = {id_: tasks[id_] for id_ in it.unsettled_detached}
        session.processes = {process.id: process for process in it.processes}
        session.jobs = {job.spec.id: job for job in it.jobs}
        session.slots.restore(
            (
                ((parent, mode), {id_: tasks[id_] for id_ in queue})
                for parent, mode, queue in it.queues
            ),
            it.eligible,
            in_use=it.slots_in_use,
            detached=it.slots_detached,
            paused=[tasks[id_] for id_ in it.paused],
        )


def adopt_session(ledger: Ledger, session: SessionId, past: Ledger) -> None:
    """Add an active session to a ledger, and book its usage.

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
    ledger.scheduled |= past.scheduled
    questions = [*ledger.open_questions.values(), *past.open_questions.values()]
    questions.sort(key=lambda question: question.asked_at)
    ledger.open_questions = {question.id: question for question in questions}


def _node(it: StoredTask, goal: str, level: int) -> TaskNode:
    usage, outcome = NOTHING_USED if it.usage is None else it.usage, it.outcome
    return TaskNode(
        parent=it.parent,
        agent=it.agent,
        goal=goal,
        label="" if it.request is None else it.request.label,
        path=it.path,
        mode=it.mode,
        status=STATUSES[it.status],
        reason=REASONS[it.reason],
        requested=it.requested,
        started=it.started,
        ended=it.ended,
        usage=usage,
        total=usage if it.total is None else it.total,
        error=it.error,
        abandoned=outcome is not None
        and outcome.ending is CANCELLED
        and outcome.cause in WITH_CALLER,
        chosen="" if it.request is None else it.request.choices_text,
        level=level,
        kept=outcome is not None and outcome.kept is True,
    )
