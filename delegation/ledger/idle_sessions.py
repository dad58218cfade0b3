"""The eviction of resting sessions: they have no due work, so their records leave the memory.

Their facts are in the journal, and are folded again when the session is needed. Only their usage of
shared budgets stays in the ledger.
"""

import msgspec

from orchestrator.delegation.amounts import Amounts
from orchestrator.delegation.budget import Account
from orchestrator.delegation.errors import UnreadableFactError
from orchestrator.delegation.ledger.ledger import Ledger
from orchestrator.delegation.ledger.session_record import SessionRecord
from orchestrator.delegation.task import Grant, SessionId


class AccountUse(msgspec.Struct, frozen=True, gc=False):
    """The amounts that one session has used of one budget, as they are stored."""

    grant: Grant
    path: str
    depth: int
    at: float
    used: Amounts


_DECODER = msgspec.json.Decoder(list[AccountUse])


def encode_shared_use(session: SessionRecord) -> str:
    """Return the stored form of a session's usage of shared budgets."""
    if not session.own_accounts:
        return ""
    shared = [_used(part) for part in session.own_accounts.values() if part.is_shared]
    return msgspec.json.encode(shared).decode() if shared else ""


def _used(part: Account) -> AccountUse:
    grant = Grant(part.id, part.budget)
    return AccountUse(grant, part.path, part.depth, part.started_at, part.used)


def decode_used_amounts(used: str) -> dict[str, Amounts]:
    """Return what one session has used of each budget."""
    return {part.grant.id: part.used for part in _decode(used)}


def _decode(used: str) -> list[AccountUse]:
    if not used:
        return []
    try:
        return _DECODER.decode(used)
    except msgspec.MsgspecError as exc:
        raise UnreadableFactError(f"it is not the usage of a session: {exc}") from exc


def register_idle_session(ledger: Ledger, session: SessionId, used: str) -> None:
    """Add an idle session to the ledger, and book its usage."""
    ledger.all_sessions[session] = None
    try:
        parts = _decode(used)
    except UnreadableFactError as exc:
        raise UnreadableFactError(f"the usage of session {session}: {exc}") from exc
    for part in parts:
        if part.grant.id not in ledger.accounts:
            ledger.accounts[part.grant.id] = Account(
                part.grant, path=part.path, depth=part.depth, started_at=part.at
            )
        account = ledger.accounts[part.grant.id]
        account.started_at = min(account.started_at, part.at)
        account.used += part.used


def evict_session(ledger: Ledger, session: SessionId) -> Ledger:
    """Remove the records of a session at rest, and return a ledger of it alone; its id stays."""
    past = Ledger(ledger.rules)
    past.last_seq = ledger.last_seq
    past.sessions[session] = record = ledger.sessions.pop(session)
    assert record.is_at_rest, "only a session at rest is evicted"
    for task in record.tree:
        if (needed := ledger.unstartable.pop(task, None)) is not None:
            past.unstartable[task] = needed
        past.tasks[task] = ledger.tasks.pop(task)
        for account in past.tasks[task].accounts:
            if not account.is_shared:
                ledger.accounts.pop(account.id, None)
    return past


def restore_session(ledger: Ledger, session: SessionId, past: Ledger) -> None:
    """Add the records of an evicted session again.

    Args:
        ledger: the ledger that gets them.
        session: the id of the session.
        past: the fold of its entries alone.
    """
    record = past.sessions[session]
    for id_ in record.tree:
        task = past.tasks[id_]
        ledger.tasks[task.id] = task
        # Its usage of shared budgets is booked already.
        task.accounts = tuple(
            ledger.accounts.setdefault(account.id, account) for account in task.accounts
        )
    record.accounts = tuple(
        ledger.accounts.setdefault(account.id, account) for account in record.accounts
    )
    ledger.unstartable.update(past.unstartable)
    ledger.sessions[session] = record
