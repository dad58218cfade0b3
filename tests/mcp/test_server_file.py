"""Servers from `.mcp.json`, and agents of files that name them."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Machine, load_agents
from orchestrator.agents import (
    Agent,
    DefinitionError,
    McpCommand,
    McpUrl,
    ScriptedModel,
    ToolCall,
    allow,
)
from orchestrator.agents.tools.files import FILES
from orchestrator.products.agent_files.located import AgentFileError
from orchestrator.tools import McpServers
from tests.kit import run

SERVERS = {
    "files": {
        "command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-filesystem", "."],
        "env": {"TOKEN": "${GITHUB_TOKEN}"},
        "include": ["read_*"],
    },
    "my.search engine": {
        "type": "http",
        "url": "https://search.example/mcp",
        "headers": {"Authorization": "Bearer ${SEARCH_KEY}"},
    },
    "old": {"command": "old", "disabled": True},
}


def write(folder: Path, servers: Any) -> Path:
    file = folder / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def test_the_file_that_users_have_is_read(tmp_path: Path) -> None:
    servers = McpServers.from_file(write(tmp_path, SERVERS))

    assert [it.name for it in servers] == ["files", "my-search-engine"]
    files, search = servers["files"], servers["my.search engine"]
    assert isinstance(files, McpCommand)
    assert files.command[0] == "npx"
    assert files.include == ("read_*",)
    assert isinstance(search, McpUrl)
    assert search.url == "https://search.example/mcp"


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ([], "'mcpServers'"),
        ({"a": {}}, "neither a command nor a url"),
        ({"a": {"type": "sse", "url": "http://x"}}, "streamable HTTP"),
        ({"a": {"command": 5}}, "a program and its arguments"),
        ({"a": {"command": "x", "args": ["${TOKEN}"]}}, "values of 'env'"),
        ({"a": {"url": "http://x", "timeout": "long"}}, "is not a time"),
        ({"a b": {"command": "x"}, "a.b": {"command": "y"}}, "two servers"),
    ],
)
def test_a_wrong_file_is_a_sentence(tmp_path: Path, servers: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        McpServers.from_file(write(tmp_path, servers))


def test_a_missing_server_file_is_reported_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="cannot be read"):
        McpServers.from_file(tmp_path / "none.json")


def test_an_agent_of_a_file_names_servers(tmp_path: Path) -> None:
    write(tmp_path, SERVERS)
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "reader.md").write_text(
        "---\nname: reader\nmodel: openai:gpt-5-mini\ntools: []\nmcpServers: [files]\n"
        "approve: [{allow: files__read_*}]\n---\nRead.\n"
    )
    (tmp_path / "team.yaml").write_text(
        "model: openai:gpt-5-mini\nagents:\n  writer:\n    instructions: Write.\n"
        "    servers: {disk: {command: npx, args: [-y, server], include: [write_file]}}\n"
    )

    reader = load_agents(folder)["reader"]
    writer = load_agents(tmp_path / "team.yaml")["writer"]

    assert [it.name for it in reader.servers] == ["files"]
    assert reader.approve[0].tool == "files__read_*"
    assert [it.include for it in writer.servers] == [("write_file",)]


def test_a_server_that_no_file_has_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(
        "model: openai:gpt-5-mini\nagents:\n  writer:\n    instructions: Write.\n"
        "    servers: [nowhere]\n"
    )
    with pytest.raises(AgentFileError, match=r"team.yaml:5: there is no server 'nowhere'"):
        load_agents(tmp_path / "team.yaml")


@pytest.mark.realtime
async def test_an_agent_cannot_write_the_file_that_names_servers(tmp_path: Path) -> None:
    """The next run would start the named servers."""
    model = ScriptedModel(
        [
            ToolCall("write_file", {"path": ".mcp.json", "content": "{}"}),
            ToolCall("write_file", {"path": "servers.json", "content": "{}"}),
            lambda transcript: "\n".join(it.text for it in transcript[2::2]),
        ]
    )
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": SERVERS}))
    McpServers.from_file(file)
    writer = Agent("writer", model=model, tools=FILES, approve=[allow("*")])

    done = await run(writer, machine=Machine(workspace=tmp_path))

    assert "'.mcp.json' is refused" in done.output
    assert not (tmp_path / ".mcp.json").exists()
    assert json.loads(file.read_text())["mcpServers"] == SERVERS
