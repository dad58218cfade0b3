"""Runs the program of a pipeline, and the tasks that it delegates with `delegate` and `detach`.

The children of a pipeline are joined: its nursery owns every one, and is left when all have ended.
A child that the program stops waiting for is cancelled. A program that runs again after a crash
finds its children by agent and goal, so that no work is done twice. One that has changed is stopped
before it requests a new task.
"""

import hashlib
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, TypeVar

import msgspec
import trio

from orchestrator.agents import (
    Agent,
    AgentError,
    Budget,
    CallId,
    DefinitionError,
    Pipeline,
    TaskContext,
    UserMessage,
    is_agent,
    raising_one_error,
    well_formed,
)
from orchestrator.delegation import (
    Account,
    Cause,
    Ending,
    Origin,
    Outcome,
    Refuse,
    TaskId,
    TaskRecord,
    TaskRequest,
    call_key,
)
from orchestrator.delegation.choices import Choices
from orchestrator.kernel.budget_scope import grants_beyond, use_budget_names
from orchestrator.kernel.errors import TaskFailedError
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.outcomes import unfinished_outcome
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.pipelines.child import NOT_AWAITED, Child, combined_failure
from orchestrator.kernel.pipelines.child_runner import ChildRunner
from orchestrator.kernel.pipelines.current_run import use_run
from orchestrator.kernel.pipelines.dependencies import (
    NO_DEPENDENCIES,
    NO_VALUE,
    After,
    Dependencies,
    find_dependencies,
    goal_of_outputs,
)
from orchestrator.kernel.pipelines.earlier_children import (
    EarlierChildren,
    describe_task,
    find_earlier,
)

if TYPE_CHECKING:
    from orchestrator.agents.script import Script, ScriptTeam
    from orchestrator.kernel.pipelines.call_details import CallDetails

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
ChildCall: TypeAlias = "tuple[Agent[Any], Any, Choices | None, CallDetails | None]"
"""A task that a program asks for: its agent and input, its choices, and the details of a script."""


