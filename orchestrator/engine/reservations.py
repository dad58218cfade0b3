"""Reserves what a model call may use at most, before it is made.

A call that does not fit waits while other calls may give something back, and fails its task if that
cannot help. The output is capped by what is left, so no answer exceeds a budget.
"""

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

from agents import (
    AssistantMessage,
    DefinitionError,
    Failure,
    Model,
    ModelError,
    ModelRequest,
    Queued,
    Usage,
    well_formed,
)
from agents.models.usage_bound import quote
from agents.redaction.streamed_text import without_unfinished_secret
from delegation import (
    Account,
    OverBudgetError,
    Reserved,
    TaskId,
    TaskRecord,
    fits_budget,
)
from delegation.events import ModelFailed, ModelFailure
from orchestrator.engine.model_call import ModelCall
from orchestrator.errors import error_text
from orchestrator.journal.bookkeeper import Bookkeeper

LONGEST_ANSWER: Final = 16_384
SHORTEST_ANSWER: Final = 256
"""A call that cannot pay for an answer of this many tokens is not made."""
ONE_CALL: Final = Usage(calls=1)
BROKEN_OFF: Final = "it was broken off"


class Reservations:
    """What the calls under way hold on all accounts, and the calls that wait for it.

    A task has one call at a time. It is reserved, and held until the journal has what it really
    used: that it is `booked`, or has `failed`.
    """

    def __init__(self, book: Bookkeeper) -> None:
        self._book = book
        self._held: dict[str, Reserved] = {}
        self._waiting: dict[str, dict[_Reservation, None]] = {}
        """The calls that wait at an account, the first first."""
        self._open: dict[TaskId, _Reservation] = {}

    def budgeted_model(self, task: TaskRecord, model: Model) -> Model:
        """Return a model whose every call is paid for by the budgets of a task, and booked."""
        return _BookedModel(model, task, self)

    async def reserve(
        self, task: TaskRecord, model: Model, request: ModelRequest
    ) -> "_Reservation":
        """Wait until the budgets of a task can pay for a call, and hold what it may use.

        Raises:
            OverBudgetError: they never can.
        """
        # Those of this very turn: the next may be paid for by others.
        reservation = _Reservation(task.accounts, model, request)
        self._try_hold(reservation)
        if not reservation.decided.is_set():
            request.tell(Queued(True))
        try:
            await reservation.decided.wait()
        except trio.Cancelled:
            self._release(reservation)
            raise
        finally:
            self._stop_waiting(reservation)
        request.tell(Queued(False))
        if reservation.problem is not None:
            raise reservation.problem
        self._open[task.id] = reservation
        return reservation

    def booked(self, task: TaskId) -> None:
        """Give back what the call of a task held: the ledger has what it used."""
        if (reservation := self._open.pop(task, None)) is not None:
            self._release(reservation)

    def failed(
        self,
        task: TaskId,
        reason: ModelFailure,
        error: str,
        usage: Usage,
        text: str = "",
    ) -> None:
        """Book a call that has no answer, or none that can be recorded.

        Args:
            task: whose call.
            reason: why there is no answer.
            error: the same, for people.
            usage: what it has used by then.
            text: what the model had said by then.
        """
        if not self._book.closed:
            said = without_unfinished_secret(well_formed(text), self._book.redactor)
            self._book.post(ModelFailed(task, error, usage, reason, said))
        self.booked(task)

    def unbooked_usage(self, task: TaskId) -> Usage | None:
        """Return what an answer has used that is not recorded; None if there is none."""
        reservation = self._open.get(task)
        return None if reservation is None else reservation.used

    def _try_hold(self, reservation: "_Reservation") -> None:
        """Hold what a call needs, let it wait, or find that no waiting helps."""
        self._stop_waiting(reservation)
        try:
            held = reservation.affordable(self._full_account)
            full = self._full_account(reservation.accounts, held)
        except OverBudgetError as exc:
            reservation.problem = exc
            reservation.decided.set()
            return
        if full is not None:
            reservation.waits_at = full.id
            self._waiting.setdefault(full.id, {})[reservation] = None
            return
        for account in reservation.accounts:
            self._held_on(account).add(held)
        reservation.held = held
        reservation.decided.set()

    def _full_account(
        self, accounts: Sequence[Account], usage: Usage
    ) -> Account | None:
        """Return the first account on which a call does not fit now."""
        for account in accounts:
            if not fits_budget(account, self._held_on(account), usage):
                return account
        return None

    def _held_on(self, account: Account) -> Reserved:
        return self._held.setdefault(account.id, Reserved())

    def _stop_waiting(self, reservation: "_Reservation") -> None:
        if (account := reservation.waits_at) is None:
            return
        reservation.waits_at = None
        waiting = self._waiting[account]
        waiting.pop(reservation, None)
        if not waiting:
            del self._waiting[account]

    def _release(self, reservation: "_Reservation") -> None:
        """Give back what a call holds, and try the calls that wait for it, the first first."""
        if (usage := reservation.held) is None:
            return
        reservation.held = None
        for account in reservation.accounts:
            held = self._held_on(account)
            held.release(usage)
            if not held.amounts.calls:
                del self._held[account.id]
        for account in reservation.accounts:
            for waiting in list(self._waiting.get(account.id, ())):
                self._try_hold(waiting)


