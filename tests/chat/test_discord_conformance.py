"""Discord keeps what every platform must keep."""

import pytest

from orchestrator.testing.chat_conformance import CHECKS, Check
from tests.chat.discord_stand_in import open_discord_stand_in


@pytest.mark.parametrize("check", CHECKS, ids=lambda it: it.__name__)
async def test_discord_conforms(check: Check) -> None:
    await check(open_discord_stand_in)
