"""Reserves the largest possible usage of a model call, before it is made.

A call that does not fit waits while other calls may give something back, and fails its task if that
cannot help. The output is capped by the rest of the budget, so no answer exceeds it.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from orchestrator.agents import Model, ModelRequest, ModelSettings, Queued, Usage, well_formed
from orchestrator.agents.models.settings import NO_SETTINGS
from orchestrator.agents.models.usage_bound import quote
from orchestrator.agents.redaction.long_texts import search_ahead
from orchestrator.delegation import (
    Account,
    OverBudgetError,
    Reserved,
    TaskId,
    TaskRecord,
    fits_budget,
)
from orchestrator.delegation.events import (
    GivenSettings,
    ModelCalled,
    ModelFailed,
    ModelFailure,
    WaitSpan,
)
from orchestrator.kernel.engine.call_share import CallShareSlot
from orchestrator.kernel.journal.bookkeeper import Bookkeeper

if TYPE_CHECKING:
    from orchestrator.kernel.engine.common_accounts import CommonAccounts
    from orchestrator.kernel.engine.workload import Workload

LONGEST_ANSWER: Final = 16_384
SHORTEST_ANSWER: Final = 256
"""A call that cannot pay for an answer of this many tokens is not made."""
ONE_CALL: Final = Usage(calls=1)
NO_CALL: Final = Usage()
NOTHING_HELD: Final = Reserved()
"""The reservation of an account without a running call; never written."""
MOST_UNFIT: Final = 20
"""How many calls that do not fit are passed over: to try thousands at each end would take long."""


class Reservations:
    """The reservations of running calls on all accounts, and the calls that wait for one.

    A task has one call at a time. It is reserved, and held until the journal has its real usage: it
    is `booked`, or has `failed`. Both are one step, so no other call can be paid for with the same
    money in between.
    """

    def __init__(self, book: Bookkeeper) -> None:
        self.book = book
        self._held: dict[str, Reserved] = {}
        """The amounts that running calls hold, by account."""
        self._waiting: dict[str, dict[Reservation, None]] = {}
        """The calls that wait at an account, the first first."""
        self.open: Final[dict[TaskId, Reservation]] = {}
        """The reservations of running calls, by task."""
        self.call_share: Final = CallShareSlot()
        self.workload: Workload | None = None
        """The work of runs; None as long as no call may have to wait for a provider."""
        self.settings: Final[dict[TaskId, GivenSettings]] = {}
        """The settings of running calls that have any."""
        self.waits: Final[dict[TaskId, WaitSpan]] = {}
        """When the calls waited for their provider that are answered, and not recorded yet."""
        self.now: Final = book.clock
        self.common: CommonAccounts | None = None
        """The accounts that this journal shares with others; None until a call is paid by one."""
        self.nursery: trio.Nursery | None = None
        """Runs the settlement of common accounts."""

    def known_workload(self) -> "Workload":
        """Return the work of runs, which is observed from now on."""
        if self.workload is None:
            # Imported late: most programs in tests and on one machine have no provider that limits.
            from orchestrator.kernel.engine.workload import Workload

            self.workload = Workload(self.book, self.call_share)
        return self.workload

    def known_common(self) -> "CommonAccounts":
        """Return the accounts that this journal shares with others, which are settled from now."""
        if self.common is None:
            # Imported late: few programs share a budget with other processes.
            from orchestrator.kernel.engine.common_accounts import CommonAccounts

            self.common = CommonAccounts(self)
        return self.common

    def keeps_reasoning(self, task: TaskRecord) -> bool:
        """Return whether the client of a task has asked to see the reasoning of its model."""
        session = self.book.ledger.sessions[task.session]
        return session.terms.keeps_reasoning and task is session.root

    async def reserve(
        self,
        task: TaskRecord,
        model: Model,
        request: ModelRequest,
        *,
        unmade: ModelFailure = ModelFailure.BROKEN_OFF,
    ) -> "Reservation":
        """Wait until the budgets of a task can pay for a call, and reserve its largest usage.

        The reservation is durable when this returns: a process that dies during the call has paid
        for it. `unmade` is booked if the call is cancelled before it is made. Raise
        `OverBudgetError` if the budgets can never pay for it.
        """
        # The accounts of this very turn: other accounts may pay for the next one.
        reservation = Reservation(task.accounts, model, request)
        while True:
            self.try_hold(reservation)
            if not reservation.decided.is_set():
                request.tell(Queued(True))
            try:
                await reservation.decided.wait()
            except trio.Cancelled:
                self.release(reservation)
                raise
            finally:
                self.stop_waiting(reservation)
            request.tell(Queued(False))
            if (problem := reservation.problem) is not None:
                if not problem.account.is_common:
                    raise problem
                await self.known_common().require_news(problem)
            elif not reservation.is_common or await self.known_common().confirm(reservation):
                break
            # Other journals have used or reserved other amounts than was known here.
            reservation.reset()
        self.open[task.id] = reservation
        try:
            self.book.post(ModelCalled(task.id, reservation.most))
            await self.book.wait_durable()
        except BaseException:
            self.not_made(task, unmade)
            raise
        return reservation

    def note_settings(self, task: TaskId, settings: ModelSettings) -> None:
        """Remember how the model of a task is to answer, until the call is booked."""
        # Most agents have no settings, and this runs for every call.
        if settings is NO_SETTINGS or not (given := settings.as_fields()):
            self.settings.pop(task, None)
        else:
            self.settings[task] = given

    def settings_of(self, task: TaskId) -> GivenSettings:
        """Return how the model of a task is to answer in the call under way."""
        return self.settings.get(task, msgspec.UNSET)

    def charge_of(self, task: TaskId) -> Usage | None:
        """Return the usage that budgets pay for the answer of a task; None is its own usage."""
        reservation = self.open.get(task)
        return None if reservation is None else reservation.charge

    def booked(self, task: TaskId) -> None:
        """Release the reservation of a task's call: the ledger has its usage."""
        self.settings.pop(task, None)
        self.waits.pop(task, None)
        if (reservation := self.open.pop(task, None)) is not None:
            self.release(reservation)

    def not_made(self, task: TaskRecord, reason: ModelFailure = ModelFailure.BROKEN_OFF) -> None:
        """Release the reservation of a call that was not made."""
        if task.reserved is not None:
            self.failed(task.id, reason, "it was not made", NO_CALL, charged=NO_CALL)
        self.booked(task.id)

    def failed(
        self,
        task: TaskId,
        reason: ModelFailure,
        error: str,
        usage: Usage,
        text: str = "",
        *,
        charged: Usage | None = None,
        then: str = "",
        waited: WaitSpan = msgspec.UNSET,
    ) -> None:
        """Book a call without an answer, or without one that can be recorded.

        `usage` is the known usage; budgets are charged with `charged`, if it may be larger. `text`
        is the text of the model so far, and `then` the model that is called instead, if it is
        another one.
        """
        if not self.book.closed:
            # A summary is whole.
            is_whole = reason is ModelFailure.CONVERSATION
            said = well_formed(text) if is_whole else self._as_recorded(text)
            if not said.strip():
                said = ""  # blanks are no message: providers refuse one
            settings = self.settings_of(task)
            self.book.post(
                ModelFailed(task, error, usage, reason, said, charged, settings, then, waited)
            )
        self.booked(task)

    async def search_said(self, text: str) -> None:
        """Search a long text for secrets that `failed` is about to record."""
        await search_ahead(self.book.redactor, [self._as_recorded(text)])

    def _as_recorded(self, text: str) -> str:
        # Imported late: most answers are recorded whole.
        from orchestrator.agents.redaction.streamed_text import without_unfinished_secret

        return without_unfinished_secret(well_formed(text), self.book.redactor)

    def unrecordable(self, task: TaskId) -> None:
        """Book the answer of a model that could not be recorded, if a task has one."""
        if (reservation := self.open.get(task)) is not None:
            usage, charged = reservation.used, None
            if usage is None:
                usage, charged = ONE_CALL, reservation.charged(ONE_CALL)
            error = "its answer cannot be recorded"
            self.failed(task, ModelFailure.UNRECORDABLE, error, usage, charged=charged)

    def try_hold(self, reservation: "Reservation") -> None:
        """Reserve the usage of a call, let the call wait, or find that waiting cannot help."""
        try:
            held = reservation.affordable(self._full_account)
            full = self._full_account(reservation.accounts, held)
        except OverBudgetError as exc:
            self.stop_waiting(reservation)
            reservation.problem = exc
            reservation.decided.set()
            return
        if full is not None and full.id == reservation.waits_at:
            return  # it keeps its place
        self.stop_waiting(reservation)
        if full is not None:
            if full.is_common and self.common is not None:
                self.common.note_waiting()
            reservation.waits_at = full.id
            self._waiting.setdefault(full.id, {})[reservation] = None
            return
        for account in reservation.accounts:
            self._held.setdefault(account.id, Reserved()).add(held)
        reservation.held = held
        reservation.decided.set()

    def _full_account(self, accounts: Sequence[Account], usage: Usage) -> Account | None:
        """Return the first account on which a call does not fit now."""
        for account in accounts:
            held = self._held.get(account.id, NOTHING_HELD)
            if account.is_common and self.common is not None:
                held, elsewhere = self.common.beside(account, held)
                if not fits_budget(account, held, usage, elsewhere):
                    return account
            elif not fits_budget(account, held, usage):
                return account
        return None

    def stop_waiting(self, reservation: "Reservation") -> None:
        if (account := reservation.waits_at) is None:
            return
        reservation.waits_at = None
        waiting = self._waiting[account]
        waiting.pop(reservation, None)
        if not waiting:
            del self._waiting[account]

    def release(self, reservation: "Reservation") -> None:
        """Release a reservation, and try the calls that wait for it in their order."""
        if (usage := reservation.held) is None:
            return
        reservation.held = None
        if reservation.is_confirmed and self.common is not None:
            self.common.give_back(reservation, usage)
        for account in reservation.accounts:
            held = self._held[account.id]
            held.release(usage)
            if not held.amounts.calls:
                del self._held[account.id]
        for account in reservation.accounts:
            self.try_waiting(account.id)

    def is_awaited(self, account: str) -> bool:
        """Return whether a call waits at an account."""
        return account in self._waiting

    def try_waiting(self, account: str) -> None:
        """Try the calls that wait at an account, until too many of them do not fit."""
        unfit = 0
        while unfit < MOST_UNFIT:
            waiting = islice(self._waiting.get(account, ()), unfit, None)
            if (first := next(waiting, None)) is None:
                return
            self.try_hold(first)
            unfit += first.waits_at == account


