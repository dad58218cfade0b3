"""A value in a list, as long as a block lasts."""

from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Listed(Generic[T]):
    """Has a value in a list, as long as the block lasts.

    Each request enters several of them, and a generator would take twice the calls.
    """

    __slots__ = ("_value", "_values")

    def __init__(self, values: list[T], value: T) -> None:
        self._values = values
        self._value = value

    def __enter__(self) -> None:
        self._values.append(self._value)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._values.remove(self._value)
