"""The names of chat platforms that other products may import. Each is imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.products.chat.platform import Webhook, WebhookAnswer, WebhookCall

__all__ = ["Webhook", "WebhookAnswer", "WebhookCall"]

_MODULES = {
    "Webhook": "orchestrator.products.chat.platform",
    "WebhookAnswer": "orchestrator.products.chat.platform",
    "WebhookCall": "orchestrator.products.chat.platform",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
