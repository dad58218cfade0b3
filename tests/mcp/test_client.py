"""An agent uses the tools of a server: of the official SDK, in a process of its own."""

import pytest

from agents import ToolCall
from tests.mcp.kit import calculator, use

pytestmark = pytest.mark.realtime


async def test_an_agent_calls_a_tool_of_a_server() -> None:
    model = await use(calculator(), calls=[ToolCall("calc__add", {"a": 1, "b": 2})])

    assert [it.text for it in model.answers] == ["3"]
