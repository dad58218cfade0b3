"""The port behind which every door stands."""

from typing import Protocol

from delegation import DeliveryCapability, Reply


class Door(Protocol):
    """Takes the replies of one session."""

    @property
    def capability(self) -> DeliveryCapability:
        """What it can deliver after a turn has ended. No door goes without saying."""
        ...

    async def deliver(self, reply: Reply) -> None:
        """Take a reply, and say `Turns.delivered` once somebody has really got it.

        A door that raises is asked again, later and later. What it never takes stays with the
        session, and the next door is asked.
        """
        ...

    def disconnect(self) -> None:
        """Let go of everybody who waits: nothing will be said any more."""
        ...
