"""The MCP App: clients that declare the extension get a page, and the trees that it draws."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.client.extension import advertise
from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID
from mcp.shared.exceptions import MCPError

from orchestrator.agents import Agent
from orchestrator.products.mcp.server.results import RUN
from orchestrator.products.mcp.server.tree_app import TREE, URI
from orchestrator.products.mcp.server.tree_page import tree_page
from orchestrator.products.server.keys.key import Scope
from tests.mcp.server_kit import Rpc, failing_job, official_client, reporter, rpc_of, slow_team
from tests.report.browser import open_browser
from tests.server.keys_kit import serving_with_keys
from tests.server.kit import serving

pytestmark = [
    pytest.mark.realtime,
    # The official client leaves streams of its responses to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SHOWS_APPS: Final[dict[str, Any]] = {
    "extensions": [advertise(EXTENSION_ID, {"mimeTypes": [APP_MIME_TYPE]})]
}
OTHERS: Final = [
    pytest.param({}, id="none"),
    pytest.param({"extensions": [advertise(EXTENSION_ID)]}, id="no-mime-type"),
    # Over HTTP no request of the older protocol says what its client can do.
    pytest.param({**SHOWS_APPS, "mode": "legacy"}, id="older-protocol"),
]


def team() -> Agent[str]:
    boss, gate = slow_team()
    gate.release()
    return boss


async def test_a_client_with_the_extension_gets_the_page_and_the_tree() -> None:
    async with serving(team()) as served, official_client(served, **SHOWS_APPS) as client:
        extensions = client.server_capabilities.extensions or {}
        [tool] = (await client.list_tools()).tools
        [page] = (await client.read_resource(URI)).contents
        answer = await client.call_tool("boss", {"goal": "x"})

    assert EXTENSION_ID in extensions
    assert tool.meta == {"ui": {"resourceUri": URI}}
    assert page.mime_type == APP_MIME_TYPE
    assert page.model_dump()["text"] == tree_page(TREE)
    tree = (answer.meta or {})[TREE]
    assert [it["branch"] + it["name"] for it in tree["rows"]] == ["boss", "└─ reader[1]"]
    assert [it["kind"] for it in tree["rows"]] == ["ok", "ok"]
    assert tree["rows"][1]["about"] == "read it"
    assert answer.structured_content is None


@pytest.mark.parametrize("options", OTHERS)
async def test_any_other_client_sees_neither_the_page_nor_a_tree(options: Any) -> None:
    async with serving(team()) as served, official_client(served, **options) as client:
        [tool] = (await client.list_tools()).tools
        with pytest.raises(MCPError, match="there is no resource"):
            await client.read_resource(URI)
        answer = await client.call_tool("boss", {"goal": "x"})

    assert tool.meta is None
    assert RUN in (answer.meta or {})
    assert TREE not in (answer.meta or {})


async def test_the_tree_leaves_the_answer_of_a_typed_agent_unchanged() -> None:
    async with serving(reporter()) as served, official_client(served, **SHOWS_APPS) as client:
        answer = await client.call_tool("reporter", {"goal": "Peru"})

    assert answer.structured_content == {"title": "Peru", "pages": 3}
    assert [it["name"] for it in (answer.meta or {})[TREE]["rows"]] == ["reporter"]


async def test_a_failed_call_shows_the_task_that_failed() -> None:
    async with serving(failing_job) as served, official_client(served, **SHOWS_APPS) as client:
        answer = await client.call_tool("failing_job", {})

    assert answer.is_error
    assert [it["kind"] for it in (answer.meta or {})[TREE]["rows"]] == ["bad", "bad"]


def declaring(*extensions: str) -> dict[str, Any]:
    """Return the metadata of a request that declares extensions."""
    declared = {it: {"mimeTypes": [APP_MIME_TYPE]} for it in extensions}
    return {"io.modelcontextprotocol/clientCapabilities": {"extensions": declared}}


async def test_the_result_of_a_task_has_the_tree_if_its_request_declares_apps() -> None:
    async with serving(team()) as served:
        client = rpc_of(served)
        task = (await client.call("boss", goal="x"))["taskId"]
        plain = await client.until(task, "completed")
        meta = declaring("io.modelcontextprotocol/tasks", EXTENSION_ID)
        shown = await client.ask("tasks/get", taskId=task, _meta=meta)

    assert TREE not in plain["result"]["_meta"]
    assert len(shown["result"]["_meta"][TREE]["rows"]) == 2


async def test_a_key_that_may_not_read_gets_no_tree(tmp_path: Path) -> None:
    async with serving_with_keys(team(), folder=tmp_path) as server:
        token = server.new_token("some", scopes=[Scope.RUN])
        client = Rpc(http=server.served.http, token=token)
        meta = declaring(EXTENSION_ID)
        listed = await client.ask("tools/list", _meta=meta)
        answer = await client.ask("tools/call", name="boss", arguments={"goal": "x"}, _meta=meta)

    assert "_meta" not in listed["tools"][0]
    assert RUN in answer["_meta"]
    assert TREE not in answer["_meta"]


HOST: Final = """<!doctype html><meta charset="utf-8"><iframe width="900" height="200"></iframe>
<script>
const frame = document.querySelector("iframe");
const heard = [];
const post = (message) => frame.contentWindow.postMessage({jsonrpc: "2.0", ...message}, "*");
const drawn = new Promise((done) => addEventListener("message", ({data}) => {
  heard.push(data.method ?? data.id);
  if (data.method === "ui/initialize") {
    post({id: data.id, result: {hostContext: {theme: "dark"}}});
  } else if (data.method === "ui/notifications/initialized") {
    post({method: "ui/notifications/tool-input", params: {arguments: {}}});
    post({method: "ui/notifications/tool-result", params: @RESULT@});
    post({id: 7, method: "ping"});
  } else if (data.id === 7) done();
}));
frame.srcdoc = @PAGE@;
</script>"""
MARKUP: Final = "<img src=x onerror=alert(1)>"


def in_script(value: object) -> str:
    """Return a value as JSON that does not end the script it is in."""
    return json.dumps(value).replace("<", "\\u003c")


def test_the_page_draws_the_tree_that_its_host_sends_as_text(tmp_path: Path) -> None:
    """A host in a real browser: the texts of models are never markup, and nothing is fetched."""
    columns = dict.fromkeys(["mode", "time", "tokens", "cost"], "1")
    rows = [
        {"branch": "", "name": "boss", "status": "✓ succeeded", "kind": "ok", "about": MARKUP},
        {"branch": "└─ ", "name": MARKUP, "status": "✗ failed", "kind": "bad", "about": "read"},
    ]
    tree = {"rows": [{**columns, **it} for it in rows], "footer": MARKUP}
    host = HOST.replace("@RESULT@", in_script({"content": [], "_meta": {TREE: tree}}))
    (tmp_path / "host.html").write_text(host.replace("@PAGE@", in_script(tree_page(TREE))))

    with open_browser() as browser:
        page = browser.open(tmp_path / "host.html")
        page.run("drawn")
        inside = "frame.contentDocument"
        names = page.run(f"[...{inside}.querySelectorAll('th')].map(it => it.textContent)")
        classes = page.run(f"[...{inside}.querySelectorAll('tr')].map(it => it.className)")
        texts = page.run(f"{inside}.body.innerText")
        theme = page.run(f"{inside}.documentElement.style.colorScheme")
        pictures = page.run(f"{inside}.querySelectorAll('img').length")
        heard = page.run("heard")

    assert names == ["boss", f"└─ {MARKUP}"]
    assert classes == ["ok", "bad"]
    assert texts.count(MARKUP) == 3
    assert theme == "dark"
    assert pictures == 0
    assert heard[:2] == ["ui/initialize", "ui/notifications/initialized"]
    assert page.complaints == []
    assert [it for it in page.requests if not it.startswith("file:")] in ([], ["about:srcdoc"])
