"""Facts of a small session, and how they are appended without an orchestrator."""

from collections.abc import Iterable, Sequence

from orchestrator.agents import Agent, ScriptedModel
from orchestrator.delegation import SessionId, encode
from orchestrator.delegation.events import Entry, Event, JournalOpened, MessageReceived
from orchestrator.kernel.journal.journal import Journal
from orchestrator.kernel.journal.store import JournalStore
from tests.kit import hand_on, worker

NO_SESSION = SessionId("")
LONG = 'ü\n"\\\x1a' * 2_000
"""Longer than any backend stores inline, with what JSON escapes."""


def message(session: str, text: str = "hello") -> Entry:
    """Return an entry without a number; `append` gives it one."""
    id_ = SessionId(session)
    return Entry(0, 0.5, id_, MessageReceived(id_, text))


def opened() -> Entry:
    """Return an entry of no session."""
    return Entry(0, 0.25, NO_SESSION, JournalOpened("test"))


def append(journal: Journal, entries: Iterable[Entry], *, first: int = 1) -> list[Entry]:
    """Number entries and append them; a session is active from its first entry on."""
    numbered: list[Entry] = []
    known = set[SessionId]()
    for seq, fact in enumerate(entries, first):
        entry = Entry(seq, fact.at + seq, fact.session, fact.event)
        changes: dict[SessionId, str | None] = {}
        if entry.session and entry.session not in known:
            known.add(entry.session)
            changes[entry.session] = None
        journal.append(entry, encode(entry.event), changes)
        numbered.append(entry)
    return numbered


async def write(store: JournalStore, entries: Iterable[Entry]) -> list[Entry]:
    """Write entries to a store, and close it."""
    async with store.open_writer() as journal:
        written = append(journal, entries)
        await journal.wait_durable(written[-1].seq)
    return written


def all_entries(store: JournalStore) -> list[Entry]:
    """Return everything that a reader finds, session by session."""
    with store.open_reader() as reader:
        found = {
            entry.seq: entry for session in reader.sessions() for entry in reader.entries(session)
        }
    return [found[seq] for seq in sorted(found)]


def kinds(entries: Sequence[Entry]) -> list[type[Event]]:
    return [type(entry.event) for entry in entries]


def editor() -> Agent:
    """Return an agent that delegates two tasks and merges their results."""
    model = ScriptedModel([hand_on("a", "b"), "merged"])
    return Agent("editor", model=model, delegates=[worker()])
