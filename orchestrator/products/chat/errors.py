"""The errors of a platform that does not take a message, and the reaction of the gateway.

* ChatError
  - NotSentError      certainly not taken: sent again unchanged, after a pause
    - RetryAfterError the platform states the pause; it does not count as an attempt
  - RefusedError      the platform will never take this message: a sentence takes its place
  - GoneError         the chat is gone, or its user has blocked the bot: given up
  - MovedError        the chat has a new id: sent there
  - RevokedError      the platform refuses the secret: reported, and the platform is stopped

After any other error the message may have been taken: it is sent again, and marked.
"""

from orchestrator.ports.errors import OrchestratorError
from orchestrator.products.chat.chat_address import ChatAddress


class ChatError(OrchestratorError):
    """A platform did not carry out a request.

    The text of the error contains no URL, since a URL may contain the secret of a bot.
    """


class NotSentError(ChatError):
    """The message was certainly not taken, and may be sent again unchanged."""


class RetryAfterError(NotSentError):
    """The platform wants a pause before the next message to this chat."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the platform asks to wait {seconds:g} s")
        self.seconds = seconds


class RefusedError(ChatError):
    """The platform will never take this message, but may take others."""


class GoneError(ChatError):
    """No message will ever reach the chat: it is gone, or its user has blocked the bot."""


class MovedError(ChatError):
    """The chat has a new id."""

    def __init__(self, address: ChatAddress) -> None:
        super().__init__(f"the chat is {address} now")
        self.address = address


class RevokedError(ChatError):
    """The platform refuses the bot's secret."""
