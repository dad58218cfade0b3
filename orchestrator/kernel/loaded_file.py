"""The Python file that a command loads for its agents: it defines them, and runs nothing.

`simulate` and `--help` of a server would otherwise pay for models: a file that ends in a bare
`trio.run(main)` is a program, and loading it runs it. That a file is being loaded is said by its
module, so the threads that it starts know it, too.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

from orchestrator.agents import DefinitionError

MODULE: Final = "__orchestrator_file__"
"""The name of the module that is made of the file."""
_IS_LOADING: Final = "__orchestrator_is_loading__"


@contextmanager
def loads_agents(module: ModuleType) -> Generator[None]:
    """Let nothing be run as long as a file is loaded."""
    setattr(module, _IS_LOADING, True)
    try:
        yield
    finally:
        delattr(module, _IS_LOADING)


def require_not_loading() -> None:
    """Refuse to run agents while a file is loaded for its agents.

    Raises:
        DefinitionError: a command loads a file, and that file runs agents.
    """
    module = sys.modules.get(MODULE)
    if module is not None and hasattr(module, _IS_LOADING):
        raise DefinitionError(
            f"{module.__file__} runs agents when it is loaded, and a command loads it only for its"
            ' agents: put the code that runs them under `if __name__ == "__main__":`'
        )
