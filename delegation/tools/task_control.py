"""`task`: a model lists, awaits, steers and cancels its delegated tasks.

It reaches only descendants of the calling task: any other id is unknown to it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from orchestrator.agents import (
    Agent,
    MessageId,
    Tool,
    ToolCall,
    ToolError,
    arguments_schema,
    read_arguments,
)
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.delegation.events import SteeringOrigin
from orchestrator.delegation.ledger.ledger import Ledger
from orchestrator.delegation.ledger.session_record import SessionRecord
from orchestrator.delegation.ledger.task_record import TaskRecord
from orchestrator.delegation.notices import share_per_result
from orchestrator.delegation.task import TaskId
from orchestrator.delegation.tools.delegator_port import Delegator
from orchestrator.delegation.tools.results import (
    as_json,
    progress,
    readable_characters,
    task_result,
)

NAME: Final = "task"
MAX_LISTED: Final = 100
"""How many tasks a list shows at most."""
STEER_SECONDS: Final = 30.0
"""How long a call waits for receipts by default."""

Action: TypeAlias = Literal["list", "wait", "result", "steer", "cancel"]


class ControlTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `task`."""

    action: Annotated[
        Action,
        msgspec.Meta(
            description="list: what your tasks do; wait: until they have ended, and their"
            " results; result: how they ended; steer: tell them something while they work;"
            " cancel: end them and all below them."
        ),
    ]
    ids: Annotated[
        tuple[str, ...],
        msgspec.Meta(
            description="The task ids that are meant. list and wait: left out, all that run."
        ),
    ] = ()
    mode: Annotated[
        Literal["any", "all"],
        msgspec.Meta(description="wait: until any of them has ended, or all."),
    ] = "all"
    seconds: Annotated[
        Annotated[float, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="wait and steer: how long to wait at most."),
    ] = None
    message: Annotated[str, msgspec.Meta(description="steer: what to say.")] = ""
    offset: Annotated[
        int,
        msgspec.Meta(description="result: from which character of a long output to read on.", ge=0),
    ] = 0


def control_tool(
    agent: Agent[Any], *, caller: TaskRecord, ledger: Ledger, delegator: Delegator
) -> Tool:
    """Return the tool for one task of one agent."""

    async def run(call: ToolCall) -> ToolResult:
        control = _Control(agent, caller, ledger, delegator)
        actions: Mapping[Action, Callable[[ToolCall, ControlTask], Awaitable[ToolResult]]] = {
            "list": control.list,
            "wait": control.wait,
            "result": control.result,
            "steer": control.steer,
            "cancel": control.cancel,
        }
        arguments = read_arguments(call, ControlTask)
        return await actions[arguments.action](call, arguments)

    return Tool(
        name=NAME,
        description="Look after the tasks that you have delegated with delegate_task: list"
        " them, wait for them, read how they ended, tell them something, or cancel them.",
        parameters=_parameters(),
        run=run,
        # A crash leaves the tasks as they are, and a repeated call sends no message twice.
        idempotent=True,
        # It posts facts, and the work that they start waits until they are durable.
        acts_outside=False,
    )


@cache
def _parameters() -> Mapping[str, Any]:
    return arguments_schema(ControlTask)


