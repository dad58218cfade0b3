"""The audit: who did what and when, in rows that are chained by their hashes.

Facts record events; the audit records the person behind them, in a table beside the facts. A door
records a request without an `await` after its first fact, so both are in one commit. A changed,
removed, inserted or moved row breaks the chain. A process that can write the journal could also
compute a new chain: only a copy of the last hash, kept elsewhere, detects that.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec.structs import asdict, replace

from orchestrator.agents import well_formed
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.kernel.journal.checksums import NO_HASH

LONGEST_TEXT: Final = 200
"""How many characters of a target, an outcome or a peer are recorded."""
ACCEPTED: Final = "accepted"
CHECKPOINT: Final = "audit.checkpoint"
"""The action of a row that stands for deleted ones: its target is the last of them."""
SERVER: Final = "server"
"""The actor of the server's own actions."""
UNKNOWN: Final = "unknown"
"""The actor of requests without a valid key."""


def key_actor(name: str) -> str:
    """Return the actor of a client with the key of this name."""
    return f"key:{name}"


def local_actor(user: int) -> str:
    """Return the actor of a process of this user on the same machine."""
    return f"uid:{user}"


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An action, or attempt, of one actor."""

    actor: str
    """A key (`key:NAME`), a user of this machine (`uid:NUMBER`), `server`, or `unknown`."""
    action: str
    owner: str = ""
    """The owner of the key."""
    target: str = ""
    """The id of the session, task or approval; of several, the first."""
    outcome: str = ACCEPTED
    """`accepted`, or why not: an HTTP status, or the class of an error."""
    peer: str = ""
    """The address, or the process, that it came from."""
    count: int = 1
    """How often: refused requests are counted for some time."""

    def redacted(self, redactor: Redactor) -> "AuditEvent":
        """Return its recorded form: without secrets, and of bounded length.

        Only the target may be a text of a client; the others are checked names.
        """
        # Redacted first: the half of a secret is not recognised.
        target = well_formed(self.target)
        if redactor.may_hold_secret(target.encode()):
            target = redactor.redact(target)
        event = self if target == self.target else replace(self, target=target)
        texts = f"{event.actor}{event.owner}{event.action}{target}{event.outcome}{event.peer}"
        if texts.isascii() and len(texts) <= LONGEST_TEXT:
            return event
        return replace(
            self,
            actor=_bounded(self.actor),
            owner=_bounded(self.owner),
            action=_bounded(self.action),
            target=_bounded(target),
            outcome=_bounded(self.outcome),
            peer=_bounded(self.peer),
        )


AuditedEvent: TypeAlias = tuple[float, AuditEvent]
"""An event, and when it happened."""


def _bounded(text: str) -> str:
    is_fine = text.isascii() and len(text) <= LONGEST_TEXT
    return text if is_fine else well_formed(text[:LONGEST_TEXT])


class AuditWriter(Protocol):
    """Records events: the bookkeeper, for those who may do nothing else with it."""

    closed: bool
    """Nothing more is recorded."""

    def audit(self, event: AuditEvent) -> None:
        """Record who did something, in the commit of the facts that were posted just before."""
        ...

    async def wait_audited(self) -> None:
        """Wait until all that was posted and recorded so far survives a crash."""
        ...


class AuditHead(msgspec.Struct, frozen=True, gc=False):
    """The last row of a chain: its number and hash, which stand for all rows before it, too."""

    seq: int = 0
    hash: str = NO_HASH

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> "AuditHead":
        """Return the head of a text as `str` gives it; raise `ValueError` if it is none."""
        seq, _, digest = text.strip().partition(":")
        is_digest = len(digest) == 64 and set(digest) <= set("0123456789abcdef")
        if not (seq.isascii() and seq.isdecimal() and len(seq) < 19 and is_digest):
            raise ValueError(f"{text!r} is not the head of an audit: write SEQ:HASH")
        return cls(int(seq), digest)

    def next_row(self, at: float, event: AuditEvent) -> "AuditRow":
        """Return the row that follows."""
        seq = self.seq + 1
        return AuditRow(seq, at, event, _hash(self.hash, seq, at, event))


AUDIT_COLUMNS: Final = "seq, at, actor, owner, action, target, outcome, peer, count, hash"


class AuditRow(msgspec.Struct, frozen=True, gc=False):
    """A recorded event."""

    seq: int
    at: float
    event: AuditEvent
    hash: str

    @classmethod
    def of(cls, columns: Sequence[Any]) -> "AuditRow":
        """Return the row with these values of `AUDIT_COLUMNS`."""
        seq, at, actor, owner, action, target, outcome, peer, count, digest = columns
        event = AuditEvent(
            actor=actor,
            owner=owner,
            action=action,
            target=target,
            outcome=outcome,
            peer=peer,
            count=count,
        )
        return cls(seq, at, event, digest)

    @property
    def head(self) -> AuditHead:
        return AuditHead(self.seq, self.hash)

    def as_dict(self) -> dict[str, Any]:
        return {"seq": self.seq, "at": self.at, **asdict(self.event), "hash": self.hash}


def _hash(previous: str, seq: int, at: float, event: AuditEvent) -> str:
    """Return the hash of a row: of its values as a JSON array, after the hash before it."""
    values = [
        *(previous, seq, float(at), event.actor, event.owner, event.action, event.target),
        *(event.outcome, event.peer, event.count),
    ]
    return hashlib.sha256(msgspec.json.encode(values)).hexdigest()


def chain_events(
    head: AuditHead, events: Iterable[AuditedEvent]
) -> tuple[list[AuditRow], AuditHead]:
    """Return the rows of events that follow a head, and the head after them."""
    rows: list[AuditRow] = []
    for at, event in events:
        row = head.next_row(at, event)
        rows.append(row)
        head = row.head
    return rows, head


class AuditBreak(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a chain does not fit."""

    seq: int
    """The first row that does not fit."""
    problem: str


