"""The fold of budgets: the accounts of tasks, and their bookings."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import UNSET

from orchestrator.agents import Usage
from orchestrator.delegation.amounts import ONE_TASK
from orchestrator.delegation.budget import Account
from orchestrator.delegation.events import WaitSpan
from orchestrator.delegation.ledger.session_record import SessionRecord
from orchestrator.delegation.ledger.task_record import TaskRecord
from orchestrator.delegation.task import Grant, TaskRequest

if TYPE_CHECKING:
    from orchestrator.delegation.ledger.ledger import Ledger


def open_accounts(
    ledger: "Ledger", record: TaskRecord, parent: TaskRecord, request: TaskRequest, at: float
) -> None:
    """Give a task the accounts of its parent, and its own."""
    record.accounts = accounts_under(ledger, parent, request.grants, at)
    session = ledger.sessions[record.session]
    for account in record.accounts:
        account.used += ONE_TASK
        session.own_account(account).used += ONE_TASK
    if request.budget is not None:
        # Its own budget counts the tasks that it delegates: it is not one of its own tasks.
        own = Grant(request.id, request.budget)
        record.accounts = accounts_under(ledger, record, (own,), at)


def accounts_under(
    ledger: "Ledger", task: TaskRecord, grants: Iterable[Grant], at: float
) -> tuple[Account, ...]:
    """Return the accounts of a task and of these budgets, each once."""
    accounts = task.accounts
    for grant in grants:
        if grant.id not in ledger.accounts:
            ledger.accounts[grant.id] = Account(
                grant, path=task.path, depth=task.depth, started_at=at
            )
        account = ledger.accounts[grant.id]
        if account.is_common and account.budget != grant.budget:
            account.change_budget(grant.budget)
        if account not in accounts:
            accounts = (*accounts, account)
    return accounts


def book(
    ledger: "Ledger", record: TaskRecord, usage: Usage, charged: Usage | None, waited: WaitSpan
) -> None:
    """Book the usage of a model call on the accounts of its task, and its wait for the provider.

    Its tree shows `usage`; the accounts are charged with `charged`, if the real usage may be higher
    than the known one.
    """
    session = ledger.sessions[record.session]
    session.tree.add_usage(record.id, usage)
    if waited is not UNSET:
        session.tree.add_provider_wait(record.id, waited)
    for account in record.accounts:
        for booked in (account, session.own_account(account)):
            if charged is None:
                booked.book(usage)
            else:
                booked.charge(charged)


def charge_open_call(session: SessionRecord, record: TaskRecord) -> None:
    """Charge the accounts of a task for a call without an end: it may have used its whole
    reservation.

    The tree does not show it, because the real usage is unknown.
    """
    assert record.reserved is not None, "a call is under way"
    for account in record.accounts:
        account.charge(record.reserved)
        session.own_account(account).charge(record.reserved)
    record.reserved = None


def postpone_deadlines(session: SessionRecord, tasks: Iterable[TaskRecord], seconds: float) -> None:
    """Let the seconds of the budgets of some tasks of a session begin so much later.

    A budget that several sessions share was paused for the longest of their pauses, not for all of
    them one after the other.
    """
    accounts = {account.id: account for it in tasks for account in it.accounts}
    for account in accounts.values():
        own = session.own_accounts.get(account.id)
        if own is not None:
            own.started_at += seconds
            account.started_at = max(account.started_at, own.started_at)
        elif not account.is_shared:
            account.started_at += seconds
