"""The proxy of one command: its address, and how the command finds it.

A command with its own loopback (bubblewrap) opens the listener of its proxy itself, just before it
replaces the launcher, and sends it to us: no other process can connect. Any other command shares
the loopback of this machine, where its proxy has a password.
"""

import os
import secrets
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from orchestrator.agents.nurseries import raising_one_error
from orchestrator.agents.sandbox.network.allowed_hosts import AllowedHosts
from orchestrator.agents.sandbox.network.proxy import USER, NetworkProxy
from orchestrator.agents.sandbox.network.requests import NetworkRequest

PORT: Final = 3128
"""Of a proxy on the loopback of one command: by custom that of proxies."""
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""The hosts that a command reaches without a proxy: its own servers."""
LAUNCHER: Final = Path(__file__).with_name("listen_in_namespace.py")


@attrs.frozen(kw_only=True)
class ProxiedStart:
    """How a command has to be started so that it finds its proxy."""

    argv: Sequence[str]
    environ: Mapping[str, str]
    port: int
    """The one port of loopback that it has to reach."""
    pass_fds: tuple[int, ...] = ()


@asynccontextmanager
async def open_proxy(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str],
    allowed: AllowedHosts,
    own_loopback: bool,
    on_request: Callable[[NetworkRequest], None],
) -> AsyncGenerator[ProxiedStart]:
    """Serve a proxy for one command in the block; `own_loopback` if it has a network namespace."""
    password = None if own_loopback else secrets.token_urlsafe(24)
    proxy = NetworkProxy(allowed, on_request=on_request, password=password)
    with raising_one_error():
        # The proxy lives in this nursery, and ends with the block.
        async with trio.open_nursery() as nursery:
            if own_loopback:
                ours, theirs = trio.socket.socketpair()
                with theirs:
                    nursery.start_soon(_serve_sent_listener, proxy, ours)
                    yield ProxiedStart(
                        argv=_listening_first(argv, channel=theirs.fileno()),
                        environ={**environ, **_variables(f"http://127.0.0.1:{PORT}", allowed)},
                        port=PORT,
                        pass_fds=(theirs.fileno(),),
                    )
            else:
                [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
                nursery.start_soon(proxy.serve, listener)
                port = listener.socket.getsockname()[1]
                url = f"http://{USER}:{password}@127.0.0.1:{port}"
                yield ProxiedStart(
                    argv=argv, environ={**environ, **_variables(url, allowed)}, port=port
                )
            nursery.cancel_scope.cancel()


def _listening_first(argv: Sequence[str], *, channel: int) -> list[str]:
    """Return a command that opens a listener, sends it by a channel, and becomes another."""
    # Without the folders and variables of the user, so that no code of theirs is imported.
    python = [os.path.realpath(sys.executable), "-I", "-S", "-E", "-c"]
    return [*python, LAUNCHER.read_text(), str(channel), str(PORT), *argv]


async def _serve_sent_listener(proxy: NetworkProxy, channel: trio.socket.SocketType) -> None:
    """Serve the listener that comes by a channel."""
    with channel:
        _, attached, _, _ = await channel.recvmsg(1, socket.CMSG_SPACE(4))
    if not attached:
        return  # the command was not started, and its output says why
    [(_, _, descriptor)] = attached
    sent = socket.socket(fileno=int.from_bytes(descriptor, sys.byteorder))
    async with trio.SocketListener(trio.socket.from_stdlib_socket(sent)) as listener:
        await proxy.serve(listener)


def _variables(url: str, allowed: AllowedHosts) -> dict[str, str]:
    """Return the proxy variables of programs, in lower and upper case."""
    named = {rule.host for rule in allowed.rules}
    # A local name in the list means this machine, and not the command.
    direct = ",".join(host for host in LOCAL_HOSTS if host not in named)
    upper = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": direct}
    lower = {name.lower(): value for name, value in upper.items()}
    # Node has a fetch that ignores them unless this is set.
    return {**upper, **lower, "NODE_USE_ENV_PROXY": "1"}
