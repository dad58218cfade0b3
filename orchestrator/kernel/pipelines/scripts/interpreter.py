"""The interpreter of one script, which runs it in a worker process from stop to stop.

A script stops when all that it can do waits for calls. The worker is driven in a thread, because
a script may compute for seconds. A cancelled wait kills the worker, so the thread ends at once.
"""

import datetime as dt
import os
import re
import shutil
import signal
import sysconfig
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeGuard

import msgspec
import pydantic_monty as monty
import trio

from orchestrator.agents import AgentError, raising_one_error
from orchestrator.agents.sandbox.closed_thread import run_closed
from orchestrator.agents.script import ScriptLimits
from orchestrator.kernel.event_loop import has_virtual_time
from orchestrator.kernel.pipelines.scripts.fan_out_source import (
    DEFINITION,
    FAN_OUTS,
    STUBS,
    with_fan_outs,
)

FROZEN_CLOCK: Final = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
"""The time in every script: a script that runs again must do the same again."""
SEED: Final = 0
PRELUDE: Final = f"from asyncio import gather\n{DEFINITION}"

_DIAGNOSTIC: Final = re.compile(
    r"^main\.py:(\d+):(\d+): (?:error|warning)\[[\w-]+\] ", re.MULTILINE
)
_OWN_INPUT: Final = "<python-input-1>"
"""The interpreter numbers its inputs, and the script is the second."""
GATHER: Final = "fan-out"
"""The function of a call that is a fan-out: no name that a script can call."""


class ScriptError(AgentError):
    """A script cannot run, or has failed; the message has the line."""


class ScriptCall(msgspec.Struct, frozen=True):
    """A call of an agent or a tool, or a race or a fan-out of such calls."""

    id: int
    """The interpreter counts from 0, and the calls in fan-outs are counted from -1 down."""
    function: str
    args: tuple[Any, ...]
    """In a fan-out, its calls."""
    keywords: Mapping[str, Any]
    line: int


class Stop(msgspec.Struct, frozen=True):
    """The state of a script that waits for calls, or has ended."""

    new: tuple[ScriptCall, ...]
    """The calls since its last stop, in their order."""
    waits: bool
    value: Any = None
    """The value of its last expression, if it has ended."""


class Answer(msgspec.Struct, frozen=True):
    """The result of a call: a value, or the sentence of an error."""

    value: Any = None
    error: str = ""


