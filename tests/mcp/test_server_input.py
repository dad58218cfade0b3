"""Bad input from clients of MCP is refused with a sentence, and runs nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator.agents import Agent, DefinitionError, ScriptedModel
from orchestrator.backends import store_at
from orchestrator.products.mcp.server.tools import TaskMode, parse_modes, tools_of
from orchestrator.products.server import mcp_route
from orchestrator.products.server.keys.changes import revoke_key
from orchestrator.products.server.keys.key import KeyLimits, Scope
from orchestrator.products.server.state import Settings
from tests.mcp.server_kit import Rpc, add, deleter, greet, rpc_of, slow_team
from tests.server.keys_kit import serving_with_keys
from tests.server.kit import TOKEN, serving

pytestmark = pytest.mark.realtime

HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
}


async def test_arguments_that_do_not_fit_are_an_error_with_all_problems() -> None:
    async with serving(add) as served:
        answer = await rpc_of(served).call("add", left="one", more=2)

        assert answer["isError"] is True
        text = answer["content"][0]["text"]
        assert '"one" is not of type "integer"' in text
        assert "'more' was unexpected" in text
        assert '"right" is a required property' in text
        assert not served.orchestrator.runs


@pytest.mark.parametrize("arguments", [[], "text", 3])
async def test_arguments_must_be_an_object(arguments: Any) -> None:
    async with serving(add) as served:
        error = await rpc_of(served).refused("tools/call", name="add", arguments=arguments)

        assert error["code"] == -32602
        assert not served.orchestrator.runs


async def test_unknown_names_and_ids_are_invalid_parameters() -> None:
    async with serving(greet) as served:
        client = rpc_of(served)
        tool = await client.refused("tools/call", name="ghost", arguments={})
        tasks = [
            await client.refused(method, taskId=id_, inputResponses={})
            for method in ("tasks/get", "tasks/update", "tasks/cancel")
            for id_ in ("r_0", "../../etc", "r_" + "0" * 32)
        ]
        trees = [
            await client.refused("resources/read", uri=uri)
            for uri in ("run://r_0/tree", "run://r_0/other", "file:///etc/passwd")
        ]
        pages = await client.refused("resources/list", cursor="r_0")
        method = await client.refused("tasks/list")

    assert tool["code"] == -32602
    assert "there are: greet" in tool["message"]
    assert {it["code"] for it in (*tasks, *trees, pages)} == {-32602}
    assert method["code"] == -32601


async def test_joined_runs_and_runs_of_other_routes_are_not_tasks() -> None:
    async with serving(greet) as served:
        joined = await rpc_of(served, can_poll=False).call("greet", name="Ann")
        body = {"model": "greet", "input": "Ann"}
        other = (await served.http.post("/v1/runs", json=body)).json()["id"]
        ids = [joined["_meta"]["orchestrator/run"], other]
        errors = [await rpc_of(served).refused("tasks/get", taskId=it) for it in ids]

    assert [it["code"] for it in errors] == [-32602, -32602]


async def test_a_deleted_task_is_unknown() -> None:
    async with serving(greet) as served:
        client = rpc_of(served)
        id_ = (await client.call("greet", name="Ann"))["taskId"]
        await client.until(id_, "completed")
        await served.http.delete(f"/v1/runs/{id_}")
        error = await client.refused("tasks/get", taskId=id_)

    assert error["code"] == -32602


@pytest.mark.parametrize("header", ["", "r_other"])
async def test_the_header_must_name_the_task(header: str) -> None:
    async with serving(greet) as served:
        client = rpc_of(served)
        id_ = (await client.call("greet", name="Ann"))["taskId"]
        answer = await client.send("tasks/get", {"taskId": id_}, mcp_name=header)

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == -32020


async def test_methods_of_tasks_must_be_declared_in_the_request() -> None:
    async with serving(greet) as served:
        id_ = (await rpc_of(served).call("greet", name="Ann"))["taskId"]
        client = rpc_of(served, can_poll=False)
        errors = [
            await client.refused(method, taskId=id_, inputResponses={})
            for method in ("tasks/get", "tasks/update", "tasks/cancel")
        ]

    assert {it["code"] for it in errors} == {-32021}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"not json", 400, -32700),
        (b"[]", 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]', 400, -32600),
        (b"3", 400, -32600),
        (b"[" * 100_000, 400, -32700),
        (b'{"jsonrpc":"2.0","id":1}', 400, -32600),
    ],
)
async def test_a_body_must_be_a_message(body: bytes, status: int, code: int) -> None:
    async with serving(greet) as served:
        answer = await served.http.post("/mcp", content=body, headers=HEADERS)

    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code


async def test_a_large_body_and_a_missing_key_do_not_reach_the_protocol() -> None:
    async with serving(greet) as served:
        large = await served.http.post(
            "/mcp", content=b'"' + b"x" * 10_000_001 + b'"', headers=HEADERS
        )
        wrong = {**HEADERS, "authorization": "Bearer wrong"}
        keyless = await served.http.post("/mcp", content=b"{}", headers=wrong)
        page = {**HEADERS, "origin": "https://evil.example"}
        settings = Settings(token=TOKEN, hosts=frozenset({"127.0.0.1"}))
        gotten = await served.http.get("/mcp", headers=HEADERS)
    async with serving(greet, settings=settings) as served:
        foreign = await served.http.post("/mcp", content=b"{}", headers=page)

    assert large.status_code == 413
    assert keyless.status_code == 401
    assert gotten.status_code == 405
    assert foreign.status_code == 403
    assert foreign.json()["error"]["data"]["code"] == "wrong_origin"


async def test_the_tasks_of_another_owner_do_not_exist(tmp_path: Path) -> None:
    async with serving_with_keys(greet, folder=tmp_path) as server:
        http = server.served.http
        ann, bob = (
            Rpc(http=http, token=server.new_token(it, scopes=[*Scope][:4])) for it in ("ann", "bob")
        )
        id_ = (await ann.call("greet", name="Ann"))["taskId"]
        mine = await ann.ask("resources/read", uri=f"run://{id_}/tree")
        listed = [len((await it.ask("resources/list"))["resources"]) for it in (ann, bob)]
        errors = [
            await bob.refused("tasks/get", taskId=id_),
            await bob.refused("tasks/update", taskId=id_, inputResponses={}),
            await bob.refused("tasks/cancel", taskId=id_),
            await bob.refused("resources/read", uri=f"run://{id_}/tree"),
        ]
        unknown = await bob.refused("tasks/get", taskId="r_" + "0" * 32)

    assert mine["contents"]
    assert listed == [1, 0]
    assert {it["code"] for it in errors} == {-32602}
    assert unknown["message"].replace("r_" + "0" * 32, id_) == errors[0]["message"]


@pytest.mark.parametrize(
    ("method", "params", "scope"),
    [
        ("tools/call", {"name": "greet", "arguments": {"name": "A"}}, "run"),
        ("tasks/get", {"taskId": "r_0"}, "read"),
        ("tasks/cancel", {"taskId": "r_0"}, "steer"),
        ("tasks/update", {"taskId": "r_0", "inputResponses": {}}, "approve"),
        ("resources/list", {}, "read"),
        ("resources/read", {"uri": "run://r_0/tree"}, "read"),
    ],
)
async def test_each_method_needs_the_scope_of_its_action(
    method: str, params: dict[str, Any], scope: str, tmp_path: Path
) -> None:
    async with serving_with_keys(greet, folder=tmp_path) as server:
        others = [it for it in Scope if it not in {scope, Scope.ADMIN}]
        token = server.new_token("some", scopes=others)
        client = Rpc(http=server.served.http, token=token)
        refused = await client.send(method, params)
        listed = await client.ask("tools/list")

        assert refused.status_code == 403
        assert f"the scope '{scope}'" in refused.json()["error"]["message"]
        assert listed["tools"]
        assert not server.served.orchestrator.runs


@pytest.mark.parametrize(
    "hidden",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-32-le"),
        lambda text: text.replace("Ann", "\\ud800").encode(),
        lambda text: text.replace('"Ann"', "NaN").encode(),
        lambda text: text.replace('"Ann"', "1e999").encode(),
        lambda text: (text[:-1] + ',"x":' + "[" * 5_000 + "]" * 5_000 + "}").encode(),
        lambda text: ('{"method":"tools/list",' + text[1:]).encode(),
        lambda text: (text[:-1] + ',"method":"tools/list"}').encode(),
    ],
)
async def test_every_spelling_of_a_method_is_checked_against_the_scopes(
    hidden: Callable[[str], bytes], tmp_path: Path
) -> None:
    async with serving_with_keys(greet, folder=tmp_path) as server:
        token = server.new_token("looks", scopes=[Scope.READ])
        client = Rpc(http=server.served.http, token=token)
        sent = await client.send("tools/call", {"name": "greet", "arguments": {"name": "Ann"}})
        request = sent.request
        answer = await server.served.http.post(
            "/mcp",
            content=hidden(request.content.decode()),
            headers={
                name: value for name, value in request.headers.items() if name != "content-length"
            },
        )

        assert answer.status_code in {400, 403}, answer.text
        assert "error" in answer.json()
        assert not server.served.orchestrator.runs


async def test_the_limits_of_a_key_hold_for_calls(tmp_path: Path) -> None:
    boss, gate = slow_team()
    async with serving_with_keys(boss, folder=tmp_path) as server:
        token = server.new_token("ann", limits=KeyLimits(runs_at_once=1))
        client = Rpc(http=server.served.http, token=token, orchestrator=server.served.orchestrator)
        first = await client.call("boss", goal="x")
        await gate.wait_called()
        second = await client.call("boss", goal="y")
        gate.release()
        await client.until(first["taskId"], "completed")

        assert second["isError"] is True
        assert "may have 1 runs at once" in second["content"][0]["text"]
        assert len(server.served.orchestrator.runs) == 1


async def test_actions_are_audited_and_reads_are_not(tmp_path: Path) -> None:
    async with serving(deleter(), journal=tmp_path / "journal.db") as served:
        client = rpc_of(served)
        id_ = (await client.call("deleter", goal="a.txt"))["taskId"]
        asked = await client.until(id_, "input_required")
        answers = {it: {"action": "decline"} for it in asked["inputRequests"]}
        await client.ask("tasks/update", taskId=id_, inputResponses=answers)
        await client.until(id_, "completed")
        await client.ask("tasks/cancel", taskId=id_)
        rows = await trio.to_thread.run_sync(audited, tmp_path / "journal.db")

    (question,) = asked["inputRequests"]
    assert [it for it in rows if it[0].startswith("mcp")] == [
        ("mcp tools/call", id_),
        ("mcp tasks/update", question),
    ]


def audited(journal: Path) -> list[tuple[str, str]]:
    with store_at(journal).open_reader(verify=False) as reader:
        return [(row.event.action, row.event.target) for row in reader.audit().rows]


def test_a_name_that_mcp_does_not_take_is_an_error_at_the_start() -> None:
    agent = Agent("helper", model=ScriptedModel([]))

    with pytest.raises(DefinitionError, match="cannot be the name of a tool"):
        tools_of({"my helper": agent}, {})
    with pytest.raises(DefinitionError, match="no agent 'ghost'"):
        tools_of({"helper": agent}, {"ghost": TaskMode.REQUIRED})


def test_task_modes_apply_to_all_agents_or_to_one() -> None:
    agents = ["a", "b"]

    assert parse_modes([], agents) == {}
    assert parse_modes(["required", "b=forbidden"], agents) == {
        "a": TaskMode.REQUIRED,
        "b": TaskMode.FORBIDDEN,
    }
    for wrong in (["maybe"], ["a=maybe"], ["a=optional", "a=required"], ["a="]):
        with pytest.raises(DefinitionError, match="no mode of tasks"):
            parse_modes(wrong, agents)
    with pytest.raises(DefinitionError, match="two modes"):
        parse_modes(["required", "optional"], agents)


async def test_a_server_without_the_sdk_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp_route, "ENDPOINT", "mcp_that_is_not_installed")
    async with serving(greet) as served:
        answer = await rpc_of(served).send("tools/list", {})
        other = await served.http.get("/v1/models")

    assert answer.status_code == 501
    assert "delegation-orchestrator[mcp]" in answer.json()["error"]["message"]
    assert other.status_code == 200


async def test_a_joined_call_ends_with_its_key(tmp_path: Path) -> None:
    boss, gate = slow_team()
    async with serving_with_keys(boss, folder=tmp_path) as server:
        served = server.served
        token = server.new_token("ann")
        client = Rpc(http=served.http, token=token, can_poll=False)
        answers: list[Any] = []

        async def call() -> None:
            params = {"name": "boss", "arguments": {"goal": "x"}}
            answers.append(await client.send("tools/call", params))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await gate.wait_called()
            revoke_key(server.file, "ann")
            # The server looks at its keys with the next request of any client.
            await served.http.get("/v1/models")

        assert answers[0].status_code == 401
        assert not served.orchestrator.working
