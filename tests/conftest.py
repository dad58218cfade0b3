"""What all tests share: every async test runs on a jumping clock unless it says otherwise."""

import inspect
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A fixture would come too late: pytest-trio only sees a clock that the test itself names.
    for item in items:
        is_async = inspect.iscoroutinefunction(getattr(item, "obj", None))
        if is_async and not item.get_closest_marker("realtime"):
            item.add_marker(pytest.mark.trio(run=_run_on_a_jumping_clock))
