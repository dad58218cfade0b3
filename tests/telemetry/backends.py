"""`python -m tests.telemetry.backends`: let the backends that others wrote judge our spans.

Each backend runs in an environment of its own. A program with three tasks, one of them failed, is
killed while it sends spans, and continues; then its run is exported twice. The backend must have
each span once, below the same parent, with the tokens of the tree.
"""

import argparse
import base64
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import httpx2
import trio

from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from orchestrator.products.telemetry import conventions as names
from orchestrator.products.telemetry.session_spans import SessionSpans
from tests.clients.environments import PINS, Client, prepare

PATIENCE: Final = 300
"""The seconds that a backend may take to start, and to store the spans."""
MLFLOW_EXPERIMENT: Final = "0"


@attrs.frozen(order=True)
class Stored:
    """A span, as a backend shows it."""

    id: str
    parent: str
    name: str
    failed: bool
    input_tokens: int
    output_tokens: int


Read = Callable[[httpx2.AsyncClient, str], Awaitable[list[Stored]]]


@attrs.frozen
class Backend:
    """A backend: the command that starts it, and the way to read its spans."""

    client: Client
    package: str
    arguments: Callable[[int, Path], Sequence[str]]
    read: Read
    environ: Callable[[int, Path], Mapping[str, str]] = lambda _port, _folder: {}
    headers: str = ""
    """The headers that the exporter sends to it."""


async def read_phoenix(http: httpx2.AsyncClient, _run: str) -> list[Stored]:
    answer = await http.get("/v1/projects/default/spans", params={"limit": 1000})
    if answer.status_code == 404:
        return []  # no span has come
    return [
        _stored(
            it["context"]["span_id"],
            it["parent_id"] or "",
            it["name"],
            failed=it["status_code"] == "ERROR",
            attributes=it["attributes"],
        )
        for it in answer.raise_for_status().json()["data"]
    ]


async def read_mlflow(http: httpx2.AsyncClient, run: str) -> list[Stored]:
    location = {
        "type": "MLFLOW_EXPERIMENT",
        "mlflow_experiment": {"experiment_id": MLFLOW_EXPERIMENT},
    }
    found = await http.post("/api/3.0/mlflow/traces/search", json={"locations": [location]})
    stored: list[Stored] = []
    for trace in found.raise_for_status().json().get("traces", ()):
        assert trace["trace_metadata"]["mlflow.trace.session"] == run
        answer = await http.get(
            "/api/3.0/mlflow/traces/get", params={"trace_id": trace["trace_id"]}
        )
        for it in answer.raise_for_status().json()["trace"]["spans"]:
            values = {one["key"]: next(iter(one["value"].values())) for one in it["attributes"]}
            stored.append(
                _stored(
                    _hexadecimal(it["span_id"]),
                    _hexadecimal(it.get("parent_span_id", "")),
                    it["name"],
                    failed="ERROR" in str(it["status"].get("code", "")),
                    attributes=values,
                )
            )
    return stored


def _stored(
    id_: str, parent: str, name: str, *, failed: bool, attributes: Mapping[str, Any]
) -> Stored:
    tokens = [int(attributes.get(it, 0)) for it in (names.INPUT_TOKENS, names.OUTPUT_TOKENS)]
    return Stored(id_, parent, name, failed, *tokens)


def _hexadecimal(id_: str) -> str:
    return base64.b64decode(id_).hex()


