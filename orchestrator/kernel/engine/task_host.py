"""The home side of a running task: its steps become facts, its calls wait for durability.

One host is made for every task that runs, so it is small.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import msgspec
import trio
from msgspec import UNSET, UnsetType

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    Compacted,
    Failure,
    Message,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    Pipeline,
    Tool,
    ToolCall,
    ToolError,
    ToolMessage,
    Usage,
    UserMessage,
    ignore_event,
)
from orchestrator.agents.approved_call import ApprovedCall
from orchestrator.agents.current_span import CURRENT_SPAN
from orchestrator.agents.logprobs import spelled_texts
from orchestrator.agents.redaction.long_texts import (
    has_long_text,
    search_ahead,
    search_tree_ahead,
    texts_in,
)
from orchestrator.agents.turn_host import Step
from orchestrator.delegation import (
    Cause,
    Ending,
    Mode,
    OverBudgetError,
    TaskRecord,
    ask_parent_tool,
    control_tool,
    delegate_tool,
)
from orchestrator.delegation.events import (
    CallPlaced,
    GivenSettings,
    ModelAnswered,
    ModelFailure,
    SteeringSeen,
    ToolAnswered,
    WaitSpan,
)
from orchestrator.kernel.engine.model_call import SAMPLED, BookedModel, QuestionModel
from orchestrator.kernel.engine.model_events import ModelEventSubscribers
from orchestrator.kernel.engine.reservations import Reservations
from orchestrator.kernel.engine.scheduler_slot import SchedulerSlot
from orchestrator.kernel.engine.settlement import Settlement
from orchestrator.kernel.engine.watchdog import TaskActivity
from orchestrator.kernel.errors import error_text
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.executor import WorkOrder
from orchestrator.kernel.execution.outcomes import unfinished_outcome
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.journal.fact_redaction import without_secrets

if TYPE_CHECKING:
    from orchestrator.kernel.engine.approvals import TaskApprovalCheck
    from orchestrator.kernel.engine.memory import TaskMemory
    from orchestrator.kernel.engine.task_runner import TaskDelegator
    from orchestrator.kernel.pipelines.scripts.dry_run import SimulateScript
    from orchestrator.kernel.step_spans import StepSpans


def server_place(server: str) -> str:
    """Return the name of a server as a place of calls. No place of workers has a colon."""
    return f"mcp:{server}"


ABANDONED: Final = "the call that asked for it failed when it was made again"
MANY_TEXTS: Final = 1_000
"""The number of texts in the calls of an answer that are searched for secrets in a thread."""


class HostServices(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the engine that all hosts share."""

    book: Bookkeeper
    registry: AgentRegistry
    reservations: Reservations
    settlement: Settlement
    subscribers: ModelEventSubscribers
    scheduler: SchedulerSlot
    dry_run: "SimulateScript | None"
    spans: "StepSpans | None"


