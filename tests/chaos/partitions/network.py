"""Hosts in network namespaces on one switch, and cuts between them that drop packets silently.

The database and the clients are in the namespace of the test, at two addresses of their own.
"""

import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HOSTS: Final = ("a", "b", "c")
NET: Final = "10.77.33"
DATABASE: Final = f"{NET}.1"
CLIENT: Final = f"{NET}.9"
ADDRESSES: Final = {name: f"{NET}.{number}" for number, name in enumerate(HOSTS, 2)}
NOWHERE: Final = "02:00:00:00:00:99"
"""The address of no machine: packets that are sent there are lost."""


def missing() -> str:
    """Return why there can be no namespaces here; empty if there can."""
    if os.getuid() != 0:
        return "they need root"
    if shutil.which("ip") is None:
        return "they need the command ip (apt-get install iproute2)"
    done = subprocess.run(["ip", "netns", "add", _name("try")], capture_output=True, check=False)
    if done.returncode:
        return f"this machine allows none: {done.stderr.decode().strip()}"
    _ip("netns", "del", _name("try"))
    return ""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _name(host: str) -> str:
    return f"orch{os.getpid()}-{host}"


class Namespaces:
    """The hosts, and the cuts between them."""

    def enter(self, host: str) -> Sequence[str]:
        """Return the command that runs another one on a host."""
        return ["ip", "netns", "exec", _name(host)]

    def cut(self, host: str, address: str) -> None:
        """Lose all packets from a host to an address."""
        words = ("neigh", "replace", address, "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")
        _ip("-n", _name(host), *words)

    def mend(self, host: str, address: str) -> None:
        _ip("-n", _name(host), "neigh", "del", address, "dev", "eth0")

    def set_link(self, host: str, *, is_up: bool) -> None:
        """Pull the cable of a host, or plug it in."""
        _ip("-n", _name("switch"), "link", "set", f"to-{host}", "up" if is_up else "down")


@contextmanager
def open_namespaces() -> Generator[Namespaces]:
    """Make the hosts, and remove them."""
    switch, here = _name("switch"), f"orch{os.getpid() % 10**6}"
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        _ip("link", "add", here, "type", "veth", "peer", "name", "to-test", "netns", switch)
        _ip("-n", switch, "link", "set", "to-test", "master", "bridge", "up")
        for address in (DATABASE, CLIENT):
            _ip("addr", "add", f"{address}/24", "dev", here)
        _ip("link", "set", here, "up")
        for host in HOSTS:
            name = _name(host)
            _ip("netns", "add", name)
            link = ("type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", switch, "link", "add", f"to-{host}", *link)
            _ip("-n", switch, "link", "set", f"to-{host}", "master", "bridge", "up")
            _ip("-n", name, "addr", "add", f"{ADDRESSES[host]}/24", "dev", "eth0")
            for it in ("eth0", "lo"):
                _ip("-n", name, "link", "set", it, "up")
        yield Namespaces()
    finally:
        for host in (*HOSTS, "switch"):
            if Path("/run/netns", _name(host)).exists():
                _ip("netns", "del", _name(host))
