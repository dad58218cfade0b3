"""Fixtures of all tests: every async test runs on a jumping clock unless it says otherwise."""

import inspect
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import settings

from tests.house_journal import house_database, house_journal, pytest_addoption
from tests.levels import mark_slow, pytest_runtest_protocol
from tests.postgres import postgres, postgres_server, pytest_terminal_summary
from tests.time_bound import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown

__all__ = [
    "house_database",
    "house_journal",
    "postgres",
    "postgres_server",
    "pytest_addoption",
    "pytest_runtest_call",
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_terminal_summary",
]


# The same examples everywhere and every time: a red build is red on the next machine too. To look
# for what they do not show is the work of `make properties`.
settings.register_profile("steady", max_examples=40, derandomize=True, deadline=None, database=None)
settings.register_profile("long", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def _run_on_a_jumping_clock(
    function: Callable[..., Awaitable[Any]], *args: object, **kwargs: Any
) -> object:
    async def within_a_year() -> object:
        # If all tasks wait for each other the clock jumps here: a deadlock fails at once.
        with trio.fail_after(365 * 24 * 3600):
            return await function(*args)

    # pytest-trio passes a clock, which is None where the test names no clock fixture.
    kwargs["clock"] = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(within_a_year, **kwargs)


def pytest_configure() -> None:
    # A shell ignores Ctrl-C for what it runs in the background, and whatever we start would too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# First: the option -m selects by the markers that are there by then.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_slow(items)
    # A fixture would come too late: pytest-trio only sees a clock that the test itself names.
    for item in items:
        is_async = inspect.iscoroutinefunction(getattr(item, "obj", None))
        if is_async and not item.get_closest_marker("realtime"):
            item.add_marker(pytest.mark.trio(run=_run_on_a_jumping_clock))


@pytest.fixture(scope="session")
def state_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield new paths for the state of an orchestrator."""
    folder = tmp_path_factory.mktemp("state")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_state_folder(state_folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a state folder: files of the user or of another test would change it.

    For example an orchestrator on a jumping clock would wait a year for a thread that ends the
    servers of another test.
    """
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(next(state_folders)))


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The beginning of a command that runs a Python program, as `sys.executable` is.

    Its process is forked from one that has imported everything, which takes a tenth of the time.
    For programs that run to their end: a signal reaches only what started them.
    """
    tests = Path(__file__).parent
    path = tmp_path_factory.mktemp("fork_server") / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(100)
        with subprocess.Popen(
            [sys.executable, str(tests / "fork_server.py")],
            stdin=subprocess.PIPE,
            stdout=listener.fileno(),
        ) as server:
            yield [*(sys.executable, "-I", "-S", str(tests / "forked_program.py")), str(path)]
            server.communicate()
            assert server.returncode == 0
