"""The input of a tool that is called with one text instead of arguments: a custom tool."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

INPUT: Final = "input"
"""The only argument of a tool that takes one text."""


class TextInput(msgspec.Struct, frozen=True, gc=False):
    """The input of a tool that is called with one text instead of arguments."""

    syntax: Literal["", "lark", "regex"] = ""
    """The language of its grammar."""
    grammar: str = ""
    """The grammar of the text; empty allows any text."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The schema of a function of that text, for providers that have no such tools."""
        text = {"type": "string"}
        if self.grammar:
            text["description"] = f"Text that fits this {self.syntax}:\n{self.grammar}"
        return {
            "type": "object",
            "properties": {INPUT: text},
            "required": [INPUT],
            "additionalProperties": False,
        }


def input_of(arguments: Mapping[str, Any]) -> str:
    """Return the text of such a call."""
    text = arguments.get(INPUT)
    # A model may make up arguments, where its provider knows functions only.
    return text if isinstance(text, str) else msgspec.json.encode(arguments).decode()