class PipelineRun:
    """A pipeline that runs."""

    def __init__(
        self,
        record: TaskRecord,
        origin: Origin,
        book: Bookkeeper,
        registry: AgentRegistry,
        runner: ChildRunner,
    ) -> None:
        self._record = record
        self._origin = origin
        self._book = book
        self._registry = registry
        self._runner = runner
        self._request_counts: Counter[str] = Counter()
        """How often the same goal was delegated to the same agent."""
        self._budget_counts: Counter[str] = Counter()
        self._children: list[TaskId] = []
        self._nursery: trio.Nursery | None = None
        self._to_start: deque[Child[Any]] = deque()
        """Its admitted children that have not begun, in their order."""
        self._is_starting = False
        self._earlier: EarlierChildren | None = None
        """Its children from before a crash, if it had any."""
        self._found: list[Child[Any]] = []
        """Its children in this process, if it had others before."""
        self._program_task: trio.lowlevel.Task | None = None
        self._outer_nurseries = 0
        """How many nurseries are open around the program in its trio task."""

    @property
    def path(self) -> str:
        return self._record.path

    @property
    def task(self) -> TaskContext[Any]:
        """The task of the pipeline, with the dependencies of its run."""
        record = self._record
        goal = record.transcript[0].text if record.transcript else ""
        deps = self._registry.deps.get(record.session)
        return TaskContext(agent=record.agent, goal=goal, path=record.path, deps=deps)

    async def run(
        self, pipeline: Pipeline[Any, Any], schema: Mapping[str, Any] | None = None
    ) -> str:
        """Run the program to its end, and return its answer."""
        wanted = self._record.requested_schema or schema
        if self._record.children.by_call:
            tasks = self._book.records.tasks
            self._earlier = find_earlier(self._record, tasks, self._origin.turn)
        try:
            given = pipeline.parse_goal(self._goal(pipeline))
            with raising_one_error(), use_budget_names(self._budget_name):
                # Owns all children, also those that the program does not wait for.
                async with trio.open_nursery() as self._nursery:
                    with use_run(self):
                        value = await self._run(pipeline, given, self._nursery)
        finally:
            self._nursery = None
            self._registry.unregister_children(self._children)
        return pipeline.encode_output(value, wanted)

    async def _run(self, pipeline: Pipeline[Any, Any], given: Any, nursery: trio.Nursery) -> Any:
        is_done = False
        if self._earlier is not None:
            self._program_task = trio.lowlevel.current_task()
            self._outer_nurseries = len(self._program_task.child_nurseries)
        try:
            value = await pipeline.program(self, given)
            is_done = True
        except BaseExceptionGroup as group:
            raise self._unwrapped(group)  # noqa: B904 (it is what the group says)
        finally:
            if not is_done:
                nursery.cancel_scope.cancel(reason="the pipeline has failed")
        # The program may have no checkpoint of its own.
        await trio.lowlevel.checkpoint()
        if (earlier := self._earlier) is None or not earlier.unclaimed:
            return value
        if not earlier.required:
            # No model reads it here: the parent of a child would answer differently.
            if self._record.is_root:
                self.note(f"kept, but not requested again: {earlier.describe()}")
        elif earlier.has_crashed:
            self._note_change(
                earlier,
                f"the program of {self._record.path} has changed: it no longer requests"
                f" {earlier.describe()}",
            )
        return value

    def _unwrapped(self, group: BaseExceptionGroup[BaseException]) -> BaseException:
        """Return the error of a program whose nursery has wrapped it in a group."""
        exc: BaseException = group
        while _is_group(exc) and len(exc.exceptions) == 1:
            exc = exc.exceptions[0]
        if not _is_group(exc):
            return exc
        failed = [it for it in exc.exceptions if isinstance(it, TaskFailedError)]
        if len(failed) < len(exc.exceptions):
            return group
        return combined_failure(
            self.path,
            {it.path: it.outcome for it in failed},
            {it.path: it.__cause__ for it in failed},
        )

    def _goal(self, pipeline: Pipeline[Any, Any]) -> str:
        record = self._record
        turn = self._book.records.sessions[record.session].turn
        if record.request is None:
            assert turn is not None, "a root runs in a turn"
            begins = turn.transcript_start - len(turn.read)
            read = record.transcript[begins : turn.transcript_start]
            if any(isinstance(it, UserMessage) and it.parts for it in read):
                raise DefinitionError(
                    f"{pipeline.name} is a pipeline, and takes neither images nor files"
                )
            return "\n\n".join(message.text for message in read)
        if record.request.input is not msgspec.UNSET:
            return goal_of_outputs(
                pipeline, record.request, self._book.records.tasks, self._registry
            )
        if pipeline.takes_text:
            return record.transcript[0].text
        # Without the context that a model may add: the goal alone is JSON.
        return record.request.goal

    async def delegate(self, agent: Agent[OutputT, InputT], value: InputT, /) -> OutputT:
        """Delegate to an agent, and return its answer.

        Cancelling this cancels the child and its descendants, and returns when all have ended.
        """
        return await self.wait_result(await self.start_child(agent, value))

    async def run_script(self, script: "Script", team: "ScriptTeam") -> str:
        """Run a script, whose calls are its children, and return its result."""
        # Imported late: most programs are no scripts.
        from orchestrator.kernel.pipelines.scripts.program import ScriptRun

        return await ScriptRun(script, team, self).run()

    async def wait_result(self, child: Child[OutputT]) -> OutputT:
        """Return the answer of a child, which is cancelled with this call."""
        outcome = await self.wait_settled(child)
        if not outcome.succeeded:
            raise child.failure(outcome)
        return child.output(outcome)

    async def wait_settled(self, child: Child[Any]) -> Outcome:
        """Return the outcome of a child, which is cancelled with this call."""
        try:
            return await child.wait()
        finally:
            if child.outcome is None:
                # Unbounded, as every cancel is: it returns when all descendants have ended.
                with trio.CancelScope(shield=True):
                    await child.cancel()

    async def cancel_running(self, children: Iterable[Child[Any]]) -> None:  # noqa: ASYNC910
        """Cancel the children that run, and return when all their descendants have ended."""
        running = [child for child in children if child.outcome is None]
        # No checkpoint if none runs: its callers have had theirs.
        for child in running:
            child.begin_cancel()
        for child in running:
            # Unbounded, as every cancel is.
            with trio.CancelScope(shield=True):
                await child.cancel()

    async def wait_durable(self) -> None:
        """Wait until no crash can undo the outcomes that the program has seen."""
        await self._book.wait_durable()

    @property
    def accounts(self) -> tuple[Account, ...]:
        """The accounts that pay for its children."""
        return self._record.accounts

    def watch_process(self, kill: Callable[[], None]) -> None:
        """Let a simulation kill the process of a script."""
        if (timing := self._runner.timing) is not None:
            timing.watch_process(kill)

    def fan_out_limit(self, limit: int) -> int:
        """Return how many children run at once: the program's limit, or a simulation's."""
        timing = self._runner.timing
        return limit if timing is None else timing.fan_out_limit(limit)

    async def start_child(  # noqa: C901 (one frame for each delegation)
        self,
        agent: Agent[OutputT, Any],
        value: Any,
        *,
        held_since: float | None = None,
        to_come: int | None = None,
        in_order: bool = False,
        after: After | None = None,
        chosen: Choices | None = None,
        beside: bool = False,
        details: "CallDetails | None" = None,
    ) -> Child[OutputT]:
        """Delegate to an agent without waiting for it.

        `held_since` is since when the limit of a fan-out has held it back; `to_come` is how many
        more it asks for, if one by one; `in_order` says that one trio task makes all requests;
        `after` are its dependencies; `chosen` has the model, effort and budget of this task alone;
        `beside` says that the program goes on before its end;
        `details` the label, context and schema that a script gives.
        Raise `TaskFailedError` if the rules, or a budget, do not allow it.
        """
        # Before the request: afterwards the caller must get the child.
        await trio.lowlevel.checkpoint()
        _require_agent(agent)
        needed = NO_DEPENDENCIES
        if after is not None or value is NO_VALUE:
            tasks = self._book.records.tasks
            needed = find_dependencies(agent.name, value, after, self._record, tasks)
        goal = "" if needed.are_input else well_formed(agent.as_goal(value))
        if (timing := self._runner.timing) is not None:
            await timing.before_request(self._record, agent.name, goal, held_since)
        about = _checksum(agent.instructions)
        base = self._call_base(agent, goal, needed, chosen, details)
        known = None
        if (earlier := self._earlier) is not None and earlier.unclaimed:
            known = earlier.claim(base, about)
            if known is None:
                request = self._request(
                    agent, goal, to_come, about, base, needed=needed, chosen=chosen
                )
                known = await self._wait_earlier(earlier, base, request, in_order=in_order)
        if known is None and self._book.admission.is_stopping:
            # A program cannot end without this child: it waits to be interrupted or cancelled.
            await trio.sleep_forever()
        if self._nursery is None:
            raise DefinitionError(
                f"{self._record.path} has ended, and cannot delegate to {agent.name!r}"
            )
        new = None
        if known is None:
            call = self._new_call(base)
            new = self._request(
                agent, goal, to_come, about, call, needed=needed, chosen=chosen, details=details
            )
            if beside:
                new = msgspec.structs.replace(new, beside=True)
            known = new.id
        self._register(known, agent)
        if new is not None and (refused := self._book.admission.admit([new])) is not None:
            raise TaskFailedError(f"{self._record.path}/{agent.name}", _refused_outcome(refused))
        child = self._run_child(agent, known, self._nursery)
        if earlier is not None:
            self._found.append(child)
        return child

    async def start_all(
        self,
        calls: Sequence[ChildCall],
        follow: Callable[[int, Child[Any]], None],
        *,
        in_order: bool,
    ) -> bool:
        """Delegate several tasks in one step; return False if each has to be requested by itself.

        That is so if the program has run before a crash, if a simulation delays its requests, if it
        cannot delegate any more, or if the rules, a budget or an error stop one of the tasks.
        `follow` gets each child, with its place in the calls, before it begins. They begin at once,
        like those of `delegate_task`, or one after another `in_order`.
        """
        await trio.lowlevel.checkpoint()
        nursery, admission = self._nursery, self._book.admission
        if (
            self._earlier is not None
            or self._runner.timing is not None
            or admission.is_stopping
            or nursery is None
        ):
            return False
        requests: list[TaskRequest] = []
        counted: list[str] = []
        try:
            last, needed = None, NO_DEPENDENCIES
            about: int | msgspec.UnsetType = msgspec.UNSET
            for agent, value, chosen, details in calls:
                if agent is not last:
                    _require_agent(agent)
                    last, about = agent, _checksum(agent.instructions)
                goal = well_formed(agent.as_goal(value))
                base = self._call_base(agent, goal, needed, chosen, details)
                call = self._new_call(base)
                counted.append(base)
                new = self._request(
                    agent, goal, None, about, call, needed=needed, chosen=chosen, details=details
                )
                requests.append(new)
                self._register(new.id, agent)
            is_admitted = admission.admit(requests) is None
        except (AgentError, DefinitionError):
            is_admitted = False
        if not is_admitted:
            self._request_counts.subtract(counted)
            return False
        tasks = self._book.records.tasks
        for number, request in enumerate(requests):
            child = Child(calls[number][0], tasks[request.id], self._book)
            follow(number, child)
            if in_order:
                self._to_start.append(child)
            else:
                self._start_soon(child, nursery)
        if self._to_start and not self._is_starting:
            self._is_starting = True
            nursery.start_soon(self._start_in_order, nursery)
        return True

    async def _start_in_order(self, nursery: trio.Nursery) -> None:  # noqa: ASYNC910
        """Start the waiting children one by one: trio may reverse tasks that start together."""
        while self._to_start:
            self._start_soon(self._to_start.popleft(), nursery)
            # A cancelled child is started, too: that settles it.
            await trio.lowlevel.cancel_shielded_checkpoint()
        self._is_starting = False

    def _call_base(
        self,
        agent: Agent[Any],
        goal: str,
        needed: Dependencies,
        chosen: Choices | None,
        details: "CallDetails | None",
    ) -> str:
        """Return the key of equal requests. A program that runs again finds them by it."""
        digest = _digest(agent.name, str(agent.output), goal, *needed.calls)
        base = f"{self._origin.turn}.{agent.name}.{digest}"
        if chosen is not None:
            base = f"{base}.{_checked_choices(agent, chosen)}"
        if details is not None and (key := details.key):
            base = f"{base}.{_digest(key)}"
        return base

    def _register(self, task: TaskId, agent: Agent[Any]) -> None:
        """Register an agent before its request: one without a model cannot be registered."""
        self._registry.register_child(task, agent, self._record.session)
        self._children.append(task)

    def _run_child(
        self, agent: Agent[OutputT, Any], task: TaskId, nursery: trio.Nursery
    ) -> Child[OutputT]:
        child = Child(agent, self._book.records.tasks[task], self._book)
        self._start_soon(child, nursery)
        return child

    def _start_soon(self, child: Child[Any], nursery: trio.Nursery) -> None:
        nursery.start_soon(child.run_until_ended, self._runner.run_joined, self._settle_not_awaited)

    async def _wait_earlier(
        self, earlier: EarlierChildren, base: str, request: TaskRequest, *, in_order: bool
    ) -> TaskId | None:
        """Wait until all earlier children were requested again, before a new one is.

        Return an earlier child whose agent has got other instructions, or None for a new one.
        """
        in_order = in_order or self._is_alone
        while earlier.required:
            if not in_order and (await earlier.wait_claim() or self._has_timer):
                continue
            if (task := earlier.claim_reworded(base, in_order=in_order)) is not None:
                return task  # noqa: ASYNC910 (its caller checkpoints)
            # A request that is refused again leaves no fact, and starts no task.
            if self._book.admission.would_refuse(request) or not earlier.has_crashed:
                return None  # noqa: ASYNC910
            new = describe_task(f"{self._record.path}/{request.agent}", request.goal)
            change = (
                f"the program of {self._record.path} has changed: it requests {new}, and before"
                f" the crash it requested {earlier.describe()}"
            )
            if not self._runner.accepts_changes(self._record):
                self._runner.refuse_change(self._record, change)
                await trio.lowlevel.checkpoint()
                # Cleanup that is shielded from the cancellation must not wait for it.
                outcome = Outcome(Ending.REFUSED, error=change, cause=Cause.CHANGED)
                raise TaskFailedError(f"{self._record.path}/{request.agent}", outcome)
            self._note_change(earlier, change)
            break
        return None  # noqa: ASYNC910 (its caller checkpoints)

    def note(self, text: str) -> None:
        """Add a note to the outcome of the pipeline."""
        self._runner.add_note(self._record.id, text)

    def _note_change(self, earlier: EarlierChildren, change: str) -> None:
        """Note the first change of the program in its outcome: later ones follow from it."""
        if not earlier.has_changed:
            earlier.has_changed = True
            self.note(change)

    @property
    def _has_timer(self) -> bool:
        """The program waits for a child that it stopped waiting for, and will do so again."""
        return any(child.awaits_cancel for child in self._found)

    @property
    def _is_alone(self) -> bool:
        """No other trio task of the program runs, which could request the earlier children."""
        task = self._program_task
        if task is None or task is not trio.lowlevel.current_task():
            return False
        return not any(it.child_tasks for it in task.child_nurseries[self._outer_nurseries :])

    def _request(
        self,
        agent: Agent[Any],
        goal: str,
        to_come: int | None,
        about: int | msgspec.UnsetType,
        call: str,
        *,
        needed: Dependencies,
        chosen: Choices | None,
        details: "CallDetails | None" = None,
    ) -> TaskRequest:
        record = self._record
        request = TaskRequest(
            id=self._runner.new_task_id(record.id, call),
            parent=record.id,
            origin=self._origin,
            call=call,
            agent=agent.name,
            goal=goal,
            context="" if details is None else details.context,
            label="" if details is None else details.label,
            background=False,
            output_schema=None if details is None else details.output_schema,
            needs=needed.ids,
            input=needed.input,
            budget=agent.budget,
            grants=grants_beyond(record.accounts, self._book),
            to_come=msgspec.UNSET if to_come is None else to_come,
            about=about,
            version=agent.version or msgspec.UNSET,
        )
        if chosen is None:
            return request
        # Imported late: most programs choose nothing.
        from orchestrator.kernel.execution.task_choices import request_with_choices

        return request_with_choices(request, chosen, len(record.transcript))

    def _settle_not_awaited(self, record: TaskRecord) -> None:
        """Settle a child that the program has stopped waiting for."""
        if self._book.closed:
            return
        outcome = unfinished_outcome(record, Ending.CANCELLED, Cause.NOT_AWAITED, NOT_AWAITED)
        self._runner.settle(record, outcome)

    def _new_call(self, base: str) -> str:
        """Return the key of a new request, with its number among equal ones."""
        counts, known = self._request_counts, self._record.children.by_call
        while True:
            counts[base] += 1
            call = call_key(CallId(f"{base}.{counts[base]}"), 0)
            if call not in known:
                return call

    def _budget_name(self, budget: Budget) -> str:
        self._budget_counts[str(budget)] += 1
        count = self._budget_counts[str(budget)]
        turn = self._origin.turn
        return _digest(self._record.call_prefix, str(turn), str(budget), str(count))


