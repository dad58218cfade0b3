"""Bytes that the disk changes anywhere in a journal are found, and never read as facts."""

from pathlib import Path

import pytest

from tests.journal.corruption import run_rounds

pytestmark = pytest.mark.realtime


def test_what_is_read_of_a_damaged_journal_is_what_was_written(tmp_path: Path) -> None:
    outcomes = run_rounds(range(1, 16), tmp_path)

    refused = sum(count for it, count in outcomes.items() if it.endswith("refused"))
    assert refused > 5, outcomes