class Interpreter(AbstractContextManager["Interpreter"]):
    """Runs one script."""

    def __init__(
        self, code: str, stubs: str, limits: ScriptLimits, goal: str | None = None
    ) -> None:
        self._source = with_fan_outs(code)
        self._goal = goal
        self._bytes = code.encode("utf-8", "surrogatepass")
        self._lines: dict[int, int] = {}
        """The lines of calls by their offsets."""
        self._stubs = stubs
        self._limits = limits
        self._stack = ExitStack()
        self._snapshot: monty.SyncSnapshot | None = None
        self.pid: int | None = None
        """The worker, as soon as it has started."""
        self._is_killed = False
        self._calls = 0
        self.output: list[str] = []
        """The printed and logged texts."""
        self._printed = 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Its number may soon be another process's.
        self.pid = None
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    async def start(self) -> Stop:
        """Check the script, and run it to its first stop.

        Raises:
            ScriptError: it has an unknown name or a wrong type, or it failed.
        """
        return await self._in_thread(self._start)

    async def resume(self, take: Callable[[], tuple[int, Answer] | None]) -> Stop:
        """Give a stopped script answers one by one, until it makes a call or there is no other.

        Answers that are given together would let it continue in another order than one by one.
        `take` is called in a thread.
        """
        return await self._in_thread(lambda: self._follow(take))

    def _start(self) -> Stop:
        pool = monty.Monty(binary_path=(program := _program()), max_processes=1)
        # The worker starts now, and inherits the restrictions of the thread.
        run_closed(lambda: self._stack.enter_context(pool), program)
        session = self._stack.enter_context(
            pool.checkout(
                limits={
                    "max_turn_duration_secs": self._limits.seconds,
                    "max_memory": self._limits.megabytes * 1_000_000,
                    "max_suspensions": 10 * self._limits.calls,
                },
                type_check=True,
                type_check_stubs=f"{self._stubs}{STUBS}",
                type_check_format="concise",
                os_policy={
                    "datetime": FROZEN_CLOCK,
                    "sleep": "call_host",
                    "random_start": {"seed": SEED},
                },
            )
        )
        self.pid = session.worker_pid
        if self._is_killed:
            raise ScriptError("the script was cancelled before it began")

        goal = "" if self._goal is None else f"\ngoal = {self._goal!r}"

        def begin() -> monty.SyncSnapshot:
            session.feed_run(f"{PRELUDE}{goal}", skip_type_check=True)
            return session.feed_start(
                self._source.code, print_callback=lambda _, text: self._print(text)
            )

        return self._stop(begin)

    def _follow(self, take: Callable[[], tuple[int, Answer] | None]) -> Stop:
        while (taken := take()) is not None:
            call, answer = taken
            result: Any = {"return_value": answer.value}
            if answer.error:
                result = {"exc_type": "RuntimeError", "message": answer.error}
            snapshot = self._snapshot
            assert isinstance(snapshot, monty.FutureSnapshot), "a script that waits is resumed"
            stop = self._stop(partial(snapshot.resume, {call: result}))
            if stop.new or not stop.waits:
                return stop
        return Stop((), waits=True)

    def _stop(self, begin: Callable[[], monty.SyncSnapshot]) -> Stop:
        """Run to the next stop, and collect the calls on the way."""
        new: list[ScriptCall] = []
        try:
            snapshot = begin()
            while isinstance(snapshot, (monty.FunctionSnapshot, monty.NameLookupSnapshot)):
                snapshot = self._answer(snapshot, new)
        except monty.MontyTypingError as exc:
            problems = _DIAGNOSTIC.sub(r"line \1, column \2: ", exc.display().strip())
            raise ScriptError(f"the script has errors, and was not run:\n{problems}") from None
        except monty.MontyCrashedError as exc:
            raise ScriptError(f"the script was stopped: {exc}") from None
        except (monty.MontyRuntimeError, monty.MontySyntaxError) as exc:
            shown = exc.display().replace(f'File "{_OWN_INPUT}", ', "")
            shown = self._source.with_own_names(shown)
            raise ScriptError(f"the script failed:\n{shown}") from None
        except monty.MontyError as exc:
            raise ScriptError(f"the script failed: {exc}") from None
        self._snapshot = snapshot
        if isinstance(snapshot, monty.MontyComplete):
            return Stop(tuple(new), waits=False, value=snapshot.output)
        return Stop(tuple(new), waits=True)

    def _answer(
        self, snapshot: monty.FunctionSnapshot | monty.NameLookupSnapshot, new: list[ScriptCall]
    ) -> monty.SyncSnapshot:
        if isinstance(snapshot, monty.NameLookupSnapshot):
            if snapshot.variable_name not in HOST_FUNCTIONS:
                return snapshot.resume()
            return snapshot.resume(value=_stand_in(snapshot.variable_name))
        if snapshot.is_os_function:
            return snapshot.resume_not_handled()
        line = self._line(snapshot.position)
        if snapshot.function_name == "log":
            self._print(f"{' '.join(map(str, snapshot.args))}\n")
            return snapshot.resume({"return_value": None})
        call = self._call(snapshot, line)
        self._calls += len(call.args) if call.function == GATHER else 1
        if self._calls > self._limits.calls:
            raise ScriptError(
                f"the script was stopped in line {line}: it made more than"
                f" {self._limits.calls:,} calls, the limit of its agent"
            )
        new.append(call)
        return snapshot.resume({"future": ...})

    def _line(self, position: monty.SourceRange) -> int:
        if position.filename != _OWN_INPUT:
            return 0  # `eval` has a source of its own
        start = position.start
        if (line := self._lines.get(start)) is None:
            line = self._source.lines.get(start) or self._bytes[:start].count(b"\n") + 1
            self._lines[start] = line
        return line

    def _call(self, snapshot: monty.FunctionSnapshot, line: int) -> ScriptCall:
        name, args, keywords = snapshot.function_name, snapshot.args, snapshot.kwargs
        if name in FAN_OUTS.values() and all(map(_is_arguments, args)):
            # Each has a number of its own, which the interpreter does not use.
            first = self._calls + 1
            args = tuple(
                ScriptCall(-first - at, "agent", it[0], it[1], line) for at, it in enumerate(args)
            )
            name, keywords = GATHER, {}
        return ScriptCall(snapshot.call_id, name, args, keywords, line)

    def _print(self, text: str) -> None:
        # More than its result can show is not kept.
        if self._printed <= self._limits.characters:
            self._printed += len(text)
            self.output.append(text)

    async def _in_thread(self, work: Callable[[], Stop]) -> Stop:
        if has_virtual_time():
            await trio.lowlevel.checkpoint()
            return work()
        result: Stop | ScriptError | None = None

        async def kill_when_cancelled() -> None:
            try:
                await trio.sleep_forever()
            finally:
                if result is None:
                    self.kill()

        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kill_when_cancelled)
                try:
                    # It returns when the thread has ended, whatever is cancelled.
                    result = await trio.to_thread.run_sync(work)
                except ScriptError as exc:
                    result = exc
                nursery.cancel_scope.cancel()
        # A cancelled wait has killed the worker: it is no error of the script.
        await trio.lowlevel.checkpoint()
        if isinstance(result, ScriptError):
            raise result
        assert result is not None, "the thread has returned"
        return result

    def kill(self) -> None:
        """Kill the worker, from any thread; a script that has not begun does not begin."""
        # First: a thread that is starting the worker looks at this when the worker has a pid.
        self._is_killed = True
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def _program() -> str:
    """Return the program of the worker, which the library installs beside our interpreter."""
    own = shutil.which("monty", path=sysconfig.get_path("scripts"))
    found = own or shutil.which("monty")
    if found is None:
        raise ScriptError(
            "the interpreter of scripts has no program 'monty': install"
            " delegation-orchestrator[scripts] again"
        )
    return found


def _is_arguments(value: object) -> TypeGuard[tuple[tuple[Any, ...], dict[str, Any]]]:
    match value:
        case (tuple(), dict()):
            return isinstance(value, tuple)
        case _:
            return False


HOST_FUNCTIONS: Final = frozenset({"agent", "tool", "race", "log", "budget_left"})


def _stand_in(name: str) -> Callable[..., None]:
    """Return a function of this name: a script that keeps it as a value calls it by its name."""

    def stand_in(*_: object, **__: object) -> None:
        """Do nothing: the interpreter stops at the call."""

    stand_in.__name__ = name
    return stand_in
