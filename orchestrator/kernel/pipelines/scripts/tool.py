"""`run_script`: a model writes a program over its agents and tools, and runs it as one task."""

from functools import cache
from typing import Annotated, Any, Final

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
from orchestrator.delegation import Assignment, Delegator, Origin, TaskRecord

DESCRIPTION: Final = """\
Run a script: async Python that calls your agents and tools, for work with loops, conditions or
many calls. Every call is a task. A script has no files, no network and no clock, and no libraries
but the pure ones of Python (json, re, math, datetime, collections, itertools). It is checked before
it runs. Its result is the printed text and the value of its last expression.
gather(*calls) waits for all, race(*calls) for the first success. A failed call raises RuntimeError.
"""


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


def script_tool(
    agent: Agent[Any], parent: TaskRecord, origin: Origin, delegator: Delegator
) -> Tool:
    """Return the tool for one task."""

    async def run(call: ToolCall) -> str:
        arguments = read_arguments(call, RunScript)
        if not arguments.code.strip():
            raise ToolError("the script is empty: write code that calls your agents")
        script = Script(goal=arguments.goal, code=arguments.code)
        assignment = Assignment(
            msgspec.json.encode(script).decode(), agent=SCRIPT, label=arguments.goal[:80]
        )
        return await delegator.delegate(
            [assignment],
            parent=parent.id,
            origin=origin,
            call=CallId(call.id),
            background=arguments.background,
            by_tool=True,
        )

    return Tool(
        name=RUN_SCRIPT,
        description=f"{DESCRIPTION}The functions of a script:\n{script_stubs_of(agent)}",
        parameters=_parameters(),
        run=run,
        # A call that a crash interrupted finds the script that it requested, and waits for it.
        idempotent=True,
        acts_outside=False,
    )


@cache
def _parameters() -> Any:
    return arguments_schema(RunScript)
