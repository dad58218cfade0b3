"""Work queues: the port that hands dispatches to workers, for a queue of your own."""

from orchestrator.products.cluster.work import *  # noqa: F403 (the names are the product's `__all__`)
from orchestrator.products.cluster.work import __all__ as __all__  # noqa: PLC0414 (a re-export)
