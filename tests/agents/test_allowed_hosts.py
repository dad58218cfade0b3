"""A command reaches the hosts that are named for it, and no address behind a name's back."""

import os
import shutil
import subprocess
import sys
from ipaddress import ip_address

import pytest

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.sandbox.network.allowed_hosts import ALIASES, AllowedHosts, normal_host

PUBLIC = ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::808:808")
PRIVATE = ("127.0.0.1", "10.1.2.3", "192.168.0.9", "::1", "fd12::1", "::ffff:10.0.0.1")
PRIVATE_TRANSLATED = (
    *("64:ff9b::7f00:1", "2002:7f00:1::1", "100.64.0.1"),
    *("::7f00:1", "::ffff:0:7f00:1", "::a00:1"),
)
NEVER = (
    *("169.254.169.254", "169.254.1.1", "fe80::1", "0.0.0.0", "::", "224.0.0.1"),
    *("fec0::1", "5f00::1"),
)
METADATA = (
    *("fd00:ec2::254", "100.100.100.200", "::ffff:169.254.169.254", "168.63.129.16"),
    "::ffff:0:a9fe:a9fe",
)


def reaches(entry: str, host: str, port: int, address: str = PUBLIC[0]) -> bool:
    rules = AllowedHosts.parse([entry]).matching(normal_host(host), port)
    return any(rule.permits(ip_address(address)) for rule in rules)


@pytest.mark.parametrize(
    ("entry", "host", "port"),
    [
        ("example.com", "example.com", 443),
        ("example.com", "EXAMPLE.com.", 80),
        ("*.example.com", "a.b.example.com", 443),
        ("*", "example.com", 443),
        ("example.com:8443", "example.com", 8443),
        ("*.example.com:8443", "a.example.com", 8443),
        ("pypi", "files.pythonhosted.org", 443),
        ("bücher.de", "xn--bcher-kva.de", 443),
    ],
)
def test_a_host_is_reached_when_an_entry_names_it(entry: str, host: str, port: int) -> None:
    assert reaches(entry, host, port)


