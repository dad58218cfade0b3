"""The port of common accounts: budgets that all journals at one address share.

Each journal has one part of an account, and only the writer of the journal changes it. A part is
written as a whole, from the ledger, so writing it twice is harmless. A process that dies leaves its
reservations in its part: they count as used, until the next writer of its journal corrects them.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Protocol

import msgspec

from orchestrator.delegation.amounts import NOTHING, Amounts


class StoredPart(msgspec.Struct, frozen=True, gc=False):
    """The part of one journal in an account, as it is stored."""

    used: Amounts
    held: Amounts
    """The reservations of its calls under way."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """The part of another journal in an account."""

    journal: str
    used: Amounts
    held: Amounts
    """The reservations of its calls under way; nothing if no process writes the journal."""


def other_part(journal: str, stored: StoredPart, *, is_live: bool) -> Part:
    """Return the part of another journal: a dead process has used all that it had reserved."""
    if is_live:
        return Part(journal, stored.used, stored.held)
    return Part(journal, stored.used + stored.held, NOTHING)


def total_used(parts: Sequence[Part]) -> Amounts:
    return reduce(add, [it.used for it in parts], NOTHING)


def total_held(parts: Sequence[Part]) -> Amounts:
    return reduce(add, [it.held for it in parts], NOTHING)


class AccountStore(Protocol):
    """The common accounts of the journals at one address, for the writer of one of them."""

    @property
    def address(self) -> str:
        """The place of the accounts, as people may read it."""
        ...

    async def write(
        self, account: str, part: StoredPart, fits: Callable[[Sequence[Part]], bool]
    ) -> tuple[bool, Sequence[Part]]:
        """Write the part of this journal if it fits beside the others, in one atomic step.

        Return whether it was written, and the parts of the others at that moment. `fits` is called
        in another thread, perhaps several times. The part is durable when this returns.

        Raises:
            JournalError: the account cannot be read or written.
        """
        ...

    async def read(self, account: str) -> Sequence[Part]:
        """Return the parts of the other journals."""
        ...
