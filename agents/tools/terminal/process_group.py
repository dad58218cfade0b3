"""Runs one command, and ends it with all its descendants when a `with` block is left.

The process group gets TERM, a grace, and KILL, before its leader is reaped, so that its id cannot
be reused. Then processes that left the group are found by the tag of the command, and killed. The
same happens to processes that a command leaves behind when its shell exits by itself.

The end cannot be cancelled, and is bounded: by the grace, and by some seconds for processes that
hang in the kernel.
"""

import errno
import os
import signal
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Final

import attrs
import trio

from orchestrator.agents.errors import ToolError
from orchestrator.agents.nurseries import raising_one_error
from orchestrator.agents.sandbox.backend import Launch, TaskSandbox
from orchestrator.agents.sandbox.network.access import NetworkAccess, open_network
from orchestrator.agents.sandbox.own_process import forbid_inspection
from orchestrator.agents.sandbox.program_path import program_path
from orchestrator.agents.tools.terminal import process_tags
from orchestrator.agents.tools.terminal.output_buffer import OutputBuffer, without_last_word

GRACE_SECONDS: Final = 1.0
# How long processes in the background may outlive the shell, as a `>(tee log)` does.
DRAIN_SECONDS: Final = 0.5
# A killed process ends in milliseconds, unless it waits in the kernel for a device.
KERNEL_SECONDS: Final = 5.0
# A process that we cannot find may hold the pipe.
FINAL_OUTPUT_SECONDS: Final = 0.2
# The longest wait for killed processes before the next scan.
ROUND_SECONDS: Final = 0.05
# The longest line that a callback gets.
MAX_LINE: Final = 4096
# A callback runs for each line, and all other tasks wait as long.
CHUNK: Final = 16_384


@asynccontextmanager
async def open_command(
    command: str,
    *,
    cwd: Path,
    environ: Mapping[str, str],
    sandbox: TaskSandbox,
    tag: str,
    output: OutputBuffer,
    stdin: bool = False,
    on_line: Callable[[str], None] | None = None,
    grace: float = GRACE_SECONDS,
) -> AsyncGenerator["RunningCommand"]:
    """Run a command in a shell, and end all of it with the block.

    The shell is `/bin/bash` if there is one, because models write bash, else `/bin/sh`. It has a
    session of its own and no terminal. Stdout and stderr are one output; stdin is empty unless
    `stdin` is true. `environ` is the whole environment but the tag, which identifies descendants
    wherever they went. `on_line` is called with each line, without its end and cut after 4096
    characters. There are `grace` seconds between TERM and KILL. Raise `ToolError` if it cannot be
    started.
    """
    if os.name != "posix":
        raise ToolError("commands can only be run on Linux and macOS, and this is neither")
    async with open_network(
        [_shell(), "-c", command], environ=process_tags.with_tag(environ, tag), sandbox=sandbox
    ) as network:
        process = await _start(
            command, cwd, network, stdin=PIPE if stdin else DEVNULL, stderr=STDOUT
        )
        # No checkpoint between the start and the supervisor: a cancellation would leak the
        # process.
        running = RunningCommand(
            process,
            read_from=process.stdout,
            tag=tag,
            output=output,
            grace=grace,
            refused=network.refused,
        )
        async with _supervised(running, on_line):
            yield running


@asynccontextmanager
async def open_program(
    argv: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    sandbox: TaskSandbox | None,
    tag: str,
    errors: OutputBuffer,
    grace: float = GRACE_SECONDS,
) -> AsyncGenerator["RunningCommand"]:
    """Run a program that is talked to by its stdin and stdout, and end all of it with the block.

    Both streams belong to the caller (`RunningCommand.streams`). No shell reads `argv`. `environ`
    is the whole environment but the tag. Without a sandbox it may touch all that the user may.
    There are `grace` seconds between TERM and KILL. Raise `ToolError` if it cannot be started.
    """
    if os.name != "posix":
        raise ToolError("programs can only be run on Linux and macOS, and this is neither")
    environ = process_tags.with_tag(environ, tag)
    with _start_errors(argv[0], cwd):
        argv = [program_path(argv[0], environ=environ, cwd=cwd), *argv[1:]]
    opening: AbstractAsyncContextManager[NetworkAccess | None] = (
        nullcontext() if sandbox is None else open_network(argv, environ=environ, sandbox=sandbox)
    )
    async with opening as network:
        if network is None:
            launch = Launch(argv=argv, environ=environ)
            process = await _open_process(argv[0], cwd, launch, stdin=PIPE, stderr=PIPE)
        else:
            process = await _start(argv[0], cwd, network, stdin=PIPE, stderr=PIPE)
        # No checkpoint in between, as above.
        running = RunningCommand(
            process, read_from=process.stderr, tag=tag, output=errors, grace=grace
        )
        async with _supervised(running, None):
            yield running


@asynccontextmanager
async def _supervised(
    running: "RunningCommand", on_line: Callable[[str], None] | None
) -> AsyncGenerator[None]:
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.supervise, on_line)
            try:
                yield
            finally:
                running.request_end()


