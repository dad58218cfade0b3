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
    Model,
    ModelError,
    ModelRequest,
    Queued,
    Usage,
)
from agents.models.usage_bound import quote
from delegation import (
    Account,
    OverBudgetError,
    Reserved,
    TaskId,
    TaskRecord,
    fits_budget,
)
from delegation.events import ModelFailed, ModelFailure
from orchestrator.errors import error_text
from orchestrator.journal.bookkeeper import Bookkeeper

LONGEST_ANSWER: Final = 16_384
SHORTEST_ANSWER: Final = 256
"""Whoever cannot pay for this many tokens of an answer is not asked at all."""
ONE_CALL: Final = Usage(calls=1)


class Reservations:
    """What is reserved on all accounts now, and who waits for it to come back."""

    def __init__(self, book: Bookkeeper) -> None:
        self.book = book
        self._reserved: dict[str, Reserved] = {}
        self._waiting: dict[str, dict[_Reservation, None]] = {}
        self._unrecorded_calls: dict[TaskId, Sequence[Account]] = {}
        """The tasks whose call is over and not booked yet, and what it was paid from."""
        self._unrecorded_usage: dict[TaskId, Usage] = {}
        """Those of them whose model has answered, and what that has used."""

    def budgeted_model(self, task: TaskRecord, model: Model) -> Model:
        """Return a model whose every call is paid for by the budgets of a task."""
        return _BudgetedModel(model, task, self) if task.accounts else model

    def call_ended(
        self, task: TaskRecord, paid_from: Sequence[Account], cost: Usage
    ) -> None:
        """Give back what a call had reserved. Nobody gets it before the call is booked."""
        self._release(paid_from, cost)
        self._unrecorded_calls[task.id] = paid_from

    def call_answered(self, task: TaskRecord, answer: AssistantMessage) -> None:
        usage = getattr(answer, "usage", None)
        self._unrecorded_usage[task.id] = (
            usage if isinstance(usage, Usage) else ONE_CALL
        )

    def call_recorded(self, task: TaskId) -> None:
        """Let those go on whom it helps that a call has been booked."""
        self._unrecorded_usage.pop(task, None)
        for account in self._unrecorded_calls.pop(task, ()):
            self._retry_waiters(account)

    def record_lost_answer(self, task: TaskId) -> None:
        """Book the call of a task whose answer could not be kept."""
        if task in self._unrecorded_usage:
            usage = self._unrecorded_usage[task]
            self.book.post(
                ModelFailed(
                    task,
                    "its answer cannot be kept",
                    usage,
                    ModelFailure.UNRECORDABLE,
                )
            )

    def reserved_on(self, account: Account) -> Reserved:
        return self._reserved.setdefault(account.id, Reserved())

    def add_waiter(self, account: Account, reservation: "_Reservation") -> None:
        self._waiting.setdefault(account.id, {})[reservation] = None

    def remove_waiter(self, account: Account, reservation: "_Reservation") -> None:
        self._waiting[account.id].pop(reservation, None)
        if not self._waiting[account.id]:
            del self._waiting[account.id]

    def cancel_reservation(self, accounts: Sequence[Account], cost: Usage) -> None:
        """Give back what was reserved for a call that was never made."""
        self._release(accounts, cost)
        for account in accounts:
            self._retry_waiters(account)

    def _release(self, accounts: Sequence[Account], cost: Usage) -> None:
        for account in accounts:
            reserved = self.reserved_on(account)
            reserved.release(cost)
            if not reserved.calls:
                del self._reserved[account.id]

    def _retry_waiters(self, account: Account) -> None:
        """Let those go on who wait at an account, the first first, as far as it helps."""
        for purchase in list(self._waiting.get(account.id, ())):
            purchase.try_reserve()


