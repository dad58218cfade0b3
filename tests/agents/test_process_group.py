"""A command runs for as long as its block, and nothing of it is left after that."""

import errno
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator.agents import ToolError
from orchestrator.agents.sandbox.backend import TaskSandbox
from orchestrator.agents.sandbox.sandbox import Sandbox
from orchestrator.agents.sandbox.unconfined import UNCONFINED
from orchestrator.agents.tools.terminal import process_group as running_module
from orchestrator.agents.tools.terminal.output_buffer import OutputBuffer
from orchestrator.agents.tools.terminal.process_group import RunningCommand, open_command
from orchestrator.agents.tools.terminal.process_tags import kill_tagged, new_tag, tagged_processes

ON_LINUX = sys.platform == "linux"
only_on_linux = pytest.mark.skipif(
    not ON_LINUX, reason="only Linux shows the environment of a process"
)

# Ten keep up ten each, all of them in sessions of their own and deaf to TERM. Each says its id.
BOMB = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def keep_up(number, work):
    alive = 0
    while True:
        while alive < number:
            alive += 1
            if not os.fork():
                os.setsid()
                os.write(1, f"{os.getpid()}\\n".encode())
                work()
                os._exit(0)
        os.wait()
        alive -= 1
keep_up(10, lambda: keep_up(10, lambda: time.sleep(0.5)))
"""


class Commands:
    """Starts commands, and remembers their tags and all lines that they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tags: list[str] = []
        self._say, self._said = trio.open_memory_channel[str](math.inf)

    def run(self, command: str, **options: Any) -> AbstractAsyncContextManager[RunningCommand]:
        self.tags.append(new_tag())
        return open_command(
            command,
            **{
                "cwd": self.folder,
                "environ": dict(os.environ),
                "sandbox": TaskSandbox(
                    backend=UNCONFINED, sandbox=Sandbox(), workspace=self.folder
                ),
                "tag": self.tags[-1],
                "output": OutputBuffer(),
                "on_line": self._say.send_nowait,
                **options,
            },
        )

    async def result(self, command: str, **options: Any) -> tuple[int, str]:
        """Return how it exits and what it says."""
        async with self.run(command, **options) as process:
            code = await process.wait()
        return code, process.output.text()

    async def line(self) -> str:
        """Wait for the next line."""
        return await self._said.receive()


def zombie() -> int | None:
    """Return a zombie: a child that has ended and was not reaped."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found and found.si_pid


def open_files() -> set[str]:
    return {file.name for file in Path("/proc/self/fd").iterdir() if file.exists()}


@pytest.fixture(name="commands")
def commands_of_which_nothing_is_left(tmp_path: Path) -> Generator[Commands]:
    """Check that the test leaves no process, no zombie and no open file."""
    if not ON_LINUX:
        yield Commands(tmp_path)
        return
    had, had_open = zombie(), open_files()
    commands = Commands(tmp_path)
    yield commands
    found = {pid for pids in tagged_processes(*commands.tags).values() for pid in pids}
    kill_tagged(*commands.tags)
    assert found == set()
    assert zombie() == had
    assert open_files() <= had_open


@pytest.fixture(params=["pidfd", "no pidfd"])
def with_and_without_pidfd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old kernels, some sandboxes and macOS have none."""
    if request.param == "no pidfd":
        monkeypatch.delattr(os, "pidfd_open", raising=False)


