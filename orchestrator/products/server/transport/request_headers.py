"""The headers of a request, found by their names without a search: each is asked for many."""

from typing import Any, overload

from starlette.datastructures import Headers
from starlette.types import Scope


class RequestHeaders(Headers):
    """Headers that do not change. Of several with one name, the first one is found."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        # The last one of a name stays: so the first one comes last.
        self._first = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(self.raw)
        }

    @overload
    def get(self, key: str, /) -> str | None: ...
    @overload
    def get(self, key: str, /, default: str) -> str: ...
    @overload
    def get(self, key: str, /, default: Any) -> Any: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        return self._first.get(key.lower(), default)

    def __getitem__(self, key: str) -> str:
        return self._first[key.lower()]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower() in self._first
