"""Chat platforms: sessions that people reach from where they are, and the port of a platform."""

from orchestrator.products.chat.errors import (
    ChatError,
    GoneError,
    MovedError,
    NotSentError,
    RefusedError,
    RetryAfterError,
    RevokedError,
)
from orchestrator.products.chat.gateway import Gateway, open_gateway
from orchestrator.products.chat.place import Place, parse_place
from orchestrator.products.chat.platform import (
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
from orchestrator.products.chat.settings import GatewaySettings, read_settings

__all__ = [
    "Attachment",
    "Button",
    "ButtonPress",
    "ChatError",
    "ChatEvent",
    "ChatMoved",
    "ChatUser",
    "Gateway",
    "GatewaySettings",
    "GoneError",
    "Inbox",
    "IncomingMessage",
    "MovedError",
    "NotSentError",
    "Place",
    "Platform",
    "RefusedError",
    "RetryAfterError",
    "RevokedError",
    "Sent",
    "TextPart",
    "Webhook",
    "WebhookAnswer",
    "WebhookCall",
    "open_gateway",
    "parse_place",
    "read_settings",
]
