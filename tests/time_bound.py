"""A bound on the real time of each test: a test that stands still fails with all stacks.

The bound is far above the duration of every test, also on a busy machine. `TEST_SECONDS` sets
another one, for proofs that run for hours.
"""

import faulthandler
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import trio
from _pytest.faulthandler import fault_handler_stderr_fd_key

SECONDS: Final = float(os.environ.get("TEST_SECONDS", "600"))
GRACE_SECONDS: Final = 20.0
"""A test that has not ended this long after its cancellation ends the process of the tests."""


@contextmanager
def bounded(item: pytest.Item, seconds: float = SECONDS) -> Generator[None]:
    """Fail a test with all stacks if the block takes longer."""
    message = ""

    def strike(*_: object) -> None:
        nonlocal message
        if message:
            # A thread or a shielded task goes on. The report of pytest-xdist names the test.
            os.write(item.config.stash[fault_handler_stderr_fd_key], message.encode())
            os._exit(1)
        message = f"{item.nodeid} stands still after {seconds:g} s.\n\n{_stacks()}"
        if not _cancel_trio_run():
            raise pytest.fail.Exception(message, pytrace=False) from None

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, seconds, GRACE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if message:
            raise pytest.fail.Exception(message, pytrace=False) from None


def _cancel_trio_run() -> bool:
    """Cancel the nurseries of the test, and return whether there is a trio run."""
    if not (tasks := _tasks()):
        return False
    root = tasks[0]
    own = [it for task in tasks if _is_child(task, root) for it in task.child_nurseries]
    token = trio.lowlevel.current_trio_token()
    for nursery in own:
        token.run_sync_soon(nursery.cancel_scope.cancel)
    return bool(own)


def _is_child(task: trio.lowlevel.Task, root: trio.lowlevel.Task) -> bool:
    return task.parent_nursery is not None and task.parent_nursery.parent_task is root


def _tasks() -> list[trio.lowlevel.Task]:
    """Return all tasks of this trio run, the root first."""
    try:
        root = trio.lowlevel.current_root_task()
    except RuntimeError:
        return []
    found = [root] if root is not None else []
    # The list grows while it is read.
    for task in found:
        found += (child for nursery in task.child_nurseries for child in nursery.child_tasks)
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    with bounded(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with bounded(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    with bounded(item):
        yield


def _stacks() -> str:
    """Return the stacks of all threads and trio tasks, and the processes that they may wait for."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        threads = file.read()
    processes = "\n".join(_processes_below(os.getpid()))
    return "\n".join([threads, *map(_stack_of, _tasks()), f"Processes:\n{processes}"])


def _stack_of(task: trio.lowlevel.Task) -> str:
    frames = traceback.StackSummary.extract(task.iter_await_frames())
    return f"Trio task {task.name}:\n{''.join(frames.format())}"


def _processes_below(pid: int) -> Iterator[str]:
    if sys.platform != "linux":
        return
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            try:
                command = Path(f"/proc/{child}/cmdline").read_bytes()
            except FileNotFoundError:
                continue
            yield f"{child} {command.replace(bytes(1), b' ').decode(errors='replace')}"
            yield from _processes_below(child)