class _Reservation:
    """What one call may use, once that is held."""

    def __init__(
        self, accounts: Sequence[Account], model: Model, request: ModelRequest
    ) -> None:
        self.accounts = accounts
        self.decided = trio.Event()
        self.problem: OverBudgetError | None = None
        self.waits_at: str | None = None
        self.held: Usage | None = None
        """What the call may use at most."""
        self.capped_by: OverBudgetError | None = None
        """Why its answer may not be as long as others."""
        self.used: Usage | None = None
        """What the answer says that it used."""
        self._model = model
        self._request = request
        self._is_counted = any(
            account.budget.tokens is not None or account.budget.usd is not None
            for account in accounts
        )
        self._quotes: dict[int, Usage] = {}

    @property
    def max_output(self) -> int:
        """How many tokens the answer may have; 0 if they are not counted."""
        return 0 if self.held is None else self.held.output_tokens

    def affordable(
        self, full_account: Callable[[Sequence[Account], Usage], Account | None]
    ) -> Usage:
        """Return what the call may use with the longest answer that can be paid for."""
        if not self._is_counted:
            return ONE_CALL
        length = LONGEST_ANSWER
        while True:
            usage = self.quote(length)
            try:
                full_account(self.accounts, usage)
            except OverBudgetError as exc:
                if length <= SHORTEST_ANSWER:
                    raise
                self.capped_by = exc
                length //= 2
            else:
                return usage

    def quote(self, length: int) -> Usage:
        """Return what the call may use with an answer of so many tokens."""
        # Kept: a call that waits is tried often, and to count its input takes time.
        if length not in self._quotes:
            self._quotes[length] = quote(
                self._model, self._request, answer_tokens=length
            )
        return self._quotes[length]


class _BookedModel:
    """A model whose every call is reserved first, and booked whatever becomes of it."""

    def __init__(
        self, model: Model, task: TaskRecord, reservations: Reservations
    ) -> None:
        self.name = model.name
        self._model = model
        self._task = task
        self._reservations = reservations

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        task, reservations = self._task, self._reservations
        reservation = None
        if task.accounts:
            reservation = await reservations.reserve(task, self._model, request)
            if cap := reservation.max_output:
                request = attrs.evolve(request, max_output=cap)
        call = ModelCall(self._model, request)
        try:
            answer = await self._model.answer(call.request)
        except DefinitionError:
            reservations.booked(task.id)  # it could not be called
            raise
        except ModelError as exc:
            usage = call.usage_of_failure(exc.usage)
            text, error = exc.partial or call.text, error_text(exc)
            if (
                exc.kind is not Failure.CUT_OFF
                or reservation is None
                or reservation.capped_by is None
            ):
                reservations.failed(task.id, ModelFailure.FAILED, error, usage, text)
                raise
            reservations.failed(task.id, ModelFailure.CUT_OFF, error, usage, text)
            raise _cut_off(reservation.capped_by, reservation.max_output) from exc
        except Exception as exc:
            usage = call.usage_of_failure(None)
            reservations.failed(
                task.id, ModelFailure.FAILED, error_text(exc), usage, call.text
            )
            raise
        except BaseException:
            if (usage := call.usage()).calls:
                reservations.failed(
                    task.id, ModelFailure.BROKEN_OFF, BROKEN_OFF, usage, call.text
                )
            else:
                reservations.booked(task.id)  # it was never sent
            raise
        if reservation is not None:
            # A model of the user may answer anything; the turn refuses it, and it is booked so.
            used = getattr(answer, "usage", None)
            reservation.used = used if isinstance(used, Usage) else ONE_CALL
        return answer


def _cut_off(tightest: OverBudgetError, cap: int) -> OverBudgetError:
    """Return why an answer is cut off: a longer one could not be paid for."""
    problem = f"is used up: it paid for {cap} tokens of an answer that is longer"
    return OverBudgetError(tightest.account, tightest.ran_out, problem)