BACKENDS: Final = (
    Backend(
        Client("MLflow", "mlflow", "mlflow.py"),
        "mlflow",
        lambda port, folder: [
            *("bin/mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
            *("--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
            *("--default-artifact-root", f"{folder}/artifacts"),
        ],
        read_mlflow,
        lambda _port, _folder: {"MLFLOW_DISABLE_TELEMETRY": "true"},
        headers=f"x-mlflow-experiment-id={MLFLOW_EXPERIMENT}",
    ),
    Backend(
        Client("Arize Phoenix", "phoenix", "phoenix.py"),
        "arize-phoenix",
        lambda _port, _folder: ["bin/phoenix", "serve"],
        read_phoenix,
        lambda port, folder: {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(_free_port()),
            "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        },
    ),
)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def open_backend(backend: Backend, folder: Path) -> AsyncGenerator[httpx2.AsyncClient]:
    """Run a backend as long as the block lasts, and give a client for its pages."""
    await prepare(backend.client)
    port = _free_port()
    program, *arguments = backend.arguments(port, folder)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder), **backend.environ(port, folder)}
    with (folder / "log").open("wb") as log:
        async with trio.open_nursery() as nursery:
            run = partial(
                trio.run_process,
                cwd=folder,
                env=environ,
                stdout=log,
                stderr=log,
                check=False,
                start_new_session=True,
                deliver_cancel=_end_group,
            )
            await nursery.start(run, [str(backend.client.folder / program), *arguments])
            address = f"http://127.0.0.1:{port}"
            async with httpx2.AsyncClient(base_url=address, timeout=60, trust_env=False) as http:
                await _wait_ready(http)
                yield http
            nursery.cancel_scope.cancel(reason="the backend has judged")


async def _end_group(process: trio.Process) -> None:
    """End a backend with the processes that it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    await trio.lowlevel.checkpoint()


async def _wait_ready(http: httpx2.AsyncClient) -> None:
    with trio.fail_after(PATIENCE):
        while True:
            with suppress(httpx2.TransportError):
                await http.get("/")
                return
            await trio.sleep(0.5)


async def judge(backend: Backend, folder: Path) -> str:
    """Return the counts of a backend; raise `AssertionError` if they are not ours."""
    async with open_backend(backend, folder) as http:
        journal, address = folder / "journal.db", str(http.base_url).rstrip("/")
        environ = {
            **os.environ,
            "ORCHESTRATOR_HOME": str(folder),
            "OTEL_EXPORTER_OTLP_HEADERS": backend.headers,
            "OTEL_EXPORTER_OTLP_ENDPOINT": address,
        }
        team = [sys.executable, "-m", "tests.telemetry.killed_team", str(journal), address]
        killed = await trio.run_process(team, env=environ, check=False)
        assert killed.returncode == -signal.SIGKILL
        ended = await trio.run_process(team, env=environ, capture_stdout=True)
        run, *tokens = ended.stdout.decode().split()
        export = [sys.executable, "-m", "orchestrator", "export", run, "--format", "otlp"]
        for _ in range(2):
            await trio.run_process([*export, "--journal", str(journal)], env=environ)
        ours = await spans_in(journal)
        stored = await _wait_stored(len(ours), partial(backend.read, http, run))
    assert sorted(stored) == sorted(ours)
    sums = [sum(it.input_tokens for it in stored), sum(it.output_tokens for it in stored)]
    assert sums == [*map(int, tokens)]
    failed = [it.name for it in stored if it.failed]
    assert "invoke_agent breaker" in failed
    pin = next(it for it in _pins(backend) if it.startswith(f"{backend.package}=="))
    return (
        f"{backend.client.title} {pin.split()[0].partition('==')[2]}: {len(stored)} spans,"
        f" {sum(sums)} tokens, failed: {', '.join(sorted(failed))}"
    )


async def _wait_stored(count: int, read: Callable[[], Awaitable[list[Stored]]]) -> list[Stored]:
    """Return the spans of a backend, which may answer before it has stored them."""
    with trio.fail_after(PATIENCE):
        while True:
            if len(stored := await read()) >= count:
                return stored
            await trio.sleep(0.5)


def _pins(backend: Backend) -> list[str]:
    return (PINS / f"{backend.client.pins}.txt").read_text().splitlines()


async def spans_in(journal: Path) -> list[Stored]:
    """Return the spans of the only run of a journal."""
    entries = await read_sqlite_journal(journal)
    session = next(it.session for it in entries if it.session)
    builder = SessionSpans(session)
    spans = [span for it in entries if it.session == session for span in builder.add(it)]
    return [
        _stored(
            f"{it.ids.span:016x}",
            f"{it.parent:016x}" if it.parent else "",
            it.name,
            failed=it.failed,
            attributes=it.attributes,
        )
        for it in spans
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.telemetry.backends", description=__doc__)
    chosen = {it.client.pins: it for it in BACKENDS}
    parser.add_argument("backends", nargs="*", metavar="backend", help=", ".join(chosen))
    asked = parser.parse_args().backends
    if unknown := {*asked} - chosen.keys():
        parser.error(f"no such backend: {', '.join(sorted(unknown))}")
    for name in asked or chosen:
        with tempfile.TemporaryDirectory(prefix="backend-") as folder:
            print(trio.run(judge, chosen[name], Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