class _Control:
    def __init__(
        self, agent: Agent[Any], caller: TaskRecord, ledger: Ledger, delegator: Delegator
    ) -> None:
        self._agent = agent
        self._caller = caller
        self._ledger = ledger
        self._delegator = delegator

    @property
    def _session(self) -> SessionRecord:
        return self._ledger.sessions[self._caller.session]

    async def list(self, _: ToolCall, arguments: ControlTask) -> ToolResult:
        tasks = self._named(arguments) if arguments.ids else self._known()
        await self._checkpoint(tasks)
        now = self._delegator.now()
        shown = tasks[:MAX_LISTED]
        answer: dict[str, Any] = {"tasks": progress(shown, self._session, now)}
        if len(tasks) > MAX_LISTED:
            answer["note"] = f"{len(tasks) - MAX_LISTED} more are not shown."
        return ToolResult(as_json(answer))

    async def wait(self, _: ToolCall, arguments: ControlTask) -> ToolResult:
        tasks = self._named(arguments) if arguments.ids else self._running()
        await self._delegator.wait(
            [task.id for task in tasks],
            any_of_them=arguments.mode == "any",
            seconds=arguments.seconds,
        )
        return self._results(tasks)

    async def result(self, _: ToolCall, arguments: ControlTask) -> ToolResult:
        tasks = self._named(arguments)
        await self._checkpoint(tasks)
        return self._results(tasks, offset=arguments.offset)

    async def steer(self, call: ToolCall, arguments: ControlTask) -> ToolResult:
        if not arguments.message.strip():
            raise ToolError("steer: say something, in `message`")
        receipts = await self._delegator.steer(
            # The call makes the ids, so that a repeated call sends no message twice.
            {
                task.id: MessageId(f"m_{self._caller.call_prefix}_{call.id}_{task.id}")
                for task in self._named(arguments)
            },
            arguments.message,
            by=self._caller.path,
            origin=SteeringOrigin.TASK,
            seconds=STEER_SECONDS if arguments.seconds is None else arguments.seconds,
        )
        sentences = {task: receipt.sentence for task, receipt in receipts.items()}
        return ToolResult(as_json({"receipts": sentences}))

    async def cancel(self, _: ToolCall, arguments: ControlTask) -> ToolResult:
        tasks = self._named(arguments)
        await self._delegator.cancel([task.id for task in tasks])
        return self._results(tasks)

    async def _checkpoint(self, tasks: Sequence[TaskRecord]) -> None:
        """Let other tasks run for a moment, as a wait does."""
        ids = [task.id for task in tasks]
        await self._delegator.wait(ids, any_of_them=True, seconds=0)

    def _named(self, arguments: ControlTask) -> Sequence[TaskRecord]:
        if not arguments.ids:
            raise ToolError(f"{arguments.action}: say which tasks are meant, in `ids`")
        for id_ in arguments.ids:
            if not self._ledger.is_descendant(TaskId(id_), self._caller.id):
                raise ToolError(f"there is no such task: {id_!r}; nothing was done")
        return [self._ledger.tasks[TaskId(id_)] for id_ in dict.fromkeys(arguments.ids)]

    def _running(self) -> Sequence[TaskRecord]:
        return list(self._caller.children.unsettled.values())

    def _known(self) -> Sequence[TaskRecord]:
        """Return all unsettled descendants, and then the settled children, newest first."""
        live: list[TaskRecord] = []
        pending = [*reversed(self._running())]
        while pending:
            task = pending.pop()
            live.append(task)
            pending += reversed(task.children.unsettled.values())
        children = reversed(self._caller.children.by_call.values())
        own = (self._ledger.tasks[id_] for id_ in children)
        return live + [task for task in own if task.outcome is not None]

    def _results(self, tasks: Sequence[TaskRecord], *, offset: int = 0) -> ToolResult:
        ended = [task for task in tasks if task.outcome is not None]
        running = [task for task in tasks if task.outcome is None]
        share = share_per_result(
            len(ended), readable_characters(self._agent, self._caller.transcript)
        )
        now = self._delegator.now()
        answer = {
            "status": "still_running" if running else "completed",
            "results": [task_result(task, self._session, share, offset=offset) for task in ended],
            **({"running": progress(running, self._session, now)} if running else {}),
        }
        return ToolResult(as_json(answer), self._notices_of(ended))

    def _notices_of(self, tasks: Sequence[TaskRecord]) -> Sequence[int]:
        """Return the unread notices of tasks: they are the root's to read."""
        if not self._caller.is_root:
            return ()
        ids = {task.id for task in tasks}
        return [seq for seq, about in self._session.task_notices() if about in ids]
