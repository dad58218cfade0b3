"""Every address: an account has one part of each journal, written whole and only if it fits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator import JournalInUseError
from orchestrator.backends import journals_at
from orchestrator.delegation.amounts import NOTHING, Amounts
from orchestrator.kernel.journal.accounts import AccountStore, Part, StoredPart
from orchestrator.kernel.journal.journal import Journal
from orchestrator.kernel.journal.journals import Journals

pytestmark = pytest.mark.realtime

ONE, TWO = "journal-2.db", "journal-3.db"
CALL = Amounts(calls=1, tokens=70, micro_usd=9)


@pytest.fixture(params=["sqlite", "postgres"])
def journals(request: pytest.FixtureRequest, tmp_path: Path) -> Journals:
    if request.param == "sqlite":
        return journals_at(f"{tmp_path}/")
    return journals_at(request.getfixturevalue("postgres"))


def accounts_of(journal: Journal) -> AccountStore:
    assert journal.account_store is not None
    return journal.account_store


def always(_: Sequence[Part]) -> bool:
    return True


def never(_: Sequence[Part]) -> bool:
    return False


def named(parts: Sequence[Part]) -> dict[str, tuple[Amounts, Amounts]]:
    return {Path(it.journal).name: (it.used, it.held) for it in parts}


async def test_a_part_is_written_only_if_it_fits_beside_the_others(journals: Journals) -> None:
    async with journals.store(ONE).open_writer() as one, journals.store(TWO).open_writer() as two:
        part = StoredPart(CALL, CALL)
        assert await accounts_of(one).write("team", part, always) == (True, [])

        is_written, others = await accounts_of(two).write("team", part, never)
        assert not is_written
        assert named(others) == {ONE: (CALL, CALL)}
        assert await accounts_of(one).read("team") == []

        assert (await accounts_of(two).write("team", StoredPart(CALL, NOTHING), always))[0]
        assert named(await accounts_of(one).read("team")) == {TWO: (CALL, NOTHING)}
        assert await accounts_of(one).read("another team") == []


async def test_a_part_replaces_the_last_one_of_its_journal(journals: Journals) -> None:
    async with journals.store(ONE).open_writer() as one, journals.store(TWO).open_writer() as two:
        for used in (CALL, CALL, CALL + CALL):
            await accounts_of(one).write("team", StoredPart(used, NOTHING), always)

        assert named(await accounts_of(two).read("team")) == {ONE: (CALL + CALL, NOTHING)}


async def test_the_reservations_of_a_journal_without_a_writer_are_used(journals: Journals) -> None:
    async with journals.store(TWO).open_writer() as two:
        async with journals.store(ONE).open_writer() as one:
            await accounts_of(one).write("team", StoredPart(CALL, CALL), always)
        assert named(await accounts_of(two).read("team")) == {ONE: (CALL + CALL, NOTHING)}

        async with journals.store(ONE).open_writer() as one:
            await accounts_of(one).write("team", StoredPart(CALL, NOTHING), always)
            assert named(await accounts_of(two).read("team")) == {ONE: (CALL, NOTHING)}


async def test_a_writer_that_was_replaced_cannot_change_its_part(postgres: str) -> None:
    from orchestrator.products.cluster.journal.accounts import DatabaseAccounts

    journals = journals_at(postgres)
    async with journals.store(ONE).open_writer() as one, journals.store(TWO).open_writer() as two:
        journal: Any = one
        old = DatabaseAccounts(postgres, ONE, journal.epoch - 1)
        with pytest.raises(JournalInUseError):
            await old.write("team", StoredPart(CALL, CALL), always)
        await old.aclose()

        assert await accounts_of(two).read("team") == []
