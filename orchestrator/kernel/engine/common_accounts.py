"""The accounts that this journal shares with the other journals at its address.

A call is held here first, and confirmed in the store: an atomic step that counts the parts of all
journals. The usage is in the journal before the part tells it, so the part never has less than the
journal. A part is written again when a call has ended, and when a journal is opened.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from orchestrator.agents import Budget, Usage
from orchestrator.delegation import Account, OverBudgetError, Reserved
from orchestrator.delegation.amounts import NOTHING, Amounts
from orchestrator.delegation.given_budgets import GIVEN_KINDS, amount_of, in_words, limit_of
from orchestrator.kernel.common_budgets import resets_at
from orchestrator.kernel.errors import JournalError
from orchestrator.kernel.journal.accounts import Part, StoredPart, total_held, total_used
from orchestrator.loggers import logger_of

if TYPE_CHECKING:
    from orchestrator.kernel.engine.reservations import Reservation, Reservations

log = logger_of("engine")
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
"""How long a call that waits for another process pauses between two looks: no store tells that
another process has changed an account, nor that it has died.
"""
MOST_NAMED: Final = 3
"""How many journals an error names."""


class CommonAccounts:
    """The parts of this journal in common accounts, and the last known parts of the others."""

    def __init__(self, reservations: "Reservations") -> None:
        self._reservations = reservations
        self._book = reservations.book
        self._store = reservations.book.account_store
        self._confirmed: dict[str, Reserved] = {}
        """The reservations that the store knows, by account."""
        self._others: dict[str, Sequence[Part]] = {}
        """The parts of the other journals, by account."""
        self._stale: dict[str, Account] = {}
        """The accounts whose part is to be written."""
        self._changed = trio.Event()
        self._turn = trio.Lock()
        """One part is written at a time, so that a newer one is never overwritten."""
        if self._store is not None and reservations.nursery is not None:
            reservations.nursery.start_soon(self._settle_forever)

    def beside(self, account: Account, held: Reserved) -> tuple[Reserved, Amounts]:
        """Return the reservations on an account in all journals, and the usage in the others."""
        others = self._others.get(account.id, ())
        if not others:
            return held, NOTHING
        return Reserved(held.amounts + total_held(others)), total_used(others)

    def total_used(self, account: Account) -> Amounts:
        """Return the usage of an account in all journals, as far as known."""
        return account.used + total_used(self._others.get(account.id, ()))

    async def confirm(self, reservation: "Reservation") -> bool:
        """Reserve a call in all journals; if it does not fit there, release it and return False."""
        if self._store is None:
            return True  # noqa: ASYNC910 (a journal in memory is alone)
        usage = reservation.most
        confirmed: list[Account] = []
        stale: Sequence[Account] = reservation.accounts
        try:
            async with self._turn:
                for account in reservation.accounts:
                    if not account.is_common:
                        continue
                    if not await self._write(account, usage):
                        stale = confirmed
                        break
                    self._confirmed.setdefault(account.id, Reserved()).add(usage)
                    confirmed.append(account)
                else:
                    reservation.is_confirmed = True
        finally:
            # An error leaves open whether the last part was written.
            if not reservation.is_confirmed:
                for account in confirmed:
                    self._confirmed[account.id].release(usage)
                self._note_stale(stale)
                self._reservations.release(reservation)
        return reservation.is_confirmed

    def give_back(self, reservation: "Reservation", usage: Usage) -> None:
        """Release a call whose usage is in the ledger."""
        reservation.is_confirmed = False
        for account in reservation.accounts:
            if account.is_common:
                self._confirmed[account.id].release(usage)
        self._note_stale(reservation.accounts)

    def note_waiting(self) -> None:
        """Look at the other journals from now on: a call waits for one of them."""
        self._changed.set()

    def _note_stale(self, accounts: Sequence[Account]) -> None:
        self._stale |= {it.id: it for it in accounts if it.is_common}
        if self._stale:
            self._changed.set()

    async def settle(self, accounts: Sequence[Account]) -> None:
        """Write the parts of this journal."""
        await trio.lowlevel.checkpoint()
        for account in accounts if self._store is not None else ():
            async with self._turn:
                self._stale.pop(account.id, None)
                try:
                    await self._write(account)
                except BaseException:
                    self._stale[account.id] = account
                    raise

    async def settle_last(self) -> None:
        """Write the parts that are not written yet, before the journal is closed."""
        await trio.lowlevel.checkpoint()
        # A store that fails keeps the reservations until the journal is opened again.
        with suppress(JournalError):
            await self.settle(list(self._stale.values()))

    async def _settle_forever(self) -> None:
        pause = FIRST_PAUSE
        while True:
            self._changed = trio.Event()
            awaited = [it for it in self._others if self._reservations.is_awaited(it)]
            try:
                await self.settle(list(self._stale.values()))
                for account in awaited:
                    if await self._look(account):
                        pause = FIRST_PAUSE
            except JournalError as exc:
                # The parts stay too large, and the next call of each account fails.
                log.warning("a shared budget is not settled: %s", exc)
            with trio.move_on_after(pause if awaited else math.inf):
                await self._changed.wait()
            pause = min(2 * pause, LONGEST_PAUSE) if awaited else FIRST_PAUSE

    async def _look(self, account: str) -> bool:
        """Read the parts of the other journals, and return whether they have changed."""
        assert self._store is not None, "it has parts of others"
        before, others = self._others.get(account, ()), await self._store.read(account)
        self._note_others(account, others)
        return before != others

    async def require_news(self, error: OverBudgetError) -> None:
        """Raise the error of a full account, unless another journal has changed its part since."""
        await trio.lowlevel.checkpoint()
        if self._store is None or not await self._look(error.account.id):
            raise self._explained(error)

    async def _write(self, account: Account, more: Usage | None = None) -> bool:
        """Write the part of an account, with one more call if that fits; return whether it does."""
        assert self._store is not None, "others share it"
        reserved = Reserved(self._confirmed.get(account.id, Reserved()).amounts)
        if more is not None:
            reserved.add(more)
        part, budget = StoredPart(account.used, reserved.amounts), account.budget

        def fits(others: Sequence[Part]) -> bool:
            used, held = part.used + total_used(others), part.held + total_held(others)
            return more is None or _is_within(used + held, budget)

        await self._book.wait_durable()
        is_written, others = await self._store.write(account.id, part, fits)
        self._note_others(account.id, others)
        return is_written

    def _note_others(self, account: str, others: Sequence[Part]) -> None:
        before, self._others[account] = self._others.get(account, ()), others
        if before != others and self._reservations.is_awaited(account):
            self._reservations.try_waiting(account)

    def _explained(self, error: OverBudgetError) -> OverBudgetError:
        """Return the error of a common account with its users, and its next beginning."""
        account, kind = error.account, error.ran_out
        problem = error.problem
        others = [it for it in self._others.get(account.id, ()) if amount_of(it.used, kind)]
        if others:
            others.sort(key=lambda it: -amount_of(it.used, kind))
            named = [
                f"{it.journal} {in_words(amount_of(it.used, kind), kind)}"
                for it in others[:MOST_NAMED]
            ]
            if len(others) > MOST_NAMED:
                named.append(f"{len(others) - MOST_NAMED} more")
            here = in_words(amount_of(account.used, kind), kind)
            problem += f"; used here {here}, in {', '.join(named)}"
        if (moment := resets_at(account.id)) is not None:
            problem += f"; it starts again at {moment:%Y-%m-%d %H:%M} {moment.tzinfo}"
        return OverBudgetError(account, kind, problem)


def _is_within(amounts: Amounts, budget: Budget) -> bool:
    return all(
        (limit := limit_of(budget, kind)) is None or amount_of(amounts, kind) <= limit
        for kind in GIVEN_KINDS
    )
