"""Ends the thread of a tool whose call was cancelled.

A thread cannot be stopped from outside. So a tool that may take long asks in between, and its
thread ends within the grace of its call: it neither computes nor reads on for a task that is gone.
"""

import trio


def stop_if_cancelled() -> None:
    """Raise `trio.Cancelled` in the thread of a call that was cancelled or has timed out."""
    try:
        trio.from_thread.check_cancelled()
    except RuntimeError:
        return  # no thread of a call: a test, or another program that uses this code
