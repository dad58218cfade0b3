"""The names of clusters that other products may import. Each is imported on first use."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from typing import TYPE_CHECKING

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
else:
    from orchestrator.late_call import late_names

    __getattr__ = late_names(
        __name__,
        {
            "orchestrator.products.cluster.database.address": "DatabaseAddress",
            "orchestrator.products.cluster.database.connection": "Connection shown_address",
            "orchestrator.products.cluster.database.database": "Database open_database",
            "orchestrator.products.cluster.database.schema": "install_schema",
            "orchestrator.products.cluster.database.servers": (
                "CHANNEL ClusterView beat find_journal install_secret install_servers leave "
                "notify others read_view"
            ),
            "orchestrator.products.cluster.database.wakeups": "Bell Wakeups channel open_wakeups",
        },
    )
