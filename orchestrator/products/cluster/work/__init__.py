"""The ports that carry lent work between the writer of a journal and its workers.

The writer decides, and workers ask. A message that arrives twice, late or from a dead process is
harmless, because the writer accepts one execution of one attempt of a dispatch.

`WorkQueue` hands dispatches to workers, `WriterMailbox` and `WorkerMailbox` carry the messages of
both sides, and `Presence` tells which workers are alive and which executions they hold. An
`Exchange` has them all.
"""

from orchestrator.products.cluster.work.dispatch import (
    Dispatch,
    DispatchId,
    ExecutionId,
    Tenure,
    WorkerId,
    attempt_number,
)
from orchestrator.products.cluster.work.exchange import Exchange
from orchestrator.products.cluster.work.mailbox import Request, WorkerMailbox, WriterMailbox
from orchestrator.products.cluster.work.presence import Beat, Presence, WorkerSeen
from orchestrator.products.cluster.work.work_queue import Delivery, WorkQueue

__all__ = [
    "Beat",
    "Delivery",
    "Dispatch",
    "DispatchId",
    "Exchange",
    "ExecutionId",
    "Presence",
    "Request",
    "Tenure",
    "WorkQueue",
    "WorkerId",
    "WorkerMailbox",
    "WorkerSeen",
    "WriterMailbox",
    "attempt_number",
]
