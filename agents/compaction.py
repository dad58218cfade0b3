"""The value `Compaction`: how an agent's requests are shortened to the window of its model."""

import attrs

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.models.model import Model
from orchestrator.agents.models.token_estimate import SMALLEST_WINDOW
from orchestrator.agents.type_checks import has_type


@attrs.frozen(kw_only=True)
class Compaction:
    """How requests are shortened to the window of a model. The transcript itself stays whole."""

    window: int
    """How many tokens the model reads at most."""
    summarizer: str | Model | None = None
    """The model that writes summaries; None is the agent's own."""
    keep_last: int = 4
    """How many of the newest messages stay as they are, if there is room."""

    def __attrs_post_init__(self) -> None:
        numbers = (self.window, self.keep_last)
        if (
            not all(has_type(number, int, float) for number in numbers)
            or self.window < SMALLEST_WINDOW
            or self.keep_last < 1
        ):
            raise DefinitionError(
                f"{self!r} cannot work: a window has {SMALLEST_WINDOW} tokens or more, and"
                " the last message is always kept"
            )
