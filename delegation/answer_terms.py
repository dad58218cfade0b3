"""How a client wants the answers of a session: it holds from its message to the next one."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

NOTHING: Final[Mapping[str, Any]] = {}


class AnswerTerms(msgspec.Struct, frozen=True, gc=False):
    """The demands of a session's client on the answers of its root."""

    settings: Mapping[str, Any] = NOTHING
    """Fields of `ModelSettings` that override the agent's."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema of the answer."""
    keeps_reasoning: bool = False
    """Whether the reasoning of the model is recorded with its answers."""


NO_TERMS: Final = AnswerTerms()
