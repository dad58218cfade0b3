"""Reserving before a model is asked, and giving back what it did not use.

A call that does not fit now waits if what others have reserved may come back, and ends its task
if not. The output is capped by what can be paid for, so no answer goes beyond a budget.
"""

from collections.abc import Sequence
from typing import Final

import attrs
import trio

from agents import (
    AssistantMessage,
    Failure,
    InLine,
    Model,
    ModelError,
    ModelRequest,
    Usage,
)
from agents.models.quote import quote
from delegation import Account, OverBudgetError, Reserved, TaskRecord, has_room_for
from delegation.events import ModelFailed
from orchestrator.bookkeeper import Bookkeeper

LONGEST_ANSWER: Final = 16_384
SHORTEST_ANSWER: Final = 256
"""Whoever cannot pay for this many tokens of an answer is not asked at all."""
ONE_CALL: Final = Usage(calls=1)


class Spending:
    """What is reserved on all accounts now."""

    def __init__(self, book: Bookkeeper) -> None:
        self._book = book
        self._reserved: dict[str, _Reserve] = {}

    def paid_by(self, task: TaskRecord, model: Model) -> Model:
        """Return a model whose every call is paid for by the budgets of a task."""
        return _PaidModel(model, task, self, self._book) if task.accounts else model

    def on(self, account: Account) -> "_Reserve":
        if account.id not in self._reserved:
            self._reserved[account.id] = _Reserve()
        return self._reserved[account.id]


def is_counted(account: Account) -> bool:
    """Tell whether it matters for a budget how long an answer is."""
    return account.budget.tokens is not None or account.budget.usd is not None


class _Reserve:
    def __init__(self) -> None:
        self.amount = Reserved()
        self.waiting = trio.lowlevel.ParkingLot()


class _PaidModel:
    def __init__(
        self, model: Model, task: TaskRecord, spending: Spending, book: Bookkeeper
    ) -> None:
        self.name = model.name
        self._model = model
        self._task = task
        self._spending = spending
        self._book = book

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # Those of this very turn: the next one may be paid for by others.
        accounts = self._task.accounts
        reserved = await self._reserve(accounts, request)
        if cap := reserved.output_tokens:
            request = attrs.evolve(request, max_output=cap)
        try:
            return await self._model.answer(request)
        except trio.Cancelled:
            self._note_broken_off(reserved)
            raise
        except ModelError as exc:
            if exc.kind is not Failure.CUT_OFF or not 0 < cap < LONGEST_ANSWER:
                raise
            self._book.post(ModelFailed(self._task.id, str(exc), exc.usage or ONE_CALL))
            raise self._cut_off(accounts, cap) from exc
        finally:
            # Whoever gets the answer books it before anybody else has a chance to spend this.
            for account in accounts:
                self._spending.on(account).amount.release(reserved)
                self._spending.on(account).waiting.unpark()

    def _cut_off(self, accounts: Sequence[Account], cap: int) -> OverBudgetError:
        """Return why an answer is cut off: a longer one could not be paid for."""
        account = next(it for it in accounts if is_counted(it))
        ran_out = "tokens" if account.budget.usd is None else "usd"
        problem = f"is used up: it paid for {cap} tokens of an answer that is longer"
        return OverBudgetError(account, ran_out, problem)

    def _note_broken_off(self, reserved: Usage) -> None:
        """Count a call that was made, and of which nobody will say what it has used."""
        if not self._book.closed:
            is_free = not (reserved.cost or reserved.unpriced)
            usage = Usage(calls=1, unpriced=0 if is_free else 1)
            self._book.post(ModelFailed(self._task.id, "it was broken off", usage))

    async def _reserve(
        self, accounts: Sequence[Account], request: ModelRequest
    ) -> Usage:
        """Wait until a call can be paid for, and return what it may use at most."""
        await trio.lowlevel.checkpoint()
        has_price = any(map(is_counted, accounts))
        parked: trio.lowlevel.ParkingLot | None = None
        try:
            while True:
                cost = self._affordable(accounts, request) if has_price else ONE_CALL
                full = self._full(accounts, cost)
                if full is None:
                    break
                if parked is None:
                    request.tell(InLine(True))
                parked = self._spending.on(full).waiting
                await parked.park()
        finally:
            if parked is not None:
                request.tell(InLine(False))
                # The next one may need less, or may have to know that nothing is left.
                parked.unpark()
        for account in accounts:
            self._on(account).add(cost)
        return cost

    def _full(self, accounts: Sequence[Account], cost: Usage) -> Account | None:
        for account in accounts:
            if not has_room_for(account, self._on(account), cost):
                return account
        return None

    def _affordable(self, accounts: Sequence[Account], request: ModelRequest) -> Usage:
        """Return what a call may use with the longest answer that can still be paid for."""
        length = LONGEST_ANSWER
        while True:
            cost = quote(self._model, request, answer_tokens=length)
            try:
                for account in accounts:
                    has_room_for(account, self._on(account), cost)
            except OverBudgetError:
                if length <= SHORTEST_ANSWER:
                    raise
                length //= 2
            else:
                return cost

    def _on(self, account: Account) -> Reserved:
        return self._spending.on(account).amount
