"""`orchestrator mcp login, list, test, logout`, as `docs/mcp.md` shows them."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from orchestrator.cli.app import run_command
from orchestrator.products.mcp.client.login.file import read_logins
from tests.mcp.authorization_server import LoginServer, login_server

pytestmark = pytest.mark.realtime

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "mcp.md").read_text()
COMMAND = re.compile(r"^orchestrator mcp (?:login|list|test|logout) .*$", re.MULTILINE)
# Python's own way to name a browser. This one agrees at once.
BROWSER = "curl --silent --location --output /dev/null %s"
TEAM = """
import os
from orchestrator import Agent, ScriptedModel
from orchestrator.tools import McpUrl

server = McpUrl("tracker", os.environ["TRACKER"])
reader = Agent("reader", model=ScriptedModel([]), servers=[server])
"""


class Shell:
    """Runs commands in a folder that has a `.mcp.json` and a `team.py`."""

    def __init__(self, folder: Path, server: LoginServer) -> None:
        self.folder = folder
        self.server = server
        self.logins = folder / "home" / "mcp" / "logins.json"
        write_servers(folder, server.mcp)
        (folder / "team.py").write_text(TEAM)

    async def run(self, line: str) -> subprocess.CompletedProcess[bytes]:
        words = line.partition("#")[0].split()
        assert words[0] == "orchestrator"
        if "logout" not in words:
            words.append("--trust")  # no person is asked here
        return await trio.run_process(
            [sys.executable, "-m", "orchestrator", *words[1:]],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=self.folder,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(ROOT),
                "ORCHESTRATOR_HOME": str(self.folder / "home"),
                "TRACKER": self.server.mcp,
                "BROWSER": BROWSER,
                "NO_PROXY": "127.0.0.1",
            },
        )


def write_servers(folder: Path, url: str) -> None:
    named = {"tracker": {"url": url}, "gone": {"command": "/no/such"}}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": named}))


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    async with login_server() as server:
        yield Shell(tmp_path, server)


async def test_every_command_of_the_page_works(shell: Shell) -> None:
    lines = COMMAND.findall(PAGE)
    assert len(lines) >= 7

    for line in lines:
        here = line.replace("https://tracker.example.org/mcp", shell.server.mcp)
        done = await shell.run(here)
        # The list has a server that is down.
        expected = 1 if " list " in line else 0
        assert done.returncode == expected, (line, done.stdout, done.stderr)
        if " list " in line:
            listed = done.stdout.decode()
            assert re.search(r"^tracker +ready +1", listed, re.MULTILINE), listed
            assert re.search(r"^gone +down +0 +\S", listed, re.MULTILINE), listed

    assert shell.server.log.count("register") == 1
    assert shell.server.log[-1] == "revoke"
    assert not read_logins(shell.logins)


async def test_a_server_without_its_login_is_marked(shell: Shell) -> None:
    listed = await shell.run("orchestrator mcp list --json --file team.py")
    assert listed.returncode == 1
    [found] = json.loads(listed.stdout)
    assert (found["name"], found["state"], found["tools"]) == ("tracker", "login", [])
    assert "`orchestrator mcp login tracker`" in found["problem"]

    shell.server.refuses = True
    refused = await shell.run("orchestrator mcp login tracker")
    assert refused.returncode == 1
    assert b"access_denied" in refused.stderr
    assert b"Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("mcp test nope --trust", "there are: gone, tracker"),
        ("mcp login gone --trust", "is a command"),
        ("mcp login tracker --port 99999", "is not a port"),
        ("mcp login ws://tracker.example.org", "must begin with https://"),
        ("mcp list --file none.json", "cannot be read"),
    ],
)
def test_bad_input_is_a_sentence(
    line: str,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_servers(tmp_path, "https://tracker.example.org/mcp")

    assert run_command(line.split()) == 2
    assert problem in capsys.readouterr().err
