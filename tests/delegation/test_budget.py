"""However many reserve and spend at once, no budget is ever passed."""

import random
from collections.abc import Sequence
from typing import Any, Final

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from orchestrator.agents import Budget, Usage
from orchestrator.delegation import Account, Grant, OverBudgetError, Reserved, fits_budget
from orchestrator.delegation.amounts import Amounts

amounts = st.none() | st.integers(0, 30)
budgets = st.builds(
    Budget,
    usd=amounts.map(lambda cost: None if cost is None else cost / 1_000_000),
    tokens=amounts,
    calls=st.none() | st.integers(0, 6),
    name=st.sampled_from(["", "small"]),
)
quotes = st.builds(
    Usage,
    calls=st.just(1),
    input_tokens=st.integers(0, 6),
    output_tokens=st.integers(0, 6),
    micro_usd=st.integers(0, 12),
    unpriced=st.sampled_from([0, 0, 0, 1]),
)
shares = st.floats(0, 1)


def account_of(budget: Budget, path: str = "/editor", depth: int = 0) -> Account:
    return Account(Grant(f"of {path}", budget), path=path, depth=depth, started_at=100.0)


@attrs.define(eq=False)
class Book:
    """An account, what is reserved on it, and simple books of both."""

    account: Account
    reserved: Reserved = attrs.field(factory=Reserved)
    spent: list[Usage] = attrs.field(factory=list[Usage])
    open: list[Usage] = attrs.field(factory=list[Usage])

    def limits(self) -> dict[str, int | None]:
        usd = self.account.budget.usd
        return {
            "calls": self.account.budget.calls,
            "tokens": self.account.budget.tokens,
            "usd": None if usd is None else round(usd * 1_000_000),
        }

    def over(self, *usages: Sequence[Usage]) -> set[str]:
        """Return what there would not be enough of for all of these."""
        every = [usage for some in usages for usage in some]
        sums = {
            "calls": len(every),
            "tokens": sum(usage.tokens for usage in every),
            "usd": sum(usage.micro_usd for usage in every),
        }
        return {
            what
            for what, limit in self.limits().items()
            if limit is not None and sums[what] > limit
        }


@attrs.define(eq=False)
class Call:
    """A model call under way, and the accounts that pay for it."""

    chain: list[Book]
    quote: Usage


class Spending(RuleBasedStateMachine):
    """Calls are quoted, reserved on a chain of accounts, made and paid for."""

    @initialize(of_chain=st.lists(budgets, min_size=1, max_size=4))
    def begin(self, of_chain: list[Budget]) -> None:
        self.books = [
            Book(account_of(budget, path="/editor" + "/sub" * depth, depth=depth))
            for depth, budget in enumerate(of_chain)
        ]
        self.calls: list[Call] = []
        self.refused: list[tuple[Book, Usage, str]] = []

    @rule(quote=quotes, depth=st.integers(0, 3))
    def ask(self, quote: Usage, depth: int) -> None:
        chain = self.books[: depth + 1]
        for book in chain:
            try:
                fits = fits_budget(book.account, book.reserved, quote)
            except OverBudgetError as exc:
                self.check_refusal(book, quote, exc)
                return
            assert not book.over(book.spent, [quote]), "told to wait for nothing"
            assert fits is not bool(book.over(book.spent, book.open, [quote]))
            if not fits:
                assert book.open, "what it waits for comes back some day"
                return
        self.calls.append(Call(chain, quote))
        for book in chain:
            book.reserved.add(quote)
            book.open.append(quote)

    def check_refusal(self, book: Book, quote: Usage, exc: OverBudgetError) -> None:
        nobody_knows = quote.unpriced and book.account.budget.usd is not None
        ran_out = book.over(book.spent, [quote]) | ({"usd"} if nobody_knows else set())
        assert exc.ran_out in ran_out
        assert str(book.account.budget) in str(exc)
        assert f" of {book.account.path} " in str(exc)
        self.refused.append((book, quote, exc.ran_out))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), read=shares, written=shares, paid=shares)
    def settle(self, data: st.DataObject, read: float, written: float, paid: float) -> None:
        """A reservation is released, and the usage is booked: a part, or all of it."""
        call = data.draw(st.sampled_from(self.calls))
        self.calls.remove(call)
        used = Usage(
            calls=1,
            input_tokens=int(read * call.quote.input_tokens),
            output_tokens=int(written * call.quote.output_tokens),
            micro_usd=int(paid * call.quote.micro_usd),
            unpriced=call.quote.unpriced,
        )
        for book in call.chain:
            book.reserved.release(call.quote)
            book.open.remove(call.quote)
            book.account.book(used)
            book.spent.append(used)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """It was never made."""
        call = data.draw(st.sampled_from(self.calls))
        self.calls.remove(call)
        for book in call.chain:
            book.reserved.release(call.quote)
            book.open.remove(call.quote)

    @invariant()
    def no_budget_is_ever_passed(self) -> None:
        for book in self.books:
            assert not book.over(book.spent)
            assert not book.over(book.spent, book.open)

    @invariant()
    def accounts_are_sums(self) -> None:
        for book in self.books:
            used, reserved = book.account.used, book.reserved.amounts
            assert (used.calls, used.tokens, used.micro_usd) == totals(book.spent)
            assert (reserved.calls, reserved.tokens, reserved.micro_usd) == totals(book.open)

    @invariant()
    def who_was_refused_would_never_have_been_admitted(self) -> None:
        for book, quote, _ in self.refused:
            with pytest.raises(OverBudgetError):
                fits_budget(book.account, Reserved(), quote)


