"""The value `Choices`: the model, effort and budget that a parent chose for one task."""

import msgspec

from orchestrator.agents import Budget


class Choices(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The choices of a parent for one task, where its agent leaves them to the parent."""

    model: str = ""
    effort: str = ""
    budget: Budget | None = None
    """The budget that the parent gave; the request has the narrower one of this and the agent's."""

    def __str__(self) -> str:
        words = [f"model {self.model}" if self.model else ""]
        words.append(f"effort {self.effort}" if self.effort else "")
        words.append("" if self.budget is None else str(self.budget))
        return ", ".join(filter(None, words))
