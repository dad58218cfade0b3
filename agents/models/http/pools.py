"""HTTP connections to one provider, in as many small pools as there are calls for.

No call waits for a connection: a parent that held one would block the child it waits for.
"""

import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

import httpx2
import trio

from orchestrator.agents.models.http.url import is_on_loopback

CONNECT_SECONDS: Final = 10.0
CALLS_PER_POOL: Final = 16
"""Connections per pool. Each call scans all of its pool, so several small pools cost less."""
KEEPALIVE_SECONDS: Final = 30.0


class Pools:
    """Lends a client for each call, and closes pools that are no longer used."""

    def __init__(self, url: str, headers: Mapping[str, str], silence: float) -> None:
        self._headers = {
            **headers,
            "content-type": "application/json",
            # Compressed pieces of a few letters are no smaller, and come later.
            "accept-encoding": "identity",
        }
        self._timeout = httpx2.Timeout(silence, connect=CONNECT_SECONDS, pool=None)
        # A server on this machine is called directly, whatever proxy the machine is set up with.
        self._trust_env = not is_on_loopback(url)
        # Shared, since loading the certificates takes a tenth of a second and more.
        self._tls = (
            httpx2.create_ssl_context()
            if url.startswith("https:")
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        self._pools: list[_Pool] = []
        self._closed = False

    def __len__(self) -> int:
        return len(self._pools)

    @contextmanager
    def client(self) -> Generator[httpx2.AsyncClient]:
        """Lend a client for one call, of the first pool that has one free: the last run dry."""
        if self._closed:
            raise trio.ClosedResourceError("this model was closed")
        for pool in self._pools:
            if pool.calls < CALLS_PER_POOL:
                break
        else:
            pool = _Pool(self._new_client())
            self._pools.append(pool)
        pool.calls += 1
        try:
            yield pool.client
        finally:
            pool.calls -= 1
            pool.idle_since = trio.current_time()

    async def close_unused(self) -> None:
        """Close the pools whose connections are all too old to be used again."""
        await trio.lowlevel.checkpoint()
        oldest = trio.current_time() - KEEPALIVE_SECONDS
        for pool in self._pools[1:]:
            if not pool.calls and pool.idle_since < oldest:
                self._pools.remove(pool)
                await pool.client.aclose()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self._closed = True
        while self._pools:
            await self._pools.pop().client.aclose()

    def _new_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=self._headers,
            timeout=self._timeout,
            verify=self._tls,
            trust_env=self._trust_env,
            limits=httpx2.Limits(
                max_connections=None,
                max_keepalive_connections=CALLS_PER_POOL,
                keepalive_expiry=KEEPALIVE_SECONDS,
            ),
        )


class _Pool:
    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.calls = 0
        self.idle_since = 0.0
