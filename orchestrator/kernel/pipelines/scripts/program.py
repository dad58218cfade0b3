"""The program of a script: every call of an agent or a tool becomes a child of its task."""

import json
import re
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

import trio

from orchestrator.agents import DefinitionError
from orchestrator.agents.script import Script, ScriptTeam
from orchestrator.delegation import Ending
from orchestrator.kernel.errors import TaskFailedError
from orchestrator.kernel.journal.admission import START_AT_ONCE
from orchestrator.kernel.pipelines.child import Child
from orchestrator.kernel.pipelines.scripts.interpreter import (
    GATHER,
    Answer,
    Interpreter,
    ScriptCall,
)
from orchestrator.kernel.pipelines.scripts.wanted_task import CallError, WantedTask, read_call

if TYPE_CHECKING:
    from orchestrator.kernel.pipelines.runner import PipelineRun

_FUTURE: Final = re.compile(r"<coroutine external_future\((\d+)\)>")
"""The interpreter shows a call that is an argument of another call so."""
LOST_RACE: Final = "cancelled: another call won the race"


class _Joint:
    """A fan-out or a race: a call whose answer follows from the answers of other calls."""

    def __init__(self, call: ScriptCall, parts: Sequence[int]) -> None:
        self.call = call.id
        self.is_race = call.function != GATHER
        self.parts = parts
        self.open = set(parts)
        self.deciding: list[int] = []
        """The parts that succeeded in a race, or failed in a fan-out."""
        self.has_losers = False


