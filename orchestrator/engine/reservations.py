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
from agents.models.usage_bound import quote
from delegation import (
    Account,
    OverBudgetError,
    Reserved,
    TaskId,
    TaskRecord,
    has_room_for,
)
from delegation.events import ModelFailed
from orchestrator.errors import words_of
from orchestrator.journal.bookkeeper import Bookkeeper

LONGEST_ANSWER: Final = 16_384
SHORTEST_ANSWER: Final = 256
"""Whoever cannot pay for this many tokens of an answer is not asked at all."""
ONE_CALL: Final = Usage(calls=1)


class Spending:
    """What is reserved on all accounts now, and who waits for it to come back."""

    def __init__(self, book: Bookkeeper) -> None:
        self.book = book
        self._reserved: dict[str, Reserved] = {}
        self._waiting: dict[str, dict[_Purchase, None]] = {}
        self._unbooked: dict[TaskId, Sequence[Account]] = {}
        """The tasks whose call is over and not booked yet, and what it was paid from."""
        self._unheard: dict[TaskId, Usage] = {}
        """Those of them whose model has answered, and what that has used."""

    def paid_by(self, task: TaskRecord, model: Model) -> Model:
        """Return a model whose every call is paid for by the budgets of a task."""
        return _PaidModel(model, task, self) if task.accounts else model

    def call_ended(
        self, task: TaskRecord, paid_from: Sequence[Account], cost: Usage
    ) -> None:
        """Give back what a call had reserved. Nobody gets it before the call is booked."""
        self._release(paid_from, cost)
        self._unbooked[task.id] = paid_from

    def answered(self, task: TaskRecord, answer: AssistantMessage) -> None:
        usage = getattr(answer, "usage", None)
        self._unheard[task.id] = usage if isinstance(usage, Usage) else ONE_CALL

    def booked(self, task: TaskId) -> None:
        """Let those go on whom it helps that a call has been booked."""
        self._unheard.pop(task, None)
        for account in self._unbooked.pop(task, ()):
            self._look_again(account)

    def book_unheard(self, task: TaskId) -> None:
        """Book the call of a task whose answer could not be kept."""
        if task in self._unheard:
            usage = self._unheard[task]
            self.book.post(ModelFailed(task, "its answer cannot be kept", usage))

    def reserved_on(self, account: Account) -> Reserved:
        return self._reserved.setdefault(account.id, Reserved())

    def wait_at(self, account: Account, purchase: "_Purchase") -> None:
        self._waiting.setdefault(account.id, {})[purchase] = None

    def leave(self, account: Account, purchase: "_Purchase") -> None:
        self._waiting[account.id].pop(purchase, None)
        if not self._waiting[account.id]:
            del self._waiting[account.id]

    def give_back(self, accounts: Sequence[Account], cost: Usage) -> None:
        """Give back what was reserved for a call that was never made."""
        self._release(accounts, cost)
        for account in accounts:
            self._look_again(account)

    def _release(self, accounts: Sequence[Account], cost: Usage) -> None:
        for account in accounts:
            reserved = self.reserved_on(account)
            reserved.release(cost)
            if not reserved.calls:
                del self._reserved[account.id]

    def _look_again(self, account: Account) -> None:
        """Let those go on who wait at an account, the first first, as far as it helps."""
        for purchase in list(self._waiting.get(account.id, ())):
            purchase.look()


