"""Unwraps the exception groups that nurseries raise.

Groups that grow by a level with every nested nursery end in a RecursionError inside trio on
Python 3.11, at some 330 levels. So each nursery unwraps its own group, which is still flat.
"""

from collections.abc import Generator
from contextlib import contextmanager

import trio


@contextmanager
def raising_one_error() -> Generator[None]:
    """Turn the group that one nursery raises into its first error, or its cancellation.

    The other errors of the group become notes of the one that is raised.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        error = _one_error(group)
        context = error.__context__
        try:
            raise error
        finally:
            # Raising it here made the group the context of its own member.
            error.__context__ = context


def _one_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    # Not deeper than this nursery: a group inside the group was raised by user code.
    errors = [exc for exc in group.exceptions if not isinstance(exc, trio.Cancelled)]
    # A request to stop, such as Ctrl-C, comes before errors: these may be handled somewhere.
    errors.sort(key=lambda exc: isinstance(exc, Exception))
    first, *others = errors or group.exceptions[:1]
    for other in others:
        if other is not first:
            first.add_note(f"also: {type(other).__name__}: {other}")
    return first