class _Reservation:
    """One call that is to be paid for."""

    def __init__(
        self,
        reservations: Reservations,
        accounts: Sequence[Account],
        model: Model,
        request: ModelRequest,
    ) -> None:
        self._reservations = reservations
        self._accounts = accounts
        self._model = model
        self._request = request
        self._is_counted = any(
            account.budget.tokens is not None or account.budget.usd is not None
            for account in accounts
        )
        self._quotes: dict[int, Usage] = {}
        self._waiting_on: Account | None = None
        self._decided = trio.Event()
        self._problem: OverBudgetError | None = None
        self.cost: Usage | None = None
        """What it may use at most, once that is reserved."""
        self.capped_by: OverBudgetError | None = None
        """Why its answer may not be as long as others'."""

    async def wait_reserved(self) -> Usage:
        """Wait until it can be paid for, and return what it may use at most."""
        self.try_reserve()
        if not self._decided.is_set():
            self._request.tell(Queued(True))
        try:
            await self._decided.wait()
        except trio.Cancelled:
            if self.cost is not None:
                self._reservations.cancel_reservation(self._accounts, self.cost)
            raise
        finally:
            self._stop_waiting()
        self._request.tell(Queued(False))
        if self.cost is None:
            assert self._problem is not None, "it is paid for, or it cannot be"
            raise self._problem
        return self.cost

    def try_reserve(self) -> None:
        """Reserve what it needs if that is there, or find out that it never will be."""
        self._stop_waiting()
        try:
            cost = self._affordable()
            full = self._blocking_account(cost)
        except OverBudgetError as exc:
            self._problem = exc
            self._decided.set()
            return
        if full is not None:
            self._waiting_on = full
            self._reservations.add_waiter(full, self)
            return
        for account in self._accounts:
            self._reservations.reserved_on(account).add(cost)
        self.cost = cost
        self._decided.set()

    def _stop_waiting(self) -> None:
        if self._waiting_on is not None:
            self._reservations.remove_waiter(self._waiting_on, self)
            self._waiting_on = None

    def _blocking_account(self, cost: Usage) -> Account | None:
        for account in self._accounts:
            reserved = self._reservations.reserved_on(account)
            if not fits_budget(account, reserved, cost):
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
                self._blocking_account(cost)
            except OverBudgetError as exc:
                if length <= SHORTEST_ANSWER:
                    raise
                self.capped_by = exc
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


class _BudgetedModel:
    def __init__(
        self, model: Model, task: TaskRecord, reservations: Reservations
    ) -> None:
        self.name = model.name
        self._model = model
        self._task = task
        self._reservations = reservations

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # Those of this very turn: the next one may be paid for by others.
        accounts = self._task.accounts
        purchase = _Reservation(self._reservations, accounts, self._model, request)
        reserved = await purchase.wait_reserved()
        if cap := reserved.output_tokens:
            request = attrs.evolve(request, max_output=cap)
        try:
            answer = await self._model.answer(request)
        except ModelError as exc:
            if exc.kind is not Failure.CUT_OFF or purchase.capped_by is None:
                raise
            self._post_failed(
                ModelFailure.CUT_OFF, error_text(exc), exc.usage or ONE_CALL
            )
            raise _cut_off(purchase.capped_by, cap, exc) from exc
        except BaseException:
            # Of a call that was broken off nobody says what it has used: it has read, at most,
            # all that it was sent.
            self._post_failed(
                ModelFailure.BROKEN_OFF,
                "it was broken off",
                self._input_usage(request, reserved),
            )
            raise
        finally:
            self._reservations.call_ended(self._task, accounts, reserved)
        self._reservations.call_answered(self._task, answer)
        return answer

    def _input_usage(self, request: ModelRequest, reserved: Usage) -> Usage:
        if not reserved.output_tokens:
            return ONE_CALL
        return quote(self._model, request, answer_tokens=0)

    def _post_failed(self, reason: ModelFailure, error: str, usage: Usage) -> None:
        if not self._reservations.book.closed:
            self._reservations.book.post(
                ModelFailed(self._task.id, error, usage, reason)
            )


def _cut_off(tightest: OverBudgetError, cap: int, exc: ModelError) -> OverBudgetError:
    """Return why an answer is cut off: a longer one could not be paid for."""
    problem = f"is used up: it paid for {cap} tokens of an answer that is longer"
    return OverBudgetError(
        tightest.account, tightest.ran_out, problem, partial=exc.partial
    )
