"""The ports by which a worker asks the writer of a journal, and the writer answers.

No message has to survive: a worker without an answer asks again under the same number, and the
writer answers the same.
"""

from collections.abc import Sequence
from typing import Protocol

import attrs

from orchestrator.products.cluster.work.dispatch import ExecutionId, WorkerId


@attrs.frozen
class Request:
    """A request of an execution to the writer of its journal."""

    journal: str
    worker: WorkerId
    execution: ExecutionId
    number: int
    """From 0 on, counted by the execution: the same number is the same question."""
    body: bytes
    stays: bool = False
    """It is heard also if its worker has left meanwhile. Else it is withdrawn when the worker waits
    for its answer no more."""


class WorkerMailbox(Protocol):
    """The end of a worker."""

    async def ask(self, request: Request) -> bytes:
        """Ask the writer of a journal, whichever process that is, and return its answer.

        It is asked again for as long as the caller waits: through an outage of the database, and
        after the journal was taken over.
        """
        ...

    async def wait_stopped(self, execution: ExecutionId) -> None:
        """Wait until the writer says that an execution must stop."""
        ...

    def forget(self, execution: ExecutionId) -> None:
        """Drop the messages of an ended execution, except those that stay."""
        ...


class WriterMailbox(Protocol):
    """The end of the writer of one journal."""

    async def receive(self) -> Sequence[Request]:
        """Wait for requests, and return them: each once, until its execution is forgotten.

        A request that is repeated after its answer gets the same answer, and is not returned again.
        After the journal was taken over, the new writer receives the requests without an answer.
        Raise `JournalInUseError` if another process writes the journal.
        """
        ...

    async def catch_up(self) -> None:
        """Return when `receive` has returned all that was asked before, or it is fenced."""
        ...

    def answer(self, request: Request, body: bytes) -> None:
        """Answer a request, with the next batch."""
        ...

    def drop_answer(self, request: Request) -> None:
        """Keep the answer to a request no more, which its execution has heard."""
        ...

    def stop(self, worker: WorkerId, execution: ExecutionId) -> None:
        """Tell a worker, with each batch, to stop an execution until it is forgotten."""
        ...

    def forget(self, execution: ExecutionId) -> None:
        """Drop the messages of an ended execution: its answers, and its stop."""
        ...