class RunningCommand:
    """A command that runs, or has ended with all that it started. `open_command` makes it."""

    def __init__(
        self,
        process: trio.Process,
        *,
        read_from: trio.abc.ReceiveStream | None,
        tag: str,
        output: OutputBuffer,
        grace: float,
        refused: Collection[str] = (),
    ) -> None:
        self.pid: Final = process.pid
        """The id of its shell, its process group and its session."""
        self.tag: Final = tag
        self.output: Final = output
        self.refused: Final = refused
        """The hosts that it was refused so far, with their ports."""
        self.exit_code: int | None = None
        """The exit code of the shell, once all has ended; the number of a signal is negative."""
        self.left_behind = False
        """The shell exited before processes that it had started. They were ended."""
        self.is_stuck = False
        """A process was killed, and hangs in the kernel."""
        self._process = process
        self._read_from = read_from
        self._grace = grace
        try:
            self._pidfd = process_tags.open_pidfd(process.pid)
        except ProcessLookupError:  # SIGCHLD is ignored, and it has ended
            self._pidfd = None
        self._until_end_requested = trio.CancelScope(shield=True)
        self._write_lock = trio.Lock()
        self._drained = trio.Event()
        self._ended = trio.Event()

    @property
    def streams(self) -> tuple[trio.abc.SendStream, trio.abc.ReceiveStream]:
        """The stdin and the stdout of a program, for the caller of `open_program`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "it was started with pipes"
        assert stdout is not None, "it was started with pipes"
        return stdin, stdout

    async def wait(self) -> int:
        """Wait until all has ended and is read, and return the exit code; signals are negative."""
        await self._ended.wait()
        return -signal.SIGKILL if self.exit_code is None else self.exit_code

    async def end(self) -> None:
        """End all of it: TERM, grace, KILL. Wait until it has ended."""
        self.request_end()
        await self._ended.wait()

    def request_end(self) -> None:
        """Begin to end all of it."""
        self._until_end_requested.cancel()

    async def write(self, text: str) -> None:
        """Write to its stdin, and wait until all is in the pipe, or raise `ToolError`."""
        stdin = self._stdin()
        try:
            async with self._write_lock:
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
        """Close its stdin. Idempotent."""
        await self._stdin().aclose()

    async def supervise(self, on_line: Callable[[str], None] | None) -> None:
        """Read the output and end the processes. `open_command` calls this, once."""
        with trio.CancelScope(shield=True), raising_one_error():
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._read, on_line)
                    await self._run_to_end()
                    nursery.cancel_scope.cancel()
            finally:
                process = self._process
                for stream in (process.stdin, process.stdout, process.stderr):
                    if stream is not None:
                        await stream.aclose()
                if self._pidfd is not None:
                    os.close(self._pidfd)
                self._ended.set()

    async def _read(self, on_line: Callable[[str], None] | None) -> None:
        stream = self._read_from
        assert stream is not None, "it was started with pipes"
        feed = _ignore_text if on_line is None else _LineSplitter(on_line).feed
        is_complete = False
        try:
            while chunk := await stream.receive_some(CHUNK if on_line else None):
                feed(self.output.write(chunk))
            is_complete = True
        finally:
            self._drained.set()
            rest = self.output.finish()
            if not is_complete:  # it was cancelled, or the callback failed
                self.request_end()
        feed(rest, is_end=True)

    async def _run_to_end(self) -> None:
        # A reader that fails must not cancel this.
        with trio.CancelScope(shield=True):
            with self._until_end_requested:
                await self._wait_leader_exited()
                with trio.move_on_after(DRAIN_SECONDS) as draining:
                    await self._drained.wait()
                    await self._wait_tagged_gone()
                if draining.cancelled_caught:
                    # Perhaps only the scan was slow.
                    with trio.move_on_after(KERNEL_SECONDS):
                        pids = await process_tags.signal_tagged_in_thread(self.tag)
                        self.left_behind = bool(pids) or not self._drained.is_set()
            if self._until_end_requested.cancelled_caught or self.left_behind:
                await self._end_group()
                await self._reap()
                await self._kill_tagged()
                with trio.move_on_after(FINAL_OUTPUT_SECONDS):
                    await self._drained.wait()
            else:
                # No tagged process is left; this ends the untagged ones of the group.
                self._signal_group(signal.SIGKILL)
                await self._reap()

    async def _wait_leader_exited(self) -> None:
        if self._pidfd is not None:
            await trio.lowlevel.wait_readable(self._pidfd)
        else:
            # Without pidfds this reaps it. Its id can be reused only if its group is empty.
            await self._process.wait()

    async def _end_group(self) -> None:
        self._signal_group(signal.SIGTERM)
        self._signal_group(signal.SIGCONT)  # a stopped process cannot end
        with trio.move_on_after(self._grace):
            await self._wait_leader_exited()
            # A process that left the group got no TERM, and is not waited for.
            await self._wait_tagged_gone(only_in_group=True)
        self._signal_group(signal.SIGKILL)

    async def _wait_tagged_gone(self, *, only_in_group: bool = False) -> None:
        while pids := await process_tags.signal_tagged_in_thread(self.tag):
            if only_in_group:
                pids = [pid for pid in pids if _group_of(pid) == self.pid]
                if not pids:
                    return
            await _wait_all_gone(pids)

    async def _reap(self) -> None:
        with trio.move_on_after(KERNEL_SECONDS) as scope:
            self.exit_code = await self._process.wait()
        self.is_stuck = scope.cancelled_caught

    async def _kill_tagged(self) -> None:
        with trio.move_on_after(KERNEL_SECONDS) as scope:
            while pids := await process_tags.signal_tagged_in_thread(self.tag, signal.SIGKILL):
                with trio.move_on_after(ROUND_SECONDS):
                    await _wait_all_gone(pids)
        if scope.cancelled_caught:
            self.is_stuck = True
            with trio.move_on_after(KERNEL_SECONDS):
                await process_tags.kill_supervisors_in_thread(self.tag)

    def _signal_group(self, sent: signal.Signals) -> None:
        # macOS raises PermissionError where all have ended.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, sent)

    def _stdin(self) -> trio.abc.SendStream:
        if self._process.stdin is None:
            raise ToolError("the process was started without a stdin to write to")
        return self._process.stdin


class _LineSplitter:
    """Cuts text into lines for a callback."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._partial = ""

    def feed(self, text: str, *, is_end: bool = False) -> None:
        *lines, rest = text.split("\n")
        for line in lines:
            self._emit_line(self._partial + line)
            self._partial = ""
        # One more than the limit, to know that there was more.
        if len(self._partial) <= MAX_LINE:
            self._partial += rest[: MAX_LINE + 1 - len(self._partial)]
        if is_end and self._partial:
            self._emit_line(self._partial)

    def _emit_line(self, line: str) -> None:
        self._on_line(line if len(line) <= MAX_LINE else without_last_word(line[:MAX_LINE]))