def totals(usages: Sequence[Usage]) -> tuple[int, int, int]:
    return (
        len(usages),
        sum(usage.tokens for usage in usages),
        sum(usage.micro_usd for usage in usages),
    )


def test_reservations_and_spending_never_pass_a_budget() -> None:
    """A waiting call waits for a reservation; a refused call could never fit."""
    run_state_machine_as_test(Spending, settings=settings(stateful_step_count=40))


FIVE_CALLS: Final = Budget(calls=5)
A_CALL: Final = Usage(calls=1, input_tokens=2, output_tokens=1, micro_usd=10)


@pytest.mark.parametrize("tasks", [8, 1_000])
def test_a_budget_of_five_calls_allows_exactly_five(tasks: int) -> None:
    """All of them ask at once, and then end in any order."""
    account, reserved = account_of(FIVE_CALLS), Reserved()
    admitted = 0
    for _ in range(tasks):
        if fits_budget(account, reserved, A_CALL):
            reserved.add(A_CALL)
            admitted += 1
    for _ in range(admitted):
        reserved.release(A_CALL)
        account.book(A_CALL)

    assert admitted == account.used.calls == 5
    assert reserved == Reserved()
    with pytest.raises(OverBudgetError, match="is used up: 5 model calls made"):
        fits_budget(account, reserved, A_CALL)


