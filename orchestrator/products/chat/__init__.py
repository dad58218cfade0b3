"""Chat platforms: sessions that people reach from where they are, and the port of a platform.

A chat, or a thread in it, has one session at a time; the id of the session is made of the chat
and a number. A platform acknowledges a message when it is durable, and the id of the message
makes it count once. Before the gateway sends a part of a reply it records the part, and
afterwards it records that the platform took it. A crash therefore repeats one part at most, and
marks it. Platforms do not know sessions.
"""

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
