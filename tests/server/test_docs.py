"""`docs/http.md` is true: every curl in it is run, in order, against a server of its own."""

import re
from pathlib import Path

import pytest
import trio

from tests.server.server_process import server_process

pytestmark = pytest.mark.realtime

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
AGENTS = f"""
import sys
sys.path.insert(0, {str(ROOT / "examples")!r})
from served_team import editor, helper, ops, reader, thinker
"""
# An answer that is an error ends the script.
STRICT = """
set -eu
orchestrator() { $PYTHON -m orchestrator "$@"; }
curl() { command curl --silent --show-error --fail-with-body --max-time 30 "$@" && echo; }
"""


async def test_every_curl_of_the_page_works(tmp_path: Path, python: list[str]) -> None:
    page = (ROOT / "docs" / "http.md").read_text()
    blocks = [block for block in BLOCK.findall(page) if "$SERVER" in block]
    async with server_process(tmp_path, AGENTS) as server:
        script = STRICT + "\n".join(blocks).replace("http://127.0.0.1:8642", server.url)
        done = await trio.run_process(
            ["bash", "-c", script],
            env={
                "ORCHESTRATOR_API_KEY": server.token,
                "ORCHESTRATOR_HOME": str(tmp_path),
                "PYTHON": " ".join(python),
                "PYTHONPATH": str(ROOT),
                "PATH": "/usr/bin:/bin",
            },
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )

    said = done.stdout.decode()
    assert done.returncode == 0, said + done.stderr.decode()
    assert len(blocks) >= 8
    for answer in (
        "It is Lima.",
        "data: [DONE]",
        "event: response.completed",
        "event: end",
        "flowchart",
        '"answer":"once"',
        '"status":"closed"',
        "orchestrator_tokens_total",
        "there is no run or session",
        "missing_scope",
        "invalid_api_key",
        "revoked bob",
    ):
        assert answer in said, answer
