"""Session variables: the chat, the user and the folder of a message, as tools read them."""

from orchestrator.delegation import DeliveryCapability
from orchestrator.delegation.session_context import (
    SessionVars,
    async_delivery_supported,
    bind_session,
    get_session_env,
    session_environ,
)

__all__ = [
    "DeliveryCapability",
    "SessionVars",
    "async_delivery_supported",
    "bind_session",
    "get_session_env",
    "session_environ",
]
