"""Warns of instructions that change from task to task, which no prompt cache can serve.

The instructions are at the start of every request. A time or an id in them makes each request new.
"""

import warnings
from collections.abc import Sequence

from orchestrator.agents.messages import Message, UserMessage
from orchestrator.agents.models.prompt_prefix import LEAST_TOKENS
from orchestrator.agents.models.token_estimate import CHARACTERS_PER_TOKEN


def warn_of_change(agent: str, last: str, made: str, transcript: Sequence[Message]) -> None:
    """Warn if a cache would serve the requests of an agent but for its instructions.

    The warning has no text of the instructions, which may contain secrets.
    """
    first = transcript[0] if transcript else None
    shared = first.shared if isinstance(first, UserMessage) else 0
    if len(made) + shared < LEAST_TOKENS * CHARACTERS_PER_TOKEN:
        return
    pairs = enumerate(zip(last, made, strict=False))
    at = next((at for at, (one, two) in pairs if one != two), min(len(last), len(made)))
    line = made.count("\n", 0, at) + 1
    column = at - made.rfind("\n", 0, at)
    warnings.warn(
        f"agent {agent!r}: the instructions that its function made changed from one task to the"
        f" next, at line {line}, column {column}. A provider's cache serves no more of its"
        " requests than that: move the changing part to the end, or into the goal",
        stacklevel=2,
    )
