"""The value `Choices`: the options of one task that its parent chose."""

from typing import Literal

import msgspec

from orchestrator.agents import Budget


class Choices(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The choices of a parent for one task, where its agent leaves them to the parent."""

    model: str = ""
    effort: str = ""
    budget: Budget | None = None
    """The budget that the parent gave; the request has the narrower one of this and the agent's."""

    conversation: Literal["", "summary", "fork"] = ""
    """How much of its parent's conversation it has read."""

    def __str__(self) -> str:
        words = [f"{self.conversation} of the conversation" if self.conversation else ""]
        words.append(f"model {self.model}" if self.model else "")
        words.append(f"effort {self.effort}" if self.effort else "")
        words.append("" if self.budget is None else str(self.budget))
        return ", ".join(filter(None, words))
