"""Chat platforms: sessions that people reach from where they are, and the port of a platform."""

from orchestrator.chat.errors import (
    ChatError,
    GoneError,
    MovedError,
    NotSentError,
    RetryAfterError,
    RevokedError,
)
from orchestrator.chat.place import Place, parse_place
from orchestrator.chat.platform import (
    Attachment,
    Button,
    ButtonPress,
    ChatEvent,
    ChatMoved,
    ChatUser,
    Inbox,
    IncomingMessage,
    Platform,
    Sent,
    TextPart,
    Webhook,
    WebhookAnswer,
    WebhookCall,
)

__all__ = [
    "Attachment",
    "Button",
    "ButtonPress",
    "ChatError",
    "ChatEvent",
    "ChatMoved",
    "ChatUser",
    "GoneError",
    "Inbox",
    "IncomingMessage",
    "MovedError",
    "NotSentError",
    "Place",
    "Platform",
    "RetryAfterError",
    "RevokedError",
    "Sent",
    "TextPart",
    "Webhook",
    "WebhookAnswer",
    "WebhookCall",
    "parse_place",
]
