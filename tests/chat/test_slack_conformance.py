"""Slack keeps what every platform must keep."""

import pytest

from orchestrator.testing.chat_conformance import CHECKS, Check
from tests.chat.slack_stand_in import open_slack_stand_in


@pytest.mark.parametrize("check", CHECKS, ids=lambda it: it.__name__)
async def test_slack_conforms(check: Check) -> None:
    await check(open_slack_stand_in)
