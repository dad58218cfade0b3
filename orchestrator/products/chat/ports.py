"""The names of chat platforms that other products may import. Each is imported on first use."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.products.chat.platform import Webhook, WebhookAnswer, WebhookCall
else:
    from orchestrator.late_call import late_names

    __getattr__ = late_names(
        __name__, {"orchestrator.products.chat.platform": "Webhook WebhookAnswer WebhookCall"}
    )
