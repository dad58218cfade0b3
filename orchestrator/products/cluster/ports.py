"""The names of clusters that other products may import. Each is imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.address import DatabaseAddress
    from orchestrator.products.cluster.database.connection import Connection, shown_address
    from orchestrator.products.cluster.database.database import Database, open_database
    from orchestrator.products.cluster.database.schema import install_schema
    from orchestrator.products.cluster.database.servers import (
        CHANNEL,
        ClusterView,
        beat,
        find_journal,
        install_secret,
        install_servers,
        leave,
        notify,
        others,
        read_view,
    )
    from orchestrator.products.cluster.database.wakeups import Bell, Wakeups, channel, open_wakeups

__all__ = [
    "CHANNEL",
    "Bell",
    "ClusterView",
    "Connection",
    "Database",
    "DatabaseAddress",
    "Wakeups",
    "beat",
    "channel",
    "find_journal",
    "install_schema",
    "install_secret",
    "install_servers",
    "leave",
    "notify",
    "open_database",
    "open_wakeups",
    "others",
    "read_view",
    "shown_address",
]

_MODULES = {
    "Bell": "orchestrator.products.cluster.database.wakeups",
    "CHANNEL": "orchestrator.products.cluster.database.servers",
    "ClusterView": "orchestrator.products.cluster.database.servers",
    "Connection": "orchestrator.products.cluster.database.connection",
    "Database": "orchestrator.products.cluster.database.database",
    "DatabaseAddress": "orchestrator.products.cluster.database.address",
    "Wakeups": "orchestrator.products.cluster.database.wakeups",
    "beat": "orchestrator.products.cluster.database.servers",
    "channel": "orchestrator.products.cluster.database.wakeups",
    "find_journal": "orchestrator.products.cluster.database.servers",
    "install_schema": "orchestrator.products.cluster.database.schema",
    "install_secret": "orchestrator.products.cluster.database.servers",
    "install_servers": "orchestrator.products.cluster.database.servers",
    "leave": "orchestrator.products.cluster.database.servers",
    "notify": "orchestrator.products.cluster.database.servers",
    "open_database": "orchestrator.products.cluster.database.database",
    "open_wakeups": "orchestrator.products.cluster.database.wakeups",
    "others": "orchestrator.products.cluster.database.servers",
    "read_view": "orchestrator.products.cluster.database.servers",
    "shown_address": "orchestrator.products.cluster.database.connection",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
