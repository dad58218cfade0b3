"""Where a process comes from is told by its ancestors, whatever it did to itself."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest
import trio.testing

from orchestrator.agents.tools.terminal.process_origin import Origin, judge_in_thread, origin_of
from orchestrator.agents.tools.terminal.process_tags import new_tag, with_tag

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")

# As another orchestrator, which has started neither of them.
JUDGE = """
import sys
from orchestrator.agents.tools.terminal.process_origin import origin_of
print(*(origin_of(int(pid)).name for pid in sys.argv[1:]))
"""


@contextmanager
def grandchild(environ: dict[str, str]) -> Generator[int]:
    """Start a process below one with this environment, itself without any."""
    with subprocess.Popen(
        ["/bin/sh", "-c", "env -i setsid sleep 1000 & echo $!; wait"],
        env=environ,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        try:
            yield pid
        finally:
            os.kill(pid, 9)


def test_a_descendant_of_this_process_is_a_command_and_this_process_is_not() -> None:
    with grandchild(dict(os.environ)) as pid:
        assert origin_of(pid) is Origin.COMMAND
    assert origin_of(os.getpid()) is Origin.ELSEWHERE
    assert origin_of(os.getppid()) is Origin.ELSEWHERE


def test_an_ended_process_has_an_unknown_origin() -> None:
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert origin_of(ended.pid) is Origin.UNKNOWN  # a zombie
    assert origin_of(ended.pid) is Origin.UNKNOWN
    assert origin_of(0) is Origin.UNKNOWN


def test_a_descendant_of_a_tagged_process_is_a_command_of_any_orchestrator() -> None:
    with (
        grandchild(with_tag(os.environ, new_tag())) as tagged,
        grandchild(dict(os.environ)) as free,
    ):
        judged = subprocess.run(
            [sys.executable, "-c", JUDGE, str(tagged), str(free)],
            capture_output=True,
            text=True,
            check=True,
        )

    assert judged.stdout.split() == ["COMMAND", "ELSEWHERE"]


async def test_an_unreadable_process_does_not_block_the_judge(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reading, writing = os.pipe()

    def hang() -> Origin:
        os.read(reading, 1)
        os.close(reading)
        return Origin.ELSEWHERE

    assert await judge_in_thread(hang) is Origin.UNKNOWN
    os.close(writing)
