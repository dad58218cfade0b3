"""Runs one command, with all that it starts, for as long as a block lasts.

Whoever leaves the block finds the whole process group ended: it was asked to (TERM), had a grace,
and was killed (KILL), while its leader was not yet taken notice of, so that its id could not
be another's. Then whoever left the group is found by the tag of the command and killed, too.
The same is done with what a command leaves behind when its shell exits by itself.

None of it can be cancelled, and all of it is bounded: by the grace, and by some seconds for what
the kernel does not let go of.
"""

import errno
import os
import signal
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Final

import trio

from agents.errors import ToolError
from agents.nurseries import raising_one_error
from agents.tools.terminal.output_buffer import KeptOutput, before_a_cut
from agents.tools.terminal.process_tags import open_pidfd, signal_carriers_soon, tagged

GRACE_SECONDS: Final = 1.0
# So long may what was started in the background outlive the shell, as a `>(tee log)` does.
DRAIN_SECONDS: Final = 0.5
# What is killed ends in milliseconds, unless it waits in the kernel: for a disk, for a device.
KERNEL_SECONDS: Final = 5.0
# Somebody whom we cannot find may hold the pipe.
LAST_WORDS_SECONDS: Final = 0.2
# Those who are killed are not waited for longer than this before we look again who there is.
ROUND_SECONDS: Final = 0.05
# What is heard of a line.
LINE: Final = 4096
# A listener takes its time for each line, and everybody else waits as long.
CHUNK: Final = 16_384


@asynccontextmanager
async def running(
    command: str,
    *,
    cwd: Path,
    environ: Mapping[str, str],
    tag: str,
    output: KeptOutput,
    stdin: bool = False,
    heard: Callable[[str], None] | None = None,
    grace: float = GRACE_SECONDS,
) -> AsyncGenerator["Running"]:
    """Run a command in a shell, and end all of it with the block.

    The shell is `/bin/bash` if there is one, because that is what models write, else `/bin/sh`.
    It has a session of its own and no terminal. What it says on stdout and stderr is one output.

    Args:
        command: what the shell is to do.
        cwd: where.
        environ: the whole environment but the tag, which is added.
        tag: from `new_tag()`: by it, descendants are found wherever they went.
        output: takes in what it says.
        stdin: it can be written to; otherwise it reads the end of a file at once.
        heard: is told each line, without its end and cut after 4096 characters. It must not wait.
        grace: the seconds between asking to end and killing.

    Raises:
        ToolError: it cannot be started; says why.
    """
    process = await _start(
        command, cwd, tagged(environ, tag), PIPE if stdin else DEVNULL
    )
    # No checkpoint from here on until somebody sees to its end.
    this = Running(process, tag=tag, output=output, grace=grace)
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(this.live, heard)
            try:
                yield this
            finally:
                this.ask_to_end()