def is_alive(pid: int) -> bool:
    """Who has ended and was not waited for by the one who inherited it is not alive."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.realtime
@pytest.mark.usefixtures("with_and_without_pidfd")
class TestOutputAndExit:
    async def test_stdout_and_stderr_are_one_output_in_order(self, commands: Commands) -> None:
        printed = await commands.result("echo out; echo err >&2; printf end; exit 3")

        assert printed == (3, "out\nerr\nend")

    async def test_the_number_of_a_signal_is_negative(self, commands: Commands) -> None:
        assert await commands.result("kill -USR1 $$") == (-signal.SIGUSR1, "")

    async def test_an_unknown_command_reports_the_error_of_the_shell(
        self, commands: Commands
    ) -> None:
        code, printed = await commands.result("no-such-program-anywhere")

        assert code == 127
        assert "no-such-program-anywhere" in printed

    async def test_a_command_runs_in_its_folder_with_only_its_environment(
        self, commands: Commands
    ) -> None:
        environ = {"PATH": os.environ["PATH"], "A": "1"}

        code, printed = await commands.result("pwd -P; env", environ=environ)

        assert code == 0
        folder, *variables = printed.splitlines()
        assert Path(folder) == commands.folder.resolve()
        names = {variable.partition("=")[0] for variable in variables}
        assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"A", "PATH", "ORCHESTRATOR_PROCESS"}

    async def test_output_of_a_process_substitution_is_still_read(self, commands: Commands) -> None:
        code, printed = await commands.result(
            "exec > >(sleep 0.05; cat; echo end); echo begin; exit 4"
        )

        assert (code, printed) == (4, "begin\nend\n")

    async def test_binary_output_is_text_in_the_end(self, commands: Commands) -> None:
        code, printed = await commands.result(r"printf '\377\000a\033[31mb\302'")

        assert (code, printed) == (0, "\ufffd\ufffdab\ufffd")

    async def test_each_line_is_emitted_and_a_long_one_in_part(self, commands: Commands) -> None:
        await commands.result("echo one; head -c 300000 /dev/zero | tr '\\0' x; echo; printf last")

        assert await commands.line() == "one"
        assert await commands.line() == "x" * 3096
        assert await commands.line() == "last"


@pytest.mark.realtime
class TestEnding:
    @pytest.mark.usefixtures("with_and_without_pidfd")
    async def test_cancelling_ends_grandchildren(self, commands: Commands) -> None:
        with trio.CancelScope() as scope:
            async with commands.run("bash -c 'sleep 1000 & echo $!; wait'; true") as process:
                grandchild = int(await commands.line())
                scope.cancel()
                await process.wait()

        assert scope.cancelled_caught
        assert not is_alive(grandchild)
        assert process.exit_code == -signal.SIGTERM

    @pytest.mark.usefixtures("with_and_without_pidfd")
    async def test_leaving_the_block_ends_the_process(self, commands: Commands) -> None:
        async def fail_in_the_block() -> None:
            async with commands.run("echo $$; sleep 1000"):
                pids.append(int(await commands.line()))
                raise ValueError("in the block")

        pids: list[int] = []
        async with commands.run("echo $$; sleep 1000"):
            pids.append(int(await commands.line()))
        with pytest.raises(ValueError, match="in the block"):
            await fail_in_the_block()

        assert [pid for pid in pids if is_alive(pid)] == []

    async def test_a_process_has_a_grace_period_to_end(self, commands: Commands) -> None:
        async with commands.run(
            "trap 'echo bye; exit 7' TERM; echo ready; sleep 1000 & wait", grace=60
        ) as process:
            await commands.line()
            await process.end()

            assert await process.wait() == 7
        assert process.output.text() == "ready\nbye\n"

    @only_on_linux
    async def test_a_child_process_has_the_grace_period_too(self, commands: Commands) -> None:
        async with commands.run(
            "(trap 'sleep 0.05; echo bye >said; exit' TERM; echo ready; exec >/dev/null 2>&1;"
            " sleep 1000 & wait) & wait",
            grace=60,
        ) as process:
            await commands.line()
            await process.end()

        assert (commands.folder / "said").read_text() == "bye\n"

    async def test_a_process_that_ignores_sigterm_is_killed(self, commands: Commands) -> None:
        deaf = "trap '' TERM; (echo $BASHPID; while :; do sleep 1000; done) & wait"
        async with commands.run(deaf, grace=0.1) as process:
            child = int(await commands.line())
            await process.end()

            assert process.exit_code == -signal.SIGKILL
            assert not is_alive(child)

    async def test_a_stopped_process_is_ended_too(self, commands: Commands) -> None:
        stopped = "trap 'exit 5' TERM; echo ready; kill -STOP $$; sleep 1000"
        async with commands.run(stopped, grace=60) as process:
            await commands.line()
            await process.end()

        assert process.exit_code == 5

    @only_on_linux
    @pytest.mark.usefixtures("with_and_without_pidfd")
    async def test_a_process_that_left_the_group_is_ended(self, commands: Commands) -> None:
        async with commands.run(
            "setsid sleep 1000 & echo $!; (setsid sh -c 'sleep 1000 & echo $!') ;"
            "set -m; sleep 1000 & echo $!; wait"
        ):
            escaped = [int(await commands.line()) for _ in range(3)]

        assert [pid for pid in escaped if is_alive(pid)] == []

    @only_on_linux
    async def test_a_cancelled_fork_bomb_is_gone_soon(self, commands: Commands) -> None:
        """All in sessions of their own, deaf, and each who dies is replaced."""
        (commands.folder / "bomb.py").write_text(BOMB)
        seen: set[int] = set()
        with trio.CancelScope() as scope:
            async with commands.run(f"{sys.executable} bomb.py") as process:
                while len(seen) < 150:
                    seen.add(int(await commands.line()))
                scope.cancel()
                await process.wait()

        # That it is not stuck says also that it took no longer than `KERNEL_SECONDS`.
        assert not process.is_stuck
        assert tagged_processes(process.tag) == {process.tag: []}
        assert [pid for pid in seen if is_alive(pid)] == []

    async def test_cancelling_a_command_at_any_moment_leaves_no_process(
        self, commands: Commands
    ) -> None:
        for attempt in range(100):
            with trio.move_on_after(attempt * 0.0001):
                async with commands.run("setsid sleep 1000 & sleep 1000"):
                    await trio.sleep_forever()

    async def test_a_failing_listener_ends_the_command_and_raises(self, commands: Commands) -> None:
        def fail(line: str) -> None:
            raise LookupError(line)

        with pytest.raises(LookupError, match="hello"):
            async with commands.run("echo hello; sleep 1000", on_line=fail, grace=60) as process:
                await trio.sleep_forever()

        assert process.exit_code == -signal.SIGTERM

    async def test_ending_twice_and_after_the_end_is_as_good_as_once(
        self, commands: Commands
    ) -> None:
        # On a busy machine, TERM may take longer than the usual grace.
        async with commands.run("sleep 1000", grace=60) as process:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process.end)
                nursery.start_soon(process.end)
            await process.end()
        await process.end()

        assert await process.wait() == -signal.SIGTERM

    @only_on_linux
    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    async def test_a_process_that_the_kernel_cannot_kill_does_not_block_the_caller(
        self, commands: Commands, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A test cannot make a disk hang, so signals have no effect instead."""
        with monkeypatch.context() as patched:
            patched.setattr(os, "killpg", lambda *_: None)
            patched.setattr(signal, "pidfd_send_signal", lambda *_: None)
            patched.setattr(running_module, "KERNEL_SECONDS", 0.1)
            async with commands.run("echo ready; exec sleep 1000", grace=0.1) as process:
                await commands.line()

        assert process.is_stuck
        assert await process.wait() == -signal.SIGKILL
        os.killpg(process.pid, signal.SIGKILL)
        await trio.to_thread.run_sync(os.waitpid, process.pid, 0)
        # The supervisor has a group of its own, and ends after the command.
        left = await trio.to_thread.run_sync(partial(kill_tagged, process.tag, seconds=60))
        assert left == []


