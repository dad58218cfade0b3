"""The port behind which every model stands."""

from collections.abc import Sequence
from typing import Protocol

import attrs

from agents.messages import AssistantMessage, Transcript
from agents.tools.tool import Tool


@attrs.frozen(kw_only=True)
class ModelRequest:
    """All that a model is told for one answer."""

    instructions: str
    transcript: Transcript
    tools: Sequence[Tool]


class Model(Protocol):
    """Gives one answer to one request. It keeps no conversation of its own."""

    @property
    def name(self) -> str:
        """How the model is called in reports, such as `openai:gpt-5-mini`."""
        ...

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        """Answer, or raise `ModelError`. Every call in the answer has its own id."""
        ...


@attrs.frozen(kw_only=True)
class Price:
    """Dollars per million tokens, which is micro-dollars per token."""

    input: float = 0.0
    output: float = 0.0

    def of(self, *, input_tokens: int, output_tokens: int) -> int:
        """Return micro-dollars."""
        return round(input_tokens * self.input + output_tokens * self.output)
