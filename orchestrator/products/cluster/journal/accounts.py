"""The common accounts of all journals in a database: a row for the part of each journal.

The lock of an account makes a change atomic. A change is conditional on the epoch of its writer,
and the next writer of the journal writes its part again, under the same lock. So a process that was
replaced never has the last word.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, LiteralString

import msgspec

from orchestrator.ports.errors import JournalError
from orchestrator.ports.journals import Part, StoredPart, other_part
from orchestrator.products.cluster.database.database import Database
from orchestrator.products.cluster.journal.lease import in_use

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

# A process that stands still holds no lock for long, and a part that was written is durable.
_LOCK: Final[LiteralString] = """
SELECT set_config('idle_in_transaction_session_timeout', '10s', true),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true),
    pg_advisory_xact_lock(hashtextextended(%s, 34))
"""
_EPOCH: Final[LiteralString] = "SELECT epoch FROM orchestrator.journals WHERE name = %s"
_OTHERS: Final[LiteralString] = """
SELECT accounts.journal, part, coalesce(until > clock_timestamp(), false)
FROM orchestrator.accounts LEFT JOIN orchestrator.journals ON name = accounts.journal
WHERE account = %s AND accounts.journal != %s ORDER BY accounts.journal
"""
_WRITE: Final[LiteralString] = """
INSERT INTO orchestrator.accounts VALUES (%s, %s, %s)
ON CONFLICT (account, journal) DO UPDATE SET part = excluded.part
    WHERE accounts.part != excluded.part
"""
_DECODER: Final = msgspec.json.Decoder(StoredPart)


class DatabaseAccounts:
    """The common accounts of a database, for the writer of one journal in it."""

    def __init__(self, url: str, journal: str, epoch: int) -> None:
        self._database = database = Database(url, "orchestrator accounts")
        """Connects when an account is first used."""
        self._journal = journal
        self._epoch = epoch
        self.address = database.address

    async def write(
        self, account: str, part: StoredPart, fits: Callable[[Sequence[Part]], bool]
    ) -> tuple[bool, Sequence[Part]]:
        stored = msgspec.json.encode(part).decode()

        def change(connection: "Connection") -> tuple[bool, Sequence[Part]]:
            with connection.transaction():
                connection.execute(_LOCK, (account,))
                if connection.execute(_EPOCH, (self._journal,)).fetchone() != (self._epoch,):
                    raise in_use(connection, self._journal, self.address)
                others = self._others(connection, account)
                is_fit = fits(others)
                if is_fit:
                    connection.execute(_WRITE, (account, self._journal, stored))
            return is_fit, others

        return await self._database.run(change)

    async def aclose(self) -> None:
        await self._database.aclose()

    async def read(self, account: str) -> Sequence[Part]:
        return await self._database.run(lambda it: self._others(it, account))

    def _others(self, connection: "Connection", account: str) -> Sequence[Part]:
        try:
            return [
                other_part(str(journal), _DECODER.decode(str(part)), is_live=bool(is_live))
                for journal, part, is_live in connection.execute(_OTHERS, (account, self._journal))
            ]
        except msgspec.MsgspecError as exc:
            problem = f"the table orchestrator.accounts is damaged ({exc}); restore a copy of it"
            raise JournalError(self.address, problem) from exc
