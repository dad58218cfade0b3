"""A heap whose items may change their keys, and may be removed, in logarithmic time."""

import heapq
from typing import Any, Final, Generic, TypeVar

FEW: Final = 64
"""A heap with fewer entries is not searched for removed ones."""
T = TypeVar("T")


class KeyedHeap(Generic[T]):
    """Items by a key that may change: the old entry of an item stays until it is found."""

    __slots__ = ("_current", "_entries", "_number")

    def __init__(self) -> None:
        self._entries: list[tuple[Any, int, T]] = []
        self._current: dict[T, int] = {}
        self._number = 0

    def put(self, item: T, key: Any) -> None:
        self._number += 1
        self._current[item] = self._number
        heapq.heappush(self._entries, (key, self._number, item))
        self._drop_old()

    def remove(self, item: T) -> bool:
        """Remove an item, and return whether it was there."""
        if self._current.pop(item, None) is None:
            return False
        self._drop_old()
        return True

    def first(self) -> tuple[Any, int, T] | None:
        entries, current = self._entries, self._current
        while entries and current.get(entries[0][2]) != entries[0][1]:
            heapq.heappop(entries)
        return entries[0] if entries else None

    def _drop_old(self) -> None:
        if len(self._entries) > FEW + 2 * len(self._current):
            self._entries = [it for it in self._entries if self._current.get(it[2]) == it[1]]
            heapq.heapify(self._entries)

    def __len__(self) -> int:
        return len(self._current)

    def __contains__(self, item: object) -> bool:
        return item in self._current