def _ignore_text(text: str, *, is_end: bool = False) -> None:
    """Ignore output."""


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


async def _wait_all_gone(pids: Iterable[int]) -> None:
    await trio.lowlevel.checkpoint()
    for pid in pids:
        try:
            file = process_tags.open_pidfd(pid)
        except ProcessLookupError:
            continue
        if file is None:
            await trio.sleep(ROUND_SECONDS)  # the caller scans again
            return
        try:
            await trio.lowlevel.wait_readable(file)
        finally:
            os.close(file)


async def _start(
    command: str, cwd: Path, network: NetworkAccess, *, stdin: int, stderr: int
) -> trio.Process:
    # A path of the workspace may be replaced by another command at this moment.
    with _start_errors(command, cwd):
        launch = network.sandbox.launch(network.argv, cwd=cwd, environ=network.environ)
    try:
        passed = attrs.evolve(launch, pass_fds=(*launch.pass_fds, *network.pass_fds))
        return await _open_process(command, cwd, passed, stdin=stdin, stderr=stderr)
    finally:
        for file in launch.pass_fds:
            os.close(file)


async def _open_process(
    command: str, cwd: Path, launch: Launch, *, stdin: int, stderr: int
) -> trio.Process:
    # A command has the environment without secrets, and must not read them in ours.
    forbid_inspection()
    with _start_errors(command, cwd):
        return await trio.lowlevel.open_process(
            list(launch.argv),
            stdin=stdin,
            stdout=PIPE,
            stderr=stderr,
            cwd=cwd,
            env=launch.environ,
            pass_fds=launch.pass_fds,
            start_new_session=True,
        )


@contextmanager
def _start_errors(command: str, cwd: Path) -> Generator[None]:
    """Translate why a process was not started."""
    try:
        yield
    except OSError as exc:
        raise ToolError(_start_error(exc, command, cwd)) from exc
    except ValueError as exc:
        raise ToolError(
            "the command was not started: it, its folder or its environment contains a"
            f" character that is not allowed ({exc})"
        ) from exc


def _shell() -> str:
    return "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"


def _start_error(exc: OSError, command: str, cwd: Path) -> str:
    match exc.errno:
        case _ if exc.filename is not None and Path(exc.filename) == cwd:
            problem = f"its folder {cwd} cannot be entered ({exc.strerror}); name another one"
        case errno.ENOENT:
            problem = f"there is no program {command!r}; install it, or name its path"
        case errno.E2BIG:
            problem = (
                f"its {len(command)} characters, or its environment, are more than the system"
                " takes; write what is long into a file, and name that in the command"
            )
        case errno.EMFILE | errno.ENFILE:
            problem = "too many files are open; wait until other processes have ended, or end some"
        case errno.EAGAIN | errno.ENOMEM:
            problem = (
                f"the machine has no room for another process ({exc.strerror}); wait until"
                " others have ended, or end some"
            )
        case _:
            problem = str(exc)
    return f"the command was not started: {problem}"
