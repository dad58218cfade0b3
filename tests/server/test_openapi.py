"""The OpenAPI document: true, complete, and nothing that it allows or forbids surprises us."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import trio
from schemathesis.specs.openapi.definitions import OPENAPI_31

from orchestrator.agents import Agent, ScriptedModel
from orchestrator.agents.approval import confirm
from orchestrator.products.server.app import OPERATIONS, encoded_document
from orchestrator.products.server.keys import wrong_keys
from tests.kit import worker
from tests.orchestrator.approvals_kit import Shell
from tests.orchestrator.approvals_kit import run as shell_run
from tests.server.kit import TOKEN, Served, serving
from tests.server.runs_kit import boss, ended, started

pytestmark = pytest.mark.realtime

HERE = Path(__file__).parent
SEED = 1
EXAMPLES = 6


async def document() -> Any:
    async with serving(worker()) as served:
        answer = await served.http.get("/openapi.json", headers={"authorization": ""})
    assert answer.status_code == 200
    return answer.json()


def test_the_document_is_encoded_once() -> None:
    assert encoded_document() is encoded_document()


async def test_the_document_is_openapi_in_version_3_1() -> None:
    said = await document()

    assert said["openapi"].startswith("3.1")
    errors = jsonschema_rs.validator_for(OPENAPI_31).iter_errors(said)
    assert [str(error) for error in errors] == []


async def test_the_document_has_every_route_and_no_other() -> None:
    paths = (await document())["paths"]

    said = {(method.upper(), path) for path, it in paths.items() for method in it}
    assert said == {(it.method, it.path) for it in OPERATIONS}
    names = [it["operationId"] for methods in paths.values() for it in methods.values()]
    assert len(names) == len(set(names))


async def test_every_reference_in_the_document_leads_somewhere() -> None:
    said = await document()

    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(said)))
    assert named == set(said["components"]["schemas"])


async def test_the_document_lists_the_parameters_of_a_route() -> None:
    paths = (await document())["paths"]

    events = paths["/v1/runs/{run}/events"]["get"]
    assert [(it["in"], it["name"]) for it in events["parameters"]] == [
        ("path", "run"),
        ("query", "after"),
        ("query", "deltas"),
        ("header", "Last-Event-ID"),
    ]
    assert list(events["responses"]["200"]["content"]) == ["text/event-stream"]
    create = paths["/v1/runs"]["post"]
    assert [it["name"] for it in create["parameters"]] == ["Idempotency-Key"]
    assert {"202", "400", "401", "404", "413", "415", "422"} <= set(create["responses"])
    assert paths["/health"]["get"]["security"] == []


async def test_schemathesis_reports_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It sends hundreds of wrong tokens, and expects 401 for each.
    monkeypatch.setattr(wrong_keys, "FREE", 10_000)
    async with serving(worker(), boss(), careful()) as served:
        there = await furnished(served)
        command = [
            *(sys.executable, "-m", "schemathesis.cli"),
            *("--config-file", str(HERE / "schemathesis.toml")),
            *("run", f"{served.url}/openapi.json"),
            *("--header", f"Authorization: Bearer {TOKEN}"),
            *("--checks", "all", "--phases", "examples,coverage,fuzzing,stateful"),
            *("--seed", str(SEED), "--max-examples", str(EXAMPLES)),
            *("--request-timeout", "10", "--warnings", "off", "--no-color"),
        ]
        environ = {
            **os.environ,
            # It is no code of ours, and to measure it takes half as long again.
            "COVERAGE_PROCESS_CONFIG": "",
            "SERVED": json.dumps(there),
            "SCHEMATHESIS_HOOKS": "tests.server.schemathesis_hooks",
            "PYTHONPATH": str(HERE.parent.parent),
            # A proxy that the machine is set up with must not come between.
            "NO_PROXY": "127.0.0.1",
        }
        done = await trio.run_process(
            command,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            env=environ,
            cwd=tmp_path,
            check=False,
        )

    assert done.returncode == 0, done.stdout.decode()


def careful() -> Agent:
    """Return an agent whose command waits for an approval."""
    return Agent(
        "careful",
        model=ScriptedModel.always(shell_run("make")),
        tools=[Shell().tool],
        approve=[confirm("terminal")],
    )


async def furnished(served: Served) -> dict[str, list[str]]:
    """Have something of each kind there, and return its ids."""
    runs = [(await started(served, "worker"))["id"] for _ in range(20)]
    boss_run = await ended(served, (await started(served, "boss"))["id"])
    tree = (await served.http.get(f"/v1/runs/{boss_run['id']}/tree")).json()
    for _ in range(3):
        await started(served, "careful")
    seq = 0
    while len(served.orchestrator.approvals) < 3:
        seq = await served.orchestrator.wait_changed(after=seq)
    sessions = [await opened(served) for _ in range(12)]
    for session in sessions:
        path = f"/v1/sessions/{session}"
        await served.http.post(f"{path}/messages", json={"text": "hello"})
        await served.http.get(f"{path}/inbox?wait=10")
    closed = sessions[:4]
    for session in closed:
        await served.http.post(f"/v1/sessions/{session}/close")
    responses = [
        await served.openai.responses.create(model="worker", input="hello") for _ in range(8)
    ]
    return {
        "run": runs,
        "task": [node["id"] for node in tree["nodes"]],
        "session": sessions,
        "closed": closed,
        "turn": ["1"],
        "approval": [it.id for it in served.orchestrator.approvals],
        "response": [it.id for it in responses],
        "model": ["worker"],
    }


async def opened(served: Served) -> str:
    id_: str = (await served.http.post("/v1/sessions", json={"model": "worker"})).json()["id"]
    return id_


async def test_component_names_do_not_reveal_modules() -> None:
    """A file that moves must not change the document: class names are unique."""
    names = (await document())["components"]["schemas"]

    assert [name for name in names if not name.isidentifier()] == []


async def test_every_route_is_reached_by_links_and_its_example_is_taken() -> None:
    """A fuzzer that knows nothing but the document gets beyond 404."""
    spec = await document()
    operations = {
        operation["operationId"]: (path, operation)
        for path, methods in spec["paths"].items()
        for operation in methods.values()
    }
    linked: set[str] = set()
    for _, operation in operations.values():
        for answer in operation["responses"].values():
            for link in answer.get("links", {}).values():
                path, target = operations[link["operationId"]]
                linked.add(link["operationId"])
                named = (
                    {it["name"] for it in target["parameters"] if it["in"] == "path"}
                    if "{" in path
                    else set[str]()
                )
                assert set(link.get("parameters", {})) == named
    with_parameters = {name for name, (path, _) in operations.items() if "{" in path}

    assert with_parameters <= linked
    async with serving(worker()) as served:
        for name, (path, operation) in operations.items():
            body = operation.get("requestBody", {}).get("content", {})
            example = body.get("application/json", {}).get("example")
            if body:
                assert example is not None, name
            if example is not None and "{" not in path:
                sent = {**example, "model": "worker"}
                answer = await served.http.post(path, json=sent)
                assert answer.status_code < 300, answer.text


async def test_the_patterns_of_the_document_mean_the_same_in_javascript() -> None:
    """Python alone has an end of text of its own, and a default must fit its pattern."""
    found: list[dict[str, Any]] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "pattern" in value:
                found.append(value)
            for each in value.values():
                look(each)
        elif isinstance(value, list):
            for each in value:
                look(each)

    look(await document())

    assert found
    for schema in found:
        pattern = schema["pattern"]
        if isinstance(pattern, str):
            assert not re.search(r"\\[AZz]|\(\?[P<!=#i]|\+\+|\*\+", pattern)
            if "default" in schema:
                assert re.search(pattern, schema["default"])