class Reservation:
    """The reservation of one call."""

    def __init__(self, accounts: Sequence[Account], model: Model, request: ModelRequest) -> None:
        self.accounts = accounts
        self.decided = trio.Event()
        self.problem: OverBudgetError | None = None
        self.waits_at: str | None = None
        self.held: Usage | None = None
        """The largest possible usage of the call."""
        self.capped_by: OverBudgetError | None = None
        """Why its answer may not be as long as others."""
        self.used: Usage | None = None
        """The usage that the answer reports, before it is recorded."""
        self.charge: Usage | None = None
        """The usage that budgets are charged with, if the answer does not report its usage."""
        self.is_common = False
        """Other journals book on one of its accounts."""
        self.is_confirmed = False
        """They know of it."""
        self._model = model
        self._request = request
        self._is_counted = False
        for account in accounts:
            if account.budget.tokens is not None or account.budget.usd is not None:
                self._is_counted = True
            if account.is_common:
                self.is_common = True
        self._quotes: dict[int, Usage] = {}

    def reset(self) -> None:
        """Let it be decided anew."""
        self.decided = trio.Event()
        self.problem = self.capped_by = None

    @property
    def most(self) -> Usage:
        """The largest possible usage of the call."""
        assert self.held is not None, "it is held"
        return self.held

    @property
    def max_output(self) -> int:
        """How many tokens the answer may have; 0 if they are not counted."""
        return 0 if self.held is None else self.held.output_tokens

    def affordable(
        self, full_account: Callable[[Sequence[Account], Usage], Account | None]
    ) -> Usage:
        """Return the usage of the call with the longest answer that the budgets can pay for."""
        if not self._is_counted:
            return ONE_CALL
        # An agent may allow longer answers, or limit them.
        length = self._request.max_output or LONGEST_ANSWER
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
        """Return the usage of the call with an answer of this many tokens."""
        # Kept: a call that waits is tried often, and to count its input takes time.
        if length not in self._quotes:
            self._quotes[length] = quote(self._model, self._request, answer_tokens=length)
        return self._quotes[length]

    def charged(self, usage: Usage) -> Usage | None:
        """Return the usage that budgets are charged with if only a part of it is known.

        None charges the known part: no budget limits tokens or dollars.
        """
        if not self._is_counted:
            return None
        most = self.most
        return Usage(
            calls=max(1, usage.calls),
            input_tokens=max(most.input_tokens, usage.input_tokens),
            output_tokens=max(most.output_tokens, usage.output_tokens),
            micro_usd=max(most.micro_usd, usage.micro_usd),
        )
