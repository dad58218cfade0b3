"""`docs/mcp.md` is true: what it says of the server is run against one, in order."""

import json
import re
from pathlib import Path

import pytest
import trio

from tests.server.server_process import server_process
from tests.server.test_docs import AGENTS, BLOCK, ROOT, STRICT

pytestmark = pytest.mark.realtime

PAGE = (ROOT / "docs" / "mcp.md").read_text()


async def test_every_curl_of_the_page_works(tmp_path: Path, python: list[str]) -> None:
    blocks = [block for block in BLOCK.findall(PAGE) if "$SERVER" in block]
    async with server_process(tmp_path, AGENTS) as server:
        script = f"{STRICT}\nSERVER={server.url}\n{''.join(blocks)}"
        done = await trio.run_process(
            ["bash", "-c", script.replace("/tmp/", f"{tmp_path}/")],
            env={"ORCHESTRATOR_API_KEY": server.token, "PATH": "/usr/bin:/bin"},
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )

    said = done.stdout.decode()
    assert done.returncode == 0, said + done.stderr.decode()
    assert len(blocks) == 2
    for answer in ("It is Lima.", '"resultType":"task"', '"status":"', "taskId"):
        assert answer in said, answer
    assert '"error"' not in said


def test_the_configuration_of_clients_is_json() -> None:
    blocks = re.findall(r"^```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)

    assert [[*json.loads(it)] for it in blocks[:1]] == [["mcpServers"]]
