"""A server with keys of several owners, and what each of them says to it."""

import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from orchestrator.agents import Agent
from orchestrator.products.server.keys.changes import add_key
from orchestrator.products.server.keys.key import ORDINARY, Scope
from orchestrator.products.server.state import Settings
from tests.server.kit import TOKEN, Served, serving


@attrs.frozen(kw_only=True)
class KeyedServer:
    """A server, and the file of its keys."""

    served: Served
    file: Path

    def new_token(self, name: str, *, scopes: Iterable[Scope] = ORDINARY, **more: Any) -> str:
        _, token = add_key(self.file, name, now=time.time(), scopes=scopes, **more)
        return token

    async def ask(
        self, token: str, method: str, path: str, body: Any = None, **headers: str
    ) -> Any:
        """Return the answer to a request of the key with this token."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.served.http.request(
            method, path, json=body, headers={**sent, "authorization": f"Bearer {token}"}
        )


@asynccontextmanager
async def serving_with_keys(
    *agents: Agent[Any], folder: Path, journal: str | Path = ":memory:", **given: Any
) -> AsyncGenerator[KeyedServer]:
    file = folder / "keys.json"
    settings = Settings(token=TOKEN, keys=file, may_default_approve=True)
    async with serving(*agents, journal=journal, settings=settings, **given) as served:
        yield KeyedServer(served=served, file=file)
