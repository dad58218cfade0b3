"""A real server on a free port of loopback, in the process of the test, and clients for it."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import openai

from orchestrator import Machine, Orchestrator, open_orchestrator
from orchestrator.agents import Agent
from orchestrator.delegation import Rules
from orchestrator.kernel.journal.journal import Journal
from orchestrator.products.server.server import Server, open_server
from orchestrator.products.server.state import Settings
from orchestrator.products.server.transport.listener import Listening

TOKEN = "a-token-of-the-tests"
# Nothing here is encrypted, and reading the certificates of the world takes a tenth of a second.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@attrs.frozen(kw_only=True)
class Served:
    """A server, and how to talk to it."""

    server: Server
    orchestrator: Orchestrator
    http: httpx2.AsyncClient
    """Sends the token."""
    openai: openai.AsyncOpenAI
    """The official client, which asks once and not again."""

    @property
    def url(self) -> str:
        return self.server.addresses[0]


@asynccontextmanager
async def serving(
    *agents: Agent[Any],
    journal: str | Path | Journal = ":memory:",
    rules: Rules | None = None,
    environ: Mapping[str, str] | None = None,
    workspace: Path | None = None,
    settings: Settings | None = None,
    listening: Listening | None = None,
    telemetry: str | None = None,
    **given: Any,
) -> AsyncGenerator[Served]:
    """Serve agents as long as the block lasts."""
    async with (
        open_orchestrator(
            journal,
            rules=rules,
            machine=Machine(workspace=workspace, environ=environ or {}),
            telemetry=telemetry,
        ) as orchestrator,
        open_server(
            orchestrator,
            {agent.name: agent for agent in agents},
            settings or Settings(token=TOKEN, may_default_approve=True),
            listening or Listening(port=0),
            **given,
        ) as server,
    ):
        url = server.addresses[0]
        async with (
            httpx2.AsyncClient(
                base_url=url,
                headers={"authorization": f"Bearer {TOKEN}"},
                timeout=30,
                verify=NO_CERTIFICATES,
            ) as http,
            openai.AsyncOpenAI(
                base_url=f"{url}/v1",
                api_key=TOKEN,
                max_retries=0,
                timeout=30,
                http_client=openai.DefaultAsyncHttpxClient(verify=NO_CERTIFICATES),
            ) as client,
        ):
            yield Served(server=server, orchestrator=orchestrator, http=http, openai=client)
