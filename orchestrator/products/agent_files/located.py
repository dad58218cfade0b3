"""Values of a file with the line of each, and the error that names both."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import attrs

from orchestrator.agents import DefinitionError

Value: TypeAlias = "str | int | float | bool | tuple[Located, ...] | Mapping[str, Located] | None"


class AgentFileError(DefinitionError):
    """A file defines no agent: the place, the problem, and the correction."""

    def __init__(self, file: Path, line: int, problem: str) -> None:
        where = f"{file}:{line}" if line else f"{file}"
        super().__init__(f"{where}: {problem}")
        self.file = file
        self.line = line
        """From 1 on; 0 is the whole file or folder."""
        self.problem = problem


@attrs.frozen
class Located:
    """A value of a file, with its line."""

    value: Value
    file: Path
    line: int
    key_line: int = 0
    """The line of its key, if it has one."""

    def error(self, problem: str) -> AgentFileError:
        return AgentFileError(self.file, self.key_line or self.line, problem)

    def as_text(self, name: str) -> str:
        """Return it as one text."""
        if isinstance(self.value, str):
            return self.value
        is_scalar = isinstance(self.value, bool | int | float)
        hint = ": write it in quotes" if is_scalar else ""
        raise self.error(f"{name} is a text, and this is {self._kind}{hint}")

    def as_number(self, name: str) -> int | float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.refuse(f"{name} is a number, and this is {self._kind}")
        return self.value

    def as_bool(self, name: str) -> bool:
        if not isinstance(self.value, bool):
            self.refuse(f"{name} is true or false, and this is {self._kind}")
        return self.value

    def as_items(self, name: str) -> "tuple[Located, ...]":
        if not isinstance(self.value, tuple):
            self.refuse(f"{name} is a list, and this is {self._kind}")
        return self.value

    def as_mapping(self, name: str, example: str) -> "Mapping[str, Located]":
        if not isinstance(self.value, Mapping):
            self.refuse(f"{name} has keys, and this is {self._kind}: write {example!r}")
        return self.value

    def as_names(self, name: str) -> "list[Located]":
        """Return a list of texts, or one text of names with commas between them."""
        if self.value is None:
            return []
        if isinstance(self.value, str):
            words = split_names(self.value)
            return [attrs.evolve(self, value=word) for word in words]
        if not isinstance(self.value, tuple):
            self.refuse(f"{name} are names, and this is {self._kind}: write [one, other]")
        for item in self.value:
            item.as_text(f"each of the {name}")
        return list(self.value)

    def as_plain(self) -> Any:
        """Return the plain value, without lines."""
        if isinstance(self.value, tuple):
            return [item.as_plain() for item in self.value]
        if isinstance(self.value, Mapping):
            return {key: item.as_plain() for key, item in self.value.items()}
        return self.value

    def refuse(self, problem: str) -> NoReturn:
        raise self.error(problem)

    @property
    def _kind(self) -> str:
        match self.value:
            case None:
                return "empty"
            case bool():
                return "true" if self.value else "false"
            case int() | float():
                return f"the number {self.value}"
            case str():
                return f"the text {shortened(self.value)!r}"
            case tuple():
                return "a list"
            case Mapping():
                return "a mapping of keys"


def shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


def split_names(text: str) -> list[str]:
    """Split at commas, but for those in parentheses: `Agent(a, b), Read` has two names."""
    names, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth <= 0:
            names.append("")
        else:
            names[-1] += character
    return [name.strip() for name in names if name.strip()]
