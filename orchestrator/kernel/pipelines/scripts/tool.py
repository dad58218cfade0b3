"""`run_script`: a model writes a program over its agents and tools, and runs it as one task."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final

import attrs
import msgspec

from orchestrator.agents import (
    Agent,
    CallId,
    Tool,
    ToolCall,
    ToolError,
    arguments_schema,
    read_arguments,
)
from orchestrator.agents.feature_checks import RUN_SCRIPT
from orchestrator.agents.script import Script, script_stubs_of
from orchestrator.agents.turn_plan import SCRIPT
from orchestrator.delegation import (
    Assignment,
    Delegator,
    Ending,
    Origin,
    TaskId,
    TaskRecord,
    call_key,
)
from orchestrator.kernel.pipelines.scripts.dry_run import SimulateScript

DESCRIPTION: Final = """\
Run a script: async Python that calls your agents and tools, for work with loops, conditions or
many calls. Every call is a task. A script has no files, no network and no clock, and no libraries
but the pure ones of Python (json, re, math, datetime, collections, itertools). It is checked before
it runs. Its result is the printed text and the value of its last expression.
gather(*calls) waits for all, race(*calls) for the first success. A failed call raises RuntimeError.
"""
REPAIRS: Final = 2
"""How often a script that has failed may be sent again with the same goal."""
SHOWN_GOAL: Final = 80
"""The characters of a goal in the label of a script."""


class RunScript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `run_script`."""

    code: Annotated[str, msgspec.Meta(description="The script. `await` works at its top level.")]
    goal: Annotated[str, msgspec.Meta(description="Its purpose, for people.")] = ""
    background: Annotated[
        bool | None,
        msgspec.Meta(
            description="true: go on at once and be told later; false: wait for the result;"
            " left out: in the background if this session can be told later."
        ),
    ] = None
    dry_run: Annotated[
        bool,
        msgspec.Meta(
            description="true: simulate the script, and return its expected cost, time and tasks."
        ),
    ] = False


@attrs.frozen
class ScriptTool:
    """Makes the tool for one task."""

    _agent: Agent[Any]
    _parent: TaskRecord
    _origin: Origin
    _delegator: Delegator
    _tasks: Mapping[TaskId, TaskRecord]
    _simulate: SimulateScript | None

    def tool(self) -> Tool:
        return Tool(
            name=RUN_SCRIPT,
            description=f"{DESCRIPTION}The functions of a script:\n{script_stubs_of(self._agent)}",
            parameters=_parameters(),
            run=self._run,
            # A call that a crash interrupted finds the script that it requested, and waits for it.
            idempotent=True,
            acts_outside=False,
        )

    async def _run(self, call: ToolCall) -> str:
        arguments = read_arguments(call, RunScript)
        if not arguments.code.strip():
            raise ToolError("the script is empty: write code that calls your agents")
        goal = msgspec.json.encode(Script(goal=arguments.goal, code=arguments.code)).decode()
        if arguments.dry_run:
            return await self._dry_run(goal)
        label = arguments.goal[:SHOWN_GOAL]
        self._require_repair(CallId(call.id), label)
        return await self._delegator.delegate(
            [Assignment(goal, agent=SCRIPT, label=label)],
            parent=self._parent.id,
            origin=self._origin,
            call=CallId(call.id),
            background=arguments.background,
            by_tool=True,
        )

    async def _dry_run(self, goal: str) -> str:
        if self._simulate is None:
            raise ToolError("a dry run is not possible inside a simulation")
        result = await self._simulate(self._agent.plan.tool_agents[SCRIPT], goal)
        if not result.is_possible:
            raise ToolError(result.text)
        return result.text

    def _require_repair(self, call: CallId, label: str) -> None:
        """Refuse a script whose first version and repairs have failed.

        The count begins anew after a success: a loop that sends broken scripts ends, and a later
        script with the same goal runs.
        """
        by_call = self._parent.children.by_call
        if call_key(call, 0) in by_call:
            return  # a crash interrupted this call
        failed = 0
        for task in reversed(by_call.values()):
            record = self._tasks[task]
            if record.agent != SCRIPT or record.label != label or record.outcome is None:
                continue
            if record.outcome.ending is not Ending.FAILED:
                break
            failed += 1
        if failed > REPAIRS:
            raise ToolError(
                f"{failed} scripts for the goal {label!r} have failed, and a script may be repaired"
                f" {REPAIRS} times: it was not run. Call your agents one by one, or name the"
                " failure in your answer"
            )


@cache
def _parameters() -> Any:
    return arguments_schema(RunScript)
