"""Takes the snapshot of a session that no fact changes meanwhile."""

from typing import assert_never

from msgspec import UNSET

from orchestrator.agents import AssistantMessage, Message, ToolMessage, UserMessage
from orchestrator.delegation.budget import Account
from orchestrator.delegation.errors import MISFITS, UnwritableFactError
from orchestrator.delegation.events.processes import ProcessNotice
from orchestrator.delegation.ledger.forks import shared_messages
from orchestrator.delegation.ledger.ledger import Ledger
from orchestrator.delegation.ledger.session_record import Mail, SessionRecord
from orchestrator.delegation.ledger.task_record import NO_CHILDREN, TaskRecord
from orchestrator.delegation.ledger.task_state import Ended, Interrupted, Queued
from orchestrator.delegation.notices import TaskNotice
from orchestrator.delegation.snapshot.snapshot import Snapshot, snapshot_layout
from orchestrator.delegation.snapshot.stored_state import (
    StoredAccount,
    StoredAssistant,
    StoredChildren,
    StoredDetails,
    StoredMail,
    StoredMessage,
    StoredProcessNotice,
    StoredSession,
    StoredState,
    StoredTask,
    StoredTaskNotice,
    StoredTool,
    StoredUser,
    encode_state,
    state_code,
)
from orchestrator.delegation.tree.node import NOTHING_USED, TaskNode


def take_snapshot(ledger: Ledger, session: SessionRecord) -> Snapshot:
    """Return the snapshot of a session. It takes long, and may be called in another thread.

    Raises:
        UnwritableFactError: JSON cannot carry this state.
    """
    try:
        state = encode_state(_stored_state(ledger, session))
    except MISFITS as exc:
        problem = f"session {session.id} has a state that cannot be stored: {exc!r}"
        raise UnwritableFactError(problem) from exc
    return Snapshot(session.id, ledger.last_seq, snapshot_layout(ledger.rules), state)


def _stored_state(ledger: Ledger, session: SessionRecord) -> StoredState:
    own = ledger.tasks
    contexts: dict[tuple[tuple[str, str], ...], int] = {}
    # Those that it has booked on first, in their order.
    accounts = dict(session.own_accounts)
    others = {account.id: account for account in session.accounts}
    tasks: list[StoredTask] = []
    for id_, node in session.tree.nodes().items():
        task = own[id_]
        for account in task.accounts:
            others[account.id] = account
        context = contexts.setdefault((*task.context.items(),), len(contexts))
        tasks.append(_stored_task(task, node, context))
    for name, account in sorted(others.items()):
        accounts.setdefault(name, account)
    return StoredState(
        live_tasks=ledger.rules.live_tasks,
        live_children=ledger.rules.live_children,
        detached=ledger.rules.detached,
        session=_stored_session(session),
        tasks=tasks,
        contexts=list(map(dict, contexts)),
        accounts=[_stored_account(account, session) for account in accounts.values()],
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


def _stored_account(account: Account, session: SessionRecord) -> StoredAccount:
    own = session.own_accounts.get(account.id)
    return StoredAccount(
        account.id,
        account.budget,
        account.path,
        account.depth,
        account.started_at,
        None if own is None else own.used,
    )


def _stored_session(session: SessionRecord) -> StoredSession:
    return StoredSession(
        id=session.id,
        facts=session.facts,
        goal=session.tree.nodes()[session.root.id].goal,
        accounts=[account.id for account in session.accounts],
        approved=sorted(session.approved),
        attended=session.attended,
        closed=session.closed,
        deleted=session.deleted,
        door=session.door,
        forked_from=session.forked_from,
        kind=session.kind,
        metadata=session.metadata,
        states=session.states,
        owner=session.owner,
        workspace_host=session.workspace_host,
        turns=session.turns,
        turn=session.turn,
        turn_times=list(session.tree.turns),
        calls_began=session.tree.calls_began,
        provider_waits=session.tree.provider_waits,
        awaited=session.tree.awaited,
        last_outcome=session.last_outcome,
        past_turns=list(session.past_turns),
        mail=[(seq, _stored_mail(mail)) for seq, mail in session.mail.items()],
        consumed=[(seq, _stored_mail(mail)) for seq, mail in session.consumed.items()],
        envelopes=list(session.envelopes.items()),
        terms=session.terms,
        undelivered=list(session.undelivered.values()),
        unsettled_detached=list(session.unsettled_detached),
        processes=list(session.processes.values()),
        jobs=list(session.jobs.values()),
        slots_in_use=session.slots.in_use,
        slots_detached=session.slots.detached,
        queues=session.slots.queues,
        eligible=list(session.slots.eligible),
        paused=list(session.slots.paused),
    )


def _stored_mail(mail: Mail) -> StoredMail:
    match mail:
        case UserMessage():
            return StoredUser(mail)
        case TaskNotice():
            return StoredTaskNotice(mail)
        case ProcessNotice():
            return StoredProcessNotice(mail)
        case _:
            assert_never(mail)


def _stored_message(message: Message) -> StoredMessage:
    match message:
        case UserMessage():
            return StoredUser(message)
        case AssistantMessage():
            return StoredAssistant(message)
        case ToolMessage():
            return StoredTool(message)
        case _:
            assert_never(message)


def _stored_task(task: TaskRecord, node: TaskNode, context: int) -> StoredTask:
    usage, total = node.usage, node.total
    return StoredTask(
        id=task.id,
        parent=None if task.parent is None else task.parent.id,
        agent=task.agent,
        path=task.path,
        mode=task.mode,
        request=task.request,
        state=state_code(task.state),
        history="".join(map(state_code, task.history)),
        outcome=task.outcome,
        context=context,
        accounts=[account.id for account in task.accounts],
        restarts=task.restarts,
        cancel_requested=task.cancel_requested,
        status=node.status,
        reason=node.reason,
        requested=node.requested,
        started=node.started,
        ended=node.ended,
        usage=None if usage == NOTHING_USED else usage,
        total=None if total == usage else total,
        error=node.error,
        more=_more(task),
    )


def _more(task: TaskRecord) -> StoredDetails | None:
    history = {
        index: sorted(state.dependencies)
        for index, state in enumerate(task.history)
        if isinstance(state, Queued | Interrupted) and state.dependencies
    }
    is_plain = not (task.steering or task.approved or task.reserved or history)
    if isinstance(task.state, Ended) and is_plain:
        return None
    children = task.children
    shared, own = 0, task.transcript
    if task.request is not None and task.request.fork is not UNSET:
        shared = shared_messages(task, task.request.fork)
        own = own[shared:]
    return StoredDetails(
        transcript=list(map(_stored_message, own)),
        incidents=task.incidents,
        children=None
        if children is NO_CHILDREN
        else StoredChildren(
            children.by_call,
            list(children.unsettled),
            children.counts_by_agent,
            children.slots_used,
            children.joined_slots_used,
        ),
        dependencies=sorted(task.pending_dependencies),
        history_dependencies=history,
        instructions=task.instructions,
        made_instructions=task.made_instructions,
        reserved=task.reserved,
        dependents=[dependent.id for dependent in task.dependents],
        steering=list(task.steering.items()),
        unseen_steering=task.unseen_steering,
        questions=list(task.questions.values()),
        approved=sorted(task.approved),
        placed=list(task.placed.values()),
        shared=shared,
    )
