"""Acknowledged facts survive a power cut, even if the disk reorders unflushed writes."""

from pathlib import Path

import pytest

from tests.journal.power_cuts import build_recorder, cut_power, record_work

pytestmark = pytest.mark.realtime


def test_acknowledged_entries_survive_a_power_cut_at_any_write(tmp_path: Path) -> None:
    recorder = build_recorder(tmp_path)
    if recorder is None:
        pytest.skip("writes are recorded with LD_PRELOAD, which takes a C compiler")
    writes = record_work(tmp_path, recorder, seed=3)
    outcomes = cut_power(writes, tmp_path, seed=3, rounds=25)

    survived = sum(it for name, it in outcomes.items() if name.endswith("is there"))
    assert survived > 15, outcomes
