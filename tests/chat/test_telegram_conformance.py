"""Telegram keeps what every platform must keep."""

import pytest

from orchestrator.testing.chat_conformance import CHECKS, Check
from tests.chat.telegram_stand_in import open_telegram_stand_in


@pytest.mark.parametrize("check", CHECKS, ids=lambda it: it.__name__)
async def test_telegram_conforms(check: Check) -> None:
    await check(open_telegram_stand_in)
