"""Journals: the ports of a backend, its stored rows and checks, and the audit."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from orchestrator.kernel.journal.accounts import Part, StoredPart, other_part
from orchestrator.kernel.journal.audit import (
    ACCEPTED,
    CHECKPOINT,
    SERVER,
    UNKNOWN,
    AuditedEvent,
    AuditEvent,
    AuditHead,
    AuditLog,
    AuditRow,
    AuditWriter,
    chain_events,
    checkpoint,
    expired_head,
    key_actor,
    local_actor,
)
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.journal.checks import (
    Damage,
    Totals,
    check_audit,
    check_snapshots,
    compare_ends,
    compare_entry,
    compare_session,
    report,
    report_strings,
    report_totals,
)
from orchestrator.kernel.journal.checksums import entry_checksum, row_checksum
from orchestrator.kernel.journal.fact_redaction import EventT
from orchestrator.kernel.journal.facts import Facts
from orchestrator.kernel.journal.journal import (
    MISFITS,
    JournalContents,
    Pruned,
    fold,
    fold_entries,
    fold_run,
)
from orchestrator.kernel.journal.journals import HeldJournal, Journals, ListedSession, SessionList
from orchestrator.kernel.journal.long_strings import MARK_BYTES, extract_long_strings, references
from orchestrator.kernel.journal.memory import MemoryJournal
from orchestrator.kernel.journal.reader import DatedSession, JournalReader
from orchestrator.kernel.journal.records import Records
from orchestrator.kernel.journal.refusals import RefusalCounter
from orchestrator.kernel.journal.run_history import RunHistory, TaskTranscript, read_history
from orchestrator.kernel.journal.separate_journals import OneJournal
from orchestrator.kernel.journal.session_summary import (
    SessionSummary,
    StoredSummary,
    changed_at,
    is_asking,
    read_summary,
    summarize,
)
from orchestrator.kernel.journal.shards import (
    MOST_SHARDS,
    SHARDS,
    fair_share,
    is_shard,
    shard_names,
    shard_of,
)
from orchestrator.kernel.journal.snapshots import StoredSnapshot, StoreSnapshot, fold_stored
from orchestrator.kernel.journal.store import Finding, JournalStore, Level, Writer
from orchestrator.kernel.journal.stored_entries import (
    NO_SESSION,
    RESTORE,
    Allowance,
    FactRow,
    Row,
    decode_row,
    owner_in,
    require_chains,
    require_listed,
    require_whole,
    verify_active,
)
from orchestrator.kernel.journal.task_history import read_task_transcript
from orchestrator.kernel.journal.tenure import JournalLease, Tenure
from orchestrator.kernel.journal.write_queue import WriteQueue
