"""A message from before a conversation began here: stored by value, in the fact that begins it."""

from typing import Literal

import msgspec

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    Message,
    MessageId,
    Part,
    ReasoningBlock,
    ToolCall,
    ToolMessage,
    UserMessage,
)


class EarlierMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message of the conversation before the session was opened, or before it was handed off."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    parts: tuple[Part, ...] = ()
    """The images and files of a user's or a tool's message."""
    calls: tuple[ToolCall, ...] = ()
    """The calls of an assistant's message."""
    call: str = ""
    """The id of the call that a tool's message answers."""
    failed: bool = False
    """Whether a tool's message says why the tool failed."""
    reasoning: tuple[ReasoningBlock, ...] = ()
    """The reasoning of the model before the calls of an assistant's message."""

    def message(self, number: int) -> Message:
        """Return it as a message of the transcript; its index in the conversation makes its id."""
        id_ = MessageId(f"h_{number}")
        if self.role == "user":
            return UserMessage(self.text, self.parts, id=id_)
        if self.role == "assistant":
            return AssistantMessage(self.text, self.calls, reasoning=self.reasoning, id=id_)
        return ToolMessage(CallId(self.call), self.text, self.failed, parts=self.parts, id=id_)