@pytest.mark.parametrize(
    ("budget", "spent", "quote", "ran_out", "sentence"),
    [
        pytest.param(
            FIVE_CALLS,
            [A_CALL] * 5,
            A_CALL,
            "calls",
            "the budget (calls=5) of /editor is used up: 5 model calls made",
            id="calls",
        ),
        pytest.param(
            Budget(tokens=5, name="small"),
            [A_CALL],
            A_CALL,
            "tokens",
            "the budget 'small' (tokens=5) of /editor is used up: 3 tokens, and the next call"
            " may use 3 tokens",
            id="tokens",
        ),
        pytest.param(
            Budget(usd=0.015, calls=9),
            [replace(A_CALL, micro_usd=10_000)],
            replace(A_CALL, micro_usd=5_001),
            "usd",
            "the budget (usd=0.015, calls=9) of /editor is used up: $0.0100, and the next call"
            " may cost $0.0050",
            id="money",
        ),
        pytest.param(
            Budget(tokens=2),
            [],
            A_CALL,
            "tokens",
            "the budget (tokens=2) of /editor cannot pay for its first call, which may use 3"
            " tokens",
            id="tokens of the first call",
        ),
        pytest.param(
            Budget(usd=0.001),
            [],
            replace(A_CALL, micro_usd=5_001),
            "usd",
            "the budget (usd=0.001) of /editor cannot pay for its first call, which may cost"
            " $0.0050",
            id="money of the first call",
        ),
        pytest.param(
            Budget(usd=1),
            [],
            replace(A_CALL, micro_usd=0, unpriced=1),
            "usd",
            "the budget (usd=1) of /editor cannot be kept: the price of the next call"
            " is unknown; give it with open_orchestrator(models=Models(prices=...)), with"
            " orchestrator.models.with_prices(model, table), or as 'price' of its service in"
            " models.toml; or limit tokens in place of usd",
            id="an unknown price",
        ),
    ],
)
def test_a_refusal_names_the_exhausted_limit_the_budget_and_the_path(
    *, budget: Budget, spent: list[Usage], quote: Usage, ran_out: str, sentence: str
) -> None:
    """The reader knows which number to change, and where."""
    account = account_of(budget)
    for usage in spent:
        account.book(usage)

    with pytest.raises(OverBudgetError) as refused:
        fits_budget(account, Reserved(), quote)
    assert str(refused.value) == sentence
    assert refused.value.ran_out == ran_out


@pytest.mark.parametrize("nothing", [{"calls": 0}, {"tokens": 0}, {"usd": 0}])
def test_a_budget_of_zero_pays_for_no_call(nothing: dict[str, Any]) -> None:
    """0 means none at all."""
    with pytest.raises(OverBudgetError):
        fits_budget(account_of(Budget(**nothing)), Reserved(), A_CALL)


@pytest.mark.parametrize("name", Amounts.__struct_fields__)
def test_amounts_add_and_subtract_every_field(name: str) -> None:
    two, three = Amounts(**{name: 2}), Amounts(**{name: 3})

    assert two + three == Amounts(**{name: 5})
    assert three - two == Amounts(**{name: 1})


def test_a_budget_is_used_to_the_last_bit() -> None:
    """The limit is the last number that is allowed, of money too."""
    account = account_of(Budget(calls=3, tokens=9, usd=0.00003))
    for _ in range(3):
        assert fits_budget(account, Reserved(), A_CALL)
        account.book(A_CALL)

    assert account.used == Amounts(calls=3, tokens=9, micro_usd=30)


def test_a_budget_without_a_limit_has_room_for_all() -> None:
    dear = Usage(calls=1, input_tokens=10**9, micro_usd=10**12, unpriced=1)

    reserved = Reserved(Amounts(calls=9, tokens=10**9, micro_usd=10**12))
    assert fits_budget(account_of(Budget()), reserved, dear)


def test_a_call_uses_neither_seconds_nor_levels_nor_tasks() -> None:
    account = account_of(Budget(seconds=0, depth=0, tasks=0))

    assert fits_budget(account, Reserved(), A_CALL)


def test_money_does_not_drift() -> None:
    """A cent is exactly ten thousand micro-dollars."""
    account = account_of(Budget(usd=0.1 + 0.2))
    parts = [100_000, 200_000]
    random.Random(1).shuffle(parts)
    for cost in parts:
        quote = replace(A_CALL, micro_usd=cost)
        assert fits_budget(account, Reserved(), quote)
        account.book(quote)

    with pytest.raises(OverBudgetError):
        fits_budget(account, Reserved(), replace(A_CALL, micro_usd=1))


@pytest.mark.parametrize(("seconds", "deadline"), [(None, None), (0, 100.0), (2.5, 102.5)])
def test_time_is_counted_from_when_the_budget_was_set(
    seconds: float | None, deadline: float | None
) -> None:
    """It is one deadline for all who share it."""
    assert account_of(Budget(seconds=seconds)).deadline == deadline