@pytest.mark.parametrize(
    ("entry", "host", "port"),
    [
        ("example.com", "a.example.com", 443),
        ("example.com", "badexample.com", 443),
        ("example.com", "example.com", 22),
        ("example.com:8443", "example.com", 443),
        ("*.example.com", "example.com", 443),
        ("*.example.com", "badexample.com", 443),
        ("*.example.com", "example.com.evil.net", 443),
        ("*", "93.184.215.14", 443),
        ("*", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", 443),
        ("pypi", "pypi.org.evil.net", 443),
    ],
)
def test_a_host_is_not_reached_unless_an_entry_names_it(entry: str, host: str, port: int) -> None:
    assert not reaches(entry, host, port)


@pytest.mark.parametrize("address", [*PRIVATE, *PRIVATE_TRANSLATED, *NEVER, *METADATA])
@pytest.mark.parametrize("entry", ["a.example.com", "*.example.com:443", "*"])
def test_a_name_does_not_lead_into_the_network_of_this_machine(entry: str, address: str) -> None:
    assert reaches(entry, "a.example.com", 443)
    assert not reaches(entry, "a.example.com", 443, address)


@pytest.mark.parametrize("address", [*PUBLIC, *PRIVATE, *PRIVATE_TRANSLATED])
def test_a_name_with_its_port_may_be_private(address: str) -> None:
    assert reaches("db.internal:5432", "db.internal", 5432, address)
    assert not reaches("public:db.internal:5432", "db.internal", 5432, PRIVATE[0])


@pytest.mark.parametrize("address", [*NEVER, *METADATA])
def test_the_credentials_of_the_machine_are_reached_by_their_address_alone(address: str) -> None:
    assert not reaches("db.internal:80", "db.internal", 80, address)
    written = f"[{address}]:80" if ":" in address else f"{address}:80"
    assert reaches(written, address, 80, address)


@pytest.mark.parametrize(
    "host", ["0x7f.1", "2130706433", "0177.0.0.1", "127.1", "a..b", "a b", "*", "é" * 70]
)
def test_normal_host_refuses_disguised_addresses_and_invalid_names(host: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        normal_host(host)


@pytest.mark.parametrize(
    "entry",
    [
        *("", "pip", "localhost", "0x7f.1", "a b", "a.com:0", "a.com:70000", "a.com:x"),
        *("http://a.com", "a.com/x", "*.*", "*.1.2.3.4", "**", "a.*.com", "[::1", "::1"),
    ],
)
def test_an_entry_that_names_no_host_is_refused_at_definition(entry: str) -> None:
    with pytest.raises(DefinitionError, match="pypi"):
        AllowedHosts.parse([entry])


@pytest.mark.parametrize(
    ("own", "outer", "both"),
    [
        ("example.com", "*.example.com", ()),
        ("a.example.com", "*.example.com", ("a.example.com",)),
        ("*.example.com", "a.example.com", ("a.example.com",)),
        ("*.a.example.com", "*.example.com", ("*.a.example.com",)),
        ("*", "pypi", ALIASES["pypi"]),
        ("pypi.org", "pypi", ("pypi.org",)),
        ("a.com:8443", "a.com", ()),
        ("a.com", "a.com:8443", ()),
        ("a.com:1", "a.com:2", ()),
        ("db.internal:5432", "db.internal:5432", ("db.internal:5432",)),
        # The wider one does not permit private addresses, so the result does not either.
        ("a.com:443", "a.com", ("public:a.com:443",)),
        ("a.com", "a.com:443", ("public:a.com:443",)),
        ("a.b.com:8443", "*.b.com:8443", ("public:a.b.com:8443",)),
        ("public:a.com:443", "a.com:443", ("public:a.com:443",)),
        ("[::1]:80", "*", ()),
        ("[::1]:80", "[::1]", ("[::1]:80",)),
    ],
)
def test_nested_allowed_hosts_are_the_intersection_of_both_lists(
    own: str, outer: str, both: tuple[str, ...]
) -> None:
    within = AllowedHosts.parse([own]).within(AllowedHosts.parse([outer]))

    assert within.entries() == both
    assert AllowedHosts.parse(both) == within


IN_NAMESPACE = """
import subprocess
for command in ("ip link set lo up", "ip addr add 8.8.4.4/32 dev lo"):
    subprocess.run(command.split(), check=True)
subprocess.run("ip addr add 2606:4700::77/128 dev lo".split())
from tests.agents.test_allowed_hosts import reaches
for address in ("8.8.4.4", "2606:4700::77", "::ffff:8.8.4.4", "93.184.215.14"):
    entries = ("*", "a.example.com:80", f"[{address}]:80" if ":" in address else f"{address}:80")
    hosts = ("a.example.com", "a.example.com", address)
    print(address, *(reaches(*it, 80, address) for it in zip(entries, hosts)))
"""


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"),
    reason="needs a network namespace",
)
@pytest.mark.parametrize("nonlocal_bind", ["0", "1"])
def test_a_name_does_not_lead_to_an_internet_address_of_this_machine(nonlocal_bind: str) -> None:
    sets = f"echo {nonlocal_bind} > /proc/sys/net/ipv4/ip_nonlocal_bind 2>/dev/null"
    ended = subprocess.run(
        ["unshare", "-n", "sh", "-c", f'{sets}; exec "$0" -c "$1"', sys.executable, IN_NAMESPACE],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in ended.stderr:
        pytest.skip(ended.stderr)

    assert ended.stdout.splitlines() == [
        "8.8.4.4 False True True",
        "2606:4700::77 False True True",
        "::ffff:8.8.4.4 False True True",
        "93.184.215.14 True True True",
    ], ended.stderr
