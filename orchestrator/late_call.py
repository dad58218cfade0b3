"""Names whose modules are imported when they are first used, called or inspected.

A program that imports such a name does not wait for its dependencies. `help` and
`inspect.signature` show a late function itself.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import inspect


class LateCall:
    """Calls a function, and imports its module first."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__ = module
        self.__name__ = self.__qualname__ = name

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.__name__}>"

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.__wrapped__(*args, **keywords)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(self.__module__), self.__name__)
        return function

    @property
    def __signature__(self) -> "inspect.Signature":
        import inspect

        return inspect.signature(self.__wrapped__)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.__wrapped__.__doc__


def late_names(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module: it imports a name from its home, `{home: names}`."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return find
