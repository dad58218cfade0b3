"""The clock that dates facts: the time of day, which never steps back."""

from collections.abc import Callable

import trio


def steady_clock(time_of_day: float, last: float = 0.0) -> Callable[[], float]:
    """Return a clock that shows the time of day, never steps back, and jumps where trio's does.

    Deadlines are absolute. The clock of another machine may have been ahead, so this one goes on
    from the last fact if that is later.

    Args:
        time_of_day: the time now.
        last: when the last fact was posted, where other machines post them, too.
    """
    # The clock itself: `trio.current_time()` looks it up each time, and every fact is dated.
    now = trio.lowlevel.current_clock().current_time
    offset = max(time_of_day, last) - now()
    return lambda: offset + now()
