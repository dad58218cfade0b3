"""The program of a script: every call of an agent or a tool becomes a child of its task."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from orchestrator.agents import DefinitionError, raising_one_error
from orchestrator.agents.script import Script, ScriptTeam
from orchestrator.kernel.errors import TaskFailedError
from orchestrator.kernel.journal.admission import START_AT_ONCE
from orchestrator.kernel.pipelines.child import Child
from orchestrator.kernel.pipelines.scripts.interpreter import Answer, Interpreter, ScriptCall
from orchestrator.kernel.pipelines.scripts.wanted_task import CallError, WantedTask, read_call

if TYPE_CHECKING:
    from orchestrator.kernel.pipelines.runner import PipelineRun

_FUTURE: Final = re.compile(r"<coroutine external_future\((\d+)\)>")
"""The interpreter shows a call that is an argument of another call so."""
LOST_RACE: Final = "cancelled: another call won the race"


class ScriptRun:
    """A script that runs."""

    def __init__(self, script: Script, team: ScriptTeam, run: "PipelineRun") -> None:
        self._script = script
        self._team = team
        self._run = run
        self._children: dict[int, Child[Any]] = {}
        self._begun: set[int] = set()
        """The calls so far."""
        self._losers: set[int] = set()
        """The calls that have lost a race."""
        self._answers: dict[int, Answer] = {}
        """The answers so far."""
        self._due: list[int] = []
        """The calls whose answers the script has not got."""
        self._answered = trio.Event()

    async def run(self) -> str:
        """Run the script to its end, and return its result."""
        team = self._team
        script = self._script
        goal = script.goal if team.takes_goal else None
        with Interpreter(script.code, team.stubs, team.limits, goal) as interpreter:
            try:
                with raising_one_error():
                    async with trio.open_nursery() as nursery:
                        stop = await interpreter.start()
                        while stop.waits:
                            await self._begin_all(stop.new, nursery)
                            stop = await interpreter.resume(await self._next_answers())
                        # The script does not wait for the others.
                        nursery.cancel_scope.cancel(reason="the script has ended")
            finally:
                await self._run.cancel_running(self._children.values())  # noqa: ASYNC102 (shielded)
            return shown_result(interpreter.output, stop.value, team.limits.characters)

    async def _begin_all(self, calls: Sequence[ScriptCall], nursery: trio.Nursery) -> None:
        """Request the tasks of calls, in their order."""
        await trio.lowlevel.checkpoint()
        self._begun.update(call.id for call in calls)
        wanted: list[tuple[int, WantedTask]] = []
        for call in calls:
            try:
                if call.function == "race":
                    nursery.start_soon(self._race, call.id, self._raced(call))
                else:
                    wanted.append((call.id, read_call(call, self._team)))
            except CallError as exc:
                self._answer(call.id, Answer(error=str(exc)))
        if self._run.finds_earlier:
            # A new request waits until all earlier ones were made again: not in their order,
            # where the answers come in another order than before the crash.
            for it in wanted:
                nursery.start_soon(self._begin, *it)
            return
        for at in range(0, len(wanted), START_AT_ONCE):
            step = wanted[at : at + START_AT_ONCE]
            if not await self._run.start_all(
                [(it.agent, it.goal, it.chosen, it.details) for _, it in step],
                partial(self._follow_in, step),
                in_order=False,
            ):
                for it in step:
                    await self._begin(*it)

    def _follow_in(
        self, step: Sequence[tuple[int, WantedTask]], number: int, child: Child[Any]
    ) -> None:
        self._follow(*step[number], child)

    async def _begin(self, call: int, wanted: WantedTask) -> None:
        try:
            child = await self._run.start_child(
                wanted.agent, wanted.goal, chosen=wanted.chosen, details=wanted.details
            )
        except (TaskFailedError, DefinitionError) as exc:
            self._answer(call, Answer(error=str(exc)))
            return  # noqa: ASYNC910 (a refused call has nothing to wait for)
        self._follow(call, wanted, child)

    def _follow(self, call: int, wanted: WantedTask, child: Child[Any]) -> None:
        """Learn the end of a child, which has not begun to run."""
        self._children[call] = child
        child.on_end = partial(self._note_end, call, wanted, child)
        if call in self._losers:
            child.begin_cancel()

    def _note_end(self, call: int, wanted: WantedTask, child: Child[Any]) -> None:
        outcome = child.outcome
        if outcome is None:
            return
        if child.was_not_awaited:
            # Unless it has lost here, it was cancelled before a crash, and will be again.
            child.awaits_cancel = call not in self._losers
            if call in self._losers:
                self._answer(call, Answer(error=LOST_RACE))
        elif not outcome.succeeded:
            self._answer(call, Answer(error=str(child.failure(outcome))))
        else:
            value = outcome.output if wanted.is_text else json.loads(outcome.output)
            self._answer(call, Answer(value))

    def _raced(self, call: ScriptCall) -> frozenset[int]:
        ids = [_FUTURE.fullmatch(it) if isinstance(it, str) else None for it in call.args]
        raced = frozenset(int(it[1]) for it in ids if it is not None)
        if len(raced) < len(call.args) or not raced <= self._begun:
            raise CallError(f"line {call.line}: race() takes calls of agent() and tool() alone")
        if not raced:
            raise CallError(f"line {call.line}: race() needs calls of agent() or tool()")
        return raced

    async def _race(self, call: int, raced: frozenset[int]) -> None:
        await trio.lowlevel.checkpoint()
        while not self._winners(raced) and not raced <= self._answers.keys():
            await self._wait_answer()
        losers = raced - self._answers.keys()
        self._losers |= losers
        for other in losers & self._children.keys():
            self._children[other].begin_cancel()
            if self._children[other].has_ended:
                # Before a crash it had lost, too.
                self._answer(other, Answer(error=LOST_RACE))
        # The script continues when the others have ended.
        while not raced <= self._answers.keys():
            await self._wait_answer()
        # Several may have succeeded: a script that runs again finds the same first one.
        first = min(self._winners(raced) or raced, key=self._ended_at)
        self._answer(call, self._answers[first])

    def _winners(self, raced: frozenset[int]) -> list[int]:
        return [it for it in raced & self._answers.keys() if not self._answers[it].error]

    def _ended_at(self, call: int) -> tuple[float, int]:
        child = self._children.get(call)
        return (0.0 if child is None else child.ended_at, call)

    def _answer(self, call: int, answer: Answer) -> None:
        self._answers[call] = answer
        self._due.append(call)
        self._answered.set()

    async def _wait_answer(self) -> None:
        if self._answered.is_set():
            self._answered = trio.Event()
        await self._answered.wait()

    async def _next_answers(self) -> Mapping[int, Answer]:
        """Wait for answers that the script has not got."""
        await trio.lowlevel.checkpoint()
        while not self._due:
            await self._wait_answer()
        due, self._due = self._due, []
        # A script does not act on an outcome that a crash could still undo.
        await self._run.wait_durable()
        return {call: self._answers[call] for call in due}


def shown_result(printed: Sequence[str], value: Any, characters: int) -> str:
    """Return the printed texts of a script and the value of its last expression as one text."""
    parts = ["".join(printed).rstrip("\n")] if printed else []
    if value is not None:
        parts.append(value if isinstance(value, str) else _as_json(value))
    text = "\n".join(parts)
    if len(text) <= characters:
        return text
    return f"{text[:characters]}\n[{len(text) - characters:,} more characters]"


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        # A value of the script's own class.
        return repr(value)
