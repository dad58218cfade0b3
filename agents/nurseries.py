"""Unwraps the exception groups that nurseries raise.

Groups that grow by a level with every nested nursery end in a RecursionError inside trio on
Python 3.11, at some 330 levels. So each nursery unwraps its own group, which is still flat.
"""

from contextlib import AbstractContextManager
from typing import Final, cast

import trio


class _RaisingOneError:
    """The context manager of `raising_one_error`, which has no state."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if not isinstance(error, BaseExceptionGroup):
            return
        one = _one_error(cast("BaseExceptionGroup[BaseException]", error))
        context = one.__context__
        try:
            raise one
        finally:
            # Raising it here made the group the context of its own member.
            one.__context__ = context


_RAISING_ONE_ERROR: Final = _RaisingOneError()


def raising_one_error() -> AbstractContextManager[None, None]:
    """Turn the group that one nursery raises into its first error, or its cancellation.

    The other errors of the group become notes of the one that is raised.
    """
    return _RAISING_ONE_ERROR


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
