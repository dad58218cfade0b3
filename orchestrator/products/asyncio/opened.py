"""`Opened`, the result of `open_orchestrator` and `open_session`: for `async with`, or for `await`.

async with open_orchestrator() as orchestrator: ...

orchestrator = await open_orchestrator()    # in a notebook, where a block is one cell
await orchestrator.aclose()
"""

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar


class Closes(Protocol):
    """An open object that can be closed."""

    async def aclose(self) -> None:
        """Close the object, and return when it is closed."""
        ...


ClosesT = TypeVar("ClosesT", bound=Closes)


class Opened(Generic[ClosesT]):
    """Opens an object for a block, or until its `aclose` is called."""

    def __init__(self, open_: Callable[[], Awaitable[ClosesT]]) -> None:
        self._open = open_
        self._value: ClosesT | None = None

    def __await__(self) -> Generator[Any, Any, ClosesT]:
        return self._open().__await__()

    async def __aenter__(self) -> ClosesT:
        self._value = await self._open()
        return self._value

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._value is not None, "it was entered"
        await self._value.aclose()
