"""The predictions of earlier processes, in a file beside the journal.

The file is a cache: a process that cannot read it learns anew. It is read once, when a call may
have to wait for the first time, and written seldom, so a crash loses the last half of a minute.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Final, TypeAlias

import msgspec
import trio

from orchestrator.agents.models.samples import Samples
from orchestrator.kernel.private_files import PRIVATE_FILE, PrivateFile
from orchestrator.kernel.state_files import FIRST_JOURNAL, JOURNALS
from orchestrator.loggers import logger_of

KINDS: Final = 10_000
"""The most predictions of a table; the oldest are forgotten."""
STORED_KINDS: Final = 1_000
"""How many of them are stored."""
STORED_SAMPLES: Final = 16
"""How many samples of each are stored."""
SAVE_SECONDS: Final = 30.0

PredictionKey: TypeAlias = str | tuple[str | int, ...]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Stored: TypeAlias = dict[str, list[tuple[str | list[str | int], list[_Seconds]]]]


class Table(dict[PredictionKey, Samples]):
    """Samples by kind, the oldest kind first."""

    def add(self, key: PredictionKey, value: float) -> None:
        if (samples := self.get(key)) is None:
            if len(self) >= KINDS:
                del self[next(iter(self))]
            samples = self[key] = Samples()
        samples.add(value)

    def mean(self, key: PredictionKey) -> float | None:
        return None if (samples := self.get(key)) is None else samples.mean


class StoredPredictions:
    """The file of the predictions of all processes that write journals of one folder."""

    def __init__(self, journal: Path | None, tables: Mapping[str, Table]) -> None:
        """Read the tables of an earlier process; a journal without a file has none."""
        self._tables = tables
        self._saved_at = -math.inf
        self._file: PrivateFile | None = None
        if journal is None:
            return
        if journal.parent.name == JOURNALS:
            journal = journal.parent.with_name(FIRST_JOURNAL)
        file = PrivateFile(journal.with_name(f"{journal.name}.predictions"), error=OSError)
        try:
            # Not in a thread: it is small, and a call waits for it.
            text = file.read()
        except OSError:
            return  # a file of another user, or a folder
        self._file = file
        try:
            stored = msgspec.json.decode(text or b"{}", type=_Stored)
        except (msgspec.MsgspecError, UnicodeError):
            return
        for name, table in tables.items():
            for key, samples in stored.get(name, ())[-STORED_KINDS:]:
                if samples:
                    table[key if isinstance(key, str) else tuple(key)] = Samples(samples)

    def save(self) -> None:
        """Write the file, unless it was written a moment ago."""
        now = trio.current_time()
        if self._file is None or now < self._saved_at + SAVE_SECONDS:
            return
        self._saved_at = now
        stored = {
            name: [
                (key, [round(it, 3) for it in table[key].latest(STORED_SAMPLES)])
                for key in [*table][-STORED_KINDS:]
            ]
            for name, table in self._tables.items()
        }
        try:
            temporary = self._file.path.with_suffix(f".{token_hex(6)}")
            # Not synced: a file that a crash of the machine cuts off is not read.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(temporary, flags, PRIVATE_FILE), "wb") as opened:
                opened.write(msgspec.json.encode(stored))
            temporary.replace(self._file.path)
        except OSError as exc:
            logger_of("engine").warning("predictions are not stored: %s", exc)
