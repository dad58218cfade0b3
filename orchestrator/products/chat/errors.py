"""What a platform says when it does not take a message, and what the gateway does then.

* ChatError
  x NotSentError      it was certainly not taken: sent again after a pause, as it is
    · RetryAfterError the platform says how long to wait; that counts as no attempt
  x RefusedError      it will never take this message: a sentence takes its place
  x GoneError         the chat is gone, or its user has blocked us: given up
  x MovedError        the chat has another name now: sent there
  x RevokedError      the platform refuses our secret: the gateway says so, and leaves the platform

Any other error leaves open whether the message was taken: it is sent again, and marked.
"""

from orchestrator.ports.errors import OrchestratorError
from orchestrator.products.chat.chat_address import ChatAddress


class ChatError(OrchestratorError):
    """A platform did not do what it was asked for.

    Its text names no URL: the secret of a bot may be part of one.
    """


class NotSentError(ChatError):
    """The message was certainly not taken, and may be sent again as it is."""


class RetryAfterError(NotSentError):
    """The platform wants a pause before the next message to this chat."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the platform asks to wait {seconds:g} s")
        self.seconds = seconds


class RefusedError(ChatError):
    """The platform will never take this message; others it may."""


class GoneError(ChatError):
    """No message will ever reach the chat: it is gone, or its user has blocked us."""


class MovedError(ChatError):
    """The chat has become another one."""

    def __init__(self, address: ChatAddress) -> None:
        super().__init__(f"the chat is {address} now")
        self.address = address


class RevokedError(ChatError):
    """The platform refuses our secret."""