@pytest.mark.realtime
class TestLeftBehind:
    @pytest.mark.usefixtures("with_and_without_pidfd")
    async def test_a_background_job_that_holds_the_pipe_does_not_block(
        self, commands: Commands
    ) -> None:
        async with commands.run("sleep 1000 & echo $!; exit 6") as process:
            with trio.fail_after(10):
                assert await process.wait() == 6

            assert process.left_behind
            assert not is_alive(int(await commands.line()))

    @only_on_linux
    @pytest.mark.parametrize("start", ["", "setsid"])
    async def test_a_background_job_with_closed_pipes_is_noticed(
        self, commands: Commands, start: str
    ) -> None:
        async with commands.run(
            f"{start} sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"
        ) as process:
            assert await process.wait() == 0

            assert process.left_behind
            assert not is_alive(int(await commands.line()))

    async def test_a_command_that_leaves_no_process_is_not_reported(
        self, commands: Commands
    ) -> None:
        async with commands.run("yes | head -n 3; sleep 0.01 & wait") as process:
            assert await process.wait() == 0

        assert not process.left_behind
        assert process.output.text() == "y\ny\ny\n"


@pytest.mark.realtime
class TestStdin:
    async def test_a_process_reads_its_stdin_until_it_is_closed(self, commands: Commands) -> None:
        async with commands.run("cat; echo end", stdin=True) as process:
            await process.write("grün\n")
            assert await commands.line() == "grün"
            await process.write("no end of line")
            await process.close_stdin()
            await process.close_stdin()

            assert await process.wait() == 0
            with pytest.raises(ToolError, match="stdin of the process is closed"):
                await process.write("more")
        assert process.output.text() == "grün\nno end of lineend\n"

    async def test_a_process_without_stdin_refuses_writes(self, commands: Commands) -> None:
        async with commands.run("cat; echo end") as process:
            assert await process.wait() == 0
            with pytest.raises(ToolError, match="without a stdin"):
                await process.write("x")
            with pytest.raises(ToolError, match="without a stdin"):
                await process.close_stdin()
        assert process.output.text() == "end\n"

    async def test_a_process_that_exits_during_a_write_is_a_tool_error(
        self, commands: Commands
    ) -> None:
        async with commands.run("head -c 1", stdin=True) as process:
            with pytest.raises(ToolError, match="closed its stdin"):
                await process.write("x" * 10_000_000)

            assert await process.wait() == 0

    async def test_ending_a_process_that_does_not_read_unblocks_the_writers(
        self, commands: Commands
    ) -> None:
        problems: list[str] = []

        async def write(process: RunningCommand) -> None:
            with pytest.raises(ToolError) as caught:
                await process.write("x" * 10_000_000)
            problems.append(str(caught.value))

        async with commands.run("echo ready; sleep 1000", stdin=True) as process:
            await commands.line()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write, process)
                nursery.start_soon(write, process)
                await trio.testing.wait_all_tasks_blocked()
                await process.end()

        assert len(problems) == 2


