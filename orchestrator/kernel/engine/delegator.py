"""Delegates tasks, joined or detached, and controls them afterwards.

A joined and a detached task differ only in their owner: the nursery of the call, or the nursery of
`dispatch_forever`. `run_child` runs both, and the fact `TaskSettled` ends both waits.
"""

import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import trio
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from orchestrator.agents import Agent, CallId, MessageId, ToolError, raising_one_error
from orchestrator.agents.redaction.long_texts import has_long_text, search_ahead, search_tree_ahead
from orchestrator.agents.redaction.redactor import LONG_TEXT
from orchestrator.delegation import (
    Assignment,
    Cause,
    DeliveryCapability,
    Ending,
    Grant,
    Mode,
    Origin,
    Outcome,
    Receipt,
    SessionId,
    TaskId,
    TaskRecord,
    TaskRequest,
    call_key,
    dispatched_answer,
    joined_answer,
    readable_characters,
    share_per_result,
    task_result,
)
from orchestrator.delegation.choices import Choices
from orchestrator.delegation.earlier_message import EarlierMessage
from orchestrator.delegation.events import (
    CancelRequested,
    StartsPaused,
    Steered,
    SteeringOrigin,
    TaskStarted,
)
from orchestrator.kernel.budget_scope import grants_beyond
from orchestrator.kernel.engine.task_runner import TaskRunner
from orchestrator.kernel.errors import EndedError
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.executor import StepTiming
from orchestrator.kernel.execution.outcomes import PROCESS_DIED, TaskEnd
from orchestrator.kernel.journal.admission import START_AT_ONCE
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.journal.fact_redaction import without_secrets

NewTaskId: TypeAlias = Callable[[TaskId, str], TaskId]
"""Names a new task, by its parent and the call that requests it."""

NO_DELIVERY: Final = DeliveryCapability.NONE
"""A constant: the class of an Enum answers slowly in Python 3.11."""
DURABLE_AT_ONCE: Final = 1_000
"""How many tasks of a call are requested before its first children begin, after one commit."""
RESULTS_AT_ONCE: Final = 500
"""How many results are read before all others get a turn of the event loop: some 3 ms."""


class _CallTerms(msgspec.Struct, frozen=True):
    """The parts of a call of `delegate_task` that all its tasks share."""

    caller: TaskRecord
    agent: Agent[Any]
    origin: Origin
    call: CallId
    background: bool | None
    handoff: bool
    grants: tuple[Grant, ...]
    """The budgets around the call, beyond those of its caller."""
    choices: Sequence[Choices]
    by_tool: bool


