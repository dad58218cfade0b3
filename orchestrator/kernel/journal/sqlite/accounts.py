"""The common accounts of the journals in one folder: a private file for each account.

A file is replaced as a whole under its lock, which the system releases when a process dies.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import trio

from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.accounts import Part, StoredPart, other_part
from orchestrator.kernel.journal.sqlite.lock import writer_of
from orchestrator.kernel.private_files import PrivateFile
from orchestrator.kernel.state_files import ACCOUNTS, JOURNALS


class _StoredAccount(msgspec.Struct, frozen=True):
    account: str
    parts: Mapping[str, StoredPart] = {}


_DECODER: Final = msgspec.json.Decoder(_StoredAccount)


class FolderAccounts:
    """The common accounts of a folder, for the writer of one journal in it."""

    def __init__(self, journal: Path) -> None:
        folder = journal.parent
        self._home = folder.parent if folder.name == JOURNALS else folder
        self._journal = str(journal.relative_to(self._home))
        self.address = str(self._home)

    async def write(
        self, account: str, part: StoredPart, fits: Callable[[Sequence[Part]], bool]
    ) -> tuple[bool, Sequence[Part]]:
        return await trio.to_thread.run_sync(self._write, account, part, fits)

    async def read(self, account: str) -> Sequence[Part]:
        return await trio.to_thread.run_sync(
            lambda: self._others(self._stored(self._file(account), account))
        )

    def _write(
        self, account: str, part: StoredPart, fits: Callable[[Sequence[Part]], bool]
    ) -> tuple[bool, Sequence[Part]]:
        file = self._file(account)
        with file.locked():
            stored = self._stored(file, account)
            others = self._others(stored)
            if not fits(others):
                return False, others
            if stored.get(self._journal) != part:
                changed = _StoredAccount(account, {**stored, self._journal: part})
                file.replace(msgspec.json.encode(changed))
        return True, others

    def _file(self, account: str) -> PrivateFile:
        name = hashlib.blake2b(account.encode(), digest_size=16).hexdigest()
        return PrivateFile(self._home / ACCOUNTS / name, error=self._error)

    def _error(self, problem: str) -> JournalError:
        return JournalError(self._home / ACCOUNTS, problem)

    def _stored(self, file: PrivateFile, account: str) -> Mapping[str, StoredPart]:
        text = file.read()
        if text is None:
            return {}
        try:
            return _DECODER.decode(text).parts
        except msgspec.MsgspecError as exc:
            problem = (
                f"the account {account!r} is damaged ({exc}): remove {file.path}, and open each"
                " journal of the folder once, which writes its part again"
            )
            raise self._error(problem) from exc

    def _others(self, stored: Mapping[str, StoredPart]) -> Sequence[Part]:
        return [
            other_part(journal, part, is_live=self._is_live(journal))
            for journal, part in stored.items()
            if journal != self._journal
        ]

    def _is_live(self, journal: str) -> bool:
        try:
            return writer_of(self._home / journal) is not None
        except JournalError:
            return False  # a journal that cannot be opened has no writer