class _Purchase:
    """One call that is to be paid for."""

    def __init__(
        self,
        spending: Spending,
        accounts: Sequence[Account],
        model: Model,
        request: ModelRequest,
    ) -> None:
        self._spending = spending
        self._accounts = accounts
        self._model = model
        self._request = request
        self._is_counted = any(
            account.budget.tokens is not None or account.budget.usd is not None
            for account in accounts
        )
        self._quotes: dict[int, Usage] = {}
        self._waits_at: Account | None = None
        self._over = trio.Event()
        self._problem: OverBudgetError | None = None
        self.cost: Usage | None = None
        """What it may use at most, once that is reserved."""
        self.tightest: OverBudgetError | None = None
        """Why its answer may not be as long as others'."""

    async def wait_paid(self) -> Usage:
        """Wait until it can be paid for, and return what it may use at most."""
        self.look()
        if not self._over.is_set():
            self._request.tell(InLine(True))
        try:
            await self._over.wait()
        except trio.Cancelled:
            if self.cost is not None:
                self._spending.give_back(self._accounts, self.cost)
            raise
        finally:
            self._stop_waiting()
        self._request.tell(InLine(False))
        if self.cost is None:
            assert self._problem is not None, "it is paid for, or it cannot be"
            raise self._problem
        return self.cost

    def look(self) -> None:
        """Reserve what it needs if that is there, or find out that it never will be."""
        self._stop_waiting()
        try:
            cost = self._affordable()
            full = self._full(cost)
        except OverBudgetError as exc:
            self._problem = exc
            self._over.set()
            return
        if full is not None:
            self._waits_at = full
            self._spending.wait_at(full, self)
            return
        for account in self._accounts:
            self._spending.reserved_on(account).add(cost)
        self.cost = cost
        self._over.set()

    def _stop_waiting(self) -> None:
        if self._waits_at is not None:
            self._spending.leave(self._waits_at, self)
            self._waits_at = None

    def _full(self, cost: Usage) -> Account | None:
        for account in self._accounts:
            reserved = self._spending.reserved_on(account)
            if not has_room_for(account, reserved, cost):
                return account
        return None

    def _affordable(self) -> Usage:
        """Return what it may use with the longest answer that can still be paid for."""
        if not self._is_counted:
            return ONE_CALL
        length = LONGEST_ANSWER
        while True:
            cost = self._quote(length)
            try:
                self._full(cost)
            except OverBudgetError as exc:
                if length <= SHORTEST_ANSWER:
                    raise
                self.tightest = exc
                length //= 2
            else:
                return cost

    def _quote(self, length: int) -> Usage:
        # Kept: whoever waits is looked at often, and to count what is read takes time.
        if length not in self._quotes:
            self._quotes[length] = quote(
                self._model, self._request, answer_tokens=length
            )
        return self._quotes[length]


class _PaidModel:
    def __init__(self, model: Model, task: TaskRecord, spending: Spending) -> None:
        self.name = model.name
        self._model = model
        self._task = task
        self._spending = spending

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # Those of this very turn: the next one may be paid for by others.
        accounts = self._task.accounts
        purchase = _Purchase(self._spending, accounts, self._model, request)
        reserved = await purchase.wait_paid()
        if cap := reserved.output_tokens:
            request = attrs.evolve(request, max_output=cap)
        try:
            answer = await self._model.answer(request)
        except ModelError as exc:
            if exc.kind is not Failure.CUT_OFF or purchase.tightest is None:
                raise
            self._book(words_of(exc), exc.usage or ONE_CALL)
            raise _cut_off(purchase.tightest, cap, exc) from exc
        except BaseException:
            # Of a call that was broken off nobody says what it has used: it has read, at most,
            # all that it was sent.
            self._book("it was broken off", self._read_by(request, reserved))
            raise
        finally:
            self._spending.call_ended(self._task, accounts, reserved)
        self._spending.answered(self._task, answer)
        return answer

    def _read_by(self, request: ModelRequest, reserved: Usage) -> Usage:
        if not reserved.output_tokens:
            return ONE_CALL
        return quote(self._model, request, answer_tokens=0)

    def _book(self, error: str, usage: Usage) -> None:
        if not self._spending.book.closed:
            self._spending.book.post(ModelFailed(self._task.id, error, usage))


def _cut_off(tightest: OverBudgetError, cap: int, exc: ModelError) -> OverBudgetError:
    """Return why an answer is cut off: a longer one could not be paid for."""
    problem = f"is used up: it paid for {cap} tokens of an answer that is longer"
    return OverBudgetError(
        tightest.account, tightest.ran_out, problem, partial=exc.partial
    )