class OrchestratorDelegator:
    """Delegates for all agents and pipelines (`delegation.Delegator`, `ChildRunner`)."""

    def __init__(
        self,
        book: Bookkeeper,
        registry: AgentRegistry,
        runner: TaskRunner,
        new_task_id: NewTaskId,
        *,
        timing: StepTiming | None = None,
    ) -> None:
        self._new_task_id = new_task_id
        self.timing = timing
        self._book = book
        self._registry = registry
        self._runner = runner
        self._settlement = runner.settlement
        self.accepts_all_changes = False
        """All programs may request other tasks than before a crash."""

    def now(self) -> float:
        return self._book.clock()

    def new_task_id(self, parent: TaskId, call: str, /) -> TaskId:
        return self._new_task_id(parent, call)

    def accepts_changes(self, task: TaskRecord) -> bool:
        turn = self._book.ledger.sessions[task.session].turn
        return self.accepts_all_changes or (turn is not None and turn.accepts_changes)

    def refuse_change(self, task: TaskRecord, change: str) -> None:
        self._runner.stop_changed(task, change)

    def add_note(self, task: TaskId, note: str) -> None:
        self._settlement.notes.setdefault(task, []).append(note)

    def settle(self, task: TaskRecord, outcome: Outcome) -> Outcome:
        """End a task, after all that it has joined."""
        return self._settlement.settle(task, outcome)

    async def delegate(  # noqa: C901, PLR0912 (one frame for each delegation)
        self,
        assignments: Sequence[Assignment],
        *,
        parent: TaskId,
        origin: Origin,
        call: CallId,
        background: bool | None,
        handoff: bool = False,
        choices: Sequence[Choices] = (),
        by_tool: bool = False,
    ) -> str:
        ledger, admission = self._book.ledger, self._book.admission
        caller = ledger.tasks[parent]
        agent = self._registry.agent_of(caller)
        grants = grants_beyond(caller.accounts, self._book)
        terms = _CallTerms(
            caller, agent, origin, call, background, handoff, grants, choices, by_tool
        )
        first = assignments
        if len(assignments) > START_AT_ONCE and admission.takes_steps(assignments, caller, grants):
            first = assignments[:START_AT_ONCE]
        requests = self._requests(first, terms)
        if handoff:
            await self._search_conversation(requests[0])
        if admission.is_stopping and any(it.call not in caller.children.by_call for it in requests):
            await admission.wait_running(parent)
        tasks = self._admit(requests, caller)
        session = ledger.sessions[origin.session]
        if tasks[0].node.mode is Mode.DETACHED:
            await trio.lowlevel.checkpoint()
            while len(tasks) < len(assignments):
                tasks += self._admit_next(assignments, terms, at=len(tasks))
                await trio.lowlevel.checkpoint()
            return dispatched_answer(tasks, session)
        with raising_one_error():
            # Every child gets a task of its own, also a single one: a chain of delegations
            # would otherwise be one stack, and end where Python's recursion ends.
            async with trio.open_nursery() as children:
                # A single child waits for its own start: its parent does nothing else meanwhile.
                durable, count = 0, len(assignments)
                for at in range(0, count, START_AT_ONCE):
                    if at >= durable and count > 1:
                        # One wait for many children, which are not there before they may act.
                        await self._admit_durably(tasks, assignments, terms)
                        durable = len(tasks)
                    elif at:
                        await trio.lowlevel.checkpoint()
                    for task in tasks[at : at + START_AT_ONCE]:
                        # A task with a slot starts here; any other waits for one.
                        if task.is_running:
                            children.start_soon(
                                self.run_child, task.id, durable > 0, name=task.node.path
                            )
                        elif task.has_slot and self.start(task):
                            children.start_soon(self.run_child, task.id, name=task.node.path)
                        elif task.outcome is None:
                            children.start_soon(self.run_joined, task, name=task.node.path)
        # The nursery only owns the tasks of this process; facts end the wait.
        await self._wait_settled(tasks)
        results: list[dict[str, Any]] = []
        share = share_per_result(len(tasks), readable_characters(agent, caller.transcript))
        for at in range(0, len(tasks), RESULTS_AT_ONCE):
            if at:
                await trio.lowlevel.checkpoint()
            results += [task_result(it, session, share) for it in tasks[at : at + RESULTS_AT_ONCE]]
        answer = joined_answer(tasks, session, results)
        return _handed_answer(tasks[0], answer) if handoff or by_tool else answer

    def _admit(
        self, requests: Sequence[TaskRequest], caller: TaskRecord, *, goes_on: bool = False
    ) -> list[TaskRecord]:
        """Admit the tasks that were not requested before a crash, and return all of them."""
        ledger, known = self._book.ledger, caller.children.by_call
        new = [request for request in requests if request.call not in known] if known else requests
        if new and (refused := self._book.admission.admit(new, goes_on=goes_on)) is not None:
            raise ToolError(refused.reason, refused_by=refused.refused_by)
        if ledger.unstartable:
            # A task may depend on one that was requested before a crash, and has failed since.
            self._settlement.refuse_unstartable()
        return [ledger.tasks[request.id] for request in requests]

    def _admit_next(
        self, assignments: Sequence[Assignment], terms: "_CallTerms", at: int
    ) -> list[TaskRecord]:
        """Admit the next tasks of a call that is admitted in steps."""
        step = assignments[at : at + START_AT_ONCE]
        return self._admit(self._requests(step, terms, at), terms.caller, goes_on=True)

    async def _admit_durably(
        self, tasks: list[TaskRecord], assignments: Sequence[Assignment], terms: "_CallTerms"
    ) -> None:
        """Admit the next tasks of a call in steps, and wait until all so far are durable."""
        until = min(len(tasks) + DURABLE_AT_ONCE, len(assignments))
        while len(tasks) < until:
            await trio.lowlevel.checkpoint()
            tasks += self._admit_next(assignments, terms, at=len(tasks))
        await self._book.wait_durable()

    async def _search_conversation(self, request: TaskRequest) -> None:
        """Search the conversation that is handed off for secrets, if that takes long."""
        handed = request.handed or ()
        texts = [said.text for said in handed]
        await search_ahead(self._book.redactor, texts)
        is_known = request.call in self._book.ledger.tasks[request.parent].children.by_call
        if not is_known and sum(map(len, texts)) > LONG_TEXT:
            await search_tree_ahead(self._book.redactor, handed, without_secrets)

    def _requests(
        self, assignments: Sequence[Assignment], terms: "_CallTerms", first: int = 0
    ) -> list[TaskRequest]:
        """Return the requests of a call, or of a step of it: the assignments from a number on."""
        caller, agent = terms.caller, terms.agent
        known = caller.children.by_call
        delegates = agent.plan.tool_agents if terms.by_tool else agent.plan.delegates
        handed: tuple[EarlierMessage, ...] | UnsetType = UNSET
        if terms.handoff:
            # Imported late: most agents hand nothing off.
            from orchestrator.delegation.handoffs import conversation

            handed = conversation(caller.transcript)
        requests = [
            TaskRequest(
                id=known.get(key := call_key(terms.call, number))
                or self._new_task_id(caller.id, key),
                parent=caller.id,
                origin=terms.origin,
                call=key,
                agent=it.agent or agent.name,
                goal=it.goal,
                context=it.context,
                label=it.label,
                background=terms.background,
                copy=not it.agent,
                output_schema=it.output_schema,
                budget=(its_agent := delegates.get(it.agent, agent)).budget,
                grants=terms.grants,
                handed=handed,
                version=its_agent.version or UNSET,
            )
            for number, it in enumerate(assignments, first)
        ]
        ids: dict[str, TaskId] = {}
        for at, assignment in enumerate(assignments):
            if assignment.depends_on:
                ids = ids or {it.label: it.id for it in reversed(requests)}
                needs = tuple([ids[label] for label in assignment.depends_on])
                requests[at] = replace(requests[at], needs=needs)
        if terms.choices:
            # Imported late: most parents choose nothing.
            from orchestrator.kernel.execution.task_choices import fork_point, request_with_choices

            fork = fork_point(caller.transcript, terms.call)
            requests = [
                request_with_choices(request, chosen, fork)
                for request, chosen in zip(requests, terms.choices[first:], strict=False)
            ]
        return requests

    def run_joined(self, task: TaskRecord) -> Coroutine[Any, Any, TaskEnd | None]:
        """Run a joined task when it has a slot, and return its end; None if it did not run."""
        return self.run_child(task.id) if task.is_running else self._start_and_run(task)

    async def _start_and_run(self, task: TaskRecord) -> TaskEnd | None:
        if self._book.ledger.unstartable:
            # A pipeline may request a task after its dependency has failed.
            self._settlement.refuse_unstartable()
        await self._book.wakeups.wait_slot(task.id)
        if task.outcome is not None or not self.start(task):
            return None
        return await self.run_child(task.id)

    def start(self, task: TaskRecord) -> bool:
        """Post that a task starts; after a crash, return whether it does at all."""
        node = self._book.ledger.sessions[task.session].tree[task.id]
        was_begun = node.started is not None
        on_restart = self._registry.on_restart(task) if was_begun else "resume"
        if on_restart == "lose":
            self._settlement.settle(task, PROCESS_DIED)
            return False
        if on_restart == "restart":
            self._settlement.settle_descendants(task, Ending.LOST)
        self._book.post(TaskStarted(task.id, afresh=on_restart == "restart"))
        return True

    def run_child(self, task: TaskId, is_durable: bool = False) -> Coroutine[Any, Any, TaskEnd]:
        """Run a task that was posted as started, maybe durably, until it is settled."""
        record = self._book.ledger.tasks[task]
        assert record.request is not None, "a session's root is run by its turns"
        origin = record.request.origin
        if origin.capability is not NO_DELIVERY:
            # A child ends with its one turn, so it cannot be notified later.
            origin = replace(origin, capability=NO_DELIVERY)
        if self.timing is not None:
            return self._run_delayed(record, origin, self.timing)
        return self._runner.run(record, origin, self, is_durable)

    async def _run_delayed(self, record: TaskRecord, origin: Origin, timing: StepTiming) -> TaskEnd:
        await timing.before_run(record)
        return await self._runner.run(record, origin, self)

    async def wait(
        self, tasks: Sequence[TaskId], *, any_of_them: bool, seconds: float | None
    ) -> None:
        records = [self._book.ledger.tasks[task] for task in tasks]
        with trio.move_on_after(math.inf if seconds is None else seconds):
            await trio.lowlevel.checkpoint()
            if any_of_them and records:
                while not any(record.outcome for record in records):
                    await self._book.wakeups.wait_tasks_changed(tasks)
            if not any_of_them:
                await self._wait_settled(records)
        if self.timing is not None:
            await self.timing.after_wait()

    async def _wait_settled(self, tasks: Sequence[TaskRecord]) -> None:  # noqa: ASYNC910
        # No checkpoint: its callers have had theirs, and mostly find all of them settled.
        for task in tasks:
            while task.outcome is None:
                await self._book.wakeups.wait_tasks_changed([task.id])

    async def steer(
        self,
        messages: Mapping[TaskId, MessageId],
        text: str,
        *,
        by: str,
        origin: SteeringOrigin,
        seconds: float,
    ) -> Mapping[TaskId, Receipt]:
        if has_long_text(text):
            await search_ahead(self._book.redactor, [text])
        # Looked up once: settled tasks may be evicted while others are waited for.
        records = {task: self._book.ledger.tasks[task] for task in messages}
        gone: set[TaskId] = set()
        for task, id_ in messages.items():
            if id_ in records[task].steering:
                continue  # a call that a crash interrupted is made again
            if self._has_ended(records[task]):
                gone.add(task)
            else:
                self._book.post(Steered(task, id_, text, by, origin))

        def receipt(task: TaskId) -> Receipt:
            if task in gone:
                return Receipt("gone")
            return self._receipt(records[task], messages[task])

        with trio.move_on_after(seconds):
            await trio.lowlevel.checkpoint()
            for task in messages:
                while receipt(task).state == "waiting":
                    await self._book.wakeups.wait_tasks_changed([task])
        receipts = {task: receipt(task) for task in messages}
        # A sender with a receipt does not send the message again: a crash must not undo it.
        await self._book.wait_durable()
        return receipts

    def _receipt(self, record: TaskRecord, message: MessageId) -> Receipt:
        steering = record.steering[message]
        if steering.seen_at is not None:
            return Receipt("seen", steering.seen_at)
        is_late = steering.too_late or self._has_ended(record)
        return Receipt("too_late" if is_late else "waiting")

    async def pause(self, task: TaskId, *, paused: bool) -> None:
        """Start no new task below one, or start them again, durably; raise `EndedError`."""
        ledger = self._book.ledger
        record = ledger.tasks[task]
        session = ledger.sessions[record.session]
        # One that was paused before it came to rest can be unpaused.
        is_done = paused and session.turn is None and session.is_at_rest
        if record.outcome is not None or session.closed or is_done:
            raise EndedError(f"{record.path} has ended: nothing starts below it")
        if paused is not (task in session.slots.paused):
            self._book.post(StartsPaused(task, paused))
        await self._book.wait_durable()

    async def cancel(self, tasks: Sequence[TaskId]) -> None:
        await self._cancel([self._book.ledger.tasks[task] for task in tasks])
        await self._book.wait_durable()

    async def cancel_session(  # noqa: ASYNC910
        self, session: SessionId, *, tree: bool
    ) -> None:
        """Cancel the turn of a session, also one that mail is about to begin, or all its tree."""
        # No checkpoint at rest: a session is at rest when this returns, whatever comes next.
        book = self._book
        record = book.ledger.sessions[session]
        while (
            record.turn is None
            and session in book.ledger.wakeable
            and not (book.admission.is_stopping or book.closed)
        ):
            await book.wakeups.wait_session_changed(session)
        # No `await` between this look and the requests: a cancelled task delegates nothing.
        targets = [record.root, *(record.unsettled_detached.values() if tree else ())]
        targets = [target for target in targets if not self._has_ended(target)]
        if targets:
            await self._cancel(targets)
            await book.wait_durable()

    async def _cancel(self, records: Sequence[TaskRecord]) -> None:  # noqa: ASYNC910
        # No checkpoint: its callers wait until all of it is durable. For a root, only this turn
        # ends: the next one may start at once.
        turns = [self._turn_of(record) for record in records]
        for record in records:
            self._stop(record)
        for record, turn in zip(records, turns, strict=True):
            while not self._has_ended(record) and self._turn_of(record) == turn:
                await self._book.wakeups.wait_tasks_changed([record.id])

    def _turn_of(self, record: TaskRecord) -> int | None:
        session = self._book.ledger.sessions.get(record.session)
        turn = None if session is None else session.turn
        return turn.number if turn is not None and record.is_root else None

    def _stop(self, record: TaskRecord) -> None:
        if self._has_ended(record):
            return
        if not self._book.ledger.has_no_runner(record.id):
            self._book.post(CancelRequested(record.id))
            self._runner.stop(record.id)
            return
        # No runner will settle it.
        self._settlement.settle(
            record,
            Outcome(
                Ending.CANCELLED,
                error="it was stopped before it could go on",
                cause=Cause.BEFORE_START,
            ),
        )

    def _has_ended(self, record: TaskRecord) -> bool:
        if record.is_root:
            session = self._book.ledger.sessions.get(record.session)
            return session is None or session.turn is None
        return record.outcome is not None


def _handed_answer(task: TaskRecord, answer: str) -> str:
    """Return the output of a task that got the conversation, or whose agent is a tool; raise
    `ToolError` if it has none.
    """
    if task.outcome is None or not task.outcome.succeeded:
        raise ToolError(answer)
    return task.outcome.output
