"""The port of all that a process needs to lend work, or to do what others lend.

A process has one exchange for all its journals, and for its worker.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from orchestrator.products.cluster.work.dispatch import Tenure, WorkerId
from orchestrator.products.cluster.work.mailbox import WorkerMailbox, WriterMailbox
from orchestrator.products.cluster.work.presence import Presence
from orchestrator.products.cluster.work.work_queue import WorkQueue


class Exchange(Protocol):
    """A work queue, mailboxes and presence, in one database."""

    @property
    def queue(self) -> WorkQueue: ...

    @property
    def presence(self) -> Presence: ...

    def writer_mailbox(self, writer: Tenure) -> AbstractAsyncContextManager[WriterMailbox]:
        """Open the mailbox of a journal, for the process that writes it."""
        ...

    def worker_mailbox(self, worker: WorkerId) -> AbstractAsyncContextManager[WorkerMailbox]:
        """Open the mailbox of a worker."""
        ...
