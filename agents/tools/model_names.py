"""The names of tools as models call them: letters, digits, `-` and `_`, at most 64."""

import hashlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orchestrator.agents.tools.tool import Tool

LONGEST_NAME: Final = 64
"""Of a tool, for every provider."""
_OTHER_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_-]")


def model_name(name: str, prefix: str = "") -> str:
    """Return how models call a tool; a changed name ends in a hash of the whole one."""
    plain = _OTHER_CHARACTERS.sub("_", name)
    whole = prefix + plain
    if plain == name and len(whole) <= LONGEST_NAME:
        return whole
    mark = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    return f"{whole[: LONGEST_NAME - len(mark) - 1]}_{mark}"


def changed_names(tools: Iterable["Tool"]) -> dict[str, str]:
    """Return the names of tools that models call otherwise, by their names for models."""
    names = {model_name(tool.name): tool.name for tool in tools}
    return {called: name for called, name in names.items() if called != name}