class LocalTaskHost(msgspec.Struct, eq=False):
    """Hosts one task (`orchestrator.kernel.execution.executor.TaskHost`) where the journal is."""

    order: WorkOrder
    _record: TaskRecord
    _services: HostServices
    _book: Bookkeeper
    _delegator: "TaskDelegator"
    _scope: trio.CancelScope
    activity: TaskActivity | None
    _approvals: "TaskApprovalCheck | None"
    _is_durable: bool = False
    """All facts of the task survive a crash: its model may be called at once."""
    _one_call: trio.Lock | None = None
    """Held by a model call beside the turn: a task has one at a time."""
    _left_out: int = 0
    """How many characters the model does not read in the call under way."""
    _instructions: str | UnsetType = UNSET
    """The instructions that a function returned; the next answer records them."""
    _resumed: frozenset[CallId] = frozenset()
    """The calls that a crash has interrupted, and that may have had their effect."""

    @property
    def is_cancelled(self) -> bool:
        return self._scope.cancel_called

    def add_tools(self, tools: Sequence[Tool]) -> None:
        if self._approvals is not None:
            self._approvals.add_tools(tools, of_servers=True)

    def delegation_tools(self, agent: Agent[Any]) -> Sequence[Tool]:
        below = self._tools_for_children(agent) if agent.may_delegate else ()
        if agent.plan.tool_agents and not below:
            below = (self._control_tool(agent),)
        if agent.scripts:
            # Imported late: most agents write no scripts.
            from orchestrator.kernel.pipelines.scripts.tool import ScriptTool

            scripts = ScriptTool(
                agent,
                self._record,
                self.order.origin,
                self._delegator,
                self._book.ledger.tasks,
                self._services.dry_run,
            )
            below = (*below, scripts.tool())
        if agent.board:
            below = (*below, self._board_tool())
        if agent.memory is not None:
            below = (*below, self._memory().tool())
        if self._record.is_root:
            return (*below, self._job_tool(agent)) if agent.schedules else below
        request = self._record.request
        if request is not None and request.fork is not UNSET:
            # Imported late: most tasks are no forks.
            from orchestrator.kernel.execution.forked_tools import is_fork_of_root, unavailable

            if is_fork_of_root(self._record):
                return (*below, unavailable(self._job_tool(agent))) if agent.schedules else below
        if not agent.asks_parent:
            return below
        # Imported late: most agents ask no parent.
        from orchestrator.kernel.engine.parent_questions import ParentQuestions

        questions = ParentQuestions(
            self._record,
            book=self._book,
            registry=self._services.registry,
            reservations=self._services.reservations,
            activity=self.activity,
            one_call=self._side_calls(),
        )
        return (*below, ask_parent_tool(agent, questions.ask))

    async def memory_note(self) -> str:
        return await self._memory().note()

    def _memory(self) -> "TaskMemory":
        # Imported late: most agents have no memory.
        from orchestrator.kernel.engine.memory import TaskMemory

        assert self.order.agent.memory is not None, "only an agent with a memory asks"
        return TaskMemory(self._book, self._record, self.order.agent.memory)

    def _board_tool(self) -> Tool:
        # Imported late: most agents have no board.
        from orchestrator.delegation.board import Board
        from orchestrator.delegation.board_tool import board_tool

        book, record = self._book, self._record
        board = Board(book.ledger.sessions[record.session], record, book.ledger.tasks)
        return board_tool(
            board, prefix=record.call_prefix, post=book.post, wait_durable=book.wait_durable
        )

    def _job_tool(self, agent: Agent[Any]) -> Tool:
        # Imported late: most agents set no jobs.
        from orchestrator.delegation.job_tool import job_tool

        record, origin = self._record, self.order.origin
        made = job_tool(
            agent,
            prefix=record.call_prefix,
            find=lambda: self._services.scheduler.jobs_of(record, origin, self._resumed),
        )
        if self._approvals is not None:
            self._approvals.add_tools([made])
        return made

    def _side_calls(self) -> trio.Lock:
        if self._one_call is None:
            self._one_call = trio.Lock()
        return self._one_call

    async def sample(
        self, instructions: str, messages: Sequence[Message], max_output: int
    ) -> AssistantMessage:
        agent = self.order.agent
        model = QuestionModel(
            self._services.registry.models.model_of(agent),
            self._record,
            self._services.reservations,
            SAMPLED,
        )
        request = ModelRequest(
            instructions=instructions,
            transcript=messages,
            tools=(),
            max_output=max_output,
            # There is no tool to choose.
            settings=attrs.evolve(agent.settings, tool_choice=None),
            tell=ignore_event,
        )
        async with self._side_calls():
            try:
                return await model.answer(request)
            except ModelError as exc:
                if exc.kind is Failure.CUT_OFF:
                    raise
                raise ToolError(f"the model gave no answer: {error_text(exc)}") from exc
            except OverBudgetError as exc:
                raise ToolError(f"the budget cannot pay for it: {exc}") from exc

    async def ask_person(
        self, call: CallId, tool: str, message: str, form: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        if self._approvals is None:
            return None  # noqa: ASYNC910 (only an agent without servers has none)
        return await self._approvals.ask_person(call, tool, message, form)

    async def note_task(self, call: CallId, server: str, task: str) -> None:
        self._book.post(
            CallPlaced(self._record.id, call, server_place(server), worker=server, execution=task)
        )
        await self._book.wait_durable()

    def noted_task(self, call: CallId, server: str) -> str:
        placed = self._record.placed.get(call)
        is_there = placed is not None and placed.place == server_place(server)
        return placed.execution if placed is not None and is_there else ""

    @property
    def is_over(self) -> bool:
        ledger = self._book.ledger
        return self.is_cancelled or ledger.settles_on_teardown(self._record.id)

    def _tools_for_children(self, agent: Agent[Any]) -> Sequence[Tool]:
        ledger = self._book.ledger
        return (
            delegate_tool(
                agent,
                parent=self._record,
                origin=self.order.origin,
                rules=ledger.rules,
                delegator=self._delegator,
                summarize=self._summarize,
            ),
            self._control_tool(agent),
        )

    async def _summarize(self, call: CallId) -> str:
        # Imported late: most agents give no summaries.
        from orchestrator.kernel.engine.conversation_summary import summarize_conversation

        activity = self.activity
        return await summarize_conversation(
            self._record,
            self.order.agent,
            call,
            registry=self._services.registry,
            reservations=self._services.reservations,
            one_call=self._side_calls(),
            tell=ignore_event if activity is None else activity.on_model_event,
        )

    def _control_tool(self, agent: Agent[Any]) -> Tool:
        ledger = self._book.ledger
        return control_tool(agent, caller=self._record, ledger=ledger, delegator=self._delegator)

    def agent_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        # Imported late: most tools are no agents.
        from orchestrator.delegation.agent_tools import delegating

        return [
            tool
            if tool.task is None
            else delegating(tool, self._record.id, self.order.origin, self._delegator)
            for tool in tools
        ]

    async def run_pipeline(self, pipeline: Pipeline[Any, Any]) -> str:
        if self.activity is not None:
            self.activity.is_in_program = True
        # Imported late: most agents are no pipelines.
        from orchestrator.kernel.pipelines.runner import PipelineRun

        run = PipelineRun(
            self._record, self.order.origin, self._book, self._services.registry, self._delegator
        )
        try:
            answer = await run.run(pipeline, self.order.terms.output_schema)
        except ModelError as exc:
            # An error of a model that the program has called by itself.
            usage = exc.usage or Usage(calls=1)
            self._services.reservations.failed(
                self._record.id, ModelFailure.FAILED, error_text(exc), usage, exc.partial
            )
            raise
        if has_long_text(answer):
            await search_ahead(self._book.redactor, [answer])
        return answer

    def budgeted_model(self, model: Model) -> Model:
        """Return a model whose every call is paid for by the budgets of the task, and booked."""
        return BookedModel(model, self._record, self._services.reservations)

    def record(self, step: Step, consumes: Sequence[int] = (), *, ends_turn: bool = False) -> Step:
        record = self._record
        self._is_durable = False
        if isinstance(step, ToolMessage):
            if step.failed and record.children.unsettled:
                self._settle_children_of(step.call)
            mail = self._unread(consumes) if consumes else ()
            recorded: Step = self._book.post(ToolAnswered(record.id, step, mail)).message
            if self.activity is not None:
                self.activity.touch()
            return recorded
        reservations = self._services.reservations
        charged: Usage | None = None
        settings: GivenSettings = UNSET
        waited: WaitSpan = UNSET
        is_noted = (
            record.id in reservations.open
            or record.id in reservations.settings
            or record.id in reservations.waits
        )
        if is_noted:
            charged = reservations.charge_of(record.id)
            settings = reservations.settings_of(record.id)
            waited = reservations.waits.get(record.id, UNSET)
        fact = ModelAnswered(
            record.id,
            step,
            left_out=self._left_out,
            charged=charged,
            settings=settings,
            instructions=self._instructions,
            waited=waited,
        )
        self._instructions = UNSET
        if (
            ends_turn
            and not record.is_root
            and not record.children.unsettled
            and not self.order.agent.plan.needs_machine
        ):
            # Nothing of it is left to do: the task ends with the same fact.
            if self.activity is not None and self.activity.is_quiet:
                self.activity.touch()
            recorded = self._services.settlement.settle_answered(record, fact)
        else:
            recorded = self._book.post(fact).message
            if self.activity is not None:
                self.activity.touch()
        if is_noted:
            reservations.booked(record.id)
        return recorded

    async def before_record(self, step: Step) -> None:
        texts: list[str] = [step.text]
        calls: Sequence[ToolCall] = ()
        if isinstance(step, AssistantMessage):
            arguments = texts_in([call.arguments for call in step.calls])
            calls = step.calls if len(arguments) > MANY_TEXTS else ()
            texts += arguments
            texts += [it.text for it in step.reasoning]
            texts += spelled_texts(step.logprobs)
        # An answer is paid for: it is recorded also when its task is cancelled meanwhile.
        with trio.CancelScope(shield=isinstance(step, AssistantMessage)):
            await search_ahead(self._book.redactor, texts)
            if calls:
                # Many short texts, such as the goals of a large fan-out.
                await search_tree_ahead(self._book.redactor, calls, without_secrets)

    async def before_instructed(self, instructions: str) -> None:
        self._instructions = instructions
        if has_long_text(instructions):
            await search_ahead(self._book.redactor, [instructions])
        await trio.lowlevel.checkpoint()

    async def before_resume(self, unanswered: Sequence[ToolCall]) -> Sequence[ToolCall]:
        approvals = self._approvals
        # Read before the wait: a call that is approved meanwhile may be run by then.
        held = (
            [call for call in unanswered if approvals.is_pending(call)]
            if approvals is not None
            else ()
        )
        if approvals is not None:
            approvals.close_forms()
        self._resumed = frozenset(call.id for call in unanswered)
        await self._book.wait_durable()
        return held

    def may_have_begun(self, call: ToolCall) -> bool:
        record = self._record
        placed = record.placed_turn or record.placed.get(call.id)
        return placed is not None and bool(placed.execution)

    async def before_model_call(self) -> Sequence[UserMessage]:
        self._left_out = 0
        if (spans := self._services.spans) is not None:
            CURRENT_SPAN.set(partial(spans.chat_span, self._record))
        steering = self._read_steering() if self._record.unseen_steering else ()
        if self._record.accounts:
            # Under a budget the call is a fact, too: its model waits for all of them at once.
            await trio.lowlevel.checkpoint()
        elif self._is_durable and not steering:
            await trio.lowlevel.checkpoint_if_cancelled()  # the call is a checkpoint
        else:
            await self._book.wait_durable()
        return steering

    async def before_tool(self, call: ToolCall, *, durable: bool) -> ApprovedCall | None:
        approved = None
        if (spans := self._services.spans) is not None:
            CURRENT_SPAN.set(partial(spans.call_span, self._record, call.id))
        if self._approvals is not None:
            approved = await self._approvals.wait_approved(call)
        if durable:
            await self._book.wait_durable()
        return approved  # noqa: ASYNC910 (a delegation without rules waits for nothing)

    def emit(self, event: ModelEvent) -> None:
        if self.activity is not None:
            self.activity.on_model_event(event)
        if isinstance(event, Compacted):
            self._left_out = max(0, event.characters)
        self._services.subscribers.emit(self._record.id, event)

    def _read_steering(self) -> Sequence[UserMessage]:
        record = self._record
        unseen = record.unseen_steering
        self._book.post(SteeringSeen(record.id, unseen))
        return cast("Sequence[UserMessage]", record.transcript[-len(unseen) :])

    def _settle_children_of(self, call: CallId) -> None:
        """Settle the tasks that a call delegated before a crash, and fails to delegate again."""
        for key, task in list(self._record.children.by_call.items()):
            child = self._book.ledger.tasks[task]
            is_joined = child.outcome is None and child.mode is Mode.JOINED
            if is_joined and key.startswith(f"{call}#"):
                outcome = unfinished_outcome(child, Ending.LOST, Cause.CALL_FAILED, ABANDONED)
                self._services.settlement.settle(child, outcome)

    def _unread(self, notices: Sequence[int]) -> tuple[int, ...]:
        """Return the notices that no other answer has consumed."""
        mail = self._book.ledger.sessions[self._record.session].mail
        return tuple(seq for seq in notices if seq in mail)
