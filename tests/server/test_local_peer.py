"""The process at the other end of a connection from this machine is found, or refused."""

import os
import socket
import subprocess
import sys
from ipaddress import IPv6Address
from typing import Any

import pytest
import trio

from orchestrator.agents.sandbox.network.allowed_hosts import AllowedHosts
from orchestrator.agents.sandbox.network.proxy import NetworkProxy
from orchestrator.agents.tools.terminal.process_origin import PROCESSES
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.local_peer import TABLES, require_person

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.skipif(not TABLES[0].exists(), reason="needs /proc"),
]


def ends_of(accepted: socket.socket | trio.socket.SocketType) -> dict[str, Any]:
    """Return what the server knows of a connection."""
    return {"client": accepted.getpeername()[:2], "server": accepted.getsockname()[:2]}


@pytest.mark.parametrize(
    ("bound", "host"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")]
)
async def test_a_local_peer_is_found_by_ipv4_and_ipv6(bound: str, host: str) -> None:
    is_new = ":" in bound
    if is_new and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with socket.create_server(
        (bound, 0), family=socket.AF_INET6 if is_new else socket.AF_INET, dualstack_ipv6=is_new
    ) as listening:
        with socket.create_connection((host, listening.getsockname()[1])):
            accepted, _ = listening.accept()
            with accepted:
                await require_person(ends_of(accepted))


async def test_a_proxied_command_cannot_approve() -> None:
    """The proxy is a part of this process, which may approve otherwise."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    [front] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    here = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    port = front.socket.getsockname()[1]
    proxy = NetworkProxy(AllowedHosts.parse([here]), on_request=lambda _: None)
    async with listener, front, trio.open_nursery() as nursery:
        nursery.start_soon(proxy.serve, front)
        async with await trio.open_tcp_stream("127.0.0.1", port) as command:
            await command.send_all(f"CONNECT {here} HTTP/1.1\r\nHost: {here}\r\n\r\n".encode())
            async with await listener.accept() as accepted:
                await command.receive_some()
                with pytest.raises(HttpError):
                    await require_person(ends_of(accepted.socket))
        nursery.cancel_scope.cancel()


BECOME = """
import os, socket, sys
os.setuid(65534)
there = socket.socket()
there.connect(("127.0.0.1", int(sys.argv[1])))
sys.stdin.read()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
async def test_a_command_that_became_another_user_cannot_approve() -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = str(listener.socket.getsockname()[1])
    command = await trio.lowlevel.open_process(
        [sys.executable, "-c", BECOME, port], stdin=subprocess.PIPE
    )
    assert command.stdin is not None
    async with listener, command.stdin, await listener.accept() as accepted:
        with pytest.raises(HttpError):
            await require_person(ends_of(accepted.socket))
    await command.wait()


async def test_a_closed_connection_may_not_approve_and_another_machine_may() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        leaving = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            leaving.close()
            with pytest.raises(HttpError) as caught:
                await require_person(ends_of(accepted))
            await require_person({"client": ("192.0.2.1", 5), "server": accepted.getsockname()})

    assert caught.value.status == 403
    for unknown in ({}, {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1)}):
        with pytest.raises(HttpError):
            await require_person(unknown)


def link_local_place() -> tuple[str, int, int, int] | None:
    """Return a link-local address of this machine, if it has one."""
    table = PROCESSES / "net" / "if_inet6"
    lines = table.read_text().splitlines() if table.exists() else []
    for raw, index, *_ in map(str.split, lines):
        address = IPv6Address(bytes.fromhex(raw))
        if address.is_link_local:
            return str(address), 0, 0, int(index, 16)
    return None


@pytest.mark.skipif(link_local_place() is None, reason="needs a link-local address")
async def test_one_with_a_link_local_address_is_of_this_machine() -> None:
    place = link_local_place()
    assert place is not None
    with socket.socket(socket.AF_INET6) as listening:
        listening.bind(place)
        listening.listen()
        leaving = socket.socket(socket.AF_INET6)
        leaving.connect(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            await require_person(ends_of(accepted))
            leaving.close()
            with pytest.raises(HttpError):
                await require_person(ends_of(accepted))
