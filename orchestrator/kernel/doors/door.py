"""The port of every door, which takes the replies of a session.

To add a door (a chat service, a mailbox): implement `Door`, connect it as `doors/lifecycle.py`
shows, and post incoming requests with `doors/inbound.py`. `doors/session.py` is the shortest
example.
"""

from typing import Protocol

from orchestrator.delegation import DeliveryCapability, Reply


class Door(Protocol):
    """Takes the replies of one session."""

    @property
    def capability(self) -> DeliveryCapability:
        """Whether it can deliver replies after a turn has ended.

        POLL and PUSH let tasks detach: their results come as replies of later turns. There is no
        default, because a door that promises too much loses them.
        """
        ...

    async def deliver(self, reply: Reply) -> None:
        """Deliver a reply, and call `Deliveries.mark_delivered` once the receiver really has it.

        If this raises it is tried again, with growing pauses. A reply that is never marked stays
        with the session, and goes to the next door.
        """
        ...

    def disconnect(self) -> None:
        """Release every caller that waits here: there will be no more replies."""
        ...