def _refused_outcome(refused: Refuse) -> Outcome:
    return Outcome(
        Ending.REFUSED,
        error=refused.reason,
        kind=refused.ran_out.value if refused.ran_out else "",
        cause=Cause.BUDGET if refused.account else Cause.RULES,
        account=refused.account,
    )


def _require_agent(value: object) -> None:
    if not is_agent(value):
        raise DefinitionError(
            f"{value!r} cannot be delegated to: it is not an agent; make one of a function"
            " with @agent"
        )


def _checked_choices(agent: Agent[Any], chosen: Choices) -> str:
    """Return the part of a call's key for choices; raise `DefinitionError` if not allowed."""
    # Imported late: most programs choose nothing.
    from orchestrator.agents.task_choices import with_choices

    with_choices(agent, chosen.model, chosen.effort)
    return _digest(str(chosen))


def _checksum(instructions: object) -> int | msgspec.UnsetType:
    """Return what tells agents of one name apart; instructions that a function makes do not."""
    if not isinstance(instructions, str) or not instructions:
        return msgspec.UNSET
    return zlib.crc32(instructions.encode("utf-8", "surrogatepass"))


def _digest(*words: str) -> str:
    joined = "\0".join(words).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(joined, digest_size=8).hexdigest()


def _is_group(exc: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    # The group of a fan-out is one failure.
    is_failure = isinstance(exc, TaskFailedError)
    return isinstance(exc, BaseExceptionGroup) and not is_failure
