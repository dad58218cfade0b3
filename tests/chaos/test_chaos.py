"""Real processes, killed with SIGKILL at named points: the short form of `make chaos`."""

from pathlib import Path
from typing import Final

import pytest
import trio

from tests.chaos.provider import CountingProvider
from tests.chaos.rounds import open_spawner, play_round
from tests.fake_provider import serving

pytestmark = pytest.mark.realtime

SEEDS: Final = (14, 27, 29, 41)


async def test_outside_effects_agree_with_the_journal(tmp_path: Path) -> None:
    async with serving(CountingProvider()) as provider, open_spawner() as spawner:
        for seed in SEEDS:
            home = tmp_path / str(seed)
            await trio.Path(home).mkdir()
            played = await play_round(seed, spawner, provider, home)

            assert not played.problems, played.line