class AuditLog(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a journal that were not pruned, and where they begin and end."""

    rows: Iterable[AuditRow]
    pruned: AuditHead = AuditHead()
    """The last row that was pruned."""
    head: AuditHead = AuditHead()
    """The last row, which is recorded beside the rows."""

    def find_break(self, *, anchor: AuditHead | None = None) -> AuditBreak | None:
        """Return where the chain breaks; None if it is whole, and contains the anchor."""
        last, is_vouched = self.pruned, self.pruned == AuditHead()
        for row in self.rows:
            if problem := _problem(last, row, anchor):
                return AuditBreak(seq=last.seq + 1, problem=problem)
            last = row.head
            event = row.event
            is_vouched |= event.action == CHECKPOINT and event.target == str(self.pruned)
        if not is_vouched:
            return AuditBreak(seq=1, problem="is missing, and no checkpoint says why")
        known = self.head
        if anchor is not None and anchor.seq > known.seq:
            known = anchor
        if last.seq < known.seq:
            return AuditBreak(seq=last.seq + 1, problem="is missing, and all after it")
        if last != known:
            return AuditBreak(seq=known.seq, problem="is not the one that was written last")
        return None


def expired_head(log: AuditLog, rows: Iterable[AuditRow], before: float) -> AuditHead:
    """Return the last row that pruning deletes: up to the first one that is newer.

    Clocks are set back, and a chain has no holes.
    """
    last = log.pruned
    for row in rows:
        if row.at >= before:
            break
        last = row.head
    return last


def checkpoint(event: AuditEvent, last: AuditHead, count: int) -> AuditEvent:
    """Return the event that stands for deleted rows."""
    return replace(event, action=CHECKPOINT, target=str(last), count=count)


def _problem(last: AuditHead, row: AuditRow, anchor: AuditHead | None) -> str:
    """Return why a row cannot be the next one; the empty text if it can."""
    if row.seq != last.seq + 1:
        return "is missing"
    if not _fits(last, row):
        return "was changed, or does not follow the one before"
    if anchor is not None and row.seq == anchor.seq and row.head != anchor:
        return "is another than that of the head that was kept"
    return ""


def _fits(last: AuditHead, row: AuditRow) -> bool:
    try:
        return last.next_row(row.at, row.event) == row
    except UnicodeEncodeError:
        return False  # what the disk changed may be no text
