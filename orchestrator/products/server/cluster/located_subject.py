"""The journal, the session and the owner of the subject of a request, read from the journals."""

from collections.abc import Sequence
from typing import Final

from orchestrator.delegation import SessionId
from orchestrator.delegation.events import ApprovalAsked
from orchestrator.loggers import logger_of
from orchestrator.ports.errors import JournalAwayError, JournalError
from orchestrator.ports.journals import JournalReader, Journals, JournalStore
from orchestrator.products.server.keys.key import DEFAULT
from orchestrator.products.server.request_subject import Subject, SubjectKind

_LOG: Final = logger_of("server")


def locate(journals: Journals, subject: Subject) -> str | None:
    """Return the journal that has a session, a task or an approval; blocking."""
    match subject.kind:
        case SubjectKind.SESSION:
            return journals.find(SessionId(subject.id))
        case SubjectKind.TASK:
            found = journals.sessions_with_task(subject.id).sessions
            return found[0].journal if found else journals.find(SessionId(subject.id))
        case SubjectKind.APPROVAL:
            for name in journals.names():
                try:
                    with journals.store(name).open_reader(verify=False) as reader:
                        if reader.naming(subject.id, kind=ApprovalAsked.__name__):
                            return name
                except JournalAwayError:
                    raise
                except JournalError as exc:
                    _LOG.warning("%s; its approvals are not searched", exc)
            return None


def owner_of(journals: Journals, name: str, subject: Subject) -> str | None:
    """Return the owner of a subject; None if the journal does not have it; blocking."""
    store = journals.store(name)
    if not store.exists():
        return None
    with store.open_reader(verify=False) as reader:
        session = _session_of(reader, subject)
        return None if session is None else reader.owners().get(session, DEFAULT)


def session_of(store: JournalStore, subject: Subject) -> SessionId | None:
    """Return the session of a subject; None if the journal does not have it; blocking."""
    with store.open_reader(verify=False) as reader:
        return _session_of(reader, subject)


def _session_of(reader: JournalReader, subject: Subject) -> SessionId | None:
    sessions: Sequence[SessionId] = [SessionId(subject.id)]
    match subject.kind:
        case SubjectKind.SESSION:
            pass
        case SubjectKind.TASK:
            sessions = [*reader.sessions_with_task(subject.id), *sessions]
        case SubjectKind.APPROVAL:
            asked = reader.naming(subject.id, kind=ApprovalAsked.__name__)
            sessions = [entry.session for entry in asked]
    return next((it for it in sessions if reader.has_session(it)), None)
