"""Chat platforms: sessions that people reach from a chat, and the port of a platform.

A chat or a thread has one session at a time; the id of the session consists of the chat and a
number. A platform acknowledges a message when it is durable, and the id of the message makes it
count once. The gateway records each part of a reply before it sends it, and records afterwards that
the platform took it. So a crash repeats at most one part, and marks it. Platforms do not know
sessions.
"""

from typing import TYPE_CHECKING

from orchestrator.late_call import LateCall
from orchestrator.products.chat.chat_address import ChatAddress, parse_chat_address
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

if TYPE_CHECKING:
    from orchestrator.products.chat.discord import open_discord
    from orchestrator.products.chat.slack import open_slack
    from orchestrator.products.chat.telegram import open_telegram
else:
    # Each platform is imported when it is opened, since it needs its own libraries.
    open_discord = LateCall("orchestrator.products.chat.discord", "open_discord")
    open_slack = LateCall("orchestrator.products.chat.slack", "open_slack")
    open_telegram = LateCall("orchestrator.products.chat.telegram", "open_telegram")

__all__ = [
    "Attachment",
    "Button",
    "ButtonPress",
    "ChatAddress",
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
    "Platform",
    "RefusedError",
    "RetryAfterError",
    "RevokedError",
    "Sent",
    "TextPart",
    "Webhook",
    "WebhookAnswer",
    "WebhookCall",
    "open_discord",
    "open_gateway",
    "open_slack",
    "open_telegram",
    "parse_chat_address",
    "read_settings",
]