class ScriptRun:
    """A script that runs.

    It gets the answers one by one, in the order in which the tasks have ended. So it continues
    after a crash as it had before.
    """

    def __init__(self, script: Script, team: ScriptTeam, run: "PipelineRun") -> None:
        self._script = script
        self._team = team
        self._run = run
        self._children: dict[int, Child[Any]] = {}
        self._begun: set[int] = set()
        """The calls so far."""
        self._joints: dict[int, tuple[_Joint, ...]] = {}
        """The fan-outs and races of a call."""
        self._decidable: dict[int, _Joint] = {}
        """The fan-outs and races with new answers, by their calls."""
        self._losers: set[int] = set()
        """The calls that have lost a race."""
        self._answers: dict[int, Answer] = {}
        """The answers so far."""
        self._ended_at: dict[int, float] = {}
        """When the calls with answers had ended; 0 for a call that was refused."""
        self._due: list[tuple[float, int]] = []
        """The ends of calls whose answers the script has not got: a heap."""
        self._durable: list[tuple[float, int]] = []
        """The part of them that no crash can undo: a heap."""
        self._answered = trio.Event()

    async def run(self) -> str:
        """Run the script to its end, and return its result."""
        team = self._team
        script = self._script
        goal = script.goal if team.takes_goal else None
        with Interpreter(script.code, team.stubs, team.limits, goal) as interpreter:
            self._run.watch_process(interpreter.kill)
            try:
                stop = await interpreter.start()
                while stop.waits:
                    await self._begin_all(stop.new)
                    await self._wait_answers()
                    stop = await interpreter.resume(self._take_answer)
            finally:
                # The script does not wait for the others.
                await self._run.cancel_running(self._children.values())  # noqa: ASYNC102 (shielded)
            return shown_result(interpreter.output, stop.value, team.limits.characters)

    async def _begin_all(self, calls: Sequence[ScriptCall]) -> None:
        """Request the tasks of calls, in their order."""
        await trio.lowlevel.checkpoint()
        wanted: list[tuple[int, WantedTask]] = []
        for call in calls:
            self._begun.add(call.id)
            if call.function == GATHER:
                self._join(call, [it.id for it in call.args])
                for it in call.args:
                    self._read(it, wanted)
            else:
                self._read(call, wanted)
        for at in range(0, len(wanted), START_AT_ONCE):
            step = wanted[at : at + START_AT_ONCE]
            if not await self._run.start_all(
                [(it.agent, it.goal, it.chosen, it.details) for _, it in step],
                partial(self._follow_in, step),
                in_order=False,
            ):
                for it in step:
                    await self._begin(*it)

    def _read(self, call: ScriptCall, wanted: list[tuple[int, WantedTask]]) -> None:
        try:
            if call.function == "race":
                self._join(call, self._raced(call))
            else:
                wanted.append((call.id, read_call(call, self._team)))
        except CallError as exc:
            self._answer(call.id, Answer(error=str(exc)))

    def _follow_in(
        self, step: Sequence[tuple[int, WantedTask]], number: int, child: Child[Any]
    ) -> None:
        self._follow(*step[number], child)

    async def _begin(self, call: int, wanted: WantedTask) -> None:
        try:
            child = await self._run.start_child(
                wanted.agent,
                wanted.goal,
                in_order=True,
                chosen=wanted.chosen,
                details=wanted.details,
            )
        except (TaskFailedError, DefinitionError) as exc:
            self._answer(call, Answer(error=str(exc)))
            return  # noqa: ASYNC910 (a refused call has nothing to wait for)
        self._follow(call, wanted, child)
        # If it had ended before a crash: the order of the ends decides, and not trio's.
        self._note_end(call, wanted, child)

    def _follow(self, call: int, wanted: WantedTask, child: Child[Any]) -> None:
        """Learn the end of a child, which has not begun to run."""
        self._children[call] = child
        child.on_end = partial(self._note_end, call, wanted, child)
        if call in self._losers:
            child.begin_cancel()

    def _note_end(self, call: int, wanted: WantedTask, child: Child[Any]) -> None:
        outcome = child.outcome
        if outcome is None or call in self._answers:
            return
        if outcome.ending is Ending.SUCCEEDED:
            answer = Answer(outcome.output)
            if wanted.agent.output is not str or wanted.details.output_schema is not None:
                answer = _read_json(outcome.output, wanted)
        elif not child.was_not_awaited:
            answer = Answer(error=str(child.failure(outcome)))
        elif call in self._losers:
            answer = Answer(error=LOST_RACE)
        else:
            # It was cancelled before a crash, and will be again.
            child.awaits_cancel = True
            return
        self._answer(call, answer, child.ended_at)

    def _raced(self, call: ScriptCall) -> list[int]:
        ids = [_FUTURE.fullmatch(it) if isinstance(it, str) else None for it in call.args]
        raced = list(dict.fromkeys(int(it[1]) for it in ids if it is not None))
        if None in ids or not self._begun.issuperset(raced):
            raise CallError(f"line {call.line}: race() takes calls of agent() and tool() alone")
        if not raced:
            raise CallError(f"line {call.line}: race() needs calls of agent() or tool()")
        return raced

    def _join(self, call: ScriptCall, parts: Sequence[int]) -> None:
        """Begin a fan-out or a race of calls, some of which may have answers."""
        joint = _Joint(call, parts)
        self._decidable[call.id] = joint
        for part in parts:
            self._joints[part] = (*self._joints.get(part, ()), joint)
            if part in self._answers:
                self._count(joint, part)

    def _count(self, joint: _Joint, part: int) -> None:
        joint.open.discard(part)
        if bool(self._answers[part].error) is not joint.is_race:
            joint.deciding.append(part)
        if joint.deciding or not joint.open:
            self._decidable[joint.call] = joint
            self._answered.set()

    def _decide(self, joint: _Joint) -> None:
        """Answer a fan-out or a race, if it is decided."""
        if joint.call in self._answers or not (joint.deciding or not joint.open):
            return
        if joint.is_race and not joint.has_losers:
            joint.has_losers = True
            for other in list(joint.open):
                self._lose(other)
        if joint.is_race and joint.open:
            return  # the script continues when the others have ended
        ended = self._ended_at.__getitem__
        # Several may have succeeded, or failed: a script that runs again finds the same first one.
        first = min(joint.deciding or joint.parts, key=ended, default=0)
        if joint.is_race:
            self._answer(joint.call, self._answers[first], max(map(ended, joint.parts)))
        elif joint.deciding:
            self._answer(joint.call, self._answers[first], ended(first))
        else:
            values = [self._answers[it].value for it in joint.parts]
            self._answer(joint.call, Answer(values), max(map(ended, joint.parts), default=0.0))

    def _lose(self, call: int) -> None:
        """Cancel a call that has lost a race."""
        self._losers.add(call)
        if (child := self._children.get(call)) is not None:
            child.begin_cancel()
            if child.outcome is not None:
                # Before a crash it had lost, too.
                self._answer(call, Answer(error=LOST_RACE), child.ended_at)

    def _answer(self, call: int, answer: Answer, ended: float = 0.0) -> None:
        self._answers[call] = answer
        self._ended_at[call] = ended
        for joint in self._joints.get(call, ()):
            self._count(joint, call)
        # The script has no call of its own for a part of a fan-out.
        if call >= 0:
            heappush(self._due, (ended, call))
            self._answered.set()

    async def _wait_answers(self) -> None:
        """Wait until there is an answer that the script has not got, and no crash can undo."""
        await trio.lowlevel.checkpoint()
        while True:
            while self._decidable:
                self._decide(self._decidable.popitem()[1])
            if self._due or self._durable:
                break
            self._answered = trio.Event()
            await self._answered.wait()
        if self._due:
            due, self._due = self._due, []
            # A script does not act on an outcome that a crash could still undo.
            await self._run.wait_durable()
            for it in due:
                heappush(self._durable, it)

    def _take_answer(self) -> tuple[int, Answer] | None:
        """Return the next answer for the script; this runs in the thread of the interpreter."""
        if not self._durable:
            return None
        _, call = heappop(self._durable)
        return call, self._answers[call]


def _read_json(output: str, wanted: WantedTask) -> Answer:
    try:
        return Answer(json.loads(output))
    except (ValueError, RecursionError) as exc:
        # It may be no JSON any more without a secret that was in it.
        return Answer(error=f"the answer of {wanted.agent.name} cannot be read: {exc}")


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
