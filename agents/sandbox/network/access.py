"""The network around one command: all of it, no network, or a proxy to the named hosts."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from orchestrator.agents.sandbox.backend import TaskSandbox
from orchestrator.agents.sandbox.network.requests import NetworkRequest

REMEMBERED_HOSTS: Final = 20
"""How many refused hosts of a command are remembered."""


@attrs.frozen(kw_only=True)
class NetworkAccess:
    """How a command has to be started, as far as its network goes."""

    argv: Sequence[str]
    environ: Mapping[str, str]
    sandbox: TaskSandbox
    pass_fds: tuple[int, ...] = ()
    """Open descriptors that it inherits."""
    refused: Collection[str] = ()
    """The hosts that it was refused so far, with their ports."""


@asynccontextmanager
async def open_network(
    argv: Sequence[str], *, environ: Mapping[str, str], sandbox: TaskSandbox
) -> AsyncGenerator[NetworkAccess]:
    """Open the network of a command, for the length of the block."""
    await trio.lowlevel.checkpoint()
    hosts = sandbox.sandbox.network
    if isinstance(hosts, bool):
        yield NetworkAccess(argv=argv, environ=environ, sandbox=sandbox)
        return
    # Imported late: few commands have a proxy.
    from orchestrator.agents.sandbox.network.allowed_hosts import AllowedHosts
    from orchestrator.agents.sandbox.network.command_proxy import open_proxy

    refused: dict[str, None] = {}

    def on_request(request: NetworkRequest) -> None:
        if not request.allowed and len(refused) < REMEMBERED_HOSTS:
            refused[request.target] = None
        sandbox.on_request(request)

    async with open_proxy(
        argv,
        environ=environ,
        allowed=AllowedHosts.parse(hosts),
        own_loopback=sandbox.backend.has_own_loopback,
        on_request=on_request,
    ) as start:
        yield NetworkAccess(
            argv=start.argv,
            environ=start.environ,
            sandbox=attrs.evolve(sandbox, proxy_port=start.port),
            pass_fds=start.pass_fds,
            refused=refused.keys(),
        )
