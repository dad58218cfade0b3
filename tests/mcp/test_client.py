"""An agent uses the tools of a server: of the official SDK, in a process of its own."""

from pathlib import Path

import pytest
import trio

from orchestrator import Machine, open_orchestrator
from orchestrator.agents import ToolCall
from tests.mcp.kit import Caller, calculator, user

pytestmark = pytest.mark.realtime


async def test_an_agent_uses_a_server_of_the_official_sdk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tools, schemas, errors, a picture, a resource, a prompt, folder, environment, changes."""
    monkeypatch.setenv("GREETING", "hello")
    server = calculator(env={"GIVEN": "${GREETING}"}, exclude=["list_*"])
    model = Caller(
        *[
            ToolCall("calc__add", {"a": 1, "b": 2}),
            ToolCall("calc__add", {"a": 1, "b": "two"}),
            ToolCall("calc__fail"),
            ToolCall("calc__picture"),
            ToolCall("calc__variables"),
            ToolCall("calc__folder"),
            ToolCall("calc__read_resource", {"uri": "notes://today"}),
            ToolCall("calc__get_prompt", {"name": "greet", "arguments": {"name": "A"}}),
            ToolCall("calc__list_prompts"),
            ToolCall("calc__grow"),
        ]
    )
    later = Caller()
    async with open_orchestrator(":memory:", machine=Machine(workspace=tmp_path)) as orchestrator:
        await orchestrator.run(user(model, server), "go")
        with trio.fail_after(30):
            # A server of the newer protocol says that its tools have changed.
            while not later.requests or "calc__late" not in later.tools:
                later = Caller()
                await orchestrator.run(user(later, server), "go")

    answers = model.answers
    assert answers[0].text == "3"
    assert answers[1].failed
    assert "/b" in answers[1].text
    assert answers[2].failed
    assert "fail" in answers[2].text
    assert [it.media_type for it in answers[3].parts] == ["image/png"]
    variables = answers[4].text.split()
    assert {"GIVEN", "PATH"} <= {*variables}
    assert "GREETING" not in variables
    assert Path(answers[5].text).parents[1].name == "server-folders"
    assert not await trio.Path(answers[5].text).exists()
    assert "buy milk" in answers[6].text
    assert "Say hello to A." in answers[7].text
    # It was left out by the filter.
    assert "calc__list_prompts" not in model.tools
    assert answers[8].failed
    assert model.tools["calc__add"].idempotent
    assert not model.tools["calc__fail"].idempotent
