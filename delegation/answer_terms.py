"""How a client wants the answers of a session: it holds from its message to the next one."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

NOTHING: Final[Mapping[str, Any]] = {}


@attrs.frozen
class AnswerTerms:
    """What the client of a session demands of the answers of its root."""

    settings: Mapping[str, Any] = NOTHING
    """Fields of `ModelSettings` that are put over those of the agent."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema of the answer."""
    keeps_reasoning: bool = False
    """What the model says of its reasoning is recorded with its answers."""


NO_TERMS: Final = AnswerTerms()