@pytest.mark.realtime
class TestMuch:
    async def test_two_hundred_at_once_all_report(self, commands: Commands) -> None:
        reports: dict[int, tuple[int, str]] = {}

        async def run(number: int) -> None:
            reports[number] = await commands.result(f"echo process {number}; exit {number}")

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(run, number)

        assert reports == {number: (number, f"process {number}\n") for number in range(200)}

    async def test_two_hundred_are_ended_at_once(self, commands: Commands) -> None:
        processes: list[RunningCommand] = []

        async def run() -> None:
            async with commands.run("echo ready; sleep 1000") as process:
                processes.append(process)
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(run)
            for _ in range(200):
                await commands.line()
            nursery.cancel_scope.cancel()

        assert [process.exit_code for process in processes] == [-signal.SIGTERM] * 200

    @only_on_linux
    async def test_long_output_costs_no_memory(self, commands: Commands) -> None:
        before = resident_bytes()
        async with commands.run("yes | head -c 50000000", on_line=None) as process:
            assert await process.wait() == 0

        assert process.output.total == 50_000_000
        assert process.output.dropped > 49_000_000
        assert resident_bytes() - before < 20_000_000

    async def test_a_process_with_endless_output_can_be_ended_at_once(
        self, commands: Commands
    ) -> None:
        async with commands.run("yes", on_line=None) as process:
            while process.output.total < 1_000_000:
                await trio.lowlevel.checkpoint()
            with trio.fail_after(2):
                await process.end()

        assert process.exit_code == -signal.SIGTERM


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.realtime
class TestNotStarted:
    @pytest.mark.parametrize("name", ["missing", "a file"])
    async def test_a_missing_folder_is_a_tool_error(self, commands: Commands, name: str) -> None:
        (commands.folder / "a file").touch()

        with pytest.raises(ToolError, match=rf"its folder .*{name} cannot be entered"):
            await commands.result("true", cwd=commands.folder / name)

    async def test_too_long(self, commands: Commands) -> None:
        with pytest.raises(ToolError, match=r"its 5000005 characters.* into a file"):
            await commands.result("true " + "x" * 5_000_000)

    @pytest.mark.parametrize("character", ["\0", "\ud800"])
    async def test_a_command_with_an_impossible_character_is_refused(
        self, commands: Commands, character: str
    ) -> None:
        with pytest.raises(ToolError, match="contains a character that is not allowed"):
            await commands.result(f"echo {character}")

    async def test_too_many_open_files_are_a_tool_error(self, commands: Commands) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
        try:
            with pytest.raises(ToolError, match="too many files are open"):
                await commands.result("true")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    @pytest.mark.parametrize(
        ("number", "reason"),
        [
            (errno.EAGAIN, "no room for another process"),
            (errno.ENOMEM, "no room for another process"),
            (errno.EACCES, "Permission denied"),
        ],
    )
    async def test_a_full_machine_is_a_tool_error(
        self, commands: Commands, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
    ) -> None:
        monkeypatch.setattr(subprocess, "Popen", failing(number))

        with pytest.raises(ToolError, match=f"was not started: .*{reason}"):
            await commands.result("true")

    async def test_a_system_without_process_groups_is_a_tool_error(
        self, commands: Commands, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "name", "nt")
            with pytest.raises(ToolError, match="only be run on Linux and macOS"):
                await commands.result("true")


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail
