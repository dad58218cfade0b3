"""Bytes that the disk changes anywhere in a journal are found, and never read as facts."""

from pathlib import Path

import pytest

from tests.journal.corruption import run_rounds

pytestmark = pytest.mark.realtime


def test_a_damaged_journal_returns_the_written_entries_or_refuses(tmp_path: Path) -> None:
    outcomes = run_rounds(range(1, 16), tmp_path)

    refused = sum(count for it, count in outcomes.items() if it.endswith("refused"))
    assert refused > 5, outcomes
