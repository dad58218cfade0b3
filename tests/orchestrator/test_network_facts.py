"""A model reads the network requests of its command; facts record them if that is on."""

import json
from pathlib import Path

import pytest

from orchestrator import Machine, MemoryJournal, open_orchestrator
from orchestrator.agents import Sandbox, ScriptedModel, ToolCall
from orchestrator.cli.terminal.transcript import transcript_lines
from orchestrator.delegation.events import NetworkRequested, ToolAnswered
from tests.kit import facts
from tests.orchestrator.commands_kit import shell_user

pytestmark = pytest.mark.realtime

# In bash, without curl: says what the proxy answers first.
ASK = """
address=${HTTP_PROXY##*[/@]}; user=${HTTP_PROXY#http://}; user=${user%@*}
exec 3<>/dev/tcp/${address/://}
printf 'GET http://%s/ HTTP/1.1\\r\\nHost: x\\r\\nProxy-Authorization: Basic %s\\r\\n\\r\\n' \
    example.com "$(printf %s "$user" | base64 -w0)" >&3
head -n1 <&3
"""


@pytest.mark.parametrize("is_recorded", [True, False])
async def test_a_refused_host_is_reported_and_recorded_on_request(
    tmp_path: Path, is_recorded: bool
) -> None:
    journal = MemoryJournal()
    model = ScriptedModel([ToolCall("terminal", {"command": ASK}), "done"])
    agent = shell_user(model, sandbox=Sandbox(network=["pypi"], record_network=is_recorded))
    async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
        await orchestrator.run(agent, "go")

    [answer] = facts(journal.entries, ToolAnswered)
    told = json.loads(answer.message.text)
    assert " 403 " in told["output"]
    assert "example.com:80" in told["network"]
    found = facts(journal.entries, NetworkRequested)
    assert [(it.target, it.allowed) for it in found] == (
        [("example.com:80", False)] if is_recorded else []
    )
    shown = "\n".join(line.plain for line in transcript_lines(journal.entries))
    assert ("was refused example.com:80" in shown) is is_recorded


async def test_a_command_gets_the_variables_that_its_sandbox_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARGO_HOME", "/cargo")
    monkeypatch.setenv("EDITOR", "vi")
    journal = MemoryJournal()
    model = ScriptedModel([ToolCall("terminal", {"command": "env"}), "done"])
    agent = shell_user(model, sandbox=Sandbox(environment=["CARGO_HOME"]))
    async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
        await orchestrator.run(agent, "go")

    [answer] = facts(journal.entries, ToolAnswered)
    names = {line.split("=")[0] for line in answer.message.text.split("\\n")}
    assert "CARGO_HOME" in names
    assert "PATH" in names
    assert "EDITOR" not in names