class Running:
    """A command that runs, or has ended with all that it started."""

    def __init__(
        self, process: trio.Process, *, tag: str, output: KeptOutput, grace: float
    ) -> None:
        self.pid: Final = process.pid
        """The id of its shell, its process group and its session."""
        self.tag: Final = tag
        self.output: Final = output
        self.code: int | None = None
        """How the shell exited, once all has ended; the number of a signal is negative."""
        self.left_behind = False
        """The shell exited and left processes that were still running. They were ended."""
        self.is_stuck = False
        """Some process was killed, and the kernel has not let go of it yet."""
        self._process = process
        self._grace = grace
        try:
            self._pidfd = open_pidfd(process.pid)
        except ProcessLookupError:  # somebody ignores SIGCHLD, and it has ended
            self._pidfd = None
        self._until_asked = trio.CancelScope(shield=True)
        self._writing = trio.Lock()
        self._drained = trio.Event()
        self._over = trio.Event()

    async def wait(self) -> int:
        """Wait until all has ended and all was heard, and return how the shell exited.

        A signal's number is negative.
        """
        await self._over.wait()
        return -signal.SIGKILL if self.code is None else self.code

    async def end(self) -> None:
        """End all of it: ask, grant the grace, kill. Wait until it has ended."""
        self.ask_to_end()
        await self._over.wait()

    def ask_to_end(self) -> None:
        """Begin to end all of it."""
        self._until_asked.cancel()

    async def write(self, text: str) -> None:
        """Write to its stdin, and wait until all is in the pipe.

        Raises:
            ToolError: it does not read.
        """
        stdin = self._stdin()
        try:
            async with self._writing:
                await stdin.send_all(text.encode(errors="replace"))
        except trio.BrokenResourceError as exc:
            raise ToolError(
                "the process has closed its stdin, so this was not read; look at its output"
            ) from exc
        except trio.ClosedResourceError as exc:
            raise ToolError(
                "the stdin of the process is closed, so nothing can be written to it any more"
            ) from exc

    async def close_stdin(self) -> None:
        """Let it read the end of the file. Twice is as good as once."""
        await self._stdin().aclose()

    async def live(self, heard: Callable[[str], None] | None) -> None:
        """See it through. Only `running` calls this, once."""
        with trio.CancelScope(shield=True), raising_one_error():
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._read, heard)
                    await self._see_through()
                    nursery.cancel_scope.cancel()
            finally:
                for stream in (self._process.stdin, self._process.stdout):
                    if stream is not None:
                        await stream.aclose()
                if self._pidfd is not None:
                    os.close(self._pidfd)
                self._over.set()

    async def _read(self, heard: Callable[[str], None] | None) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        tell = _tell_nobody if heard is None else _Lines(heard).take
        is_read = False
        try:
            while chunk := await stdout.receive_some(CHUNK if heard else None):
                tell(self.output.write(chunk))
            is_read = True
        finally:
            self._drained.set()
            rest = self.output.finish()
            if not is_read:  # it was cut off, or whoever listens failed
                self.ask_to_end()
        tell(rest, is_end=True)

    async def _see_through(self) -> None:
        # A reader that fails must not break this off.
        with trio.CancelScope(shield=True):
            with self._until_asked:
                await self._leader_exited()
                with trio.move_on_after(DRAIN_SECONDS) as draining:
                    await self._drained.wait()
                    await self._carriers_gone()
                if draining.cancelled_caught:
                    # It may only have taken long to look.
                    with trio.move_on_after(KERNEL_SECONDS):
                        pids = await signal_carriers_soon(self.tag)
                        self.left_behind = bool(pids) or not self._drained.is_set()
            if self._until_asked.cancelled_caught or self.left_behind:
                await self._end_group()
                await self._reap()
                await self._sweep()
                with trio.move_on_after(LAST_WORDS_SECONDS):
                    await self._drained.wait()
            else:
                # Nobody with the tag is left; who is without it in the group goes here.
                self._signal_group(signal.SIGKILL)
                await self._reap()

    async def _leader_exited(self) -> None:
        if self._pidfd is not None:
            await trio.lowlevel.wait_readable(self._pidfd)
        else:
            # Where we cannot wait without taking notice, its id may be another's for a moment,
            # but only if nobody is left in its group.
            await self._process.wait()

    async def _end_group(self) -> None:
        self._signal_group(signal.SIGTERM)
        self._signal_group(signal.SIGCONT)  # who is stopped cannot end
        with trio.move_on_after(self._grace):
            await self._leader_exited()
            # Whoever left the group was not asked, and is not waited for.
            await self._carriers_gone(only_in_group=True)
        self._signal_group(signal.SIGKILL)

    async def _carriers_gone(self, *, only_in_group: bool = False) -> None:
        while pids := await signal_carriers_soon(self.tag):
            if only_in_group:
                pids = [pid for pid in pids if _group_of(pid) == self.pid]
                if not pids:
                    return
            await _all_gone(pids)

    async def _reap(self) -> None:
        with trio.move_on_after(KERNEL_SECONDS) as scope:
            self.code = await self._process.wait()
        self.is_stuck = scope.cancelled_caught

    async def _sweep(self) -> None:
        with trio.move_on_after(KERNEL_SECONDS) as scope:
            while pids := await signal_carriers_soon(self.tag, signal.SIGKILL):
                with trio.move_on_after(ROUND_SECONDS):
                    await _all_gone(pids)
        self.is_stuck |= scope.cancelled_caught

    def _signal_group(self, sent: signal.Signals) -> None:
        # macOS says that it is not permitted where all have ended.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, sent)

    def _stdin(self) -> trio.abc.SendStream:
        if self._process.stdin is None:
            raise ToolError("the process was started without a stdin to write to")
        return self._process.stdin


class _Lines:
    """Cuts text into lines for a listener."""

    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard = heard
        self._begun = ""

    def take(self, text: str, *, is_end: bool = False) -> None:
        *lines, rest = text.split("\n")
        for line in lines:
            self._tell(self._begun + line)
            self._begun = ""
        # One more than is told, to know that there was more.
        if len(self._begun) <= LINE:
            self._begun += rest[: LINE + 1 - len(self._begun)]
        if is_end and self._begun:
            self._tell(self._begun)

    def _tell(self, line: str) -> None:
        self._heard(line if len(line) <= LINE else before_a_cut(line[:LINE]))


def _tell_nobody(text: str, *, is_end: bool = False) -> None:
    """Ignore what is heard."""


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


async def _all_gone(pids: Iterable[int]) -> None:
    await trio.lowlevel.checkpoint()
    for pid in pids:
        try:
            file = open_pidfd(pid)
        except ProcessLookupError:
            continue
        if file is None:
            await trio.sleep(ROUND_SECONDS)  # then it is looked for again
            return
        try:
            await trio.lowlevel.wait_readable(file)
        finally:
            os.close(file)


async def _start(
    command: str, cwd: Path, environ: Mapping[str, str], stdin: int
) -> trio.Process:
    if os.name != "posix":
        raise ToolError(
            "commands can only be run on Linux and macOS, and this is neither"
        )
    try:
        return await trio.lowlevel.open_process(
            [_shell(), "-c", command],
            stdin=stdin,
            stdout=PIPE,
            stderr=STDOUT,
            cwd=cwd,
            env=environ,
            start_new_session=True,
        )
    except OSError as exc:
        raise ToolError(_why_not_started(exc, command, cwd)) from exc
    except ValueError as exc:
        raise ToolError(
            "the command was not started: it, its folder or its environment holds a character"
            f" that none can hold ({exc})"
        ) from exc


def _shell() -> str:
    return "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"


def _why_not_started(exc: OSError, command: str, cwd: Path) -> str:
    match exc.errno:
        case _ if exc.filename is not None and Path(exc.filename) == cwd:
            why = (
                f"its folder {cwd} cannot be entered ({exc.strerror}); name another one"
            )
        case errno.E2BIG:
            why = (
                f"its {len(command)} characters, or its environment, are more than the system"
                " takes; write what is long into a file, and name that in the command"
            )
        case errno.EMFILE | errno.ENFILE:
            why = "too many files are open; wait until other processes have ended, or end some"
        case errno.EAGAIN | errno.ENOMEM:
            why = (
                f"the machine has no room for another process ({exc.strerror}); wait until"
                " others have ended, or end some"
            )
        case _:
            why = str(exc)
    return f"the command was not started: {why}"
