"""The Python file that a command loads for its agents: it defines them, and runs nothing.

`simulate` and `--help` of a server would otherwise pay for models: a file that ends in a bare
`trio.run(main)` is a program, and loading it runs it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from agents import DefinitionError

_LOADED_FILE: Final[ContextVar[str]] = ContextVar("loaded file", default="")


@contextmanager
def loads_agents(file: str) -> Generator[None]:
    """Let nothing be run as long as a file is loaded."""
    token = _LOADED_FILE.set(file)
    try:
        yield
    finally:
        _LOADED_FILE.reset(token)


def require_not_loading() -> None:
    """Refuse to run agents while a file is loaded for its agents.

    Raises:
        DefinitionError: a command loads a file, and that file runs agents.
    """
    if file := _LOADED_FILE.get():
        raise DefinitionError(
            f"{file} runs agents when it is loaded, and a command wants to load it for its agents:"
            ' put what it runs under `if __name__ == "__main__":`'
        )
