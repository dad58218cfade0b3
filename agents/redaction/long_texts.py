"""Long texts, which are searched for secrets beside the event loop.

A search takes microseconds for each character of the worst texts, and one regular expression holds
the interpreter from the first to the last of them. So a long text is searched in a thread, and a
very long one in a process of its own, before it is posted: the redactor then finds the result. A
text that was not searched ahead is searched where it is posted: that is slower, and no less safe.
"""

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import trio

from orchestrator.agents.interpreter import run_in_interpreter
from orchestrator.agents.redaction.redactor import LONG_TEXT, Redactor

T = TypeVar("T")

VERY_LONG_TEXT: Final = 100_000
"""The number of characters above which a single regular expression stalls every other thread."""
PIECE: Final = 50_000
"""How many characters are looked at before other tasks have a turn: some milliseconds."""
SEARCHES_AT_ONCE: Final = 1
"""How many threads search: each takes its share of the interpreter from the event loop."""
PROCESSES_AT_ONCE: Final = 2

_threads: Final = trio.lowlevel.RunVar[trio.CapacityLimiter]("searches in threads")
_processes: Final = trio.lowlevel.RunVar[trio.CapacityLimiter]("searches in processes")


def has_long_text(value: object) -> bool:
    """Return whether a text, or one in a tree of lists and mappings, is worth a thread."""
    # Every answer of every model is looked at: plain types first, and no call for each text.
    if isinstance(value, str):
        return len(value) > LONG_TEXT
    tree: Any = value
    if isinstance(value, (dict, Mapping)):
        tree = tree.values()
    elif not isinstance(value, (list, tuple)):
        return False
    for part in tree:
        if isinstance(part, str):
            if len(part) > LONG_TEXT:
                return True
        elif has_long_text(part):
            return True
    return False


def texts_in(value: object) -> list[str]:
    """Return the texts of a tree of lists and mappings."""
    found: list[str] = []
    pending: list[Any] = [value]
    # No call for each part: an answer may request thousands of tasks.
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict):
            pending.extend(part.values())  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(part, (list, tuple)):
            pending.extend(part)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(part, Mapping):
            pending.extend(part.values())  # pyright: ignore[reportUnknownArgumentType]
    return found


async def search_ahead(redactor: Redactor, texts: Iterable[str]) -> None:
    """Search the long ones of some texts for secrets, before they are posted."""
    await trio.lowlevel.checkpoint()
    for text in texts:
        if len(text) <= LONG_TEXT or redactor.has_searched(text):
            continue
        is_clean = not await _may_hold_secret(redactor, text)
        redactor.remember(text, text if is_clean else await _redacted(redactor, text))


async def search_tree_ahead(
    redactor: Redactor, value: T, redact: Callable[[T, Redactor], T]
) -> None:
    """Search a value of many short texts in a thread; it is posted later, and stays as it is."""
    redacted = await trio.to_thread.run_sync(
        redact, value, redactor, limiter=_limiter(_threads, SEARCHES_AT_ONCE)
    )
    redactor.remember_tree(value, redacted)


async def _may_hold_secret(redactor: Redactor, text: str) -> bool:
    """Look for marks of secrets, some characters at a time: many texts have none."""
    await trio.lowlevel.checkpoint()
    overlap = redactor.longest_mark
    for start in range(0, len(text), PIECE):
        await trio.lowlevel.checkpoint()
        piece = text[max(0, start - overlap) : start + PIECE]
        if redactor.may_hold_secret(piece.encode(errors="replace")):
            return True
    return False


async def _redacted(redactor: Redactor, text: str) -> str:
    if len(text) > VERY_LONG_TEXT:
        async with _limiter(_processes, PROCESSES_AT_ONCE):
            try:
                return await _redacted_in_process(redactor, text)
            except (OSError, subprocess.CalledProcessError):
                pass  # no process can be started here: a thread can be
    # Not abandoned when it is cancelled: it ends within a second, and threads are few.
    return await trio.to_thread.run_sync(
        redactor.redact, text, limiter=_limiter(_threads, SEARCHES_AT_ONCE)
    )


async def _redacted_in_process(redactor: Redactor, text: str) -> str:
    known = json.dumps(redactor.known).encode()
    request = b"%b\n%b" % (known, text.encode("utf-8", "surrogatepass"))
    answer = await run_in_interpreter(redacted_request, request)
    return answer.decode("utf-8", "surrogatepass")


def redacted_request(request: bytes) -> bytes:
    """Return a text without its secrets: the work of the other process."""
    known, _, text = request.partition(b"\n")
    redacted = Redactor(json.loads(known)).redact(text.decode("utf-8", "surrogatepass"))
    return redacted.encode("utf-8", "surrogatepass")


def _limiter(
    variable: trio.lowlevel.RunVar[trio.CapacityLimiter], total: int
) -> trio.CapacityLimiter:
    try:
        return variable.get()
    except LookupError:
        limiter = trio.CapacityLimiter(total)
        variable.set(limiter)
        return limiter
