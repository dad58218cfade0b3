"""A folder of SQLite files, each a journal: `journal.db`, then `journals/journal-2.db` and so on.

Each file has the lock of its one writer, so two processes that start at the same moment never take
the same file: the second one takes the next. A file whose runs have ended is used again, so the
folder has as many files as processes ever wrote at once, and the files with waiting runs. A damaged
file is skipped and reported once: it stops only its own runs.

All but the first are in a subfolder, which exists before any of them: a sandbox hides it with all
its future contents.
"""

import os
import re
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

import trio

from orchestrator.kernel.errors import JournalError, JournalInUseError
from orchestrator.kernel.journal.journals import HeldJournal
from orchestrator.kernel.journal.separate_journals import SeparateJournals
from orchestrator.kernel.journal.sqlite.reader import has_active_sessions
from orchestrator.kernel.journal.sqlite.schema import translate_errors
from orchestrator.kernel.journal.sqlite.store import SQLiteStore
from orchestrator.kernel.private_files import foreign_folder, foreign_link, make_private_folder
from orchestrator.kernel.state_files import FIRST_JOURNAL, JOURNALS
from orchestrator.loggers import logger_of

NAME_PATTERN: Final = re.compile(r"journal-([2-9]|[1-9][0-9]{1,8})\.db")
MOST_FILES: Final = 100
"""With this many files, a free one is used again even if a session waits in it."""


class SQLiteFolder(SeparateJournals):
    """The journals of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._damaged: set[str] = set()
        self.address = f"{folder}{os.sep}"

    def names(self) -> Sequence[str]:
        first = [FIRST_JOURNAL] if (self.folder / FIRST_JOURNAL).exists() else []
        try:
            found = [file.name for file in (self.folder / JOURNALS).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return first
        return [*first, *sorted(filter(_number_of, found), key=_number_of)]

    def store(self, name: str) -> SQLiteStore:
        if name == FIRST_JOURNAL:
            return SQLiteStore(self.folder / name)
        return SQLiteStore(self.folder / JOURNALS / name)

    @asynccontextmanager
    async def open_free(self, *, address: str = "") -> AsyncGenerator[HeldJournal]:
        async with AsyncExitStack() as stack:
            yield await self._enter_free(stack, address)

    async def _enter_free(self, stack: AsyncExitStack, address: str) -> HeldJournal:
        tried: set[str] = set()
        while True:
            name, is_picky = await trio.to_thread.run_sync(self._next_free, tried)
            tried.add(name)
            store = self.store(name)
            is_new = not store.exists()
            try:
                async with AsyncExitStack() as opened:
                    journal = await opened.enter_async_context(store.open_writer(address=address))
                    # Again: another process may have had it since, and died.
                    if not (is_picky and journal.has_active_sessions()):
                        stack.push_async_exit(opened.pop_all())
                        return HeldJournal(name, journal)
            except JournalInUseError:
                continue  # another process was quicker
            except JournalError as exc:
                if is_new:
                    raise  # no other one can be made, either
                self._pass_over(name, exc)

    def _pass_over(self, name: str, error: JournalError) -> None:
        """Say once that a journal cannot be used."""
        if name not in self._damaged:
            self._damaged.add(name)
            logger_of("journal").warning(
                "warning: a journal is passed over: %s; see `orchestrator doctor`", error
            )

    def _make_folder(self) -> None:
        folder = self.folder / JOURNALS
        with translate_errors(folder):
            make_private_folder(folder)
            problem = foreign_folder(folder)
        if foreign_link(folder) is not None:
            problem = "it is a link that another user has made"
        if problem:
            raise JournalError(folder, problem)

    def _next_free(self, tried: Collection[str]) -> tuple[str, bool]:
        """Return the next journal to try, or a new name, and whether nothing may wait in it."""
        self._make_folder()
        names = self.names()
        is_picky = len(names) < MOST_FILES
        for name in names:
            if name in tried:
                continue
            try:
                if _is_free(self.store(name), is_picky):
                    return name, is_picky
            except JournalError as exc:
                self._pass_over(name, exc)
        return next(_new_names({*names, *tried})), True


def _number_of(name: str) -> int:
    """Return the number in the name of a journal but the first; 0 if it is another file."""
    found = NAME_PATTERN.fullmatch(name)
    return 0 if found is None else int(found[1])


def _new_names(names: Collection[str]) -> Iterator[str]:
    if FIRST_JOURNAL not in names:
        yield FIRST_JOURNAL
    for number in count(2):
        if (name := f"journal-{number}.db") not in names:
            yield name


def _is_free(store: SQLiteStore, is_picky: bool) -> bool:
    if store.writer() is not None:
        return False
    return not (is_picky and has_active_sessions(store.file))
