"""Sessions of an editor over time: listed, loaded, closed, deleted; and messages that are wrong."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import Agent, ScriptedModel, ToolCall, confirm
from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.tools.mcp.server import McpCommand, McpUrl
from orchestrator.products.acp import schema
from orchestrator.products.acp.session_agent import with_servers
from orchestrator.testing import GatedModel
from orchestrator.tools import FILES
from tests.acp.kit import RefusedError, open_editor
from tests.kit import worker, worker_on

pytestmark = pytest.mark.realtime


def reader() -> Agent[Any]:
    call = ToolCall("read_file", {"path": "a.txt", "offset": 1})
    return Agent("reader", model=ScriptedModel([call, "It says hello."]), tools=FILES)


async def test_loaded_session_shows_its_conversation_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    async with open_editor(reader(), tmp_path / "j") as editor:
        session = await editor.open(tmp_path)
        await editor.prompt(session, "Read a.txt.")
    async with open_editor(worker(), tmp_path / "j") as editor:
        with pytest.raises(RefusedError, match="talks to agent 'reader'"):
            await editor.ask("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
    async with open_editor(reader(), tmp_path / "j") as editor:
        await editor.ask("initialize", protocolVersion=1)
        await editor.ask("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        kinds = [it["sessionUpdate"] for it in editor.updates()]
        assert kinds == [
            "user_message_chunk",
            "tool_call",
            "tool_call_update",
            "agent_message_chunk",
        ]
        user, call, ended, answer = editor.updates()
        assert user["content"]["text"] == "Read a.txt."
        assert call["kind"] == "read"
        assert call["locations"] == [{"path": str(tmp_path / "a.txt"), "line": 1}]
        assert "hello" in ended["content"][0]["content"]["text"]
        assert answer["content"]["text"] == "It says hello."


async def test_turn_that_lost_its_editor_goes_on_when_it_is_loaded(tmp_path: Path) -> None:
    model = GatedModel()
    async with open_editor(worker_on(model), tmp_path / "j") as editor:
        session = await editor.open(tmp_path)
        await editor.begin_prompt(session, "Begin.")
        await model.wait_called()
    async with open_editor(worker(says="Here it is."), tmp_path / "j") as editor:
        await editor.ask("initialize", protocolVersion=1)
        await editor.ask("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        await editor.wait_update(
            "agent_message_chunk", lambda it: it["content"]["text"] == "Here it is."
        )
        [user] = editor.updates("user_message_chunk")
        assert user["content"]["text"] == "Begin."


async def test_open_question_is_asked_again_when_its_session_is_resumed(tmp_path: Path) -> None:
    def team() -> Agent[Any]:
        call = ToolCall("write_file", {"path": "a.txt", "content": "x"})
        model = ScriptedModel([call, "written"])
        return Agent("writer", model=model, tools=FILES, approve=[confirm("write_file")])

    async with open_editor(team(), tmp_path / "j") as editor:
        editor.chosen = None
        session = await editor.open(tmp_path)
        await editor.begin_prompt(session)
        await editor.wait_message(lambda it: it.get("method") == "session/request_permission")
    async with open_editor(team(), tmp_path / "j") as editor:
        await editor.ask("initialize", protocolVersion=1)
        await editor.ask("session/resume", sessionId=session, cwd=str(tmp_path))
        assert not editor.updates("user_message_chunk")
        await editor.wait_update("tool_call_update", lambda it: it["status"] == "completed")
        await editor.wait_update("agent_message_chunk")
        assert (tmp_path / "a.txt").read_text() == "x"


async def test_list_has_sessions_of_folder_newest_first(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with open_editor(worker(), tmp_path / "j") as editor:
        first = await editor.open(tmp_path)
        await editor.prompt(first, "Say one.")
        second = (await editor.ask("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        await editor.prompt(second, "Say two.")
        await editor.ask("session/new", cwd=str(other), mcpServers=[])
        listed = (await editor.ask("session/list", cwd=str(tmp_path)))["sessions"]
        assert [it["sessionId"] for it in listed] == [second, first]
        assert [it["title"] for it in listed] == ["Say two.", "Say one."]
        assert len((await editor.ask("session/list"))["sessions"]) == 3
        await editor.ask("session/delete", sessionId=first)
        assert len((await editor.ask("session/list"))["sessions"]) == 2


async def test_closed_session_is_loaded_again(tmp_path: Path) -> None:
    model = GatedModel()
    async with open_editor(worker_on(model), tmp_path / "j") as editor:
        session = await editor.open(tmp_path)
        id_ = await editor.begin_prompt(session)
        await model.wait_called()
        await editor.ask("session/close", sessionId=session)
        assert (await editor.answer(id_))["stopReason"] == "cancelled"
        with pytest.raises(RefusedError, match="is not open"):
            await editor.prompt(session)
        model.release()
        await editor.ask("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        assert await editor.prompt(session) == "end_turn"


async def test_other_version_is_answered_with_own_version(tmp_path: Path) -> None:
    async with open_editor(worker(), tmp_path / "j") as editor:
        assert (await editor.ask("initialize", protocolVersion=99))["protocolVersion"] == 1


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"no JSON", -32700),
        (b'{"id": 7, "method": "\xff"}', -32700),
        (b"[]", -32600),
        (b'{"id": 7}', -32600),
        (b'{"id": 7, "method": "nothing/here"}', -32601),
        (b'{"id": 7, "method": "initialize", "params": 3}', -32602),
        (b'{"id": 7, "method": "session/new", "params": {"cwd": "here"}}', -32602),
        (b'{"id": 7, "method": "session/list", "params": {"cursor": "x"}}', -32602),
        (b'{"id": 7, "method": "session/close", "params": {"sessionId": "no"}}', -32002),
        (b'{"id": 7, "method": "session/load", "params": {"sessionId": "no", "cwd": "/"}}', -32002),
    ],
)
async def test_wrong_message_is_answered_with_error(tmp_path: Path, line: bytes, code: int) -> None:
    async with open_editor(worker(), tmp_path / "j") as editor:
        await editor.send_line(line)
        refused = await editor.wait_message(lambda it: "error" in it)
        assert refused["error"]["code"] == code
        assert await editor.prompt(await editor.open(tmp_path)) == "end_turn"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "audio", "mimeType": "audio/wav", "data": ""},
        {"type": "image", "mimeType": "image/png", "data": "?"},
        {"type": "image", "mimeType": "no type", "data": "YQ=="},
        {"type": "text", "text": ""},
    ],
)
async def test_wrong_prompt_is_refused_before_turn(tmp_path: Path, block: Any) -> None:
    async with open_editor(worker(), tmp_path / "j") as editor:
        session = await editor.open(tmp_path)
        with pytest.raises(RefusedError) as refused:
            await editor.ask("session/prompt", sessionId=session, prompt=[block])
        assert refused.value.code == -32602


def test_servers_of_editor_are_servers_of_agent() -> None:
    given = [
        schema.ClientServer(name="My files!", command="files", args=["--all"]),
        schema.ClientServer(
            name="7",
            type="http",
            url="https://example.org/mcp",
            headers=[schema.Named(name="Authorization", value="Bearer x")],
        ),
    ]
    files, web = with_servers(worker(), given).servers
    assert isinstance(files, McpCommand)
    assert (files.name, files.command, files.cwd) == ("My-files", ("files", "--all"), None)
    assert isinstance(web, McpUrl)
    assert (web.name, web.headers["Authorization"]) == ("server-7", "Bearer x")
    with pytest.raises(DefinitionError, match="sse"):
        with_servers(worker(), [schema.ClientServer(name="old", type="sse")])
