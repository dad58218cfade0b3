"""The fold of budgets: the accounts of tasks, and what is booked on them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agents import Usage
from delegation.amounts import ONE_TASK
from delegation.budget import Account
from delegation.ledger.records import TaskRecord
from delegation.task import Grant, TaskRequest

if TYPE_CHECKING:
    from delegation.ledger.ledger import Ledger


def open_accounts(
    ledger: "Ledger",
    record: TaskRecord,
    parent: TaskRecord,
    request: TaskRequest,
    at: float,
) -> None:
    """Give a task the accounts of its parent, and its own."""
    record.accounts = accounts_under(ledger, parent, request.grants, at)
    session = ledger.sessions[record.session]
    for account in record.accounts:
        account.used += ONE_TASK
        session.own_account(account).used += ONE_TASK
    if request.budget is not None:
        # Its own budget counts what it delegates: it is not one of its own tasks.
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
        if account not in accounts:
            accounts = (*accounts, account)
    return accounts


def book(ledger: "Ledger", record: TaskRecord, usage: Usage) -> None:
    """Book what a task has used on all its accounts."""
    session = ledger.sessions[record.session]
    session.tree.add_usage(record.id, usage)
    for account in record.accounts:
        account.book(usage)
        session.own_account(account).book(usage)
