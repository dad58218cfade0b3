"""Owners: what another owner has made is not there, in no way that an answer could tell."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator.agents import Agent, ScriptedModel
from orchestrator.agents.approval import confirm
from orchestrator.delegation import SessionId
from orchestrator.delegation.events.jobs import JobId, JobSpec
from orchestrator.kernel.errors import ServerSetupError
from orchestrator.products import server as server_package
from orchestrator.products.server.app import OPERATIONS
from orchestrator.products.server.keys.key import ORDINARY, Scope
from orchestrator.products.server.operation import Operation
from orchestrator.products.server.webhook import open_webhooks, webhooks_for
from tests.kit import worker
from tests.orchestrator.approvals_kit import Shell
from tests.orchestrator.approvals_kit import run as shell_run
from tests.server.keys_kit import KeyedServer, serving_with_keys
from tests.server.kit import TOKEN
from tests.server.test_webhook import receiving

pytestmark = pytest.mark.realtime

ALL = frozenset({*ORDINARY, Scope.APPROVE})
FILE = {"type": "data", "media_type": "image/png", "data": "iVBORw=="}
UNKNOWN = {
    "run": "r_0123456789abcdef",
    "session": "r_0123456789abcdef",
    "task": "r_0123456789abcdef",
    "response": "resp_0123456789abcdef",
    "conversation": "conv_0123456789abcdef",
    "item": "msg_0123456789abcdef",
    "completion": "chatcmpl-0123456789abcdef",
    "approval": "a_0123456789abcdef",
    "job": "r_0123456789abcdef:look",
    "turn": "1",
    "message": "m_0123456789",
    "part": "1",
}
BODIES: dict[str, Any] = {
    "answer_approval": {"answer": "once"},
    "steer_task": {"text": "hurry"},
    "tell_session": {"text": "hello"},
    "branch_session": {"before": 1},
    "change_session": {"metadata": {}},
    "update_conversation": {"metadata": {}},
    "create_items": {"items": [{"role": "user", "content": "hello"}]},
    "update_completion": {"metadata": {}},
    "edit_job": {"goal": "hurry"},
}


def asker() -> Agent:
    """Return an agent whose command waits for an approval."""
    return Agent(
        "asker",
        model=ScriptedModel.always(shell_run("make")),
        tools=[Shell().tool],
        approve=[confirm("*")],
    )


async def made_by(server: KeyedServer, token: str) -> dict[str, str]:
    """Make one of everything that has an id, and return the ids by the names in paths."""
    said = await server.ask(token, "POST", "/v1/sessions", {"model": "worker"})
    session = said.json()["id"]
    await server.ask(token, "POST", f"/v1/sessions/{session}/messages", {"text": "hello"})
    await server.ask(token, "GET", f"/v1/sessions/{session}/inbox?wait=5")
    body = {"model": "worker", "input": "go"}
    response = (await server.ask(token, "POST", "/v1/responses", body)).json()["id"]
    made = await server.ask(token, "POST", "/v1/conversations", {})
    conversation = made.json()["id"]
    path = f"/v1/conversations/{conversation}/items"
    added = await server.ask(token, "POST", path, BODIES["create_items"])
    asked = [{"role": "user", "content": "hello"}]
    chat = {"model": "worker", "messages": asked, "store": True}
    answer = await server.ask(token, "POST", "/v1/chat/completions", chat)
    asks = {"model": "asker", "input": "go", "parts": [FILE]}
    run = (await server.ask(token, "POST", "/v1/runs", asks)).json()["id"]
    with trio.fail_after(10):
        while not server.served.orchestrator.read.open_questions():
            seq = server.served.orchestrator.read.last_seq
            await server.served.orchestrator.wait_changed(after=seq)
    (question,) = server.served.orchestrator.read.open_questions()
    transcript = await server.ask(token, "GET", f"/v1/tasks/{run}/transcript")
    job = JobSpec(id=JobId("look"), schedule="0 8 1 1 *", zone="UTC", agent="worker", goal="Look.")
    journal = server.served.server.state.journals.first
    journal.scheduler.set(SessionId(session), job)
    return {
        "run": run,
        "session": session,
        "task": run,
        "response": response,
        "conversation": conversation,
        "item": added.json()["data"][0]["id"],
        "completion": answer.json()["id"],
        "approval": question.id,
        "job": f"{session}:look",
        "turn": "1",
        "message": transcript.json()["data"][0]["id"],
        "part": "1",
    }


def with_ids(operation: Operation) -> list[str]:
    return [it for it in re.findall(r"\{(\w+)\}", operation.path) if it != "model"]


def compared(answer: Any, ids: dict[str, str]) -> tuple[int, str, list[tuple[str, str]]]:
    """Return all of an answer but the ids that were asked for, and what each request has anew."""
    text = answer.text
    for name, id_ in ids.items():
        text = text.replace(id_, "ID") if name not in {"turn", "part"} else text
    new = {"date", "x-request-id"}
    headers = [it for it in answer.headers.items() if it[0] not in new]
    return answer.status_code, text, headers


async def test_an_id_of_another_owner_is_answered_like_an_unknown_one(tmp_path: Path) -> None:
    differing: dict[str, Any] = {}
    own: dict[str, int] = {}
    routes = [it for it in OPERATIONS if with_ids(it)]
    async with serving_with_keys(worker(), asker(), folder=tmp_path) as server:
        ann = server.new_token("ann", scopes=ALL)
        bob = server.new_token("bob", scopes=ALL)
        made = await made_by(server, ann)
        for operation in routes:
            body = BODIES.get(operation.name)
            answers = [
                compared(
                    await server.ask(bob, operation.method, operation.path.format(**ids), body), ids
                )
                for ids in (made, UNKNOWN)
            ]
            if answers[0] != answers[1] or answers[0][0] != 404:
                differing[operation.name] = answers
        # The very same requests find something when its owner makes them.
        for operation in routes:
            if operation.method == "GET" and "events" not in operation.path:
                path = operation.path.format(**made)
                own[path] = (await server.ask(ann, "GET", path)).status_code

    assert len(routes) >= 20
    assert differing == {}
    assert set(own.values()) == {200}


async def test_ids_of_another_owner_are_neither_listed_nor_accepted(tmp_path: Path) -> None:
    async with serving_with_keys(worker(), asker(), folder=tmp_path) as server:
        ann = server.new_token("ann", scopes=ALL)
        bob = server.new_token("bob", scopes=ALL)
        made = await made_by(server, ann)
        lists = {
            path: [(await server.ask(it, "GET", path)).json() for it in (ann, bob)]
            for path in ("/v1/runs", "/v1/sessions", "/v1/approvals", "/v1/jobs")
        }
        named = [
            await server.ask(bob, "GET", f"/v1/runs?after={made['run']}"),
            await server.ask(bob, "GET", "/v1/runs?after=r_0123456789abcdef"),
            *[
                await server.ask(
                    bob,
                    "POST",
                    "/v1/responses",
                    {"model": "worker", "input": "go", "previous_response_id": it},
                )
                for it in (made["response"], "resp_0123456789abcdef")
            ],
        ]
        everything = (await server.ask(TOKEN, "GET", "/v1/runs")).json()["data"]

    assert all(seen["data"] for seen, _ in lists.values())
    for _, unseen in lists.values():
        assert unseen["data"] == []
        assert unseen.get("last_id") is None
        assert not unseen.get("has_more")
    assert [it.status_code for it in named] == [404] * 4
    assert [it["owner"] for it in everything] == ["ann"] * 4, "an admin sees it all"


async def test_the_same_idempotency_key_of_two_owners_is_two_keys(tmp_path: Path) -> None:
    async with serving_with_keys(worker(), folder=tmp_path) as server:
        tokens = [server.new_token("ann"), server.new_token("bob"), TOKEN]
        body = {"model": "worker", "input": "go"}
        made = [
            (await server.ask(it, "POST", "/v1/runs", body, idempotency_key="once")).json()["id"]
            for it in (*tokens, *tokens)
        ]

    assert made[:3] == made[3:]
    assert len(set(made)) == 3


async def test_owners_outlive_the_server_and_the_sessions_in_memory(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    body = {"model": "worker", "input": "go"}
    async with serving_with_keys(worker(), folder=tmp_path, journal=journal) as server:
        ann, bob = server.new_token("ann"), server.new_token("bob")
        run = (await server.ask(ann, "POST", "/v1/runs", body)).json()["id"]
        await server.ask(ann, "GET", f"/v1/runs/{run}/events")
    async with serving_with_keys(worker(), folder=tmp_path, journal=journal) as server:
        kept = server.served.orchestrator.read.records.sessions
        found = [
            (await server.ask(it, "GET", f"/v1/runs/{run}")).status_code for it in (ann, bob, TOKEN)
        ]
        listed = [
            len((await server.ask(it, "GET", "/v1/runs")).json()["data"])
            for it in (ann, bob, TOKEN)
        ]

    assert run not in kept, "it is idle, and was not loaded"
    assert found == [200, 404, 200]
    assert listed == [1, 0, 1]


async def test_a_run_of_the_library_belongs_to_the_default_owner(tmp_path: Path) -> None:
    agent = worker()
    async with serving_with_keys(agent, folder=tmp_path) as server:
        default = server.new_token("colleague", owner="default")
        ann = server.new_token("ann")
        run = (await server.served.orchestrator.run(agent, "go")).id
        found = [
            (await server.ask(it, "GET", f"/v1/runs/{run}")).status_code
            for it in (default, ann, TOKEN)
        ]

    assert found == [200, 404, 200]


async def test_a_webhook_receives_only_replies_of_its_owner(tmp_path: Path) -> None:
    """Each is signed with a secret of its own: no owner can sign for another."""
    body = {"model": "worker", "input": "go"}
    async with receiving() as anns, receiving() as others:
        told = webhooks_for([f"ann={anns.url}", others.url], {}, tmp_path)
        async with (
            open_webhooks(told) as push,
            serving_with_keys(worker(), folder=tmp_path, push=push) as server,
        ):
            made = {
                it: (await server.ask(token, "POST", "/v1/runs", body)).json()["id"]
                for it, token in {
                    "bob": server.new_token("bob"),
                    "ann": server.new_token("ann"),
                    "default": TOKEN,
                }.items()
            }
            got = [await it.got.receive() for it in (anns, others)]
            await server.ask(TOKEN, "GET", f"/v1/runs/{made['bob']}/events")
            left = [it.got.statistics().current_buffer_used for it in (anns, others)]

    assert [json.loads(it.body)["data"]["run"] for it in got] == [made["ann"], made["default"]]
    assert left == [0, 0], "bob has no webhook"
    assert len({it.secret.value for it in told}) == 2
    with pytest.raises(ServerSetupError):
        webhooks_for([anns.url, f"default={others.url}"], {}, tmp_path)


def test_every_route_finds_sessions_by_the_owner_of_the_key() -> None:
    """`lookup` checks the owner; a route with its own search might not."""
    found = [
        f"{file.name}:{node.lineno}"
        for folder in ("api", "openai")
        for file in (Path(server_package.__file__).parent / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and file.name != "lookup.py"
        if node.attr in {"find", "session", "session_of", "task", "read_tree", "tree"}
        if ast.unparse(node.value).rpartition(".")[2] in {"read", "door"}
    ]

    assert found == []
